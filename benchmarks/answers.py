"""Accuracy of the answers after a fit: evidence, the choice of λ, modes and refinement, against exact answers.

    python -m benchmarks.answers [--only small,closed,prior,agree,select,range,path,refine]

small    d = 3 and 4: evidence against Wishart importance sampling with weights exp(−λΣ|ω|^q) ≤ 1, as many draws as it
         takes for an error of 0.01. Covered: within two standard errors, the oracle's included.
closed   d = 15: with a penalty too weak to matter (λ = 1e-6, q = 0.1) evidence is that of a Wishart prior, in closed
         form; and the scaling law of the prior's normalizer at q = 1.
prior    d = 15: the prior's normalizer by its flow, and integrated along exact chains as for many variables.
agree    d = n = 15: two fits with different seeds, nine (λ, q).
select   λ of highest evidence at q = 1 beside 5-fold cross-validation of the graphical lasso, ten data sets.
range    lam="auto" holds the λ of highest evidence, twelve tables of many kinds.
path     posterior modes: at q = 1 against the graphical lasso, for q < 1 against other solvers of the same problem.
refine   quantiles after refine(50) against long exact chains, three data sets, nine (λ, q) each; beside it the error
         that 1000 exact draws would have, with that of the reference.
Results also go to results/answers.csv; an item that is not measured again keeps its lines there.
"""

import argparse
import importlib.util
import time
import warnings
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from rich.console import Console
from sklearn import datasets

import ggmflow as gf
from benchmarks.problems import LEVELS, MARGINALS, TOY_RANGE
from benchmarks.report import Report
from experiments.paper.choice import cross_validation
from ggmflow.baselines import graphical_lasso
from ggmflow.baselines.nonconvex import nonconvex_precision
from ggmflow.data.scatter import Scatter
from ggmflow.data.simulate import sample_gaussian, sparse_precision, toy_problem
from ggmflow.evidence.normalizer import log_normalizer
from ggmflow.evidence.prior import Prior, fit_prior, prior_ranges
from ggmflow.evidence.prior_integral import integrate_prior
from ggmflow.model.conditions import Ranges
from ggmflow.modes.path import make_problem, solve_path
from ggmflow.posterior.flow_source import FlowSource
from tests.support.wishart import log_wishart

FILE = Path("results/answers.csv")
POINTS = list(product((0.5, 2.0, 8.0), (1.0, 0.5, 0.25)))
POSTERIOR: dict[str, Any] = {"temperature": 1.0, "mean": "known", "random_state": 0, "progress": False}
_BLOCK = 500_000  # Wishart draws at a time


def log_mean_factor(
    rng: np.random.Generator, n: float, Psi: Float[np.ndarray, "d d"], lam: float, q: float
) -> tuple[float, float]:
    """log E exp(−λΣ|ω|^q) under Wishart(n + d + 1, Ψ⁻¹), and its error, which is at most 0.007."""
    d = len(Psi)
    i, j = np.triu_indices(d, 1)
    index, root = np.arange(d), np.linalg.inv(np.linalg.cholesky(Psi)).T
    total = squares = count = 0.0
    while True:
        bartlett = np.zeros((_BLOCK, d, d))
        bartlett[:, index, index] = np.sqrt(rng.chisquare(n + d + 1 - index, (_BLOCK, d)))
        bartlett[:, j, i] = rng.standard_normal((_BLOCK, len(i)))
        L = root @ bartlett
        factor = np.exp(-lam * np.sum(np.abs(np.einsum("npk,npk->np", L[:, i], L[:, j])) ** q, axis=1))
        total, squares, count = total + factor.sum(), squares + np.sum(factor**2), count + _BLOCK
        error = np.sqrt((squares * count / total**2 - 1) / count)
        if error < 0.007 and count >= 4 * _BLOCK:
            return float(np.log(total / count)), float(error)


def exact_evidence(scatter: Scatter, lam: float, q: float, seed: int) -> tuple[float, float]:
    """log p(X | λ, q) and its error."""
    d, n, rng = scatter.n_features, scatter.n, np.random.default_rng(seed)
    after, before = scatter.matrix + lam * np.eye(d), lam * np.eye(d)
    (a, error_a), (b, error_b) = (log_mean_factor(rng, m, Psi, lam, q) for m, Psi in ((n, after), (0.0, before)))
    value = log_wishart(n, after) + a - log_wishart(0, before) - b - 0.5 * n * d * np.log(2 * np.pi)
    return value, float(np.hypot(error_a, error_b))


def run_small(report: Report) -> None:
    """Evidence at d = 3 and 4."""
    covered = 0
    for d, n in ((3, 12), (4, 15)):
        X = toy_problem(d, n, random_state=d)[0]
        model = gf.GraphicalFlow(lam=(0.5, 8.0), q=(0.25, 2.0), **POSTERIOR).fit(X)
        differences = []
        points = list(product((0.5, 2.0, 8.0), (0.25, 0.5, 1.0, 2.0)))
        for k, (lam, q) in enumerate(points):
            row = model.evidence(lam, q, num_draws=20_000, random_state=k).iloc[0]
            exact, error = exact_evidence(model.scatter_, lam, q, seed=k)
            differences.append(row.log_evidence - exact)
            covered += abs(differences[-1]) <= 2 * np.hypot(row.se, error)
            report.add(
                "small", f"d = {d}: difference at λ = {lam:g}, q = {q:g}", differences[-1], np.hypot(row.se, error)
            )
        report.add("small", f"d = {d}: largest |difference|", float(np.max(np.abs(differences))), bar="≤ 0.05")
    report.add("small", "covered by two standard errors, of 24", covered, bar="≥ 22", digits=".0f")
    report.finish("small", "1. Evidence against Wishart importance sampling")


def run_closed(report: Report) -> None:
    """Closed forms at d = 15."""
    X = toy_problem(15, 60, random_state=0)[0]
    lam = 1e-6
    model = gf.GraphicalFlow(lam=lam, q=0.1, steps=100, **POSTERIOR).fit(X)
    row = model.evidence(lam, 0.1, num_draws=20_000).iloc[0]
    S, n = model.scatter_.matrix, model.scatter_.n
    closed = log_wishart(n, S + lam * np.eye(15)) - log_wishart(0, lam * np.eye(15)) - 7.5 * n * np.log(2 * np.pi)
    report.add("closed", "|evidence − closed form|", abs(row.log_evidence - closed), row.se, bar="≤ 0.01", digits=".4f")
    prior = fit_prior(15, 15, prior_ranges(Ranges(TOY_RANGE, (0.25, 1.25), (1.0, 1.0))))
    assert isinstance(prior, Prior)
    values = []
    for k, at in enumerate((0.5, 2.0, 8.0)):
        condition = prior.ranges.condition(at, 1.0, 1.0)
        source = FlowSource(prior.flow, condition, np.arange(15), Scatter.without_data(15))
        found = log_normalizer(source, jax.random.key(k), 160_000)
        values.append(found.value + 120 * np.log(at))
        report.add("closed", f"    log Z_prior + 120 log λ at λ = {at:g}", values[-1], found.se)
    report.add(
        "closed", "scaling law of the prior: largest difference", float(np.ptp(values)), bar="≤ 0.01", digits=".4f"
    )
    report.finish("closed", "1. Closed forms at d = 15", "The three estimates of the law are independent.")


def run_prior(report: Report) -> None:
    """The prior's normalizer by its flow and by integration."""
    ranges = Ranges((10**-0.5, 10.0), (0.25, 1.25), (1.0, 1.0))
    flow, begin = fit_prior(15, 15, ranges), time.perf_counter()
    integral, z = integrate_prior(15, 15, ranges), []
    seconds = time.perf_counter() - begin
    for lam, q in product((0.5, 2.0, 8.0), (0.25, 0.5, 1.0, 1.25)):
        one, (value, se) = flow.log_normalizer(lam, q, 20_000), integral.log_normalizer(lam, q)
        z.append((value - one.value) / np.hypot(se, one.se))
        report.add("prior", f"λ = {lam:g}, q = {q:g}: integral − flow", value - one.value, float(np.hypot(se, one.se)))
    report.add("prior", "largest |difference| in standard errors", float(np.max(np.abs(z))), bar="≤ 4", digits=".2f")
    report.add("prior", "seconds of the integral", seconds, digits=".0f")
    report.finish("prior", "1. The prior's normalizer, d = 15", "Differences at one q share their noise.")


def run_agree(report: Report) -> None:
    """Two fits."""
    X = toy_problem(15, 15, random_state=0)[0]
    tables = [
        gf.GraphicalFlow(lam=TOY_RANGE, temperature=1.0, mean="known", random_state=seed, progress=False)
        .fit(X)
        .evidence(lam=[0.5, 2.0, 8.0], q=[1.0, 0.5, 0.25], random_state=seed)
        for seed in (0, 1)
    ]
    z = []
    # The prior's part is the same in both: only the posteriors' normalizers differ, and their errors.
    for one, other in zip(*(table.itertuples() for table in tables), strict=True):
        difference, se = one.log_evidence - other.log_evidence, float(np.hypot(one.se, other.se))
        z.append(difference / se)
        report.add("agree", f"λ = {one.lam:g}, q = {one.q:g}: {one.log_evidence:.2f}, difference", difference, se)
    report.add("agree", "largest |difference| in standard errors", float(np.max(np.abs(z))), bar="≤ 3", digits=".2f")
    report.finish("agree", "2. Evidence from two independent fits, d = n = 15")


def run_select(report: Report) -> None:
    """λ at q = 1, ten data sets."""
    chosen, folded = [], []
    for seed in range(10):
        X = toy_problem(15, 15, random_state=seed)[0]
        options = {"temperature": 1.0, "steps": 400, "mean": "known", "random_state": 0, "progress": False}
        model = gf.GraphicalFlow(lam=TOY_RANGE, q=(0.75, 1.25), **options).fit(X)
        chosen.append(model.select(q=1.0).lam)
        tried = np.geomspace(*TOY_RANGE, 40)[::-1]
        folded.append(float(tried[np.argmax(cross_validation(model.scatter_.working(X), tried))]))
        report.add("select", f"data set {seed}: evidence", chosen[-1], digits=".2f")
        report.add("select", "    cross-validation", folded[-1], digits=".2f")
    report.add("select", "mean: evidence", float(np.mean(chosen)), float(np.std(chosen) / np.sqrt(10)), digits=".2f")
    report.add(
        "select", "mean: cross-validation", float(np.mean(folded)), float(np.std(folded) / np.sqrt(10)), digits=".2f"
    )
    report.finish("select", "2. λ = nρ at q = 1, d = n = 15", "The paper has 3.52 and 3.36 on one data set.")


def run_refine(report: Report) -> None:
    """Quantiles after refine(50)."""
    for problem in MARGINALS:
        options = {"temperature": 1.0, "mean": "known", "random_state": 0, "progress": False}
        model = gf.GraphicalFlow(lam=problem.lam_range, **options).fit(problem.X)
        free = np.triu_indices(problem.d)
        model.posterior(*problem.points[0]).refine(50)  # compiles
        errors, expected, seconds = [], [], []
        for p, (lam, q) in enumerate(problem.points):
            draws = problem.chains[p].draws[:, :, *free]
            pooled = draws.reshape(-1, draws.shape[-1])
            truth, sd = np.quantile(pooled, LEVELS, axis=0), pooled.std(axis=0)
            post = model.posterior(lam, q)
            post.mean()
            begin = time.perf_counter()
            refined = post.refine(50, random_state=p)
            seconds.append(time.perf_counter() - begin)
            errors.append(np.mean(np.abs(refined.quantile(LEVELS)[:, *free] - truth) / sd))
            # What 1000 independent exact draws, the last states of the chains, would have: halves of the long chains
            # give the error of the reference, and thinned parts of them that of so many draws.
            some = pooled[:: max(1, len(pooled) // 1000)][:1000]
            halves = [
                np.quantile(half.reshape(-1, half.shape[-1]), LEVELS, axis=0) for half in (draws[::2], draws[1::2])
            ]
            alone = np.mean(np.abs(np.quantile(some, LEVELS, axis=0) - truth) / sd)
            own = np.mean(np.abs(halves[0] - halves[1]) / sd) / 2
            expected.append(np.hypot(alone, own))
        report.add("refine", f"{problem.name}: quantile error after refine(50), sd", float(np.mean(errors)))
        report.add("refine", "    of 1000 exact draws", float(np.mean(expected)))
        report.add("refine", "    ratio", float(np.mean(errors) / np.mean(expected)), bar="≤ 1.0", digits=".2f")
        report.add("refine", "    median seconds", float(np.median(seconds)), digits=".2f")
    report.finish("refine", "4. Quantiles after refine(50), nine (λ, q) each")


class PowerPenalty(NamedTuple):
    """|ω|^q in the interface of skglm's reweighting."""

    q: float

    def derivative(self, w: np.ndarray) -> np.ndarray:
        """Slope at |ω|."""
        return self.q * np.maximum(np.abs(w), 1e-300) ** (self.q - 1)


def other_modes(S: np.ndarray, n: float, lam: float, q: float) -> dict[str, np.ndarray]:
    """Modes by other solvers: this package's baseline from two starts, and skglm if it is installed."""
    options = {"rho": lam / n, "gamma": q, "iterate": True, "diagonal": "l1", "offset": 0.0}
    lasso = graphical_lasso(S / n, n, lam).precision
    found = {
        "reweighting from a shrunk covariance": nonconvex_precision(S / n, n, "lq", **options).precision,
        "reweighting from the lasso": nonconvex_precision(S / n, n, "lq", initial=lasso, **options).precision,
    }
    if importlib.util.find_spec("skglm"):
        from skglm.covariance import AdaptiveGraphicalLasso  # pyright: ignore[reportMissingImports]

        penalty: Any = PowerPenalty(q)
        model = AdaptiveGraphicalLasso(alpha=lam / n, n_reweights=15, max_iter=200, tol=1e-8, penalty=penalty)
        precision = np.asarray(model.fit(S / n + lam / n * np.eye(len(S)), mode="precomputed").precision_)
        found["skglm's reweighting"] = (precision + precision.T) / 2
    return found


def range_problems() -> dict[str, np.ndarray]:
    """Tables of many kinds: few rows and many, sparse graphs, none, one factor, and real ones."""
    rng = np.random.default_rng(0)
    tables = {f"toy, d = {d}, n = {n}": toy_problem(d, n, random_state=0)[0] for d, n in ((5, 20), (5, 2000), (15, 15))}
    for graph in ("hub", "band", "random"):
        tables[f"{graph}, d = 30, n = 45"] = sample_gaussian(
            sparse_precision(30, graph=graph, random_state=0), 45, random_state=rng
        )
    tables |= {"independent, d = 6, n = 50": rng.normal(size=(50, 6)), "d = 6, n = 4": rng.normal(size=(4, 6))}
    tables["one factor, d = 6, n = 100"] = rng.normal(size=(100, 1)) + 0.3 * rng.normal(size=(100, 6))
    return tables | {name: getattr(datasets, f"load_{name}")().data for name in ("iris", "diabetes", "wine")}


def run_range(report: Report) -> None:
    """Whether lam="auto" holds the highest evidence."""
    for name, X in range_problems().items():
        model = gf.GraphicalFlow(steps=200, **POSTERIOR).fit(X)
        low, high = model.lam_range_
        best = [model.select(q=q).lam for q in (0.25, 0.5, 1.0, 1.25)]
        label = f"{name}: λ {min(best):.2g} … {max(best):.2g} in {low:.2g} … {high:.2g}; factor to the nearest end"
        report.add("range", label, float(min(min(best) / low, high / max(best))), bar="≥ 1.2", digits=".1f")
    report.finish("range", "2. lam='auto' holds the λ of highest evidence at q = 0.25, 0.5, 1, 1.25")


def run_path(report: Report) -> None:
    """Modes along λ."""
    for d, n in ((15, 15), (30, 25), (100, 60)):
        S = Scatter.from_data(toy_problem(d, n, random_state=0)[0]).matrix
        largest = np.max(np.abs(S - np.diag(np.diag(S))))
        lams, seconds = np.geomspace(largest / 50, largest, 50), []
        for _ in range(3):
            begin = time.perf_counter()
            path = solve_path(S, n, lams.tolist(), 1.0, np.arange(d))
            middle = time.perf_counter()
            lasso = np.array([graphical_lasso(S / n, n, lam).precision for lam in lams])
            seconds.append((middle - begin, time.perf_counter() - middle))
        ours, theirs = np.min(seconds, axis=0)
        error, zeros = np.max(np.abs(path.precision - lasso)), np.sum((path.precision != 0) != (lasso != 0))
        report.add("path", f"d = {d}, q = 1, 50 λ: largest difference", float(error), bar="≤ 1e-5", digits=".1e")
        report.add("path", "    entries that are zero in one only", float(zeros), bar="≤ 0", digits=".0f")
        report.add("path", "    time / graphical lassos one by one", float(ours / theirs), bar="≤ 2", digits=".2f")
    gains: dict[str, list[float]] = {}
    residual, starts = 0.0, Counter[str]()
    for seed in range(20):
        X = toy_problem(15, 15, random_state=seed)[0]
        model = gf.GraphicalFlow(lam=TOY_RANGE, steps=200, mean="known", random_state=0, progress=False).fit(X)
        S, n, lams = model.scatter_.matrix, model.scatter_.n, np.geomspace(*TOY_RANGE, 5)
        for q in (0.25, 0.5, 0.75):
            path = model.path(q, lams)
            residual = max(residual, float(np.max(path.kkt_residual)))
            starts.update(path.start)
            for lam, value in zip(lams.tolist(), path.objective, strict=True):
                at = make_problem(S, n, lam, q, model.query_)
                for name, precision in other_modes(S, n, lam, q).items():
                    gains.setdefault(name, []).append(at.objective(precision) - value)
    for name, values in gains.items():
        gain = np.array(values)
        report.add("path", f"q < 1, against {name}: worst gain", float(gain.min()), bar="≥ -1e-8", digits=".1e")
        report.add("path", f"    strictly better, of {gain.size}", float(np.mean(gain > 1e-8)), digits=".2f")
        report.add("path", "    mean gain", float(gain.mean()), digits=".3f")
    report.add("path", "largest KKT residual", residual, bar="≤ 1e-6", digits=".1e")
    for name, count in starts.most_common():
        report.add("path", f"    best from {name}", count, digits=".0f")
    report.finish("path", "3. Modes; q < 1: 20 data sets with d = n = 15, five λ, three q", "Gain: in the objective f.")


ITEMS = {
    "small": run_small,
    "closed": run_closed,
    "prior": run_prior,
    "agree": run_agree,
    "select": run_select,
    "range": run_range,
    "path": run_path,
    "refine": run_refine,
}


def main() -> None:
    """Print one table per item."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(ITEMS), help="items, separated by commas (%(default)s)")
    wanted = parser.parse_args().only.split(",")
    if unknown := sorted(set(wanted) - set(ITEMS)):
        parser.error(f"unknown item {', '.join(unknown)}: choose from {', '.join(ITEMS)}")
    warnings.simplefilter("ignore", gf.PoorFitWarning)
    warnings.simplefilter("ignore", gf.RangeWarning)
    report = Report(Console(width=120), FILE)
    begin = time.perf_counter()
    for item, run in ITEMS.items():
        if item in wanted:
            run(report)
            report.console.print(f"{(time.perf_counter() - begin) / 60:.1f} min so far\n")
    passed = [line["passed"] for line in report.lines if "passed" in line]
    print(f"{sum(passed)} of {len(passed)} bars met. ggmflow {gf.__version__}, JAX {jax.__version__}.")


if __name__ == "__main__":
    main()
