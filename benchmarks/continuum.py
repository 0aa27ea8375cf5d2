"""Measure how well one fit holds the whole continuum of (λ, q, T), against exact answers.

    python -m benchmarks.continuum [--only seconds,toy,cold,path,d30,d100,blanket,marginals] [--quick]

Every item compares fits without training (`steps=0`), with default settings, and without the shipped weights
(`pretrained=False`), side by side; what a number must be stands beside it. `seconds` is `benchmarks.seconds`.

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
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

import ggmflow as gf
from benchmarks.accuracy import (
    NUM_DRAWS,
    NUM_QUANTILE_DRAWS,
    Fit,
    add_points,
    bridged_gap,
    evaluate,
    mean_of,
    quantile_errors,
    timed_fit,
)
from benchmarks.problems import BLANKET, COLD, D30, D100, MARGINALS, PLAIN, Q_RANGE, SETTINGS, TABLES, TOY, Problem
from benchmarks.report import Report
from benchmarks.seconds import run_seconds
from ggmflow import gibbs
from ggmflow.baselines import graphical_lasso
from ggmflow.data.scatter import Scatter
from ggmflow.data.simulate import toy_problem
from ggmflow.flow.base import build_flow
from ggmflow.train.loop import CHUNK, Settings, train

FILE = Path("results/continuum.csv")
PUBLISHED_RMSE = 0.052  # of the paper, T = 0.01
PAPER, EXACT = "published", "exact sampler"  # columns beside those of the settings
COST_SIZES = [(15, 15), (30, 25), (60, 40), (100, 60)]  # d, n
COST_BATCH = 32


class Benchmark:
    """The items, sharing fits and exact draws."""

    def __init__(self, report: Report, quick: bool):
        self.report, self.quick = report, quick
        self.options = {"steps": 2 * CHUNK} if quick else {}
        self.toy = replace(TOY.cheaper(), d=5, n=5) if quick else TOY
        self.d30 = replace(D30.cheaper(), d=8, n=6) if quick else D30
        self.d100 = replace(D100.cheaper(), d=20, n=12) if quick else D100
        self.blanket = replace(BLANKET.cheaper(), d=30, n=20, n_query=3) if quick else BLANKET
        self.marginals = [self.toy, TABLES[0].cheaper()] if quick else [*MARGINALS, *TABLES]

    def fit(self, problem: Problem, setting: str, **options) -> Fit:
        """A fit with one of the settings that are compared."""
        return timed_fit(problem, **(self.options | SETTINGS[setting] | options))

    @cached_property
    def toy_fits(self) -> dict[str, Fit]:
        return {setting: self.fit(self.toy, setting) for setting in SETTINGS}

    @cached_property
    def cold_fits(self) -> dict[str, Fit]:
        return {setting: self.fit(self.toy, setting, temperature=(COLD, 1.0)) for setting in SETTINGS}

    @cached_property
    def paper_cost(self) -> tuple[float, float]:
        """Seconds of the published architecture before its first step, and per step; the same at every temperature."""
        first = timed_fit(self.toy, architecture="paper", steps=2 * CHUNK)
        short, long = (_seconds(lambda k=k: first.model.set_params(steps=k * CHUNK).fit(self.toy.X)) for k in (2, 6))
        per_step = (long - short) / (4 * CHUNK)
        return first.seconds - 2 * CHUNK * per_step, per_step

    def fit_paper(self, seconds: float, **options) -> Fit:
        """The published architecture with as many steps as the wall time allows, its compilation included."""
        start, per_step = self.paper_cost
        steps = max(2, int(np.ceil((seconds - start) / per_step / CHUNK))) * CHUNK
        return timed_fit(self.toy, architecture="paper", steps=steps, **options)

    def run_seconds(self) -> None:
        """Item 0."""
        run_seconds(self.report, self.quick)

    def run_toy(self) -> None:
        """Item 1, the posterior alone."""
        bars: dict[str, tuple[str, str, str]] = dict.fromkeys(("default", PLAIN), ("≤ 60", "≤ 0.7", "≥ 0.25"))
        self._run_gap("toy", self.toy_fits, bars, "T = 1 alone", temperature=1.0)

    def run_cold(self) -> None:
        """Item 1, with all temperatures down to 0.01."""
        bars = {"steps=0": ("", "≤ 0.8", ""), "default": ("", "≤ 0.5", "≥ 0.4"), PLAIN: ("≤ 90", "≤ 1.0", "≥ 0.15")}
        self._run_gap("cold", self.cold_fits, bars, "T ∈ [0.01, 1]", temperature=(COLD, 1.0))

    def _run_gap(
        self, item: str, fits: dict[str, Fit], bars: dict[str, tuple[str, str, str]], trained: str, **options
    ) -> None:
        paper = self.fit_paper(fits[PLAIN].seconds, **options)
        # The inverse of the published architecture is slow, and it is too far from the posterior for a bridge.
        for setting, fit in (*fits.items(), (PAPER, paper)):
            self._add_accuracy(item, setting, fit, self.toy, bars.get(setting, ("", "", "")), bridge=setting != PAPER)
        note = (
            f"{PAPER}: the published architecture at the wall time of {PLAIN}. Beyond the bars, the goal is gap 0.3, "
        )
        note += "ESS 0.5 and nothing left to train. Bars of seconds are under 0."
        self.report.finish(item, f"1. Toy problem d = n = 15, nine (λ, q) at T = 1, fitted for {trained}", note)

    def _add_accuracy(
        self, item: str, setting: str, fit: Fit, problem: Problem, bars: tuple[str, str, str], *, bridge: bool = True
    ) -> float:
        """Add seconds, steps, gap and ESS of a fit, with bars for seconds, mean gap and ESS; return the mean gap."""
        results = evaluate(fit.model, problem, bridge=bridge)
        add_points(self.report, item, setting, results)
        gap, ess = mean_of([point.gap for point in results]), float(np.median([point.ess for point in results]))

        def add(what: str, value: float, **more) -> None:
            self.report.add(item, what, value, setting=setting, **more)

        add("seconds to fit", fit.seconds, bar=bars[0], digits=".1f")
        add("cores used", fit.cores, digits=".1f")
        add("steps", fit.model.n_iter_, digits=".0f")
        add("mean gap", gap.value, se=gap.se, bar=bars[1])
        if bridge:
            value, se = bridged_gap(results)
            add("mean gap, flow bridge", value, se=se)
        add("median ESS", ess, bar=bars[2])
        return gap.value

    def run_path(self) -> None:
        """Item 2: the solution path at T = 0.01."""
        problem, report = self.toy, self.report
        lams = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
        num_chains = 8
        conditions = (np.repeat(lams, num_chains), 1.0, COLD)
        num_draws = 100 if self.quick else 1000
        chains = gibbs.sample(jax.random.key(14), problem.scatter, *conditions, num_draws=num_draws)
        upper = np.triu_indices(problem.d, 1)
        errors: dict[str, list[float]] = {setting: [] for setting in (*self.cold_fits, EXACT)}
        for k, lam in enumerate(lams):
            path = graphical_lasso(problem.scatter.emp_cov, problem.n, lam).precision[upper]
            means = {
                name: fit.model.posterior(lam, 1.0, COLD).mean(weighted=False) for name, fit in self.cold_fits.items()
            }
            means[EXACT] = chains.draws[k * num_chains : (k + 1) * num_chains].mean(axis=(0, 1))
            for name, mean in means.items():
                errors[name].append(float(np.sqrt(np.mean((mean[upper] - path) ** 2))))
                report.add("path", f"λ = {lam:g}", errors[name][-1], digits=".4f", setting=name)
        bars = {"default": "≤ 0.013", PLAIN: "≤ 0.015"}
        for name, values in errors.items():
            report.add("path", "mean", float(np.mean(values)), bar=bars.get(name, ""), digits=".4f", setting=name)
        report.add("path", "mean, on the paper's own data", PUBLISHED_RMSE, digits=".4f", setting=PAPER)
        title = "2. RMSE of the off-diagonal mean at T = 0.01, q = 1, to the graphical lasso"
        report.finish("path", title, "Plain draws of the models fitted for T ∈ [0.01, 1], as under 1.")

    def run_d30(self) -> None:
        """Item 3, d = 30."""
        bars = {"default": ("≤ 30", "≤ 2.3", ""), PLAIN: ("≤ 180", "≤ 4", "")}
        gaps = {}
        for setting in SETTINGS:
            fit = self.fit(self.d30, setting)
            gaps[setting] = self._add_accuracy("d30", setting, fit, self.d30, bars.get(setting, ("", "", "")))
        best = min(gap for setting, gap in gaps.items() if setting != "steps=0")
        what = "mean gap above the better of the other two"
        self.report.add("d30", what, gaps["steps=0"] - best, bar="≤ 1.5", setting="steps=0")
        self.report.finish("d30", "3. d = 30, n = 25, λ ∈ [1, 100], T = 1")

    def run_d100(self) -> None:
        """Item 3, d = 100 and the growth of cost."""
        bars = {"default": ("≤ 90", "≤ 0.011", "≤ 0.1"), PLAIN: ("≤ 900", "≤ 0.02", "≤ 0.1")}
        for setting in SETTINGS:
            self._add_d100(setting, bars.get(setting, ("", "", "")))
        sizes = [(6, 6), (9, 9), (12, 12)] if self.quick else COST_SIZES
        costs = [seconds_per_step(d, n) for d, n in sizes]
        for (d, _), cost in zip(sizes, costs, strict=True):
            what = f"seconds per step of {COST_BATCH} draws, d = {d}"
            self.report.add("d100", what, cost, digits=".4f", setting=PLAIN)
        exponent = np.polyfit(np.log([d for d, _ in sizes]), np.log(costs), 1)[0]
        self.report.add("d100", "cost per step ∝ d^", float(exponent), digits=".2f", setting=PLAIN)
        self.report.finish("d100", "3. d = 100, n = 60, λ ∈ [1, 100], T = 1; plain draws")

    def _add_d100(self, setting: str, bars: tuple[str, str, str]) -> None:
        problem, report = self.d100, self.report
        model, seconds, cores = self.fit(problem, setting)
        results = evaluate(model, problem, bridge=False)  # no overlap to bridge
        add_points(report, "d100", setting, results)
        entries = problem.d * (problem.d + 1) // 2
        gap = mean_of([point.gap for point in results])

        def add(what: str, value: float, **more) -> None:
            given: dict[str, Any] = {"setting": setting} | more
            report.add("d100", what, value, **given)

        add("seconds to fit", seconds, bar=bars[0], digits=".1f")
        add("cores used", cores, digits=".1f")
        add("steps", model.n_iter_, digits=".0f")
        add("mean gap per entry", gap.value / entries, se=gap.se / entries, bar=bars[1], digits=".4f")
        errors = quantile_errors(model, problem, NUM_DRAWS)
        for (lam, q), error in zip(problem.points, errors, strict=True):
            what = f"quantile error, sd, λ = {lam:g}, q = {q:g}"
            add(what, error.plain, bar=bars[2])
            if setting == PLAIN:
                add(what, error.exact, setting=EXACT)

    def run_blanket(self) -> None:
        """Item 4."""
        problem, report = self.blanket, self.report
        chains, exact_seconds = problem.timed_chains()
        bars = {"default": ("≤ 60", "≥ 3000"), PLAIN: ("≤ 300", "≥ 2000")}
        for setting in SETTINGS:
            self._add_blanket(setting, bars.get(setting, ("", "")))
        rate = float(chains.ess_bulk.min()) / exact_seconds
        report.add("blanket", "effective draws/s", rate, digits=",.1f", setting=EXACT)
        report.add("blanket", "largest R̂", float(chains.rhat.max()), setting=EXACT)
        (lam, q), title = problem.points[0], f"4. Markov blanket {BLANKET.name}"
        note = "The exact sampler's rate is that of its worst entry, 64 chains, compilation and warm-up left out."
        report.finish("blanket", f"{title}, at λ = {lam:g}, q = {q:g}, T = 1", note)

    def _add_blanket(self, setting: str, bars: tuple[str, str]) -> None:
        problem, report = self.blanket, self.report
        model, seconds, cores = self.fit(problem, setting)
        posterior = model.posterior(*problem.points[0])
        num_draws = 1000 if self.quick else 8000
        posterior.sample(num_draws, random_state=0)  # compiles
        times = [_seconds(lambda k=k: posterior.sample(num_draws, random_state=k)) for k in (1, 2, 3)]
        error = quantile_errors(model, problem, NUM_DRAWS)[0]

        def add(what: str, value: float, **more) -> None:
            given: dict[str, Any] = {"setting": setting} | more
            report.add("blanket", what, value, **given)

        add("seconds to fit", seconds, bar=bars[0], digits=".1f")
        add("cores used", cores, digits=".1f")
        add("steps", model.n_iter_, digits=".0f")
        add("independent draws/s", num_draws / min(times), bar=bars[1], digits=",.0f")
        add("relative ESS", posterior.diagnostics()["ess"])
        add("quantile error, sd, plain", error.plain)
        add("quantile error, sd, weighted", error.weighted)
        if setting == PLAIN:
            add("quantile error, sd, plain", error.exact, setting=EXACT)

    def run_marginals(self) -> None:
        """Item 5: three simulated data sets, and three real tables that the network was not trained on."""
        report = self.report
        for problem in self.marginals:
            found = {}
            for setting in (PLAIN, *(each for each in SETTINGS if each != PLAIN)):
                is_toy = problem.name == self.toy.name
                fit = self.toy_fits[setting] if is_toy else self.fit(problem, setting)
                found[setting] = np.array(quantile_errors(fit.model, problem))
            today = found[PLAIN].mean(axis=0)
            for setting in SETTINGS:
                errors = found[setting]
                for k, kind in enumerate(("plain", "weighted")):
                    bar = {"default": f"≤ {today[k]:.3f}", PLAIN: ("≤ 0.10", "≤ 0.06")[k]}.get(setting, "")
                    value = float(f"{errors[:, k].mean():.3f}")  # rounded as the bar is
                    report.add("marginals", f"{problem.name}: {kind} draws", value, bar=bar, setting=setting)
                    largest = f"{problem.name}: {kind} draws, largest"
                    report.add("marginals", largest, float(errors[:, k].max()), setting=setting)
            report.add("marginals", f"{problem.name}: plain draws", float(today[2]), setting=EXACT)
        title = "5. Mean error of 5, 50, 95 % quantiles in posterior sds over the points (λ, q), T = 1"
        note = f"{NUM_QUANTILE_DRAWS} draws of the flow at each point. Default settings may be no worse than {PLAIN}."
        report.finish("marginals", title, note)


def seconds_per_step(d: int, n: int) -> float:
    """Training step of the structured flow with a batch of 32, compilation left out."""
    scatter = Scatter.from_data(toy_problem(d, n, random_state=0)[0], mean="known")
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one table per item."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(ITEMS), help="items, separated by commas (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="tiny: checks that it runs, the numbers mean nothing")
    options = parser.parse_args(arguments)
    wanted = options.only.split(",")
    if unknown := sorted(set(wanted) - set(ITEMS)):
        parser.error(f"unknown item {', '.join(unknown)}: choose from {', '.join(ITEMS)}")
    warnings.simplefilter("ignore", gf.PoorFitWarning)  # the tables say how good it is
    report = Report(Console(width=160), None if options.quick else FILE)
    benchmark = Benchmark(report, options.quick)
    begin = time.perf_counter()
    for item in (item for item in ITEMS if item in wanted):
        getattr(benchmark, f"run_{item}")()
        report.console.print(f"{(time.perf_counter() - begin) / 60:.1f} min so far\n")
    passed = [line["passed"] for line in report.lines if "passed" in line]
    print(f"{sum(passed)} of {len(passed)} bars met. ggmflow {gf.__version__}, JAX {jax.__version__}.")


if __name__ == "__main__":
    main()
