"""Settings of the toy problem: sizes, ranges, lengths of chains, for the full run and for a quick one."""

from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ggmflow.train.loop import CHUNK

Point = tuple[float, float, float]  # (λ, q, T)
SHOWN = {"structured": "structured flow", "exact": "exact sampler", "paper": "published architecture"}
BAND, WIDE = 0.75, 0.95  # credible intervals of the paper's figures


class Settings(NamedTuple):
    """All settings that the numbers depend on.

    Attributes
    ----------
    n_features, n_samples, seeds
        d, n and the seeds of the data sets.
    lam_range, q_range, cold
        Ranges of the fit; `cold` is the lowest temperature.
    num_lam, checked_lam, checked_q
        Values of λ, evenly spread in its logarithm; positions among them, and q, at which exact answers are compared.
    mode_q, entry_q
        Exponents of the paths of modes, and of the intervals of one entry.
    num_cv
        Values of λ tried by cross-validation.
    steps, num_draws, check_draws, refine_sweeps
        Of the structured flow; draws at each condition, and where they are compared; length of the chains that refine.
    num_chains, chain_draws, chain_warmup, chain_thin
        Of the exact sampler at each condition.
    bayesian_chains
        Chains of the Bayesian graphical lasso.
    paper_seconds
        Wall time of training the published architecture on each data set.
    published_size
        Layers, residual blocks of each, their width, and sigmoids of the published code, whose speed is measured.
    """

    n_features: int
    n_samples: int
    seeds: tuple[int, ...]
    lam_range: tuple[float, float]
    q_range: tuple[float, float]
    cold: float
    num_lam: int
    checked_lam: tuple[int, ...]
    checked_q: tuple[float, ...]
    mode_q: tuple[float, ...]
    entry_q: tuple[float, ...]
    num_cv: int
    steps: int | None
    num_draws: int
    check_draws: int
    refine_sweeps: int
    num_chains: int
    bayesian_chains: int
    chain_draws: int
    chain_warmup: int
    chain_thin: int
    paper_seconds: float
    published_size: tuple[int, int, int, int]

    @property
    def lams(self) -> Float[np.ndarray, " k"]:
        """The values of λ, ascending."""
        return np.geomspace(*self.lam_range, self.num_lam)

    @property
    def cold_path(self) -> list[Point]:
        """Every λ at q = 1 and the lowest temperature."""
        return [(lam, 1.0, self.cold) for lam in self.lams.tolist()]

    @property
    def checked(self) -> list[Point]:
        """Points of comparison with exact answers: all pairs of some λ and q at T = 1, and these λ on the cold path."""
        lams = self.lams[list(self.checked_lam)].tolist()
        warm = [(lam, q, 1.0) for lam, q in product(lams, self.checked_q)]
        return warm + [self.cold_path[k] for k in self.checked_lam]


FULL = Settings(
    n_features=15,
    n_samples=15,
    seeds=tuple(range(10)),
    lam_range=(10**-0.5, 10.0),
    q_range=(0.25, 1.25),
    cold=0.01,
    num_lam=16,  # 0.1 decades apart
    checked_lam=(5, 10, 14),  # 1, 3.2, 7.9
    checked_q=(1.0, 0.5, 0.25),
    mode_q=(1.0, 0.75, 0.5, 0.25),
    entry_q=tuple(np.linspace(0.25, 1.25, 9).tolist()),
    num_cv=40,
    steps=None,
    num_draws=4000,
    check_draws=12_000,
    refine_sweeps=50,
    num_chains=8,
    bayesian_chains=16,
    chain_draws=400,
    chain_warmup=500,
    chain_thin=5,
    paper_seconds=120.0,
    published_size=(10, 5, 256, 30),
)
QUICK = FULL._replace(
    n_features=4,
    n_samples=12,
    seeds=(0,),
    num_lam=4,
    checked_lam=(0, 1, 2, 3),
    checked_q=(1.0, 0.5),
    mode_q=(1.0, 0.5),
    entry_q=tuple(np.linspace(0.5625, 1.25, 12).tolist()),
    num_cv=8,
    steps=2 * CHUNK,
    num_draws=1000,
    check_draws=1000,
    num_chains=4,
    bayesian_chains=48,  # as many as all points, and all exponents, have: one program then serves all
    chain_draws=50,
    chain_warmup=50,
    chain_thin=1,
    paper_seconds=0.0,
    published_size=(2, 2, 32, 4),
)
