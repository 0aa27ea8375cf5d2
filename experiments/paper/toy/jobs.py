"""The paper's toy problem: one flow for every λ, q and temperature, compared with exact answers on several data sets.

    RMSE = √ mean_{λ, i<j} (E_T[ω_ij | λ, q = 1] − ω̂_ij(λ))²,   T = 0.01,  ω̂ the graphical lasso

Quantile errors are mean |difference| from the exact sampler's 5, 50 and 95 % quantiles over all entries of Ω, in units
of its standard deviation.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.exceptions import ConvergenceWarning

from experiments.paper.choice import cross_validation, peak
from experiments.paper.record import Job, timed
from experiments.paper.reference import LEVELS, LIMIT, Reference, quantile_error, refer
from experiments.paper.toy.settings import BAND, WIDE, Point, Settings
from ggmflow import gibbs
from ggmflow.baselines import bayesian_graphical_lasso, graphical_lasso
from ggmflow.data.scatter import Scatter
from ggmflow.data.simulate import toy_problem
from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.evidence.marginal_likelihood import published_constants
from ggmflow.flow.paper import PaperFlow
from ggmflow.model.conditions import Ranges
from ggmflow.plot.pairs import strongest
from ggmflow.posterior.posterior import PoorFitWarning, Posterior
from ggmflow.storage.cache import compilation_cache_enabled
from ggmflow.train.schedule import condition_grid
from ggmflow.train.settings import CHUNK

BATCH = 128  # draws in a training step, the package's default for so few variables
NUM_NAMED = 6  # entries with a colour of their own


def make_jobs(settings: Settings) -> list[Job]:
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
        tables = _measure(settings, model, exact, lasso, seconds, refine=True)
        means = [exact[point].reference.mean for point in settings.cold_path]
        tables["recovery"] = pd.concat([tables["recovery"], _recovery(settings, means, lasso, "exact")])
        paths = {q: model.path(q, settings.lams) for q in settings.mode_q}
        evidence = model.evidence(settings.lams, 1.0, num_draws=settings.num_draws)
        lam = model.select(q=1.0).lam
        tried = np.geomspace(*settings.lam_range, settings.num_cv)[::-1]
        scores = pd.DataFrame({"lam": tried, "score": cross_validation(model.scatter_.working(X), tried)})
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
        # Not refined: chains would hide the errors of this architecture.
        tables = _measure(settings, model, exact, _lasso(model.scatter_, settings.lams), seconds, refine=False)
    return {name: table.assign(seed=seed) for name, table in tables.items()}


def run_speed(settings: Settings) -> dict[str, pd.DataFrame]:
    """Seconds for the gradient of one training step of the published architecture in its published size."""
    X, _ = toy_problem(settings.n_features, settings.n_samples, random_state=settings.seeds[0])
    scatter = Scatter.from_data(X, mean="known")
    ranges = Ranges(settings.lam_range, settings.q_range, (settings.cold, 1.0))
    size = dict(zip(("num_layers", "num_blocks", "width", "num_sigmoids"), settings.published_size, strict=True))
    conditions = jnp.asarray(condition_grid(BATCH // 4, ranges.low, ranges.high))

    def loss(flow, key):
        return flow.loss(flow.draw_noise(key, len(conditions), 4), conditions)[0]

    gradient = eqx.filter_jit(eqx.filter_grad(loss))
    with compilation_cache_enabled(), jax.enable_x64(False):
        data = (scatter.matrix.astype(np.float32), scatter.n, settings.n_features, ranges.low, ranges.high)
        flow = PaperFlow.build(jax.random.key(0), *data, **size)
        _, *seconds = (timed(lambda k=k: gradient(flow, jax.random.key(k)))[1] for k in range(4))  # the first compiles
    parameters = sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(flow.bijection, eqx.is_inexact_array)))
    row = size | {"parameters": parameters, "seconds": min(seconds), "budget": settings.paper_seconds}
    return {"speed": pd.DataFrame([row])}


@contextmanager
def _quiet() -> Iterator[None]:
    """Cache compiled programs, and ignore warnings about skipped steps, weights and residuals, which tables hold."""
    with warnings.catch_warnings(), compilation_cache_enabled():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", PoorFitWarning)
        warnings.filterwarnings("ignore", "the mode at", RuntimeWarning)
        yield


def _fit(settings: Settings, X: Float[np.ndarray, "n d"], seed: int, **options: Any) -> tuple[GraphicalFlow, float]:
    ranges = {"lam": settings.lam_range, "q": settings.q_range, "temperature": (settings.cold, 1.0)}
    return timed(lambda: GraphicalFlow(**ranges, mean="known", random_state=seed, progress=False, **options).fit(X))


def _ask(settings: Settings, model: GraphicalFlow, point: Point, num_draws: int | None = None) -> Posterior:
    """The posterior at (λ, q, T), with different noise for each data set."""
    return model.posterior(*point, num_draws=num_draws or settings.num_draws, random_state=model.random_state)


def _lasso(scatter: Scatter, lams: Float[np.ndarray, " k"]) -> Float[np.ndarray, "k d d"]:
    return np.stack([graphical_lasso(scatter.emp_cov, scatter.n, lam).precision for lam in lams])


class Exact(NamedTuple):
    """Answers of the exact sampler at one (λ, q, T), and its largest R̂."""

    reference: Reference
    rhat: float

    def distance(self, post: Posterior, **options: Any) -> float:
        """Quantile error of a posterior."""
        return quantile_error(post.quantile(LEVELS, **options), self.reference).mean


def _summary(chains: gibbs.Chains) -> Exact:
    return Exact(refer(chains.draws), float(chains.rhat.max()))


def _chains(settings: Settings, scatter: Scatter, points: Sequence[Point], seed: int) -> list[gibbs.Chains]:
    """Chains of the exact sampler at every (λ, q, T), started independently of the flow."""
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
    *,
    refine: bool,
) -> dict[str, pd.DataFrame]:
    """Measures of both architectures: distance to the graphical lasso and to exact answers, the published λ."""
    means = [_ask(settings, model, point).mean(weighted=False) for point in settings.cold_path]
    published = model.evidence(settings.lams, 1.0, normalizer="published", num_draws=settings.num_draws)
    fit = {
        "n_features": settings.n_features,
        "n_samples": settings.n_samples,
        "architecture": model.architecture,
        "steps": model.n_iter_,
        "skipped": int(model.history_["skipped"].iloc[-1]),
        "seconds": seconds,
        "lam_published": peak(settings.lams, published["log_evidence"].to_numpy()).lam,
    }
    return {
        "fits": pd.DataFrame([fit]),
        "recovery": _recovery(settings, means, lasso, model.architecture),
        "agreement": pd.DataFrame(
            [_compare(settings, model, point, exact[point], refine=refine) for point in settings.checked]
        ),
    }


def _compare(settings: Settings, model: GraphicalFlow, point: Point, exact: Exact, *, refine: bool) -> dict[str, Any]:
    """Quantile errors at one (λ, q, T): of plain draws, of `Posterior`'s estimates, and after refinement, if wanted."""
    post = _ask(settings, model, point, settings.check_draws)
    known, (used, draws) = post.diagnostics(), _trusted(settings, post, exact, refine=refine)
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
        "exact": exact.reference.own_error,
        "rhat": exact.rhat,
    }


def _trusted(settings: Settings, post: Posterior, exact: Exact, *, refine: bool) -> tuple[Posterior, str]:
    """The posterior, refined (if wanted) where its error exceeds the limit, and the kind of its draws."""
    if refine and exact.distance(post) > LIMIT:
        return post.refine(settings.refine_sweeps), "refined"
    return post, "weighted" if post.weighted else "plain"


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
        refine = "refined" in set(agreement.loc[here, "draws"])  # if one point needs it, all get it
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
        post = _ask(settings, model, point, settings.check_draws)
        post, draws = _trusted(settings, post, exact, refine=True)
        add("flow", point[1], post.quantile(probs)[:, i, j], error=exact.distance(post), draws=draws)
        add("exact sampler", point[1], np.quantile(chains.draws[:, :, i, j], probs), error=exact.reference.own_error)
    options: dict[str, Any] = _lengths(settings) | {"num_chains": settings.bayesian_chains}
    for method, given in (("Bayesian graphical lasso, λ given", lam), ("Bayesian graphical lasso, λ drawn", None)):
        chains = bayesian_graphical_lasso(scatter, given, **options)
        add(
            method,
            1.0,
            np.quantile(chains.draws[:, :, i, j], probs),
            float(chains.lam.mean()),
            refer(chains.draws).own_error,
        )
    add("graphical lasso", 1.0, [_lasso(scatter, np.array([lam]))[0, i, j]] * 3)
    return pd.DataFrame(rows)


def _nonzero(precision: Float[np.ndarray, "k d d"], lams: Float[np.ndarray, " k"], q: float) -> pd.DataFrame:
    """Entries above the diagonal that are not zero, a row each."""
    k, i, j = np.nonzero(np.triu(precision, 1))
    return pd.DataFrame({"q": q, "lam": lams[k], "row": i, "column": j, "value": precision[k, i, j]})
