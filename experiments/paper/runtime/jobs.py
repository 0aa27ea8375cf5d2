"""The cost of the whole continuum of (λ, q): one fit and draws, or a sampler that is run again for every point.

    flow(k) = fit + k · draws,   sampler(k) = compilation + k · (warm-up + sampling),   k points (λ, q)

Every method gives 1000 effective draws at each point. A draw of the flow counts as one where its 5, 50 and 95 %
quantiles are at most 0.1 posterior standard deviations off those of the exact sampler, mean over all entries; elsewhere
refined draws count. Of a chain, the entry of Ω with the smallest bulk effective sample size counts.
"""

import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from experiments.paper.record import Job
from experiments.paper.reference import LEVELS, LIMIT, quantile_error, refer
from experiments.paper.runtime import published_flow
from experiments.paper.runtime.fits import cache_off, timed_fit
from experiments.paper.runtime.nuts import run_nuts
from experiments.paper.runtime.settings import (
    BLOCK,
    CHAINS,
    MEASURED,
    NUTS_CHAINS,
    NUTS_LAM,
    REFINE_SWEEPS,
    WARMUP,
    Settings,
    Size,
)
from experiments.paper.runtime.timing import (
    Exact,
    Point,
    find_lam_range,
    grid,
    median_seconds,
    run_exact,
    run_until,
    seconds_of,
    simulate,
)
from ggmflow import gibbs
from ggmflow.baselines import blanket_gibbs
from ggmflow.data.scatter import Scatter
from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.posterior.posterior import PoorFitWarning


def make_jobs(settings: Settings) -> list[Job]:
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
    scatter = simulate(size)
    lam_range = find_lam_range(scatter, size)
    points = grid(lam_range, 2)
    with cache_off(settings.fresh), warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorFitWarning)  # errors are measured here
        model, fitted = timed_fit(settings, size)
        draw_compilation, draw_seconds = _time_draws(model, points, settings)
        rate = settings.rate_draws / median_seconds(
            lambda k: model.posterior(*points[0]).sample(settings.rate_draws, random_state=k), settings.repeats
        )
        exact = run_exact(scatter, points, size)
        rows = [
            _measure_point(settings, size, model, exact, k, point) | {"flow_seconds": seconds}
            for k, (point, seconds) in enumerate(zip(points, draw_seconds, strict=True))
        ]
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
        "step_seconds": (fitted["seconds"] - fitted["compile_seconds"]) / model.n_iter_ if model.n_iter_ else np.nan,
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


def _measure_point(
    settings: Settings, size: Size, model: GraphicalFlow, exact: Exact, k: int, point: Point
) -> dict[str, Any]:
    """Times of the exact sampler at the k-th point, and the error of the flow's plain draws there."""
    chains, reference = exact.chains[k], refer(exact.chains[k].draws)
    plain = model.posterior(*point, num_draws=settings.quantile_draws).quantile(LEVELS, weighted=False)
    error, own = quantile_error(plain, reference).mean, reference.own_error
    flow_error = float(np.sqrt(max(0.0, error**2 - own**2)))
    ess = float(chains.ess_bulk.min())
    ess_per_sweep = ess / (chains.draws.shape[0] * size.num_draws)
    return {
        "d": size.d,
        "s": size.s,
        "lam": point[0],
        "q": point[1],
        "flow_seconds": np.nan,  # timed by the caller
        "refined_seconds": settings.effective * REFINE_SWEEPS * exact.sweep_seconds,
        "warmup_seconds": CHAINS * WARMUP * exact.sweep_seconds,
        "sampling_seconds": settings.effective / ess_per_sweep * exact.sweep_seconds,
        "effective_per_second": ess_per_sweep / exact.sweep_seconds,
        "ess": ess,
        "rhat": float(chains.rhat.max()),
        "error": error,
        "own_error": own,
        "flow_error": flow_error,
        "refined": flow_error > LIMIT,
    }


def run_kaufmann(settings: Settings) -> dict[str, pd.DataFrame]:
    """The blanket sampler of Kaufmann et al. (2015) at the points of the blanket that have q = 1."""
    size, (num_chains, num_draws, burn_in) = settings.blanket, settings.kaufmann
    scatter = simulate(size)
    query, rows = list(range(size.s)), []
    for lam in sorted({lam for lam, _ in grid(find_lam_range(scatter, size), 2)}):
        run = partial(blanket_gibbs, scatter, query, lam, num_chains=num_chains, num_draws=num_draws)
        first = np.nan if rows else seconds_of(lambda run=run: run(num_chains=1, burn_in=0))
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
    scatter = simulate(Size(d, n, d, 0, 0))
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
    settings = published_flow.Settings(seconds=seconds, layers=layers)
    numbers = ("parameters", "steps", "seconds_per_step", "draws_per_second", "cores", "elbo", "elbo_se")
    row: dict[str, Any] = {"d": 15, "n": 15, "layers": layers, "batch": settings.batch}
    row |= dict.fromkeys(numbers, np.nan)
    if not seconds:
        row["status"] = "not measured in quick mode"
        return {"published": pd.DataFrame([row])}
    try:
        python, _ = published_flow.environment()
        found = published_flow.run_published(python, settings, simulate(Size(15, 15, 15, 0, 0)))
    except published_flow.PublishedFlowError as error:
        why = str(error).splitlines()[0].replace(str(Path.home()), "~")
        row["status"] = f"not measured: {why}"
    else:
        row |= {name: getattr(found, name) for name in numbers} | {"status": MEASURED}
    return {"published": pd.DataFrame([row])}


def _time_draws(model: GraphicalFlow, points: list[Point], settings: Settings) -> tuple[float, list[float]]:
    """Seconds of compilation, and of the wanted draws at each point."""

    def draw(lam: float, q: float, k: int) -> None:
        model.posterior(lam, q).sample(settings.effective, random_state=k)

    first = seconds_of(lambda: draw(*points[0], 0))
    seconds = [median_seconds(partial(draw, lam, q), settings.repeats) for lam, q in points]
    return max(0.0, first - seconds[0]), seconds


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
        seconds_of(lambda lam=lam, q=q: model.posterior(lam, q).sample(settings.effective, random_state=0))
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
