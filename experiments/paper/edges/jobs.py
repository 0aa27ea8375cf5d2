"""Edges found by flows, exact posteriors and penalized likelihoods on graphs whose truth is known.

    F1 = 2 TP / (2 TP + FP + FN) over pairs i < j;   as published, over all d² entries, 2 TP + d, 2 FP and 2 FN instead

Quantile errors are mean |difference| from the exact sampler's 5, 50 and 95 % quantiles over all entries of Ω, in units
of its standard deviation.
"""

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.datasets import make_sparse_spd_matrix

from experiments.paper.choice import TOLERANCE, cross_validation, peak
from experiments.paper.edges.networks import NETWORKS, load_network
from experiments.paper.edges.scores import Matrix, score_estimate, score_posterior
from experiments.paper.record import Job
from experiments.paper.reference import LEVELS, LIMIT, Reference, quantile_error, refer
from ggmflow import gibbs
from ggmflow.baselines import (
    bayesian_graphical_lasso,
    graphical_lasso,
    nonconvex_precision,
)
from ggmflow.data.scatter import Scatter
from ggmflow.data.simulate import sample_gaussian, sparse_precision
from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.model.precision import partial_correlation
from ggmflow.posterior.posterior import PoorFitWarning, Posterior
from ggmflow.posterior.source import ChainSource
from ggmflow.storage.cache import compilation_cache_enabled

PENALTIES = ("atan", "selo", "log", "sica", "exp", "scad", "mcp", "adapt")
PUBLISHED_SEED = 2  # of the one matrix behind all of the published data sets
HYPERPRIOR, THIN = (1.0, 0.1), 4  # Gamma prior on λ, sweeps between draws of the published Bayesian graphical lasso
WEAK = 0.1  # a partial correlation that few rows cannot tell from zero


class Effort(NamedTuple):
    """Expense for one data set.

    Attributes
    ----------
    steps
        Of the flow's training.
    chains, draws, warmup, thin
        Of the exact sampler; its chains are shared among the (λ, q).
    refined
        Chains that start at draws of the flow where they are refined.
    lasso_draws
        Draws kept of the Bayesian graphical lasso.
    """

    steps: int
    chains: int
    draws: int
    warmup: int
    thin: int
    refined: int
    lasso_draws: int


class Settings(NamedTuple):
    """All settings that the numbers depend on.

    Attributes
    ----------
    d, rows, truths
        Variables, numbers of rows, number of true matrices of the main comparison.
    published_truths
        Data sets for each number of rows from the one matrix of the published study; only what it reports is measured.
    graphs, graph_rows, graph_truths
        The same for other kinds of graphs, with the same d.
    effort
        Expense for each data set, the fields of `Effort`.
    networks
        Known networks: numbers of rows, with one data set for each, and expense.
    qs
        Exponents.
    num_lam
        Values of λ at which the published criterion is computed for each q.
    criterion_draws, num_draws, error_draws
        Draws of the flow behind the published criterion, behind edges, and behind quantile errors.
    sweeps
        Length of the chains that refine.
    num_rho
        Levels of every penalty.
    """

    d: int
    rows: tuple[int, ...]
    truths: int
    published_truths: int
    graphs: tuple[str, ...]
    graph_rows: tuple[int, ...]
    graph_truths: int
    effort: tuple[int, ...]
    networks: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    qs: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25)
    num_lam: int = 9
    criterion_draws: int = 250
    num_draws: int = 1000
    error_draws: int = 2000
    sweeps: int = 40
    num_rho: int = 50


FULL = Settings(
    d=30,
    rows=(15, 25, 35, 45),
    truths=10,
    published_truths=3,
    graphs=("band", "hub", "scale-free"),
    graph_rows=(25,),
    graph_truths=2,
    effort=(300, 64, 200, 150, 2, 150, 1000),
    networks={
        "ecoli70": ((50, 100), (400, 64, 300, 300, 2, 150, 1000)),
        "magic-niab": ((100,), (400, 64, 300, 300, 2, 150, 1000)),
        "magic-irri": ((100,), (300, 64, 150, 150, 1, 100, 500)),
        "arth150": ((100,), (300, 32, 120, 120, 1, 50, 250)),
    },
)
QUICK = Settings(
    d=5,
    rows=(15,),
    truths=2,
    published_truths=1,
    graphs=("band",),
    graph_rows=(15,),
    graph_truths=1,
    effort=(25, 32, 10, 50, 1, 32, 100),
    networks={},
    num_lam=3,
    criterion_draws=1000,  # few programs to compile: draws and chains come in the same numbers everywhere
    error_draws=1000,
    sweeps=20,
    num_rho=8,
)


class Problem(NamedTuple):
    """A data set: its kind ("sparse", "published", another graph, a network), d, n, seed of truth and data, expense."""

    kind: str
    d: int
    n: int
    truth: int
    effort: Effort


class Condition(NamedTuple):
    """A point (λ, q) at which posteriors are scored, and how it was chosen."""

    choice: str
    lam: float
    q: float


def make_jobs(settings: Settings) -> list[Job]:
    """One job for each data set, the main comparison first, networks last."""
    effort = Effort(*settings.effort)
    problems = [
        Problem("sparse", settings.d, n, truth, effort) for n in settings.rows for truth in range(settings.truths)
    ]
    problems += [
        Problem("published", settings.d, n, truth, effort)
        for n in settings.rows
        for truth in range(settings.published_truths)
    ]
    problems += [
        Problem(kind, settings.d, n, truth, effort)
        for kind in settings.graphs
        for n in settings.graph_rows
        for truth in range(settings.graph_truths)
    ]
    for name, (rows, expense) in settings.networks.items():
        problems += [Problem(name, 0, n, 0, Effort(*expense)) for n in rows]
    return [Job(f"{each.kind} n={each.n} #{each.truth}", partial(measure, each, settings)) for each in problems]


def draw(problem: Problem) -> tuple[Float[np.ndarray, "n d"], Matrix]:
    """Data and the true precision matrix; every truth, and every n of one truth, has its own random numbers."""
    if problem.kind in NETWORKS:
        precision = load_network(problem.kind).precision()
    elif problem.kind == "published":
        precision = make_sparse_spd_matrix(problem.d, alpha=0.9, random_state=PUBLISHED_SEED)
    else:
        precision = sparse_precision(problem.d, graph=problem.kind, random_state=problem.truth)
    rng = np.random.default_rng([problem.truth, problem.n])
    return sample_gaussian(precision, problem.n, random_state=rng), precision


def measure(problem: Problem, settings: Settings) -> dict[str, pd.DataFrame]:
    """All methods on one data set.

    Returns
    -------
    dict
        Tables `data` (one row), `scores` (a row for each method and choice of λ and q), `agreement` (a row for each
        condition at which flow and exact sampler are compared).
    """
    X, truth = draw(problem)
    effort, scatter, as_published = problem.effort, Scatter.from_data(X, mean="known"), problem.kind == "published"
    # Penalized likelihoods use one core, so they run beside the flow. Warning filters apply to all threads.
    with warnings.catch_warnings(), ThreadPoolExecutor(1) as beside, compilation_cache_enabled():
        warnings.simplefilter("ignore", PoorFitWarning)  # the table holds the errors
        # Irrelevant at levels that are not chosen; the estimate at the chosen level is used unchanged.
        warnings.filterwarnings("ignore", r"\d+ of \d+ fits did not converge", RuntimeWarning)
        penalized = None if as_published else beside.submit(estimates, X, scatter, settings)
        model = GraphicalFlow(temperature=1.0, steps=effort.steps, random_state=0, progress=False).fit(scatter)
        conditions, at_boundary = choose(model, settings, as_published)
        exact = exact_posteriors(scatter, conditions, effort)
        posteriors, agreement = flow_posteriors(model, conditions, exact, settings, effort.refined)
        lengths: dict[str, Any] = {"num_draws": effort.lasso_draws, "num_warmup": effort.lasso_draws, "thin": THIN}
        chains = bayesian_graphical_lasso(scatter, hyperprior=HYPERPRIOR, num_chains=1, **lengths)
        scores = [("flow", *at, *score_posterior(truth, post)) for at, post in zip(conditions, posteriors, strict=True)]
        found = penalized.result() if penalized else []
    scores += [("exact", *at, *score_posterior(truth, post)) for at, (post, _) in zip(conditions, exact, strict=True)]
    lasso = as_posterior(chains.pooled, scatter, 1.0)
    scores.append(("BGL", "hyperprior", chains.lam.mean(), 1.0, *score_posterior(truth, lasso)))
    scores += [(*about, *score_estimate(truth, precision)) for *about, precision in found]
    d, upper = len(truth), np.triu_indices(len(truth), 1)
    strength = np.abs(partial_correlation(truth))[upper]
    known = (problem.kind, d, problem.n, problem.truth, strength.size, np.sum(strength > 0), np.sum(strength > WEAK))
    known += (effort.steps, effort.chains * effort.draws // len(conditions), effort.lasso_draws)
    known += (*model.lam_range_, at_boundary)
    return {
        "data": pd.DataFrame([known], columns=[*DATA_COLUMNS]),
        "scores": pd.DataFrame(scores, columns=[*SCORE_COLUMNS]).round(4),
        "agreement": agreement.round(4),
    }


DATA_COLUMNS = ("kind", "d", "n", "truth", "pairs", "edges", "strong_edges")
DATA_COLUMNS += ("steps", "exact_draws", "lasso_draws", "lam_low", "lam_high", "at_boundary")
# Those ending in _default are of the default edge rule, others of the 90 % interval or the support of an estimate.
SCORE_COLUMNS = ("method", "choice", "lam", "q", "n_edges", "f1", "f1_published", "mcc", "average_precision")
SCORE_COLUMNS += ("n_default", "f1_default", "mcc_default")


def choose(model: GraphicalFlow, settings: Settings, as_published: bool) -> tuple[list[Condition], str]:
    """Points (λ, q) at which posteriors are scored, and the boundaries at which the evidence is highest, if any.

    published
        The paper's criterion, the ELBO with the constants of independent entries, at each q.
    published at 1
        The λ of that criterion at q = 1, used at the other q too, as the published code does.
    evidence
        The highest evidence over λ and q.

    With `as_published`, only what the published code does.
    """
    lams, qs = np.geomspace(*model.lam_range_, settings.num_lam), [1.0] if as_published else list(settings.qs)
    table = model.evidence(lams, qs, normalizer="published", num_draws=settings.criterion_draws)
    best = {q: peak(lams, table.loc[table["q"] == q, "log_evidence"].to_numpy()).lam for q in qs}
    conditions = [Condition("published", best[q], q) for q in qs]
    conditions += [Condition("published at 1", best[1.0], q) for q in settings.qs if q != 1]
    if as_published:
        return conditions, ""
    chosen = model.select()
    at_boundary = " and ".join(boundary.text() for boundary in chosen.at_boundary)
    return [*conditions, Condition("evidence", chosen.lam, chosen.q)], at_boundary


def exact_posteriors(
    scatter: Scatter, conditions: Sequence[Condition], effort: Effort
) -> list[tuple[Posterior, Reference]]:
    """Posteriors from exact chains, all conditions at once, with their quantiles."""
    each = effort.chains // len(conditions)
    lam, q = np.repeat([(at.lam, at.q) for at in conditions], each, axis=0).T
    lengths: dict[str, Any] = {"num_draws": effort.draws, "num_warmup": effort.warmup, "thin": effort.thin}
    chains = gibbs.sample(jax.random.key(1), scatter, lam, q, **lengths)
    found = []
    for k, at in enumerate(conditions):
        draws = chains.draws[k * each : (k + 1) * each]
        found.append((as_posterior(draws.reshape(-1, *draws.shape[2:]), scatter, at.q, at.lam), refer(draws)))
    return found


def flow_posteriors(
    model: GraphicalFlow,
    conditions: Sequence[Condition],
    exact: Sequence[tuple[Posterior, Reference]],
    settings: Settings,
    num_chains: int,
) -> tuple[list[Posterior], pd.DataFrame]:
    """Posteriors of the flow, refined where necessary, and their errors, a row for each condition."""
    posteriors, rows = [], []
    for at, (_, reference) in zip(conditions, exact, strict=True):
        wide = model.posterior(at.lam, at.q, num_draws=settings.error_draws)
        post = model.posterior(at.lam, at.q, num_draws=settings.num_draws, random_state=1)
        error, refined_error = quantile_error(wide.quantile(LEVELS, weighted=False), reference).mean, np.nan
        if error > LIMIT:
            post = wide.refine(settings.sweeps, num_chains=num_chains)
            refined_error = quantile_error(post.quantile(LEVELS, weighted=False), reference).mean
        known = wide.diagnostics()
        posteriors.append(post)
        rows.append((*at, error, reference.own_error, refined_error, known["ess"], known["khat"]))
    columns = ["choice", "lam", "q", "flow_error", "exact_error", "refined_error", "ess", "khat"]
    return posteriors, pd.DataFrame(rows, columns=columns)


def as_posterior(draws: Float[np.ndarray, "N d d"], scatter: Scatter, q: float, lam: float | None = None) -> Posterior:
    """Exact draws as a `Posterior`, so that the same code finds all edges."""
    everything = np.arange(scatter.n_features)
    return Posterior(ChainSource(draws), scatter.names, everything, lam, q, 1.0, num_draws=len(draws), scatter=scatter)


def estimates(
    X: Float[np.ndarray, "n d"], scatter: Scatter, settings: Settings
) -> list[tuple[str, str, float, float, Matrix]]:
    """Penalized likelihoods: name, how the level was chosen, nρ, q (of the lasso), estimate.

    A penalty without any solution is left out: flat ones have none where n < d and the level is low.
    """
    emp_cov, options = scatter.matrix / scatter.n, {"n_rho": settings.num_rho, "tol": TOLERANCE}
    found = []
    for penalty in PENALTIES:
        try:
            result = nonconvex_precision(emp_cov, scatter.n, penalty, **options)
        except ValueError:
            continue
        found.append((penalty, "bic", result.lam, np.nan, result.precision))
    result = nonconvex_precision(emp_cov, scatter.n, "lasso", criterion="ebic", **options)
    found.append(("lasso", "ebic", result.lam, 1.0, result.precision))
    lam, precision = cross_validated(scatter.working(X), result.rho_path[::-2] * scatter.n)
    return [*found, ("lasso", "cv", lam, 1.0, precision)]


def cross_validated(working: Float[np.ndarray, "n d"], lams: Float[np.ndarray, " k"]) -> tuple[float, Matrix]:
    """λ of the graphical lasso whose left-out rows are likeliest, and the estimate from all rows; λ descending."""
    n, best = len(working), float(lams[np.argmax(cross_validation(working, lams))])
    return best, graphical_lasso(working.T @ working / n, n, best, tol=TOLERANCE).precision
