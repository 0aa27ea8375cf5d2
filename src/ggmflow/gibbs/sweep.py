"""One sweep of the exact sampler for any q > 0: column after column of Ω.

With Σ = Ω₁₁⁻¹ (s×s; Ω₁₁ = Ω for the full model), A = S + λI, Q = Ω₁₂ A₂₂ Ω₁₂ᵀ, and for column j of Ω₁₁
M = Σ − σ_jσ_jᵀ/σ_jj (the inverse of Ω₁₁ without row and column j, padded by zeros), γ = 1/σ_jj, u = e_j − Mβ:

    ω_j,2 | rest ~ N, precision σ_jj A₂₂,         linear term −s_j,2 − Σ_{i≠j} σ_ji (Ω₁₂A₂₂)_i   × ∏exp(−λ|ω_jk|^q)
    β     | rest ~ N, precision a_jj M + MQM/γ,   linear term −s_j + M q_j/γ                     × ∏exp(−λ|β_i|^q)
    γ     | rest ~ γ^{n/2} exp(−½ a_jj γ − ½ uᵀQu/γ),  which is Gamma(n/2 + 1, a_jj/2) for the full model (Q = 0)
    column j becomes β with ω_jj = γ + βᵀMβ,      Σ ← M + uuᵀ/γ

An exponential variable e turns each l_q factor into the box |β_i| < (|β_i|^q + e/λ)^{1/q}, so β_i is a truncated
normal; a Metropolis step at the interior mode of β_i's density precedes it (see `one_dimension`). γ > 0 keeps Ω
positive definite. Ω₂₂.₁ is integrated out, so a sweep of a blanket needs no t×t factorization.
Temperature: Ω/T has the density above with n/T in place of n and λT^{q−1} in place of λ in the l_q factors alone,
so chains at different T and λ share one S.
Chains are the last axis of every array, so that operations on them vectorize.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Key

from ggmflow.gibbs.one_dimension import draw_entry, draw_schur


class Noise(NamedTuple):
    """The random numbers of a sweep. They do not depend on the state, so they are drawn at once."""

    entries: Float[Array, "s d 5 chains"]  # an exponential variable and four uniforms, float32
    schur: Float[Array, "s 3 chains"]  # uniforms, float64


def draw_noise(key: Key[Array, ""], shape: tuple[int, int, int]) -> Noise:
    """Draw the random numbers of one sweep; `shape` is (s, d, chains)."""
    key_entries, key_schur = jax.random.split(key)
    s, d, num_chains = shape
    uniforms = jax.random.uniform(key_entries, (s, d, 5, num_chains), jnp.float32, minval=2**-25)
    entries = uniforms.at[:, :, 0].set(-jnp.log(uniforms[:, :, 0]))
    return Noise(entries, jax.random.uniform(key_schur, (s, 3, num_chains), float))


def _dot(x, y):
    """Contract the axis before the chains; operands broadcast, so that all chains may share one."""
    return jnp.sum(x * y, axis=-2)


def _inverse(A):
    """Inverse of positive definite matrices by Gauss–Jordan, NaN for others; LAPACK needs chains as the first axis."""

    def eliminate(k, A):
        others = (jnp.arange(len(A)) != k)[:, None]
        pivot = jnp.where(A[k, k] > 0, A[k, k], jnp.nan)  # all pivots are positive if and only if A ≻ 0
        row = jnp.where(others, A[k], 1.0) / pivot
        factor = jnp.where(others, A[:, k], 0.0)
        A = jnp.where(others, A, 0.0).at[k].set(0.0)  # column k is used up; row k is replaced
        return (A - factor[:, None] * row).at[k].set(row)

    return jax.lax.fori_loop(0, len(A), eliminate, A)


def _draw_entries(noise, x, product, linear, diagonal, strength, q, skip=None):
    """Sweep once through N(·, P)·∏exp(−λ|x_i|^q); `product(i, x)` is (Px)_i, `strength` is λ."""
    sd = 1 / jnp.sqrt(diagonal)
    log_kappa = (jnp.log(strength) + q * jnp.log(sd)).astype(jnp.float32)
    q = q.astype(jnp.float32)
    double, single = jnp.stack([linear, sd], axis=1), jnp.concatenate([log_kappa[:, None], noise], axis=1)

    # Each step fetches the inputs of the next one and stores the result of the one before. If a step fetched its own
    # inputs or stored its own result, the compiler would fuse this with the draw and not vectorize it over chains.
    def body(i, state):
        x, before, (linear_i, sd_i), (log_kappa_i, exponential, *uniforms) = state
        x = x.at[i - 1].set(before)
        delta = x[i] / sd_i + sd_i * (linear_i - product(i, x))
        old, delta = (x[i] / sd_i).astype(q.dtype), delta.astype(q.dtype)
        drawn = draw_entry(old, delta, log_kappa_i, q, exponential, uniforms)
        new = sd_i * drawn.astype(x.dtype)
        following = jnp.minimum(i + 1, x.shape[0] - 1)
        return x, new if skip is None else jnp.where(i == skip, x[i], new), double[following], single[following]

    x, last, *_ = jax.lax.fori_loop(0, x.shape[0], body, (x, x[-1], double[0], single[0]))
    return x.at[-1].set(last)


def _draw_outer_row(noise, j, rows, sigma, scatter, H, ridge, strength, q):
    """Row j of Ω₁₂, entry by entry; H = Ω₁₂A₂₂."""
    s, gamma, S_22 = len(rows), 1 / sigma[j, j], scatter[len(rows) :, len(rows) :]
    return _draw_entries(
        noise,
        rows[j, s:],
        lambda k, x: (_dot(S_22[k], x) + ridge * x[k]) / gamma,
        H[j] / gamma - scatter[j, s:] - jnp.sum(sigma[j][:, None] * H, axis=0),
        (jnp.diagonal(S_22).T + ridge) / gamma,  # `diagonal` puts its axis last
        strength,
        q,
    )


def _multiply_refined(M, beta, Omega_11, others):
    """Mβ and βᵀMβ, where M is the inverse of Ω₁₁ without row and column j, with its rounding error corrected."""
    M_beta = _dot(M, beta)
    for _ in range(2):  # iterative refinement
        M_beta = M_beta + _dot(M, jnp.where(others, beta - _dot(Omega_11, M_beta), 0.0))
    # βᵀMβ to second order in the remaining error: γ must not be lost in it when Ω is near-singular.
    return M_beta, _dot(M_beta, 2 * beta - jnp.where(others, _dot(Omega_11, M_beta), 0.0))


def sweep(
    noise: Noise,
    rows: Float[Array, "s d chains"],
    scatter: Float[Array, "d d #chains"],
    n_samples: Float[ArrayLike, " #chains"],
    ridge: Float[Array, " chains"],
    strength: Float[Array, " chains"],
    q: Float[Array, " chains"],
) -> Float[Array, "s d chains"]:
    """Update every column of every chain once.

    Parameters
    ----------
    noise
        From `draw_noise`.
    rows
        [Ω₁₁ Ω₁₂].
    scatter
        S, query variables first; shared by all chains if its last axis is 1.
    n_samples
        n.
    ridge, strength
        λ in A = S + λI and λ in the l_q factors: the same number unless tempered.
    q
        Exponent of the penalty.

    Returns
    -------
    (s, d, chains) array
        The rows after the sweep.
    """
    s, d, _ = rows.shape
    blanket = s < d
    S_22 = scatter[s:, s:]

    def update_column(j, state):
        rows, sigma, H = state  # H = Ω₁₂A₂₂
        gamma = 1 / sigma[j, j]
        if blanket:
            v = _draw_outer_row(noise.entries[j, s:], j, rows, sigma, scatter, H, ridge, strength, q)
            rows = rows.at[j, s:].set(v)
            H = H.at[j].set(_dot(S_22, v) + ridge * v)

        others = (jnp.arange(s) != j)[:, None]
        a_jj, sigma_j = scatter[j, j] + ridge, sigma[j]
        M = jnp.where(others & others[:, None], sigma - sigma_j[:, None] * sigma_j * gamma, 0.0)
        P, linear = a_jj * M, jnp.broadcast_to(-scatter[:s, j], sigma_j.shape)
        if blanket:
            Q = jnp.einsum("ikc,jkc->ijc", H, rows[:, s:])
            MQ = jnp.einsum("ijc,jkc->ikc", M, Q)
            P = P + jnp.einsum("ijc,jkc->ikc", MQ, M) / gamma
            linear = linear + MQ[:, j] / gamma
        beta = _draw_entries(
            noise.entries[j, :s],
            jnp.where(others, rows[:, j], 0.0),
            lambda i, x: _dot(P[i], x),
            linear,
            jnp.where(others, jnp.diagonal(P).T, 1.0),
            strength,
            q,
            skip=j,
        )
        M_beta, explained = _multiply_refined(M, beta, rows[:, :s], others)
        u = jnp.where(others, -M_beta, 1.0)
        gamma = draw_schur(noise.schur[j], gamma, n_samples, a_jj, _dot(u, _dot(Q, u)) if blanket else 0.0)
        column = jnp.where(others, beta, gamma + explained)
        rows = rows.at[:, j].set(column).at[j, :s].set(column)
        return rows, M + u[:, None] * u / gamma, H

    H = _dot(S_22, rows[:, None, s:]) + ridge * rows[:, s:]
    # Σ is computed in every sweep, because rounding errors of its rank-one updates accumulate for near-singular Ω.
    return jax.lax.fori_loop(0, s, update_column, (rows, _inverse(rows[:, :s]), H))[0]
