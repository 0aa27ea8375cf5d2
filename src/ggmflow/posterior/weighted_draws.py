"""Weighted draws of a precision matrix, and estimates for every free entry: Σ_i w_i f(ω_i), quantiles, probabilities.

Association of i and j: the partial correlation −ω_ij/√(ω_ii ω_jj), or, where ω_jj is not among the entries, the weight
−ω_ij/ω_ii of x_j in the regression of x_i on all other variables.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from ggmflow.model.precision import FreeEntries, free_entries
from ggmflow.posterior.source import Source, draw_entries
from ggmflow.posterior.weights import (
    ImportanceWeights,
    blocks,
    importance_weights,
    resample,
    sort_order,
    weighted_quantile,
)

Entries = Float[np.ndarray, " D"]
Probs = Sequence[float] | np.ndarray

_MATRICES = 2**22  # numbers of whole matrices in memory at once


@final
@dataclass(frozen=True, eq=False, repr=False)
class WeightedDraws:
    """N draws of the D free entries of Ω, or of the rows [Ω₁₁ Ω₁₂] of a query, with their weights.

    Estimates have one number per free entry, (D,); `matrix` turns them into rows (s, d). For a variable and itself the
    association is 1, the probability of an edge 0 and that of a positive sign 1.

    Attributes
    ----------
    entries : (D, N) array
        Entries first: each is sorted and averaged by itself.
    names
        The d column names.
    query : (s,) array of int
        Column to which each row belongs.
    importance
        Importance weights of the draws; None for exact draws, which have equal weights.
    use_weights
        Whether estimates use the importance weights. None: if k̂ allows it and `gains` is true.

    Examples
    --------
    >>> draws = WeightedDraws(np.array([[1.0, 3.0], [-0.5, 0.1], [2.0, 2.0]]), ("a", "b"), np.arange(2))
    >>> draws.matrix(draws.mean())
    array([[ 2. , -0.2],
           [-0.2,  2. ]])
    """

    entries: Float[np.ndarray, "D N"]
    names: tuple[str, ...]
    query: Int[np.ndarray, " s"]
    importance: ImportanceWeights | None = None
    use_weights: bool | None = None
    _cache: dict[str, Any] = field(default_factory=dict)  # shared by copies that differ in `use_weights`

    def __repr__(self) -> str:
        how = "importance weights" if self.weighted else "equal weights"
        return f"WeightedDraws({self.num_draws} draws of {len(self.entries)} entries, {how})"

    # ----------------------------------------------------------------------------------------------- shape and weights
    @property
    def num_draws(self) -> int:
        """N."""
        return self.entries.shape[1]

    @property
    def free(self) -> FreeEntries:
        """Positions of the free entries in the matrix."""
        return self._once("free", lambda: free_entries(self.query, len(self.names)))

    @property
    def weighted(self) -> bool:
        """Whether estimates use the importance weights."""
        if self.importance is None:
            return False
        return self.importance.reliable and self.gains if self.use_weights is None else self.use_weights

    @property
    def weights(self) -> Float[np.ndarray, " N"]:
        """Weights that estimates use, with sum one."""
        if self.importance is not None and self.weighted:
            return self.importance.values
        return np.full(self.num_draws, 1 / self.num_draws)

    @property
    def gains(self) -> bool:
        """Whether importance weights lower the error of estimates, instead of adding more noise than they correct.

        Weights move the mean of a function h of an entry by Σ(w_i − 1/N)h_i. The square of that holds the bias they
        remove and noise, Σ(w_i − 1/N)²(h_i − h̄)², which they also add to the variance. So they gain where it
        exceeds twice the noise, on average over all entries, for h = ω and h = (ω − ω̄)² in units of their variance.
        """
        return self._once("gains", self._gains)

    def using(self, weighted: bool | None) -> "WeightedDraws":
        """The same draws with (True) or without (False) importance weights in estimates; None decides by `gains`."""
        return replace(self, use_weights=None if weighted is None else bool(weighted))

    def matrix(self, values: Float[np.ndarray, "*k D"]) -> Float[np.ndarray, "*k s d"]:
        """Rows of matrices from their free entries."""
        return values[..., self.free.position]

    def rows(self, draws: slice | Int[np.ndarray, " k"]) -> Float[np.ndarray, "k s d"]:
        """Some of the draws as matrices."""
        return self.matrix(self.entries[:, draws].T)

    def resample(self, rng: np.random.Generator, num_draws: int) -> Int[np.ndarray, " num_draws"]:
        """Positions of draws chosen in proportion to their weights, in random order."""
        return resample(rng, self.weights, num_draws)

    def row_blocks(self, num_draws: int | None = None) -> Iterator[slice]:
        """Slices of the draws, or of `num_draws` of them, whose matrices may be in memory at once."""
        return blocks(self.num_draws if num_draws is None else num_draws, self.free.position.size, _MATRICES)

    # ---------------------------------------------------------------------------------------------------- entries of Ω
    def mean(self) -> Entries:
        """Mean of each entry."""
        return self.entries @ self.weights

    def sd(self) -> Entries:
        """Standard deviation of each entry."""
        mean = self.mean()
        return np.sqrt(self._expect(lambda part: (self.entries[part] - mean[part, None]) ** 2))

    def power(self, q: float) -> Entries:
        """E|ω|^q of each entry."""
        return self._expect(lambda part: np.abs(self.entries[part]) ** q)

    def quantile(self, probs: Probs) -> Float[np.ndarray, "k D"]:
        """Quantiles of each entry at k probabilities."""
        order = self._once("order", lambda: sort_order(self.entries))
        return weighted_quantile(self.entries, order, self.weights, np.asarray(probs, np.float64))

    def excludes_zero(self, probs: Probs) -> Bool[np.ndarray, " D"]:
        """Whether the interval between two quantiles excludes zero; False for diagonal entries."""
        lower, upper = self.quantile(probs)
        return ~self.free.diagonal & ((lower > 0) | (upper < 0))

    def sign_probability(self) -> Entries:
        """P(association > 0) = P(ω_ij < 0) of each pair."""
        positive = self._expect(lambda part: self.entries[part] < 0)
        return np.where(self.free.diagonal, 1.0, positive.clip(0, 1))

    # ---------------------------------------------------------------------------------------------------- associations
    def association_draws(self, part: slice | Int[np.ndarray, " b"]) -> Float[np.ndarray, "b N"]:
        """Association of some of the pairs in every draw; not defined for a variable and itself."""
        scale = self._once("scale", lambda: 1 / np.sqrt(self.entries[self.free.own]))
        return -self.entries[part] * scale[self.free.row[part]] * scale[self.free.partner[part]]

    def association(self) -> Entries:
        """Mean association of each pair."""
        return np.where(self.free.diagonal, 1.0, self._expect(self.association_draws))

    def association_moments(
        self, entries: Int[np.ndarray, " m"]
    ) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and variance of the association of some of the pairs, given by their positions."""
        w = self.weights
        mean, variance = np.empty(len(entries)), np.empty(len(entries))
        for part in blocks(len(entries), self.num_draws):
            draws = self.association_draws(entries[part])
            mean[part] = draws @ w
            variance[part] = (draws - mean[part, None]) ** 2 @ w
        return mean, variance

    def association_sd(self) -> Entries:
        """Standard deviation of the association of each pair; 0 for a variable and itself."""
        variance = self.association_moments(np.arange(len(self.entries)))[1]
        return np.where(self.free.diagonal, 0.0, np.sqrt(variance))

    def association_quantile(
        self, probs: Probs, entries: Int[np.ndarray, " m"] | None = None
    ) -> Float[np.ndarray, "k m"]:
        """Quantiles of the association at k probabilities, of all pairs or of those at some positions."""
        entries = np.arange(len(self.entries)) if entries is None else entries
        levels, w = np.asarray(probs, np.float64), self.weights
        out = np.ones((len(levels), len(entries)))
        for part in blocks(len(entries), self.num_draws):
            values = self.association_draws(entries[part])
            out[:, part] = weighted_quantile(values, sort_order(values), w, levels)
        return np.where(self.free.diagonal[entries], 1.0, out)

    def edge_probability(self, threshold: float) -> Entries:
        """P(|association| > threshold) of each pair."""
        large = self._expect(lambda part: np.abs(self.association_draws(part)) > threshold)
        return np.where(self.free.diagonal, 0.0, large.clip(0, 1))

    # ------------------------------------------------------------------------------------------------------- internals
    def _expect(self, function: Callable[[slice], np.ndarray]) -> Entries:
        """Expectation of a function that maps a slice of entries to (entries, draws), a block at a time."""
        w = self.weights
        return np.concatenate([function(part) @ w for part in blocks(*self.entries.shape)])

    def _gains(self) -> bool:
        if self.importance is None:
            return False
        extra = self.importance.values - 1 / self.num_draws
        moved = noise = 0.0
        for part in blocks(*self.entries.shape):
            centred = self.entries[part] - self.entries[part].mean(axis=1, keepdims=True)
            for h in (centred, centred**2):
                h = h - h.mean(axis=1, keepdims=True)
                variance = np.maximum(np.mean(h**2, axis=1), np.finfo(np.float32).tiny)
                moved += float(np.sum((h @ extra) ** 2 / variance))
                noise += float(np.sum((h**2 @ extra**2) / variance))
        return moved > 2 * noise

    def _once(self, name: str, compute: Callable[[], Any]) -> Any:
        if name not in self._cache:
            self._cache[name] = compute()
        return self._cache[name]


def draw_weighted(
    source: Source, key: Key[Array, ""], num_draws: int, names: tuple[str, ...], query: Int[np.ndarray, " s"]
) -> WeightedDraws:
    """Draw from a source, with importance weights unless its draws are exact.

    Parameters
    ----------
    source, key, num_draws
        As in `Source.sample`.
    names, query
        As in `WeightedDraws`.
    """
    entries, log_ratio = draw_entries(source, key, num_draws, free_entries(query, len(names)))
    return WeightedDraws(entries, names, query, None if log_ratio is None else importance_weights(log_ratio))
