"""The working scale of columns: normal scores of ranks and their inverse, centring and scaling."""

import numpy as np
from jaxtyping import Float


def normal_scores(values: Float[np.ndarray, "n d"], observed: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "n d"]:
    """Φ⁻¹(r/(m+1)), r the rank among a column's m observed values; linear between them, NaN for NaN."""
    return np.column_stack([_scores_of_column(x, column) for x, column in zip(values.T, observed.T, strict=True)])


def _scores_of_column(x: Float[np.ndarray, " n"], observed: Float[np.ndarray, " m"]) -> Float[np.ndarray, " n"]:
    from scipy.special import ndtri  # slow to load, and needed for the transform only

    knots, counts = np.unique(observed[~np.isnan(observed)], return_counts=True)
    last = np.cumsum(counts)
    scores = ndtri((last - (counts - 1) / 2) / (last[-1] + 1))  # ties share their average rank
    left = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    low, high = knots[left], knots[left + 1]
    # t = (x − low)/(high − low), all divided by a power of two so that no difference over- or underflows.
    _, power = np.frexp(np.maximum(np.abs(low), np.abs(high)))
    low, high, x = (np.ldexp(v, -power) for v in (low, high, np.clip(x, low, high)))
    t = (x - low) / (high - low)
    between = np.minimum(scores[left] + t * (scores[left + 1] - scores[left]), scores[left + 1])
    # At t = 1 rounding would change the last bit of an observed value's score.
    return np.where(t == 1, scores[left + 1], between)


def values_of_scores(scores: Float[np.ndarray, "*n"], observed: Float[np.ndarray, " m"]) -> Float[np.ndarray, "*n"]:
    """The inverse: x with Φ⁻¹(r/(m+1)) = score, r its rank among the column's m observed values."""
    from scipy.special import ndtr, ndtri

    values = observed[~np.isnan(observed)]
    m = len(values)
    if np.all(values[1:] > values[:-1]):
        return np.interp(scores, ndtri(np.arange(1, m + 1) / (m + 1)), values)
    # Scores of ties are averages, so their variance is below 1.
    shared = _scores_of_column(values, values)
    rank = np.ceil(ndtr((scores - shared.mean()) / shared.std()) * m).clip(1, m)
    return values[rank.astype(np.intp) - 1]


def to_unit_variance(values: Float[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centre and scale the observed values: working, mean, scale with values = working·scale + mean."""
    # Powers of two scale every column near 1 without rounding, so that squares neither over- nor underflow.
    _, power = np.frexp(np.nanmax(np.abs(values), axis=0))
    working = np.ldexp(values, -power)
    mean = np.zeros(values.shape[1])
    for _ in range(2):  # the second pass removes the rounding error of a mean far from zero
        step = np.nanmean(working, axis=0)
        working, mean = working - step, mean + step
    scale = np.sqrt(np.nanmean(working**2, axis=0))
    return working / scale, np.ldexp(mean, power), np.ldexp(scale, power)
