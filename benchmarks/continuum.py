"""Measure how well one fit holds the whole continuum of (λ, q, T), against exact answers.

    python -m benchmarks.continuum [--only seconds,toy,cold,path,d30,d100,blanket,marginals] [--quick]

gap = log Z − ELBO, in nats. log Z comes from bridge sampling along a path of exact-sampler draws from a Wishart density
to the posterior (`tests.support.wishart_bridge`), which does not involve the flow. A second estimate of the gap takes
log Z from a bridge between exact draws and the flow. ESS is the relative effective sample size of importance weights,
Pareto-smoothed, as `Posterior.diagnostics` gives it. Times of fits include compilation: compiled programs are thrown
away before, and there is no cache on disk. `cores` is CPU time over wall time: below the number of cores, others
shared the machine. Quantile errors are mean |difference| from the exact sampler's 5, 50 and 95 % quantiles over all
entries, in units of the exact posterior sd. The exact sampler's own error is half the difference between two halves of
its chains. Results also go to results/continuum.csv; an item that is not measured again keeps its lines there.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from rich.console import Console
from rich.table import Table

import ggmflow as gf
from benchmarks.problems import BLANKET, COLD, D30, D100, LEVELS, MARGINALS, Q_RANGE, TOY, Problem
from benchmarks.report import Report
from benchmarks.seconds import run_seconds
from ggmflow import gibbs
from ggmflow.baselines import graphical_lasso
from ggmflow.data.scatter import Scatter
from ggmflow.data.simulate import toy_problem
from ggmflow.evidence.bridge import Estimate, bridge_to_proposal
from ggmflow.flow.base import build_flow
from ggmflow.train.loop import CHUNK, Settings, train

FILE = Path("results/continuum.csv")
PUBLISHED_RMSE = 0.052  # of the paper, T = 0.01
NUM_DRAWS = 4000  # of the flow, for ELBO, ESS and the bridge
NUM_QUANTILE_DRAWS = 20_000  # their own error: below 0.015 sd from plain draws


COST_SIZES = [(15, 15), (30, 25), (60, 40), (100, 60)]  # d, n
COST_BATCH = 32


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


def _mean(estimates: list[Estimate]) -> Estimate:
    """Mean of independent estimates."""
    values, errors = np.array(estimates).T
    return Estimate(float(values.mean()), float(np.sqrt(np.sum(errors**2)) / len(values)))


def _bridged_gap(results: list[PointResult]) -> Estimate:
    """Mean gap with log Z from the bridge of exact draws and flow; these draws are in both, so the error is a bound."""
    log_z = _mean([point.bridged for point in results if point.bridged is not None])
    elbo = _mean([point.elbo for point in results])
    return Estimate(log_z.value - elbo.value, float(np.hypot(log_z.se, elbo.se)))


def timed_fit(problem: Problem, **options) -> Fit:
    """Fit with nothing compiled yet."""
    jax.clear_caches()
    query = None if problem.n_query is None else list(range(problem.n_query))
    settings = {"temperature": 1.0, "random_state": 0, "progress": False} | options
    model = gf.GraphicalFlow(lam=problem.lam_range, q=Q_RANGE, query=query, **settings)
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


class Benchmark:
    """The items, sharing fits and exact draws."""

    def __init__(self, report: Report, quick: bool):
        self.report, self.quick = report, quick
        self.options = {"steps": 2 * CHUNK} if quick else {}
        self.problems = {problem.name: problem.cheaper() if quick else problem for problem in (*MARGINALS, D30)}
        self.d100 = replace(D100.cheaper(), d=20, n=12) if quick else D100
        self.blanket = replace(BLANKET.cheaper(), d=30, n=20, n_query=3) if quick else BLANKET

    @cached_property
    def toy_fit(self) -> Fit:
        return timed_fit(self.problems[TOY.name], **self.options)

    @cached_property
    def paper_cost(self) -> tuple[float, float]:
        """Seconds of the published architecture before its first step, and per step; the same at every temperature."""
        problem = self.problems[TOY.name]
        first = timed_fit(problem, architecture="paper", steps=2 * CHUNK)
        short, long = (_seconds(lambda k=k: first.model.set_params(steps=k * CHUNK).fit(problem.X)) for k in (2, 6))
        per_step = (long - short) / (4 * CHUNK)
        return first.seconds - 2 * CHUNK * per_step, per_step

    def fit_paper(self, seconds: float, **options) -> Fit:
        """The published architecture with as many steps as the wall time allows, its compilation included."""
        start, per_step = self.paper_cost
        steps = max(2, int(np.ceil((seconds - start) / per_step / CHUNK))) * CHUNK
        return timed_fit(self.problems[TOY.name], architecture="paper", steps=steps, **options)

    @cached_property
    def cold_fit(self) -> Fit:
        return timed_fit(self.problems[TOY.name], temperature=(COLD, 1.0), **self.options)

    def run_seconds(self) -> None:
        """Item 0."""
        run_seconds(self.report, self.quick)

    def run_toy(self) -> None:
        """Item 1, the posterior alone."""
        self._run_gap("toy", self.toy_fit, ("≤ 60", "≤ 0.7", "≥ 0.25"), "T = 1 alone", temperature=1.0)

    def run_cold(self) -> None:
        """Item 1, with all temperatures down to 0.01."""
        self._run_gap("cold", self.cold_fit, ("≤ 90", "≤ 1.0", "≥ 0.15"), "T ∈ [0.01, 1]", temperature=(COLD, 1.0))

    def _run_gap(self, item: str, fit: Fit, bars: tuple[str, str, str], trained: str, **options) -> None:
        problem, report = self.problems[TOY.name], self.report
        paper = self.fit_paper(fit.seconds, **options)
        # The inverse of the published architecture is slow, and it is too far from the posterior for a bridge.
        for name, (model, seconds, cores), (bar_seconds, bar_gap, bar_ess), bridge in (
            ("structured", fit, bars, True),
            ("paper", paper, ("", "", ""), False),
        ):
            results = evaluate(model, problem, bridge=bridge)
            add_points(report, item, f"{name}, {trained}", results)
            gap = _mean([point.gap for point in results])
            ess = float(np.median([point.ess for point in results]))
            report.add(item, f"{name}: seconds to fit", seconds, bar=bar_seconds, digits=".1f")
            report.add(item, f"{name}: cores used", cores, digits=".1f")
            report.add(item, f"{name}: steps", model.n_iter_, digits=".0f")
            report.add(item, f"{name}: mean gap", gap.value, se=gap.se, bar=bar_gap)
            if bridge:
                report.add(item, f"{name}: mean gap, flow bridge", *_bridged_gap(results))
            report.add(item, f"{name}: median ESS", ess, bar=bar_ess)
        note = "paper: the published architecture at the same wall time. Beyond the bar, the goal is gap 0.3, ESS 0.5."
        report.finish(item, f"1. Toy problem d = n = 15, nine (λ, q) at T = 1, trained for {trained}", note)

    def run_path(self) -> None:
        """Item 2: the solution path at T = 0.01."""
        model, problem, report = self.cold_fit.model, self.problems[TOY.name], self.report
        lams = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
        num_chains = 8
        conditions = (np.repeat(lams, num_chains), 1.0, COLD)
        num_draws = 100 if self.quick else 1000
        chains = gibbs.sample(jax.random.key(14), problem.scatter, *conditions, num_draws=num_draws)
        upper = np.triu_indices(problem.d, 1)
        errors = {"structured": [], "exact sampler": []}
        for k, lam in enumerate(lams):
            path = graphical_lasso(problem.scatter.emp_cov, problem.n, lam).precision[upper]
            exact = chains.draws[k * num_chains : (k + 1) * num_chains].mean(axis=(0, 1))[upper]
            flow = model.posterior(lam, 1.0, COLD).mean(weighted=False)[upper]
            for name, mean in (("structured", flow), ("exact sampler", exact)):
                errors[name].append(np.sqrt(np.mean((mean - path) ** 2)))
                report.add("path", f"{name}: λ = {lam:g}", errors[name][-1], digits=".4f")
        report.add("path", "structured: mean", float(np.mean(errors["structured"])), bar="≤ 0.015", digits=".4f")
        report.add("path", "exact sampler: mean", float(np.mean(errors["exact sampler"])), digits=".4f")
        report.add("path", "published, on the paper's own data", PUBLISHED_RMSE, digits=".4f")
        title = "2. RMSE of the off-diagonal mean at T = 0.01, q = 1, to the graphical lasso"
        report.finish("path", title, "Plain draws of the model trained for T ∈ [0.01, 1], as under 1.")

    def run_d30(self) -> None:
        """Item 3, d = 30."""
        problem, report = self.problems[D30.name], self.report
        model, seconds, cores = timed_fit(problem, **self.options)
        results = evaluate(model, problem)
        add_points(report, "d30", "structured, T = 1 alone", results)
        gap = _mean([point.gap for point in results])
        report.add("d30", "seconds to fit", seconds, bar="≤ 180", digits=".1f")
        report.add("d30", "cores used", cores, digits=".1f")
        report.add("d30", "mean gap", gap.value, se=gap.se, bar="≤ 4")
        report.add("d30", "mean gap, flow bridge", *_bridged_gap(results))
        report.add("d30", "median ESS", float(np.median([point.ess for point in results])))
        report.finish("d30", "3. d = 30, n = 25, λ ∈ [1, 100], T = 1")

    def run_d100(self) -> None:
        """Item 3, d = 100 and the growth of cost."""
        problem, report = self.d100, self.report
        model, seconds, cores = timed_fit(problem, **self.options)
        results = evaluate(model, problem, bridge=False)  # no overlap to bridge
        add_points(report, "d100", "structured, T = 1 alone", results)
        entries = problem.d * (problem.d + 1) // 2
        gap = _mean([point.gap for point in results])
        report.add("d100", "seconds to fit", seconds, bar="≤ 900", digits=".1f")
        report.add("d100", "cores used", cores, digits=".1f")
        report.add("d100", "mean gap per entry", gap.value / entries, se=gap.se / entries, bar="≤ 0.02", digits=".4f")
        errors = quantile_errors(model, problem, NUM_DRAWS)
        for (lam, q), error in zip(problem.points, errors, strict=True):
            what = f"quantile error, sd, λ = {lam:g}, q = {q:g}"
            report.add("d100", what, error.plain, bar="≤ 0.1")
            report.add("d100", "    exact sampler's own", error.exact)
        del model
        sizes = [(6, 6), (9, 9), (12, 12)] if self.quick else COST_SIZES
        costs = [seconds_per_step(d, n) for d, n in sizes]
        for (d, _), cost in zip(sizes, costs, strict=True):
            report.add("d100", f"seconds per step of {COST_BATCH} draws, d = {d}", cost, digits=".4f")
        exponent = np.polyfit(np.log([d for d, _ in sizes]), np.log(costs), 1)[0]
        report.add("d100", "cost per step ∝ d^", float(exponent), digits=".2f")
        report.finish("d100", "3. d = 100, n = 60, λ ∈ [1, 100], T = 1; plain draws")

    def run_blanket(self) -> None:
        """Item 4."""
        problem, report = self.blanket, self.report
        model, seconds, cores = timed_fit(problem, **self.options)
        lam, q = problem.points[0]
        posterior = model.posterior(lam, q)
        num_draws = 1000 if self.quick else 8000
        posterior.sample(num_draws, random_state=0)  # compiles
        times = [_seconds(lambda k=k: posterior.sample(num_draws, random_state=k)) for k in (1, 2, 3)]
        chains, exact_seconds = problem.timed_chains()
        error = quantile_errors(model, problem, NUM_DRAWS)[0]
        known = posterior.diagnostics()
        report.add("blanket", "seconds to fit", seconds, bar="≤ 300", digits=".1f")
        report.add("blanket", "cores used", cores, digits=".1f")
        report.add("blanket", "flow: independent draws/s", num_draws / min(times), bar="≥ 2000", digits=",.0f")
        rate = float(chains.ess_bulk.min()) / exact_seconds
        report.add("blanket", "exact sampler: effective draws/s", rate, digits=",.1f")
        report.add("blanket", "exact sampler: largest R̂", float(chains.rhat.max()))
        report.add("blanket", "flow: relative ESS", known["ess"])
        report.add("blanket", "flow: quantile error, sd, plain", error.plain)
        report.add("blanket", "flow: quantile error, sd, weighted", error.weighted)
        report.add("blanket", "    exact sampler's own", error.exact)
        title = f"4. Markov blanket {BLANKET.name}, at λ = {lam:g}, q = {q:g}, T = 1"
        note = "The exact sampler's rate is that of its worst entry, 64 chains, compilation and warm-up left out."
        report.finish("blanket", title, note)

    def run_marginals(self) -> None:
        """Item 5."""
        report = self.report
        for problem in (self.problems[problem.name] for problem in MARGINALS):
            fit = self.toy_fit if problem.name == TOY.name else timed_fit(problem, **self.options)
            errors = np.array(quantile_errors(fit.model, problem))
            plain, weighted, exact = errors.mean(axis=0)
            report.add("marginals", f"{problem.name}: plain draws", plain, bar="≤ 0.10")
            report.add("marginals", f"{problem.name}: weighted draws", weighted, bar="≤ 0.06")
            report.add("marginals", "    largest of the nine, plain", errors[:, 0].max())
            report.add("marginals", "    largest of the nine, weighted", errors[:, 1].max())
            report.add("marginals", "    exact sampler's own", exact)
        title = "5. Mean error of 5, 50, 95 % quantiles in posterior sds, nine (λ, q), T = 1"
        report.finish("marginals", title, f"{NUM_QUANTILE_DRAWS} draws of the flow at each point.")


def seconds_per_step(d: int, n: int) -> float:
    """Training step of the structured flow with a batch of 32, compilation left out."""
    scatter = Scatter.from_data(toy_problem(d, n, random_state=0)[0])
    low, high = (np.array([np.log(lam), q, 0.0]) for lam, q in zip((1.0, 100.0), Q_RANGE, strict=True))
    flow = build_flow(jax.random.key(0), "structured", scatter.matrix, scatter.n, d, low, high)
    ends: list[float] = []
    settings = Settings(steps=2 * CHUNK if d > 60 else 4 * CHUNK, num_conditions=COST_BATCH // 4, num_draws=4)
    train(flow, jax.random.key(1), low, high, settings, report=lambda _: ends.append(time.perf_counter()))
    return float(np.min(np.diff(ends))) / CHUNK  # the first chunk compiles


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


ITEMS = ("seconds", "toy", "cold", "path", "d30", "d100", "blanket", "marginals")


def main() -> None:
    """Print one table per item."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(ITEMS), help="items, separated by commas (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="tiny: checks that it runs, the numbers mean nothing")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := sorted(set(wanted) - set(ITEMS)):
        parser.error(f"unknown item {', '.join(unknown)}: choose from {', '.join(ITEMS)}")
    warnings.simplefilter("ignore", gf.PoorFitWarning)  # the tables say how good it is
    report = Report(Console(width=120), None if options.quick else FILE)
    benchmark = Benchmark(report, options.quick)
    begin = time.perf_counter()
    for item in (item for item in ITEMS if item in wanted):
        getattr(benchmark, f"run_{item}")()
        report.console.print(f"{(time.perf_counter() - begin) / 60:.1f} min so far\n")
    passed = [line["passed"] for line in report.lines if "passed" in line]
    print(f"{sum(passed)} of {len(passed)} bars met. ggmflow {gf.__version__}, JAX {jax.__version__}.")


if __name__ == "__main__":
    main()
