"""Clinical variables among genes: the Markov blanket of a few variables in three real tables, at every λ and q.

    p(X | λ, q) = p(X₂ | λ) · p(X₁ | X₂, λ, q),     X₁ the clinical variables (the query), X₂ the genes

The first factor is that of Ω₂₂.₁, which the query does not ask for. Of the evidence it is almost everything, so λ is
chosen by the second one,

    log p(X₁ | X₂, λ, q) = log Z_post(λ, q) − log Z_prior(λ, q) − (ns/2) log 2π.

Quantile errors are mean |difference| from a sampler's 5, 50 and 95 % quantiles over all free entries of [Ω₁₁ Ω₁₂], in
units of its standard deviation.
"""

import textwrap
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import matplotlib
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.interpolate import CubicSpline

from ggmflow import gibbs, plot
from ggmflow.baselines import blanket_gibbs
from ggmflow.baselines.penalized_likelihood import BLAS
from ggmflow.cache import compilation_cache_enabled
from ggmflow.conditions import Ranges, likely_lam
from ggmflow.data import Scatter
from ggmflow.estimator import GraphicalFlow
from ggmflow.evidence import fit_prior, log_evidence, prior_ranges, published_constants
from ggmflow.plot.style import LINES, MARKERS, NEUTRAL, SMALL, legend, open_frame, set_names, set_title
from ggmflow.posterior import PoorFitWarning, Posterior
from ggmflow.precision import association
from ggmflow.reproduce import clinical
from ggmflow.reproduce.record import Job

Frame = Any  # a DataFrame or Series: their annotations leave open what a column or a sum is
Tables = Mapping[str, Frame]

EXPONENTS = (1.0, 0.9, 0.8, 0.7, 0.6)
COMPARED = (1.0, 0.6)  # networks side by side
LEVELS = (0.05, 0.5, 0.95)
LIMIT = 0.1  # sd: quantiles further off than this come from refined draws
EDGE, WIDE = 0.8, 0.95  # credible intervals of the networks, and of the strongest entries
STRONGEST = 4
BELOW, ABOVE = 15, 1.25  # factors that the range of λ goes beyond a guess
RULES = {"conditional": "clinical variables given genes", "full": "all data", "published": "as published"}
_QUERY = "#fff3bf"  # behind the names of clinical variables
_MOST_LINES = 12  # entries in a panel of intervals


class Effort(NamedTuple):
    """Length of the chains of a sampler; `thin` sweeps per draw."""

    num_chains: int
    num_draws: int
    num_warmup: int
    thin: int


class Settings(NamedTuple):
    """What the numbers depend on.

    Attributes
    ----------
    studies
        Names in `clinical.STUDIES`.
    num_genes
        Only so many genes, the first ones; None for all.
    steps
        Of training; None for the default.
    num_draws
        Of the flow at every (λ, q).
    num_lam, num_evidence_draws
        Grid of λ for the evidence, draws behind each of its points.
    exact, kaufmann
        Length of the chains of the two samplers.
    refine
        Sweeps and chains of a refinement, where one is needed.
    seed
        Of everything.
    """

    studies: tuple[str, ...]
    num_genes: int | None
    steps: int | None
    num_draws: int
    num_lam: int
    num_evidence_draws: int
    exact: Effort
    kaufmann: Effort
    refine: tuple[int, int]
    seed: int = 0


FULL = Settings(
    studies=tuple(clinical.STUDIES),
    num_genes=None,
    steps=None,
    num_draws=8000,
    num_lam=11,
    num_evidence_draws=1000,
    exact=Effort(64, 100, 150, 2),
    kaufmann=Effort(4, 1000, 300, 2),
    refine=(50, 500),
)
QUICK = Settings(
    studies=("breast_cancer",),
    num_genes=4,
    steps=50,
    num_draws=1000,
    num_lam=5,
    num_evidence_draws=500,
    exact=Effort(16, 50, 50, 1),
    kaufmann=Effort(2, 100, 50, 1),
    refine=(10, 50),
)


# ------------------------------------------------------------------------------------------------------------ the work
def jobs(settings: Settings) -> list[Job]:
    """A flow with its evidence for each study, then a job for each q.

    The flow of a study stays in memory for the jobs that follow. A run that is taken up again in between trains it
    anew, with the same result.
    """
    made = []
    for study in settings.studies:
        made.append(Job(f"{study}: flow and evidence", partial(run_fit, settings, study)))
        made += [Job(f"{study}: q = {q:g}", partial(run_exponent, settings, study, q)) for q in EXPONENTS]
    return made


class Fitted(NamedTuple):
    """The flow of a study and what its evidence chooses.

    Attributes
    ----------
    data
        The cleaned table.
    model
        Fitted for the query and all of its q.
    evidence
        A row for each (λ, q).
    lam
        λ for each q.
    strongest : (k, 2) array
        Row and column of the largest associations at q = 1.
    shown : (s, d) array of bool
        Entries worth a row in a table: edges at a compared q by plain draws of the flow, the strongest, pairs of
        clinical variables.
    seconds, evidence_seconds
        What fit and evidence took.
    """

    data: clinical.Clinical
    model: GraphicalFlow
    evidence: Frame
    lam: dict[float, float]
    strongest: Int[np.ndarray, "k 2"]
    shown: Bool[np.ndarray, "s d"]
    seconds: float
    evidence_seconds: float


@contextmanager
def _quiet() -> Iterator[None]:
    """The tables say how good a fit is; programs are kept; one thread of BLAS, since two on busy cores take longer."""
    with compilation_cache_enabled(), BLAS.limit(limits=1, user_api="blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorFitWarning)
        yield


def _seconds(call: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    return call(), time.perf_counter() - begin


def read(settings: Settings, study: str) -> clinical.Clinical:
    """The cleaned table of a study, cut down in quick mode."""
    data = clinical.load(study)
    if settings.num_genes is None:
        return data
    return data._replace(table=data.table.iloc[:, : len(data.query) + settings.num_genes])


@lru_cache(maxsize=1)
def fitted(settings: Settings, study: str) -> Fitted:
    """Fit the flow of a study and choose λ for every q; remembered for the jobs that follow."""
    data = read(settings, study)
    scatter = Scatter.from_data(data.table, transform="nonparanormal")
    guess = likely_lam(scatter, scatter.index(data.query))
    model = GraphicalFlow(
        # The guess is of the λ that suits all data, genes above all; less suits the clinical variables alone.
        lam=(guess / BELOW, guess * ABOVE),
        q=(min(EXPONENTS), max(EXPONENTS)),
        temperature=1.0,
        query=data.query,
        transform="nonparanormal",
        steps=settings.steps,
        random_state=settings.seed,
        progress=False,
    )
    with _quiet():
        _, seconds = _seconds(lambda: model.fit(data.table))
        evidence, evidence_seconds = _seconds(lambda: evidence_grid(model, settings))
        lam = {}
        for q in EXPONENTS:
            line = evidence[evidence["q"] == q]
            lam[q] = peak(line["lam"].to_numpy(), line["conditional"].to_numpy()).lam
        size = np.abs(model.posterior(lam[1.0], 1.0, num_draws=settings.num_draws).association())
        s = len(data.query)
        size[np.tril_indices(s)] = 0  # each pair once, and no variable with itself
        strongest = np.argwhere(size >= np.sort(size, axis=None)[-STRONGEST])[:STRONGEST]
        strongest = strongest[np.argsort(-size[tuple(strongest.T)])]
        shown = np.zeros(size.shape, bool)
        for q in COMPARED:
            shown |= model.posterior(lam[q], q, num_draws=settings.num_draws).edges(level=EDGE)
        shown[:, :s] = True
        shown[tuple(strongest.T)] = True
        shown[np.tril_indices(s)] = False
    return Fitted(data, model, evidence, lam, strongest, shown, seconds, evidence_seconds)


def evidence_grid(model: GraphicalFlow, settings: Settings) -> pd.DataFrame:
    """Evidence at every point of a grid: of the clinical variables given the genes, of all data, and as published.

    Parameters
    ----------
    model
        Fitted.
    settings
        Size of the grid and number of draws.
    """
    ranges = Ranges(model.lam_range_, model.q_range_, model.temperature_range_)
    scatter, s = model.scatter_, len(model.query_)
    prior, pairs = fit_prior(scatter.n_features, s, prior_ranges(ranges)), model.flow_.n_entries - s
    rows = []
    for q in EXPONENTS:
        for lam in np.geomspace(*ranges.lam, settings.num_lam).tolist():
            source = model.posterior(lam, q).source
            key = jax.random.key(settings.seed)  # the same noise everywhere keeps the curve smooth
            found = log_evidence(source, prior, key, settings.num_evidence_draws, exact=False)  # pyright: ignore[reportArgumentType]
            conditional = found.posterior.value - found.prior.value - 0.5 * scatter.n * s * np.log(2 * np.pi)
            published = found.posterior.elbo + published_constants(lam, q, pairs)
            rows.append((q, lam, conditional, found.value, published, found.se, found.posterior.ess, found.method))
    return pd.DataFrame(rows, columns=["q", "lam", *RULES, "se", "ess", "method"])


class Peak(NamedTuple):
    """The highest point of a curve over λ, and whether it is an end of it."""

    lam: float
    value: float
    at_end: bool


def peak(lams: Float[np.ndarray, " k"], values: Float[np.ndarray, " k"]) -> Peak:
    """Top of the parabola in log λ through the highest point and its neighbours; an end, if that is highest.

    Parameters
    ----------
    lams, values
        The curve, λ ascending.
    """
    k = int(np.argmax(values))
    if k in (0, len(lams) - 1):
        return Peak(float(lams[k]), float(values[k]), True)
    x = np.log(lams)
    a, b, c = np.polyfit(x[k - 1 : k + 2] - x[k], values[k - 1 : k + 2], 2)
    shift = -b / (2 * a)
    return Peak(float(np.exp(x[k] + shift)), float(c + b * shift / 2), False)


def run_fit(settings: Settings, study: str) -> dict[str, pd.DataFrame]:
    """What was fitted, the evidence and what it chooses."""
    fit = fitted(settings, study)
    model, (n, d), s = fit.model, fit.data.table.shape, len(fit.data.query)
    about = {
        "study": study,
        "n": n,
        "n_dropped": fit.data.n_dropped,
        "events": int(np.sum(fit.data.survival["event"].to_numpy())),
        "n_query": s,
        "n_genes": d - s,
        "entries": model.flow_.n_entries,
        "lam_low": model.lam_range_[0],
        "lam_high": model.lam_range_[1],
        "steps": model.n_iter_,
        "seconds": fit.seconds,
        "evidence_seconds": fit.evidence_seconds,
    }
    choices = []
    for rule in RULES:
        for q in EXPONENTS:
            line = fit.evidence[fit.evidence["q"] == q]
            choices.append((study, rule, q, *peak(line["lam"].to_numpy(), line[rule].to_numpy())))
    return {
        "studies": pd.DataFrame([about]),
        "evidence": pd.DataFrame(fit.evidence.assign(study=study)),
        "choices": pd.DataFrame(choices, columns=["study", "rule", "q", "lam", "value", "at_end"]),
    }


class Reference(NamedTuple):
    """What a sampler says of every free entry.

    Attributes
    ----------
    quantiles : (3, D) array
    sd : (D,) array
    own_error : float
        Quantile error of the sampler itself: half the difference between two halves of its chains.
    """

    quantiles: Float[np.ndarray, "3 D"]
    sd: Float[np.ndarray, " D"]
    own_error: float


def refer(chains: gibbs.Chains) -> Reference:
    """Quantiles of the draws of a sampler, and their error."""
    draws = chains.draws[:, :, *_free(chains.draws)]
    pooled = draws.reshape(-1, draws.shape[-1])
    one, other = (np.quantile(half.reshape(-1, half.shape[-1]), LEVELS, axis=0) for half in (draws[::2], draws[1::2]))
    sd = pooled.std(axis=0)
    return Reference(np.quantile(pooled, LEVELS, axis=0), sd, float(np.mean(np.abs(one - other) / sd)) / 2)


def _free(rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """Positions of the free entries of (…, s, d) rows whose first columns are the query."""
    return np.triu_indices(rows.shape[-2], m=rows.shape[-1])


class Error(NamedTuple):
    """Quantile errors, in standard deviations: mean over all entries, that of the worst one, and which that is."""

    mean: float
    largest: float
    worst: int


def quantile_error(quantiles: Float[np.ndarray, "3 D"], reference: Reference) -> Error:
    """How far quantiles are from those of a sampler."""
    error = np.mean(np.abs(quantiles - reference.quantiles) / reference.sd, axis=0)
    return Error(float(error.mean()), float(error.max()), int(error.argmax()))


def run_exponent(settings: Settings, study: str, q: float) -> dict[str, pd.DataFrame]:
    """The flow at the λ chosen for a q, beside the exact sampler; at q = 1 beside Kaufmann's too."""
    fit = fitted(settings, study)
    lam, scatter, s = fit.lam[q], fit.model.scatter_, len(fit.data.query)
    where = {"study": study, "q": q, "lam": lam}
    with _quiet():
        effort = settings.exact._asdict()
        key = jax.random.fold_in(jax.random.key(settings.seed), round(100 * q))
        chains, seconds = _seconds(lambda: gibbs.sample(key, scatter, lam, q, n_query=s, **effort))
        reference, free = refer(chains), _free(chains.draws)
        post = fit.model.posterior(lam, q, num_draws=settings.num_draws)
        error = quantile_error(post.quantile(LEVELS)[:, *free], reference)
        known, used, refined_error = post.diagnostics(), post, np.nan
        if error.mean > LIMIT:
            sweeps, num_chains = settings.refine
            used = post.refine(sweeps, num_chains=num_chains, random_state=settings.seed)
            refined_error = quantile_error(used.quantile(LEVELS)[:, *free], reference).mean
        exact = chains.pooled
        edges, edges_exact = used.edges(level=EDGE)[free], _excludes_zero(exact[:, *free])
        edges_exact &= free[0] != free[1]
        point = {
            **where,
            "weighted": known["weighted"],
            "ess": known["ess"],
            "khat": known["khat"],
            "error": error.mean,
            "largest": error.largest,
            "worst": " – ".join(fit.data.table.columns[index[error.worst]] for index in free),
            "own_error": reference.own_error,
            "draws": "flow" if used is post else "refined",
            "refined_error": refined_error,
            "edges": int(edges.sum()),
            "edges_exact": int(edges_exact.sum()),
            "edges_both": int(np.sum(edges & edges_exact)),
        }
        tables = {
            "points": pd.DataFrame([point]),
            "chains": pd.DataFrame([where | _about_chains("exact", chains, settings.exact, seconds)]),
            "strongest": _strongest(fit, used, exact).assign(**where),
        }
        if q in COMPARED:
            shown = fit.shown.copy()
            shown[free] |= edges | edges_exact
            tables["entries"] = _entries(fit, used, exact, shown).assign(**where)
        if q == 1:
            gibbs_rows, chain_rows = _ask_kaufmann(settings, fit, post, reference)
            tables["kaufmann"] = pd.DataFrame([where | gibbs_rows])
            tables["chains"] = pd.concat([tables["chains"], pd.DataFrame([where | chain_rows])])
    return tables


def _excludes_zero(draws: Float[np.ndarray, "N D"]) -> Bool[np.ndarray, " D"]:
    low, high = np.quantile(draws, [(1 - EDGE) / 2, (1 + EDGE) / 2], axis=0)
    return (low > 0) | (high < 0)


def _about_chains(sampler: str, chains: gibbs.Chains, effort: Effort, seconds: float) -> dict[str, Any]:
    free = _free(chains.draws)
    rhat, ess = chains.rhat[free], chains.ess_bulk[free]
    return {
        "sampler": sampler,
        "num_chains": effort.num_chains,
        "num_draws": effort.num_draws,
        "sweeps": effort.num_warmup + effort.num_draws * effort.thin,
        "seconds": seconds,
        "rhat": float(rhat.max()),
        "share_above": float(np.mean(rhat > 1.01)),
        "ess_min": float(ess.min()),
        "ess_median": float(np.median(ess)),
    }


def _ask_kaufmann(
    settings: Settings, fit: Fitted, post: Posterior, exact: Reference
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The flow and the exact sampler judged by the Gibbs sampler of Kaufmann et al. at q = 1."""
    num_chains, num_draws, burn_in, thin = settings.kaufmann
    options = {"num_chains": num_chains, "num_draws": num_draws, "burn_in": burn_in, "thin": thin}
    scatter, query = fit.model.scatter_, fit.data.query
    chains, seconds = _seconds(
        lambda: blanket_gibbs(scatter, query, fit.lam[1.0], **options, random_state=settings.seed)
    )
    reference = refer(chains)
    ours = quantile_error(post.quantile(LEVELS)[:, *_free(chains.draws)], reference)
    theirs = quantile_error(exact.quantiles, reference)
    row = {"error": ours.mean, "largest": ours.largest, "own_error": reference.own_error}
    row |= {"exact_error": theirs.mean, "exact_largest": theirs.largest, "exact_own_error": exact.own_error}
    return row, _about_chains("Kaufmann", chains, settings.kaufmann, seconds)


def _strongest(fit: Fitted, post: Posterior, exact: Float[np.ndarray, "N s d"]) -> Frame:
    """Associations of the strongest entries with their 95 % intervals, and those of the exact sampler."""
    at = tuple(fit.strongest.T)
    probs = [(1 - WIDE) / 2, 0.5, (1 + WIDE) / 2]
    low, high = post.association_interval(WIDE)[:, *at]
    # The interval of level 0 is the median.
    middle = post.association_interval(1e-9)[0, *at]
    truth = np.quantile(association(exact, fit.model.query_)[:, *at], probs, axis=0)
    columns = {"lower": low, "median": middle, "upper": high}
    columns |= dict(zip(("exact_lower", "exact_median", "exact_upper"), truth, strict=True))
    return pd.DataFrame(_named(fit, at) | columns)


def _entries(fit: Fitted, post: Posterior, exact: Float[np.ndarray, "N s d"], shown: Bool[np.ndarray, "s d"]) -> Frame:
    """Associations of the entries shown with their 80 % intervals, and those of the exact sampler."""
    at = np.nonzero(shown)
    draws = association(exact, fit.model.query_)[:, *at]
    low, high = post.association_interval(EDGE)[:, *at]
    exact_low, exact_high = np.quantile(draws, [(1 - EDGE) / 2, (1 + EDGE) / 2], axis=0)
    columns = {
        "mean": post.association()[at],
        "lower": low,
        "upper": high,
        "edge": post.edges(level=EDGE)[at],
        "exact_mean": draws.mean(axis=0),
        "exact_lower": exact_low,
        "exact_upper": exact_high,
        "exact_edge": _excludes_zero(draws),
    }
    return pd.DataFrame(_named(fit, at) | columns)


def _named(fit: Fitted, at: tuple[np.ndarray, ...]) -> dict[str, list[str]]:
    names = fit.data.table.columns
    return {"row": names[at[0]].tolist(), "column": names[at[1]].tolist()}


# --------------------------------------------------------------------------------------------------------- the pictures
def figures(tables: Tables) -> dict[str, Figure]:
    """All figures, from the tables alone."""
    with matplotlib.rc_context({"font.size": 9}):
        networks = {f"network_{study}": _draw_networks(tables, study) for study in _studies(tables)}
        return {
            "evidence": _draw_evidence(tables),
            "agreement": _draw_agreement(tables),
            **networks,
            "intervals": _draw_intervals(tables),
            "across_q": _draw_across_q(tables),
        }


def _studies(tables: Tables) -> list[str]:
    return tables["studies"]["study"].tolist()


def _of(table: Frame, **values: Any) -> Frame:
    """Rows with these values."""
    for column, value in values.items():
        table = table[np.isclose(table[column], value) if isinstance(value, float) else table[column] == value]
    return table


def _draw_evidence(tables: Tables) -> Figure:
    studies = _studies(tables)
    figure = Figure(figsize=(max(7.0, 3.7 * len(studies)), 3.6), layout="constrained")
    axes = figure.subplots(1, len(studies), squeeze=False)[0]
    for ax, study in zip(axes, studies, strict=True):
        table = _of(tables["evidence"], study=study)
        plot.evidence_curve(table.rename(columns={"conditional": "log_evidence"}), ax=ax, title=study)
        top = table["conditional"].max()
        ax.set_ylim(top - 40, top + 4)  # nats; below that nothing can be told apart
        full = float(_of(tables["choices"], study=study, rule="full", q=1.0)["lam"].iloc[0])
        line = ax.axvline(full, color=NEUTRAL, lw=1.2, ls=":", label="λ of all data, q = 1")
        ax.get_legend().remove()
        ax.set_ylabel("log p(X₁ | X₂, λ, q)" if ax is axes[0] else "")
    handles = [
        Line2D([], [], color=LINES[k], marker=MARKERS[k], ms=5, lw=1.6, label=f"q = {q:g}")
        for k, q in enumerate(sorted(EXPONENTS))
    ]
    rough = Line2D([], [], ls="", marker="o", mfc="white", color=NEUTRAL, label="rough")
    star = Line2D([], [], ls="", marker="*", ms=11, mfc="white", mec="black", label="highest point of the grid")
    _legend_of_figure(figure, [*handles, star, rough, line])
    return figure


def _legend_of_figure(figure: Figure, handles: Sequence[Any]) -> None:
    """Below all panels, in as many columns as there is room for."""
    longest = max(len(str(each.get_label())) for each in handles)
    columns = max(1, min(len(handles), int(72 * figure.get_figwidth() / (45 + 0.56 * SMALL * longest))))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=SMALL)


def _draw_agreement(tables: Tables) -> Figure:
    """Quantile errors of the flow at every q, and what the exact sampler's own error is."""
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    ax = figure.subplots()
    studies, width = _studies(tables), 0.025
    for k, study in enumerate(studies):
        points = _of(tables["points"], study=study).sort_values("q")
        at = points["q"] + width * (k - (len(studies) - 1) / 2)
        style: dict[str, Any] = {"ls": "", "marker": MARKERS[k], "ms": 6, "color": LINES[k]}
        ax.vlines(at, points["own_error"], points["error"], color=LINES[k], lw=1)
        ax.plot(at, points["error"], label=study, **style)
        ax.plot(at, points["own_error"], mfc="white", **style)
        refined = points["refined_error"].notna()
        ax.plot(at[refined], points["refined_error"][refined], ls="", marker="x", ms=6, color=LINES[k])
    ax.axhline(LIMIT, color=NEUTRAL, lw=1, ls=":")
    ax.set(xlabel="exponent q", ylabel="quantile error (sd)", xticks=EXPONENTS, ylim=(0, None))
    handles = [Line2D([], [], color=LINES[k], marker=MARKERS[k], ls="", label=study) for k, study in enumerate(studies)]
    grey: dict[str, Any] = {"ls": "", "color": NEUTRAL, "marker": "o"}
    handles += [
        Line2D([], [], **grey, label="flow"),
        Line2D([], [], **grey, mfc="white", label="exact sampler's own"),
        Line2D([], [], color=NEUTRAL, ls=":", label="limit"),
    ]
    if tables["points"]["refined_error"].notna().any():
        handles.append(Line2D([], [], color=NEUTRAL, ls="", marker="x", label="refined draws"))
    legend(ax, handles, loc="center left", bbox_to_anchor=(1.0, 0.5))
    open_frame(ax)
    return figure


def _draw_networks(tables: Tables, study: str) -> Figure:
    """Networks at the compared q, with every variable in the same place."""
    entries = _of(tables["entries"], study=study)
    query = list(clinical.STUDIES[study].clinical)
    genes = sorted(set(entries[entries["edge"]]["column"]) - set(query))
    names, positions = [*query, *genes], None
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    figure.suptitle(
        f"{study}: pairs whose {_percent(EDGE)} interval excludes zero, genes without one left out. "
        "Width: association; blue and solid positive, orange and dashed negative",
        fontsize=9,
    )
    for ax, q in zip(figure.subplots(1, len(COMPARED)), COMPARED, strict=True):
        table = _of(entries, q=q)
        strength, joined = _square(table, names)
        positions = _positions(_square(entries, names)[1], len(query)) if positions is None else positions
        # −ρ with ones on the diagonal has the partial correlations ρ.
        precision = np.eye(len(names)) - strength
        count, lam = int(joined.sum()) // 2, float(table["lam"].iloc[0])
        used = _of(tables["points"], study=study, q=q)["draws"].iloc[0]
        title = f"q = {q:g}, λ = {lam:.1f}: {count} edge{'s' * (count != 1)} ({used} draws)"
        options = {"positions": positions, "isolated": True, "width": 22.0, "key": False}
        plot.network(precision, joined, names, title=title, ax=ax, **options)
        _mark_query(ax, query)
    return figure


def _square(table: Frame, names: Sequence[str]) -> tuple[Float[np.ndarray, "k k"], Bool[np.ndarray, "k k"]]:
    """Associations and edges among these variables, as symmetric matrices."""
    place = {name: k for k, name in enumerate(names)}
    strength, joined = np.zeros((len(names),) * 2), np.zeros((len(names),) * 2, bool)
    for row in table[table["edge"]].itertuples():
        at = place[row.row], place[row.column]
        strength[at] = strength[at[::-1]] = row.mean
        joined[at] = joined[at[::-1]] = True
    return strength, joined


def _positions(joined: Bool[np.ndarray, "k k"], s: int) -> Float[np.ndarray, "k 2"]:
    """The query on an inner circle, genes on an outer one, each as near as may be to what it is joined to."""
    inner = 2 * np.pi * np.arange(s) / s
    pull = joined[s:, :s] @ np.exp(1j * inner)
    # A gene between opposite clinical variables is pulled nowhere; a little of the first one decides.
    first = np.exp(1j * inner[joined[s:, :s].argmax(axis=1)])
    wanted = np.angle(pull + 1e-3 * first)
    order, m = np.argsort(wanted, kind="stable"), len(wanted)
    place = np.empty(m)
    place[order] = 2 * np.pi * np.arange(m) / max(m, 1)
    place += np.angle(np.sum(np.exp(1j * (wanted - place)))) if m else 0.0
    angle = np.concatenate([inner, place])
    return np.repeat([0.5, 1.0], [s, m])[:, None] * np.column_stack([np.sin(angle), np.cos(angle)])


def _mark_query(ax: Axes, query: Sequence[str]) -> None:
    for text in ax.texts:
        if text.get_text() in query:
            text.set_fontweight("bold")
            if (box := text.get_bbox_patch()) is not None:
                box.set(facecolor=_QUERY, linewidth=2.0)


def _draw_intervals(tables: Tables) -> Figure:
    """80 % intervals of the largest associations at the compared q, and the ends that the exact sampler gives."""
    studies = _studies(tables)
    figure = Figure(figsize=(max(7.0, 3.8 * len(studies)), 4.6), layout="constrained")
    for ax, study in zip(figure.subplots(1, len(studies), squeeze=False)[0], studies, strict=True):
        table = _of(tables["entries"], study=study)
        size = table.assign(size=table["mean"].abs()).groupby(["row", "column"])["size"].max()
        chosen = size.sort_values(ascending=False).index[:_MOST_LINES].tolist()
        for k, q in enumerate(COMPARED):
            rows = _of(table, q=q).set_index(["row", "column"]).reindex(chosen)
            y = np.arange(len(chosen)) + 0.18 * (2 * k - 1)
            ax.hlines(y, rows["lower"], rows["upper"], color=LINES[k], lw=2)
            ax.plot(rows["mean"], y, ls="", marker=MARKERS[k], ms=4.5, color=LINES[k])
            for end in ("exact_lower", "exact_upper"):
                ax.plot(rows[end], y, ls="", marker="|", ms=8, mew=1.2, color="black")
        ax.axvline(0, color=NEUTRAL, lw=0.6)
        set_names(ax.yaxis, [f"{row} – {column}" for row, column in chosen], most=_MOST_LINES)
        ax.invert_yaxis()
        ax.set_xlabel("association")
        open_frame(ax)
        set_title(ax, study)
    handles: list[Any] = [
        Line2D(
            [], [], color=LINES[k], marker=MARKERS[k], ms=4.5, lw=2, label=f"q = {q:g}: mean, {_percent(EDGE)} interval"
        )
        for k, q in enumerate(COMPARED)
    ]
    handles.append(Line2D([], [], ls="", marker="|", ms=8, mew=1.2, color="black", label="ends by the exact sampler"))
    _legend_of_figure(figure, handles)
    return figure


def _draw_across_q(tables: Tables) -> Figure:
    """95 % intervals of the strongest entries at every q."""
    studies = _studies(tables)
    figure = Figure(figsize=(11, 2.4 * len(studies) + 0.4), layout="constrained")
    axes = figure.subplots(len(studies), STRONGEST, squeeze=False, sharex=True, sharey="row")
    for row, study in zip(axes, studies, strict=True):
        table = _of(tables["strongest"], study=study)
        pairs = list(table.groupby(["row", "column"], sort=False))
        for ax, ((name, other), part) in zip(row, pairs, strict=True):
            for k, prefix in enumerate(("", "exact_")):
                low, middle, high = (part[f"{prefix}{end}"] for end in ("lower", "median", "upper"))
                style = {"color": (LINES[0], "black")[k], "fmt": MARKERS[k], "ms": 4.5, "capsize": 2, "lw": (1.8, 1)[k]}
                at = part["q"] + 0.012 * (2 * k - 1)
                ax.errorbar(at, middle, yerr=[middle - low, high - middle], **style)
            ax.axhline(0, color=NEUTRAL, lw=0.6)
            ax.set_xticks(EXPONENTS)
            open_frame(ax)
            set_title(ax, f"{name} – {other}")
        row[0].set_ylabel(f"{study}\nassociation", fontsize=SMALL)
    for ax in axes[-1]:
        ax.set_xlabel("exponent q")
    flow = Line2D(
        [], [], color=LINES[0], marker=MARKERS[0], ms=4.5, lw=1.8, label=f"flow: median, {_percent(WIDE)} interval"
    )
    exact = Line2D([], [], color="black", marker=MARKERS[1], ms=4.5, lw=1, label="exact sampler")
    _legend_of_figure(figure, [flow, exact])
    return figure


# ------------------------------------------------------------------------------------------------------------ the words
def section(tables: Tables) -> str:
    """Its part of the page of results."""
    parts = [
        _said_of_data(tables),
        _said_of_choice(tables),
        "![Evidence of λ for each q](assets/results/blanket/evidence.png)",
        _said_of_agreement(tables),
        "![Quantile errors of the flow](assets/results/blanket/agreement.png)",
        _said_of_networks(tables),
        *(
            f"![Networks at q = 1 and q = 0.6, {study}](assets/results/blanket/network_{study}.png)"
            for study in _studies(tables)
        ),
        "![80 % intervals of the largest associations](assets/results/blanket/intervals.png)",
        _said_of_strongest(tables),
        "![95 % intervals of the strongest entries across q](assets/results/blanket/across_q.png)",
    ]
    return "\n\n".join(parts) + "\n"


def _said_of_data(tables: Tables) -> str:
    rows = [
        (
            f"`{each.study}`",
            clinical.STUDIES[each.study].package,
            f"{each.n} ({each.n_dropped} left out)",
            ", ".join(clinical.STUDIES[each.study].clinical),
            f"{each.n_genes}",
            f"{each.entries}",
            f"{each.lam_low:.3g} … {each.lam_high:.3g}",
            f"{each.seconds:.0f}",
        )
        for each in tables["studies"].itertuples()
    ]
    header = ("study", "package", "rows", "clinical variables", "genes", "free entries", "range of λ", "seconds to fit")
    words = f"""The paper asks for the neighbours of a few clinical variables among hundreds of genes in a colorectal
    table that is not public. Here are breast cancer studies that packages of the registry ship, with the same kind of
    question: the clinical variables are the query, all genes the rest. Two of them come with more than ten thousand
    genes, of which those of KEGG's “Pathways in cancer” are kept. Stages and grades are ranks, rows that lack a
    clinical variable are left out, survival stays out of the model because its times are censored, and every column is
    replaced by its normal scores (`transform="nonparanormal"`). `ggmflow.reproduce.clinical` has all of it. One flow is
    fitted to each table, for q from {min(EXPONENTS):g} to {max(EXPONENTS):g} at T = 1."""
    return f"## Clinical variables among genes\n\n{_filled(words)}\n\n{_table(header, rows)}"


def _said_of_choice(tables: Tables) -> str:
    choices, rows = tables["choices"], []
    for study in _studies(tables):
        best = _of(choices, study=study, rule="conditional")["value"].max()
        for q in EXPONENTS:
            found = {rule: _of(choices, study=study, q=q, rule=rule).iloc[0] for rule in RULES}
            below = best - found["conditional"]["value"]
            lams = [f"{found[rule]['lam']:.1f}{' (end)' * bool(found[rule]['at_end'])}" for rule in RULES]
            rows.append((f"`{study}`", f"{q:g}", *lams, f"{below:.1f}"))
    header = ("study", "q", *(f"λ by evidence of {words}" for words in list(RULES.values())[:2]))
    header = (*header, "λ by the published quantity", "nats below the best q")
    ends = int(_of(choices, rule="conditional")["at_end"].sum())
    stakes = _stakes(tables)
    words = f"""**Which λ?** The evidence of all data is a product: that of the genes alone, which depends on λ through
    the covariance among them, and that of the clinical variables given the genes. The first part is none of the
    query's business. At q = 1 the λ of all data is {_span(stakes["ratio"], ".2f")} times that of the clinical variables
    given the genes; there the part of the genes is {_span(stakes["genes"], ".0f")} nats higher, and that of the
    clinical variables {_span(stakes["clinical"], ".0f")} nats lower. The second part chooses λ here, for each q by a
    parabola through the three best points of a grid. {_told_of_ends(ends)} The published quantity (ELBO with the
    constants of the off-diagonal alone) has no part for the genes either. {_told_of_exponents(tables)}"""
    return f"{_filled(words)}\n\n{_table(header, rows)}"


def _told_of_ends(ends: int) -> str:
    return "It is highest inside the fitted range everywhere." if not ends else f"{ends} of these are at an end of it."


def _stakes(tables: Tables) -> Frame:
    """At q = 1, from the λ of the clinical variables given the genes to that of all data: how far each part moves."""
    rows = []
    for study in _studies(tables):
        line = _of(tables["evidence"], study=study, q=1.0).sort_values("lam")
        own, full = (
            _of(tables["choices"], study=study, q=1.0, rule=rule).iloc[0]["lam"] for rule in ("conditional", "full")
        )
        clinical_part = CubicSpline(np.log(line["lam"]), line["conditional"])
        genes_part = CubicSpline(np.log(line["lam"]), line["full"] - line["conditional"])
        at = np.log([own, full])
        rows.append((study, full / own, np.ptp(genes_part(at)), np.ptp(clinical_part(at))))
    return pd.DataFrame(rows, columns=["study", "ratio", "genes", "clinical"])


def _told_of_exponents(tables: Tables) -> str:
    """How much the evidence says about q."""
    found = []
    for study in _studies(tables):
        line = _of(tables["choices"], study=study, rule="conditional")
        best = line.loc[line["value"].idxmax()]
        found.append(f"q = {best['q']:g} ({np.ptp(line['value']):.1f} nats above the worst) in `{study}`")
    return f"Of the five q it prefers {_join(found)}."


def _said_of_agreement(tables: Tables) -> str:
    points, chains = tables["points"], tables["chains"]
    rows = []
    for each in points.itertuples():
        run = _of(chains, study=each.study, q=float(each.q), sampler="exact").iloc[0]
        refined = "" if np.isnan(each.refined_error) else f", refined {each.refined_error:.3f}"
        rows.append(
            (
                f"`{each.study}`",
                f"{each.q:g}",
                f"{each.lam:.1f}",
                f"{each.error:.3f}{refined}",
                f"{each.largest:.2f} ({each.worst})",
                f"{each.own_error:.3f}",
                f"{each.ess:.1%}{' (weighted)' * bool(each.weighted)}",
                f"{run['rhat']:.3f} ({run['share_above']:.1%})",
                f"{run['ess_min']:,.0f}",
                f"{run['seconds']:.0f}",
            )
        )
    header = (
        "study",
        "q",
        "λ",
        "flow's error, sd",
        "worst entry",
        "exact sampler's own",
        "effective draws of the flow",
    )
    header = (*header, "exact: largest R̂ (share above 1.01)", "exact: smallest ESS", "seconds")
    beyond = points[points["error"] > LIMIT]
    outcome = f"""At all {len(points)} points the mean error is at most {points["error"].max():.3f} sd, so draws of the
    flow are used throughout, weighted where the table says so, and none are refined."""
    if len(beyond):
        outcome = f"""At {len(beyond)} of {len(points)} points the mean error is above {LIMIT:g} sd; there the numbers
        below come from refined draws, whose error is at most {beyond["refined_error"].max():.3f}."""
    exact, worst = _of(chains, sampler="exact"), points.loc[points["largest"].idxmax()]
    words = f"""**Is it right?** At the chosen λ of every q the exact blanket sampler runs beside the flow, from starts
    that the flow has no part in. {outcome} This is a mean over hundreds of entries; the worst single one is off by
    {_span(points["largest"], ".2f")} sd, largest for {worst["worst"]} in `{worst["study"]}` at q = {worst["q"]:g}.
    The chains of the exact sampler have R̂ up to {exact["rhat"].max():.3f} over
    all entries and at least {exact["ess_min"].min():,.0f} effective draws, and differ among themselves by
    {_span(points["own_error"], ".3f")} sd. Its seconds are for one (λ, q), compilation included; the flow has them
    all after one fit. As second referee at q = 1 stands the Gibbs sampler of Kaufmann et al. (2015)
    (`baselines.blanket_gibbs`), whose draws share no code with the first:"""
    return f"{_filled(words)}\n\n{_table(header, rows)}\n\n{_told_of_kaufmann(tables)}"


def _told_of_kaufmann(tables: Tables) -> str:
    rows, far = [], []
    for each in tables["kaufmann"].itertuples():
        run = _of(tables["chains"], study=each.study, sampler="Kaufmann").iloc[0]
        chance = float(np.hypot(each.own_error, each.exact_own_error))
        far.append(each.exact_error / chance)
        rows.append(
            (
                f"`{each.study}`",
                f"{each.lam:.1f}",
                f"{each.error:.3f}",
                f"{each.exact_error:.3f}",
                f"{chance:.3f}",
                f"{run['rhat']:.3f} ({run['share_above']:.1%})",
                f"{run['ess_min']:,.0f}",
                f"{run['seconds']:.0f}",
            )
        )
    header = ("study", "λ", "flow − Kaufmann, sd", "exact − Kaufmann, sd", "expected of the last by chance")
    header = (*header, "Kaufmann: largest R̂ (share above 1.01)", "smallest ESS", "seconds")
    verdict = "as much as their own errors explain" if max(far) < 1.25 else "more than their own errors explain"
    words = f"""The two samplers differ by {_span(tables["kaufmann"]["exact_error"], ".3f")} sd,
    {_span(np.array(far), ".2f")} times what chance would do: {verdict}."""
    return f"{_table(header, rows)}\n\n{_filled(words)}"


def _said_of_networks(tables: Tables) -> str:
    points, rows = tables["points"], []
    for each in points[points["q"].isin(COMPARED)].itertuples():
        same = f"{each.edges_both} of {each.edges_exact}"
        rows.append((f"`{each.study}`", f"{each.q:g}", f"{each.lam:.1f}", f"{each.edges}", same, each.draws))
    header = ("study", "q", "λ", f"edges ({_percent(EDGE)} intervals)", "of the exact sampler's edges found", "draws")
    told, exactly = (_where(_fewer_edges(tables, column)) for column in ("edges", "edges_exact"))
    words = f"""**Networks.** A pair is an edge if its {_percent(EDGE)} interval excludes zero, as in the paper. The
    network at q = 0.6 has fewer edges than that at q = 1 {told} by the flow, {exactly} by the exact
    sampler. Each q has its own λ here. Nothing is known of the
    truth in these tables, so this compares penalties and does not say which network is better. An association is a
    partial correlation between two clinical variables, and the weight of a gene in the regression of a clinical
    variable on everything else. The largest at q = 1: {_largest(tables)}."""
    return f"{_filled(words)}\n\n{_table(header, rows)}"


def _fewer_edges(tables: Tables, column: str = "edges") -> Frame:
    """Whether the network at the lowest q has fewer edges, by study."""
    wide = _edges(tables, column)
    return wide[min(COMPARED)] < wide[max(COMPARED)]


def _edges(tables: Tables, column: str) -> Frame:
    """Number of edges by study and q."""
    return tables["points"].pivot_table(index="study", columns="q", values=column).reindex(_studies(tables))


def _where(holds: Frame) -> str:
    """In which studies something holds, in words."""
    if holds.all() or not holds.any():
        return "in all of them" if holds.all() else "in none of them"
    return f"in {_join([f'`{study}`' for study in holds.index[holds]])} alone"


def _largest(tables: Tables) -> str:
    """The largest association of each study at q = 1, in words."""
    found = []
    for study in _studies(tables):
        table = _of(tables["entries"], study=study, q=1.0)
        top = table.loc[table["mean"].abs().idxmax()]
        interval = f"[{top['lower']:+.2f}, {top['upper']:+.2f}]"
        found.append(f"{top['row']} – {top['column']} in `{study}`, {top['mean']:+.2f} {interval}")
    return _join(found)


def _said_of_strongest(tables: Tables) -> str:
    table, rows = tables["strongest"], []
    for (study, row, column), part in table.groupby(["study", "row", "column"], sort=False):
        cells = []
        for q in EXPONENTS:
            each = _of(part, q=q).iloc[0]
            cells.append(f"{each['median']:+.2f} [{each['lower']:+.2f}, {each['upper']:+.2f}]")
        rows.append((f"`{study}`", f"{row} – {column}", *cells))
    header = ("study", "pair", *(f"q = {q:g}" for q in EXPONENTS))
    change = _change_of_size(tables)
    larger, wider = int((change["size"] > 0).sum()), int((change["width"] > 0).sum())
    words = f"""**The strongest entries.** The {STRONGEST} pairs of largest |association| at q = 1 in each study, with
    their {_percent(WIDE)} intervals at every q, each at its own λ. From q = 1 to q = 0.6 the median of {larger} of
    these {len(change)} pairs moves away from zero and the interval of {wider} gets wider. Ends of intervals differ from
    the exact sampler's by {_distance_of_ends(tables):.3f} on average, {_share_of_width(tables):.1%} of their width."""
    return f"{_filled(words)}\n\n{_table(header, rows)}"


def _change_of_size(tables: Tables) -> Frame:
    """Change of |median| and of the interval's width from q = 1 to the lowest q, a row for each pair."""
    table = tables["strongest"]
    table = table.assign(size=table["median"].abs(), width=table["upper"] - table["lower"])
    one, low = (_of(table, q=q).set_index(["study", "row", "column"])[["size", "width"]] for q in COMPARED)
    return low - one


def _distance_of_ends(tables: Tables) -> float:
    table = tables["strongest"]
    return float(np.mean([np.abs(table[end] - table[f"exact_{end}"]) for end in ("lower", "upper")]))


def _share_of_width(tables: Tables) -> float:
    table = tables["strongest"]
    return _distance_of_ends(tables) / float(np.mean(table["exact_upper"] - table["exact_lower"]))


def verdicts(tables: Tables) -> pd.DataFrame:
    """Published and measured, a row for each claim."""
    points, kaufmann = tables["points"], tables["kaufmann"]
    beyond = int((points["error"] > LIMIT).sum())
    final = points["refined_error"].fillna(points["error"]).max()
    fewer, change = _fewer_edges(tables), _change_of_size(tables)
    counts = [
        "; ".join(f"{study} {row[max(COMPARED)]:.0f} → {row[min(COMPARED)]:.0f}" for study, row in wide.iterrows())
        for wide in (_edges(tables, "edges"), _edges(tables, "edges_exact"))
    ]
    larger = int((change["size"] > 0).sum())
    rows = [
        (
            "blanket: quantiles of the flow beside the exact sampler's, sd",
            "not checked",
            f"{_span(points['error'], '.3f')} at {len(points)} points; {beyond} refined",
            "agree" if final <= LIMIT else f"off by up to {final:.2f}",
        ),
        (
            "blanket: the same beside the sampler of Kaufmann et al., q = 1",
            "not checked",
            f"{_span(kaufmann['error'], '.3f')} at {len(kaufmann)} points",
            "agree" if kaufmann["error"].max() <= LIMIT else f"off by up to {kaufmann['error'].max():.2f}",
        ),
        (
            f"blanket: edges by {_percent(EDGE)} intervals at q = 1 → q = 0.6",
            "a figure (colorectal table, not public)",
            f"{counts[0]} (exact sampler: {counts[1]})",
            f"sparser at q = 0.6 in {int(fewer.sum())} of {len(fewer)} tables",
        ),
        (
            f"blanket: {_percent(WIDE)} intervals of the four strongest entries, q = 1 → q = 0.6",
            "a figure (the same table)",
            f"median away from zero for {larger} of {len(change)}",
            "less shrinkage at small q" if larger == len(change) else f"less shrinkage for {larger} of {len(change)}",
        ),
    ]
    return pd.DataFrame(rows, columns=["what", "published", "ours", "verdict"])


def _span(values: Frame, digits: str) -> str:
    """Smallest to largest of some numbers."""
    low, high = (format(float(each), digits) for each in (np.min(values), np.max(values)))
    return low if low == high else f"{low} to {high}"


def _percent(level: float) -> str:
    return f"{100 * level:g} %"


def _join(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _filled(paragraph: str) -> str:
    return textwrap.fill(" ".join(paragraph.split()), 120, break_long_words=False, break_on_hyphens=False)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", r"\|") for cell in line) + " |" for line in lines)
