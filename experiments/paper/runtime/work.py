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
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from experiments.paper.record import Job, timed
from experiments.paper.reference import LEVELS, LIMIT, quantile_error, refer
from experiments.paper.runtime import published
from experiments.paper.runtime.nuts import run_nuts
from ggmflow import gibbs
from ggmflow.baselines import blanket_gibbs
from ggmflow.data.scatter import Scatter
from ggmflow.data.simulate import toy_problem
from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.model.conditions import find_ranges
from ggmflow.posterior.posterior import PoorFitWarning

Point = tuple[float, float]  # (λ, q)
Q_RANGE = (0.25, 1.25)
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
_CHILD = "import sys; from experiments.paper.runtime.work import fit_and_save; fit_and_save(*sys.argv[1:])"


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
            reference = refer(exact.chains[k].draws)
            plain = model.posterior(lam, q, num_draws=settings.quantile_draws).quantile(LEVELS, weighted=False)
            error, own = quantile_error(plain, reference).mean, reference.own_error
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
    return timed(call)[1]


def _median_seconds(call: Callable[[int], object], repeats: int) -> float:
    """Median over calls with 1, 2, …, after one call with 0 that does not count."""
    call(0)
    return float(np.median([_seconds(lambda k=k: call(k)) for k in range(1, repeats + 1)]))
