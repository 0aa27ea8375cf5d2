"""The posterior at one condition (λ, q, T), pair by pair: the numbers behind explorer and report.

All views are computed from the same noise, so they change smoothly with λ, q and T. Every number equals that of
``model.posterior(lam, q, temperature, num_draws=...)``.
"""

import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.posterior.flow_source import chunk_size, quick_chunk_size
from ggmflow.posterior.posterior import PoorFitWarning, Posterior
from ggmflow.posterior.weights import Verdict


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
    verdict : {"good", "fair", "poor"}
        The quality as a value, as in `ImportanceWeights.verdict`.
    posterior : Posterior
        Source of the numbers.
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
    rule: str = "f1",
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
    level
        Probability of the credible intervals; also the level of the rule "interval".
    num_draws
        Number of draws; default `num_draws_of(model)`.
    """
    lam, q, temperature = _condition(model, lam, q, temperature)
    post = model.posterior(lam, q, temperature, num_draws=num_draws_of(model) if num_draws is None else num_draws)
    free = post._free
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorFitWarning)  # the view contains the message
        chosen = post.select_edges(rule, level=level if rule == "interval" else None)
        lower, upper = post.association_interval(level)
        matrices = {
            "association": post.association(),
            "lower": lower,
            "upper": upper,
            "p_positive": post.sign_probability(),
            "edge_probability": post.edge_probability(),
            "probability": np.full(lower.shape, np.nan) if chosen.probability is None else chosen.probability,
            "edge": chosen.edges,
        }
    pair = ~free.diagonal
    row, j = free.row[pair], free.column[pair]
    i, names = post.query[row], np.array(post.names, dtype=object)
    columns = {"i": i, "j": j, "row": names[i], "column": names[j]}
    pairs = pd.DataFrame(columns | {label: values[row, j] for label, values in matrices.items()})
    return View(
        lam=lam,
        q=q,
        temperature=temperature,
        pairs=pairs,
        level=level,
        rule=chosen.rule,
        n_edges=chosen.n_edges,
        expected_fdr=chosen.expected_fdr,
        message=str(post.diagnostics()["message"]),
        verdict="good" if post._weights is None else post._weights.verdict,
        posterior=post,
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
    post, row = seen.posterior, seen.pairs.iloc[pair]
    entry = np.flatnonzero(~post._free.diagonal)[[pair]]
    weights = post._weights.values if post._weights is not None and post.weighted else None
    values = post._sample.association_draws(entry)[0]
    even = np.full(values.size, 1 / values.size)
    ends = float(row["lower"]), float(row["upper"]), float(row["association"])
    return Density(values, even if weights is None else weights, *ends)


def num_draws_of(model: GraphicalFlow, quick: bool = False) -> int:
    """Return the number of draws of a view: up to 1000, fewer for many variables.

    Parameters
    ----------
    model
        Fitted model.
    quick
        Whether the view is drawn while a slider moves; it then has 32 to 256 draws.
    """
    return (quick_chunk_size if quick else chunk_size)(model.flow_.n_entries)


def middle(model: GraphicalFlow) -> tuple[float, float, float]:
    """Return (λ, q, T) in the middle of the fitted ranges of log λ and q, with the fitted T closest to 1."""
    low, high = model.lam_range_
    return float(np.sqrt(low * high)), float(np.mean(model.q_range_)), float(np.clip(1.0, *model.temperature_range_))


def _condition(model: GraphicalFlow, *given: float | None) -> tuple[float, float, float]:
    lam, q, T = (
        default if value is None else float(value) for value, default in zip(given, middle(model), strict=True)
    )
    return lam, q, T
