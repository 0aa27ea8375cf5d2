"""Settings of the runtime experiment: sizes of problems, lengths of chains, peers."""

from typing import NamedTuple

Q_RANGE = (0.25, 1.25)
CHAINS, WARMUP = 16, 500  # of the exact sampler at one point: its defaults
REFINE_SWEEPS = 50  # default of `Posterior.refine`
BLOCK = 50  # sweeps of one compiled call of the exact sampler
NUTS_LAM, NUTS_CHAINS = 2.0, 4
MEASURED = "measured"


class Size(NamedTuple):
    """A problem, and the length of its chains.

    Attributes
    ----------
    d, n, s
        Variables, rows, query variables; s = d is the whole matrix.
    num_draws, num_warmup
        Of the exact chains at four points, four chains at each.
    sides
        Grids of side² points that both methods do in full.
    """

    d: int
    n: int
    s: int
    num_draws: int
    num_warmup: int
    sides: tuple[int, ...] = ()


class Settings(NamedTuple):
    """All settings that the numbers depend on.

    Attributes
    ----------
    sizes, blanket
        Problems: whole matrices, and the Markov blanket of some variables.
    steps
        Of a fit; None is the package's default.
    fresh
        Whether to fit in a new process without a cache of compiled programs, so that compilation is counted.
    effective
        Draws wanted at each (λ, q).
    rate_draws, repeats
        Draws at once, and how often, where the flow's draws per second are measured.
    quantile_draws
        Draws behind the flow's quantiles.
    kaufmann
        Chains, draws of each and burn-in of the blanket sampler of Kaufmann et al.
    nuts
        (d, n, q, warm-up, draws) of each run of NUTS.
    published_layers, published_seconds
        Layers of the published flows, and the wall time of each; 0 leaves them out.
    """

    sizes: tuple[Size, ...]
    blanket: Size
    steps: int | None
    fresh: bool
    effective: int
    rate_draws: int
    repeats: int
    quantile_draws: int
    kaufmann: tuple[int, int, int]
    nuts: tuple[tuple[int, int, float, int, int], ...]
    published_layers: tuple[int, ...]
    published_seconds: float


FULL = Settings(
    sizes=(
        Size(15, 15, 15, 4000, 500, (1, 2, 4, 6)),
        Size(30, 25, 30, 2000, 500, (1, 2, 3)),
        Size(60, 40, 60, 600, 400),
        Size(100, 60, 100, 450, 300),
    ),
    blanket=Size(318, 190, 6, 1000, 500),
    steps=None,
    fresh=True,
    effective=1000,
    rate_draws=8000,
    repeats=5,
    quantile_draws=4000,
    kaufmann=(4, 500, 200),
    # At q = 0.5 a draw takes all of the 1023 leapfrog steps there are: short chains, which do not mix anyway.
    nuts=((15, 15, 1.0, 500, 500), (15, 15, 0.5, 200, 100), (30, 25, 1.0, 500, 500), (30, 25, 0.5, 100, 60)),
    published_layers=(10, 4),  # of the published code, of the paper's text
    published_seconds=30.0,
)
QUICK = Settings(
    sizes=(Size(3, 12, 3, BLOCK, BLOCK, (1, 2)),),
    blanket=Size(4, 12, 2, BLOCK, BLOCK),
    steps=1,
    fresh=False,
    effective=600,
    rate_draws=1000,  # one program serves all draws, of which up to 500 would have their own
    repeats=2,
    quantile_draws=1000,
    kaufmann=(2, 50, 20),
    nuts=((3, 12, 1.0, 10, 10),),
    published_layers=(10,),
    published_seconds=0.0,
)
