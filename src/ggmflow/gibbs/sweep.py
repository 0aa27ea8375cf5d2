"""One sweep of the exact sampler for any q > 0: column after column of Ω.

With Σ = Ω₁₁⁻¹ (s×s; Ω₁₁ = Ω for the full model), A = S + λI, Q = Ω₁₂ A₂₂ Ω₁₂ᵀ, and for column j of Ω₁₁
M = Σ − σ_jσ_jᵀ/σ_jj (the inverse of Ω₁₁ without row and column j, padded by zeros), γ = 1/σ_jj, u = e_j − Mβ:

    ω_j,2 | rest ~ N, precision σ_jj A₂₂,         linear term −s_j,2 − Σ_{i≠j} σ_ji (Ω₁₂A₂₂)_i   × ∏exp(−λ|ω_jk|^q)
    β     | rest ~ N, precision a_jj M + MQM/γ,   linear term −s_j + M q_j/γ                     × ∏exp(−λ|β_i|^q)
    γ     | rest ~ γ^{n/2} exp(−½ a_jj γ − ½ uᵀQu/γ),  which is Gamma(n/2 + 1, a_jj/2) for the full model (Q = 0)
    column j becomes β with ω_jj = γ + βᵀMβ,      Σ ← M + uuᵀ/γ

An exponential variable e turns each l_q factor into the box |β_i| < (|β_i|^q + e/λ)^{1/q}, so β_i is a truncated
normal; a Metropolis step at the interior mode of β_i's density precedes it (see `one_dimension`). γ > 0 keeps Ω
positive definite. Ω₂₂.₁ is integrated out, so a blanket never touches a t×t factorization.
Temperature: Ω/T has the density above with n/T in place of n and λT^{q−1} in place of λ in the l_q factors alone,
so chains at different T and λ share one S.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from ggmflow.gibbs.one_dimension import draw_entry, draw_schur


class Noise(NamedTuple):
    """What a sweep consumes: it does not depend on the state, so it is drawn in one go."""

    exponential: Float[Array, "s d"]
    uniforms: Float[Array, "4 s d"]
    schur: Float[Array, "3 s"]


def draw_noise(key: Key[Array, ""], n_query: int, n_features: int) -> Noise:
    """Draw the random numbers of one sweep; single precision is enough for where an entry lands."""
    key_box, key_uniform, key_schur = jax.random.split(key, 3)
    shape = (n_query, n_features)
    exponential = jax.random.exponential(key_box, shape, jnp.float32).astype(float)
    uniforms = jax.random.uniform(key_uniform, (4, *shape), jnp.float32, minval=2**-25)
    return Noise(exponential, uniforms, jax.random.uniform(key_schur, (3, n_query), float))


def _draw_entries(exponential, uniforms, x, product, linear, diagonal, strength, q, skip=None):
    """Sweep once through N(·, P)·∏exp(−λ|x_i|^q); `product(i, x)` is (Px)_i, `strength` is λ."""
    sd = 1 / jnp.sqrt(diagonal)

    def body(i, x):
        centre = x[i] + (linear[i] - product(i, x)) / diagonal[i]
        new = draw_entry(x[i], centre, sd[i], strength, q, exponential[i], uniforms[:, i])
        return x.at[i].set(new if skip is None else jnp.where(i == skip, x[i], new))

    return jax.lax.fori_loop(0, x.shape[0], body, x)


def sweep(noise, rows, sigma, scatter, n_samples, ridge, strength, q):
    """Update every column of one chain once.

    Parameters
    ----------
    rows : (s, d) array
        [Ω₁₁ Ω₁₂].
    sigma : (s, s) array
        Ω₁₁⁻¹.
    scatter : (d, d) array
        S, query variables first.
    ridge, strength
        λ in A = S + λI and λ in the l_q factors: the same number unless tempered (or strength = 0: Wishart).

    Returns
    -------
    rows, sigma
        After the sweep.
    """
    s, d = rows.shape
    blanket = s < d
    S_22 = scatter[s:, s:]
    index = jnp.arange(s)

    def update_column(j, state):
        rows, sigma, H = state  # H = Ω₁₂A₂₂
        exponential, uniforms = noise.exponential[j], noise.uniforms[:, j]
        a_jj = scatter[j, j] + ridge
        if blanket:
            sigma_jj = sigma[j, j]
            v = _draw_entries(
                exponential[s:],
                uniforms[:, s:],
                rows[j, s:],
                lambda k, x: sigma_jj * (S_22[k] @ x + ridge * x[k]),
                sigma_jj * H[j] - scatter[j, s:] - sigma[j] @ H,
                sigma_jj * (jnp.diagonal(S_22) + ridge),
                strength,
                q,
            )
            rows = rows.at[j, s:].set(v)
            H = H.at[j].set(S_22 @ v + ridge * v)

        others = index != j
        sigma_j, gamma = sigma[:, j], 1 / sigma[j, j]
        M = jnp.where(others & others[:, None], sigma - jnp.outer(sigma_j, sigma_j) * gamma, 0.0)
        beta = jnp.where(others, rows[:, j], 0.0)
        P, linear, Q = a_jj * M, -scatter[:s, j], H @ rows[:, s:].T
        if blanket:
            MQ = M @ Q
            P, linear = P + MQ @ M / gamma, linear + MQ[:, j] / gamma
        diagonal = jnp.where(others, jnp.diagonal(P), 1.0)
        beta = _draw_entries(
            exponential[:s],
            uniforms[:, :s],
            beta,
            lambda i, x: P[i] @ x,
            linear,
            diagonal,
            strength,
            q,
            skip=j,
        )

        M_beta = M @ beta
        u = jnp.where(others, -M_beta, 1.0)
        gamma = draw_schur(noise.schur[:, j], gamma, n_samples, a_jj, u @ Q @ u if blanket else 0.0)
        column = jnp.where(others, beta, gamma + beta @ M_beta)
        rows = rows.at[:, j].set(column).at[j, :s].set(column)
        return rows, M + jnp.outer(u, u) / gamma, H

    H = rows[:, s:] @ S_22 + ridge * rows[:, s:]
    rows, sigma, _ = jax.lax.fori_loop(0, s, update_column, (rows, sigma, H))
    # One Newton step for the inverse takes away what the rank-one updates have lost.
    sigma = 2 * sigma - sigma @ rows[:, :s] @ sigma
    return rows, 0.5 * (sigma + sigma.T)
