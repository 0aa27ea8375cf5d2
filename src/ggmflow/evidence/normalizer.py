"""The normalizer log ∫ p̃ of a target over the free entries of Ω, from draws of a flow at the same condition.

log Z ≈ log mean(w),  w = p̃/q        importance weights, where they are good enough
log Z by bridge sampling             between the flow and exact chains
log Z ≈ E[log w] + ½ Var[log w]      cumulants, if chains would take too long
"""

from enum import StrEnum
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from ggmflow.evidence.bridge import bridge_to_proposal
from ggmflow.posterior.flow_source import FlowSource
from ggmflow.posterior.weights import importance_weights

_CHAINS, _SWEEPS, _KEPT = 256, 100, 10  # of a bridge


class Method(StrEnum):
    """Method by which a normalizer is estimated, from the most to the least reliable."""

    IMPORTANCE = "importance"
    BRIDGE = "bridge"
    INTEGRAL = "integral"
    CUMULANT = "cumulant"


class LogNormalizer(NamedTuple):
    """log ∫ p̃ over the free entries of Ω.

    Attributes
    ----------
    value, se
        Estimate and its standard error.
    elbo, ess, khat
        Diagnostics of the flow's draws, as in `Posterior.diagnostics`.
    method
        "importance" where k̂ allows it. Otherwise "bridge", between the flow and exact chains, or "cumulant", the mean
        of the log weights plus half their variance: right for normal log weights, which its standard error assumes.
        "integral" for the prior of many variables, see `prior_integral`, which has no flow.
    num_invalid
        Draws of the flow whose p̃/q is NaN or infinite. They count as draws of weight zero, and no chain starts from
        them.
    """

    value: float
    se: float
    elbo: float
    ess: float
    khat: float
    method: Method
    num_invalid: int = 0


def log_normalizer(source: FlowSource, key: Key[Array, ""], num_draws: int, *, exact: bool = True) -> LogNormalizer:
    """log ∫ p̃ of the target of a flow.

    Parameters
    ----------
    source
        The flow at a condition.
    key
        The same key gives the same noise, so that differences between conditions are smooth.
    num_draws
        Draws of the flow.
    exact
        Whether to run exact chains where importance weights fail; otherwise the cumulants are used.
    """
    entries, log_q, log_p = source.entries(key, num_draws)
    log_ratio = log_p.astype(float) - log_q
    weights = importance_weights(log_ratio)
    known = {"elbo": weights.elbo, "ess": weights.ess, "khat": weights.khat, "num_invalid": weights.num_invalid}
    if not weights.poor:
        return LogNormalizer(weights.log_normalizer, weights.log_normalizer_se, method=Method.IMPORTANCE, **known)
    usable = np.isfinite(log_ratio)
    log_ratio = np.where(usable, log_ratio, -np.inf)  # as in the weights
    if not exact:
        return LogNormalizer(*cumulant_estimate(log_ratio), method=Method.CUMULANT, **known)
    start = source.to_rows(entries[np.flatnonzero(usable)[:_CHAINS]])
    chains = source.refine(jax.random.fold_in(key, 1), start, _SWEEPS, _KEPT)
    rows = chains.draws[:, _KEPT // 2 :]
    density = source.log_prob(rows.reshape(-1, *rows.shape[2:])).reshape(rows.shape[:2])
    estimate = bridge_to_proposal(source.log_target(rows) - density, log_ratio)
    return LogNormalizer(*estimate, method=Method.BRIDGE, **known)


def cumulant_estimate(log_ratio: Float[np.ndarray, " N"]) -> tuple[float, float]:
    """Mean of log weights plus half their variance, and its standard error.

    Draws far outside the posterior hardly contribute to the integral, but would dominate the variance. So the lower
    tail is cut at 3 sd below the median, the sd taken from the upper half.
    """
    middle, above = np.quantile(log_ratio, [0.5, 0.8413])
    kept = np.maximum(log_ratio, middle - 3 * (above - middle))
    deviation = kept - kept.mean()
    value, error = kept.mean() + 0.5 * np.mean(deviation**2), np.std(deviation + 0.5 * deviation**2)
    return float(value), float(error / np.sqrt(log_ratio.size))
