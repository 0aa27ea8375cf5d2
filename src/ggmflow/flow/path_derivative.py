"""Gradients of the reverse Kullback–Leibler divergence along the path of the draws, without its score term.

    ∇_θ E[log q_θ(Ω) − log p̃(Ω)] = E[ (∂Ω/∂θ)ᵀ ∇_Ω(log q − log p̃) ],      Ω = Ω(z; θ)

The omitted term E[∇_θ log q_θ] is zero, but its noise is not: without it the gradient of a perfect flow has no
variance at all. Both factors are cheap here. ∇_Ω needs no loop, because log q of all entries is evaluated at once with
τ replaced by its tangent at the draw. (∂Ω/∂θ)ᵀ runs through the columns with the same tangent, so no network is
evaluated inside a loop that is differentiated; within a column it is one triangular solve.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from paramax import unwrap

from ggmflow.flow.columns import (
    Geometry,
    PerDraw,
    StructuredColumns,
    _below,
    _degrees,
    _diagonal,
    _lean,
    _squash_fill,
    contract,
    diagonal_entry,
    diagonal_noise,
    draw_columns,
    find_coordinates,
    log_target,
    pick,
    place,
)
from ggmflow.flow.transport import Partials, transport_partials


class Tangent(NamedTuple):
    """τ at the draws: values, derivatives, and the inputs where they were taken; all (d, s, b)."""

    partials: Partials
    noise: PerDraw  # after its affine map
    delta: PerDraw
    log_kappa: PerDraw


def path_derivative_loss(
    flow: StructuredColumns, key: PRNGKeyArray, conditions: Float[Array, "c 3"], num_draws: int
) -> tuple[Float[Array, ""], Float[Array, "c m"]]:
    """A number whose gradient in the flow is the path derivative, and log q − log p̃ of every draw.

    Parameters
    ----------
    flow
        The flow; differentiate with respect to it.
    key
        For the noise.
    conditions
        [log λ, q, log T] of c conditions.
    num_draws
        m, draws per condition.

    Returns
    -------
    surrogate
        Only its gradient means anything.
    log_ratio : (c, m)
        log q − log p̃: its mean is the negative ELBO.
    """
    flow = unwrap(flow)
    frozen = jax.lax.stop_gradient(flow)
    geometry = flow.geometries(conditions, num_draws)
    fixed = jax.lax.stop_gradient(geometry)
    z = jax.random.normal(key, (*flow.shape, fixed.q.shape[-1]))
    L, omega = jax.lax.stop_gradient(draw_columns(frozen, fixed, z))
    noise = place(z, flow)
    tangent = jax.lax.stop_gradient(_tangent(frozen, fixed, L, omega, noise))

    def log_ratio(L, omega):
        return _log_prob(frozen, fixed, L, omega, tangent) - log_target(fixed, L, omega)

    value, pull_back = jax.vjp(log_ratio, L, omega)
    slope = jax.lax.stop_gradient(pull_back(jnp.ones_like(value)))
    moved = _move(flow, geometry, noise, tangent)
    surrogate = sum(jnp.sum(a * b) for a, b in zip(slope, moved, strict=True)) / value.size
    return surrogate, jax.lax.stop_gradient(value).reshape(len(conditions), num_draws)


def sample_columns(
    flow: StructuredColumns, key: PRNGKeyArray, condition: Float[Array, " 3"], num_draws: int
) -> tuple[Float[Array, "D b"], Float[Array, " b"], Float[Array, " b"]]:
    """Draws under one condition: free entries of Ω, their log density under the flow, their tempered log p̃."""
    flow = unwrap(flow)
    geometry = flow.geometry(condition)
    z = jax.random.normal(key, (*flow.shape, num_draws))
    L, omega = draw_columns(flow, geometry, z)
    tangent = _tangent(flow, geometry, L, omega, place(z, flow))
    return pick(omega, flow), _log_prob(flow, geometry, L, omega, tangent), log_target(geometry, L, omega)


def _tangent(flow: StructuredColumns, geometry: Geometry, L: PerDraw, omega: PerDraw, noise: PerDraw) -> Tangent:
    coordinates = find_coordinates(flow, geometry, L, omega)
    noise = noise * jnp.exp(geometry.correction[3]) + geometry.correction[4]
    # The network runs on the free entries only, not on the empty half of the square.
    packed = [pick(value, flow) for value in (noise, coordinates.delta, coordinates.log_kappa)]
    partials = transport_partials(flow.network, *packed, jnp.broadcast_to(geometry.q, packed[0].shape))
    partials = jax.tree.map(lambda value: place(value, flow), partials)
    return Tangent(partials, noise, coordinates.delta, coordinates.log_kappa)


def _log_prob(flow: StructuredColumns, geometry: Geometry, L: PerDraw, omega: PerDraw, tangent: Tangent):
    """log q at the draws, wrt Lebesgue measure on the free entries of Ω; its derivative in (L, Ω) is exact."""
    ell, delta, log_kappa, log_sigma, shift = find_coordinates(flow, geometry, L, omega)
    (x_z, x_delta, x_kappa), (g_z, g_delta, g_kappa) = tangent.partials.x_of, tangent.partials.log_dx_of
    low, index, correction = _below(flow), np.arange(flow.n_query), geometry.correction
    move_delta, move_kappa = delta - tangent.delta, log_kappa - tangent.log_kappa
    x = omega / ell * jnp.exp(-log_sigma)
    move_x = x - tangent.partials.x - x_delta * move_delta - x_kappa * move_kappa
    move = jnp.where(low, move_x, 0.0) / jnp.where(low, x_z, 1.0)
    log_dx = tangent.partials.log_dx + g_z * move + g_delta * move_delta + g_kappa * move_kappa
    z = (tangent.noise + move - correction[4]) * jnp.exp(-correction[3])
    log_dz = log_dx + correction[3] + jnp.log(ell) + log_sigma
    off_diagonal = jnp.sum(jnp.where(low, -0.5 * z**2 - log_dz, 0.0), (0, 1))
    degrees = _degrees(geometry, len(L), jnp.arange(flow.n_query, dtype=L.dtype)[:, None])
    z_jj, log_dell = diagonal_noise(degrees, _diagonal(geometry.A)[index], ell, correction[:, index, index], shift)
    diagonal = jnp.sum(-0.5 * z_jj**2 - log_dell - jnp.log(2 * ell), 0)
    return off_diagonal + diagonal - 0.5 * flow.shape[0] * np.log(2 * np.pi).astype(L.dtype)


def _move(flow: StructuredColumns, geometry: Geometry, noise: PerDraw, tangent: Tangent) -> tuple[PerDraw, PerDraw]:
    """L and Ω as functions of flow and geometry near the draws: `draw_columns` with τ replaced by its tangent."""
    d, s = len(flow.scatter), flow.n_query
    A, U, a = geometry.A, geometry.U, _diagonal(geometry.A)

    def column(L, inputs):
        j, correction, noise, fill_weights, above_weights, tangent = inputs
        partials = tangent.partials
        x_z, x_delta, x_kappa = partials.x_of
        below = (jnp.arange(d) > j)[:, None]
        fill = jnp.sum(L * L[j], axis=1)
        sigma = a * jnp.exp(0.5 * correction[0])
        degrees = _degrees(geometry, d, j.astype(L.dtype))
        leaning = _lean(fill_weights, geometry.basis, _squash_fill(fill, a[j] * jnp.sqrt(degrees), sigma, below))
        ell = diagonal_entry(degrees, a[j], noise[j], correction[:, j], leaning[j])
        cusp = jnp.where(below, -fill / ell, 0.0)
        log_kappa = jnp.log(geometry.lam) + geometry.q * jnp.log(ell * sigma) + correction[2]
        inner = noise * jnp.exp(correction[3]) + correction[4]
        # tanh(x/2) ≈ value + rate (x − x₀) at the draw
        value = jnp.where(below, jnp.tanh(0.5 * partials.x), 0.0)
        rate = jnp.where(below, 0.5 * (1 - value**2), 0.0)
        # With N = I − diag(a)Uᵀ, strictly lower below row j, μ = N L_j. So L_j solves the triangular system
        #   L = c + σ(x₀ + x_δ(δ − δ₀) + x_κ(log κ − log κ₀) + x_z(ζ − ζ₀)),
        #   δ = (N L − c)/σ + leanings + W(value + rate((L − c)/σ − x₀)).
        above = _lean(above_weights, geometry.basis, value - rate * (partials.x + cusp / sigma))
        delta = correction[1] + leaning + above - cusp / sigma
        moves = x_delta * (delta - tangent.delta) + x_kappa * (log_kappa - tangent.log_kappa)
        rhs = cusp + sigma * (partials.x + moves + x_z * (inner - tangent.noise))
        rhs = jnp.where(below, rhs, 0.0).at[j].set(ell)
        gain = jnp.where(below, x_delta, 0.0)
        rate = rate / sigma

        def matvec(v):
            mean = v - a * jnp.sum(U * v[:, None], axis=0)
            return v - gain * mean - sigma * gain * _lean(above_weights, geometry.basis, rate * v)

        def solve(_, b):
            def row(i, v):
                mean = -a[i] * jnp.sum(U[:, i] * v, axis=0)
                above = _lean(above_weights[i][None], geometry.basis, rate * v)[0]
                return v.at[i].set(b[i] + gain[i] * (mean + sigma[i] * above))

            return jax.lax.fori_loop(j, d, row, jnp.zeros_like(b))

        def transpose_solve(_, b):
            def row(m, w):
                i = d - 1 - m
                mean = -jnp.sum(U[i] * a * gain * w, axis=0)
                scaled = jnp.tensordot(above_weights[:, :, i], sigma * gain * w, ((0,), (0,)))
                return w.at[i].set(b[i] + mean + rate[i] * jnp.sum(scaled * geometry.basis, axis=0))

            return jax.lax.fori_loop(0, d - j, row, jnp.zeros_like(b))

        L_j = jax.lax.custom_linear_solve(matvec, rhs, solve, transpose_solve)
        omega_j = jnp.where(below, ell * (L_j - cusp), 0.0).at[j].set(fill[j] + ell**2)
        return L.at[:, j].set(L_j), (L_j, omega_j)

    learned = flow.learned
    by_column = jax.tree.map(lambda value: jnp.moveaxis(value, 1, 0), (noise, tangent))
    inputs = (jnp.arange(s), jnp.moveaxis(geometry.correction, 2, 0), by_column[0])
    inputs += (learned.from_fill, learned.from_above, by_column[1])
    _, columns = jax.lax.scan(column, jnp.zeros_like(noise), inputs)
    L, omega = (jnp.moveaxis(value, 0, 1) for value in columns)
    return L, omega
