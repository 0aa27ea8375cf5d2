"""The prior's normalizer on the cone for many variables, integrated from the Wishart density, which has no l_q terms.

    J(κ, q) = ∫_{Ω≻0} exp(−½ tr Ω − κV) dΩ,   V = Σ|ω_ij|^q,        Z_prior(λ, q) = λ^{−D} J(λ^{1−q}, q)
    log J(κ, q) = log J(0) − ∫₀^κ E_κ'[V] dκ'

J(0) is a Wishart normalizer, E_κ[V] comes from exact chains. V is a sum over all m pairs, so with more variables fewer
draws estimate its mean, whereas a flow has to be accurate in all of its D entries at once. With
e_q = E_0|ω_ij|^q, known in closed form, x = log(1 + κe_q) and h = log(E_κ[V] / (m e_q)), which is 0 at x = 0,

    log J(κ, q) = log J(0) − m ∫₀^x exp(h + x') dx'.

For some values of q, h is a cubic spline through a few values of x; between them log J is a polynomial in q.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float
from scipy.interpolate import CubicSpline, KroghInterpolator
from scipy.special import gammaln

from ggmflow import gibbs
from ggmflow.data.scatter import Scatter
from ggmflow.model.conditions import Ranges

VERSION = 1  # of the stored numbers; those of another version are computed again
NUM_PARTS = 20
_SEED = 0
_NO_ROWS = 1e-12  # n of a scatter matrix must be positive
_NUM_Q, _NUM_X = 9, 10
_WARMUP, _DRAWS, _NUM_BATCHES = 60, 150, 6  # sweeps of each chain; batches of draws give the standard error
_MEMORY = 2**25  # numbers per call that chains may return


class PriorIntegral(NamedTuple):
    """log Z_prior as a function of (λ, q).

    Attributes
    ----------
    n_features, n_query
        d and s.
    ranges
        Ranges of λ and q.
    h : (batches, q, x) array
        h at the points of `nodes`, from each batch of draws.
    """

    n_features: int
    n_query: int
    ranges: Ranges
    h: Float[np.ndarray, "b q x"]

    def log_normalizer(self, lam: float, q: float) -> tuple[float, float]:
        """log Z_prior on the free entries and its standard error, for λ and q in their ranges.

        The standard error combines three errors: that of the draws; that of the spline, a fifteenth of its change when
        its points are doubled, because it falls with the fourth power of their distance; and that of the polynomial,
        its change when the nearest q is left out, unless that is q itself.
        """
        d, s = self.n_features, self.n_query
        qs, x = nodes(d, self.ranges)
        ends = np.array([np.log1p(lam ** (1 - each) * mean_power(d, each)) for each in qs])
        mean = self.h.mean(axis=0, keepdims=True)
        areas = np.array([_areas(*each) for each in zip(x, np.moveaxis(self.h, 1, 0), ends, strict=True)])
        coarse = np.array([_areas(x[k, 1::2], mean[:, k, 1::2], end)[0] for k, end in enumerate(ends)])
        area, coarse_area = _at(qs, areas, q), _at(qs, coarse, q)
        nearest = int(np.argmin(np.abs(np.log(qs / q))))
        misfit = abs(area.mean() - coarse_area) / 15
        if qs[nearest] != q:
            fewer = np.arange(len(qs)) != nearest
            misfit = np.hypot(misfit, area.mean() - _at(qs[fewer], areas[fewer].mean(axis=1), q))
        m, noise = num_pairs(d, s), np.std(area, ddof=1) / np.sqrt(len(area))
        value = log_wishart(d, s) - m * area.mean() - (m + s) * np.log(lam)
        return float(value), float(m * np.hypot(noise, misfit))


def _at(qs: Float[np.ndarray, " q"], areas: Float[np.ndarray, "q ..."], q: float) -> Float[np.ndarray, " ..."]:
    """Areas at q, by interpolation between the q of `nodes`."""
    if len(qs) == 1:
        return areas[0]
    return np.exp(KroghInterpolator(np.log(qs), np.log(areas))(np.log(q)))


def _areas(x: Float[np.ndarray, " k"], h: Float[np.ndarray, "b k"], end: float) -> Float[np.ndarray, " b"]:
    """∫₀^end exp(h + x) dx with h a cubic spline that is zero at zero."""
    points, weights = np.polynomial.legendre.leggauss(64)
    at = 0.5 * end * (1 + points)
    spline = CubicSpline(np.append(0.0, x), np.pad(h, ((0, 0), (1, 0))), axis=1)
    return np.exp(spline(at) + at) @ (0.5 * end * weights)


def nodes(d: int, ranges: Ranges) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, "q x"]]:
    """Values of q, including 1 if it is in the range, and for each the values of x up to the largest of any λ."""
    low, high = np.log(ranges.q)
    # Ends and extrema of a Chebyshev polynomial: a polynomial through these does not oscillate in between.
    shares = 0.5 - 0.5 * np.cos(np.pi * np.linspace(0, 1, _NUM_Q))
    qs = np.exp(low + shares * (high - low)) if high > low else np.array([ranges.q[0]])
    if ranges.q[0] < 1 < ranges.q[1]:
        qs[np.argmin(np.abs(qs - 1))] = 1.0
    largest = [max(lam ** (1 - q) for lam in ranges.lam) * mean_power(d, q) for q in qs]
    return qs, np.log1p(largest)[:, None] * np.arange(1, _NUM_X + 1) / _NUM_X


def integrate_prior(
    n_features: int, n_query: int, ranges: Ranges, progress: Callable[[], None] = lambda: None
) -> PriorIntegral:
    """The integral for given ranges, from exact chains.

    Parameters
    ----------
    n_features, n_query
        d and s.
    ranges
        Ranges of λ and q.
    progress
        Called `NUM_PARTS` times, at equal distances.
    """
    d, s = n_features, n_query
    qs, x = nodes(d, ranges)
    q = np.repeat(qs, x.shape[1])
    e = np.array([mean_power(d, each) for each in q])
    kappa = np.expm1(x.ravel()) / e
    with_data, lam = realize(kappa, q)
    nothing = Scatter.without_data(d)
    penalty = np.empty((len(q), _DRAWS))
    for k, scatter in enumerate((nothing, replace(nothing, matrix=np.eye(d), n=_NO_ROWS))):
        here = with_data == bool(k)
        if here.any():
            key = jax.random.fold_in(jax.random.key(_SEED), k)
            penalty[here] = _penalties(key, scatter, lam[here], q[here], s, progress)
    means = np.stack([part.mean(axis=1) for part in np.array_split(penalty, _NUM_BATCHES, axis=1)])
    h = np.log(means / (num_pairs(d, s) * kappa * e))
    return PriorIntegral(d, s, ranges, h.reshape(_NUM_BATCHES, *x.shape))


def realize(
    kappa: Float[np.ndarray, " n"], q: Float[np.ndarray, " n"]
) -> tuple[Bool[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Conditions of the chains for each κ: whether S = I (otherwise there are no data), and λ.

    The sampler has one λ for trace and penalty. Without data that is κ = λ^{1−q}: at q = 1 always 1. With S = I,
    exp(−½(1 + λ) tr Ω − λV) is κ = λ/(1 + λ)^q in other units, which starts from zero for every q. For q < 1 it takes
    all values, else those below (q − 1)^{q−1}/q^q.
    """
    limit = np.where(q < 1, np.inf, np.where(q == 1, 1.0, np.abs(q - 1) ** (q - 1) / q**q))
    with_data = kappa < 0.9 * limit
    lam = np.where(with_data, kappa, kappa ** (1 / np.where(q == 1, np.inf, 1 - q)))
    for k in np.flatnonzero(with_data):
        low, high = -60.0, 60.0 if q[k] <= 1 else -np.log(q[k] - 1)  # of log λ, where κ rises
        for _ in range(100):
            middle = 0.5 * (low + high)
            below = middle - q[k] * np.logaddexp(0, middle) < np.log(kappa[k])
            low, high = (middle, high) if below else (low, middle)
        lam[k] = np.exp(low)
    return with_data, lam


def _penalties(
    key: jax.Array,
    scatter: Scatter,
    lam: Float[np.ndarray, " n"],
    q: Float[np.ndarray, " n"],
    s: int,
    progress: Callable[[], None],
) -> Float[np.ndarray, "n draws"]:
    """λV along every chain.

    For whole matrices the noise is reduced by a control variate: E[½r tr Ω + qλV] = D, with r the rate of the trace,
    follows from scaling Ω.
    """
    d = scatter.n_features
    i, j = np.triu_indices(s, 1, d)
    keep = int(np.clip(_MEMORY // (len(lam) * s * d), 1, _DRAWS // (NUM_PARTS // 2)))
    penalties, traces, start, done = [], [], None, 0
    while done < _DRAWS:
        chains = gibbs.sample(
            jax.random.fold_in(key, done),
            scatter,
            lam,
            q,
            n_query=s,
            num_draws=keep,
            num_warmup=0 if done else _WARMUP,
            start=start,
        )
        start = chains.draws[:, -1]
        penalties.append(
            np.stack([np.sum(np.abs(each[:, i, j]) ** p, axis=1) for each, p in zip(chains.draws, q, strict=True)])
        )
        traces.append(np.trace(chains.draws[..., :s], axis1=2, axis2=3))
        if done * NUM_PARTS // (2 * _DRAWS) < (done + keep) * NUM_PARTS // (2 * _DRAWS):
            progress()
        done += keep
    penalty = lam[:, None] * np.concatenate(penalties, axis=1)[:, :_DRAWS]
    if s < d:
        return penalty
    trace = 0.5 * (lam + scatter.matrix[0, 0])[:, None] * np.concatenate(traces, axis=1)[:, :_DRAWS]
    known = trace + q[:, None] * penalty - (num_pairs(d, s) + s)
    slope = np.mean((penalty - penalty.mean(1, keepdims=True)) * known, axis=1) / np.mean(known**2, axis=1)
    return penalty - slope[:, None] * known


def num_pairs(d: int, s: int) -> int:
    """m: number of pairs with one of the first s variables."""
    return s * d - s * (s + 1) // 2


def mean_power(d: int, q: float) -> float:
    """e_q = E|ω_ij|^q under Wishart(d + 1, I): given one of the two rows, ω_ij is normal."""
    log_moment = q * np.log(2) + gammaln((q + 1) / 2) + gammaln((d + 1 + q) / 2) - gammaln((d + 1) / 2)
    return float(np.exp(log_moment - 0.5 * np.log(np.pi)))


def log_wishart(d: int, s: int) -> float:
    """log J(0): Π_j 2^{k_j/2} Γ(k_j/2) over columns, k_j = d + 1 − j, times √2π for each pair."""
    k = d + 1 - np.arange(s)
    return float(np.sum(0.5 * k * np.log(2) + gammaln(k / 2)) + 0.5 * num_pairs(d, s) * np.log(2 * np.pi))
