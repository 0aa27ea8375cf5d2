"""Simulation-based calibration of the exact sampler, the flow and the weighted flow: are their posteriors correct?

    Ω₀ ~ p(· | λ, q),    rows of X ~ N(0, Ω₀⁻¹),    Ω₁ … Ω_L ~ tested method, given X,    rank = #{l : f(Ω_l) < f(Ω₀)}

Where Ω₁ … Ω_L come from the posterior, Ω₀ is one more draw of it: for every f, λ and q the rank is uniform on 0 … L
(Talts et al. 2018), and a 90 % interval contains f(Ω₀) in 90 % of all replications. f is a diagonal entry, an
off-diagonal entry (both chosen at random in every replication) or log det Ω. S = XᵀX is neither centred nor scaled: the
model with known mean is used unchanged, at T = 1. Two deliberate mistakes go through the same tests and must be seen.
The effect of centring rows by their own mean is measured too.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from rich.console import Console
from scipy import stats

import ggmflow as gf
from ggmflow import gibbs
from ggmflow.data.scatter import Scatter
from ggmflow.posterior.weights import khat_limit
from ggmflow.storage.archive import versions
from tests.support.ranks import (
    LEVEL,
    L,
    Outcome,
    load,
    save,
)

SEED = 20231210  # chosen once, before any result was known
ROWS = {3: 10, 6: 15}  # d → n
CONDITIONS = tuple(product((1.0, 4.0), (1.0, 0.5, 0.25)))  # (λ, q), which take turns
EXACT, FLOW, WEIGHTED = SAMPLERS = ("exact sampler", "flow", "weighted flow")
SHAPE, NARROW = MISTAKES = ("γ of shape n/2", "sd × 0.7")
WARM = ("flow over temperatures", "weighted flow over temperatures")
# Rows centred by their own mean: their number, and the n that is passed to the model.
CENTRED = {f"{n} rows less their mean, n = {given}": (n, given) for n in (10, 50) for given in (n, n - 1)}
LESS_MEAN = next(iter(CENTRED))  # the first outcome of a replication
# Draws of an entry four sweeps apart are nearly independent: measured for the prior at d = 6.
PRIOR_SWEEPS = 500
CHAINS: dict[str, Any] = {"num_chains": L, "num_draws": 5, "num_warmup": 50, "thin": 10}
FIT: dict[str, Any] = {"lam": (0.5, 8.0), "q": (0.25, 1.25), "temperature": 1.0, "steps": 300, "progress": False}
WARM_FIT = FIT | {"temperature": (0.01, 1.0), "steps": 1500}  # both are the defaults
TAILS = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]


class Problem(NamedTuple):
    """A replication: the truth, the data, and the entries whose ranks are taken.

    Attributes
    ----------
    index
        Its number, which seeds all that is drawn for it.
    lam, q
        Of prior and posterior.
    truth : (d, d) array
        Ω₀.
    scatter
        The data.
    entries : (i, (j, k))
        Positions of a diagonal and of an off-diagonal entry.
    """

    index: int
    lam: float
    q: float
    truth: Float[np.ndarray, "d d"]
    scatter: Scatter
    entries: tuple[int, tuple[int, int]]

    def functions(self, Omega: Float[np.ndarray, "... d d"]) -> Float[np.ndarray, "f ..."]:
        """The three functions f of matrices."""
        i, (j, k) = self.entries
        return np.stack([Omega[..., i, i], Omega[..., j, k], np.linalg.slogdet(Omega)[1]])


def scatter_of(S: Float[np.ndarray, "d d"], n: int) -> Scatter:
    """Sufficient statistics with the given S and n, neither centred nor scaled."""
    d = len(S)
    return Scatter(S, n, np.zeros(d), np.ones(d), tuple(f"x{k}" for k in range(d)))


def prior_draws(
    d: int, lam: Float[np.ndarray, " N"], q: Float[np.ndarray, " N"], seed: int = 0
) -> Float[np.ndarray, "N d d"]:
    """One draw of the prior for each (λ, q), from a chain of its own: the exact sampler without data."""
    key = jax.random.fold_in(jax.random.key(SEED), d + 100 * seed)
    chains = gibbs.sample(key, Scatter.without_data(d), lam, q, num_draws=1, num_warmup=0, thin=PRIOR_SWEEPS)
    return chains.draws[:, 0]


def conditions(num: int) -> Float[np.ndarray, "2 num"]:
    """λ and q of the first `num` replications."""
    return np.array([CONDITIONS[k % len(CONDITIONS)] for k in range(num)]).T


@cache
def problems(d: int, num: int) -> list[Problem]:
    """Replications of one size."""
    rng = np.random.default_rng([SEED, d])
    lam, q = conditions(num)
    out = []
    for index, truth in enumerate(prior_draws(d, lam, q)):
        # Ω₀ = CCᵀ, so C⁻ᵀz has the covariance Ω₀⁻¹.
        X = np.linalg.solve(np.linalg.cholesky(truth).T, rng.standard_normal((d, ROWS[d])))
        i, (j, k) = int(rng.integers(d)), rng.permutation(d)[:2].tolist()
        scatter = scatter_of(X @ X.T, ROWS[d])
        out.append(Problem(index, float(lam[index]), float(q[index]), truth, scatter, (i, (j, k))))
    return out


def check_truths(problems: list[Problem]) -> tuple[float, float]:
    """z of a mean, and p-value of a distribution, that the prior has in closed form, with D = d(d+1)/2 free entries:

    E λ(½ tr Ω + q Σ|ω_ij|^q) = D, because ∫p(cΩ) d(cΩ) does not depend on c;    at q = 1 the sum is Gamma(D).
    """
    d = len(problems[0].truth)
    row, col = np.triu_indices(d, 1)
    sums = []
    for each in problems:
        off = each.q * np.sum(np.abs(each.truth[row, col]) ** each.q)
        sums.append(each.lam * (0.5 * np.trace(each.truth) + off))
    z = (np.mean(sums) - d * (d + 1) / 2) / stats.sem(sums)
    lasso = [value for value, each in zip(sums, problems, strict=True) if each.q == 1]
    return float(z), float(stats.kstest(lasso, stats.gamma(d * (d + 1) / 2).cdf).pvalue)


# ----------------------------------------------------------------------------------------------------- one replication
def outcome(
    sampler: str,
    problem: Problem,
    draws: Float[np.ndarray, "L d d"],
    ends: Float[np.ndarray, "2 d d"],
    log_det: Float[np.ndarray, " N"],
    *known: float,
) -> Outcome:
    """Ranks of the truth among L draws, and whether intervals contain it; that of log det comes from its draws."""
    truth, (i, (j, k)) = problem.functions(problem.truth), problem.entries
    ranks = np.sum(problem.functions(draws) < truth[:, None], axis=1).tolist()
    low, high = np.transpose([ends[:, i, i], ends[:, j, k], np.quantile(log_det, TAILS, method="hazen")])
    covered, widths = ((low <= truth) & (truth <= high)).astype(int).tolist(), (high - low).tolist()
    inside = (ends[0] <= problem.truth) & (problem.truth <= ends[1])
    share = float(np.mean(inside[np.triu_indices(len(inside))]))
    condition = (len(inside), problem.index, problem.lam, problem.q)
    return Outcome(sampler, *condition, tuple(ranks), tuple(covered), tuple(widths), share, *known)


def run_chains(problem: Problem, scatter: Scatter) -> Float[np.ndarray, "chains draws d d"]:
    """Chains of the exact sampler; their last states are independent of each other."""
    key = jax.random.fold_in(jax.random.key(SEED + 1), 1000 * len(problem.truth) + problem.index)
    return gibbs.sample(key, scatter, problem.lam, problem.q, **CHAINS).draws


def of_chains(sampler: str, problem: Problem, draws: Float[np.ndarray, "chains draws d d"]) -> Outcome:
    """Ranks among the last states of the chains, intervals from all of their draws."""
    pooled = draws.reshape(-1, *draws.shape[2:])
    ends = np.quantile(pooled, TAILS, axis=0, method="hazen")
    return outcome(sampler, problem, draws[:, -1], ends, np.linalg.slogdet(pooled)[1])


def replicate_exact(problem: Problem) -> list[Outcome]:
    """The exact sampler and two mistakes.

    n enters a sweep in one place only, γ ~ Gamma(n/2 + 1, ·). The shape n/2 of a published sampler is therefore the
    posterior of the same S with n − 2 rows.
    """
    S, n = problem.scatter.matrix, int(problem.scatter.n)
    draws = run_chains(problem, problem.scatter)
    mean = draws.mean(axis=(0, 1))
    return [
        of_chains(EXACT, problem, draws),
        of_chains(SHAPE, problem, run_chains(problem, scatter_of(S, n - 2))),
        of_chains(NARROW, problem, mean + 0.7 * (draws - mean)),
    ]


def replicate_centred(problem: Problem, cases: Mapping[str, tuple[int, int]] = CENTRED) -> list[Outcome]:
    """The exact sampler on new rows, centred by their own mean, which counts as known or as estimated.

    With a flat prior of the mean the likelihood is that of centred rows with n − 1 for n: this should be calibrated.
    """
    out = []
    for name, (rows, given) in cases.items():
        rng = np.random.default_rng([SEED, problem.index, rows])
        z = rng.standard_normal((len(problem.truth), rows))
        X = np.linalg.solve(np.linalg.cholesky(problem.truth).T, z).T
        scatter = Scatter.from_data(X, mean="known" if given == rows else "estimated", standardize=False)
        out.append(of_chains(name, problem, run_chains(problem, scatter)))
    return out


def replicate_warm(problem: Problem) -> list[Outcome]:
    """A fit over the default range of temperatures, evaluated at T = 1."""
    return replicate_flow(problem, WARM_FIT, WARM)


def replicate_flow(
    problem: Problem, fit: dict[str, Any] = FIT, names: tuple[str, str] = (FLOW, WEIGHTED)
) -> list[Outcome]:
    """A new fit: its plain draws, and its draws with importance weights where k̂ allows them, as in the library."""
    seeds = np.random.SeedSequence([SEED, len(problem.truth), problem.index]).generate_state(4).tolist()
    model = gf.GraphicalFlow(**fit, random_state=seeds[0]).fit(problem.scatter)
    post = model.posterior(problem.lam, problem.q, random_state=seeds[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gf.PoorFitWarning)
        known = [float(post.diagnostics()[name] or 0.0) for name in ("khat", "ess")]
        plain = post.sample(4000, seeds[2])
        # 1000 weighted draws come from 4000 plain ones, so that one compiled program serves all.
        usable = known[0] < khat_limit(4000)
        weighted = post.sample(1000, seeds[3], weighted=True) if usable else post.sample(4000, seeds[3])
        ends, ends_used = post.interval(LEVEL, weighted=False), post.interval(LEVEL)
    return [
        outcome(names[0], problem, plain[:L], ends, np.linalg.slogdet(plain)[1], *known),
        outcome(names[1], problem, weighted[:L], ends_used, np.linalg.slogdet(weighted)[1], *known),
    ]


# ------------------------------------------------------------------------------------------------------------ all of it
REPLICATE: dict[str, Callable[[Problem], list[Outcome]]] = {
    EXACT: replicate_exact,
    FLOW: replicate_flow,
    WARM[0]: replicate_warm,
    LESS_MEAN: replicate_centred,
}
Jobs = list[tuple[str, list[Problem]]]


def make_jobs(sizes: tuple[int, ...], num: int, num_fits: int) -> Jobs:
    """Exact sampler and flow for each d: the name of the first outcome, and the replications to run."""
    return [(sampler, problems(d, num)[:wanted]) for d in sizes for sampler, wanted in ((EXACT, num), (FLOW, num_fits))]


def origin(todo: Jobs) -> dict[str, str]:
    """Versions and settings that decide about outcomes."""
    settings = {
        "seed": SEED,
        "rows": ROWS,
        "conditions": CONDITIONS,
        "prior sweeps": PRIOR_SWEEPS,
        "chains": CHAINS,
        "fit": FIT,
        "fit over temperatures": WARM_FIT,
        "centred": CENTRED,
        "ranks among": L,
        "level": LEVEL,
        "replications": [(sampler, len(part)) for sampler, part in todo],
    }
    return versions() | {name: str(value) for name, value in settings.items()}


def run(todo: Jobs, file: Path | None, console: Console) -> list[Outcome]:
    """Run all replications that are not in the file; each gives one outcome for every sampler and mistake."""
    made_by, begin = origin(todo), time.perf_counter()
    found = [] if file is None or not file.exists() else load(file, made_by)
    if found:
        console.print(f"{len(found)} lines of {file} were measured before: remove it to measure again", style="dim")
    known = {(one.d, one.index, one.sampler) for one in found}
    for sampler, part in todo:
        d = len(part[0].truth)
        for problem in part:
            if (d, problem.index, sampler) not in known:
                found += REPLICATE[sampler](problem)
                if file is not None and (problem.index % 10 == 9 or problem is part[-1]):
                    save(file, found, made_by)
        console.print(f"d = {d}, {sampler}: {(time.perf_counter() - begin) / 60:.1f} min so far", style="dim")
    return found
