"""Edges of a posterior, the table of all its entries and its graph."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
from jaxtyping import Int

from ggmflow.data.scatter import Scatter
from ggmflow.posterior.arguments import check_tails, check_threshold
from ggmflow.posterior.diagnostics import Diagnostics
from ggmflow.posterior.edge_rules import DEFAULT, EdgeRule, find_rule, own_parameters
from ggmflow.posterior.edges import EdgeSelection, Penalty, select
from ggmflow.posterior.estimates import Matrix, named
from ggmflow.posterior.tables import entry_table
from ggmflow.posterior.to_networkx import edge_graph
from ggmflow.posterior.weighted_draws import WeightedDraws


class EdgeEstimates(ABC):
    """Edges, tables and graphs, given draws of Ω and the penalty that shrinks them."""

    names: tuple[str, ...]
    query: Int[np.ndarray, " s"]
    lam: float | None
    q: float | None
    temperature: float | None
    scatter: Scatter | None
    source: Any

    @abstractmethod
    def weighted_draws(self, weighted: bool | None = None) -> WeightedDraws:
        """The draws, with the weights that an estimate uses."""

    @abstractmethod
    def diagnostics(self) -> Diagnostics:
        """How well the draws represent the posterior."""

    def select_edges(
        self,
        rule: str | None = None,
        *,
        level: float | None = None,
        rate: float | None = None,
        threshold: float | None = None,
        cut: float | None = None,
        weighted: bool | None = None,
        **parameters: float | None,
    ) -> EdgeSelection:
        """Choose the pairs that are edges.

        Parameters
        ----------
        rule : {"f1", "interval", "fdr", "probability"}, optional
            By default the rule that a given parameter belongs to, otherwise "f1".

            - "f1" needs no numbers: a two-group model turns the scores of all pairs, |mean|/sd with shrinkage accounted
              for, into probabilities of an edge, and the set of highest expected F1 is chosen. Where the data contain
              little information it is large and mostly false; see `expected_fdr`.
            - "interval", the paper's rule: the credible interval of `level` (0.9) excludes zero.
            - "fdr": the largest set whose mean probability of no edge in the same two-group model, the expected false
              discovery rate, is at most `rate` (0.1).
            - "probability": P(|association| > `threshold`) is above `cut` (0.1, 0.5).
        level, rate, threshold, cut, **parameters
            Parameters of the rule (`edge_rules.EDGE_RULES`).
        weighted
            Overrides the property `weighted`.
        """
        given = {"level": level, "rate": rate, "threshold": threshold, "cut": cut, **parameters}
        found = find_rule(rule, **given)
        return self.select_from(self.weighted_draws(weighted), *found)

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
        **parameters: float | None,
    ) -> Matrix:
        """The edges alone of `select_edges`, (s, d) of bool; no variable has an edge to itself.

        ``edges()`` is the default rule, ``edges(level=0.9)`` the entries whose 90 % credible interval excludes zero.
        """
        given = {"level": level, "rate": rate, "threshold": threshold, "cut": cut, **parameters}
        found = self.select_edges(rule, weighted=weighted, **given).edges
        return named(found, [self.names[k] for k in self.query], self.names) if as_frame else found

    @property
    def penalties(self) -> tuple[Penalty, ...]:
        """l_q factors of the density that was drawn from, with λ/T as strength; none if λ and q are not known."""
        if self.lam is not None and self.q is not None:
            return (Penalty(self.lam / (self.temperature or 1.0), self.q),)
        return tuple(getattr(self.source, "penalties", ()))

    def select_from(self, draws: WeightedDraws, rule: EdgeRule, parameters: Mapping[str, float]) -> EdgeSelection:
        """Edges of given draws, by a rule and its parameters as `find_rule` gives them."""
        n_samples = None if self.scatter is None else self.scatter.n
        return select(draws, rule, parameters, self.penalties, self.temperature or 1.0, n_samples)

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
            Probability of the credible intervals, 0.9 by default. If it is given without a rule, edges are the entries
            whose interval excludes zero.
        threshold
            Limit of |association| in `edge_probability` and in the rule "probability".
        rule
            A rule of `select_edges`, or its result; by default its default rule.
        weighted
            Overrides the property `weighted`.

        Returns
        -------
        DataFrame
            Columns row, column (names), mean, sd, median, lower, upper (of ω_ij), edge, p_positive
            (`sign_probability`), edge_probability, association, association_lower, association_upper (its own interval;
            ω_ij and the association differ in sign). From p_positive on they are not defined for a diagonal entry and
            missing there. `attrs` holds level, threshold, the rule with its expected_fdr, weighted and the message of
            `diagnostics`.
        """
        selection, level = self._chosen(level, threshold, rule, weighted)
        draws = self.weighted_draws(weighted)
        return entry_table(draws, selection, self.diagnostics(), level=level, threshold=float(threshold))

    def to_networkx(
        self,
        level: float | None = None,
        rule: str | EdgeSelection | None = None,
        *,
        weighted: bool | None = None,
    ) -> nx.Graph:
        """The graph of the edges; `level`, `rule` and `weighted` as in `summary`.

        Nodes are names: all query variables, and of the others those that an edge joins to the query. So all variables
        are there for a full matrix, and otherwise the query with its Markov blanket.

        Returns
        -------
        networkx.Graph
            Graph attributes: those of `summary`. Node attributes: query (bool), column (position in the data). Edge
            attributes: weight (`association`), its interval weight_lower, weight_upper, scale ("partial correlation" or
            "regression weight": the kind of weight), mean, lower, upper (of ω_ij), p_positive, edge_probability (at
            0.1). All are plain Python values, so any exporter can write them.
        """
        selection, level = self._chosen(level, 0.1, rule, weighted)
        return edge_graph(self.weighted_draws(weighted), selection, self.diagnostics(), level)

    def _chosen(
        self, level: float | None, threshold: float, rule: str | EdgeSelection | None, weighted: bool | None
    ) -> tuple[EdgeSelection, float]:
        """Edges and level of a table: a level without a rule means intervals."""
        key = rule if rule is not None else DEFAULT if level is None else "interval"
        level = 0.9 if level is None else level
        check_tails(level)
        check_threshold(threshold)
        if not isinstance(key, EdgeSelection):
            own = own_parameters(key, level=level, threshold=threshold)
            return self.select_edges(key, weighted=weighted, **own), level
        if key.edges.shape != (expected := (len(self.query), len(self.names))):
            raise ValueError(
                f"these edges have shape {key.edges.shape}, not {expected}: "
                "use the result of select_edges of this posterior"
            )
        return key, level
