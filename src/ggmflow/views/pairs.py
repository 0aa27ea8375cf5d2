"""The posterior at one condition (λ, q, T), pair by pair: the numbers behind explorer and report.

All views are computed from the same noise, so they change smoothly with λ, q and T. Every number equals that of
``model.posterior(lam, q, temperature, num_draws=...)``.
"""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.posterior.diagnostics import PoorFitWarning
from ggmflow.posterior.edge_rules import DEFAULT, own_parameters
from ggmflow.posterior.edges import EdgeSelection
from ggmflow.posterior.flow_source import chunk_size
from ggmflow.posterior.posterior import Posterior
from ggmflow.posterior.tables import entry_table
from ggmflow.posterior.weights import Verdict

# Columns of `View.pairs` by their names in `tables.entry_table`.
_COLUMNS = {
    **{name: name for name in ("i", "j", "row", "column", "association")},
    "association_lower": "lower",
    "association_upper": "upper",
    **{name: name for name in ("p_positive", "edge_probability")},
    "rule_probability": "probability",
    "edge": "edge",
}


class View(NamedTuple):
    """The posterior at one condition, pair by pair.

    Attributes
    ----------
    lam, q, temperature : float
        The condition.
    pairs : DataFrame
        One row for each pair of variables (of a query, for each pair with at least one query variable). Columns: i, j
        (positions of the two variables in the data), row, column (their names), association (posterior mean), lower,
        upper (credible interval of the association), p_positive, edge_probability (that |association| > 0.1),
        probability (of an edge by the rule; NaN if the rule has none), edge (bool).
    level : float
        Probability of the credible intervals.
    rule : str
        Description of the edge rule.
    n_edges : int
        Number of edges.
    expected_fdr : float
        Expected share of false edges.
    message : str
        Description of the quality of the fit at this condition.
    verdict : Verdict
        The quality as a value, as in `Posterior.diagnostics`.
    posterior : Posterior
        Source of the numbers.
    selection : EdgeSelection
        The edges, with the rule as values.
    """

    lam: float
    q: float
    temperature: float
    pairs: pd.DataFrame
    level: float
    rule: str
    n_edges: int
    expected_fdr: float
    message: str
    verdict: Verdict
    posterior: Posterior
    selection: EdgeSelection

    @property
    def density(self) -> float:
        """Share of pairs that are edges."""
        return self.n_edges / max(1, len(self.pairs))


class Density(NamedTuple):
    """Posterior of the association of one pair: N draws and their weights.

    Attributes
    ----------
    values, weights : (N,) arrays
        The weights sum to one.
    lower, upper : float
        Credible interval.
    mean : float
        Posterior mean.
    """

    values: Float[np.ndarray, " N"]
    weights: Float[np.ndarray, " N"]
    lower: float
    upper: float
    mean: float


def view(
    model: GraphicalFlow,
    lam: float | None = None,
    q: float | None = None,
    temperature: float | None = None,
    *,
    rule: str = DEFAULT,
    parameters: Mapping[str, float] | None = None,
    level: float = 0.9,
    num_draws: int | None = None,
) -> View:
    """Return the posterior at one condition, pair by pair.

    Parameters
    ----------
    model
        Fitted model.
    lam, q
        Default: the middle of the fitted ranges; see `middle`.
    temperature
        Default: 1, or the fitted temperature closest to it.
    rule : {"f1", "interval", "fdr", "probability"}
        Edge rule, as in `Posterior.select_edges`.
    parameters
        Parameters of the rule; default: `level` for a rule that has it, and the rule's own defaults.
    level
        Probability of the credible intervals.
    num_draws
        Number of draws; default `num_draws_of(model)`.
    """
    lam, q, temperature = _condition(model, lam, q, temperature)
    post = model.posterior(lam, q, temperature, num_draws=num_draws_of(model) if num_draws is None else num_draws)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorFitWarning)  # the view contains the message
        values: dict[str, Any] = {**own_parameters(rule, level=level), **(parameters or {})}
        chosen = post.select_edges(rule, **values)
    known = post.diagnostics()
    table = entry_table(post.draws, chosen, known, list(_COLUMNS), level=level)
    pairs = table.loc[~post.draws.free.diagonal].rename(columns=_COLUMNS).reset_index(drop=True)
    pairs.attrs = {}
    return View(
        lam=lam,
        q=q,
        temperature=temperature,
        pairs=pairs,
        level=level,
        rule=chosen.rule,
        n_edges=chosen.n_edges,
        expected_fdr=chosen.expected_fdr,
        message=known.message,
        verdict=known.verdict,
        posterior=post,
        selection=chosen,
    )


def density(seen: View, pair: int) -> Density:
    """Return the posterior of the association of one pair.

    Parameters
    ----------
    seen
        View that contains the pair.
    pair
        Row of the pair in `View.pairs`.
    """
    draws, row = seen.posterior.draws, seen.pairs.iloc[pair]
    values = draws.association_draws(np.flatnonzero(~draws.free.diagonal)[[pair]])[0]
    return Density(values, draws.weights, float(row["lower"]), float(row["upper"]), float(row["association"]))


def num_draws_of(model: GraphicalFlow, quick: bool = False) -> int:
    """Return the number of draws of a view: up to 1200, fewer for many variables.

    Parameters
    ----------
    model
        Fitted model.
    quick
        Whether the view is drawn while a slider moves; it then has half as many.
    """
    return (1 if quick else 2) * chunk_size(model.flow_)


def middle(model: GraphicalFlow) -> tuple[float, float, float]:
    """Return (λ, q, T) in the middle of the fitted ranges of log λ and q, with the fitted T closest to 1."""
    low, high = model.lam_range_
    return float(np.sqrt(low * high)), float(np.mean(model.q_range_)), float(np.clip(1.0, *model.temperature_range_))


def _condition(model: GraphicalFlow, *given: float | None) -> tuple[float, float, float]:
    lam, q, T = (
        default if value is None else float(value) for value, default in zip(given, middle(model), strict=True)
    )
    return lam, q, T
