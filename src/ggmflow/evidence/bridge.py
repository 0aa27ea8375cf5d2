"""Bridge sampling (Meng and Wong 1996): the ratio of two normalizers from draws of both densities.

    r = log Z₁/Z₂ solves  E₂[σ(l − r + M)]/s₁ = E₁[σ(r − l − M)]/s₂,      l = log p̃₁ − log p̃₂,  M = log s₁/s₂

Both densities are with respect to the same measure.
"""

from typing import NamedTuple

import numpy as np
from arviz_stats.base.array import array_stats
from jaxtyping import Float
from scipy.optimize import root_scalar
from scipy.special import expit


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: float
    se: float


class Bridge(NamedTuple):
    """log Z₁/Z₂ and the influence of every draw on its error, to first order."""

    log_ratio: float
    influence_1: Float[np.ndarray, "chains_1 draws_1"]
    influence_2: Float[np.ndarray, "chains_2 draws_2"]

    @property
    def estimate(self) -> Estimate:
        """log Z₁/Z₂ with its standard error, if the draws of the two densities are independent."""
        variance = mean_variance(self.influence_1) + mean_variance(self.influence_2)
        return Estimate(self.log_ratio, float(np.sqrt(variance)))


def mean_variance(values: Float[np.ndarray, "chains draws"]) -> float:
    """Variance of the mean of autocorrelated draws."""
    return float(np.var(values) / effective(values))


def effective(values: Float[np.ndarray, "chains draws"]) -> float:
    """Effective number of draws for the mean; at most their number."""
    if np.ptp(values) == 0:
        return float(values.size)
    ess = np.asarray(array_stats.ess(values, chain_axis=0, draw_axis=1, method="mean"))
    return float(np.minimum(ess, values.size))


def bridge(
    log_ratio_1: Float[np.ndarray, "chains_1 draws_1"],
    log_ratio_2: Float[np.ndarray, "chains_2 draws_2"],
    share: float = 0.5,
) -> Bridge:
    """log Z₁/Z₂ from draws of both densities.

    Parameters
    ----------
    log_ratio_1, log_ratio_2
        log p̃₁ − log p̃₂ at draws of the first and of the second density, one row per chain. A draw where the other
        density is zero has ∞ on the first side and −∞ on the second.
    share
        s₁; the first side's share of all effective draws is best. Any value gives a consistent estimate.
    """
    M = np.log(share / (1 - share))

    def sides(r: float) -> tuple[np.ndarray, np.ndarray]:
        return expit(r - log_ratio_1 - M), expit(log_ratio_2 - r + M)

    def excess(r: float) -> float:
        side_1, side_2 = sides(r)
        return float(np.mean(side_2) / share - np.mean(side_1) / (1 - share))

    ends = np.concatenate([log_ratio_1.ravel(), log_ratio_2.ravel()])
    ends = ends[np.isfinite(ends)]
    margin = abs(M) + 50
    r = float(root_scalar(excess, bracket=(ends.min() - margin, ends.max() + margin), xtol=1e-9).root)
    side_1, side_2 = sides(r)
    slope = np.mean(side_2 * (1 - side_2)) / share + np.mean(side_1 * (1 - side_1)) / (1 - share)
    return Bridge(r, -side_1 / (1 - share) / slope, side_2 / share / slope)


def bridge_to_proposal(
    exact_log_ratio: Float[np.ndarray, "chains draws"], proposal_log_ratio: Float[np.ndarray, " N"]
) -> Estimate:
    """log Z of the posterior, bridged to a normalized density such as a flow.

    Parameters
    ----------
    exact_log_ratio
        log p̃ − log q at draws of the exact sampler, one row per chain.
    proposal_log_ratio
        log p̃ − log q at independent draws of the proposal.
    """
    share = effective(exact_log_ratio) / (effective(exact_log_ratio) + proposal_log_ratio.size)
    result = bridge(exact_log_ratio, proposal_log_ratio[None], share)
    # The proposal's draws are independent, so their variance needs no autocorrelation.
    variance = mean_variance(result.influence_1) + np.var(result.influence_2) / result.influence_2.size
    return Estimate(result.log_ratio, float(np.sqrt(variance)))
