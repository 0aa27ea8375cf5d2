"""Which method finds the edges? Flows, exact posteriors and penalized likelihoods on graphs whose truth is known.

    F1 = 2 TP / (2 TP + FP + FN) over pairs i < j;   as published, over all d² entries, 2 TP + d, 2 FP and 2 FN instead

Quantile errors are mean |difference| from the exact sampler's 5, 50 and 95 % quantiles over all entries of Ω, in units
of its standard deviation.
"""

import textwrap
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from scipy import stats
from sklearn.datasets import make_sparse_spd_matrix

from ggmflow import gibbs
from ggmflow.baselines import (
    average_precision,
    bayesian_graphical_lasso,
    edge_metrics,
    graphical_lasso,
    nonconvex_precision,
)
from ggmflow.cache import compilation_cache_enabled
from ggmflow.data import Scatter
from ggmflow.estimator import GraphicalFlow
from ggmflow.plot.style import DASHED, FAINT, LINES, MARKERS, NEUTRAL, SMALL, open_frame, set_names
from ggmflow.posterior import PoorFitWarning, Posterior
from ggmflow.precision import partial_correlation
from ggmflow.reproduce.networks import NETWORKS, load_network
from ggmflow.reproduce.record import Job
from ggmflow.simulate import sample_gaussian, sparse_precision
from ggmflow.source import ChainSource
from ggmflow.train import default_settings

Tables = Mapping[str, Any]
Frame = Any  # pandas' own annotations know too little of what comes out of a selection
Matrix = Float[np.ndarray, "d d"]

LEVELS = (0.05, 0.5, 0.95)
LEVEL = 0.9  # of the paper's credible intervals
LIMIT = 0.1  # sd: where the flow's quantiles are further off than this, its draws are refined
PENALTIES = ("atan", "selo", "log", "sica", "exp", "scad", "mcp", "adapt")
PUBLISHED_SEED = 2  # of the one matrix behind all of the published data sets
HYPERPRIOR, THIN = (1.0, 0.1), 4  # Gamma prior on λ, sweeps between draws of the published Bayesian graphical lasso
FOLDS = 5
WEAK = 0.1  # a partial correlation that few rows cannot tell from zero
TOLERANCE = 1e-5  # of penalized likelihoods: zeros are exact long before


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
    """What the numbers depend on.

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
        "ecoli70": ((50, 100), (200, 64, 150, 150, 1, 150, 1000)),
        "magic-niab": ((100,), (200, 64, 150, 150, 1, 150, 1000)),
        "magic-irri": ((100,), (150, 64, 100, 100, 1, 100, 500)),
        "arth150": ((100,), (150, 32, 80, 80, 1, 50, 250)),
    },
)
QUICK = Settings(
    d=5,
    rows=(15, 25),
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
    """A point at which posteriors are looked at, and how it was chosen."""

    choice: str
    lam: float
    q: float


def jobs(settings: Settings) -> list[Job]:
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
    """Data and the true precision matrix; every truth, and every n of one truth, has randomness of its own."""
    if problem.kind in NETWORKS:
        precision = load_network(problem.kind).precision()
    elif problem.kind == "published":
        precision = make_sparse_spd_matrix(problem.d, alpha=0.9, random_state=PUBLISHED_SEED)
    else:
        precision = sparse_precision(problem.d, graph=problem.kind, random_state=problem.truth)
    rng = np.random.default_rng([problem.truth, problem.n])
    return sample_gaussian(precision, problem.n, random_state=rng), precision


# ------------------------------------------------------------------------------------------------------------ one job
def measure(problem: Problem, settings: Settings) -> dict[str, pd.DataFrame]:
    """All methods on one data set.

    Returns
    -------
    dict
        Tables `data` (one row), `scores` (a row for each method and choice of λ and q), `agreement` (a row for each
        condition at which flow and exact sampler are compared).
    """
    X, truth = draw(problem)
    effort, scatter, as_published = problem.effort, Scatter.from_data(X), problem.kind == "published"
    # Penalized likelihoods keep one core busy, so they run beside the flow. Filters of warnings are not for one thread.
    with warnings.catch_warnings(), ThreadPoolExecutor(1) as beside, compilation_cache_enabled():
        warnings.simplefilter("ignore", PoorFitWarning)  # how poor they are is in the table
        # Of no interest at levels that are not chosen; the estimate at the chosen one is used as it is.
        warnings.filterwarnings("ignore", r"\d+ of \d+ fits did not converge", RuntimeWarning)
        penalized = None if as_published else beside.submit(estimates, X, scatter, settings)
        model = GraphicalFlow(temperature=1.0, steps=effort.steps, random_state=0, progress=False).fit(scatter)
        conditions, ends = choose(model, settings, as_published)
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
    known += (*model.lam_range_, ends)
    return {
        "data": pd.DataFrame([known], columns=[*DATA_COLUMNS]),
        "scores": pd.DataFrame(scores, columns=[*SCORE_COLUMNS]).round(4),
        "agreement": agreement.round(4),
    }


DATA_COLUMNS = ("kind", "d", "n", "truth", "pairs", "edges", "strong_edges")
DATA_COLUMNS += ("steps", "exact_draws", "lasso_draws", "lam_low", "lam_high", "at_ends")
# Those ending in _default are of the default edge rule, others of the 90 % interval or the support of an estimate.
SCORE_COLUMNS = ("method", "choice", "lam", "q", "n_edges", "f1", "f1_published", "mcc", "average_precision")
SCORE_COLUMNS += ("n_default", "f1_default", "mcc_default")


def choose(model: GraphicalFlow, settings: Settings, as_published: bool) -> tuple[list[Condition], str]:
    """Where posteriors are looked at, and the ends of its ranges at which the evidence is highest, if any.

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
    best = {q: peak(lams, table.loc[table["q"] == q, "log_evidence"].to_numpy()) for q in qs}
    conditions = [Condition("published", best[q], q) for q in qs]
    conditions += [Condition("published at 1", best[1.0], q) for q in settings.qs if q != 1]
    if as_published:
        return conditions, ""
    chosen = model.select()
    return [*conditions, Condition("evidence", chosen.lam, chosen.q)], " and ".join(chosen.at_ends)


def peak(lams: Float[np.ndarray, " k"], values: Float[np.ndarray, " k"]) -> float:
    """λ of the parabola in log λ through the highest value and its neighbours; an end if that is highest."""
    k = int(np.argmax(values))
    if k in (0, len(lams) - 1):
        return float(lams[k])
    a, b, _ = np.polyfit(np.log(lams[k - 1 : k + 2] / lams[k]), values[k - 1 : k + 2], 2)
    return float(np.clip(lams[k] * np.exp(-b / (2 * a)), lams[k - 1], lams[k + 1]))


def exact_posteriors(
    scatter: Scatter, conditions: Sequence[Condition], effort: Effort
) -> list[tuple[Posterior, float]]:
    """Posteriors from exact chains, all conditions at once, with the error of their own quantiles, in sd.

    The error of the mean of two halves of the chains is half their difference.
    """
    each = effort.chains // len(conditions)
    lam, q = np.repeat([(at.lam, at.q) for at in conditions], each, axis=0).T
    lengths: dict[str, Any] = {"num_draws": effort.draws, "num_warmup": effort.warmup, "thin": effort.thin}
    chains = gibbs.sample(jax.random.key(1), scatter, lam, q, **lengths)
    found = []
    for k, at in enumerate(conditions):
        draws = chains.draws[k * each : (k + 1) * each]
        all_of_them = as_posterior(draws.reshape(-1, *draws.shape[2:]), scatter, at.q, at.lam)
        halves = [quantiles(half.reshape(-1, *draws.shape[2:])) for half in (draws[::2], draws[1::2])]
        found.append((all_of_them, float(np.mean(np.abs(halves[0] - halves[1]) / free(all_of_them.sd()))) / 2))
    return found


def flow_posteriors(
    model: GraphicalFlow,
    conditions: Sequence[Condition],
    exact: Sequence[tuple[Posterior, float]],
    settings: Settings,
    num_chains: int,
) -> tuple[list[Posterior], pd.DataFrame]:
    """The flow's posteriors, refined where they need it, and how far off they were, a row for each condition."""
    posteriors, rows = [], []
    for at, (reference, own_error) in zip(conditions, exact, strict=True):
        wide = model.posterior(at.lam, at.q, num_draws=settings.error_draws)
        post = model.posterior(at.lam, at.q, num_draws=settings.num_draws, random_state=1)
        error, refined_error = quantile_error(wide, reference), np.nan
        if error > LIMIT:
            post = wide.refine(settings.sweeps, num_chains=num_chains)
            refined_error = quantile_error(post, reference)
        known = wide.diagnostics()
        posteriors.append(post)
        rows.append((*at, error, own_error, refined_error, known["ess"], known["khat"]))
    columns = ["choice", "lam", "q", "flow_error", "exact_error", "refined_error", "ess", "khat"]
    return posteriors, pd.DataFrame(rows, columns=columns)


def as_posterior(draws: Float[np.ndarray, "N d d"], scatter: Scatter, q: float, lam: float | None = None) -> Posterior:
    """Exact draws as a posterior, so that all edges are found by the same code."""
    everything = np.arange(scatter.n_features)
    return Posterior(ChainSource(draws), scatter.names, everything, lam, q, 1.0, num_draws=len(draws), scatter=scatter)


def quantile_error(post: Posterior, reference: Posterior) -> float:
    """Mean |difference| of the quantiles at `LEVELS` over all entries, in sd of the reference; plain draws."""
    ours, exact = (free(each.quantile(LEVELS, weighted=False)) for each in (post, reference))
    return float(np.mean(np.abs(ours - exact) / free(reference.sd())))


def quantiles(draws: Float[np.ndarray, "N d d"]) -> Float[np.ndarray, "3 D"]:
    """Quantiles of each free entry at `LEVELS`."""
    return np.quantile(free(draws), LEVELS, axis=0)


def free(matrices: Float[np.ndarray, "*k d d"]) -> Float[np.ndarray, "*k D"]:
    """The upper triangle with the diagonal."""
    return matrices[..., *np.triu_indices(matrices.shape[-1])]


# ------------------------------------------------------------------------------------------------------------- scores
def score_posterior(truth: Matrix, post: Posterior) -> tuple[float, ...]:
    """Scores of the intervals' edges, of the ranking by |mean|/sd, and of the default rule; plain draws."""
    ranking = np.abs(post.mean(weighted=False)) / post.sd(weighted=False)
    default = post.edges(weighted=False)
    found = edge_metrics(truth, default)
    return (
        *score_edges(truth, post.edges(level=LEVEL, weighted=False), ranking),
        int(default.sum()) // 2,
        found.f1,
        found.mcc,
    )


def score_estimate(truth: Matrix, precision: Matrix) -> tuple[float, ...]:
    """Scores of the support of an estimate and of the ranking by |ω_ij|; there is no default rule."""
    return *score_edges(truth, precision != 0, np.abs(precision)), np.nan, np.nan, np.nan


def score_edges(truth: Matrix, edges: Bool[np.ndarray, "d d"], ranking: Matrix) -> tuple[float, ...]:
    """Edges, F1 over pairs, F1 as published, MCC, average precision."""
    found = edge_metrics(truth, edges)
    tp, fp, fn = found.true_positives, found.false_positives, found.false_negatives
    published = 2 * (2 * tp + len(truth)) / (2 * (2 * tp + len(truth)) + 2 * fp + 2 * fn)
    return tp + fp, found.f1, published, found.mcc, average_precision(truth, ranking)


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
    """λ of the graphical lasso whose left-out rows are likeliest, and the estimate from all rows.

    Parameters
    ----------
    working : (n, d) array
        Rows in the working scale.
    lams : (k,) array
        Values to choose from, descending: each solution starts at the last.
    """
    n, d = working.shape
    fold = np.random.default_rng(0).permutation(n) % FOLDS
    score = np.zeros(len(lams))
    for k in range(FOLDS):
        (train, test), precision = (working[fold != k], working[fold == k]), np.eye(d)
        emp_cov = train.T @ train / len(train)
        for position, lam in enumerate(lams):
            precision = graphical_lasso(emp_cov, n, lam, initial=precision, tol=TOLERANCE).precision
            score[position] += len(test) * np.linalg.slogdet(precision)[1] - np.sum(precision * (test.T @ test))
    best = float(lams[np.argmax(score)])
    return best, graphical_lasso(working.T @ working / n, n, best, tol=TOLERANCE).precision


# ---------------------------------------------------------------------------------------- what the tables together say
EVIDENCE, BGL = "λ and q by evidence", "Bayesian graphical lasso"
PUBLISHED_ROWS = (15, 25, 35, 45)
PUBLISHED = {"flow": (0.47, 0.56, 0.63, 0.64), "BGL": (0.37, 0.48, 0.58, 0.62)}  # of q = 0.25, and of the other


def labelled(tables: Tables) -> Frame:
    """Scores with what is known of their data set, a label for people, and whether the draws were refined."""
    known = tables["data"][["job", "kind", "d", "n", "truth", "pairs", "edges", "strong_edges", "steps"]]
    frame = tables["scores"].merge(known, on="job")
    frame["label"] = [_label(*row) for row in frame[["method", "choice", "q"]].itertuples(index=False)]
    errors = agreement_labelled(tables)
    refined = set(zip(errors["job"], errors["label"], errors["refined_error"].notna(), strict=True))
    keys = zip(frame["job"], frame["label"], frame["method"] == "flow", strict=True)
    frame["refined"] = [key in refined and key[2] for key in keys]
    return frame


def agreement_labelled(tables: Tables) -> Frame:
    """Quantile errors with labels, and `used`: the error of the draws that the flow's rows rest on."""
    table = tables["agreement"]
    labels = [_label("flow", *row) for row in table[["choice", "q"]].itertuples(index=False)]
    return table.assign(label=labels, used=table["refined_error"].fillna(table["flow_error"]))


def _label(method: str, choice: str, q: float) -> str:
    if method in ("flow", "exact"):
        if choice == "evidence":
            return EVIDENCE
        return f"q = {q:g}" if choice == "published at 1" or q == 1 else f"q = {q:g}, own λ"
    return {"BGL": BGL, "adapt": "adaptive", "lasso": f"graphical lasso ({choice.upper()})"}.get(method, method)


class Methods(NamedTuple):
    """Labels of the methods in a table, in the order of pictures and tables."""

    posteriors: list[str]
    penalties: list[str]

    @property
    def all(self) -> list[str]:
        """All of them."""
        return [*self.posteriors, *self.penalties]

    @property
    def smallest(self) -> str:
        """The posterior at the smallest q with the λ of q = 1."""
        return min((each for each in self.posteriors if each.startswith("q") and "own" not in each), key=_exponent)


def _exponent(label: str) -> float:
    return float(label.removeprefix("q = ").removesuffix(", own λ"))


def methods(frame: Frame) -> Methods:
    """What there is: q falling with the λ of q = 1, then each with its own λ, then the others."""
    found = set(frame["label"])
    of_q = sorted((each for each in found if each.startswith("q")), key=lambda each: ("own" in each, -_exponent(each)))
    names = ["adaptive" if name == "adapt" else name for name in PENALTIES]
    names += ["graphical lasso (CV)", "graphical lasso (EBIC)"]
    return Methods([*of_q, EVIDENCE, BGL], [name for name in names if name in found])


def spread(frame: Frame, measure: str, kind: str = "sparse") -> Frame:
    """One column of the scores of one kind of data sets: a row for each (n, truth), a column for each label."""
    rows = frame[(frame["kind"] == kind) & (frame["method"] != "exact")]
    wide = rows.pivot_table(index=["n", "truth"], columns="label", values=measure)
    return wide.reindex(columns=methods(frame).all)


class Difference(NamedTuple):
    """Mean of paired differences over data sets, with its 95 % t interval."""

    mean: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 or −1 if the interval excludes zero, else 0."""
        return int(self.low > 0) - int(self.high < 0)

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def paired(ours: Frame, theirs: Frame) -> Difference:
    """Ours minus theirs, data set by data set; those that lack one of the two are left out."""
    values = (ours - theirs).dropna().to_numpy(float)
    if len(values) < 2:
        return Difference(float(values[0]) if len(values) else np.nan, -np.inf, np.inf)
    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return Difference(float(values.mean()), float(values.mean()) - half, float(values.mean()) + half)


def mean_se(values: Frame) -> tuple[float, float]:
    """Mean over data sets and its standard error, zero for a single one."""
    found = values.dropna().to_numpy(float)
    if len(found) < 2:
        return float(found[0]) if len(found) else np.nan, 0.0
    return float(found.mean()), float(found.std(ddof=1) / np.sqrt(len(found)))


# ------------------------------------------------------------------------------------------------------------- figures
def figures(tables: Tables) -> dict[str, Figure]:
    """Pictures of the tables.

    f1
        F1 over pairs of every method for each n, the default edge rule beside intervals.
    ranking
        Average precision.
    published
        F1 with the diagonal counted, beside the published values.
    agreement
        Quantile errors of the flow beside the exact sampler's own.
    other_graphs
        F1 and average precision on other graphs and on known networks, if there are any.
    """
    frame = labelled(tables)
    drawn = {"f1": _draw_f1(frame), "ranking": _draw_ranking(frame), "published": _draw_published(frame)}
    drawn["agreement"] = _draw_agreement(agreement_labelled(tables), methods(frame).posteriors)
    if others := _other_kinds(frame):
        drawn["other_graphs"] = _draw_others(frame, others)
    return drawn


def _draw_f1(frame: Frame) -> Figure:
    figure, axes = _rows_by_n(frame, "F1 over pairs")
    seen = methods(frame)
    _draw_dots(axes, frame, "f1", seen.posteriors, 0, "posterior: 90 % interval excludes zero", shift=-0.14)
    _draw_dots(axes, frame, "f1_default", seen.posteriors, 2, "posterior: default edge rule", shift=0.14, mfc="white")
    _draw_dots(axes, frame, "f1", seen.penalties, 1, "penalized likelihood: support")
    _legend_below(figure, axes[0])
    return figure


def _draw_ranking(frame: Frame) -> Figure:
    figure, axes = _rows_by_n(frame, "average precision")
    seen = methods(frame)
    _draw_dots(axes, frame, "average_precision", seen.posteriors, 0, "posterior: |mean|/sd")
    _draw_dots(axes, frame, "average_precision", seen.penalties, 1, "penalized likelihood: |estimate|")
    _legend_below(figure, axes[0])
    return figure


def _rows_by_n(frame: Frame, name: str) -> tuple[Figure, list[Any]]:
    """Axes for each n of the main comparison, with a row for each method."""
    seen = methods(frame)
    figure = Figure(figsize=(10, 1.4 + 0.22 * len(seen.all)), layout="constrained")
    counts = spread(frame, "f1").index.unique("n")
    axes = list(figure.subplots(1, len(counts), sharex=True, sharey=True, squeeze=False)[0])
    for ax, n in zip(axes, counts, strict=True):
        ax.axhline(len(seen.posteriors) - 0.5, color=FAINT, lw=0.8)
        ax.set_title(f"n = {n}", fontsize=9)
        ax.grid(axis="x", color=FAINT, lw=0.4)
        _plain(ax, name)
    set_names(axes[0].yaxis, seen.all, most=len(seen.all))
    axes[0].set_ylim(len(seen.all) - 0.4, -0.6)
    return figure, axes


def _draw_dots(
    axes: Sequence[Any],
    frame: Frame,
    measure: str,
    labels: Sequence[str],
    style: int,
    name: str,
    shift: float = 0.0,
    **options: Any,
) -> None:
    """Mean and standard error of some methods, in their rows."""
    wide, rows = spread(frame, measure), methods(frame).all
    for ax, n in zip(axes, wide.index.unique("n"), strict=True):
        mean, se = np.array([mean_se(wide.loc[n, label]) for label in labels]).T
        y = [rows.index(label) + shift for label in labels]
        options = {"fmt": MARKERS[style], "color": LINES[style], "ms": 4.5, "lw": 1.2} | options
        ax.errorbar(mean, y, xerr=se, label=name, **options)


def _draw_published(frame: Frame) -> Figure:
    figure = Figure(figsize=(7.4, 3.4), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    sources = {"published": "ours, the published matrix", "sparse": "ours, different matrices"}
    for ax, (label, values) in zip(axes, _published_values(frame).items(), strict=True):
        for k, (kind, source) in enumerate(sources.items()):
            column = spread(frame, "f1_published", kind)[label]
            counts = column.index.unique("n")
            mean, se = np.array([mean_se(column.loc[n]) for n in counts]).T
            ax.errorbar(counts, mean, se, color=LINES[k], marker=MARKERS[k], ms=5, capsize=2, label=source)
            ax.set_xticks(counts)
        ax.plot(list(values), list(values.values()), color=NEUTRAL, ls=DASHED, marker="x", label="published")
        ax.set_title(label if label == BGL else f"flow, {label}", fontsize=9)
        _plain(ax, "rows n")
    axes[0].set_ylabel("F1, the diagonal counted", fontsize=SMALL)
    _legend_below(figure, axes[0])
    return figure


def _published_values(frame: Frame) -> dict[str, dict[int, float]]:
    """The two methods whose published values are known, with those values at the n of the table."""
    counts = set(frame.loc[frame["kind"] == "sparse", "n"])
    return {
        label: {n: value for n, value in zip(PUBLISHED_ROWS, PUBLISHED[name], strict=True) if n in counts}
        for label, name in ((methods(frame).smallest, "flow"), (BGL, "BGL"))
    }


def _draw_agreement(table: Frame, labels: Sequence[str]) -> Figure:
    rows = [label for label in labels if label in set(table["label"])]
    figure = Figure(figsize=(7.4, 1.2 + 0.34 * len(rows)), layout="constrained")
    ax = figure.subplots()
    place = np.array([rows.index(label) for label in table["label"]])
    options: dict[str, Any] = {"ls": "", "alpha": 0.6}
    ax.plot(table["exact_error"], place - 0.25, "|", color=NEUTRAL, ms=6, label="exact sampler's own", **options)
    ax.plot(table["flow_error"], place, "o", color=LINES[0], ms=3.5, label="flow", **options)
    ax.plot(table["refined_error"], place + 0.25, "D", color=LINES[1], ms=3.5, label="flow, refined", **options)
    ax.axvline(LIMIT, color=NEUTRAL, ls=DASHED, lw=1)
    set_names(ax.yaxis, rows, most=len(rows))
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(left=0)
    _plain(ax, "mean quantile error, in posterior standard deviations")
    _legend_below(figure, ax)
    return figure


def _other_kinds(frame: Frame) -> list[tuple[str, int]]:
    """Kind and n of data sets that are neither of the main comparison nor of the published matrix, in their order."""
    others = frame[~frame["kind"].isin(["sparse", "published"])]
    return list(dict.fromkeys(zip(others["kind"], others["n"].astype(int), strict=True)))


def _draw_others(frame: Frame, others: list[tuple[str, int]]) -> Figure:
    seen = methods(frame)
    figure = Figure(figsize=(10, 1.4 + 0.42 * len(others)), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    shown = [("q = 1", "f1"), (seen.smallest, "f1"), (EVIDENCE, "f1_default"), (BGL, "f1")]
    for ax, name in zip(axes, ("F1 over pairs", "average precision"), strict=True):
        for k, (label, measure) in enumerate([*shown, *((label, "f1") for label in seen.penalties)]):
            column = measure if name == "F1 over pairs" else "average_precision"
            values = [spread(frame, column, kind).loc[n, label].mean() for kind, n in others]
            style, rule = min(k, len(shown)), ", default rule" if measure == "f1_default" else ""
            options: dict[str, Any] = {"color": LINES[style], "ms": 4.5, "alpha": 1.0 if k < len(shown) else 0.5}
            named = f"{label}{rule}" if k < len(shown) else "each penalized likelihood" if k == len(shown) else None
            ax.plot(values, np.arange(len(others)) - 0.28 + 0.14 * style, MARKERS[style], label=named, **options)
        for y in range(1, len(others)):
            ax.axhline(y - 0.5, color=FAINT, lw=0.6)
        _plain(ax, name)
    set_names(axes[0].yaxis, [f"{kind}, n = {n}" for kind, n in others], most=len(others))
    axes[0].set_ylim(len(others) - 0.5, -0.5)
    _legend_below(figure, axes[0])
    return figure


def _plain(ax: Any, name: str) -> None:
    ax.set_xlabel(name, fontsize=SMALL)
    ax.tick_params(labelsize=SMALL)
    open_frame(ax)


def _legend_below(figure: Figure, ax: Any) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=SMALL, frameon=False)


# ------------------------------------------------------------------------------------------------------------- verdicts
def verdicts(tables: Tables) -> pd.DataFrame:
    """Published numbers and expectations beside ours; columns what, published, ours, verdict."""
    frame = labelled(tables)
    seen, rows = methods(frame), []
    for label, values in _published_values(frame).items():
        for n, value in values.items():
            ours = [mean_se(spread(frame, "f1_published", kind)[label].loc[n]) for kind in ("published", "sparse")]
            told = "; ".join(f"{mean:.2f} ± {se:.2f}" for mean, se in ours)
            what = f"edges: F1, diagonal counted, n = {n}, {label if label == BGL else f'flow at {label}'}"
            rows.append((what, f"{value:.2f}", f"{told} (published matrix; different ones)", _near(value, *ours[0])))
    f1, ap = spread(frame, "f1"), spread(frame, "average_precision")
    counts = list(f1.index.unique("n"))
    best, best_ranking = (wide[seen.penalties].groupby("n").mean().idxmax(axis=1) for wide in (f1, ap))
    claims = [
        (f"F1 over pairs, 90 % interval, {seen.smallest} minus q = 1, same λ", f1, seen.smallest, None),
        (f"F1 over pairs, 90 % interval, {seen.smallest} minus best penalty", f1, seen.smallest, best),
        ("F1 over pairs, default rule by evidence minus best penalty", _with_default(frame), "", best),
        ("average precision by evidence minus best penalty", ap, EVIDENCE, best_ranking),
    ]
    for what, wide, label, penalties in claims:
        other = dict.fromkeys(counts, "q = 1") if penalties is None else penalties.to_dict()
        gaps = {n: paired(wide.loc[n, label], wide.loc[n, other[n]]) for n in counts}
        named = {n: "" if penalties is None else f" ({other[n]})" for n in counts}
        ours = "; ".join(f"n = {n}: {each.mean:+.3f}{named[n]}" for n, each in gaps.items())
        rows.append((f"edges: {what}", "–", ours, _by_sign(gaps, _VERDICT)))
    errors = agreement_labelled(tables)
    mean, refined = errors["used"].mean(), errors["refined_error"].notna()
    ours = f"{errors['flow_error'].mean():.3f} for the flow; {mean:.3f} with {refined.sum()} of {len(errors)} refined"
    verdict = (
        f"{'within' if mean <= LIMIT else 'above'} {LIMIT:g}; exact sampler's own: {errors['exact_error'].mean():.3f}"
    )
    rows.append(("edges: quantile error against the exact sampler, in sd", "–", ours, verdict))
    return pd.DataFrame(rows, columns=["what", "published", "ours", "verdict"])


_VERDICT = {1: "higher", 0: "not told apart", -1: "lower"}


def _near(value: float, mean: float, se: float) -> str:
    """How a published number, read off a figure, compares with ours."""
    if abs(mean - value) <= max(2 * se, 0.02):
        return "agrees"
    return f"{'higher' if mean > value else 'lower'} by {abs(mean - value):.2f}"


def _by_sign(gaps: Mapping[int, Difference], words: Mapping[int, str]) -> str:
    """For each sign of a difference its word, with the n at which it is."""
    found = {sign: ", ".join(str(n) for n, each in gaps.items() if each.sign == sign) for sign in words}
    return "; ".join(f"{words[sign]} at n = {at}" for sign, at in found.items() if at)


def _with_default(frame: Frame) -> Frame:
    """F1, with the default rule at the λ and q of highest evidence in a column without a name."""
    return spread(frame, "f1").assign(**{"": spread(frame, "f1_default")[EVIDENCE]})


# --------------------------------------------------------------------------------------------------------------- words
def section(tables: Tables) -> str:
    """The part of the page of results on edges."""
    frame = labelled(tables)
    parts = [_what_was_done(tables), _said_of_published(frame), _said_of_f1(frame), _said_of_ranking(frame)]
    parts += [_said_of_default(frame), _said_of_lam(frame, tables["data"]), _said_of_others(frame)]
    parts.append(_said_of_agreement(frame, agreement_labelled(tables)))
    return "\n\n".join(_wrapped(paragraph) for part in parts for paragraph in part.strip().split("\n\n") if paragraph)


def _wrapped(paragraph: str) -> str:
    """Lines of at most 120 characters, except in tables, headings and pictures."""
    if paragraph[0] in "|#!":
        return paragraph
    return textwrap.fill(" ".join(paragraph.split()), 120, break_long_words=False, break_on_hyphens=False)


def _what_was_done(tables: Tables) -> str:
    data = tables["data"]
    main, published = data[data["kind"] == "sparse"], data[data["kind"] == "published"]
    share, d, steps = 100 * main["edges"] / main["pairs"], int(main["d"].iloc[0]), int(main["steps"].iloc[0])
    rows = ", ".join(map(str, sorted(main["n"].unique())))
    usual = default_settings(d * (d + 1) // 2, False).steps
    kept = int(main["lasso_draws"].iloc[0])
    return f"""## Edges

Who finds the edges of a graph? {main["truth"].nunique()} different precision matrices of {d} variables by the paper's
recipe (`simulate.sparse_precision`; it is the Cholesky factor that has 90 % zeros, so {share.min():.0f} to
{share.max():.0f} % of all pairs are edges, {main["edges"].mean():.0f} of {main["pairs"].iloc[0]} on average), n =
{rows} rows from each, one flow for each data set, trained for {steps} steps (the default is {usual}) at T = 1. The
published code drew all its data sets from one matrix and counted the diagonal of Ω, which is never zero, as edges. Here
F1 is over pairs of different variables. The published way of counting has a table of its own, for new data from the
published matrix ({published["truth"].nunique()} sets for each n) and for the different matrices.

A posterior calls a pair an edge if its 90 % credible interval excludes zero (the paper's rule), or by the package's
[default rule](posterior.md). λ is chosen in three ways: by the published criterion at q = 1, and that λ then used at
every q, as the published code does ("q = 0.5"); by that criterion at each q ("q = 0.5, own λ"); together with q by
evidence. The exact sampler runs at the same (λ, q). Penalties choose their level by BIC, the default of GGMncv, the
graphical lasso by {FOLDS}-fold cross-validation and by EBIC with γ = 0.5. The Bayesian graphical lasso draws λ too,
with the published hyperprior Gamma({HYPERPRIOR[0]:g}, rate {HYPERPRIOR[1]:g}): {kept} sweeps of burn-in, then
{kept} draws, {THIN} sweeps apart. ± is a standard error over data sets, brackets are 95 % t intervals of paired
differences, uncorrected for their number."""


def _table(frame: Frame, measure: str, labels: Sequence[str], beside: str | None = None) -> str:
    """Means over data sets of the main comparison, a row for each method, a column for each n; † if refined."""
    wide, other = spread(frame, measure), spread(frame, beside or measure)
    counts = wide.index.unique("n")
    refined = set(frame.loc[(frame["kind"] == "sparse") & frame["refined"], "label"])
    rows = []
    for label in labels:
        cells = [f"{label}{' †' if label in refined else ''}"]
        for n in counts:
            (mean, se), extra = mean_se(wide.loc[n, label]), mean_se(other.loc[n, label])[0]
            cells.append(f"{mean:.3f} ± {se:.3f}{f' ({extra:.2f})' if beside else ''}")
        rows.append(cells)
    return _markdown(["", *(f"n = {n}" for n in counts)], rows)


def _differences(wide: Frame, label: str, name: str, others: Sequence[str]) -> str:
    """A table of paired differences of one method from others, n by n."""
    counts = wide.index.unique("n")
    rows = [[other, *(str(paired(wide.loc[n, label], wide.loc[n, other])) for n in counts)] for other in others]
    return _markdown([f"{name} minus", *(f"n = {n}" for n in counts)], rows)


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def _standing(wide: Frame, label: str, others: Sequence[str]) -> str:
    """In words, n by n: which of the others are above and below a method, as far as paired differences tell."""
    said = []
    for n in wide.index.unique("n"):
        signs = {other: paired(wide.loc[n, other], wide.loc[n, label]).sign for other in others}
        groups = {sign: ", ".join(other for other in others if signs[other] == sign) for sign in (1, -1, 0)}
        parts = [f"above it {groups[1] or 'none'}", f"below it {groups[-1] or 'none'}"]
        said.append(f"At n = {n}, {'; '.join(parts)}{f'; not told apart: {groups[0]}' if groups[0] else ''}.")
    return " ".join(said)


def _said_of_published(frame: Frame) -> str:
    seen, main = methods(frame), frame[frame["kind"] == "sparse"].drop_duplicates("job")
    values, rows = _published_values(frame), []
    theirs, ours = (spread(frame, "f1_published", kind) for kind in ("published", "sparse"))
    for n in ours.index.unique("n"):
        for label, known in values.items():
            cells = ["{:.3f} ± {:.3f}".format(*mean_se(wide.loc[n, label])) for wide in (theirs, ours)]
            rows.append([str(n), label, f"{known[n]:.2f}" if n in known else "–", *cells])
    gaps = {n: paired(theirs.loc[n, seen.smallest], theirs.loc[n, BGL]) for n in theirs.index.unique("n")}
    over_pairs = spread(frame, "f1", "published")
    worth = [f"{over_pairs.loc[over_pairs.index[0][0], label].mean():.2f}" for label in values]
    empty = (main["d"] / (main["d"] + main["edges"])).mean()
    return f"""### As published: the diagonal counted

{_markdown(["n", "", "published", "ours, the published matrix", "ours, different matrices"], rows)}

The published values are read off a figure. The published code chose λ at q = 1, had no factor for the diagonal of Ω in
its prior (ours has exp(−½λ tr Ω), as the paper writes it), and took the Bayesian graphical lasso from another package;
of its data sets the flow was scored on four. On the published matrix the flow at {seen.smallest} minus the Bayesian
graphical lasso is {_by_sign(gaps, _VERDICT)}. With the diagonal counted, a graph *without edges* scores {empty:.2f} on
the different matrices. Over pairs, the rows of n = {over_pairs.index[0][0]} on the published matrix are worth
{" and ".join(worth)}.

![F1 with the diagonal counted, published and ours](assets/results/edges/published.png)

All methods counted in this way, different matrices:

{_table(frame, "f1_published", seen.all)}"""


def _said_of_f1(frame: Frame) -> str:
    seen, f1, mcc, n_edges = methods(frame), spread(frame, "f1"), spread(frame, "mcc"), spread(frame, "n_edges")
    main = frame[frame["kind"] == "sparse"].drop_duplicates("job")
    counts, true, pairs = f1.index.unique("n"), main["edges"].mean(), main["pairs"].iloc[0]
    first = counts[0]
    penalties = [label for label in seen.penalties if "lasso" not in label]
    taken = ", ".join(f"{label} {100 * n_edges.loc[first, label].mean() / pairs:.0f} %" for label in penalties)
    found = ", ".join(f"{n_edges.loc[n, seen.smallest].mean():.0f} at n = {n}" for n in counts)
    gaps = {n: paired(f1.loc[n, seen.smallest], f1.loc[n, "q = 1"]) for n in counts}
    best = f1.loc[first, seen.penalties].mean().idxmax()
    lacking = [f"{label} ({missing})" for label in seen.penalties if (missing := int(f1[label].isna().sum()))]
    unsolved = f" No solution at any level, in so many data sets: {', '.join(lacking)}." if lacking else ""
    refined = (
        "\n\n† Refined draws in some of the data sets; the last table says how many." if frame["refined"].any() else ""
    )
    return f"""### F1 over pairs

90 % intervals, and supports of penalized likelihoods; in parentheses Matthews' correlation, which a large guess does
not raise.{unsolved}

{_table(frame, "f1", seen.all, "mcc")}{refined}

![F1 over pairs of every method](assets/results/edges/f1.png)

{_differences(f1, seen.smallest, seen.smallest, [label for label in seen.all if label != seen.smallest])}

The 90 % interval at {seen.smallest} in F1, against the methods without a flow:
{_standing(f1, seen.smallest, [BGL, *seen.penalties])}

The same in Matthews' correlation: {_standing(mcc, seen.smallest, [BGL, *seen.penalties])}

Methods differ in how many pairs they call edges. The interval at {seen.smallest} excludes zero for so many pairs on
average: {found}; {true:.0f} of {pairs} are edges. Penalties chosen by BIC take at n = {first}, of all pairs: {taken}.
Taking *every* pair has F1 {2 * true / (true + pairs):.2f}. At n = {first}, {_found(frame, first, seen.smallest)};
{_found(frame, first, best)}, the highest F1 of a penalty.

Sub-l₁ against l₁, same rule and same λ: F1 at {seen.smallest} compared with q = 1 is {_by_sign(gaps, _VERDICT)}."""


def _found(frame: Frame, n: int, label: str) -> str:
    """How many of the pairs that a method calls edges are edges, and how many of the edges it finds, over data sets."""
    rows = frame[(frame["kind"] == "sparse") & (frame["method"] != "exact") & (frame["n"] == n)]
    rows = rows[rows["label"] == label]
    right = (rows["f1"] * (rows["n_edges"] + rows["edges"]) / 2).sum()  # F1 = 2 TP / (called + true)
    precision = f"{100 * right / called:.0f} %" if (called := rows["n_edges"].sum()) else "none"
    return (
        f"of the pairs that {label} calls edges {precision} are, and it finds {100 * right / rows['edges'].sum():.0f} %"
    )


def _said_of_ranking(frame: Frame) -> str:
    seen, ap = methods(frame), spread(frame, "average_precision")
    return f"""### Rankings

A rule decides how many pairs are called edges, a ranking which come first. Average precision compares rankings alone:
posteriors rank by |mean|/sd, as the default rule does, penalized likelihoods by |estimate| at the chosen level, where
all that is zero shares the last place.

{_table(frame, "average_precision", seen.all)}

![Average precision of every method](assets/results/edges/ranking.png)

{_differences(ap, EVIDENCE, EVIDENCE, [BGL, *seen.penalties])}

The ranking at the λ and q of highest evidence, against the penalties: {_standing(ap, EVIDENCE, seen.penalties)}"""


def _said_of_default(frame: Frame) -> str:
    seen, f1 = methods(frame), _with_default(frame)
    gaps = {n: paired(f1.loc[n, ""], f1.loc[n, EVIDENCE]) for n in f1.index.unique("n")}
    return f"""### The default rule

The default edge rule asks for the highest expected F1 in a two-group model of the scores |mean|/sd of the same
posteriors. F1 over pairs, in parentheses Matthews' correlation:

{_table(frame, "f1_default", seen.posteriors, "mcc_default")}

At the λ and q of highest evidence its F1, compared with that of the 90 % interval, is {_by_sign(gaps, _VERDICT)}
({"; ".join(f"n = {n}: {each}" for n, each in gaps.items())}). Against it, the penalties:
{_standing(f1, "", seen.penalties)}"""


def _said_of_lam(frame: Frame, data: Frame) -> str:
    main = frame[(frame["kind"] == "sparse") & (frame["method"] == "flow")]
    means = main.groupby("label")[["lam", "q", "n_edges", "f1"]].mean()
    labels = [label for label in methods(frame).posteriors if label in means.index]
    rows = [[label, *(format(means.loc[label, name], form) for name, form in _LAM_FORMATS.items())] for label in labels]
    lowest = min((label for label in labels if "own" in label), key=_exponent)
    same, chosen = lowest.removesuffix(", own λ"), main.loc[main["choice"] == "evidence", "q"]
    ends = data.loc[data["kind"] == "sparse", "at_ends"].fillna("").str.split(" and ").explode()
    counted = ", ".join(f"{end} {count}" for end, count in ends[ends != ""].value_counts().items())
    return f"""### How λ is chosen

{_markdown(["mean over all n", "λ", "q", "edges by the 90 % interval", "F1 over pairs"], rows)}

The published criterion leaves out the prior's normalizer on the positive definite cone, which depends on q. Maximized
at {same} it takes a λ {means.loc[lowest, "lam"] / means.loc["q = 1", "lam"]:.1f} times that of q = 1, and the 90 %
intervals then exclude zero for {means.loc[lowest, "n_edges"]:.1f} pairs on average; with the λ of q = 1 they do for
{means.loc[same, "n_edges"]:.1f}. The evidence chooses q = {chosen.mean():.2f} ± {chosen.std(ddof=0):.2f} (standard
deviation over data sets); ends of the ranges at which it is highest, of {len(chosen)} fits: {counted or "none"}."""


_LAM_FORMATS = {"lam": ".2f", "q": ".2f", "n_edges": ".1f", "f1": ".3f"}


def _said_of_others(frame: Frame) -> str:
    others = _other_kinds(frame)
    if not others:
        return ""
    seen, rows, wins = methods(frame), [], []
    for kind, n in others:
        f1, default, ap = (spread(frame, name, kind).loc[n] for name in ("f1", "f1_default", "average_precision"))
        best, ranked = (wide[seen.penalties].mean().idxmax() for wide in (f1, ap))
        values = [f1["q = 1"], f1[seen.smallest], default[EVIDENCE], f1[BGL], f1[best], ap[EVIDENCE], ap[ranked]]
        interval, by_default, _, penalty, ranking, by_penalty = [each.mean() for each in values[1:]]
        wins.append((interval > penalty, by_default > penalty, ranking > by_penalty))
        cells = [f"{each.mean():.3f}" for each in values]
        cells[4], cells[6] = f"{cells[4]} ({best})", f"{cells[6]} ({ranked})"
        about = frame[(frame["kind"] == kind) & (frame["n"] == n)].drop_duplicates("job")
        edges = f"{about['edges'].mean():.0f} of {about['pairs'].iloc[0]}"
        rows.append([kind, str(about["d"].iloc[0]), str(n), str(len(about)), edges, _percent(about), *cells])
    header = [
        "graph",
        "d",
        "n",
        "sets",
        "edges",
        f"above {WEAK:g}",
        "q = 1",
        seen.smallest,
        "default rule, evidence",
        BGL,
    ]
    header += ["best penalty", "ranking, evidence", "ranking, best penalty"]
    won = np.sum(wins, axis=0)
    trained = frame.loc[~frame["kind"].isin(["sparse", "published"]), "steps"]
    steps = " to ".join(map(str, sorted({int(trained.min()), int(trained.max())})))
    return f"""### Other graphs, known networks

Band, hub and scale-free graphs, and Gaussian Bayesian networks with known parameters (from pgmpy's files): x = Bx + e
gives Ω = (I − B)ᵀD⁻¹(I − B) exactly, and its nonzero entries, the moral graph, are the truth. "Above {WEAK:g}" is the
share of edges whose true partial correlation is larger than that. Then F1 over pairs, of 90 % intervals unless the
column says otherwise, and average precision of rankings. The best penalty is picked with the truth at hand, for each
row anew, which favours it.

{_markdown(header, rows)}

![F1 and average precision on other graphs and networks](assets/results/edges/other_graphs.png)

Of {len(wins)} rows, the 90 % interval at {seen.smallest} is above the best penalty in {won[0]}, the default rule in
{won[1]}, and the ranking by evidence above the best ranking of a penalty in {won[2]}. With so few data sets to a row,
single rows prove little. Flows were trained for {steps} steps."""


def _percent(about: Frame) -> str:
    return f"{100 * about['strong_edges'].sum() / about['edges'].sum():.0f} %"


def _said_of_agreement(frame: Frame, errors: Frame) -> str:
    both = frame[frame["method"].isin(["flow", "exact"])]
    f1 = both.pivot_table(index=["label", "job"], columns="method", values="f1")
    rows = []
    for label in [each for each in methods(frame).posteriors if each in set(errors["label"])]:
        at = errors[errors["label"] == label]
        refined = at.loc[at["refined_error"].notna(), "refined_error"]
        cells = [f"{at['flow_error'].mean():.3f}", f"{at['flow_error'].max():.3f}", f"{at['exact_error'].mean():.3f}"]
        cells += [f"{len(refined)} of {len(at)}", f"{refined.mean():.3f}" if len(refined) else "–"]
        rows.append([label, *cells, str(paired(f1.loc[label, "flow"], f1.loc[label, "exact"]))])
    header = ["", "flow, mean", "largest", "exact sampler's own", "refined", "then", "F1, flow minus exact"]
    return f"""### Flow and exact sampler

Mean error of the 5, 50 and 95 % quantiles of all entries of Ω against the exact sampler at the same (λ, q), in
posterior standard deviations, over all data sets. It contains the error of the reference, whose own error is half the
difference between two halves of its chains. Where the flow's error exceeds {LIMIT:g}, its draws start exact chains
of the sampler, and the flow's rows in the tables above rest on those refined draws.

{_markdown(header, rows)}

![Quantile errors of the flow and of the exact sampler](assets/results/edges/agreement.png)

Over all {len(errors)} conditions the mean is {errors["flow_error"].mean():.3f} for the flow as it is,
{errors["used"].mean():.3f} for what is used, {errors["exact_error"].mean():.3f} for the exact sampler itself;
{int((errors["used"] > LIMIT).sum())} of what is used are above {LIMIT:g}."""
