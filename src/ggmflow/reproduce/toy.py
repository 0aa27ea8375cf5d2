"""The paper's toy problem: one flow for every λ, q and temperature, beside exact answers, on several data sets.

    RMSE = √ mean_{λ, i<j} (E_T[ω_ij | λ, q = 1] − ω̂_ij(λ))²,   T = 0.01,  ω̂ the graphical lasso

Quantile errors are mean |difference| from the exact sampler's 5, 50 and 95 % quantiles over all entries of Ω, in units
of its standard deviation.
"""

import textwrap
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter
from scipy import stats
from sklearn.exceptions import ConvergenceWarning

from ggmflow import gibbs
from ggmflow.baselines import bayesian_graphical_lasso, graphical_lasso
from ggmflow.cache import compilation_cache_enabled
from ggmflow.conditions import Ranges
from ggmflow.data import Scatter
from ggmflow.estimator import GraphicalFlow
from ggmflow.evidence import published_constants
from ggmflow.flow.build import build_flow, flow_loss
from ggmflow.plot import intervals_along_lam, solution_path
from ggmflow.plot.pairs import strongest
from ggmflow.plot.style import (
    DASHED,
    LINES,
    MARKERS,
    NEUTRAL,
    SMALL,
    dashed_handle,
    lam_axis,
    legend_below,
    open_frame,
    set_title,
)
from ggmflow.posterior import PoorFitWarning, Posterior
from ggmflow.reproduce.record import Job
from ggmflow.simulate import toy_problem
from ggmflow.train import CHUNK, condition_grid

Frame = Any  # a DataFrame or Series: their annotations leave open what a column or a sum is
Tables = Mapping[str, Frame]
Point = tuple[float, float, float]  # (λ, q, T)

LEVELS = (0.05, 0.5, 0.95)
LIMIT = 0.1  # sd: quantiles further off than this come from refined draws
PUBLISHED_RMSE = 0.052  # printed as MSE; the published code takes the root
PUBLISHED_LAM = {"evidence": 3.52, "cv": 3.36}
SHOWN = {"structured": "structured flow", "exact": "exact sampler", "paper": "published architecture"}
FOLDS = 5
BATCH = 128  # draws in a training step, the package's default for so few variables
BAND, WIDE = 0.75, 0.95  # credible intervals of the paper's figures
NUM_NAMED = 6  # entries with a colour of their own


class Settings(NamedTuple):
    """What the numbers depend on.

    Attributes
    ----------
    n_features, n_samples, seeds
        d, n and the seeds of the data sets.
    lam_range, q_range, cold
        What the flows are fitted for; `cold` is the lowest temperature.
    num_lam, checked_lam, checked_q
        Values of λ, evenly spread in its logarithm; positions among them, and q, at which exact answers are compared.
    mode_q, entry_q
        Exponents of the paths of modes, and of the intervals of one entry.
    num_cv
        Values of λ tried by cross-validation.
    steps, num_draws, check_draws, refine_sweeps
        Of the structured flow; draws at each condition, and where they are compared; length of the chains that refine.
    num_chains, chain_draws, chain_warmup, chain_thin
        Of the exact sampler at each condition.
    bayesian_chains
        Chains of the Bayesian graphical lasso.
    paper_seconds
        Wall time of training the published architecture on each data set.
    published_size
        Layers, residual blocks of each, their width, and sigmoids of the published code, whose speed is measured.
    """

    n_features: int
    n_samples: int
    seeds: tuple[int, ...]
    lam_range: tuple[float, float]
    q_range: tuple[float, float]
    cold: float
    num_lam: int
    checked_lam: tuple[int, ...]
    checked_q: tuple[float, ...]
    mode_q: tuple[float, ...]
    entry_q: tuple[float, ...]
    num_cv: int
    steps: int | None
    num_draws: int
    check_draws: int
    refine_sweeps: int
    num_chains: int
    bayesian_chains: int
    chain_draws: int
    chain_warmup: int
    chain_thin: int
    paper_seconds: float
    published_size: tuple[int, int, int, int]

    @property
    def lams(self) -> Float[np.ndarray, " k"]:
        """The values of λ, ascending."""
        return np.geomspace(*self.lam_range, self.num_lam)

    @property
    def cold_path(self) -> list[Point]:
        """Every λ at q = 1 and the lowest temperature."""
        return [(lam, 1.0, self.cold) for lam in self.lams.tolist()]

    @property
    def checked(self) -> list[Point]:
        """Where exact answers are compared: all pairs of some λ and q at T = 1, and these λ on the cold path."""
        lams = self.lams[list(self.checked_lam)].tolist()
        warm = [(lam, q, 1.0) for lam, q in product(lams, self.checked_q)]
        return warm + [self.cold_path[k] for k in self.checked_lam]


FULL = Settings(
    n_features=15,
    n_samples=15,
    seeds=tuple(range(10)),
    lam_range=(10**-0.5, 10.0),
    q_range=(0.25, 1.25),
    cold=0.01,
    num_lam=16,  # 0.1 decades apart
    checked_lam=(5, 10, 14),  # 1, 3.2, 7.9
    checked_q=(1.0, 0.5, 0.25),
    mode_q=(1.0, 0.75, 0.5, 0.25),
    entry_q=tuple(np.linspace(0.25, 1.25, 9).tolist()),
    num_cv=40,
    steps=None,
    num_draws=4000,
    check_draws=12_000,
    refine_sweeps=50,
    num_chains=8,
    bayesian_chains=16,
    chain_draws=400,
    chain_warmup=500,
    chain_thin=5,
    paper_seconds=300.0,
    published_size=(10, 5, 256, 30),
)
QUICK = FULL._replace(
    n_features=4,
    n_samples=12,
    seeds=(0, 1),
    num_lam=4,
    checked_lam=(0, 1, 2, 3),
    checked_q=(1.0, 0.5),
    mode_q=(1.0, 0.5),
    entry_q=tuple(np.linspace(0.5625, 1.25, 12).tolist()),
    num_cv=8,
    steps=2 * CHUNK,
    num_draws=1000,
    check_draws=1000,
    num_chains=4,
    bayesian_chains=48,  # as many as all points, and all exponents, have: one program then serves all
    chain_draws=50,
    chain_warmup=50,
    chain_thin=1,
    paper_seconds=0.0,
    published_size=(2, 2, 32, 4),
)


# ---------------------------------------------------------------------------------------------------------------- jobs
def jobs(settings: Settings) -> list[Job]:
    """One job for each data set and architecture; the long ones, of the published architecture, come last."""
    kinds = ("structured flow", run_structured), ("published architecture", run_paper)
    structured, paper = (
        [Job(f"data set {seed}, {kind}", partial(run, settings, seed)) for seed in settings.seeds]
        for kind, run in kinds
    )
    return [*structured, Job("speed of the published size", partial(run_speed, settings)), *paper]


def run_structured(settings: Settings, seed: int) -> dict[str, pd.DataFrame]:
    """Everything about one data set but the published architecture; intervals and modes of the first in detail."""
    X, truth = toy_problem(settings.n_features, settings.n_samples, random_state=seed)
    with _quiet():
        model, seconds = _fit(settings, X, seed, steps=settings.steps)
        exact = _exact(settings, model.scatter_, list(dict.fromkeys([*settings.checked, *settings.cold_path])), seed)
        lasso = _lasso(model.scatter_, settings.lams)
        tables = _measure(settings, model, exact, lasso, seconds)
        means = [exact[point].mean for point in settings.cold_path]
        tables["recovery"] = pd.concat([tables["recovery"], _recovery(settings, means, lasso, "exact")])
        paths = {q: model.path(q, settings.lams) for q in settings.mode_q}
        evidence = model.evidence(settings.lams, 1.0, num_draws=settings.num_draws)
        lam = model.select(q=1.0).lam
        scores = cross_validation(X, np.geomspace(*settings.lam_range, settings.num_cv))
        if seed == settings.seeds[0]:
            tables["intervals"] = _intervals(settings, model, lasso, truth, lam, tables["agreement"])
            tables["across_q"] = _across_q(settings, model, truth, lam)
            tables["modes"] = pd.concat([_nonzero(path.precision, settings.lams, q) for q, path in paths.items()])
    best = int(scores["score"].argmax())
    tables["selection"] = pd.DataFrame({"lam_evidence": [lam], "lam_cv": [scores["lam"].iloc[best]]})
    tables["cross_validation"] = scores
    num_pairs = settings.n_features * (settings.n_features - 1) // 2
    published = evidence["elbo"] + [published_constants(each, 1.0, num_pairs) for each in evidence["lam"]]
    tables["evidence"] = evidence[["lam", "log_evidence", "se", "ess", "khat", "method"]].assign(published=published)
    tables["paths"] = pd.concat(
        [
            pd.DataFrame(
                {
                    "q": q,
                    "lam": path.lam,
                    "n_edges": path.n_edges,
                    "kkt_residual": path.kkt_residual,
                    "start": path.start,
                    "from_lasso": np.abs(path.precision - lasso).max(axis=(1, 2)),
                }
            )
            for q, path in paths.items()
        ]
    )
    return {name: table.assign(seed=seed) for name, table in tables.items()}


def run_paper(settings: Settings, seed: int) -> dict[str, pd.DataFrame]:
    """The published architecture on one data set, trained for a given wall time."""
    X = toy_problem(settings.n_features, settings.n_samples, random_state=seed)[0]
    with _quiet():
        _fit(settings, X, seed, architecture="paper", steps=2 * CHUNK)  # compiles
        _, seconds = _fit(settings, X, seed, architecture="paper", steps=4 * CHUNK)
        steps = int(settings.paper_seconds / seconds * 4) * CHUNK
        model, seconds = _fit(settings, X, seed, architecture="paper", steps=max(steps, 2 * CHUNK))
        exact = _exact(settings, model.scatter_, settings.checked, seed)
        tables = _measure(settings, model, exact, _lasso(model.scatter_, settings.lams), seconds)
    return {name: table.assign(seed=seed) for name, table in tables.items()}


def run_speed(settings: Settings) -> dict[str, pd.DataFrame]:
    """Seconds for the gradient of one training step of the published architecture in its published size."""
    scatter = Scatter.from_data(toy_problem(settings.n_features, settings.n_samples, random_state=settings.seeds[0])[0])
    ranges = Ranges(settings.lam_range, settings.q_range, (settings.cold, 1.0))
    size = dict(zip(("num_layers", "num_blocks", "width", "num_sigmoids"), settings.published_size, strict=True))
    conditions = jnp.asarray(condition_grid(BATCH // 4, ranges.low, ranges.high))
    gradient = eqx.filter_jit(eqx.filter_grad(lambda flow, key: flow_loss(flow, key, conditions, 4)[0]))
    with compilation_cache_enabled(), jax.enable_x64(False):
        data = (scatter.matrix, scatter.n, settings.n_features, ranges.low, ranges.high)
        flow = build_flow(jax.random.key(0), "paper", *data, **size)
        _, *seconds = (
            _seconds(lambda k=k: gradient(flow, jax.random.key(k)))[1] for k in range(4)
        )  # the first compiles
    parameters = sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(flow.bijection, eqx.is_inexact_array)))
    row = size | {"parameters": parameters, "seconds": min(seconds), "budget": settings.paper_seconds}
    return {"speed": pd.DataFrame([row])}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep compiled programs, and leave out warnings about what the tables hold: skipped steps, weights, residuals."""
    with warnings.catch_warnings(), compilation_cache_enabled():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", PoorFitWarning)
        warnings.filterwarnings("ignore", "the mode at", RuntimeWarning)
        yield


def _seconds(call: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    result = jax.block_until_ready(call())
    return result, time.perf_counter() - begin


def _fit(settings: Settings, X: Float[np.ndarray, "n d"], seed: int, **options: Any) -> tuple[GraphicalFlow, float]:
    ranges = {"lam": settings.lam_range, "q": settings.q_range, "temperature": (settings.cold, 1.0)}
    return _seconds(lambda: GraphicalFlow(**ranges, random_state=seed, progress=False, **options).fit(X))


def _ask(settings: Settings, model: GraphicalFlow, point: Point, num_draws: int | None = None) -> Posterior:
    """The posterior at (λ, q, T), with noise of its own for each data set."""
    return model.posterior(*point, num_draws=num_draws or settings.num_draws, random_state=model.random_state)


def _lasso(scatter: Scatter, lams: Float[np.ndarray, " k"]) -> Float[np.ndarray, "k d d"]:
    return np.stack([graphical_lasso(scatter.emp_cov, scatter.n, lam).precision for lam in lams])


class Exact(NamedTuple):
    """What the exact sampler says of all free entries at one (λ, q, T); `error` is its own, of its quantiles."""

    mean: Float[np.ndarray, "d d"]
    quantiles: Float[np.ndarray, "3 D"]
    sd: Float[np.ndarray, " D"]
    error: float
    rhat: float

    def distance(self, post: Posterior, **options: Any) -> float:
        """Quantile error of a posterior."""
        free = np.triu_indices(len(self.mean))
        return float(np.mean(np.abs(post.quantile(LEVELS, **options)[:, *free] - self.quantiles) / self.sd))


def _summary(chains: gibbs.Chains) -> Exact:
    draws = chains.draws[:, :, *np.triu_indices(chains.draws.shape[-1])]

    def quantiles(some: Float[np.ndarray, "chains draws D"]) -> Float[np.ndarray, "3 D"]:
        return np.quantile(some.reshape(-1, some.shape[-1]), LEVELS, axis=0)

    sd = draws.std(axis=(0, 1))
    # Half the difference of two halves varies as the mean of all does.
    error = float(np.mean(np.abs(quantiles(draws[::2]) - quantiles(draws[1::2])) / sd) / 2)
    return Exact(chains.pooled.mean(axis=0), quantiles(draws), sd, error, float(chains.rhat.max()))


def _chains(settings: Settings, scatter: Scatter, points: Sequence[Point], seed: int) -> list[gibbs.Chains]:
    """Chains of the exact sampler at every (λ, q, T), from starts that know nothing of the flow."""
    lam, q, temperature = np.repeat(np.array(points), settings.num_chains, axis=0).T
    chains = gibbs.sample(jax.random.key(seed), scatter, lam, q, temperature, **_lengths(settings))
    return [chains.select(k * settings.num_chains + np.arange(settings.num_chains)) for k in range(len(points))]


def _lengths(settings: Settings) -> dict[str, Any]:
    return {"num_draws": settings.chain_draws, "num_warmup": settings.chain_warmup, "thin": settings.chain_thin}


def _exact(settings: Settings, scatter: Scatter, points: Sequence[Point], seed: int) -> dict[Point, Exact]:
    """Exact answers at the given points."""
    return dict(zip(points, map(_summary, _chains(settings, scatter, points, seed)), strict=True))


def _recovery(
    settings: Settings, means: Sequence[np.ndarray], lasso: Float[np.ndarray, "k d d"], architecture: str
) -> pd.DataFrame:
    """RMSE of means on the cold path, (d, d) each, to the graphical lasso."""
    difference = (np.stack(means) - lasso)[:, *np.triu_indices(settings.n_features, 1)]
    rmse = np.sqrt(np.mean(difference**2, axis=1))
    return pd.DataFrame({"lam": settings.lams, "rmse": rmse, "architecture": architecture})


def _measure(
    settings: Settings,
    model: GraphicalFlow,
    exact: Mapping[Point, Exact],
    lasso: Float[np.ndarray, "k d d"],
    seconds: float,
) -> dict[str, pd.DataFrame]:
    """What is measured of both architectures: distance to the graphical lasso, to exact answers, the published λ."""
    means = [_ask(settings, model, point).mean(weighted=False) for point in settings.cold_path]
    published = model.evidence(settings.lams, 1.0, normalizer="published", num_draws=settings.num_draws)
    fit = {
        "n_features": settings.n_features,
        "n_samples": settings.n_samples,
        "architecture": model.architecture,
        "steps": model.n_iter_,
        "skipped": int(model.history_["skipped"].iloc[-1]),
        "seconds": seconds,
        "lam_published": _peak(settings.lams, published["log_evidence"].to_numpy()),
    }
    return {
        "fits": pd.DataFrame([fit]),
        "recovery": _recovery(settings, means, lasso, model.architecture),
        "agreement": pd.DataFrame([_compare(settings, model, point, exact[point]) for point in settings.checked]),
    }


def _compare(settings: Settings, model: GraphicalFlow, point: Point, exact: Exact) -> dict[str, Any]:
    """Quantile errors at one (λ, q, T): of plain draws, of what `Posterior` gives, and of what is used in the end."""
    post = _ask(settings, model, point, settings.check_draws)
    known, (used, draws) = post.diagnostics(), _trusted(settings, model, post, exact)
    return {
        "architecture": model.architecture,
        "lam": point[0],
        "q": point[1],
        "temperature": point[2],
        "elbo": known["elbo"],
        "ess": known["ess"],
        "plain": exact.distance(post, weighted=False),
        "flow": exact.distance(post),
        "used": exact.distance(used),
        "draws": draws,
        "exact": exact.error,
        "rhat": exact.rhat,
    }


def _trusted(settings: Settings, model: GraphicalFlow, post: Posterior, exact: Exact) -> tuple[Posterior, str]:
    """The posterior, refined if its quantiles are further off than the limit, and what its draws are."""
    # Refining the published architecture would say nothing of it: the chains would do all.
    if exact.distance(post) > LIMIT and model.architecture == "structured":
        return post.refine(settings.refine_sweeps), "refined"
    return post, "weighted" if post.weighted else "plain"


def _peak(lams: Float[np.ndarray, " k"], values: Float[np.ndarray, " k"]) -> float:
    """λ at the top of the parabola, in log λ, through the highest value and its neighbours."""
    k = int(np.clip(np.argmax(values), 1, len(lams) - 2))
    x, y = np.log(lams[k - 1 : k + 2]), values[k - 1 : k + 2]
    a, b, _ = np.polyfit(x - x[1], y, 2)
    shift = -b / (2 * a) if a < 0 else x[int(np.argmax(y))] - x[1]
    return float(np.exp(x[1] + np.clip(shift, x[0] - x[1], x[2] - x[1])))


def cross_validation(X: Float[np.ndarray, "n d"], lams: Float[np.ndarray, " k"]) -> pd.DataFrame:
    """Log-likelihood of left-out rows under the graphical lasso of the others, at λ = nρ, by five folds.

    Parameters
    ----------
    X
        Data; centred and scaled once, before they are split.
    lams
        Values of λ.

    Returns
    -------
    DataFrame
        lam and score, the log-likelihood of a row without its constant, mean over the folds.
    """
    working = Scatter.from_data(X).working(X)
    fold_of = np.arange(len(X)) % FOLDS
    score = np.zeros(len(lams))
    for fold in range(FOLDS):
        train, test = working[fold_of != fold], working[fold_of == fold]
        for k, lam in enumerate(lams):
            precision = graphical_lasso(train.T @ train / len(train), len(X), lam).precision
            score[k] += np.linalg.slogdet(precision)[1] - np.sum(precision * (test.T @ test)) / len(test)
    return pd.DataFrame({"lam": lams, "score": score / (2 * FOLDS)})


def cross_validated(X: Float[np.ndarray, "n d"], lams: Float[np.ndarray, " k"]) -> float:
    """λ = nρ of the graphical lasso with the best mean log-likelihood of left-out rows, five folds."""
    table = cross_validation(X, lams)
    return float(table["lam"].iloc[int(table["score"].argmax())])


def _intervals(
    settings: Settings,
    model: GraphicalFlow,
    lasso: Float[np.ndarray, "k d d"],
    truth: Float[np.ndarray, "d d"],
    lam: float,
    agreement: pd.DataFrame,
) -> pd.DataFrame:
    """75 % intervals of the strongest entries along λ at q = 1, at both temperatures, beside the graphical lasso."""
    named = strongest(_ask(settings, model, (lam, 1.0, 1.0)), NUM_NAMED).tolist()
    rows = []
    for temperature in (1.0, settings.cold):
        here = (agreement["temperature"] == temperature) & (agreement["q"] == 1)
        refine = "refined" in set(agreement.loc[here, "draws"])  # where one point needs it all get it
        for k, each in enumerate(settings.lams.tolist()):
            post = _ask(settings, model, (each, 1.0, temperature))
            post = post.refine(settings.refine_sweeps) if refine else post
            quantiles = post.quantile([(1 - BAND) / 2, 0.5, (1 + BAND) / 2])
            for i, j in named:
                entry = {"temperature": temperature, "lam": each, "row": i, "column": j, "true_edge": truth[i, j] != 0}
                ends = dict(zip(("lower", "median", "upper"), quantiles[:, i, j], strict=True))
                draws = "refined" if refine else "weighted" if post.weighted else "plain"
                rows.append(entry | ends | {"lasso": lasso[k, i, j], "draws": draws})
    return pd.DataFrame(rows)


def _across_q(settings: Settings, model: GraphicalFlow, truth: Float[np.ndarray, "d d"], lam: float) -> pd.DataFrame:
    """95 % intervals of the strongest entry for several q at the λ chosen for q = 1, by every method."""
    scatter, probs = model.scatter_, [(1 - WIDE) / 2, 0.5, (1 + WIDE) / 2]
    i, j = strongest(_ask(settings, model, (lam, 1.0, 1.0)), 1)[0].tolist()
    rows = []

    def add(method: str, q: float, ends: Any, lam: float = lam, error: float = 0.0, draws: str = "exact") -> None:
        entry = {"method": method, "q": q, "lam": lam, "row": i, "column": j, "true_edge": truth[i, j] != 0}
        entry |= dict(zip(("lower", "median", "upper"), ends, strict=True))
        rows.append(entry | {"error": error, "draws": draws})

    points = [(lam, q, 1.0) for q in settings.entry_q]
    for point, chains in zip(points, _chains(settings, scatter, points, 1000), strict=True):
        exact = _summary(chains)
        post, draws = _trusted(settings, model, _ask(settings, model, point, settings.check_draws), exact)
        add("flow", point[1], post.quantile(probs)[:, i, j], error=exact.distance(post), draws=draws)
        add("exact sampler", point[1], np.quantile(chains.draws[:, :, i, j], probs), error=exact.error)
    options: dict[str, Any] = _lengths(settings) | {"num_chains": settings.bayesian_chains}
    for method, given in (("Bayesian graphical lasso, λ given", lam), ("Bayesian graphical lasso, λ drawn", None)):
        chains = bayesian_graphical_lasso(scatter, given, **options)
        add(method, 1.0, np.quantile(chains.draws[:, :, i, j], probs), float(chains.lam.mean()), _summary(chains).error)
    add("graphical lasso", 1.0, [_lasso(scatter, np.array([lam]))[0, i, j]] * 3)
    return pd.DataFrame(rows)


def _nonzero(precision: Float[np.ndarray, "k d d"], lams: Float[np.ndarray, " k"], q: float) -> pd.DataFrame:
    """Entries above the diagonal that are not zero, a row each."""
    k, i, j = np.nonzero(np.triu(precision, 1))
    return pd.DataFrame({"q": q, "lam": lams[k], "row": i, "column": j, "value": precision[k, i, j]})


# ------------------------------------------------------------------------------------------------------------- figures
def figures(tables: Tables) -> dict[str, Figure]:
    """Drawn from the tables; entries, modes and curves are those of the first data set.

    Parameters
    ----------
    tables
        As the jobs made them; those of the published architecture may still be missing.

    Returns
    -------
    dict of Figure
        intervals, modes, across_q, evidence, recovery, agreement.
    """
    # Without pyplot's state, and without looking for a screen.
    with matplotlib.rc_context({"font.size": 9}):
        return {
            "intervals": _draw_intervals(tables["intervals"]),
            "modes": _draw_modes(tables["modes"], tables["paths"], tables["intervals"]),
            "across_q": _draw_across_q(tables["across_q"]),
            "evidence": _draw_evidence(tables),
            "recovery": _draw_recovery(tables["recovery"]),
            "agreement": _draw_agreement(tables["agreement"]),
        }


def _draw_intervals(table: Frame) -> Figure:
    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    temperatures = sorted(table["temperature"].unique(), reverse=True)
    axes = figure.subplots(1, len(temperatures))  # each with its own scale: at the lowest temperature bands are narrow
    for ax, temperature in zip(axes, temperatures, strict=True):
        part = table[table["temperature"] == temperature]
        named = part[["row", "column", "true_edge"]].drop_duplicates()
        labels = [_label(*entry) for entry in named.itertuples(index=False)]
        quantiles, lasso = (
            np.stack([_along_lam(part, entry[:2], each) for entry in named.itertuples(index=False)], axis=-1)
            for each in (["lower", "median", "upper"], "lasso")
        )
        title = f"{BAND:.0%} credible intervals, q = 1, T = {temperature:g}"
        intervals_along_lam(np.unique(part["lam"]), quantiles, labels, path=lasso, title=title, ax=ax)
    for line in axes[-1].get_lines():
        if line.get_linestyle() == "--":  # it would be hidden by the median, which is as good as the same
            line.set(color=NEUTRAL, zorder=3)
    _share_legend(figure, axes)
    return figure


def _along_lam(table: Frame, entry: tuple[int, int], columns: Any) -> np.ndarray:
    """Columns of one entry in the order of λ, (k,) or (columns, k)."""
    here = table[(table["row"] == entry[0]) & (table["column"] == entry[1])].sort_values("lam")
    return here[columns].to_numpy().T


def _label(row: int, column: int, true_edge: bool) -> str:
    return f"x{row} – x{column}{'' if true_edge else ' (no edge)'}"


def _share_legend(figure: Figure, axes: Sequence[Any]) -> None:
    """One legend below panels that share their colours."""
    handles = _take_legends(axes)
    columns = min(4, len(handles))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=SMALL)


def _take_legends(axes: Sequence[Any]) -> list[Any]:
    """Remove the legends of panels that share their colours, and give what one of them shows."""
    handles = axes[0].get_legend().legend_handles
    for ax in axes:
        ax.get_legend().remove()
    return handles


def _draw_modes(modes: Frame, paths: Frame, intervals: Frame) -> Figure:
    """A panel for each q, and the number of edges of all data sets."""
    qs, lams = paths["q"].unique()[:4], np.unique(paths["lam"])
    named = intervals[["row", "column", "true_edge"]].drop_duplicates().itertuples(index=False)
    labels = {(each[0], each[1]): _label(*each) for each in named}
    others = modes.loc[:, ["row", "column"]].drop_duplicates().itertuples(index=False, name=None)
    entries = [*labels, *(each for each in others if each not in labels)]
    figure = Figure(figsize=(9.0, 5.4), layout="constrained")
    grid = figure.subplots(2, 3)
    axes = [grid[0, 0], grid[0, 1], grid[1, 0], grid[1, 1]][: len(qs)]
    for ax, q in zip(axes, qs, strict=True):
        values = modes[modes["q"] == q].pivot_table(index="lam", columns=["row", "column"], values="value")
        path = values.reindex(index=lams, columns=pd.MultiIndex.from_tuples(entries)).fillna(0.0).to_numpy()
        solution_path(lams, path, dict(enumerate(labels.values())), title=f"modes, q = {q:g}", ax=ax)
    handles, limits = _take_legends(axes), [ax.get_ylim() for ax in axes]
    for ax in axes:
        ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        ax.label_outer()
    for ax in {*grid[:, :2].flat} - {*axes}:
        ax.set_axis_off()
    for k, q in enumerate(qs):
        counts = paths[paths["q"] == q].groupby("lam")["n_edges"].agg(["mean", "min", "max"])
        grid[0, 2].fill_between(lams, counts["min"], counts["max"], color=LINES[k], alpha=0.12, lw=0)
        style = {"color": LINES[k], "marker": MARKERS[k], "ms": 4, "lw": 1.5, "label": f"q = {q:g}"}
        grid[0, 2].plot(lams, counts["mean"], **style)
    lam_axis(grid[0, 2], lams)
    open_frame(grid[0, 2])
    grid[0, 2].set_ylabel("number of edges")
    grid[0, 2].legend(frameon=False, fontsize=SMALL)
    set_title(grid[0, 2], f"edges, {paths['seed'].nunique()} data sets")
    grid[1, 2].set_axis_off()
    grid[1, 2].legend(handles=handles, loc="center", frameon=False, fontsize=SMALL, title="modes")
    return figure


def _draw_across_q(table: Frame) -> Figure:
    """Intervals of all methods, beside each other where they share a q."""
    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    ax, handles = figure.subplots(), []
    step = 0.016 * max(float(np.ptp(table["q"])), 0.1)
    for k, (method, part) in enumerate(table.groupby("method", sort=False)):
        error = np.abs(part[["lower", "upper"]].to_numpy().T - part["median"].to_numpy())
        bar = None if np.all(error == 0) else error
        style = {"fmt": MARKERS[k], "color": LINES[k], "ms": 4.5, "capsize": 2.5, "lw": 1.4, "label": str(method)}
        handles.append(ax.errorbar(part["q"] + step * k, part["median"], yerr=bar, **style))
    ax.axhline(0, color=NEUTRAL, lw=0.6)
    ax.set(xlabel="exponent q", ylabel="entry of the precision matrix")
    open_frame(ax)
    first = table.iloc[0]
    set_title(
        ax,
        f"{_label(first['row'], first['column'], first['true_edge'])}: median and {WIDE:.0%} interval, "
        f"λ = {first['lam']:.2f}",
    )
    legend_below(ax, handles)
    return figure


def _draw_evidence(tables: Tables) -> Figure:
    """Evidence and cross-validation along λ for the first data set; what they choose on all."""
    selection, fits = tables["selection"], _of(tables["fits"], "structured")
    seed = selection["seed"].min()
    evidence, scores = (_seed(tables[name], seed) for name in ("evidence", "cross_validation"))
    chosen, published = _seed(selection, seed).iloc[0], _seed(fits, seed)["lam_published"].iloc[0]
    figure = Figure(figsize=(9.0, 4.4), layout="constrained")
    axes = figure.subplot_mosaic([["evidence", "chosen"], ["folds", "chosen"]], width_ratios=(1.2, 1.0))
    curves = (
        ("log_evidence", "evidence", chosen["lam_evidence"]),
        ("published", "published quantity (ELBO)", published),
    )
    for k, (column, label, at) in enumerate(curves):
        below = evidence[column] - evidence[column].max()
        style = {"color": LINES[k], "marker": MARKERS[k], "ms": 4, "lw": 1.5, "label": f"{label}: λ = {at:.2f}"}
        axes["evidence"].plot(evidence["lam"], below, **style)
        axes["evidence"].axvline(at, color=LINES[k], lw=1.0, ls=DASHED)
    label = f"{FOLDS} folds: λ = {chosen['lam_cv']:.2f}"
    axes["folds"].plot(scores["lam"], scores["score"], color=LINES[2], lw=1.5, label=label)
    axes["folds"].axvline(chosen["lam_cv"], color=LINES[2], lw=1.0, ls=DASHED)
    for name, text in (("evidence", "nats below the top"), ("folds", "log-likelihood\nof a left-out row")):
        lam_axis(axes[name], evidence["lam"].to_numpy())
        axes[name].set_ylabel(text)
        axes[name].legend(edgecolor="none", framealpha=1.0, fontsize=SMALL, loc="lower center")
        open_frame(axes[name])
    axes["evidence"].label_outer()
    axes["evidence"].set_xlabel("")
    set_title(axes["evidence"], f"choice of λ at q = 1, data set {seed}")
    _draw_chosen(axes["chosen"], selection)
    return figure


def _draw_chosen(ax: Axes, selection: Frame) -> None:
    ours, folds = selection["lam_evidence"], selection["lam_cv"]
    star = {"ls": "", "marker": "*", "ms": 13, "mfc": "white", "mec": "black"}
    ax.plot(ours, folds, ls="", marker="o", color=LINES[0], ms=6, alpha=0.8, label="our data sets")
    ax.plot(PUBLISHED_LAM["evidence"], PUBLISHED_LAM["cv"], label="published", **star)
    ends = 0.85 * min(ours.min(), folds.min(), 3.3), 1.15 * max(ours.max(), folds.max(), 3.6)
    ax.plot(ends, ends, color=NEUTRAL, lw=0.8, ls=DASHED)
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    ticks = [tick for tick in (0.3, 0.5, 1, 2, 3, 4, 5, 6, 8, 10) if ends[0] <= tick <= ends[1]]
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_minor_formatter(NullFormatter())
    ax.set(xlabel="λ of highest evidence", ylabel="λ by cross-validation")
    ax.legend(frameon=False, fontsize=SMALL)
    open_frame(ax)
    set_title(ax, "all data sets")


def _draw_recovery(table: Frame) -> Figure:
    """RMSE to the graphical lasso along λ: mean and range over data sets."""
    figure = Figure(figsize=(6.2, 3.8), layout="constrained")
    ax, handles = figure.subplots(), []
    for k, name in enumerate(name for name in SHOWN if len(_of(table, name))):
        values = _of(table, name).groupby("lam")["rmse"].agg(["mean", "min", "max"])
        ax.fill_between(values.index, values["min"], values["max"], color=LINES[k], alpha=0.15, lw=0)
        style = {"color": LINES[k], "marker": MARKERS[k], "ms": 4, "lw": 1.5, "label": SHOWN[name]}
        handles += ax.plot(values.index, values["mean"], **style)
    ax.axhline(PUBLISHED_RMSE, color=NEUTRAL, lw=1.2, ls=DASHED)
    handles.append(dashed_handle(f"published, {PUBLISHED_RMSE:g}"))
    _log_axis(ax)
    lam_axis(ax, np.unique(table["lam"]))
    ax.set_ylabel("RMSE")
    open_frame(ax)
    set_title(ax, "cold means and the graphical lasso, q = 1")
    legend_below(ax, handles)
    return figure


def _log_axis(ax: Axes) -> None:
    """A logarithmic vertical axis with plain numbers."""
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())


def _draw_agreement(table: Frame) -> Figure:
    """Quantile errors at every point, a dot for each data set."""
    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    ax, handles = figure.subplots(), []
    points = _points(_of(table, "structured"))
    series = [(SHOWN[name], part, "flow") for name, part in table.groupby("architecture", sort=False)]
    series.append((SHOWN["exact"], _of(table, "structured"), "exact"))
    for k, (label, part, column) in enumerate(series):
        for x, point in enumerate(points.itertuples(index=False)):
            y = _at(part, point)[column]
            style = {"ls": "", "marker": MARKERS[k], "ms": 4.5, "color": LINES[k], "alpha": 0.7, "mew": 0}
            ax.plot(np.full(len(y), x + 0.22 * (k - (len(series) - 1) / 2)), y, **style)
        handles.append(Line2D([], [], ls="", marker=MARKERS[k], color=LINES[k], ms=5, label=label))
    ax.axhline(LIMIT, color=NEUTRAL, lw=1.2, ls=DASHED)
    handles.append(dashed_handle(f"{LIMIT:g} sd: beyond it draws are refined"))
    _log_axis(ax)
    names = [f"λ = {point.lam:.2g}\nq = {point.q:g}\nT = {point.temperature:g}" for point in points.itertuples()]
    ax.set_xticks(range(len(names)), names, fontsize=SMALL)
    ax.set_ylabel("mean quantile error (posterior sd)")
    open_frame(ax)
    set_title(ax, "flow against the exact sampler, a mark for each data set")
    legend_below(ax, handles, bbox_to_anchor=(0.5, -0.08))
    return figure


# ------------------------------------------------------------------------------------------------------ the words to it
def section(tables: Tables) -> str:
    """The part of the page about this experiment, in Markdown.

    Parameters
    ----------
    tables
        As the jobs made them; those of the published architecture may still be missing.
    """
    parts = "\n\n".join(
        [
            _what_was_done(tables),
            _said_of_intervals(tables),
            _said_of_modes(tables),
            _said_of_entry(tables["across_q"]),
            _said_of_choice(tables),
            _said_of_agreement(tables["agreement"]),
            _said_of_architectures(tables),
        ]
    )
    return "\n\n".join(each if each[0] in "#!|" else _filled(each) for each in parts.split("\n\n"))


def verdicts(tables: Tables) -> pd.DataFrame:
    """Published numbers beside ours: what, published, ours, verdict."""
    fits, agreement, selection = tables["fits"], _of(tables["agreement"], "structured"), tables["selection"]
    published = _of(fits, "paper")
    found = {name: _rmse(tables["recovery"], name) for name in SHOWN}
    rmse = f"{_spread(found['structured'])}; exact sampler {_spread(found['exact'])}"
    if len(published):
        rmse += f"; published architecture after {published['seconds'].mean():.0f} s {_spread(found['paper'])}"
    factor = PUBLISHED_RMSE / found["structured"].mean()
    warm = agreement[agreement["temperature"] == 1]
    lasso = tables["paths"].loc[tables["paths"]["q"] == 1, "from_lasso"].max()
    lam, counts = _edge_counts(tables["paths"])
    entry = 100 * _entry_distance(tables["across_q"])
    rows = [
        (
            "toy: RMSE to the graphical lasso, lowest temperature, q = 1",
            f"{PUBLISHED_RMSE:g} (printed as MSE)",
            rmse,
            f"{factor:.1f} times closer than published" if factor > 1 else f"{1 / factor:.1f} times further off",
        ),
        (
            "toy: λ by evidence / by cross-validation, q = 1",
            f"{PUBLISHED_LAM['evidence']:g} / {PUBLISHED_LAM['cv']:g} (units not stated)",
            f"{_spread(selection['lam_evidence'], '.2f')} / {_spread(selection['lam_cv'], '.2f')}",
            f"{_same_choice(selection)}; the published pair is {_within(selection)} the range of our data sets",
        ),
        (
            "toy: modes at q = 1 beside the graphical lasso",
            "figure",
            f"largest difference of an entry {lasso:.1g}",
            "the same" if lasso < 1e-5 else "not the same",
        ),
        (
            "toy: sparser modes for smaller q",
            "figure",
            f"edges at λ = {lam:.2g}: " + ", ".join(f"{count:.1f} (q = {q:g})" for q, count in counts.items()),
            "fewer edges at every λ" if _falling(tables["paths"]) else "not fewer edges at every λ",
        ),
        (
            "toy: interval of one entry at q = 1 beside the Bayesian graphical lasso",
            "figure",
            f"ends differ by at most {entry:.1f} % of its length",
            "the same" if entry < 5 else "alike" if entry < 20 else "different",
        ),
        (
            "toy: quantiles of the flow beside the exact sampler, T = 1",
            "–",
            f"error {_spread(warm.groupby('seed')['flow'].mean())} sd; the sampler's own {warm['exact'].mean():.3f} sd",
            _agree(agreement),
        ),
    ]
    return pd.DataFrame(rows, columns=["what", "published", "ours", "verdict"])


def _what_was_done(tables: Tables) -> str:
    fits, lams = _of(tables["fits"], "structured"), np.unique(tables["recovery"]["lam"])
    first, seconds, cold = fits.iloc[0], fits["seconds"], tables["agreement"]["temperature"].min()
    return f"""## Toy problem

{len(fits)} data sets, each with n = {first["n_samples"]} rows of d = {first["n_features"]} variables from a truth of
its own, whose Cholesky factor has 90 % zeros. On each, one structured flow is trained for λ from {lams[0]:.2g} to
{lams[-1]:.2g}, q from 0.25 to 1.25 and temperatures from {cold:g} to 1, in {seconds.median():.0f} s (median; the
longest took {seconds.max():.0f} s, which may include compilation) and {fits["steps"].max()} steps. Below, ± is the
standard deviation over data sets, λ = nρ acts on standardized columns, and figures with single entries show data set
{fits["seed"].min()}."""


def _said_of_intervals(tables: Tables) -> str:
    rmse, exact = (_rmse(tables["recovery"], name) for name in ("structured", "exact"))
    table = tables["intervals"]
    cold, better = table["temperature"].min(), int((rmse < PUBLISHED_RMSE).sum())
    excess, low, high = _t_interval(rmse - exact)
    refined = sorted(table.loc[table["draws"] == "refined", "temperature"].unique().tolist())
    note = (
        f" At T = {' and '.join(f'{each:g}' for each in refined)} the bands are from refined draws, because those of "
        f"the flow were more than {LIMIT:g} sd off at one of the points checked below."
        if refined
        else " The bands are the flow's own draws."
    )
    return f"""### Intervals along λ

![Credible intervals of six entries along λ at two temperatures](assets/results/toy/intervals.png)

{100 * BAND:.0f} % intervals at q = 1, with the graphical lasso dashed: towards T = 0 the posterior contracts to its
mode, which is the graphical lasso.{note} The means of the flow at T = {cold:g} differ from it by an RMSE of
**{_spread(rmse)}** over off-diagonal entries and {tables["recovery"]["lam"].nunique()} λ; the paper has
{PUBLISHED_RMSE:g}, which it prints as MSE although its code takes the root. {better} of {len(rmse)} data sets are below
that. The means of the exact sampler at this temperature are {_spread(exact)} away: T = {cold:g} is not yet
0. The flow's excess over them is {excess:.4f} ({_range(low, high, ".4f")}, 95 % t interval of the mean).

![RMSE to the graphical lasso along λ](assets/results/toy/recovery.png)"""


def _said_of_modes(tables: Tables) -> str:
    paths = tables["paths"]
    qs = paths["q"].unique().tolist()
    lams = np.unique(paths["lam"])
    shown = lams[:: max(1, len(lams) // 5)]
    counts = paths.groupby(["q", "lam"])["n_edges"]
    rows = [[f"{lam:.2g}", *(_spread(counts.get_group((q, lam)), ".1f") for q in qs)] for lam in shown]
    lasso = paths.loc[paths["q"] == 1, "from_lasso"].max()
    rest = paths[paths["q"] < 1]
    flow = int((rest["start"] == "flow").sum())
    order = (
        "At every λ the mean number of edges falls with q."
        if _falling(paths)
        else "The mean number of edges does not fall with q at every λ."
    )
    return f"""### Modes

![Modes along λ for several q, and their number of edges](assets/results/toy/modes.png)

Stationary points with exact zeros (`model.path`), and how many pairs are not zero: mean and range. The largest KKT
residual of all {len(paths)} is {paths["kkt_residual"].max():.1g}. At q = 1 no entry differs from the graphical lasso by
more than {lasso:.1g}. Below q = 1 there are many local minima; of {len(rest)} cases the best one known was found from a
draw of the cold flow in {flow}, and from other starts in the rest. {order} Number of edges:

{_table(["λ", *(f"q = {q:g}" for q in qs)], rows)}"""


def _said_of_entry(table: Frame) -> str:
    first, flow = table.iloc[0], table[table["method"] == "flow"]
    rows, shown = [], (table["method"] == "flow") | (table["q"] == 1)
    for part in table[shown].sort_values("method", key=lambda names: names != "flow", kind="stable").itertuples():
        ends = f"{part.lower:.3f} … {part.upper:.3f}" if part.lower < part.upper else "–"
        rows.append([part.method, f"{part.q:g}", f"{part.lam:.2f}", f"{part.median:.3f}", ends])
    length = flow["upper"] - flow["lower"]
    least, most = flow["q"].iloc[int(length.argmin())], flow["q"].iloc[int(length.argmax())]
    drawn = table.loc[table["method"].str.endswith("λ drawn"), "lam"].iloc[0]
    refined = int((flow["draws"] == "refined").sum())
    return f"""### One entry across q

![Intervals of one entry for several q, beside other methods](assets/results/toy/across_q.png)

The strongest entry, x{first["row"]} – x{first["column"]} ({"an" if first["true_edge"] else "no"} edge of the truth), at
the λ chosen by evidence for q = 1. The Bayesian graphical lasso is the exact sampler at q = 1, with this λ or with
λ ~ Gamma(1, rate 0.01), whose posterior mean is {drawn:.2f}. With the same λ the ends of its interval and the flow's
differ by at most {100 * _entry_distance(table):.1f} % of the length. The interval is shortest at q = {least:g}
({length.min():.2f}) and longest at q = {most:g} ({length.max():.2f}). {refined} of the flow's {len(flow)} posteriors
had to be refined.

{_table(["method", "q", "λ", "median", f"{100 * WIDE:.0f} % interval"], rows)}"""


def _said_of_choice(tables: Tables) -> str:
    selection, fits = tables["selection"], _of(tables["fits"], "structured")
    mean, low, high = (float(np.exp(each)) for each in _log_ratio(selection))
    evidence, folds = (_choice(selection[name]) for name in ("lam_evidence", "lam_cv"))
    rows = [
        ["evidence, the prior normalized on the cone", f"{PUBLISHED_LAM['evidence']:g}", evidence],
        ["published quantity: ELBO and constants of the off-diagonal", "", _choice(fits["lam_published"])],
        [f"graphical lasso, {FOLDS} folds", f"{PUBLISHED_LAM['cv']:g}", folds],
    ]
    return f"""### Choice of λ

![Evidence and cross-validation along λ; what they choose on all data sets](assets/results/toy/evidence.png)

{_table(["λ = nρ at q = 1", "published, one data set", "ours: mean ± sd (range)"], rows)}

The paper does not state the units of its λ; as λ = nρ its pair is {_within(selection)} the range of our data sets. The
λ of highest evidence is {mean:.2f} times that of cross-validation ({_range(low, high, ".2f")}, geometric mean and its
95 % t interval; published {PUBLISHED_LAM["evidence"] / PUBLISHED_LAM["cv"]:.2f}): {_same_choice(selection)}. The
published quantity leaves the constant d log λ of the diagonal out, which moves its top towards smaller λ.
The largest standard error along the curves is {tables["evidence"]["se"].max():.2g} nats."""


def _said_of_agreement(agreement: Frame) -> str:
    own, published = _of(agreement, "structured"), _of(agreement, "paper")
    header = ["λ", "q", "T", "plain draws", "weighted where safe", "refined", "in the end", "exact sampler itself"]
    rows = []
    for point in _points(own).itertuples():
        here, theirs = _at(own, point), _at(published, point)
        refined = f"{int((here['draws'] == 'refined').sum())} of {len(here)}"
        cells = [_spread(here["plain"]), _spread(here["flow"]), refined, _spread(here["used"]), _spread(here["exact"])]
        more = [_spread(theirs["flow"])] if len(theirs) else ["–"] * bool(len(published))
        rows.append([f"{point.lam:.2g}", f"{point.q:g}", f"{point.temperature:g}", *cells, *more])
    header += ["published architecture"] * bool(len(published))
    return f"""### Flow and exact sampler

![Quantile errors at all points](assets/results/toy/agreement.png)

Mean error of the 5, 50 and 95 % quantiles of all entries, in posterior standard deviations, against chains of the exact
sampler that start from a Wishart distribution and know nothing of the flow; the sampler's own error is half the
difference between halves of its chains (largest R̂ {agreement["rhat"].max():.3f}). The two {_agree(own)}.

{_table(header, rows)}"""


def _said_of_architectures(tables: Tables) -> str:
    fits, agreement, speed = tables["fits"], tables["agreement"], tables.get("speed")
    own, theirs = _of(fits, "structured").set_index("seed"), _of(fits, "paper").set_index("seed")
    text = "### Both architectures\n\n"
    if speed is not None:
        row = speed.iloc[0]
        text += f"""In its published size ({row["num_layers"]:.0f} layers of {row["num_blocks"]:.0f} residual blocks of
{row["width"]:.0f}, {row["num_sigmoids"]:.0f} sigmoids, {row["parameters"] / 1e6:.1f} million parameters) the gradient
of one step with {BATCH} draws takes {row["seconds"]:.2g} s here, which makes {row["budget"] / row["seconds"]:,.0f}
steps in the {row["budget"]:.0f} s that each data set gets, instead of the published 10 000 with 1000 draws each. So it
is trained in the package's smaller size: 4 layers of 2 blocks of 128, 8 sigmoids. """
    if theirs.empty:
        return text + "Its fits are not finished."
    pair = agreement.pivot_table(
        index=["seed", "lam", "q", "temperature"], columns="architecture", values=["elbo", "flow"]
    ).dropna()
    warm = pair[pair.index.get_level_values("temperature") == 1]
    deficit = (warm["elbo"]["structured"] - warm["elbo"]["paper"]).groupby("seed").mean()
    rmse, their_rmse = (_rmse(tables["recovery"], name) for name in ("structured", "paper"))
    worse = (their_rmse - rmse).dropna()
    further = (warm["flow"]["paper"] - warm["flow"]["structured"]).groupby("seed").mean()
    rows = [
        ["steps", f"{own['steps'].mean():.0f}", f"{theirs['steps'].mean():.0f}", ""],
        ["seconds of training", _spread(own["seconds"], ".0f"), _spread(theirs["seconds"], ".0f"), ""],
        ["RMSE, lowest temperature", _spread(rmse), _spread(their_rmse), _difference(worse, ".3f")],
        [
            "quantile error, T = 1, sd",
            _spread(warm["flow"]["structured"].groupby("seed").mean()),
            _spread(warm["flow"]["paper"].groupby("seed").mean()),
            _difference(further, ".3f"),
        ],
        ["ELBO below the structured flow's, T = 1, nats", "0", _spread(deficit, ".2f"), _difference(deficit, ".2f")],
        [
            "λ of the published quantity",
            _spread(own["lam_published"], ".2f"),
            _spread(theirs["lam_published"], ".2f"),
            _difference((theirs["lam_published"] - own["lam_published"]).dropna(), ".2f"),
        ],
    ]
    below = int((their_rmse < PUBLISHED_RMSE).sum())
    return f"""{text}It is cooled as published, from T = 5 to the lowest temperature in 100 stages, so that T = 1 is
reached after about a quarter of the steps; it knows these two temperatures only. Differences are paired over data sets,
with the 95 % t interval of their mean. Both ELBOs refer to the same target: their difference is one of KL divergences.

{_table(["", "structured flow", "published architecture", "difference"], rows)}

After this training the published architecture is below the published {PUBLISHED_RMSE:g} on {below} of {len(theirs)}
data sets. Its ELBO is {_sign(deficit, "lower than", "higher than", "not clearly different from")} that of the
structured flow, its quantiles are {_sign(further, "further from", "closer to", "not clearly closer to")} the exact
sampler's, and its RMSE is {_sign(worse, "larger", "smaller", "not clearly different")}."""


def _of(table: Frame, architecture: str) -> Frame:
    return table[table["architecture"] == architecture]


def _rmse(recovery: Frame, architecture: str) -> Frame:
    """Over all λ, of each data set."""
    return _of(recovery, architecture).groupby("seed")["rmse"].agg(lambda values: np.sqrt(np.mean(values**2)))


def _seed(table: Frame, seed: Any) -> Frame:
    return table[table["seed"] == seed]


def _points(agreement: Frame) -> Frame:
    """Points that were compared, those of T = 1 first."""
    points = agreement[["lam", "q", "temperature"]].drop_duplicates()
    return points.sort_values(["temperature", "lam", "q"], ascending=[False, True, False])


def _at(table: Frame, point: Any) -> Frame:
    same = (table["lam"] == point.lam) & (table["q"] == point.q) & (table["temperature"] == point.temperature)
    return table[same]


def _spread(values: Frame, digits: str = ".3f") -> str:
    """Mean ± standard deviation over data sets."""
    mean = format(values.mean(), digits)
    return f"{mean} ± {format(values.std(), digits)}" if len(values) > 1 else mean


def _t_interval(values: Frame) -> tuple[float, float, float]:
    """Mean and its 95 % t interval; from one value alone, all that it could be."""
    mean = float(values.mean())
    if len(values) < 2:
        return mean, -np.inf, np.inf
    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std() / np.sqrt(len(values)))
    return mean, mean - half, mean + half


def _log_ratio(selection: Frame) -> tuple[float, float, float]:
    """log(λ of evidence / λ of cross-validation): mean and its interval."""
    return _t_interval(np.log(selection["lam_evidence"] / selection["lam_cv"]))


def _same_choice(selection: Frame) -> str:
    _, low, high = _log_ratio(selection)
    if low > 0:
        return "evidence chooses larger λ than cross-validation"
    if high < 0:
        return "evidence chooses smaller λ than cross-validation"
    return "neither chooses systematically larger λ than the other"


def _within(selection: Frame) -> str:
    columns = {"evidence": selection["lam_evidence"], "cv": selection["lam_cv"]}
    inside = [values.min() <= PUBLISHED_LAM[name] <= values.max() for name, values in columns.items()]
    return "within" if all(inside) else "partly within" if any(inside) else "outside"


def _choice(values: Frame) -> str:
    return f"{_spread(values, '.2f')} ({values.min():.2f} … {values.max():.2f})"


def _edge_counts(paths: Frame) -> tuple[float, Frame]:
    """λ in the middle of the range, and there the mean number of edges for each q, largest q first."""
    lams = np.unique(paths["lam"])
    lam = float(lams[(len(lams) - 1) // 2])
    counts = paths[paths["lam"] == lam].groupby("q")["n_edges"].mean()
    return lam, counts.sort_index(ascending=False)


def _falling(paths: Frame) -> bool:
    """Whether the mean number of edges never rises when q falls."""
    counts = paths.pivot_table(index="lam", columns="q", values="n_edges").to_numpy()
    return bool(np.all(np.diff(counts, axis=1) >= 0))


def _entry_distance(across_q: Frame) -> float:
    """Largest difference between ends at q = 1, relative to the length of the Bayesian graphical lasso's interval."""
    known = across_q[across_q["q"] == 1].set_index("method")[["lower", "upper"]]
    lasso = known.loc["Bayesian graphical lasso, λ given"]
    return float((known.loc["flow"] - lasso).abs().max() / (lasso["upper"] - lasso["lower"]))


def _agree(agreement: Frame) -> str:
    """Whether what is used in the end is near enough, and how often it had to be refined."""
    points = agreement.groupby(["lam", "q", "temperature"])["used"].mean()
    refined = agreement[agreement["draws"] == "refined"]
    text = f"{len(refined)} of {len(agreement)} posteriors were beyond {LIMIT:g} sd and refined"
    if len(refined):
        text += f", from {refined['flow'].mean():.3f} to {refined['used'].mean():.3f} sd in the mean"
    verdict = f"mean errors over data sets reach {points.max():.3f} sd"
    return f"{'agree' if points.max() <= LIMIT else 'do not agree'}: {verdict}; {text}"


def _sign(differences: Frame, positive: str, negative: str, unclear: str) -> str:
    _, low, high = _t_interval(differences)
    return positive if low > 0 else negative if high < 0 else unclear


def _difference(values: Frame, digits: str) -> str:
    mean, low, high = _t_interval(values)
    return f"{format(mean, digits)} ({_range(low, high, digits)})"


def _range(low: float, high: float, digits: str) -> str:
    return f"{format(low, digits)} … {format(high, digits)}" if np.isfinite(high) else "unknown from one data set"


def _filled(paragraph: str) -> str:
    return textwrap.fill(paragraph, 120, break_long_words=False, break_on_hyphens=False)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown; numbers, all columns but the first, to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
