"""The structured bijection: noise to a precision matrix, column by column, entry by entry.

Without the l_q term the tempered posterior is Wishart(ν, Ψ⁻¹), ν = n + d + 1, Ψ = S + λI (n, S, λ divided by T), and
the columns of its Cholesky factor are independent. With a ridge ρ in Ψ, learned or the
shipped network's, and A lower triangular, AAᵀ = Ψ⁻¹:

    ℓ_j  = σ_j √k (1 − 2/(9k) + √(2/(9k)) ζ)^{3/2}                      k = ν − j: a χ variable (Wilson–Hilferty)
    μ_ij = (A_ij/A_jj) ℓ_j + Σ_{j<m<i} A_im ε_m,   ε_m = (L_mj − μ_mj)/A_mm      mean given the entries above
    c_ij = −F_ij/ℓ_j,   F_ij = Σ_{k<j} L_ik L_jk                         where ω_ij = F_ij + ℓ_j L_ij is zero
    L_ij = c_ij + σ_i τ(z; δ, log κ, q),   ω_ij = ℓ_j σ_i τ              δ = (r_i μ_ij − c_ij)/σ_i,  κ = λ(ℓ_j σ_i)^q

ρ approximates the effect of the penalty on later entries; the entry being drawn has its own penalty. So σ_i is A_ii
without ρ_i, σ_i⁻² = A_ii⁻² − ρ_i, r_i = (σ_i/A_ii)², and k counts only the entries below ℓ_j that are not pinned.

The learned weights are few: per entry a scale, a shift, a factor of κ and an affine map of the noise, linear in an
embedding of (log λ, q, log T); and couplings of δ and ℓ_j to the fill-in F and to the entries above. Given Ω, all
entries are evaluated at once (ε = AᵀΨL); only drawing is sequential. Draws lie on the last axis of every array.
"""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray
from paramax import NonTrainable, unwrap

from ggmflow.flow.structured_drawing import draw_columns
from ggmflow.flow.structured_entries import (
    contract,
    couple_columns,
    couple_to_fill,
    diagonal_noise,
    diagonal_of,
    is_below,
    pick,
    squash,
    squash_fill,
)
from ggmflow.flow.structured_geometry import (
    Geometry,
    Learned,
    PerDraw,
    Shipped,
    chi_degrees,
    geometry_at,
    initial_weights,
)
from ggmflow.flow.structured_network import CorrectionNetwork
from ggmflow.flow.transport import HIDDEN, HIDDEN_SMALL, Network, inverse_transport, load_network
from ggmflow.model.target import absolute_power, cholesky_columns, entry_indices, precision_from_entries, to_columns


class Coordinates(NamedTuple):
    """Inputs of τ for every entry of L, and the numbers that turn its output into entries; (d, s, b) unless noted."""

    ell: PerDraw  # (s, b)
    delta: PerDraw
    log_kappa: PerDraw
    log_sigma: PerDraw
    diagonal_shift: PerDraw  # (s, b)


class StructuredColumns(AbstractBijection):
    """Standard normal noise to the D free entries of Ω (first s columns), given [log λ, q, log T].

    Parameters
    ----------
    key
        For the initial weights of the embedding.
    scatter, n_samples
        S = XᵀX, query variables first, and n.
    n_query
        s; d for the whole matrix.
    low, high
        Range of the condition [log λ, q, log T], shape (3,).
    embedding, hidden
        Sizes.
    network
        Weights of τ; default those shipped.
    pretrained
        Weights of the network that gives ridge, corrections and couplings for every data set; None: the ridge is
        learned, and corrections start at zero.
    """

    learned: Learned
    # Not trained; wrapped, like the masked weights, until `paramax.unwrap`.
    scatter: Float[Array, "d d"]
    n_samples: Float[Array, ""]
    center: Float[Array, " 3"]
    half_range: Float[Array, " 3"]
    network: Network
    pretrained: CorrectionNetwork | None
    shape: tuple[int, ...] = eqx.field(static=True)
    n_query: int = eqx.field(static=True)
    cond_shape: ClassVar[tuple[int, ...]] = (3,)

    def __init__(
        self,
        key: PRNGKeyArray,
        scatter: Float[ArrayLike, "d d"],
        n_samples: float,
        n_query: int,
        low: Float[ArrayLike, " 3"],
        high: Float[ArrayLike, " 3"],
        *,
        embedding: int = 16,
        hidden: int = 32,
        network: Network | None = None,
        pretrained: CorrectionNetwork | None = None,
    ):
        low, high = (np.asarray(value, np.float32) for value in (low, high))
        scatter = jnp.asarray(scatter, jnp.float32)
        d, s = len(scatter), n_query
        self.learned = initial_weights(
            key,
            d,
            s,
            embedding=embedding,
            hidden=hidden,
            many_temperatures=bool(high[2] > low[2]),
            learns_ridge=pretrained is None,
        )
        self.scatter = _fixed(scatter)
        self.n_samples = _fixed(jnp.asarray(n_samples, jnp.float32))
        self.center = _fixed(jnp.asarray((low + high) / 2))
        # A range of one point is centred to 0, so its scale does not matter.
        self.half_range = _fixed(jnp.asarray(np.where(high > low, (high - low) / 2, np.float32(1))))
        network = network or load_network(HIDDEN if s == d else HIDDEN_SMALL)
        self.network = _fixed(jax.tree.map(jnp.asarray, network))
        self.pretrained = None if pretrained is None else _fixed(jax.tree.map(jnp.asarray, pretrained))
        self.shape = (len(entry_indices(d, s)[0]),)
        self.n_query = s

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """Free entries of Ω and log |dΩ/dz|, with respect to Lebesgue measure on those entries."""
        geometry = self.geometry(jnp.asarray(condition))
        columns, omega, log_dx = draw_columns(self, geometry, x[:, None])
        coordinates = find_coordinates(self, geometry, columns, omega)
        return pick(omega)[:, 0], log_det(geometry, coordinates, log_dx)[0]

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """Noise that gives the free entries of a positive definite Ω, all entries at once, and log |dz/dΩ|."""
        geometry = self.geometry(jnp.asarray(condition))
        d, s = len(self.scatter), self.n_query
        columns = cholesky_columns(precision_from_entries(y, d, s))[..., None]
        omega = to_columns(y, d, s)[..., None]
        coordinates = find_coordinates(self, geometry, columns, omega)
        noise, log_dx = invert_transport(self, geometry, coordinates, omega)
        return pick(noise)[:, 0], -log_det(geometry, coordinates, log_dx)[0]

    def geometry(self, condition: Float[Array, " 3"], shipped: Shipped | None = None) -> Geometry:
        """The geometry of one condition, its arrays ending in an axis of length 1."""
        return jax.tree.map(lambda leaf: leaf[..., None], geometry_at(unwrap(self), condition, shipped))

    def geometries(self, conditions: Float[Array, "c 3"], num_draws: int, shipped: Shipped | None = None) -> Geometry:
        """Geometries of c conditions, each repeated for its draws, on a last axis of length c·num_draws."""
        flow = unwrap(self)
        stacked = jax.vmap(lambda *given: geometry_at(flow, *given), out_axes=-1)(conditions, shipped)
        return jax.tree.map(lambda leaf: jnp.repeat(leaf, num_draws, axis=-1), stacked)


def _fixed(value: Any) -> Any:
    """Exclude from training; the annotation is that of the value which `unwrap` gives back."""
    return NonTrainable(value)


def find_coordinates(flow: StructuredColumns, geometry: Geometry, L: PerDraw, omega: PerDraw) -> Coordinates:
    """δ, log κ and log σ of every entry of given draws, all at once; zero above the diagonal."""
    flow = unwrap(flow)
    s, low = flow.n_query, is_below(flow)
    index = np.arange(s)
    ell, a, correction = L[index, index], diagonal_of(geometry.A), geometry.correction
    scale = geometry.scale
    product = jnp.einsum("ikb,jkb->ijb", L, L[:s])
    fill = jnp.where(low, product - ell * L, 0.0)
    cusp = -fill / ell
    mean = (scale / a)[:, None] ** 2 * (L - a[:, None] * contract(geometry.U, L))
    log_sigma = jnp.log(scale)[:, None] + 0.5 * correction[0]
    sigma = jnp.exp(log_sigma)
    degrees = chi_degrees(geometry, len(L), jnp.arange(s, dtype=L.dtype)[:, None])
    features = squash_fill(fill, scale[:s] * jnp.sqrt(degrees), sigma, low)
    coupled = couple_columns(flow.learned.from_fill, geometry.basis, features)
    shift = coupled[index, index]
    if geometry.couplings is not None:
        moved, moved_ell = couple_to_fill(geometry.couplings, features)
        coupled, shift = coupled + moved, shift + moved_ell
    above = couple_columns(flow.learned.from_above, geometry.basis, jnp.where(low, squash(omega / (ell * sigma)), 0.0))
    delta = jnp.where(low, (mean - cusp) / sigma + correction[1] + coupled + above, 0.0)
    log_kappa = jnp.log(geometry.lam) + geometry.q * (jnp.log(ell) + log_sigma) + correction[2]
    return Coordinates(ell, delta, jnp.where(low, log_kappa, 0.0), log_sigma, shift)


def invert_transport(
    flow: StructuredColumns, geometry: Geometry, coordinates: Coordinates, omega: PerDraw
) -> tuple[PerDraw, PerDraw]:
    """Noise that gives Ω, on the diagonal and below, and log dτ/dz below the diagonal; (d, s, b) each."""
    flow = unwrap(flow)
    low, index, correction = is_below(flow), np.arange(flow.n_query), geometry.correction
    ell, delta, log_kappa, log_sigma, shift = coordinates
    x = jnp.where(low, omega / ell * jnp.exp(-log_sigma), 0.0)
    inner, log_dz = inverse_transport(flow.network, x, delta, log_kappa, jnp.broadcast_to(geometry.q, x.shape))
    noise = (inner - correction[4]) * jnp.exp(-correction[3])
    degrees = chi_degrees(geometry, len(flow.scatter), jnp.arange(flow.n_query, dtype=x.dtype)[:, None])
    z, _ = diagonal_noise(degrees, geometry.scale[index], ell, correction[:, index, index], shift)
    return jnp.where(low, noise, 0.0).at[index, index].set(z), -log_dz


def log_det(geometry: Geometry, coordinates: Coordinates, log_dx: PerDraw) -> Float[Array, " b"]:
    """log |dΩ/dz| per draw."""
    ell, _, _, log_sigma, shift = coordinates
    d, s = log_dx.shape[:2]
    index, low = np.arange(s), (np.arange(d)[:, None] > np.arange(s))[..., None]
    # dω_ij = ℓ_j σ_i dx below the diagonal, dω_jj = 2 ℓ_j dℓ_j on it
    below = jnp.where(low, log_dx + geometry.correction[3] + jnp.log(ell) + log_sigma, 0.0)
    degrees = chi_degrees(geometry, d, jnp.arange(s, dtype=ell.dtype)[:, None])
    correction = geometry.correction[:, index, index]
    _, log_dell = diagonal_noise(degrees, geometry.scale[index], ell, correction, shift)
    return jnp.sum(below, (0, 1)) + jnp.sum(log_dell + jnp.log(2 * ell), 0)


def log_target(geometry: Geometry, L: PerDraw, omega: PerDraw) -> Float[Array, " b"]:
    """Tempered log p̃ of draws, as `target.unnormalized_log_prob`, with the l_q terms of Ω as it was drawn."""
    d, s = L.shape[:2]
    low = (np.arange(d)[:, None] > np.arange(s))[..., None]
    log_ell = jnp.log(L[np.arange(s), np.arange(s)])
    trace = jnp.sum(L * contract(geometry.scatter, L), (0, 1)) + geometry.lam * jnp.sum(L**2, (0, 1))
    penalty = jnp.sum(absolute_power(jnp.where(low, omega, 0.0), geometry.q), (0, 1))
    return geometry.n * jnp.sum(log_ell, 0) - 0.5 * trace - geometry.lam * penalty
