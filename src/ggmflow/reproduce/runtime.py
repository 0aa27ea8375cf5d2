"""What the whole continuum of (λ, q) costs: one fit and draws, or a sampler that is run anew for every point.

    flow(k) = fit + k · draws,   sampler(k) = compilation + k · (warm-up + sampling),   k points (λ, q)

Every method gives 1000 effective draws at each point. A draw of the flow counts as one where its 5, 50 and 95 %
quantiles are at most 0.1 posterior standard deviations off those of the exact sampler, mean over all entries; elsewhere
refined draws count. Of a chain, the entry of Ω with the smallest bulk effective sample size counts.
"""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike

from ggmflow import gibbs
from ggmflow.baselines import blanket_gibbs
from ggmflow.conditions import find_ranges
from ggmflow.data import Scatter
from ggmflow.estimator import GraphicalFlow
from ggmflow.plot.style import DASHED, FAINT, LINES, MARKERS, NEUTRAL, SMALL, legend_below, open_frame, set_title
from ggmflow.posterior import PoorFitWarning
from ggmflow.reproduce import published
from ggmflow.reproduce.nuts import run_nuts
from ggmflow.reproduce.record import Job
from ggmflow.simulate import toy_problem

Frame = Any  # a DataFrame or Series: their annotations leave open what a column or a sum is
Tables = Mapping[str, Frame]
Point = tuple[float, float]  # (λ, q)

Q_RANGE = (0.25, 1.25)
LEVELS = [0.05, 0.5, 0.95]
LIMIT = 0.1  # sd: draws of the flow whose quantiles are further off do not count
CHAINS, WARMUP = 16, 500  # of the exact sampler at one point: its defaults
REFINE_SWEEPS = 50  # default of `Posterior.refine`
BLOCK = 50  # sweeps of one compiled call of the exact sampler
NUTS_LAM, NUTS_CHAINS = 2.0, 4
FLOW, EXACT, PUBLISHED, NUTS, DRAWS = 0, 1, 2, 3, 5  # positions among colours and markers
MIXED = 1.05  # R̂ up to which chains are said to have mixed
PUBLISHED_SIZE, PUBLISHED_GIBBS_SECONDS, PUBLISHED_GIBBS_DRAWS, PUBLISHED_FLOW_RATE = (
    "s = 6, t = 312",
    89.0,
    500,
    2000.0,
)
PUBLISHED_RATIO = PUBLISHED_FLOW_RATE * PUBLISHED_GIBBS_SECONDS / PUBLISHED_GIBBS_DRAWS
MEASURED = "measured"
_COMPILING = ("jaxpr_trace_duration", "jaxpr_to_mlir_module_duration", "backend_compile_duration")
_CHILD = "import sys; from ggmflow.reproduce.runtime import fit_and_save; fit_and_save(*sys.argv[1:])"


class Size(NamedTuple):
    """A problem, and the effort for it.

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
    """What the numbers depend on.

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
    blanket=Size(4, 12, 1, BLOCK, BLOCK),
    steps=1,
    fresh=False,
    effective=300,
    rate_draws=1000,  # one program serves all draws
    repeats=2,
    quantile_draws=1000,
    kaufmann=(2, 50, 20),
    nuts=((3, 12, 1.0, 10, 10),),
    published_layers=(10,),
    published_seconds=0.0,
)


# ---------------------------------------------------------------------------------------------------------------- jobs
def jobs(settings: Settings) -> list[Job]:
    """One job for each size and peer."""
    flows = [Job(_name(size), partial(run_size, settings, size)) for size in (*settings.sizes, settings.blanket)]
    nuts = [Job(f"NUTS, d = {run[0]}, q = {run[2]:g}", partial(run_against_nuts, *run)) for run in settings.nuts]
    torch = [
        Job(f"published flow of {layers} layers", partial(run_against_published, layers, settings.published_seconds))
        for layers in settings.published_layers
    ]
    return [*flows, Job("blanket sampler of Kaufmann et al.", partial(run_kaufmann, settings)), *nuts, *torch]


def _name(size: Size) -> str:
    what = f"d = {size.d}" if size.s == size.d else f"blanket of {size.s} among {size.d}"
    return f"flow and exact sampler, {what}"


def run_size(settings: Settings, size: Size) -> dict[str, pd.DataFrame]:
    """Fit, draw, run the exact sampler at four points and, where the settings say so, on whole grids.

    Returns
    -------
    tables
        `fits`, one row; `points`, one for each point; `grids`, one for each grid.
    """
    scatter = _data(size)
    lam_range = _lam_range(scatter, size)
    points = grid(lam_range, 2)
    with _cache_off(settings.fresh), warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorFitWarning)  # errors are measured here
        model, fitted = _fit(settings, size)
        draw_compilation, draw_seconds = _time_draws(model, points, settings)
        rate = settings.rate_draws / _median_seconds(
            lambda k: model.posterior(*points[0]).sample(settings.rate_draws, random_state=k), settings.repeats
        )
        exact = run_exact(scatter, points, size)
        rows = []
        for k, (lam, q) in enumerate(points):
            error, own = quantile_error(model, lam, q, exact.chains[k], settings.quantile_draws)
            flow_error = float(np.sqrt(max(0.0, error**2 - own**2)))
            ess = float(exact.chains[k].ess_bulk.min())
            ess_per_sweep = ess / (exact.chains[k].draws.shape[0] * size.num_draws)
            rows.append(
                {
                    "d": size.d,
                    "s": size.s,
                    "lam": lam,
                    "q": q,
                    "flow_seconds": draw_seconds[k],
                    "refined_seconds": settings.effective * REFINE_SWEEPS * exact.sweep_seconds,
                    "warmup_seconds": CHAINS * WARMUP * exact.sweep_seconds,
                    "sampling_seconds": settings.effective / ess_per_sweep * exact.sweep_seconds,
                    "effective_per_second": ess_per_sweep / exact.sweep_seconds,
                    "ess": ess,
                    "rhat": float(exact.chains[k].rhat.max()),
                    "error": error,
                    "own_error": own,
                    "flow_error": flow_error,
                    "refined": flow_error > LIMIT,
                }
            )
        starts = (fitted["seconds"] + draw_compilation, exact.compile_seconds)
        grids = [_time_grid(model, scatter, size, lam_range, side, starts, settings) for side in size.sides]
    fits = {
        "d": size.d,
        "n": size.n,
        "s": size.s,
        "entries": model.flow_.n_entries,
        "lam_low": lam_range[0],
        "lam_high": lam_range[1],
        "steps": model.n_iter_,
        "fit_seconds": fitted["seconds"],
        "compile_seconds": fitted["compile_seconds"],
        "step_seconds": (fitted["seconds"] - fitted["compile_seconds"]) / model.n_iter_,
        "cores": fitted["cpu_seconds"] / fitted["seconds"],
        "draw_compile_seconds": draw_compilation,
        "draws_per_second": rate,
        "exact_compile_seconds": exact.compile_seconds,
        "sweep_seconds": exact.sweep_seconds,
        "exact_cores": exact.cores,
        "effective": settings.effective,
    }
    tables = {"fits": pd.DataFrame([fits]), "points": pd.DataFrame(rows)}
    return tables | ({"grids": pd.DataFrame(grids)} if grids else {})


def run_kaufmann(settings: Settings) -> dict[str, pd.DataFrame]:
    """The blanket sampler of Kaufmann et al. (2015) at the points of the blanket that have q = 1."""
    size, (num_chains, num_draws, burn_in) = settings.blanket, settings.kaufmann
    scatter = _data(size)
    query, rows = list(range(size.s)), []
    for lam in sorted({lam for lam, _ in grid(_lam_range(scatter, size), 2)}):
        run = partial(blanket_gibbs, scatter, query, lam, num_chains=num_chains, num_draws=num_draws)
        first = np.nan if rows else _seconds(lambda run=run: run(num_chains=1, burn_in=0))
        begin = time.perf_counter()
        chains = run(burn_in=burn_in)
        sweep = (time.perf_counter() - begin) / (num_chains * (burn_in + num_draws))  # all sweeps cost the same
        rows.append(
            {
                "d": size.d,
                "s": size.s,
                "lam": lam,
                "q": 1.0,
                "compile_seconds": np.nan if rows else max(0.0, first - num_draws * sweep),
                "seconds_per_500": 500 * sweep,
                "draws_per_second": 1 / sweep,
                "effective_per_second": float(chains.ess_bulk.min()) / (num_chains * num_draws * sweep),
                "rhat": float(chains.rhat.max()),
            }
        )
    return {"kaufmann": pd.DataFrame(rows)}


def run_against_nuts(d: int, n: int, q: float, num_warmup: int, num_draws: int) -> dict[str, pd.DataFrame]:
    """NUTS and the exact sampler at one (λ, q), both after warm-up and compilation."""
    scatter = _data(Size(d, n, d, 0, 0))
    run = partial(gibbs.sample, scatter=scatter, lam=NUTS_LAM, q=q)
    warm = run(jax.random.key(0), num_chains=CHAINS, num_draws=BLOCK, num_warmup=WARMUP)
    begin = time.perf_counter()
    exact = run(jax.random.key(1), start=warm.draws[:, -1], num_draws=max(BLOCK, 4 * num_draws), num_warmup=0)
    seconds = time.perf_counter() - begin
    row = {
        "d": d,
        "n": n,
        "lam": NUTS_LAM,
        "q": q,
        "exact_per_second": float(exact.ess_bulk.min()) / seconds,
        "exact_rhat": float(exact.rhat.max()),
    }
    numbers = ("nuts_per_second", "nuts_rhat", "leapfrog_steps", "warmup_seconds", "difference")
    try:
        nuts = run_nuts(scatter, NUTS_LAM, q, num_draws, num_warmup, exact.draws[:NUTS_CHAINS, -1])
    except ImportError as error:
        row |= dict.fromkeys(numbers, np.nan) | {"status": f"not measured: {error}"}
    else:
        # Do they agree? The largest difference of means, in posterior sds.
        difference = np.abs(exact.pooled.mean(0) - nuts.chains.pooled.mean(0)) / exact.pooled.std(0)
        rate, rhat = float(nuts.chains.ess_bulk.min()) / nuts.seconds, float(nuts.chains.rhat.max())
        found = (rate, rhat, nuts.steps, nuts.warmup_seconds, float(difference.max()))
        row |= dict(zip(numbers, found, strict=True)) | {"status": MEASURED}
    return {"nuts": pd.DataFrame([row])}


def run_against_published(layers: int, seconds: float) -> dict[str, pd.DataFrame]:
    """Steps and draws per second of the published flow on the toy problem, in an environment of its own."""
    settings = published.Settings(seconds=seconds, layers=layers)
    numbers = ("parameters", "steps", "seconds_per_step", "draws_per_second", "cores", "elbo", "elbo_se")
    row: dict[str, Any] = {"d": 15, "n": 15, "layers": layers, "batch": settings.batch}
    row |= dict.fromkeys(numbers, np.nan)
    if not seconds:
        row["status"] = "not measured in quick mode"
        return {"published": pd.DataFrame([row])}
    try:
        python, _ = published.environment()
        found = published.run_published(python, settings, _data(Size(15, 15, 15, 0, 0)))
    except published.PublishedFlowError as error:
        why = str(error).splitlines()[0].replace(str(Path.home()), "~")
        row["status"] = f"not measured: {why}"
    else:
        row |= {name: getattr(found, name) for name in numbers} | {"status": MEASURED}
    return {"published": pd.DataFrame([row])}


def grid(lam_range: tuple[float, float], side: int) -> list[Point]:
    """Midpoints of a grid of side × side cells over log λ and q."""
    middle = (np.arange(side) + 0.5) / side
    lam = np.exp(np.log(lam_range[0]) + middle * np.log(lam_range[1] / lam_range[0]))
    q = Q_RANGE[0] + middle * (Q_RANGE[1] - Q_RANGE[0])
    return list(product(lam.tolist(), q.tolist()))


def _data(size: Size) -> Scatter:
    return Scatter.from_data(toy_problem(size.d, size.n, random_state=0)[0])


def _lam_range(scatter: Scatter, size: Size) -> tuple[float, float]:
    """The automatic range of a fit."""
    return find_ranges("auto", Q_RANGE, 1.0, scatter, np.arange(size.s)).lam


# ------------------------------------------------------------------------------------------------------------- the flow
def fit_and_save(folder: str, request: str) -> None:
    """Fit a flow, compilation counted, and leave the model and what it took in a folder; a process of its own does it.

    Parameters
    ----------
    folder
        Existing; gets model.ggmflow and fit.json with seconds, compile_seconds and cpu_seconds.
    request
        JSON of d, n, s and steps.
    """
    asked = json.loads(request)
    X, _ = toy_problem(asked["d"], asked["n"], random_state=0)
    query = None if asked["s"] == asked["d"] else list(range(asked["s"]))
    options: dict[str, Any] = {"q": Q_RANGE, "temperature": 1.0, "query": query, "steps": asked["steps"]}
    model, compiling = GraphicalFlow(**options, random_state=0, progress=False), []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event.removeprefix("/jax/core/compile/") in _COMPILING:
            compiling.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    begin, cpu_begin = time.perf_counter(), time.process_time()
    try:
        model.fit(X)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    model.save(Path(folder) / "model.ggmflow")
    report = {"seconds": seconds, "compile_seconds": min(sum(compiling), seconds), "cpu_seconds": cpu_seconds}
    (Path(folder) / "fit.json").write_text(json.dumps(report), encoding="utf-8")


def _fit(settings: Settings, size: Size) -> tuple[GraphicalFlow, dict[str, float]]:
    """The fitted model, and what `fit_and_save` measured."""
    request = json.dumps({"d": size.d, "n": size.n, "s": size.s, "steps": settings.steps})
    with tempfile.TemporaryDirectory() as folder:
        if settings.fresh:
            subprocess.run([sys.executable, "-c", _CHILD, folder, request], check=True)
        else:
            fit_and_save(folder, request)
        report = json.loads((Path(folder) / "fit.json").read_text(encoding="utf-8"))
        return GraphicalFlow.load(Path(folder) / "model.ggmflow"), report


@contextmanager
def _cache_off(off: bool) -> Iterator[None]:
    """Without compiled programs from disk, in this process and those it starts."""
    before = os.environ.get("GGMFLOW_CACHE")
    if off:
        os.environ["GGMFLOW_CACHE"] = "off"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("GGMFLOW_CACHE", None)
        else:
            os.environ["GGMFLOW_CACHE"] = before


def _time_draws(model: GraphicalFlow, points: list[Point], settings: Settings) -> tuple[float, list[float]]:
    """Seconds of compilation, and of the wanted draws at each point."""

    def draw(lam: float, q: float, k: int) -> None:
        model.posterior(lam, q).sample(settings.effective, random_state=k)

    first = _seconds(lambda: draw(*points[0], 0))
    seconds = [_median_seconds(partial(draw, lam, q), settings.repeats) for lam, q in points]
    return max(0.0, first - seconds[0]), seconds


def quantile_error(
    model: GraphicalFlow, lam: float, q: float, chains: gibbs.Chains, num_draws: int
) -> tuple[float, float]:
    """Errors of quantiles in units of the exact posterior's standard deviation, mean over entries and levels.

    Returns
    -------
    error
        Of the flow's plain draws against the chains.
    own
        Of the chains themselves: half the difference between the halves of them.
    """
    s, d = chains.draws.shape[2:]
    free = np.triu_indices(s, m=d)
    draws = chains.draws[:, :, *free]
    pooled = draws.reshape(-1, draws.shape[-1])
    truth, sd = np.quantile(pooled, LEVELS, axis=0), pooled.std(axis=0)
    halves = [np.quantile(half.reshape(-1, half.shape[-1]), LEVELS, axis=0) for half in (draws[::2], draws[1::2])]
    found = model.posterior(lam, q, num_draws=num_draws).quantile(LEVELS, weighted=False)[:, *free]
    return float(np.mean(np.abs(found - truth) / sd)), float(np.mean(np.abs(halves[0] - halves[1]) / sd) / 2)


# ---------------------------------------------------------------------------------------------------- the exact sampler
class Exact(NamedTuple):
    """Exact chains at some points and what they took.

    Attributes
    ----------
    chains
        Of each point.
    compile_seconds
        Once for all.
    sweep_seconds
        Of one sweep of one chain, 16 of which run at once: the median of blocks of 50 sweeps.
    cores
        CPU time over wall time.
    """

    chains: list[gibbs.Chains]
    compile_seconds: float
    sweep_seconds: float
    cores: float


def run_exact(scatter: Scatter, points: list[Point], size: Size) -> Exact:
    """Chains at all points in one call, as many in all as the sampler would run at one point by default."""
    each = CHAINS // len(points)
    lam, q = np.repeat(np.array(points), each, axis=0).T
    run = partial(gibbs.sample, scatter=scatter, lam=lam, q=q, n_query=size.s)
    begin = time.perf_counter()
    warm = run(jax.random.key(1), num_draws=BLOCK, num_warmup=0)
    first, ends, cpu_begin = time.perf_counter() - begin, [time.perf_counter()], time.process_time()
    chains = run(
        jax.random.key(2),
        start=warm.draws[:, -1],
        num_draws=size.num_draws,
        num_warmup=size.num_warmup,
        progress=lambda *_: ends.append(time.perf_counter()),
    )
    block, cores = float(np.median(np.diff(ends))), (time.process_time() - cpu_begin) / (ends[-1] - ends[0])
    parts = [chains.select(np.arange(k * each, (k + 1) * each)) for k in range(len(points))]
    return Exact(parts, max(0.0, first - block), block / (BLOCK * CHAINS), cores)


def run_until(scatter: Scatter, lam: float, q: float, effective: int, n_query: int) -> tuple[float, gibbs.Chains]:
    """The exact sampler with its defaults until the worst entry has so many effective draws.

    Returns
    -------
    seconds
        Of warm-up and sampling; counting effective draws is left out, and nothing is compiled if `run_exact` was called
        for the same data before.
    chains
    """
    run = partial(gibbs.sample, scatter=scatter, lam=lam, q=q, n_query=n_query)
    begin = time.perf_counter()
    chains = run(jax.random.key(3), num_chains=CHAINS, num_draws=2 * BLOCK, num_warmup=WARMUP)
    seconds = time.perf_counter() - begin
    while (ess := float(chains.ess_bulk.min())) < effective:
        kept = chains.draws.shape[1]
        more = min(4 * kept, int(np.ceil(1.1 * kept * (effective / ess - 1) / BLOCK)) * BLOCK)
        begin = time.perf_counter()
        new = run(jax.random.key(3 + kept), start=chains.draws[:, -1], num_draws=more, num_warmup=0)
        seconds += time.perf_counter() - begin
        chains = gibbs.Chains(np.concatenate([chains.draws, new.draws], axis=1), new.lam, new.q, new.temperature)
    return seconds, chains


def _time_grid(
    model: GraphicalFlow,
    scatter: Scatter,
    size: Size,
    lam_range: tuple[float, float],
    side: int,
    starts: tuple[float, float],
    settings: Settings,
) -> dict[str, Any]:
    """Both methods at side² points; totals include what each pays once (`starts`)."""
    points = grid(lam_range, side)
    flow = sum(
        _seconds(lambda lam=lam, q=q: model.posterior(lam, q).sample(settings.effective, random_state=0))
        for lam, q in points
    )
    runs = [run_until(scatter, lam, q, settings.effective, size.s) for lam, q in points]
    exact = sum(seconds for seconds, _ in runs)
    return {
        "d": size.d,
        "points": len(points),
        "flow_seconds": starts[0] + flow,
        "draw_seconds": flow,
        "exact_seconds": starts[1] + exact,
        "sweep_seconds": exact,
        "least_ess": min(float(chains.ess_bulk.min()) for _, chains in runs),
        "largest_rhat": max(float(chains.rhat.max()) for _, chains in runs),
    }


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _median_seconds(call: Callable[[int], object], repeats: int) -> float:
    """Median over calls with 1, 2, …, after one call with 0 that does not count."""
    call(0)
    return float(np.median([_seconds(lambda k=k: call(k)) for k in range(1, repeats + 1)]))


# ---------------------------------------------------------------------------------------------- numbers from the tables
class Exponent(NamedTuple):
    """Of y ∝ xᵉ, with its standard error; NaN where there are too few numbers."""

    value: float
    se: float

    def __str__(self) -> str:
        return f"{self.value:.2f}" + ("" if np.isnan(self.se) else f" ± {self.se:.2f}")


def exponent(x: ArrayLike, y: ArrayLike) -> Exponent:
    """Fit y ∝ xᵉ by least squares of log y on log x."""
    log_x, log_y = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    if len(log_x) < 2:
        return Exponent(np.nan, np.nan)
    slope, intercept = np.polyfit(log_x, log_y, 1)
    rest, freedom = log_y - intercept - slope * log_x, len(log_x) - 2
    se = np.sqrt(np.sum(rest**2) / freedom / np.sum((log_x - log_x.mean()) ** 2)) if freedom else np.nan
    return Exponent(float(slope), float(se))


def break_even(flow_once: float, flow_each: float, exact_once: float, exact_each: float) -> float:
    """Smallest number of points from which on the flow takes less time in all; infinite if there is none."""
    if exact_each <= flow_each:
        return np.inf
    return float(max(1.0, np.floor((flow_once - exact_once) / (exact_each - flow_each)) + 1))


def costs(tables: Tables) -> Frame:
    """What a point costs, mean over the four points of each size, and from how many points on the flow wins.

    Returns
    -------
    DataFrame
        A row for each size, blanket included: what `fits` has; in seconds flow_once, plain, refined, flow_each (plain,
        or refined where the flow's error asks for it), warmup, sampling, exact_each; in points wins, wins_unwarmed (no
        warm-up counted), wins_refined (refined draws everywhere), refined_points; the largest error and rhat, and
        slowest and fastest effective draws per second.
    """
    points = tables["points"]
    points = points.assign(refined_each=points["flow_seconds"] + points["refined_seconds"])
    points["used"] = points["flow_seconds"].where(~points["refined"].astype(bool), points["refined_each"])
    rows = []
    for fit in tables["fits"].to_dict("records"):
        own = points[(points["d"] == fit["d"]) & (points["s"] == fit["s"])]
        once, exact_once = fit["fit_seconds"] + fit["draw_compile_seconds"], fit["exact_compile_seconds"]
        names = ("flow_seconds", "refined_each", "used", "warmup_seconds", "sampling_seconds")
        plain, refined, each, warmup, sampling = (float(own[name].mean()) for name in names)
        rows.append(
            fit
            | {
                "flow_once": once,
                "plain": plain,
                "refined": refined,
                "flow_each": each,
                "warmup": warmup,
                "sampling": sampling,
                "exact_each": warmup + sampling,
                "wins": break_even(once, each, exact_once, warmup + sampling),
                "wins_unwarmed": break_even(once, each, exact_once, sampling),
                "wins_refined": break_even(once, refined, exact_once, warmup + sampling),
                "refined_points": int(own["refined"].sum()),
                "error": float(own["flow_error"].max()),
                "rhat": float(own["rhat"].max()),
                "slowest": float(own["effective_per_second"].min()),
                "fastest": float(own["effective_per_second"].max()),
            }
        )
    return pd.DataFrame(rows)


def _matrices(tables: Tables) -> Frame:
    """Costs of whole matrices, by size."""
    table = costs(tables)
    return table[table["d"] == table["s"]].sort_values("d", ignore_index=True)


def _blanket(tables: Tables) -> tuple[Frame, Frame]:
    """Costs of the blanket, and its points."""
    table, points = costs(tables), tables["points"]
    return table[table["d"] != table["s"]].iloc[0], points[points["d"] != points["s"]].sort_values(["q", "lam"])


def _measured(table: Frame) -> Frame:
    return table[table["status"] == MEASURED]


def _blanket_ratios(tables: Tables) -> tuple[float, float]:
    """Draws a second of the flow over those of the sampler of Kaufmann et al.: all of them, and effective ones."""
    row, kaufmann = _blanket(tables)[0], tables["kaufmann"]
    draws, effective = (float(kaufmann[name].median()) for name in ("draws_per_second", "effective_per_second"))
    return row["draws_per_second"] / draws, row["draws_per_second"] / effective


# ------------------------------------------------------------------------------------------------------------- pictures
def figures(tables: Tables) -> dict[str, Figure]:
    """Cost against d, cost against the number of points, and the blanket."""
    return {
        "cost_against_d": _draw_sizes(tables),
        "cost_against_points": _draw_points(tables),
        "blanket": _draw_blanket(tables),
    }


def _draw_sizes(tables: Tables) -> Figure:
    figure = Figure(figsize=(9.6, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    table = _matrices(tables)
    d, effective = table["d"].to_numpy(float), float(table["effective"].iloc[0])
    paid = {
        "flow: fit, once": (FLOW, table["flow_once"]),
        f"flow: {_number(effective)} draws at a point": (DRAWS, table["flow_each"]),
        f"exact sampler: {_number(effective)} effective draws at a point": (EXACT, table["exact_each"]),
    }
    parts = {
        "a step of training": (FLOW, table["step_seconds"]),
        "a draw of the flow": (DRAWS, 1 / table["draws_per_second"]),
        "a sweep of one exact chain": (EXACT, table["sweep_seconds"]),
    }
    handles = [_draw_power(left, k, d, y.to_numpy(float), label) for label, (k, y) in paid.items()]
    for k, (q, part) in enumerate(_measured(tables["nuts"]).sort_values("d").groupby("q", sort=False)):
        style = {"color": LINES[NUTS + k], "marker": MARKERS[NUTS + k], "ms": 5, "lw": 1.2, "ls": DASHED}
        line = left.plot(part["d"], effective / part["nuts_per_second"], **style)[0]
        line.set(label=f"NUTS, q = {q:g}, the same (warm-up left out)")
        handles.append(line)
    own = [_draw_power(right, k, d, y.to_numpy(float), label) for label, (k, y) in parts.items()]
    for ax, title, found in ((left, "What is paid", handles), (right, "What it consists of", own)):
        ax.set(xscale="log", yscale="log", xlabel="variables d", ylabel="seconds")
        ax.set_xticks(d, [f"{each:g}" for each in d])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.margins(x=0.08)
        open_frame(ax)
        set_title(ax, title)
        legend_below(ax, found)
    return figure


def _draw_power(ax: Axes, k: int, x: Float[np.ndarray, " m"], y: Float[np.ndarray, " m"], label: str) -> Line2D:
    """Numbers, the power of d fitted to them, and its exponent in the legend."""
    power = exponent(x, y)
    if np.isfinite(power.value):
        level = np.exp(np.mean(np.log(y)) - power.value * np.mean(np.log(x)))
        ax.plot(x, level * x**power.value, color=LINES[k], lw=1.6)
        label = f"{label}, ∝ d^({power})"
    ax.plot(x, y, ls="", color=LINES[k], marker=MARKERS[k], ms=5)
    return Line2D([], [], color=LINES[k], marker=MARKERS[k], ms=5, lw=1.6, label=label)


def _draw_points(tables: Tables) -> Figure:
    table, grids = _matrices(tables), tables["grids"]
    height = -(-len(table) // 2)
    figure = Figure(figsize=(9.6, 0.5 + 2.9 * height), layout="constrained")
    axes = figure.subplots(height, min(2, len(table)), squeeze=False).ravel()
    k, handles = np.geomspace(1, 1000, 61), {}
    for ax in axes[len(table) :]:
        ax.set_axis_off()

    def draw(ax: Axes, y: Any, colour: int, label: str, style: Any = "-") -> None:
        ax.plot(k, y, color=LINES[colour], lw=1.6, ls=style)
        marker = MARKERS[colour] if colour in (FLOW, EXACT) else ""
        handles.setdefault(label, Line2D([], [], color=LINES[colour], lw=1.6, ls=style, marker=marker, ms=5))

    for ax, row in zip(axes, table.to_dict("records"), strict=False):
        own = grids[grids["d"] == row["d"]]
        sampling = row["exact_compile_seconds"] + k * row["sampling"]
        draw(ax, row["flow_once"] + k * row["flow_each"], FLOW, "flow, fit included")
        draw(ax, sampling + k * row["warmup"], EXACT, "exact sampler (band: less warm-up)")
        ax.fill_between(k, sampling, sampling + k * row["warmup"], color=LINES[EXACT], alpha=0.15, lw=0)
        nuts, torch = (_measured(tables[name]) for name in ("nuts", "published"))
        for run in nuts[(nuts["d"] == row["d"]) & (nuts["q"] == 1)].to_dict("records"):
            draw(ax, k * row["effective"] / run["nuts_per_second"], NUTS, "NUTS, q = 1, no warm-up", DASHED)
        for run in torch[torch["d"] == row["d"]].nlargest(1, "layers").to_dict("records"):
            once, each = published.TRAINING_STEPS * run["seconds_per_step"], row["effective"] / run["draws_per_second"]
            draw(ax, once + k * each, PUBLISHED, "published flow, 10 000 steps", DASHED)
        if row["wins"] <= k[-1]:
            ax.axvline(row["wins"], color=NEUTRAL, lw=1, ls=":")
            place = {"xytext": (-4, 0), "ha": "right"} if row["wins"] > 150 else {"xytext": (4, 0), "ha": "left"}
            at = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "fontsize": SMALL}
            points = "point" if row["wins"] == 1 else "points"
            ax.annotate(f"{_count(row['wins'])} {points}", (row["wins"], 0.03), **at, **place)
        ax.set(xscale="log", yscale="log", xlim=(0.85, 1000), xlabel="points (λ, q)", ylabel="seconds in all")
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set_ylim(bottom=ax.get_ylim()[0] / (8 if len(own) else 2))  # room for words
        if len(own):
            words = ["markers: measured"]
            for j, name, who in ((FLOW, "flow_seconds", "flow"), (EXACT, "exact_seconds", "exact sampler")):
                ax.plot(own["points"], own[name], ls="", marker=MARKERS[j], ms=5, color=LINES[j])
                words.append(f"{who} ∝ k^({exponent(own['points'], own[name])})")
            place = {"transform": ax.transAxes, "ha": "right", "va": "bottom", "fontsize": SMALL}
            ax.text(0.98, 0.1, "\n".join(words), **place)
        open_frame(ax)
        set_title(ax, f"d = {row['d']:g}, n = {row['n']:g}")
    texts = {"loc": "outside lower center", "ncols": len(handles), "frameon": False, "fontsize": SMALL}
    figure.legend(list(handles.values()), list(handles), **texts)
    return figure


def _draw_blanket(tables: Tables) -> Figure:
    (row, points), kaufmann = _blanket(tables), tables["kaufmann"].sort_values("lam")
    effective = [("exact sampler: effective draws", point) for point in points.to_dict("records")]
    effective += [("Kaufmann et al.: effective draws", each) for each in kaufmann.to_dict("records")]
    dots = [
        ("flow: independent draws", row["draws_per_second"], FLOW),
        ("flow, published, on a TITAN X", PUBLISHED_FLOW_RATE, PUBLISHED),
        *((f"{who}, λ = {e['lam']:.3g}, q = {e['q']:g}", e["effective_per_second"], EXACT) for who, e in effective),
        ("Kaufmann et al.: all draws", float(kaufmann["draws_per_second"].median()), EXACT),
        ("Kaufmann et al., published: all draws", PUBLISHED_GIBBS_DRAWS / PUBLISHED_GIBBS_SECONDS, PUBLISHED),
    ]
    labels, rates, whose = (list(values)[::-1] for values in zip(*dots, strict=True))
    figure = Figure(figsize=(9.6, 1.0 + 0.3 * len(dots)), layout="constrained")
    ax = figure.subplots()
    for k, (rate, who) in enumerate(zip(rates, whose, strict=True)):
        face = "white" if who == PUBLISHED else LINES[who]
        ax.axhline(k, color=FAINT, lw=0.6, zorder=0)
        ax.plot(rate, k, marker=MARKERS[who], ms=7, color=LINES[who], mfc=face)
        ax.annotate(_number(rate), (rate, k), xytext=(8, 3), textcoords="offset points", fontsize=SMALL)
    ax.set_yticks(range(len(dots)), labels, fontsize=SMALL)
    limits = (min(rates) / 2, max(rates) * 3)
    ax.set(xscale="log", xlim=limits, xlabel="per second, after fit, warm-up and compilation")
    open_frame(ax)
    set_title(ax, f"Markov blanket of {row['s']:g} among {row['d']:g} variables; hollow: as published")
    return figure


# ---------------------------------------------------------------------------------------------------------------- words
def section(tables: Tables) -> str:
    """The part of the page of results."""
    parts = (_opening, _about_sizes, _about_break_even, _about_grids, _about_nuts, _about_published, _about_blanket)
    return "\n\n".join(["## Runtime", *(part(tables) for part in parts)])


def _opening(tables: Tables) -> str:
    wanted = _number(float(tables["fits"]["effective"].iloc[0]))
    return _paragraph(
        "What does the whole continuum of (λ, q) cost at T = 1? The flow is fitted once, for the automatic range of λ",
        f"and q from {Q_RANGE[0]:g} to {Q_RANGE[1]:g}, and then gives {wanted} draws at any point. The exact sampler",
        f"is run anew for each point, with its defaults ({CHAINS} chains, {WARMUP} sweeps of warm-up), until the entry",
        f"of Ω that mixes worst has {wanted} effective draws. Data are the toy problem's at several sizes. Fits are",
        "timed in new processes without a cache, so compilation is in them, and is given alone too; all else is timed",
        "after compilation, medians of repeated calls. Exact chains ran at four points of each size, λ at a quarter",
        "and at three quarters of its range (of log λ), q = 0.5 and 1. What a point costs is the mean of the four, and",
        "effective draws are extrapolated from the rate of these chains.",
    )


def _about_sizes(tables: Tables) -> str:
    table = _matrices(tables)
    wanted, many = _number(float(table["effective"].iloc[0])), int(table["refined_points"].sum())
    rows = [
        {
            "d": f"{row['d']:g}",
            "n": f"{row['n']:g}",
            "λ": f"{row['lam_low']:.2g} – {row['lam_high']:.2g}",
            "fit": _show(row["fit_seconds"]),
            "of it compilation": _show(row["compile_seconds"]),
            "steps": f"{row['steps']:g}",
            "a step": _show(row["step_seconds"]),
            f"{wanted} draws at a point": _show(row["plain"]),
            "draws a second": _number(row["draws_per_second"]),
            "quantile error, sd": f"{row['error']:.3f}",
            "points refined": f"{row['refined_points']:g} of 4",
        }
        for row in table.to_dict("records")
    ]
    refined = "It is nowhere larger, so plain draws are counted everywhere."
    if many:
        refined = f"""At {many} points it is larger: there refined draws are counted, {wanted} chains of {REFINE_SWEEPS}
            sweeps, at the cost of so many sweeps of the exact sampler."""
    growth = "For exponents of d there are too few sizes."
    if len(table) > 2:
        powers = {
            "the fit grows as": "flow_once",
            "a step of training as": "step_seconds",
            "draws at a point as": "flow_each",
            "the exact sampler at a point as": "exact_each",
            "one of its sweeps as": "sweep_seconds",
        }
        powers = [f"{what} d^({exponent(table['d'], table[name])})" for what, name in powers.items()]
        growth = f"""With the number of variables {", ".join(powers)}: least squares of logarithms, ± a standard error.
            Sizes differ in n too, and larger ones are fitted with fewer draws a step."""
    error = _paragraph(
        "The quantile error is that of the flow's plain draws against the exact chains, mean over entries and 5, 50",
        "and 95 % quantiles, without the chains' own (which their halves tell; subtracted in quadrature); of the four",
        f"points the largest. Up to {LIMIT:g} a draw counts as an effective one. {refined}",
    )
    picture = "![Cost against the number of variables](assets/results/runtime/cost_against_d.png)"
    return "\n\n".join([_markdown(rows), error, picture, _paragraph(growth)])


def _about_break_even(tables: Tables) -> str:
    table = _matrices(tables)
    rows = [
        {
            "d": f"{row['d']:g}",
            "exact sampler: a point": _show(row["exact_each"]),
            "of it warm-up": _show(row["warmup"]),
            "effective draws a second": f"{_number(row['slowest'])} – {_number(row['fastest'])}",
            "largest R̂": f"{row['rhat']:.3f}",
            "flow: a point": _show(row["flow_each"]),
            "**flow wins from**": f"**{_count(row['wins'])}**",
            "warm-up not counted": _count(row["wins_unwarmed"]),
            "refined everywhere": _count(row["wins_refined"]),
        }
        for row in table.to_dict("records")
    ]
    words = []
    for wins, part in ((True, table[np.isfinite(table["wins"])]), (False, table[~np.isfinite(table["wins"])])):
        where = [(_count(row["wins"]), f"d = {row['d']:g}") for row in part.to_dict("records")]
        if where and wins:
            words.append(f"The flow wins from k points on, k = {', '.join(f'{k} at {d}' for k, d in where)}.")
            words.append("For fewer points the exact sampler is faster." if (part["wins"] > 1).any() else "")
        elif where:
            words.append(f"At {', '.join(d for _, d in where)} it never wins: a point costs the exact sampler less.")
    ratio = table["exact_each"] / table["flow_each"]
    least, most = _ratio(float(ratio.min())), _ratio(float(ratio.max()))
    words.append(f"Once it is fitted, the exact sampler takes {_between(least, most)} times as long as it at a point.")
    cores = [f"{row[name]:.1f}" for name in ("cores", "exact_cores") for row in table.to_dict("records")]
    busy = (table["cores"] / table["exact_cores"]).max()
    fit, sampler = (_between(min(part), max(part)) for part in (cores[: len(table)], cores[len(table) :]))
    words.append(f"Fits kept {fit} cores busy, the exact sampler {sampler}.")
    if busy > 1.1:
        words.append(
            f"In several processes it could use them all; up to {_times(busy)} the points would be needed then."
        )
    exact = table["d"][np.isfinite(table["wins_refined"])]
    if len(exact) == len(table):
        words.append("Even with refined draws at every point, which are exact, it wins in the end.")
    elif len(exact):
        words.append(f"With refined draws at every point, which are exact, it wins at d = {_listed(exact)} only.")
    else:
        words.append("Exact draws at every point are the exact sampler's: to refine takes longer than to sample anew.")
    if len(loose := table["d"][table["rhat"] > MIXED]):
        words.append(f"Some entry has R̂ above {MIXED:g} at d = {_listed(loose)}: effective draws are rough there.")
    picture = "![Cost against the number of points](assets/results/runtime/cost_against_points.png)"
    return "\n\n".join([_markdown(rows), _paragraph(*words), picture])


def _about_grids(tables: Tables) -> str:
    rows, words, beside, once = [], [], [], _matrices(tables).set_index("d")
    for d, part in tables["grids"].groupby("d"):
        rows += [
            {
                "d": f"{d:g}",
                "points": f"{row['points']:g}",
                "flow": _show(row["flow_seconds"]),
                "its draws alone": _show(row["draw_seconds"]),
                "exact sampler": _show(row["exact_seconds"]),
                "its sweeps alone": _show(row["sweep_seconds"]),
                "exact : flow": f"{row['exact_seconds'] / row['flow_seconds']:.2g}",
                "largest R̂": f"{row['largest_rhat']:.3f}",
            }
            for row in part.to_dict("records")
        ]
        names = ("flow_seconds", "draw_seconds", "exact_seconds", "sweep_seconds")
        flow, draws, exact, sweeps = (exponent(part["points"], part[name]) for name in names)
        words.append(
            f"at d = {d:g} as k^({flow}) for the flow (its draws alone as k^({draws})) and as k^({exact}) for the exact"
            f" sampler (its sweeps alone as k^({sweeps}))"
        )
        most = part.nlargest(1, "points").iloc[0]
        ratio = most["sweep_seconds"] / most["points"] / once.loc[d, "exact_each"]
        beside.append(f"{_times(ratio)} at d = {d:g}")
    text = _paragraph(
        "Not extrapolated but done, with plain draws, at all k points of grids over the whole range, the exact sampler",
        "until every point had its effective draws; fit and compilation are included:",
    )
    after = _paragraph(
        f"Measured cost grows {'; '.join(words)}. Compared with the mean of the four points above, a point of the",
        f"largest grid takes the exact sampler {', '.join(beside)} as long.",
    )
    return "\n\n".join([text, _markdown(rows), after])


def _about_nuts(tables: Tables) -> str:
    table, found = tables["nuts"], _measured(tables["nuts"])
    text = _paragraph(
        f"Effective draws a second of the worst entry at λ = {NUTS_LAM:g}, compilation and warm-up left out for both.",
        f"NUTS runs {NUTS_CHAINS} chains side by side in softplus-Cholesky coordinates from exact draws, the exact",
        f"sampler {CHAINS}.",
    )
    if found.empty:
        parts = [text, _paragraph(f"NUTS was {table['status'].iloc[0]}")]
    else:
        rows = [
            {
                "d": f"{row['d']:g}",
                "q": f"{row['q']:g}",
                "exact sampler": _number(row["exact_per_second"]),
                "NUTS": _number(row["nuts_per_second"]),
                "exact : NUTS": _ratio(row["exact_per_second"] / row["nuts_per_second"]),
                "R̂ of NUTS": f"{row['nuts_rhat']:.3f}",
                "R̂ of exact": f"{row['exact_rhat']:.3f}",
                "leapfrog steps a draw": f"{row['leapfrog_steps']:.0f}",
                "largest difference of means, sd": f"{row['difference']:.2f}",
            }
            for row in found.to_dict("records")
        ]
        lost = found[found["nuts_rhat"] > MIXED].to_dict("records")
        where = ", ".join(f"d = {row['d']:g} and q = {row['q']:g}" for row in lost)
        verdict = f"R̂ of NUTS is at most {MIXED:g} everywhere."
        if lost:
            verdict = f"NUTS has not mixed at {where} (R̂ above {MIXED:g}): its rate there is not to be relied on."
        parts = [text, _markdown(rows), _paragraph(verdict)]
    return "\n\n".join(["### NumPyro's NUTS", *parts])


def _about_published(tables: Tables) -> str:
    table, found, fits = tables["published"], _measured(tables["published"]), _matrices(tables)
    text = _paragraph(
        "The published flow, built from flowcon 0.0.4 with torch 2.13.0 in an environment of its own: the toy problem",
        f"d = n = 15, {table['batch'].iloc[0]:g} draws a step. Its 10 000 steps are extrapolated from a few.",
    )
    if found.empty:
        parts = [text, _paragraph(f"It was {table['status'].iloc[0]}.")]
    else:
        rows, words = [], []
        for row in found.to_dict("records"):
            full = published.TRAINING_STEPS * row["seconds_per_step"]
            rows.append(
                {
                    "layers": f"{row['layers']:g}",
                    "parameters": _number(row["parameters"]),
                    "a step": _show(row["seconds_per_step"]),
                    "10 000 steps, extrapolated": _show(full),
                    "draws a second": _number(row["draws_per_second"]),
                    "cores used": f"{row['cores']:.1f}",
                }
            )
            for fit in fits[fits["d"] == row["d"]].to_dict("records"):
                words.append(
                    f"With {row['layers']:g} layers its training takes {_times(full / fit['fit_seconds'])} as long as"
                    f" the fit of the structured flow ({_show(fit['fit_seconds'])}), or as long as the exact sampler at"
                    f" {_ratio(full / fit['exact_each'])} points; the structured flow then gives"
                    f" {_times(fit['draws_per_second'] / row['draws_per_second'])} as many draws a second."
                )
        parts = [text, _markdown(rows), _paragraph(*words)]
    return "\n\n".join(["### The published architecture", *parts])


def _about_blanket(tables: Tables) -> str:
    (row, points), kaufmann = _blanket(tables), tables["kaufmann"]
    rows = []
    for point in points.to_dict("records"):
        same = kaufmann[np.isclose(kaufmann["lam"], point["lam"], rtol=1e-4) & (kaufmann["q"] == point["q"])]
        found = same.iloc[0] if len(same) else None
        rows.append(
            {
                "λ": f"{point['lam']:.3g}",
                "q": f"{point['q']:g}",
                "flow: quantile error, sd": f"{point['flow_error']:.3f}",
                "draws counted": "refined" if point["refined"] else "plain",
                "exact sampler: effective draws a second": _number(point["effective_per_second"]),
                "R̂": f"{point['rhat']:.3f}",
                "Kaufmann et al.: 500 draws": "–" if found is None else _show(found["seconds_per_500"]),
                "effective draws a second": "–" if found is None else _number(found["effective_per_second"]),
                "R̂ ": "–" if found is None else f"{found['rhat']:.3f}",
            }
        )
    all_draws, effective = map(_ratio, _blanket_ratios(tables))
    many, wins = int(points["refined"].sum()), row["wins"]
    size = f"s = {row['s']:g}, t = {row['d'] - row['s']:g}"
    paper = " as in the paper" if size == PUBLISHED_SIZE else f" (the paper's has {PUBLISHED_SIZE})"
    before = _paragraph(
        f"The blanket of {size}{paper}, on simulated data of {row['n']:g} rows. The sampler of Kaufmann et al. (2015),",
        f"which knows q = 1 alone, is `baselines.blanket_gibbs`. The paper has {PUBLISHED_GIBBS_SECONDS:g} s for",
        f"{PUBLISHED_GIBBS_DRAWS} draws of it, and {_number(PUBLISHED_FLOW_RATE)} draws a second of the flow on a",
        f"TITAN X, {_times(PUBLISHED_RATIO)} as many.",
    )
    use = f"Its plain draws are within {LIMIT:g} sd at all {len(points)} points."
    if many:
        use = f"At {many} of {len(points)} points its plain draws are more than {LIMIT:g} sd off; refined ones count."
    end = "Its fit included, it takes longer than the exact sampler for any number of points (λ, q)."
    if np.isfinite(wins):
        end = f"Its fit included, it takes less time than the exact sampler from {_count(wins)} points (λ, q) on."
    after = _paragraph(
        f"The flow takes {_show(row['fit_seconds'])} to fit, {_show(row['compile_seconds'])} of it compilation, and",
        f"then gives {_number(row['draws_per_second'])} independent draws a second: {all_draws} times the draws of the",
        f"sampler of Kaufmann et al., and {effective} times its effective ones. {use} {end}",
    )
    picture = "![Draws per second of a blanket](assets/results/runtime/blanket.png)"
    return "\n\n".join(["### The Markov blanket", before, _markdown(rows), picture, after])


def verdicts(tables: Tables) -> pd.DataFrame:
    """Published numbers, ours, and what to make of them."""
    row, table, found = _blanket(tables)[0], _matrices(tables), _measured(tables["published"])
    size = f"s = {row['s']:g}, t = {row['d'] - row['s']:g}"
    seconds, rate, ratio = tables["kaufmann"]["seconds_per_500"].median(), row["draws_per_second"], PUBLISHED_RATIO
    own, finite = _blanket_ratios(tables)[0], np.isfinite(table["wins"])
    wins = ", ".join(f"{_count(each['wins'])} at d = {each['d']:g}" for each in table.to_dict("records"))
    verdict = "worth it for paths and surfaces; few points are better left to the exact sampler"
    if not finite.all():
        verdict = f"the exact sampler wins at {'some sizes' if finite.any() else 'every size'}"
    elif (table["wins"] <= 1).all():
        verdict = "worth it for a single point"
    rows = [
        (
            f"500 draws of the blanket sampler of Kaufmann et al., {size}",
            f"{PUBLISHED_GIBBS_SECONDS:g} s",
            _show(seconds),
            f"{_times(PUBLISHED_GIBBS_SECONDS / seconds)} as fast",
        ),
        (
            f"draws a second of the flow, {size}",
            f"{_number(PUBLISHED_FLOW_RATE)}, TITAN X",
            f"{_number(rate)}, CPU",
            f"{_times(rate / PUBLISHED_FLOW_RATE)} as many",
        ),
        (
            "the flow's draws a second over that sampler's",
            _ratio(ratio),
            _ratio(own),
            "smaller: that sampler has gained more than the flow" if own < ratio else "at least as large",
        ),
        ("points (λ, q) from which on the flow beats the exact sampler", "not compared", wins, verdict),
    ]
    both = found.merge(table[["d", "fit_seconds"]], on="d").nlargest(1, "layers")
    for each in both.to_dict("records"):
        full = published.TRAINING_STEPS * each["seconds_per_step"]
        times = f"{_times(full / each['fit_seconds'])} as long as fitting the structured flow"
        ours = f"{_show(full)} on a CPU, extrapolated"
        rows.append((f"training the published flow, 10 000 steps, d = {each['d']:g}", "time not stated", ours, times))
    return pd.DataFrame(rows, columns=["what", "published", "ours", "verdict"])


def _paragraph(*parts: str) -> str:
    """Text in lines of 120 characters, as pages are written here."""
    return textwrap.fill(" ".join(" ".join(parts).split()), 120, break_long_words=False, break_on_hyphens=False)


def _markdown(rows: list[dict[str, str]]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _show(seconds: float) -> str:
    """Milliseconds to hours, in three digits."""
    for unit, size, below in (("ms", 1e-3, 1.0), ("s", 1.0, 120.0), ("min", 60.0, 7200.0)):
        if seconds < below:
            return f"{_number(seconds / size)} {unit}"
    return f"{_number(seconds / 3600)} h"


def _number(value: float) -> str:
    if value < 100:
        return f"{value:.3g}"
    return f"{value:,.0f}".replace(",", " ") if value >= 10_000 else f"{value:.0f}"


def _count(points: float) -> str:
    return _number(points) if np.isfinite(points) else "never"


def _ratio(value: float) -> str:
    """Two digits: timings are not known better."""
    return _number(float(f"{value:.2g}"))


def _times(value: float) -> str:
    return f"{_ratio(value)} times"


def _between(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _listed(values: Frame) -> str:
    return ", ".join(f"{value:g}" for value in values)
