"""Gradients of the reverse Kullback–Leibler divergence along the path of the draws, without its score term.

    ∇_θ E[log q_θ(Ω) − log p̃(Ω)] = E[ (∂Ω/∂θ)ᵀ ∇_Ω(log q − log p̃) ],      Ω = Ω(z; θ)

The omitted term E[∇_θ log q_θ] is zero, but its noise is not: without it the gradient of a perfect flow has no
variance at all. Both factors are cheap here. ∇_Ω needs no loop, because log q of all entries is evaluated at once with
τ replaced by its tangent at the draw. (∂Ω/∂θ)ᵀ is an implicit derivative: the draws solve L = G(L; θ), where G, all
entries at once, depends on earlier ones only; so with g = ∇_L(log q − log p̃) it is (∂G/∂θ)ᵀ w, w = (I − ∂G/∂L)⁻ᵀ g.
The triangular system for w is the only loop, and no network runs inside it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from paramax import unwrap

from ggmflow.flow.base import widen
from ggmflow.flow.structured_columns import StructuredColumns, find_coordinates, log_det, log_target
from ggmflow.flow.structured_drawing import couple_column, draw_columns
from ggmflow.flow.structured_entries import (
    couple,
    diagonal_entry,
    diagonal_noise,
    diagonal_of,
    is_below,
    pick,
    place,
    squash_fill,
)
from ggmflow.flow.structured_geometry import Geometry, PerDraw, Shipped, chi_degrees, has_many_temperatures
from ggmflow.flow.transport import Partials, transport_partials


class Tangent(NamedTuple):
    """τ at the draws: values, derivatives, and the inputs where they were taken; all (d, s, b)."""

    partials: Partials
    noise: PerDraw  # after its affine map
    delta: PerDraw
    log_kappa: PerDraw


def path_derivative_loss(
    flow: StructuredColumns,
    noise: Float[Array, "D c m"],
    conditions: Float[Array, "c 3"],
    shipped: Shipped | None = None,
) -> tuple[Float[Array, ""], Float[Array, "c m"]]:
    """A surrogate whose gradient in the flow is the path derivative, and log q − log p̃ of every draw.

    Parameters
    ----------
    flow
        The flow; differentiate with respect to it.
    noise
        Standard normal, of m draws for each condition.
    conditions
        [log λ, q, log T] of c conditions.
    shipped
        What the shipped network gives there, with c as the first axis of every array; default: it is computed.

    Returns
    -------
    surrogate
        A number of which only the gradient has a meaning.
    log_ratio : (c, m)
        log q − log p̃: its mean is the negative ELBO.
    """
    flow = unwrap(flow)
    weights = condition_weights(flow, conditions)
    if flow.n_query < len(flow.scatter):
        # d × d matrices for every draw would outweigh its d × s entries: the draws of a condition share them.
        def one(z, condition, shipped, weight):
            geometry = flow.geometry(condition, shipped)
            return path_derivative(flow, geometry, z, lambda value: jnp.full_like(value, weight))

        surrogates, log_ratio = jax.vmap(one, (1, 0, 0, 0))(noise, conditions, shipped, weights)
        return jnp.mean(surrogates), log_ratio
    geometry = flow.geometries(conditions, noise.shape[2], shipped)
    weight = jnp.repeat(weights, noise.shape[2])
    surrogate, log_ratio = path_derivative(flow, geometry, noise.reshape(len(noise), -1), lambda _: weight)
    return surrogate, log_ratio.reshape(noise.shape[1:])


def condition_weights(flow: StructuredColumns, conditions: Float[Array, "c 3"]) -> Float[Array, " c"]:
    """1, and with a range of temperatures √(T/T_max) where a shipped network is trained further.

    That training is short, and the noise of cold gradients, hundreds of nats, moves the corrections at T_max away from
    what the network gives. On the toy problem 100 steps left a gap of 0.53 there with these weights, of 0.55 without.
    """
    log_temperature = conditions[:, 2]
    if flow.pretrained is None or not has_many_temperatures(flow):
        return jnp.ones_like(log_temperature)
    return jnp.exp(0.5 * (log_temperature - flow.center[2] - flow.half_range[2]))


def path_derivative(
    flow: StructuredColumns, geometry: Geometry, z: Float[Array, "D b"], weigh: Callable[[Array], Array] = jnp.ones_like
) -> tuple[Float[Array, ""], Float[Array, " b"]]:
    """`path_derivative_loss` for draws that share one geometry, or have one each.

    `weigh` gives the weight of every draw from log q − log p̃, in place of a plain mean.
    """
    frozen, fixed = jax.lax.stop_gradient((flow, geometry))
    L, omega, _ = jax.lax.stop_gradient(draw_columns(frozen, fixed, z))
    placed = place(z, flow)
    tangent = jax.lax.stop_gradient(_tangent(frozen, fixed, L, omega, placed))

    def log_ratio(L, omega):
        return _log_prob(frozen, fixed, L, omega, tangent) - log_target(fixed, L, omega)

    value, pull_back = jax.vjp(log_ratio, L, omega)
    slope_L, slope_omega = pull_back(jnp.ones_like(value))
    # Ω = LLᵀ: its slope is L's too
    low = is_below(flow)
    half = jnp.where(low, slope_omega, 0.0)
    diagonal = jnp.where(low | ~is_below_or_on(flow), 0.0, slope_omega)
    product = jnp.einsum("ijb,jkb->ikb", half + 2 * diagonal, L[: flow.n_query])
    product += jnp.pad(jnp.einsum("ijb,ikb->jkb", half, L), ((0, len(L) - flow.n_query), (0, 0), (0, 0)))
    adjoint = solve_adjoint(frozen, fixed, L, tangent, slope_L + jnp.where(is_below_or_on(flow), product, 0.0))
    adjoint = jax.lax.stop_gradient(adjoint * weigh(value))
    surrogate = jnp.sum(adjoint * _next_columns(flow, geometry, L, omega, placed, tangent)) / value.size
    return surrogate, jax.lax.stop_gradient(value)


def sample_columns(
    flow: StructuredColumns, key: PRNGKeyArray, geometry: Geometry, num_draws: int
) -> tuple[Float[Array, "D b"], Float[Array, " b"], Float[Array, " b"]]:
    """Draws of one geometry: free entries of Ω, their log density under the flow, their tempered log p̃.

    log p̃ is in the widest precision that is enabled.
    """
    flow = unwrap(flow)
    z = jax.random.normal(key, (*flow.shape, num_draws), flow.scatter.dtype)
    L, omega, log_dx = draw_columns(flow, geometry, z)
    log_q = -0.5 * jnp.sum(z**2, 0) - 0.5 * len(z) * np.log(2 * np.pi).astype(z.dtype)
    log_q -= log_det(geometry, find_coordinates(flow, geometry, L, omega), log_dx)
    return pick(omega), log_q, log_target(*widen((geometry, L, omega)))


def _tangent(flow: StructuredColumns, geometry: Geometry, L: PerDraw, omega: PerDraw, noise: PerDraw) -> Tangent:
    coordinates = find_coordinates(flow, geometry, L, omega)
    noise = noise * jnp.exp(geometry.correction[3]) + geometry.correction[4]
    # The network runs on the free entries only, not on the empty half of the square.
    z, delta, log_kappa = (pick(value) for value in (noise, coordinates.delta, coordinates.log_kappa))
    partials = transport_partials(flow.network, z, delta, log_kappa, jnp.broadcast_to(geometry.q, z.shape))
    partials = jax.tree.map(lambda value: place(value, flow), partials)
    return Tangent(partials, noise, coordinates.delta, coordinates.log_kappa)


def _log_prob(flow: StructuredColumns, geometry: Geometry, L: PerDraw, omega: PerDraw, tangent: Tangent):
    """log q at the draws, wrt Lebesgue measure on the free entries of Ω; its derivative in (L, Ω) is exact."""
    ell, delta, log_kappa, log_sigma, shift = find_coordinates(flow, geometry, L, omega)
    (x_z, x_delta, x_kappa), (g_z, g_delta, g_kappa) = tangent.partials.x_of, tangent.partials.log_dx_of
    low, index, correction = is_below(flow), np.arange(flow.n_query), geometry.correction
    move_delta, move_kappa = delta - tangent.delta, log_kappa - tangent.log_kappa
    x = omega / ell * jnp.exp(-log_sigma)
    move_x = x - tangent.partials.x - x_delta * move_delta - x_kappa * move_kappa
    move = jnp.where(low, move_x, 0.0) / jnp.where(low, x_z, 1.0)
    log_dx = tangent.partials.log_dx + g_z * move + g_delta * move_delta + g_kappa * move_kappa
    z = (tangent.noise + move - correction[4]) * jnp.exp(-correction[3])
    log_dz = log_dx + correction[3] + jnp.log(ell) + log_sigma
    off_diagonal = jnp.sum(jnp.where(low, -0.5 * z**2 - log_dz, 0.0), (0, 1))
    degrees = chi_degrees(geometry, len(L), jnp.arange(flow.n_query, dtype=L.dtype)[:, None])
    z_jj, log_dell = diagonal_noise(degrees, geometry.scale[index], ell, correction[:, index, index], shift)
    diagonal = jnp.sum(-0.5 * z_jj**2 - log_dell - jnp.log(2 * ell), 0)
    return off_diagonal + diagonal - 0.5 * flow.shape[0] * np.log(2 * np.pi).astype(L.dtype)


def _next_columns(
    flow: StructuredColumns, geometry: Geometry, L: PerDraw, omega: PerDraw, noise: PerDraw, tangent: Tangent
) -> PerDraw:
    """G, up to terms without θ: every entry of L as a function of those before it, with τ replaced by its tangent."""
    partials, correction, index = tangent.partials, geometry.correction, np.arange(flow.n_query)
    _, delta, log_kappa, log_sigma, shift = find_coordinates(flow, geometry, L, omega)
    x_z, x_delta, x_kappa = partials.x_of
    inner = noise * jnp.exp(correction[3]) + correction[4]
    x = partials.x + x_delta * (delta - tangent.delta) + x_kappa * (log_kappa - tangent.log_kappa)
    x += x_z * (inner - tangent.noise)
    # L = c + σx; c = (Ω − ...)/ℓ depends on earlier entries only, which are fixed here
    below = jnp.where(is_below(flow), jnp.exp(log_sigma) * x, 0.0)
    degrees = chi_degrees(geometry, len(L), jnp.arange(flow.n_query, dtype=L.dtype)[:, None])
    scale = geometry.scale[index]
    return below.at[index, index].set(
        diagonal_entry(degrees, scale, noise[index, index], correction[:, index, index], shift)
    )


def solve_adjoint(flow: StructuredColumns, geometry: Geometry, L: PerDraw, tangent: Tangent, slope: PerDraw) -> PerDraw:
    """w = (I − ∂G/∂L)⁻ᵀ slope, from the last column to the first, (d, s, b)."""
    d, s = len(flow.scatter), flow.n_query
    U, a, scale, basis = geometry.U, diagonal_of(geometry.A), geometry.scale, geometry.basis
    stretch = (scale / a) ** 2
    _, x_delta, x_kappa = tangent.partials.x_of

    def column(m, adjoint):
        j = s - 1 - m
        below = (jnp.arange(d) > j)[:, None]
        correction = jax.lax.dynamic_index_in_dim(geometry.correction, j, 2, keepdims=False)
        above_weights = flow.learned.from_above[j]
        sigma = scale * jnp.exp(0.5 * correction[0])
        x, gain, gain_kappa = (
            jnp.where(below, jax.lax.dynamic_index_in_dim(value, j, 1, keepdims=False), 0.0)
            for value in (tangent.partials.x, x_delta, x_kappa)
        )
        L_j = jax.lax.dynamic_index_in_dim(L, j, 1, keepdims=False)
        before = jnp.where(jnp.arange(s)[:, None] < j, jax.lax.dynamic_index_in_dim(L, j, 0, keepdims=False), 0.0)
        given = jax.lax.dynamic_index_in_dim(adjoint, j, 1, keepdims=False)
        fill, ell = jnp.sum(L * before, axis=1), L_j[j]
        rate = 0.5 * (1 - jnp.tanh(0.5 * x) ** 2) / sigma  # of tanh(x/2) in L
        pushed = sigma * gain  # of L in δ

        # Rows below j: w_i = given_i + Σ_{k>i} ∂L_k/∂L_i w_k, with ∂δ_k/∂L_i = −r_k a_k U_ik/σ_k + rate_i W_ki.
        def row(r, w):
            i = d - 1 - r
            mean = -jnp.sum(U[i] * (stretch * a * gain * w), axis=0)
            coupled = jnp.sum(jnp.tensordot(above_weights[:, :, i], pushed * w, ((0,), (0,))) * basis, axis=0)
            return w.at[i].set(given[i] + mean + rate[i] * coupled)

        w = jax.lax.fori_loop(0, d - 1 - j, row, jnp.zeros_like(given))

        # Column j as a function of ℓ_j and of the fill-in; entries above row i enter through x = (L − c)/σ too.
        def from_earlier(ell, fill):
            cusp = jnp.where(below, -fill / ell, 0.0)
            mean = stretch * (L_j - a * jnp.sum(U * L_j.at[j].set(ell)[:, None], axis=0))
            degrees = chi_degrees(geometry, d, j.astype(L.dtype))
            features = squash_fill(fill, scale[j] * jnp.sqrt(degrees), sigma, below)
            coupled, shift = couple_column(flow, geometry, features, j)
            above = couple(above_weights, basis, jnp.where(below, jnp.tanh(0.5 * (L_j - cusp) / sigma), 0.0))
            delta = (mean - cusp) / sigma + coupled + above
            return cusp + sigma * (gain * delta + gain_kappa * geometry.q * jnp.log(ell)), shift

        _, pull_back = jax.vjp(from_earlier, ell, fill)
        zero = jnp.zeros_like(ell)
        ell_bar = given[j] + pull_back((w, zero))[0]
        # ℓ_j is coupled to the fill-in itself
        degrees = chi_degrees(geometry, d, j.astype(L.dtype))
        shift = _shift_rate(degrees, scale[j], ell)
        _, fill_bar = pull_back((w, shift * ell_bar))
        w = w.at[j].set(ell_bar)
        # F_i = Σ_{k<j} L_ik L_jk
        own = jnp.where(jnp.arange(s)[:, None] < j, jnp.sum(fill_bar[:, None] * L, axis=0), 0.0)
        adjoint = (adjoint + fill_bar[:, None] * before).at[j].add(own)
        return adjoint.at[:, j].set(w)

    return jax.lax.fori_loop(0, s, column, slope)


def _shift_rate(degrees: PerDraw, scale: PerDraw, ell: PerDraw) -> PerDraw:
    """dℓ_j/d shift of `diagonal_entry`, at a given ℓ_j."""
    _, log_dell = diagonal_noise(degrees, scale, ell, jnp.zeros((2, *ell.shape), ell.dtype), jnp.zeros_like(ell))
    return jnp.exp(log_dell)


def is_below_or_on(flow: StructuredColumns) -> np.ndarray:
    """Mask of the entries on and below the diagonal, (d, s, 1)."""
    return (np.arange(len(flow.scatter))[:, None] >= np.arange(flow.n_query))[..., None]
