"""The posterior of a precision matrix at one (λ, q, T), as seen through draws and their importance weights.

    E f(Ω) ≈ Σ_i w_i f(Ω_i),   w_i ∝ p̃(Ω_i)/q(Ω_i) where the weights can be trusted, else w_i = 1/N

How draws are made is the business of a `Source`.
"""

import warnings
from collections.abc import Sequence
from functools import cached_property
from numbers import Integral, Real
from typing import Any, cast, final

import jax
import networkx as nx
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int, Key
from numpy.typing import ArrayLike

from ggmflow.data.scatter import Scatter
from ggmflow.data.table import check_names
from ggmflow.model.precision import check_rows, free_entries
from ggmflow.posterior.edges import EdgeSelection, Penalty, find_rule, select
from ggmflow.posterior.estimates import ENDS, Matrix, Sample, named
from ggmflow.posterior.notebook_html import Level, card, name_some
from ggmflow.posterior.predictive import Rest, conditional_table, draw_rows_of_data, explained_share, regression
from ggmflow.posterior.refinement import Refinement, run_chains
from ggmflow.posterior.source import (
    ChainSource,
    Draws,
    RandomState,
    Refinable,
    Source,
    as_key,
    draw_entries,
    draw_rows,
    require_draws,
)
from ggmflow.posterior.to_arviz import inference_data
from ggmflow.posterior.weights import (
    ImportanceWeights,
    blocks,
    importance_weights,
    resample,
    sort_order,
    weighted_quantile,
)
from ggmflow.storage.memory import require

_QUICK = 2**24  # numbers behind an answer that takes no noticeable time
_MOST = 10**9  # draws, chains or sweeps: more are a mistake that would end in lack of memory or of patience

__all__ = ["Posterior", "EdgeSelection", "PoorFitWarning", "Refinement", "Draws", "Source"]


class PoorFitWarning(UserWarning):
    """The draws are a poor stand-in for the posterior, or few of them count; the message says which and what to do."""


@final
class Posterior:
    """Posterior of the precision matrix Ω, or of the rows [Ω₁₁ Ω₁₂] of a query, at one (λ, q, temperature).

    Every matrix that comes back has a row for each query variable, in the order asked, and a column for each variable,
    in the order of the data: (s, d), which is (d, d) without a query. Values are in the working scale. With
    ``as_frame=True`` it is a DataFrame with the names of both; several quantiles, or the two ends of an interval, are
    then below each other, with a first level of the index that tells them apart: ``frame.loc["lower"]``.

    Estimates rest on `num_draws` draws made once, at first use. They are weighted by Pareto-smoothed importance weights
    if k̂ < 0.7 (a little less for fewer than 2200 draws); otherwise weights would do more harm than good and all draws
    count equally. Where k̂ is larger, or few draws are effective, a `PoorFitWarning` says so once. The property
    `weighted` tells what estimates do; the argument `weighted=True` or `False` of every estimate overrides it.

    Parameters
    ----------
    source
        Where draws come from.
    names
        The d column names.
    query : (s,) array of int
        Column to which each row belongs.
    lam, q, temperature
        The condition, for messages; None for a mixture over conditions.
    num_draws
        Draws behind the estimates. They are kept: 8 bytes for each free entry of each draw.
    random_state
        Seed of these draws. The default makes every estimate reproducible.
    refinement
        What is known of the chains that the draws come from, if they do.
    scatter
        The data behind it. It brings predictions to the scale of the data; without it they are in the working scale.
    """

    def __init__(
        self,
        source: Source,
        names: tuple[str, ...],
        query: Int[np.ndarray, " s"],
        lam: float | None,
        q: float | None,
        temperature: float | None,
        *,
        num_draws: int = 4000,
        random_state: RandomState = 0,
        refinement: Refinement | None = None,
        scatter: Scatter | None = None,
    ):
        self.refinement, self.scatter = refinement, scatter
        self.source, self.lam, self.q, self.temperature = source, lam, q, temperature
        self.names = check_names(names, len(names))
        self.query = _check_query(query, len(self.names))
        self.num_draws = check_count(num_draws)
        self._key = as_key(random_state)
        self._free = free_entries(self.query, len(self.names))
        require_draws(self.num_draws, len(self._free.row))  # now, not at first use
        self._warned = False
        if scatter is not None and scatter.names != self.names:
            raise ValueError(f"the data have other names ({', '.join(scatter.names[:4])}, …) than the posterior")

    # ---------------------------------------------------------------------------------------------- draws and density
    def sample(
        self, num_draws: int, random_state: RandomState = None, *, weighted: bool = False
    ) -> Float[np.ndarray, "N s d"]:
        """Draw rows of Ω.

        Parameters
        ----------
        num_draws
            N.
        random_state : int, numpy Generator or RandomState, or None
        weighted
            False: independent draws of the fitted distribution as it is. True: sampling-importance-resampling. Four
            times as many draws (at least as many as estimates use) are weighted, and N are taken in proportion to
            their weights. They follow the posterior more closely, but some may repeat: they are not independent.

        Returns
        -------
        (N, s, d) array
        """
        return self._draw_rows(as_key(random_state), check_count(num_draws), weighted)

    def _draw_rows(self, key: Key[Array, ""], num_draws: int, weighted: bool) -> Float[np.ndarray, "N s d"]:
        key, key_resample = jax.random.split(key)
        if not weighted:
            return draw_rows(self.source, key, num_draws, self._free.position.shape)
        entries, log_ratio = draw_entries(self.source, key, max(4 * num_draws, self.num_draws), self._free)
        if log_ratio is None:
            return self._matrix(entries.T[:num_draws])
        weights = importance_weights(log_ratio)
        self._warn_if_poor(weights, "Among weighted draws a few will repeat often.", stacklevel=4)
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key_resample)))
        return self._matrix(entries.T[resample(rng, weights.values, num_draws)])

    def log_prob(self, precision: ArrayLike) -> float | Float[np.ndarray, " k"]:
        """Normalized log density of the fitted distribution, w.r.t. Lebesgue measure on the free entries of Ω.

        Parameters
        ----------
        precision : (s, d) or (k, s, d) array-like
            Rows of positive definite matrices, in the working scale.

        Returns
        -------
        float or (k,) array
        """
        rows, single = check_rows(precision, self.query, len(self.names))
        out = np.asarray(self.source.log_prob(rows), np.float64)
        return float(out[0]) if single else out

    def refine(self, sweeps: int = 50, *, num_chains: int = 1000, random_state: RandomState = 0) -> "Posterior":
        """A posterior whose draws are exact up to the length of chains.

        Draws of this one, weighted where that is safe, start chains of the exact sampler. What the flow gets wrong
        fades with every sweep; `refinement` of the result says how far that has come, and how wrong the flow was.

        Parameters
        ----------
        sweeps
            Length of the chains.
        num_chains
            Their number.
        random_state : int, numpy Generator or RandomState, or None

        Returns
        -------
        Posterior
            Its draws are states of the second half of all chains, all of equal weight.
        """
        if not hasattr(self.source, "refine"):
            raise ValueError("these draws are exact already, or a mixture: refine the posterior at one (λ, q)")
        key_start, key_chains = jax.random.split(as_key(random_state))
        num_chains, sweeps = check_count(num_chains, "num_chains"), check_count(sweeps, "sweeps")
        start = self._draw_rows(key_start, num_chains, self.weighted)
        source = cast(Refinable, self.source)
        states, known = run_chains(source, key_chains, start, self._free, self._sample, sweeps)
        condition = (self.lam, self.q, self.temperature)
        options: dict[str, Any] = {"num_draws": len(states), "refinement": known, "scatter": self.scatter}
        return Posterior(ChainSource(states, known.num_chains), self.names, self.query, *condition, **options)

    # ------------------------------------------------------------------------------------------------------- estimates
    @cached_property
    def weighted(self) -> bool:
        """Whether estimates use importance weights: the draws are not exact anyway, k̂ allows it, and the weights
        correct more than the noise that they add.
        """
        return self._weights is not None and self._weights.reliable and self._sample.gains(self._weights.values)

    def mean(self, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """Posterior mean of every entry, (s, d)."""
        return self._named(self._matrix(self._sample.mean(self._use(weighted))), as_frame)

    def sd(self, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """Posterior standard deviation of every entry, (s, d)."""
        return self._named(self._matrix(self._sample.sd(self._use(weighted))), as_frame)

    def median(self, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """Posterior median of every entry, (s, d)."""
        return self._named(self._matrix(self._sample.quantile([0.5], self._use(weighted))[0]), as_frame)

    def quantile(self, probs: ArrayLike, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """Posterior quantiles of every entry: (s, d) for one probability, (k, s, d) for k of them.

        In a DataFrame the matrix of the probability p is ``frame.loc[p]``.
        """
        try:
            levels = np.asarray(probs)
        except (ValueError, TypeError):  # lists of different lengths, or what is no list
            levels = np.empty((0, 0))
        if levels.dtype.kind not in "iuf" or levels.ndim > 1 or not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError(f"probs must be one or more probabilities from 0 to 1, got {probs!r}")
        out = self._matrix(self._sample.quantile(np.atleast_1d(levels), self._use(weighted)))
        if not levels.ndim:
            return self._named(out[0], as_frame)
        return self._named(out, as_frame, [float(each) for each in levels])

    def interval(self, level: float = 0.9, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """Lower and upper end of the equal-tailed credible interval of every entry, (2, s, d).

        In a DataFrame they are ``frame.loc["lower"]`` and ``frame.loc["upper"]``.
        """
        return self._named(self._matrix(self._sample.quantile(_tails(level), self._use(weighted))), as_frame, ENDS)

    def select_edges(
        self,
        rule: str | None = None,
        *,
        level: float | None = None,
        rate: float | None = None,
        threshold: float | None = None,
        cut: float | None = None,
        weighted: bool | None = None,
    ) -> EdgeSelection:
        """Which pairs are edges, by a rule that the result names.

        Parameters
        ----------
        rule : {"f1", "interval", "fdr", "probability"}, optional
            By default the one that the given number belongs to, "f1" without any.

            - "f1" needs no numbers: a two-group model turns the scores of all pairs, |mean|/sd with shrinkage accounted
              for, into probabilities of an edge, and the set of highest expected F1 is chosen. Where the data say
              little it is large and mostly false, as `expected_fdr` tells.
            - "interval", the paper's rule: the credible interval of `level` (0.9) excludes zero.
            - "fdr": the largest set whose mean probability of no edge in the same two-group model, the expected false
              discovery rate, is at most `rate` (0.1).
            - "probability": P(|association| > `threshold`) is above `cut` (0.1, 0.5).
        level, rate, threshold, cut
            Of the rule that they belong to.
        weighted
            Overrides the property `weighted`.

        Returns
        -------
        EdgeSelection
            edges, rule, probability, expected_fdr, expected_f1, n_edges.
        """
        rule, numbers = find_rule(rule, level=level, rate=rate, threshold=threshold, cut=cut)
        return self._select(self._use(weighted), rule, numbers)

    @property
    def penalties(self) -> tuple[Penalty, ...]:
        """l_q factors of the density that was drawn from, with λ/T as strength; none if λ and q are not known."""
        if self.lam is not None and self.q is not None:
            return (Penalty(self.lam / (self.temperature or 1.0), self.q),)
        return tuple(getattr(self.source, "penalties", ()))

    def _select(self, w: Float[np.ndarray, " N"], rule: str, numbers: dict[str, float]) -> EdgeSelection:
        n_samples = None if self.scatter is None else self.scatter.n
        conditions = (self.penalties, self.temperature or 1.0, n_samples)
        return select(self._sample, w, len(self.names), rule, numbers, *conditions)

    def edges(
        self,
        level: float | None = None,
        *,
        rule: str | None = None,
        rate: float | None = None,
        threshold: float | None = None,
        cut: float | None = None,
        weighted: bool | None = None,
        as_frame: bool = False,
    ) -> Matrix:
        """The edges alone of `select_edges`, (s, d) of bool; no variable has an edge to itself.

        ``edges()`` is the default rule, ``edges(level=0.9)`` the entries whose 90 % credible interval excludes zero.
        """
        rule, numbers = find_rule(rule, level=level, rate=rate, threshold=threshold, cut=cut)
        return self._named(self._select(self._use(weighted), rule, numbers).edges, as_frame)

    def association(self, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """Posterior mean of the strength of every pair, (s, d), with ones for a variable and itself.

        For two query variables it is the partial correlation −ω_ij/√(ω_ii ω_jj). For a query variable i and a column j
        outside the query ω_jj is not known; there it is the weight −ω_ij/ω_ii of x_j in the regression of x_i on all
        other variables. The two are equal if x_i and x_j are equally well explained by the others, ω_ii = ω_jj. A
        partial correlation lies between −1 and 1, a regression weight need not.
        """
        return self._named(self._matrix(self._sample.association(self._use(weighted))), as_frame)

    def association_interval(
        self, level: float = 0.9, *, weighted: bool | None = None, as_frame: bool = False
    ) -> Matrix:
        """Lower and upper end of the equal-tailed credible interval of every `association`, (2, s, d)."""
        return self._named(
            self._matrix(self._sample.association_quantile(_tails(level), self._use(weighted))), as_frame, ENDS
        )

    def partial_correlation(self, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """Posterior mean of partial correlations among the query variables, (s, s), in the order asked.

        A query does not hold the diagonal of the other variables; see `association` for those.
        """
        return self._named(
            self._matrix(self._sample.association(self._use(weighted)))[:, self.query], as_frame, square=True
        )

    def edge_probability(
        self, threshold: float = 0.1, *, weighted: bool | None = None, as_frame: bool = False
    ) -> Matrix:
        """P(|association| > threshold) of every pair, (s, d), 0 for a variable and itself.

        Under a continuous posterior no partial correlation (or, for a column outside the query, regression weight; see
        `association`) is exactly zero, so "an edge" means one that is larger than `threshold`.
        """
        threshold = _check_threshold(threshold)
        return self._named(self._matrix(self._sample.edge_probability(threshold, self._use(weighted))), as_frame)

    def sign_probability(self, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """P(partial correlation > 0) = P(ω_ij < 0) of every pair, (s, d), 1 for a variable and itself.

        Near 1 the association is surely positive, near 0 surely negative, at ½ its sign is unknown.
        """
        return self._named(self._matrix(self._sample.sign_probability(self._use(weighted))), as_frame)

    def local_false_sign_rate(self, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """Probability that the likelier sign of an entry is wrong, min(P(ω_ij < 0), P(ω_ij > 0)), (s, d).

        At most ½; 0 for a variable and itself. A small rate means that the sign is known, not that there is an edge:
        where all entries are taken to be nonzero, many that are zero have one.
        """
        positive = self._matrix(self._sample.sign_probability(self._use(weighted)))
        return self._named(np.minimum(positive, 1 - positive), as_frame)

    def summary(
        self,
        level: float | None = None,
        threshold: float = 0.1,
        *,
        rule: str | EdgeSelection | None = None,
        weighted: bool | None = None,
    ) -> pd.DataFrame:
        """One row per free entry of Ω, row by row.

        Parameters
        ----------
        level
            Of the credible intervals, 0.9 if not given. If it is, and no rule, edges are the entries whose interval
            excludes zero.
        threshold
            Of `edge_probability`; of the rule "probability" too.
        rule
            What makes an edge: one of the rules of `select_edges`, or what that returned; the default is its default.
        weighted
            Overrides the property `weighted`.

        Returns
        -------
        DataFrame
            Columns row, column (names), mean, sd, median, lower, upper (of ω_ij), edge, p_positive
            (`sign_probability`), edge_probability, association, association_lower, association_upper (its own interval;
            ω_ij and the association differ in sign). From p_positive on they mean nothing for a diagonal entry and are
            missing there.
            `attrs` holds level, threshold, the rule in words with its expected_fdr, weighted and the message of
            `diagnostics`.
        """
        table = self._table(level, threshold, rule, weighted)
        ends = self._sample.association_quantile(_tails(table.attrs["level"]), self._use(weighted))
        for label, values in zip(("association_lower", "association_upper"), ends, strict=True):
            table[label] = np.where(self._free.diagonal, np.nan, values)
        return table

    def to_networkx(
        self,
        level: float | None = None,
        rule: str | EdgeSelection | None = None,
        *,
        weighted: bool | None = None,
    ) -> nx.Graph:
        """The graph of the edges.

        Nodes are names: all query variables, and of the others those that an edge joins to the query. So all variables
        are there for a full matrix, and otherwise the query with its Markov blanket.

        Parameters
        ----------
        level
            Of the credible intervals, 0.9 if not given. If it is, and no rule, edges are the entries whose interval
            excludes zero.
        rule
            What makes an edge, as in `summary`.
        weighted
            Overrides the property `weighted`.

        Returns
        -------
        networkx.Graph
            Graph attributes: those of `summary`, the rule in words among them. Node attributes: query (bool), column
            (position in the data). Edge attributes: weight (`association`), its interval weight_lower, weight_upper,
            scale ("partial correlation" or "regression weight": what the weight is), mean, lower, upper (of ω_ij),
            p_positive, edge_probability (at 0.1). All are plain Python values, so any exporter can write them.
        """
        table, w = self._table(level, 0.1, rule, weighted), self._use(weighted)
        free, labels = self._free, ["mean", "lower", "upper", "p_positive", "edge_probability"]
        numbers, weight = table[labels].to_numpy().tolist(), table["association"].to_list()
        graph = nx.Graph()
        graph.graph.update({str(label): value for label, value in table.attrs.items()})
        graph.add_nodes_from((self.names[k], {"query": True, "column": int(k)}) for k in self.query)
        for k in np.flatnonzero(table["edge"]).tolist():
            name = self.names[free.column[k]]
            graph.add_node(name, query=bool(free.inside[k]), column=int(free.column[k]))
            scale = "partial correlation" if free.inside[k] else "regression weight"
            attributes = dict(zip(labels, numbers[k], strict=True))
            draws = self._sample.association_draws(slice(k, k + 1))
            ends = weighted_quantile(draws, sort_order(draws), w, np.array(_tails(table.attrs["level"])))[:, 0].tolist()
            attributes |= dict(zip(("weight_lower", "weight_upper"), ends, strict=True))
            graph.add_edge(self.names[self.query[free.row[k]]], name, weight=weight[k], scale=scale, **attributes)
        return graph

    def to_arviz(self, num_draws: int = 1000, random_state: RandomState = 0) -> Any:
        """Draws for ArviZ, with names as coordinates: ``az.plot_forest(post.to_arviz(), coords={"row": "a"})``.

        Needs ArviZ: ``pip install 'arviz<1' h5netcdf``. Draws of a flow are independent of each other, or, where
        weights can be trusted, resampled by them, so a few may repeat; either way they are one chain, for which ArviZ's
        R̂ is not defined. After `refine` there are the chains of the exact sampler, each in the order of time. ArviZ's
        R̂ needs at least four states of a chain: of 1000 chains so many are kept for up to 45 variables, of fewer
        chains for more. Of chains that short it is a few hundredths above 1 also where `refinement.rhat`, which
        compares times instead of chains, says that they have converged.

        Parameters
        ----------
        num_draws
            N, over all chains. After `refine` it is rounded up to whole chains, and there are no more than all of them.
        random_state : int, numpy Generator or RandomState, or None
            For draws of a flow. After `refine` the chains are given as they are.

        Returns
        -------
        arviz.InferenceData, or xarray.DataTree from ArviZ 1.0 on
            The group posterior holds `precision` (working scale) and `association` with dimensions chain, draw, row
            (the query) and column (all variables). Its attributes: lam, q, temperature (as far as they are known),
            message (that of `diagnostics`), versions.
        """
        free = self._free
        rows = self.source.by_chain(check_count(num_draws)) if isinstance(self.source, ChainSource) else None
        if rows is None:
            rows = self.sample(num_draws, random_state, weighted=self.weighted)[None]
        entries = rows[..., free.row, free.column]
        association = Sample(entries.reshape(-1, len(free.row)).T, free).association_draws(slice(None))
        association[free.diagonal] = 1.0
        attributes = {"lam": self.lam, "q": self.q, "temperature": self.temperature, "message": self._message()}
        return inference_data(
            {"precision": rows, "association": self._matrix(association.T.reshape(entries.shape))},
            tuple(self.names[k] for k in self.query),
            self.names,
            attributes,
        )

    # ------------------------------------------------------------------------------------------------------ prediction
    def predictive(
        self, num_draws: int, random_state: RandomState = None, *, weighted: bool | None = None
    ) -> Float[np.ndarray, "N d"]:
        """New rows of data, x ~ ∫ N(μ, Ω⁻¹) p(Ω | X) dΩ, in the scale of the data.

        Each row has a precision matrix of its own, one of the draws behind the estimates, taken as often as its weight
        says. The mean μ is taken as known: the column means. After transform="nonparanormal" normal scores are turned
        back to values by the observed ones (`Scatter.to_original`).

        With a query the other variables follow their own posterior, which is a multivariate t and not penalized, and
        query variables their distribution given those; this needs the data and one λ.

        Parameters
        ----------
        num_draws
            N.
        random_state : int, numpy Generator or RandomState, or None
        weighted
            Overrides the property `weighted`.

        Returns
        -------
        (N, d) array
            Columns in the order of `names`.
        """
        num_draws, rest = check_count(num_draws), self._rest()
        require(16 * num_draws * len(self.names), f"{num_draws} rows of {len(self.names)} columns", "ask for fewer")
        w, rng = self._use(weighted), _numpy_rng(as_key(random_state))
        chosen = resample(rng, w, num_draws)
        x = [draw_rows_of_data(rng, self._rows(chosen[part]), self.query, rest) for part in self._blocks(num_draws)]
        return self._units.to_original(np.concatenate(x))

    def conditional(self, given: Any, level: float = 0.9, *, weighted: bool | None = None) -> pd.DataFrame:
        """Variables that are not known, given those that are: x_a | x_b ~ N(μ_a − Ω_aa⁻¹Ω_ab(x_b − μ_b), Ω_aa⁻¹).

        The uncertainty of Ω is included: the answer is the average of this over the posterior. The mean μ is taken as
        known: the column means. After transform="nonparanormal" the model is one of normal scores; values are turned to
        scores and back, and mean and sd are those of the values, by quadrature.

        Parameters
        ----------
        given : mapping, pandas Series, pandas or polars DataFrame
            Names and values of what is known, in the scale of the data. A mapping has a number for each name, or one
            for each case; a table has a row for each case, and NaN where a case lacks a value. Whatever is not given is
            predicted; ``{}`` asks for the marginal distributions. With a query all variables outside it must be given.
        level
            Of the predictive interval.
        weighted
            Overrides the property `weighted`.

        Returns
        -------
        DataFrame
            A row for each case and each variable that it lacks: case (the table's index, or 0, 1, …), variable, mean,
            sd (of the prediction: var x = E var(x | Ω) + var E(x | Ω)), sd_mean (of E(x | Ω): what more data could
            remove), lower and upper (interval that x falls into with probability `level`). `attrs` holds level,
            weighted and the message of `diagnostics`.
        """
        probs, w = _tails(level), self._use(weighted)
        return self._with_attrs(conditional_table(self._regression, w, given, probs, self._units), level, weighted)

    def r_squared(self, level: float = 0.9, *, weighted: bool | None = None) -> pd.DataFrame:
        """How much of the variance of each variable all others explain: R²_i = 1 − 1/(ω_ii Σ_ii), Σ = Ω⁻¹.

        It is the share in the population, of a regression with the coefficients of each Ω: between 0 and 1, with no
        adjustment to make, and free of the scale. After transform="nonparanormal" it is that of the normal scores.

        With a query Σ_ii needs the covariance of the other variables; it is drawn from its own posterior, so the data
        and one λ must be known.

        Parameters
        ----------
        level
            Of the credible interval.
        weighted
            Overrides the property `weighted`.

        Returns
        -------
        DataFrame
            A row for each query variable, the index: mean, sd, lower, upper. `attrs` as in `conditional`.
        """
        probs, rest = np.array(_tails(level)), self._rest()
        w, rng = self._use(weighted), _numpy_rng(jax.random.fold_in(self._key, 1))
        parts = [explained_share(rng, self._rows(part), self.query, rest) for part in self._blocks(self.num_draws)]
        values = np.concatenate(parts).T
        mean = values @ w
        lower, upper = weighted_quantile(values, sort_order(values), w, probs)
        columns = {"mean": mean, "sd": np.sqrt((values - mean[:, None]) ** 2 @ w), "lower": lower, "upper": upper}
        index = pd.Index([self.names[k] for k in self.query], name="variable")
        return self._with_attrs(pd.DataFrame(columns, index=index), level, weighted)

    @cached_property
    def _units(self) -> Scatter:
        """The data, or what stands for them: a scale that changes nothing."""
        if self.scatter is not None:
            return self.scatter
        d = len(self.names)
        return Scatter(np.zeros((d, d)), 0, np.zeros(d), np.ones(d), self.names)

    def _rest(self) -> Rest:
        """The variables outside the query."""
        columns = np.setdiff1d(np.arange(len(self.names)), self.query)
        if not columns.size:
            return Rest(columns, np.empty((0, 0)), 0.0, 1.0)
        if self.scatter is None or self.lam is None or self.temperature is None:
            lacking = "the data (`scatter`)" if self.scatter is None else "one λ, not an average: `posterior(lam, q)`"
            raise ValueError(
                f"with a query this needs {lacking}, for the covariance of the variables outside the query; "
                "conditional() does without, if all of them are given"
            )
        A_22 = self.scatter.matrix[np.ix_(columns, columns)] + self.lam * np.eye(len(columns))
        return Rest(columns, A_22, self.scatter.n, self.temperature)

    def _blocks(self, num_draws: int) -> list[slice]:
        """Parts of the draws whose whole matrices exist at once."""
        return list(blocks(num_draws, self._free.position.size, 2**22))

    def _rows(self, draws: slice | Int[np.ndarray, " k"]) -> Float[np.ndarray, "k s d"]:
        return self._matrix(self._sample.values[:, draws].T)

    def _regression(self, unknown: Int[np.ndarray, " a"]) -> tuple[np.ndarray, np.ndarray]:
        """Slopes and variances of some columns given all others, in each draw."""
        d = len(self.names)
        if outside := [self.names[k] for k in np.setdiff1d(unknown, self.query)]:
            shown = ", ".join(map(repr, outside[:5])) + (", …" if len(outside) > 5 else "")
            raise ValueError(
                f"with a query only its variables can be predicted, from all others: give values for {shown}, "
                "or fit without a query"
            )
        position = self._free.position[[np.flatnonzero(self.query == k)[0] for k in unknown]]
        known = np.setdiff1d(np.arange(d), unknown)
        slope, variance = np.empty((self.num_draws, len(unknown), len(known))), np.empty((self.num_draws, len(unknown)))
        for part in blocks(self.num_draws, position.size, 2**22):
            rows = self._sample.values[:, part].T[:, position]
            slope[part], variance[part] = regression(rows, unknown, known)
        return slope, variance

    def _with_attrs(self, table: pd.DataFrame, level: float, weighted: bool | None) -> pd.DataFrame:
        table.attrs = {"level": float(level), "weighted": self._uses_weights(weighted), "message": self._message()}
        return table

    # ------------------------------------------------------------------------------------------------ how far to trust
    def diagnostics(self) -> dict[str, float | int | bool | str | None]:
        """How well the draws stand for the posterior.

        Returns
        -------
        dict
            elbo: mean of log p̃ − log q, a lower bound of log Z (p̃ is not normalized, so Z is not the evidence);
            log_normalizer and log_normalizer_se: importance estimate of log Z and its standard error;
            ess: effective sample size of the importance weights, relative to the number of draws;
            khat: Pareto k̂ of the weights; num_draws; weighted: whether estimates use the weights;
            verdict: "good", "fair" or "poor"; message: all this as text.
            Exact draws have no weights: elbo, log_normalizer and khat are None, ess is 1;
            after `refine` there are also rhat, ess_chains and drift, as in `refinement`.
        """
        fields = ("elbo", "log_normalizer", "log_normalizer_se", "ess", "khat")
        numbers = dict.fromkeys(fields) | {"ess": 1.0}
        if self._weights is not None:
            numbers = {name: getattr(self._weights, name) for name in fields}
        if (known := self.refinement) is not None:
            numbers |= {"rhat": known.rhat, "ess_chains": known.ess, "drift": known.drift}
        verdict = "fair" if self._level() == "caution" else self._level()
        numbers |= {"num_draws": self.num_draws, "weighted": self.weighted}
        return numbers | {"verdict": verdict, "message": self._message()}

    def __repr__(self) -> str:
        return f"Posterior({self._about()}. {self._status()})"

    def _repr_html_(self) -> str:
        s, d = len(self.query), len(self.names)
        rows = name_some([self.names[k] for k in self.query])
        facts = {
            "Condition": self._where().removeprefix(" at ") or "a mixture over λ and q",
            "Variables" if s == d else "Query": rows if s == d else f"{rows}; its Markov blanket among {d} variables",
        }
        if self.scatter is not None:
            facts["Data"] = f"{self.scatter.n:g} rows"
        facts["Draws"] = f"{self.num_draws}"
        if "_drawn" not in self.__dict__:
            if self.refinement is not None:  # what is known of the chains needs no draws
                return card("Posterior", facts, self._level(), self._message())
            return card("Posterior", facts, "open", "Nothing is drawn yet: that happens at the first question.")
        if self._sample.values.size <= _QUICK:
            # By hand, not by `select_edges`: looking must not use up the warning that the first estimate gives.
            w = self._weights.values if self._weights is not None and self.weighted else self._equal
            found = self._select(w, *find_rule("f1"))
            facts["Edges"] = f"{found.n_edges} of {int(np.sum(~self._free.diagonal))} pairs ({found.rule})"
        return card("Posterior", facts, self._level(), self._message())

    def _level(self) -> Level:
        if (known := self.refinement) is not None:
            return "good" if known.rhat < 1.01 else "caution"
        verdict = "good" if self._weights is None else self._weights.verdict
        return "caution" if verdict == "fair" else verdict

    # --------------------------------------------------------------------------------------------------------- insides
    @cached_property
    def _drawn(self) -> tuple[Sample, ImportanceWeights | None]:
        entries, log_ratio = draw_entries(self.source, self._key, self.num_draws, self._free)
        return Sample(entries, self._free), None if log_ratio is None else importance_weights(log_ratio)

    @property
    def _sample(self) -> Sample:
        return self._drawn[0]

    @property
    def _weights(self) -> ImportanceWeights | None:
        """None for exact draws."""
        return self._drawn[1]

    def _use(self, weighted: bool | None, depth: int = 1) -> Float[np.ndarray, " N"]:
        """Weights of an estimate; `depth` calls away from the user's line, at which a warning should point."""
        if self._weights is not None:
            self._warn_if_poor(self._weights, self._estimates_use(), stacklevel=3 + depth)
            if self._uses_weights(weighted):
                return self._weights.values
        return self._equal

    @property
    def _equal(self) -> Float[np.ndarray, " N"]:
        return np.full(self.num_draws, 1 / self.num_draws)

    def _uses_weights(self, weighted: bool | None) -> bool:
        return self._weights is not None and bool(self.weighted if weighted is None else weighted)

    def _matrix(self, entries: np.ndarray) -> np.ndarray:
        return entries[..., self._free.position]

    def _named(
        self, values: np.ndarray, as_frame: bool, parts: Sequence[float | str] | None = None, *, square: bool = False
    ) -> Matrix:
        if not as_frame:
            return values
        rows = [self.names[k] for k in self.query]
        return named(values, rows, rows if square else self.names, parts)

    def _table(
        self, level: float | None, threshold: float, rule: str | EdgeSelection | None, weighted: bool | None
    ) -> pd.DataFrame:
        chosen = rule if isinstance(rule, EdgeSelection) else _default_rule(level) if rule is None else rule
        level = 0.9 if level is None else level
        (low, high), threshold = _tails(level), _check_threshold(threshold)
        w, sample, names = self._use(weighted, depth=2), self._sample, np.array(self.names, dtype=object)
        lower, median, upper = sample.quantile([low, 0.5, high], w)
        if not isinstance(chosen, EdgeSelection):
            belongs = {"interval": {"level": level}, "probability": {"threshold": threshold}}
            shared = belongs.get(chosen, {}) if isinstance(chosen, str) else {}
            chosen = self._select(w, *find_rule(chosen, **shared))
        elif chosen.edges.shape != self._free.position.shape:
            expected = self._free.position.shape
            raise ValueError(
                f"these edges have shape {chosen.edges.shape}, not {expected}: "
                "give what select_edges of this posterior returned"
            )
        pairs = {
            "p_positive": sample.sign_probability(w),
            "edge_probability": sample.edge_probability(threshold, w),
            "association": sample.association(w),
        }
        columns = {
            "row": names[self.query[self._free.row]],
            "column": names[self._free.column],
            "mean": sample.mean(w),
            "sd": sample.sd(w),
            "median": median,
            "lower": lower,
            "upper": upper,
            "edge": chosen.edges[self._free.row, self._free.column],
        } | {label: np.where(self._free.diagonal, np.nan, values) for label, values in pairs.items()}
        table = pd.DataFrame(columns)
        table.attrs = {
            "level": float(level),
            "threshold": threshold,
            "rule": chosen.rule,
            "expected_fdr": chosen.expected_fdr,
            "weighted": self._uses_weights(weighted),
            "message": self._message(),
        }
        return table

    # ----------------------------------------------------------------------------------------------------------- words
    def _warn_if_poor(self, weights: ImportanceWeights, consequence: str, stacklevel: int) -> None:
        if self._warned or not weights.poor:
            return
        self._warned = True
        better = "call refine() for exact draws, or fit with more steps or a narrower range of λ and q."
        if weights.reliable:
            what, better = "Few draws are effective", f"ask for more draws (num_draws), {better}"
        else:
            what = "The fitted distribution is a poor stand-in for the posterior"
        message = f"{what}{self._where()}: {weights}. {consequence} To do better, {better}"
        warnings.warn(message, PoorFitWarning, stacklevel=stacklevel)

    def _estimates_use(self) -> str:
        if self.weighted:
            return "Estimates use importance weights."
        if self._weights is not None and self._weights.reliable:
            return "Estimates use plain draws: weights would add more noise than they correct."
        return "Estimates use plain draws, all of equal weight."

    def _message(self) -> str:
        if (known := self.refinement) is not None:
            verdict = "Good" if known.rhat < 1.01 else "Still moving: use more sweeps"
            return (
                f"{verdict}: {known.num_chains} exact chains of {known.sweeps} sweeps, R̂ = {known.rhat:.3f}, "
                f"{known.ess:.0f} effective draws; the flow's quantiles were {known.drift:.3f} sd off."
            )
        if self._weights is None:
            return "The draws are exact, all of equal weight."
        costly = self.weighted and self._weights.verdict == "fair"
        few = " Few draws are effective: that costs accuracy, not correctness." if costly else ""
        return f"{self._weights.verdict.capitalize()} fit: {self._weights}. {self._estimates_use()}{few}"

    def _status(self) -> str:
        # Looking at an object should not draw: that can take seconds.
        return self._message() if "_drawn" in self.__dict__ else f"{self.num_draws} draws at first use."

    def _where(self) -> str:
        condition = {"λ": self.lam, "q": self.q, "T": self.temperature}
        known = ", ".join(f"{symbol} = {value:g}" for symbol, value in condition.items() if value is not None)
        return f" at {known}" if known else ""

    def _about(self) -> str:
        s, d = len(self.query), len(self.names)
        shown = ", ".join(self.names[k] for k in self.query[:4]) + (", …" if s > 4 else "")
        size = f"{d} variables" if s == d else f"the Markov blanket of {s} among {d} variables"
        return f"{size} ({shown}){self._where()}"


def _default_rule(level: float | None) -> str:
    """A level and no rule means intervals."""
    return "f1" if level is None else "interval"


def _check_query(query: ArrayLike, n_features: int) -> Int[np.ndarray, " s"]:
    positions = np.array(query)
    if positions.ndim != 1 or not positions.size or positions.dtype.kind not in "iu":
        raise ValueError(f"query must be a vector of column positions, got {query!r}")
    if len(np.unique(positions)) < positions.size or positions.min() < 0 or positions.max() >= n_features:
        raise ValueError(f"query must hold different positions from 0 to {n_features - 1}, got {positions}")
    return positions.astype(np.intp)


def _numpy_rng(key: Key[Array, ""]) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def check_count(value: object, name: str = "num_draws") -> int:
    """A number of draws, chains or sweeps, or an error that names it."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= _MOST:
        raise ValueError(f"{name} must be a whole number from 1 to {_MOST}, got {value!r}")
    return int(value)


def _tails(level: float) -> tuple[float, float]:
    if not isinstance(level, Real) or not 0 < float(level) < 1:
        raise ValueError(f"level must be a number between 0 and 1, such as 0.9, got {level!r}")
    return (1 - float(level)) / 2, (1 + float(level)) / 2


def _check_threshold(threshold: float) -> float:
    if isinstance(threshold, bool) or not isinstance(threshold, Real) or not 0 <= float(threshold) < np.inf:
        raise ValueError(f"threshold must be a number, zero or positive, got {threshold!r}")
    return float(threshold)
