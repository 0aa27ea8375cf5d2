"""Weighted estimates for every free entry of a precision matrix: Σ_i w_i f(ω_i), quantiles, probabilities.

Association of i and j: the partial correlation −ω_ij/√(ω_ii ω_jj), or, where ω_jj is not among the entries, the weight
−ω_ij/ω_ii of x_j in the regression of x_i on all other variables.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from ggmflow.model.precision import FreeEntries
from ggmflow.posterior.weights import blocks, sort_order, weighted_quantile

Weights = Float[np.ndarray, " N"]
Entries = Float[np.ndarray, " D"]
# What an estimate with an argument `as_frame` gives: an array (..., s, d), or if that is true a DataFrame.
Matrix = Float[np.ndarray, "*k s d"] | Any
ENDS = ("lower", "upper")  # of an interval


@final
@dataclass(frozen=True, eq=False)
class Sample:
    """Draws of the free entries. Every method takes weights, (N,) with sum one, and gives one number per entry, (D,).

    Attributes
    ----------
    values : (D, N) array
        Entries first: each is sorted and averaged by itself.
    free : FreeEntries
        Where the entries stand in the matrix.
    """

    values: Float[np.ndarray, "D N"]
    free: FreeEntries

    def mean(self, w: Weights) -> Entries:
        """Mean of each entry."""
        return self.values @ w

    def sd(self, w: Weights) -> Entries:
        """Standard deviation of each entry."""
        mean = self.mean(w)
        return np.sqrt(self._expect(lambda part: (self.values[part] - mean[part, None]) ** 2, w))

    def power(self, q: float, w: Weights) -> Entries:
        """E|ω|^q of each entry."""
        return self._expect(lambda part: np.abs(self.values[part]) ** q, w)

    def quantile(self, probs: Sequence[float] | np.ndarray, w: Weights) -> Float[np.ndarray, "k D"]:
        """Quantiles of each entry at k probabilities."""
        return weighted_quantile(self.values, self._order, w, np.asarray(probs, np.float64))

    def excludes_zero(self, lower: Entries, upper: Entries) -> Bool[np.ndarray, " D"]:
        """Which intervals of off-diagonal entries do not hold zero."""
        return ~self.free.diagonal & ((lower > 0) | (upper < 0))

    def association(self, w: Weights) -> Entries:
        """Mean association of each pair; 1 for a variable and itself."""
        return np.where(self.free.diagonal, 1.0, self._expect(self.association_draws, w))

    def association_quantile(self, probs: Sequence[float] | np.ndarray, w: Weights) -> Float[np.ndarray, "k D"]:
        """Quantiles of the association of each pair at k probabilities; 1 for a variable and itself."""
        levels = np.asarray(probs, np.float64)
        parts = []
        for part in blocks(*self.values.shape):
            values = self.association_draws(part)
            parts.append(weighted_quantile(values, sort_order(values), w, levels))
        return np.where(self.free.diagonal, 1.0, np.concatenate(parts, axis=1))

    def edge_probability(self, threshold: float, w: Weights) -> Entries:
        """P(|association| > threshold) of each pair; 0 for a variable and itself."""
        large = self._expect(lambda part: np.abs(self.association_draws(part)) > threshold, w)
        return np.where(self.free.diagonal, 0.0, large.clip(0, 1))

    def sign_probability(self, w: Weights) -> Entries:
        """P(association > 0) = P(ω_ij < 0) of each pair; 1 for a variable and itself."""
        positive = self._expect(lambda part: self.values[part] < 0, w)
        return np.where(self.free.diagonal, 1.0, positive.clip(0, 1))

    def association_draws(self, part: slice | Int[np.ndarray, " b"]) -> Float[np.ndarray, "b N"]:
        """Association of some of the pairs in every draw; means nothing for a variable and itself."""
        return -self.values[part] * self._scale[self.free.row[part]] * self._scale[self.free.partner[part]]

    def gains(self, w: Weights) -> bool:
        """Whether these weights lower the error of estimates, instead of adding more noise than they correct.

        Weights move the mean of a function h of an entry by Σ(w_i − 1/N)h_i. The square of that holds the bias they
        remove and noise, Σ(w_i − 1/N)²(h_i − h̄)², which is also what they add to the variance. So they gain where it
        exceeds twice the noise, on average over all entries, for h = ω and h = (ω − ω̄)² in units of their variance.
        """
        extra = w - 1 / w.size
        moved = noise = 0.0
        for part in blocks(*self.values.shape):
            centred = self.values[part] - self.values[part].mean(axis=1, keepdims=True)
            for h in (centred, centred**2):
                h = h - h.mean(axis=1, keepdims=True)
                variance = np.maximum(np.mean(h**2, axis=1), np.finfo(np.float32).tiny)
                moved += float(np.sum((h @ extra) ** 2 / variance))
                noise += float(np.sum((h**2 @ extra**2) / variance))
        return moved > 2 * noise

    @cached_property
    def _order(self) -> Int[np.ndarray, "D N"]:
        return sort_order(self.values)

    @cached_property
    def _scale(self) -> Float[np.ndarray, "s N"]:
        return 1 / np.sqrt(self.values[self.free.own])

    def _expect(self, function: Callable[[slice], np.ndarray], w: Weights) -> Entries:
        """E of a function that maps a slice of entries to (entries, draws), a block at a time."""
        return np.concatenate([function(part) @ w for part in blocks(*self.values.shape)])


def named(
    values: np.ndarray, rows: Sequence[str], columns: Sequence[str], parts: Sequence[float | str] | None = None
) -> pd.DataFrame:
    """A matrix, or several below each other, as a DataFrame with names.

    Parameters
    ----------
    values : (s, d) array, or (k, s, d) with `parts`
        The matrix, or k of them.
    rows, columns
        The s and d names.
    parts
        What each of k matrices is: the first level of the index, whose name is "part".

    Returns
    -------
    DataFrame
        Index "row", columns "column", as in `Posterior.summary`.
    """
    index = pd.Index(rows, name="row")
    if parts is not None:
        index = pd.MultiIndex.from_product([parts, rows], names=["part", "row"])
        values = values.reshape(-1, len(columns))
    return pd.DataFrame(values, index=index, columns=pd.Index(columns, name="column"))
