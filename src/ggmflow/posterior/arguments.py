"""Checks of arguments that several functions of this package take; each error names the argument and its value."""

from numbers import Integral, Real

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from ggmflow.errors.argument import ArgumentError, check_share

_MOST = 10**9  # more draws, chains or sweeps would run out of memory or time, so they are a mistake


def check_count(value: object, name: str = "num_draws") -> int:
    """A number of draws, chains or sweeps; raise if it is not a whole number from 1 to 10⁹."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= _MOST:
        raise ArgumentError(name, value, f"be a whole number from 1 to {_MOST}")
    return int(value)


def check_tails(level: float) -> tuple[float, float]:
    """Probabilities at the two ends of an equal-tailed interval; raise if the level is not between 0 and 1.

    Examples
    --------
    >>> check_tails(0.5)
    (0.25, 0.75)
    """
    level = check_share("level", level, 0.9)
    return (1 - level) / 2, (1 + level) / 2


def check_threshold(threshold: float) -> float:
    """A size of associations; raise if it is negative or not finite."""
    if isinstance(threshold, bool) or not isinstance(threshold, Real) or not 0 <= float(threshold) < np.inf:
        raise ArgumentError("threshold", threshold, "be a number, zero or positive")
    return float(threshold)


def check_probs(probs: ArrayLike) -> Float[np.ndarray, "*k"]:
    """One probability or a vector of them; raise if one is not between 0 and 1."""
    try:
        levels = np.asarray(probs)
    except (ValueError, TypeError):  # lists of different lengths
        levels = np.empty((0, 0))
    if levels.dtype.kind not in "iuf" or levels.ndim > 1 or not np.all((levels >= 0) & (levels <= 1)):
        raise ArgumentError("probs", probs, "be one or more probabilities from 0 to 1")
    return levels


def check_query(query: ArrayLike, n_features: int) -> Int[np.ndarray, " s"]:
    """Positions of the query's columns; raise if they repeat or are not positions of columns."""
    positions = np.array(query)
    if positions.ndim != 1 or not positions.size or positions.dtype.kind not in "iu":
        raise ArgumentError("query", query, "be a vector of column positions")
    if len(np.unique(positions)) < positions.size or positions.min() < 0 or positions.max() >= n_features:
        raise ArgumentError("query", positions.tolist(), f"hold different positions from 0 to {n_features - 1}")
    return positions.astype(np.intp)
