"""Pairs of variables: their positions, their names, and their posterior.

An entry is (a, b), two names or positions. Its position in the rows [Ω₁₁ Ω₁₂] of a query is (row, column): the rank of
the query variable in the query, and the position of the other variable in the data.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any, Literal, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from ggmflow.errors.columns import UnknownColumnError
from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.plot.style import short
from ggmflow.posterior.arguments import check_tails
from ggmflow.posterior.posterior import PoorFitWarning, Posterior
from ggmflow.posterior.weights import sort_order, weighted_quantile

Entry = tuple[str | int, str | int]
Scale = Literal["association", "precision"]
Positions = Int[np.ndarray, "m 2"]
Value = TypeVar("Value")


def find_pairs(entries: Entry | Iterable[Entry], names: Sequence[str], query: Int[np.ndarray, " s"]) -> Positions:
    """Return row and column of each entry.

    Parameters
    ----------
    entries
        One pair, or several; the order of the two variables does not matter.
    names, query
        Names of all d columns; positions of the columns that have a row.

    Returns
    -------
    (m, 2) array of int
    """
    given: list[Any] = list(entries)
    if len(given) == 2 and all(isinstance(each, str | Integral) for each in given):
        given = [tuple(given)]
    rank = {int(column): row for row, column in enumerate(query)}
    found = []
    for entry in given:
        if isinstance(entry, str) or not isinstance(entry, Iterable) or len(pair := list(entry)) != 2:
            raise ValueError(f"an entry is a pair of names or positions, such as ('a', 'b'), got {entry!r}")
        a, b = (_position(each, names) for each in pair)
        if a == b:
            raise ValueError(f"{names[a]!r} and itself are not a pair: name two different variables")
        if a not in rank and b not in rank:
            raise ValueError(f"neither {names[a]!r} nor {names[b]!r} belongs to the query, so their pair has no entry")
        # Of two query variables the first one in the query has the row, as in `all_pairs`.
        if a not in rank or (b in rank and rank[b] < rank[a]):
            a, b = b, a
        found.append((rank[a], b))
    if not found:
        raise ValueError("no entries were given: name at least one pair, or leave the argument out")
    return np.array(found, dtype=np.intp)


def _position(each: Any, names: Sequence[str]) -> int:
    if isinstance(each, str):
        if each in names:
            return list(names).index(each)
        raise UnknownColumnError(each, names)
    if isinstance(each, Integral) and not isinstance(each, bool) and 0 <= int(each) < len(names):
        return int(each)
    raise ValueError(f"a variable is a name or a position from 0 to {len(names) - 1}, got {each!r}")


def pair_names(pairs: Positions, names: Sequence[str], query: Int[np.ndarray, " s"], most: int = 20) -> list[str]:
    """Return the names of each pair, row first, with at most `most` characters for each name."""
    rows = query[pairs[:, 0]].tolist()
    return [
        f"{short(str(names[row]), most)} – {short(str(names[column]), most)}"
        for row, column in zip(rows, pairs[:, 1].tolist(), strict=True)
    ]


def all_pairs(query: Int[np.ndarray, " s"], n_features: int) -> Positions:
    """Return every pair of the rows of a query once."""
    rank = np.full(n_features, len(query))
    rank[query] = np.arange(len(query))
    return np.argwhere(rank > np.arange(len(query))[:, None])


def joined_pairs(edges: Bool[np.ndarray, "s d"], query: Int[np.ndarray, " s"]) -> Positions:
    """Return every pair that an edge joins once."""
    pairs = all_pairs(query, edges.shape[1])
    return pairs[edges[pairs[:, 0], pairs[:, 1]]]


def strongest(post: Posterior, count: int) -> Positions:
    """Return the pairs of largest |mean association|, the largest first."""
    pairs = all_pairs(post.query, len(post.names))
    size = np.abs(post.association()[pairs[:, 0], pairs[:, 1]])
    return pairs[np.argsort(-size, kind="stable")[:count]]


def draws_of(post: Posterior, pairs: Positions, scale: Scale = "association") -> Float[np.ndarray, "m N"]:
    """Return draws of the association, or of the entry of Ω, of each pair."""
    where = post.draws.free.position[pairs[:, 0], pairs[:, 1]]
    if scale == "association":
        return post.draws.association_draws(where)
    if scale == "precision":
        return post.draws.entries[where]
    raise ValueError(f"scale must be 'association' or 'precision', got {scale!r}")


def quantiles_of(
    post: Posterior, probs: Sequence[float], pairs: Positions, scale: Scale = "association"
) -> Float[np.ndarray, "k m"]:
    """Return posterior quantiles of the association, or of the entry of Ω, of each pair."""
    values = draws_of(post, pairs, scale)
    return weighted_quantile(values, sort_order(values), post.weighted_draws().weights, np.asarray(probs, float))


def three_probs(level: float) -> tuple[float, float, float]:
    """Return the probabilities of the lower end, the median and the upper end of a credible interval."""
    low, high = check_tails(level)
    return low, 0.5, high


def scale_name(scale: Scale, post_or_model: Posterior | GraphicalFlow) -> str:
    """Return the label of an axis of associations or entries."""
    if scale == "precision":
        return "entry of the precision matrix"
    if isinstance(post_or_model, Posterior):
        whole = len(post_or_model.query) == len(post_or_model.names)
    else:
        whole = len(post_or_model.query_) == post_or_model.scatter_.n_features
    # Outside a query an association is a regression weight: see `Posterior.association`.
    return "partial correlation" if whole else "association"


def evaluate(
    model: GraphicalFlow,
    conditions: Iterable[tuple[float, float, float]],
    function: Callable[[Posterior], Value],
    num_draws: int,
) -> list[Value]:
    """Return the value of a function of the posterior at each (λ, q, T); poor fits give one warning in all."""
    values, poor = [], []
    for condition in conditions:
        post = model.posterior(*condition, num_draws=num_draws)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PoorFitWarning)
            values.append(function(post))
        weights = post.draws.importance
        if weights is not None and weights.poor:
            poor.append((weights.ess, f"{post.condition_text}: {weights}"))
    if poor:
        message = (
            f"at {len(poor)} of {len(values)} conditions the fitted distribution approximates the posterior "
            f"poorly; the worst is at {min(poor)[1]}. See plot.fit_quality(model)"
        )
        warnings.warn(message, PoorFitWarning, stacklevel=3)
    return values
