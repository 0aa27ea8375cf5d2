"""Importance weights, which make draws of a proposal q represent a target p̃.

    w_i ∝ p̃(Ω_i)/q(Ω_i),   E_p f ≈ Σ w_i f(Ω_i),   log Z ≈ log mean p̃/q,   ESS = 1/(N Σ w_i²),   Σ w_i = 1

The largest weights are Pareto-smoothed (Vehtari et al. 2024). k̂, the shape of that Pareto tail, decides whether the
weights can be used: it must be below 0.7, or below 1 − 1/log₁₀ N if that is less.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from arviz_stats.base.array import array_stats
from jaxtyping import Float, Int
from scipy.special import logsumexp

from ggmflow.posterior.source import DrawsError

MIN_DRAWS = 25  # fewer have no tail to fit
_FEW = 0.1  # relative effective sample size below which the loss of accuracy is reported
# If the log weights of the tail agree to this, the tail is bounded: they differ only by rounding of densities.
_BOUNDED = 1e-3


class Verdict(StrEnum):
    """How far estimates from draws can be trusted; summary, report and explorer share it.

    GOOD: the weights can be used, or the draws are exact. FAIR: the weights can be used, but fewer than a tenth of the
    draws are effective, which costs accuracy, not correctness. POOR: k̂ is too large, so the weights cannot be used.
    MOVING: exact chains whose distribution still changes from sweep to sweep; they need more sweeps.
    """

    GOOD = "good"
    FAIR = "fair"
    POOR = "poor"
    MOVING = "moving"


class ImportanceWeights(NamedTuple):
    """Weights of N draws, and how well the proposal fits the target by them.

    Attributes
    ----------
    values : (N,) array
        Pareto-smoothed weights, with sum one.
    khat : float
        Pareto k̂; 0 where the largest weights are equal, infinite where no tail can be fitted because a few draws
        outweigh all others, NaN below 25 draws.
    ess : float
        Effective sample size relative to N, in (0, 1].
    elbo : float
        Mean of log p̃ − log q over the draws, a lower bound of log Z; NaN if a draw has no density.
    log_normalizer, log_normalizer_se : float
        Estimate of log Z = log ∫ p̃ and its standard error, by the delta method.
    num_invalid : int
        Draws whose p̃/q is not a number or infinite; their weight is zero.
    """

    values: Float[np.ndarray, " N"]
    khat: float
    ess: float
    elbo: float
    log_normalizer: float
    log_normalizer_se: float
    num_invalid: int

    @property
    def reliable(self) -> bool:
        """Whether k̂ allows the weights to be used."""
        return self.khat < self.khat_limit  # False for NaN

    @property
    def khat_limit(self) -> float:
        """Upper limit of k̂ for weights that can be used."""
        return khat_limit(self.values.size)

    @property
    def verdict(self) -> Verdict:
        """How far to trust weighted estimates: GOOD, FAIR or POOR.

        It depends on the share of effective draws, not on their number, so that a flow gets the same verdict from 1000
        draws as from 4000.
        """
        if not self.reliable:
            return Verdict.POOR
        return Verdict.FAIR if self.ess < _FEW else Verdict.GOOD

    @property
    def poor(self) -> bool:
        """Whether an estimate should warn and evidence use another method.

        True if the weights are not reliable, or if fewer than 100 draws (a tenth, of less than 1000) are effective.
        """
        num_draws = self.values.size
        return not self.reliable or self.ess * num_draws < min(100, _FEW * num_draws)

    def __str__(self) -> str:
        return describe_weights(self.values.size, self.khat, self.ess, self.num_invalid)


def describe_weights(num_draws: int, khat: float, ess: float, num_invalid: int = 0) -> str:
    """k̂ with its limit and the number of effective draws, as a text; arguments as in `ImportanceWeights`."""
    if num_draws < MIN_DRAWS:
        return f"{num_draws} draws are too few to tell ({MIN_DRAWS} are needed)"
    invalid = f"{num_invalid} draws without a finite density, " if num_invalid else ""
    effective = f"{ess * num_draws:.0f} effective of {num_draws} draws"
    return f"{invalid}Pareto k̂ = {khat:.2f} (should be below {khat_limit(num_draws):.2g}), {effective}"


def khat_limit(num_draws: int) -> float:
    """Upper limit of k̂ for this number of draws: 0.7 from 2200 draws on, less for fewer."""
    return min(0.7, 1 - 1 / float(np.log10(max(num_draws, 2))))


def importance_weights(log_ratio: Float[np.ndarray, " N"]) -> ImportanceWeights:
    """Pareto-smoothed importance weights of draws.

    Parameters
    ----------
    log_ratio : (N,) array
        log p̃ − log q of each draw, both with respect to the same measure, q normalized.

    Returns
    -------
    ImportanceWeights

    Examples
    --------
    >>> weights = importance_weights(np.log(np.linspace(1.0, 2.0, 1000)))  # bounded: no heavy tail
    >>> weights.reliable, round(weights.ess, 2), round(weights.log_normalizer, 2)
    (True, 0.96, 0.41)
    """
    log_ratio = np.asarray(log_ratio, np.float64)
    num_draws = log_ratio.size
    invalid = np.isnan(log_ratio) | (log_ratio == np.inf)
    usable = np.where(invalid, -np.inf, log_ratio)
    top = usable.max()
    if not np.isfinite(top):
        raise DrawsError(f"None of the {num_draws} draws has a finite density, so there are no weights.")
    log_weights, khat = _smooth(usable - top)
    log_sum = logsumexp(log_weights)
    values = np.exp(log_weights - log_sum)
    ess = min(1.0, 1 / (num_draws * np.sum(values**2)))
    return ImportanceWeights(
        values=values,
        khat=np.inf if invalid.any() else khat,
        ess=float(ess),
        elbo=np.nan if invalid.any() else float(np.mean(log_ratio)),
        log_normalizer=float(top + log_sum - np.log(num_draws)),
        log_normalizer_se=float(np.sqrt((1 / ess - 1) / num_draws)),
        num_invalid=int(invalid.sum()),
    )


def _smooth(log_weights: Float[np.ndarray, " N"]) -> tuple[Float[np.ndarray, " N"], float]:
    """Pareto-smooth log weights whose largest is 0; return them in the same scale, and k̂."""
    num_draws = log_weights.size
    if num_draws < MIN_DRAWS:
        return log_weights, np.nan
    order = np.argsort(log_weights)
    tail = int(3 * np.sqrt(num_draws)) if num_draws > 225 else num_draws // 5
    if -log_weights[order[-tail - 1]] < _BOUNDED:
        return log_weights, 0.0
    with np.errstate(all="ignore"):  # underflowing weights make the fit divide by zero; k̂ is then not finite
        smoothed, khat = array_stats.psislw(-log_weights)
        # psislw normalizes the weights; a draw outside the tail, which it does not smooth, restores the scale.
        middle = order[num_draws // 2]
        smoothed = smoothed + (log_weights[middle] - smoothed[middle])
    if not np.isfinite(khat) or np.isnan(smoothed).any():
        return log_weights, np.inf
    return smoothed, float(khat)


def resample(
    rng: np.random.Generator, weights: Float[np.ndarray, " N"], num_draws: int
) -> Int[np.ndarray, " num_draws"]:
    """Positions of draws, chosen in proportion to their weights by systematic resampling, in random order."""
    # One uniform number for all: a draw of weight w appears ⌊nw⌋ or ⌈nw⌉ times, which is the least repetition possible.
    points = (rng.uniform() + np.arange(num_draws)) / num_draws
    chosen = np.searchsorted(np.cumsum(weights), points).clip(max=weights.size - 1)
    return rng.permutation(chosen)


def blocks(num_rows: int, row_length: int, size: int = 2**17) -> Iterator[slice]:
    """Slices of about `size` numbers each, so that temporary arrays stay in the cache."""
    step = max(1, size // row_length)
    return (slice(start, min(start + step, num_rows)) for start in range(0, num_rows, step))


def sort_order(values: Float[np.ndarray, "D N"]) -> Int[np.ndarray, "D N"]:
    """`argsort` of each row in the smallest integer type: a quarter of the memory of the values."""
    out = np.empty(values.shape, np.uint16 if values.shape[1] <= 2**16 else np.uint32)
    for part in blocks(*values.shape):
        out[part] = np.argsort(values[part], axis=1)
    return out


def weighted_quantile(
    values: Float[np.ndarray, "D N"],
    order: Int[np.ndarray, "D N"],
    weights: Float[np.ndarray, " N"],
    probs: Float[np.ndarray, " k"],
) -> Float[np.ndarray, "k D"]:
    """Quantiles of each row under weights that all rows share.

    The i-th smallest value has the probability Σ_{k<i} w_k + w_i/2, with linear interpolation in between; for equal
    weights these are NumPy's quantiles with `method="hazen"`.

    Parameters
    ----------
    values : (D, N) array
    order : (D, N) array of int
        `sort_order(values)`. Sorting takes most of the time and serves all weights and probabilities.
    weights : (N,) array
        With sum one.
    probs : (k,) array
        Probabilities from 0 to 1.

    Returns
    -------
    (k, D) array

    Examples
    --------
    >>> values = np.array([[3.0, 1.0, 2.0]])
    >>> weighted_quantile(values, sort_order(values), np.array([0.6, 0.2, 0.2]), np.array([0.5]))
    array([[2.5]])
    """
    num_rows, num_draws = values.shape
    out = np.empty((len(probs), num_rows))
    for part in blocks(num_rows, num_draws):
        w = weights[order[part]]
        at = np.cumsum(w, axis=1) - w / 2
        index = np.arange(len(at))
        for k, prob in enumerate(probs):
            above = np.sum(at < prob, axis=1)  # `at` ascends, so this is the position of the first value above
            low, high = np.maximum(above - 1, 0), np.minimum(above, num_draws - 1)
            below, gap = at[index, low], at[index, high] - at[index, low]
            share = np.clip((prob - below) / np.where(gap > 0, gap, 1.0), 0, 1)
            x_low, x_high = (values[part][index, order[part][index, i]] for i in (low, high))
            out[k, part] = x_low + share * (x_high - x_low)
    return out
