"""Posterior averaged over λ and q: a mixture over a grid, with weights proportional to the evidence."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key
from scipy.special import logsumexp

from ggmflow.evidence.marginal_likelihood import Evidence
from ggmflow.evidence.search import midpoints
from ggmflow.model.conditions import Ranges
from ggmflow.posterior.edges import Penalty
from ggmflow.posterior.flow_source import FlowSource
from ggmflow.posterior.source import Draws


class MixtureSource(NamedTuple):
    """Posteriors at many (λ, q), mixed by their evidence: log λ and q uniform in the fitted ranges a priori.

    Attributes
    ----------
    sources
        A flow at each point of a grid.
    log_share
        log of each point's posterior probability.
    log_constant
        log p(X | λ, q) − log Z_post of each point, which makes the targets of different points comparable.
    """

    sources: Sequence[FlowSource]
    log_share: Float[np.ndarray, " k"]
    log_constant: Float[np.ndarray, " k"]

    @property
    def penalties(self) -> tuple[Penalty, ...]:
        """Parameters of the l_q factor at every point, with the point's probability."""
        shares = np.exp(self.log_share - logsumexp(self.log_share)).tolist()
        return tuple(Penalty(source.lam, source.q, share) for source, share in zip(self.sources, shares, strict=True))

    def sample(self, key: Key[Array, ""], num_draws: int) -> Draws:
        """Draws of Ω from the joint distribution of grid point and Ω; both densities are joint densities."""
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        counts = rng.multinomial(num_draws, np.exp(self.log_share - logsumexp(self.log_share)))
        rows, log_q, log_p = [], [], []
        for k in np.flatnonzero(counts).tolist():
            draws = self.sources[k].sample(jax.random.fold_in(key, k), int(counts[k]))
            rows.append(draws.precision)
            log_q.append(self.log_share[k] + np.asarray(draws.log_prob))
            log_p.append(self.log_constant[k] + np.asarray(draws.log_target))
        order = rng.permutation(num_draws)
        return Draws(*(np.concatenate(parts)[order] for parts in (rows, log_q, log_p)))

    def log_prob(self, precision: Float[np.ndarray, "k s d"]) -> Float[np.ndarray, " k"]:
        """Log density of the mixture, in which the grid point is summed out."""
        parts = [share + source.log_prob(precision) for share, source in zip(self.log_share, self.sources, strict=True)]
        return np.asarray(logsumexp(parts, axis=0))


def grid_points(ranges: Ranges, lam: float | None, q: float | None) -> list[tuple[float, float]]:
    """The (λ, q) to average over: midpoints of a grid that is uniform in log λ and q.

    Parameters
    ----------
    ranges
        Fitted ranges.
    lam, q
        A value within its range, which stays fixed, or None.
    """
    ranges.condition(ranges.lam[0] if lam is None else lam, ranges.q[0] if q is None else q, 1.0)
    log_lams = midpoints(ranges.low[0], ranges.high[0], 12) if lam is None else np.log([lam])
    qs = midpoints(*ranges.q, 6) if q is None else np.array([q])
    return [(float(np.exp(x)), float(y)) for x, y in product(log_lams, qs)]


def mix(sources: Sequence[FlowSource], found: Sequence[Evidence]) -> MixtureSource:
    """Mixture of the posteriors at many (λ, q), weighted by their evidence; negligible points are left out.

    Parameters
    ----------
    sources
        A flow at each point.
    found
        The evidence of each point.
    """
    log_share = np.array([each.value for each in found])
    log_share = log_share - logsumexp(log_share)
    kept = np.flatnonzero(log_share > np.log(1e-4)).tolist()
    constant = np.array([each.value - each.posterior.value for each in found])
    shares = log_share[kept] - logsumexp(log_share[kept])
    return MixtureSource([sources[k] for k in kept], shares, constant[kept])
