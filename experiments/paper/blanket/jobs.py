"""Clinical variables among genes: the Markov blanket of a few variables in three real tables, at every λ and q.

    p(X | λ, q) = p(X₂ | λ) · p(X₁ | X₂, λ, q),     X₁ the clinical variables (the query), X₂ the genes

The first factor belongs to Ω₂₂.₁, which is not part of the query, and dominates the evidence. So λ is chosen by the
second factor,

    log p(X₁ | X₂, λ, q) = log Z_post(λ, q) − log Z_prior(λ, q) − (ns/2) log 2π.

Quantile errors are mean |difference| from a sampler's 5, 50 and 95 % quantiles over all free entries of [Ω₁₁ Ω₁₂], in
units of its standard deviation.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from experiments.paper.blanket import clinical
from experiments.paper.choice import peak
from experiments.paper.record import Job, timed
from experiments.paper.reference import LEVELS, LIMIT, Reference, error_of_entries, free, quantile_error, refer
from experiments.paper.statistics import Frame
from ggmflow import gibbs
from ggmflow.baselines import blanket_gibbs
from ggmflow.data.scatter import Scatter
from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.evidence.marginal_likelihood import log_evidence, published_constants
from ggmflow.evidence.prior import fit_prior, prior_ranges
from ggmflow.model.conditions import Ranges, likely_lam
from ggmflow.model.precision import association
from ggmflow.modes.penalized_likelihood import BLAS
from ggmflow.posterior.posterior import PoorFitWarning, Posterior
from ggmflow.storage.cache import compilation_cache_enabled

EXPONENTS = (1.0, 0.9, 0.8, 0.7, 0.6)
COMPARED = (1.0, 0.6)  # networks side by side
EDGE, WIDE = 0.8, 0.95  # credible intervals of the networks, and of the strongest entries
STRONGEST = 4
BELOW, ABOVE = 15, 1.25  # factors that the range of λ goes beyond a guess
RULES = {"conditional": "clinical variables given genes", "full": "all data", "published": "as published"}


class Effort(NamedTuple):
    """Length of the chains of a sampler; `thin` sweeps per draw."""

    num_chains: int
    num_draws: int
    num_warmup: int
    thin: int


class Settings(NamedTuple):
    """All settings that the numbers depend on.

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
    steps=25,
    num_draws=1000,
    num_lam=5,
    num_evidence_draws=1000,  # as many as `num_draws`, and chains like those that refine: fewer programs to compile
    exact=Effort(50, 10, 50, 5),
    kaufmann=Effort(2, 100, 50, 1),
    refine=(10, 50),
)


def make_jobs(settings: Settings) -> list[Job]:
    """A flow with its evidence for each study, then a job for each q.

    The flow of a study stays in memory for the jobs that follow. A run that is continued in between trains it
    again, with the same result.
    """
    made = []
    for study in settings.studies:
        made.append(Job(f"{study}: flow and evidence", partial(run_fit, settings, study)))
        made += [Job(f"{study}: q = {q:g}", partial(run_exponent, settings, study, q)) for q in EXPONENTS]
    return made


class Fitted(NamedTuple):
    """The flow of a study and the λ of highest evidence.

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
        Wall time of fit and evidence.
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
    """Ignore warnings of poor fits, whose errors are in the tables; cache programs; one BLAS thread, for busy cores."""
    with compilation_cache_enabled(), BLAS.limit(limits=1, user_api="blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorFitWarning)
        yield


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
    scatter = Scatter.from_data(data.table, mean="known", transform="nonparanormal")
    guess = likely_lam(scatter, scatter.index(data.query))
    model = GraphicalFlow(
        # The guess suits all data, mostly genes; a smaller λ suits the clinical variables.
        lam=(guess / BELOW, guess * ABOVE),
        q=(min(EXPONENTS), max(EXPONENTS)),
        temperature=1.0,
        query=data.query,
        mean="known",
        transform="nonparanormal",
        steps=settings.steps,
        random_state=settings.seed,
        progress=False,
    )
    with _quiet():
        _, seconds = timed(lambda: model.fit(data.table))
        evidence, evidence_seconds = timed(lambda: evidence_grid(model, settings))
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


def run_fit(settings: Settings, study: str) -> dict[str, pd.DataFrame]:
    """Tables about the fit, the evidence and the chosen λ."""
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


def run_exponent(settings: Settings, study: str, q: float) -> dict[str, pd.DataFrame]:
    """The flow at the λ chosen for a q, beside the exact sampler; at q = 1 beside Kaufmann's too."""
    fit = fitted(settings, study)
    lam, scatter, s = fit.lam[q], fit.model.scatter_, len(fit.data.query)
    where = {"study": study, "q": q, "lam": lam}
    with _quiet():
        effort = settings.exact._asdict()
        key = jax.random.fold_in(jax.random.key(settings.seed), round(100 * q))
        chains, seconds = timed(lambda: gibbs.sample(key, scatter, lam, q, n_query=s, **effort))
        reference, entries = refer(chains.draws), free(chains.draws)
        post = fit.model.posterior(lam, q, num_draws=settings.num_draws)
        error = quantile_error(post.quantile(LEVELS), reference)
        known, used, refined_error = post.diagnostics(), post, np.nan
        if error.mean > LIMIT:
            sweeps, num_chains = settings.refine
            used = post.refine(sweeps, num_chains=num_chains, random_state=settings.seed)
            refined_error = quantile_error(used.quantile(LEVELS), reference).mean
        exact = chains.pooled
        edges, edges_exact = used.edges(level=EDGE)[entries], _excludes_zero(exact[:, *entries])
        edges_exact &= entries[0] != entries[1]
        point = {
            **where,
            "weighted": known["weighted"],
            "ess": known["ess"],
            "khat": known["khat"],
            "error": error.mean,
            "largest": error.largest,
            "worst": " – ".join(fit.data.table.columns[index[error.worst]] for index in entries),
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
            shown[entries] |= edges | edges_exact
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
    entries = free(chains.draws)
    rhat, ess = chains.rhat[entries], chains.ess_bulk[entries]
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
    """Compare the flow and the exact sampler with the Gibbs sampler of Kaufmann et al. at q = 1."""
    num_chains, num_draws, burn_in, thin = settings.kaufmann
    options = {"num_chains": num_chains, "num_draws": num_draws, "burn_in": burn_in, "thin": thin}
    scatter, query = fit.model.scatter_, fit.data.query
    chains, seconds = timed(lambda: blanket_gibbs(scatter, query, fit.lam[1.0], **options, random_state=settings.seed))
    reference = refer(chains.draws)
    ours = quantile_error(post.quantile(LEVELS), reference)
    theirs = error_of_entries(exact.quantiles, reference)
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
