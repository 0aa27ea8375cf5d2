"""The prior's normalizer on the cone for many variables: integrated from the Wishart density, where l_q terms are off.

    J(κ, q) = ∫_{Ω≻0} exp(−½ tr Ω − κV) dΩ,   V = Σ|ω_ij|^q,        Z_prior(λ, q) = λ^{−D} J(λ^{1−q}, q)
    log J(κ, q) = log J(0) − ∫₀^κ E_κ'[V] dκ'

J(0) is a Wishart normalizer, E_κ[V] comes from exact chains. V is a sum over all m pairs, so the more variables there
are, the fewer draws it takes to know its mean; a flow with D entries has to be right in all of them at once. With
e_q = E_0|ω_ij|^q, known in closed form, and x = log(1 + κe_q), the ratio

    h = log(E_κ[V] / (m e_q))      is 0 at x = 0, nearly linear in x and smooth in q:   h ≈ Σ_{i≥1, j} c_ij x^i q^j

and log J(κ, q) = log J(0) − m ∫₀^x exp(h + x') dx'.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

from ggmflow import gibbs
from ggmflow.conditions import Ranges
from ggmflow.data import Scatter

_SEED = 0
_NO_ROWS = 1e-12  # a scatter matrix needs some
_POWERS, _Q_POWERS = 5, 4  # of x, from the first; of q, from zero
_NUM_Q, _WEAK, _STRONG = 6, 8, 6  # values of q, and of λ in each of the two families of chains
_WARMUP, _BATCH, _NUM_BATCHES = 50, 25, 6  # sweeps; batches of draws give the standard error
NUM_PARTS = 2 * _NUM_BATCHES


class PriorIntegral(NamedTuple):
    """log Z_prior as a function of (λ, q).

    Attributes
    ----------
    n_features, n_query
        d and s.
    coefficients : (batches, powers of x, powers of q) array
        c, of each batch of draws.
    """

    n_features: int
    n_query: int
    coefficients: Float[np.ndarray, "b i j"]

    def log_normalizer(self, lam: float, q: float) -> tuple[float, float]:
        """log Z_prior on the free entries, and its standard error."""
        d, s = self.n_features, self.n_query
        end = np.log1p(lam ** (1 - q) * _mean_power(d, q))
        nodes, weights = np.polynomial.legendre.leggauss(64)
        x, dx = 0.5 * end * (1 + nodes), 0.5 * end * weights
        h = np.tensordot(self.coefficients, _basis(x, np.full_like(x, q), *self.coefficients.shape[1:]), axes=2)
        area = _num_pairs(d, s) * np.exp(h + x) @ dx
        value = _log_wishart(d, s) - area.mean() - (_num_pairs(d, s) + s) * np.log(lam)
        return float(value), float(area.std(ddof=1) / np.sqrt(len(area)))


def integrate_prior(
    n_features: int, n_query: int, ranges: Ranges, progress: Callable[[], None] = lambda: None
) -> PriorIntegral:
    """Run the chains that the integral needs.

    Parameters
    ----------
    n_features, n_query
        d and s.
    ranges
        Of λ and q.
    progress
        Called after each of `NUM_PARTS` parts of the work.

    Notes
    -----
    Chains of a shared λ know only κ = λ^{1−q}, which is 1 at q = 1. So half of them have S = I instead of no data:
    exp(−½(1 + λ) tr Ω − λV) is, in other units, κ = λ/(1 + λ)^q, from zero on.
    """
    d, s = n_features, n_query
    qs = np.linspace(*ranges.q, _NUM_Q) if ranges.q[0] < ranges.q[1] else np.array([ranges.q[0]])
    lams = np.geomspace(*ranges.lam, _STRONG) if ranges.lam[0] < ranges.lam[1] else np.array([ranges.lam[0]])
    weak = [(lam, q) for q in qs for lam in np.geomspace(0.03 / _mean_power(d, q), 3.0, _WEAK)]
    strong = [(lam, q) for q in qs for lam in lams]
    nothing = Scatter.without_data(d)
    found = []
    for k, (conditions, scatter) in enumerate(
        ((weak, replace(nothing, matrix=np.eye(d), n=_NO_ROWS)), (strong, nothing))
    ):
        lam, q = np.array(conditions).T
        trace_rate = lam + scatter.matrix[0, 0]
        key, start, warmup, batches = jax.random.fold_in(jax.random.key(_SEED), k), None, _WARMUP, []
        for batch in range(_NUM_BATCHES):
            chains = gibbs.sample(
                jax.random.fold_in(key, batch),
                scatter,
                lam,
                q,
                n_query=s,
                num_draws=_BATCH,
                num_warmup=warmup,
                start=start,
            )
            batches.append(_penalty(chains.draws, lam, q, trace_rate, _num_pairs(d, s) + s))
            start, warmup = chains.draws[:, -1], 0
            progress()
        e = np.array([_mean_power(d, each) for each in q])
        kappa = lam * trace_rate**-q
        h = np.log(np.stack(batches) / (_num_pairs(d, s) * kappa * e))
        found.append((np.log1p(kappa * e), q, h))
    x, q, h = (np.concatenate(parts, axis=-1) for parts in zip(*found, strict=True))
    shape = (_POWERS, min(_Q_POWERS, len(qs)))
    basis = _basis(x, q, *shape).reshape(-1, len(x))
    return PriorIntegral(d, s, np.linalg.lstsq(basis.T, h.T, rcond=None)[0].T.reshape(-1, *shape))


def _penalty(
    draws: Float[np.ndarray, "chains draws s d"],
    lam: Float[np.ndarray, " chains"],
    q: Float[np.ndarray, " chains"],
    trace_rate: Float[np.ndarray, " chains"],
    n_entries: int,
) -> Float[np.ndarray, " chains"]:
    """E[λV] of every chain, with what is known of it: E[½r tr Ω₁₁ + qλV] = D, r the rate of the trace, at n = 0.

    That holds for the whole matrix, as tr(LᵀL) = tr Ω there; for a block Ω₁₁ has its own part of the trace.
    """
    s, d = draws.shape[2:]
    i, j = np.triu_indices(s, 1, d)
    penalty = lam[:, None] * np.sum(np.abs(draws[:, :, i, j]) ** q[:, None, None], axis=2)
    if s < d:
        return penalty.mean(axis=1)
    trace = 0.5 * trace_rate[:, None] * np.trace(draws, axis1=2, axis2=3)
    known = trace + q[:, None] * penalty - n_entries
    slope = np.mean((penalty - penalty.mean(1, keepdims=True)) * known, axis=1) / np.mean(known**2, axis=1)
    return np.mean(penalty - slope[:, None] * known, axis=1)


def _num_pairs(d: int, s: int) -> int:
    return s * d - s * (s + 1) // 2


def _mean_power(d: int, q: float) -> float:
    """e_q = E|ω_ij|^q under Wishart(d + 1, I): given one of the two rows, ω_ij is normal."""
    return float(
        np.exp(q * np.log(2) + gammaln((q + 1) / 2) + gammaln((d + 1 + q) / 2) - gammaln((d + 1) / 2)) / np.sqrt(np.pi)
    )


def _log_wishart(d: int, s: int) -> float:
    """log J(0): Π_j 2^{k_j/2} Γ(k_j/2) over columns, k_j = d + 1 − j, times √2π for each pair."""
    k = d + 1 - np.arange(s)
    return float(np.sum(0.5 * k * np.log(2) + gammaln(k / 2)) + 0.5 * _num_pairs(d, s) * np.log(2 * np.pi))


def _basis(
    x: Float[np.ndarray, " n"], q: Float[np.ndarray, " n"], powers: int, q_powers: int
) -> Float[np.ndarray, "i j n"]:
    """x^i q^j."""
    return x ** np.arange(1, powers + 1)[:, None, None] * q ** np.arange(q_powers)[:, None]
