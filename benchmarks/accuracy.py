"""Fits of the benchmarks and their accuracy, against exact answers: gaps, effective sample sizes, quantile errors."""

import time
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from rich.table import Table

import ggmflow as gf
from benchmarks.problems import LEVELS, Q_RANGE, Problem
from benchmarks.report import Report
from ggmflow.data.scatter import Scatter
from ggmflow.evidence.bridge import Estimate, bridge_to_proposal

NUM_DRAWS = 4000  # of the flow, for ELBO, ESS and the bridge
NUM_QUANTILE_DRAWS = 20_000  # their own error: below 0.015 sd from plain draws


class Fit(NamedTuple):
    """A fitted model, its seconds and the cores it kept busy."""

    model: Any
    seconds: float
    cores: float


class PointResult(NamedTuple):
    """The flow at one (λ, q), T = 1."""

    lam: float
    q: float
    elbo: Estimate
    log_z: Estimate
    bridged: Estimate | None  # log Z from exact draws and the flow
    ess: float
    khat: float

    @property
    def gap(self) -> Estimate:
        """log Z − ELBO."""
        return Estimate(self.log_z.value - self.elbo.value, float(np.hypot(self.log_z.se, self.elbo.se)))


def add_points(report: Report, item: str, name: str, results: list[PointResult]) -> None:
    """Print a table of single points now, and add their lines to the file."""
    report.console.print(f"[bold]{name}, point by point[/]", highlight=False)
    table = Table()
    for column in ("λ", "q", "log Z (path)", "log Z (flow bridge)", "ELBO", "gap", "ESS", "k̂"):
        table.add_column(column, justify="right")
    for point in results:
        bridged = "–" if point.bridged is None else _show(point.bridged)
        numbers = (_show(point.log_z), bridged, _show(point.elbo), _show(point.gap))
        table.add_row(f"{point.lam:g}", f"{point.q:g}", *numbers, f"{point.ess:.3f}", f"{point.khat:.2f}")
        for what, (value, se) in {"gap": point.gap, "log Z": point.log_z, "ESS": (point.ess, None)}.items():
            report.add(item, f"{name}: {what} at λ = {point.lam:g}, q = {point.q:g}", value, se=se, shown=False)
    report.console.print(table)


def _show(estimate: Estimate) -> str:
    return f"{estimate.value:.2f} ± {estimate.se:.2f}"


def mean_of(estimates: list[Estimate]) -> Estimate:
    """Mean of independent estimates."""
    values, errors = np.array(estimates).T
    return Estimate(float(values.mean()), float(np.sqrt(np.sum(errors**2)) / len(values)))


def bridged_gap(results: list[PointResult]) -> Estimate:
    """Mean gap with log Z from the bridge of exact draws and flow; these draws are in both, so the error is a bound."""
    log_z = mean_of([point.bridged for point in results if point.bridged is not None])
    elbo = mean_of([point.elbo for point in results])
    return Estimate(log_z.value - elbo.value, float(np.hypot(log_z.se, elbo.se)))


def timed_fit(problem: Problem, **options) -> Fit:
    """Fit with nothing compiled yet."""
    jax.clear_caches()
    query = None if problem.n_query is None else list(range(problem.n_query))
    settings = {"temperature": 1.0, "random_state": 0, "progress": False} | options
    model = gf.GraphicalFlow(lam=problem.lam_range, q=Q_RANGE, query=query, mean="known", **settings)
    begin, cpu_begin = time.perf_counter(), time.process_time()
    model.fit(problem.X)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    return Fit(model, seconds, cpu_seconds / seconds)


def evaluate(model: Any, problem: Problem, *, bridge: bool = True) -> list[PointResult]:
    """ELBO, log Z and weights at all points of a problem, T = 1."""
    results = []
    for p, (lam, q) in enumerate(problem.points):
        posterior = model.posterior(lam, q)
        draws = posterior.source.sample(jax.random.fold_in(jax.random.key(13), p), NUM_DRAWS)
        log_ratio = draws.log_target - draws.log_prob
        elbo = Estimate(float(log_ratio.mean()), float(log_ratio.std() / np.sqrt(NUM_DRAWS)))
        bridged = None
        if bridge:
            chains = problem.chains[p]
            exact = chains.draws[:, :: max(1, chains.draws.shape[0] * chains.draws.shape[1] // NUM_DRAWS)]
            flat = exact.reshape(-1, *exact.shape[2:])
            exact_ratio = _log_target(flat, problem.scatter, lam, q) - posterior.log_prob(flat)
            bridged = bridge_to_proposal(exact_ratio.reshape(exact.shape[:2]), log_ratio)
        known = posterior.diagnostics()
        numbers = (elbo, problem.log_normalizers[p], bridged, known["ess"], known["khat"])
        results.append(PointResult(lam, q, *numbers))
    return results


def _log_target(rows: Float[np.ndarray, "N d d"], scatter: Scatter, lam: float, q: float) -> Float[np.ndarray, " N"]:
    i, j = np.triu_indices(scatter.n_features, 1)
    penalty = lam * np.sum(np.abs(rows[:, i, j]) ** q, axis=1)
    ridged = scatter.matrix + lam * np.eye(scatter.n_features)
    return 0.5 * scatter.n * np.linalg.slogdet(rows)[1] - 0.5 * np.tensordot(rows, ridged, 2) - penalty


class QuantileErrors(NamedTuple):
    """Mean errors of quantiles in units of the exact sd."""

    plain: float
    weighted: float
    exact: float  # of the exact sampler itself


def quantile_errors(model: Any, problem: Problem, num_draws: int = NUM_QUANTILE_DRAWS) -> list[QuantileErrors]:
    """Errors at every point, mean over the free entries and the three quantiles."""
    errors = []
    s = problem.n_query or problem.d
    free = np.triu_indices(s, m=problem.d)
    for p, (lam, q) in enumerate(problem.points):
        draws = problem.chains[p].draws[:, :, *free]
        halves = [np.quantile(half.reshape(-1, half.shape[-1]), LEVELS, axis=0) for half in (draws[::2], draws[1::2])]
        pooled = draws.reshape(-1, draws.shape[-1])
        truth, sd = np.quantile(pooled, LEVELS, axis=0), pooled.std(axis=0)
        posterior = model.posterior(lam, q, num_draws=num_draws)
        found = [posterior.quantile(LEVELS, weighted=weighted)[:, *free] for weighted in (False, True)]
        plain, weighted = (float(np.mean(np.abs(value - truth) / sd)) for value in found)
        errors.append(QuantileErrors(plain, weighted, float(np.mean(np.abs(halves[0] - halves[1]) / sd) / 2)))
    return errors
