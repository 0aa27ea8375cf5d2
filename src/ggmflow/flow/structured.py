"""The structured flow: noise to a precision matrix, column by column, entry by entry, along the posterior's geometry.

Without the l_q term the tempered posterior is Wishart(ν, Ψ⁻¹), ν = n + d + 1, Ψ = S + λI (n, S, λ divided by T), and
the columns of its Cholesky factor are independent. With a learned ridge ρ in Ψ and A lower triangular, AAᵀ = Ψ⁻¹:

    ℓ_j  = σ_j √k (1 − 2/(9k) + √(2/(9k)) ζ)^{3/2}                      k = ν − j: a χ variable (Wilson–Hilferty)
    μ_ij = (A_ij/A_jj) ℓ_j + Σ_{j<m<i} A_im ε_m,   ε_m = (L_mj − μ_mj)/A_mm      mean given the entries above
    c_ij = −F_ij/ℓ_j,   F_ij = Σ_{k<j} L_ik L_jk                         where ω_ij = F_ij + ℓ_j L_ij is zero
    L_ij = c_ij + σ_i τ(z; δ, log κ, q),   ω_ij = ℓ_j σ_i τ              δ = (r_i μ_ij − c_ij)/σ_i,  κ = λ(ℓ_j σ_i)^q

ρ stands for what the penalty does to entries that come later; the entry at hand has its own penalty. So σ_i is A_ii
without ρ_i, σ_i⁻² = A_ii⁻² − ρ_i, r_i = (σ_i/A_ii)², and k counts only the entries below ℓ_j that are not pinned.

What is left to learn is small: per entry a scale, a shift, a factor of κ and an affine map of the noise, linear in an
embedding of (log λ, q, log T); and how δ and ℓ_j lean on the fill-in F and on the entries above. Given Ω, all entries
are evaluated at once (ε = AᵀΨL); only drawing is sequential. Draws lie on the last axis of every array.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray
from paramax import NonTrainable, Parameterize, unwrap

from ggmflow.flow.transport import Network, inverse_transport, load_network, transport
from ggmflow.model.target import absolute_power, cholesky_columns, entry_indices, precision_from_entries, to_columns

NUM_CORRECTIONS = 5  # log σ, δ, log κ; log scale and shift of the noise
_MAX_EXCESS = 100.0  # a larger ridge is no different, but harder on float32
_BLOCK = 16  # rows
_BEND = 1e-3  # (u + √(u² + ε))/2 keeps the cube root of ℓ² positive, and far from float32's limit where u ≪ 0

# Every array below ends in an axis of draws; geometry of one condition shared by all draws has length 1 there.
PerDraw = Float[Array, "... b"]


class Learned(eqx.Module):
    """What training changes; all corrections start at zero.

    E is the length of the embedding of a condition, R that of its basis: 1 and the scaled condition, 1 alone, or
    nothing at all. With a range of temperatures both are there twice, for warm and for cold.
    """

    embed_1: Float[Array, "hidden 3"]
    bias_1: Float[Array, " hidden"]
    embed_2: Float[Array, "E-3 hidden"]
    bias_2: Float[Array, " E-3"]
    correction: Float[Array, "5 d s E"]
    correction_0: Float[Array, "5 d s"]
    ridge: Float[Array, "d E"]
    ridge_0: Float[Array, " d"]
    # How row i ≥ j of column j leans on the fill-in of row k > j, and on the realized entry j < k < i.
    from_fill: Float[Array, "s d R d"]
    from_above: Float[Array, "s d R d"]


class Geometry(NamedTuple):
    """What a condition and the learned corrections make of the data; tempered n, S, λ."""

    lam: PerDraw
    q: PerDraw
    n: PerDraw
    scatter: PerDraw  # (d, d, b)
    A: PerDraw  # (d, d, b), lower triangular, AAᵀ = Ψ⁻¹
    U: PerDraw  # (d, d, b), upper triangular, U = A⁻ᵀ
    scale: PerDraw  # (d, b), what A_ii would be without the ridge on row i itself
    pinned: PerDraw  # (b,), share of entries that sit at the cusp
    correction: PerDraw  # (5, d, s, b)
    basis: PerDraw  # (R, b)


class Coordinates(NamedTuple):
    """Inputs of τ for every entry of L, and what turns its output into entries; (d, s, b) but for the diagonal."""

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
    """

    learned: Learned
    # Not trained; wrapped, like the masked weights, until `paramax.unwrap`.
    scatter: Float[Array, "d d"]
    n_samples: Float[Array, ""]
    center: Float[Array, " 3"]
    half_range: Float[Array, " 3"]
    network: Network
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
    ):
        low, high = (np.asarray(value, np.float32) for value in (low, high))
        scatter = jnp.asarray(scatter, jnp.float32)
        d, s = len(scatter), n_query
        self.learned = _initial(key, d, s, embedding, hidden, cold=bool(high[2] > low[2]))
        self.scatter = _fixed(scatter)
        self.n_samples = _fixed(jnp.asarray(n_samples, jnp.float32))
        self.center = _fixed(jnp.asarray((low + high) / 2))
        # A range of one point is centred to 0, so its scale does not matter.
        self.half_range = _fixed(jnp.asarray(np.where(high > low, (high - low) / 2, np.float32(1))))
        self.network = _fixed(jax.tree.map(jnp.asarray, network or load_network()))
        self.shape = (len(entry_indices(d, s)[0]),)
        self.n_query = s

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """Free entries of Ω and log |dΩ/dz|, with respect to Lebesgue measure on those entries."""
        geometry = self.geometry(jnp.asarray(condition))
        columns, omega, log_dx = draw_columns(self, geometry, x[:, None])
        coordinates = find_coordinates(self, geometry, columns, omega)
        return pick(omega)[:, 0], log_det(geometry, coordinates, log_dx)[0]

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """Noise behind the free entries of a positive definite Ω, all entries at once."""
        geometry = self.geometry(jnp.asarray(condition))
        d, s = len(self.scatter), self.n_query
        columns = cholesky_columns(precision_from_entries(y, d, s))[..., None]
        omega = to_columns(y, d, s)[..., None]
        coordinates = find_coordinates(self, geometry, columns, omega)
        noise, log_dx = invert_transport(self, geometry, coordinates, omega)
        return pick(noise)[:, 0], -log_det(geometry, coordinates, log_dx)[0]

    def geometry(self, condition: Float[Array, " 3"]) -> Geometry:
        """The geometry of one condition, its arrays ending in an axis of length 1."""
        return jax.tree.map(lambda leaf: leaf[..., None], _geometry(unwrap(self), condition))

    def geometries(self, conditions: Float[Array, "c 3"], num_draws: int) -> Geometry:
        """Geometries of c conditions, each repeated for its draws, on a last axis of length c·num_draws."""
        stacked = jax.vmap(lambda condition: _geometry(unwrap(self), condition), out_axes=-1)(conditions)
        return jax.tree.map(lambda leaf: jnp.repeat(leaf, num_draws, axis=-1), stacked)


def _fixed(value: Any) -> Any:
    """Keep out of training; typed as what `unwrap` makes of it."""
    return NonTrainable(value)


def _masked(mask: Callable[[Array], Array], weights: Array) -> Any:
    return Parameterize(mask, weights)


def _initial(key: PRNGKeyArray, d: int, s: int, embedding: int, hidden: int, cold: bool) -> Learned:
    key_1, key_2 = jax.random.split(key)
    E = 2 * embedding if cold else embedding
    # A whole basis lets the learned leanings follow the condition; for many entries one number must do for all. For
    # very many there are none: they would take more memory than all else, and in a blanket are more noise than help.
    R = (2 if cold else 1) * num_leanings(d, s)
    return Learned(
        embed_1=jax.random.normal(key_1, (hidden, 3)) / 2**0.5,
        bias_1=jnp.zeros(hidden),
        embed_2=jax.random.normal(key_2, (embedding - 3, hidden)) / hidden**0.5,
        bias_2=jnp.zeros(embedding - 3),
        correction=jnp.zeros((NUM_CORRECTIONS, d, s, E)),
        correction_0=jnp.zeros((NUM_CORRECTIONS, d, s)),
        ridge=jnp.zeros((d, E)),
        ridge_0=jnp.zeros(d),
        from_fill=_masked(_mask_fill, jnp.zeros((s, d, R, d))),
        from_above=_masked(_mask_above, jnp.zeros((s, d, R, d))),
    )


def num_leanings(d: int, s: int) -> int:
    """Numbers by which one entry of Ω leans on another at one temperature: 4, 1 or none."""
    return 4 if s * d * d <= 40_000 else 1 if 2 * s >= d and d <= 160 else 0


def _geometry(flow: StructuredColumns, condition: Float[Array, " 3"]) -> Geometry:
    learned, d = flow.learned, len(flow.scatter)
    T = jnp.exp(condition[2])
    lam, q, n, S = jnp.exp(condition[0]) / T, condition[1], flow.n_samples / T, flow.scatter / T
    scaled = (condition - flow.center) / flow.half_range
    hidden = jnp.tanh(learned.embed_1 @ scaled + learned.bias_1)
    embedding = jnp.concatenate([jnp.tanh(learned.embed_2 @ hidden + learned.bias_2), scaled])
    basis = jnp.concatenate([jnp.ones(1, scaled.dtype), scaled])
    cold = learned.ridge.shape[1] > len(embedding)
    basis = basis[: learned.from_fill.shape[2] // (2 if cold else 1)]
    if cold:
        # Warm and cold corrections are learned apart, so that the many cold conditions leave T = 1 alone.
        warm = jnp.exp(condition[2] - flow.center[2] - flow.half_range[2])
        embedding, basis = (jnp.concatenate([warm * part, (1 - warm) * part]) for part in (embedding, basis))
    # ρ starts where it matches the variance of exp(−½x² − κx^q), so that Ψ is right for a typical shrunken entry.
    diagonal = jnp.diagonal(S) + lam
    variance, pinned = shrunken(diagonal, lam, q, n + 2, d)
    excess = jnp.clip(1 / variance - 1, 1e-3, _MAX_EXCESS)
    ridge = diagonal * excess * jnp.exp(learned.ridge @ embedding + learned.ridge_0)
    # Ψ = UUᵀ with U upper triangular is the Cholesky factorization with both axes reversed.
    lower = jnp.linalg.cholesky((S + jnp.diag(lam + ridge))[::-1, ::-1])
    inverse = jax.scipy.linalg.solve_triangular(lower, jnp.eye(d, dtype=S.dtype), lower=True)
    U = lower[::-1, ::-1]
    # U_ii² − ρ_i, without the difference of large numbers
    own = jnp.maximum(diagonal - jnp.sum(jnp.triu(U, 1) ** 2, axis=1), 1e-5 * diagonal)
    return Geometry(
        lam=lam,
        q=q,
        n=n,
        scatter=S,
        A=inverse[::-1, ::-1].T,
        U=U,
        scale=jax.lax.rsqrt(own),
        pinned=pinned,
        correction=learned.correction @ embedding + learned.correction_0,
        basis=basis,
    )


def shrunken(
    diagonal: Float[Array, " d"], lam: Float[Array, ""], q: Float[Array, ""], n: Float[Array, ""], d: int
) -> tuple[Float[Array, " d"], Float[Array, ""]]:
    """What the penalty does to a typical entry, exp(−½x² − κ|x|^q): its variance, and how much of it is in the spike.

    The latter is −d log Z/d log ℓ = κq E|x|^q: 0 without a penalty, 1 if the width of the entry is the spike's. Every
    pinned entry takes a degree of freedom from ℓ_j, which sets κ, so both are found together.
    """
    t = jnp.linspace(-30.0, 1.6, 96, dtype=diagonal.dtype)

    def look(pinned):
        ell = jnp.sqrt((n + 0.5 * (d - 1) * (1 - pinned)) * jnp.mean(1 / diagonal))
        log_kappa = jnp.log(lam) + q * (jnp.log(ell) - 0.5 * jnp.log(diagonal))
        penalty = jnp.exp(log_kappa[:, None] + q * t)
        weight = jax.nn.softmax(t - 0.5 * jnp.exp(2 * t) - penalty, axis=-1)
        return weight @ jnp.exp(2 * t), jnp.clip(q * jnp.mean(jnp.sum(weight * penalty, axis=-1)), 0.0, 1.0)

    _, pinned = look(jnp.zeros_like(lam))
    _, pinned = look(pinned)
    return look(pinned)


def draw_columns(
    flow: StructuredColumns, geometry: Geometry, z: Float[Array, "D b"]
) -> tuple[PerDraw, PerDraw, PerDraw]:
    """L, the lower triangle of Ω, and log dτ/dz below the diagonal, (d, s, b) each; sequential, not differentiated.

    Off-diagonal entries of Ω come from τ, not from LLᵀ, so that tiny ones keep their relative precision.
    """
    flow = unwrap(flow)
    d, s, b = len(flow.scatter), flow.n_query, z.shape[-1]
    A, a, scale = geometry.A, diagonal_of(geometry.A), geometry.scale
    stretch = (scale / a) ** 2
    start = jnp.asarray(np.cumsum(np.r_[0, d - np.arange(s)])[:-1] - np.arange(s))
    # What an entry takes from those above it is summed up block by block, so that a step reads one block only.
    size = d if d <= 2 * _BLOCK else _BLOCK
    num_blocks = -(-d // size)
    rest = num_blocks * size - d
    A_padded = jnp.pad(A, ((0, rest), (0, rest), (0, 0)))
    above_padded = jnp.pad(flow.learned.from_above, ((0, 0), (0, rest), (0, 0), (0, rest)))

    def column(j, state):
        L, omega, log_dx = state
        # Rows below j are what counts; those above read noise of other columns and are masked.
        noise = jnp.take(z, jnp.clip(start[j] + jnp.arange(d), 0, len(z) - 1), axis=0)
        correction = jax.lax.dynamic_index_in_dim(geometry.correction, j, 2, keepdims=False)
        below = (jnp.arange(d) > j)[:, None]
        fill = jnp.sum(L * L[j], axis=1)
        sigma = scale * jnp.exp(0.5 * correction[0])
        degrees = chi_degrees(geometry, d, j.astype(z.dtype))
        features = squash_fill(fill, scale[j] * jnp.sqrt(degrees), sigma, below)
        leaning = lean_on(flow.learned.from_fill[j], geometry.basis, features)
        ell = diagonal_entry(degrees, scale[j], noise[j], correction[:, j], leaning[j])
        cusp = -fill / ell
        slope = A[:, j] / a[j] * ell
        log_kappa = jnp.log(geometry.lam) + geometry.q * jnp.log(ell * sigma) + correction[2]
        offset = stretch * slope - cusp + sigma * (correction[1] + leaning)
        noise = noise * jnp.exp(correction[3]) + correction[4]
        from_above = above_padded[j]

        def block(k, state):
            first = k * size
            rows_A, rows_above = (jax.lax.dynamic_slice_in_dim(m, first, size) for m in (A_padded, from_above))
            own_A = jax.lax.dynamic_slice_in_dim(rows_A, first, size, 1)
            own_above = jax.lax.dynamic_slice_in_dim(rows_above, first, size, 2)
            own_above = jnp.einsum("irk,rb->ikb", own_above, geometry.basis)
            # From the blocks above; of this one nothing is set yet.
            mean_before = contract(jnp.swapaxes(rows_A, 0, 1), state[0][:, None])[:, 0]
            above_before = lean_on(rows_above, geometry.basis, state[2])

            def entry(i, local):
                epsilon, _, squashed, _ = local
                r = i - first
                mean = mean_before[r] + weigh(own_A[r], epsilon)
                above = above_before[r] + weigh(own_above[r], squashed)
                delta = (offset[i] + stretch[i] * mean) / sigma[i] + above
                x_i, log_dx_i = transport(flow.network, noise[i], delta, log_kappa[i], geometry.q)
                residual = cusp[i] + sigma[i] * x_i - slope[i] - mean
                values = (residual / a[i], x_i, _squash(x_i), log_dx_i)
                return tuple(array.at[r].set(value) for array, value in zip(local, values, strict=True))

            empty = (jnp.zeros((size, b), z.dtype),) * 4
            local = jax.lax.fori_loop(jnp.maximum(j + 1, first), jnp.minimum(first + size, d), entry, empty)
            return tuple(
                jax.lax.dynamic_update_slice_in_dim(array, part, first, 0)
                for array, part in zip(state, local, strict=True)
            )

        zeros = jnp.zeros((num_blocks * size, b), z.dtype)
        _, x, _, log_dx_j = jax.lax.fori_loop((j + 1) // size, num_blocks, block, (zeros,) * 4)
        x, log_dx_j = x[:d], log_dx_j[:d]
        L_j = jnp.where(below, cusp + sigma * x, 0.0).at[j].set(ell)
        omega_j = jnp.where(below, ell * sigma * x, 0.0).at[j].set(fill[j] + ell**2)
        return L.at[:, j].set(L_j), omega.at[:, j].set(omega_j), log_dx.at[:, j].set(log_dx_j)

    zeros = jnp.zeros((d, s, b), z.dtype)
    return jax.lax.fori_loop(0, s, column, (zeros, zeros, zeros))


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
    leaning = lean_all(flow.learned.from_fill, geometry.basis, features)
    above = lean_all(flow.learned.from_above, geometry.basis, jnp.where(low, _squash(omega / (ell * sigma)), 0.0))
    delta = jnp.where(low, (mean - cusp) / sigma + correction[1] + leaning + above, 0.0)
    log_kappa = jnp.log(geometry.lam) + geometry.q * (jnp.log(ell) + log_sigma) + correction[2]
    return Coordinates(ell, delta, jnp.where(low, log_kappa, 0.0), log_sigma, leaning[index, index])


def invert_transport(
    flow: StructuredColumns, geometry: Geometry, coordinates: Coordinates, omega: PerDraw
) -> tuple[PerDraw, PerDraw]:
    """Noise behind Ω, diagonal and below, and log dτ/dz below the diagonal."""
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


def widen(tree: Any) -> Any:
    """To float64 where that is enabled, for log p̃: a difference of numbers of size nd/T."""
    wide = jnp.result_type(float)
    return jax.tree.map(lambda leaf: leaf.astype(wide) if eqx.is_inexact_array(leaf) else leaf, tree)


def log_target(geometry: Geometry, L: PerDraw, omega: PerDraw) -> Float[Array, " b"]:
    """Tempered log p̃ of draws, as `target.unnormalized_log_prob`, with the l_q terms of Ω as it was drawn."""
    d, s = L.shape[:2]
    low = (np.arange(d)[:, None] > np.arange(s))[..., None]
    log_ell = jnp.log(L[np.arange(s), np.arange(s)])
    trace = jnp.sum(L * contract(geometry.scatter, L), (0, 1)) + geometry.lam * jnp.sum(L**2, (0, 1))
    penalty = jnp.sum(absolute_power(jnp.where(low, omega, 0.0), geometry.q), (0, 1))
    return geometry.n * jnp.sum(log_ell, 0) - 0.5 * trace - geometry.lam * penalty


def diagonal_entry(degrees: PerDraw, scale: PerDraw, z: PerDraw, correction: PerDraw, shift: PerDraw) -> PerDraw:
    """ℓ_j: scale times a χ variable of given degrees of freedom; its cube root of the square is nearly normal."""
    width = jnp.sqrt(2 / (9 * degrees))
    u = 1 - width**2 + width * (correction[1] + shift + jnp.exp(correction[0]) * z)
    root = jnp.sqrt(u * u + _BEND)
    # Both are the same number; each is free of cancellation on its side.
    positive = jnp.where(u > 0, 0.5 * (u + root), 0.5 * _BEND / (root + jnp.abs(u)))
    return scale * jnp.sqrt(degrees) * positive**1.5


def diagonal_noise(degrees: PerDraw, scale: PerDraw, ell: PerDraw, correction: PerDraw, shift: PerDraw):
    """The inverse of `diagonal_entry`, and log dℓ/dz."""
    width = jnp.sqrt(2 / (9 * degrees))
    root = jnp.exp((jnp.log(ell / scale) - 0.5 * jnp.log(degrees)) / 1.5)
    bend = 0.25 * _BEND / root
    u = root - bend
    z = ((u - 1) / width + width - correction[1] - shift) * jnp.exp(-correction[0])
    log_dell = jnp.log(1.5 * ell / (root + bend)) + correction[0] + jnp.log(width)
    return z, log_dell


def contract(matrix: Float[Array, "k i b"], columns: Float[Array, "k j b"]) -> Float[Array, "i j b"]:
    """matrixᵀ columns for every draw; one product when all draws share the matrix."""
    if matrix.shape[-1] == 1:
        return jnp.einsum("ki,kjb->ijb", matrix[..., 0], columns)
    return jnp.einsum("kib,kjb->ijb", matrix, columns)


def weigh(weights: Float[Array, "k b"], rows: Float[Array, "k b"]) -> Float[Array, " b"]:
    """Σ_k weights_k rows_k for every draw."""
    return weights[:, 0] @ rows if weights.shape[-1] == 1 else jnp.sum(weights * rows, axis=0)


def place(z: Float[Array, "D b"], flow: StructuredColumns) -> Float[Array, "d s b"]:
    """Free entries to a lower triangular matrix of columns."""
    d, s = len(unwrap(flow).scatter), flow.n_query
    # Reading rows, a zero one for what is above the diagonal, is several times faster than writing them.
    position = np.full((d, s), len(z), dtype=np.int32)
    position[entry_indices(d, s)] = np.arange(len(z))
    return jnp.concatenate([z, jnp.zeros_like(z[:1])])[position]


def pick(matrix: Float[Array, "d s b"]) -> Float[Array, "D b"]:
    """The free entries; inverse of `place`."""
    return matrix[entry_indices(*matrix.shape[:2])]


def _mask_fill(weights: Float[Array, "s d R d"]) -> Float[Array, "s d R d"]:
    if not weights.size:  # the mask alone would be large
        return weights
    j, i, k = _positions(weights)
    return jnp.where((i >= j) & (k > j), weights, 0.0)


def _mask_above(weights: Float[Array, "s d R d"]) -> Float[Array, "s d R d"]:
    if not weights.size:
        return weights
    j, i, k = _positions(weights)
    return jnp.where((i > k) & (k > j), weights, 0.0)


def _positions(weights: Float[Array, "s d R d"]):
    s, d = weights.shape[:2]
    return np.arange(s)[:, None, None, None], np.arange(d)[:, None, None], np.arange(d)


def lean_on(weights: Float[Array, "i R k"], basis: Float[Array, "R b"], features: Float[Array, "k b"]):
    """Σ_r basis_r (W_r features): a linear map that follows the condition, (i, b)."""
    return jnp.sum(jnp.tensordot(weights, features, 1) * basis, axis=1)


def lean_all(weights: Float[Array, "s i R k"], basis: Float[Array, "R b"], features: Float[Array, "k s b"]):
    """`lean_on` for every column, (i, s, b)."""
    return jnp.moveaxis(jax.vmap(lean_on, (0, None, 1))(weights, basis, features), 0, 1)


def _squash(x: PerDraw) -> PerDraw:
    return jnp.tanh(0.5 * x)


def squash_fill(fill: PerDraw, typical_ell: PerDraw, sigma: PerDraw, below: PerDraw) -> PerDraw:
    """Fill-in relative to the size of an entry, bounded."""
    return jnp.where(below, _squash(fill / (typical_ell * sigma)), 0.0)


def chi_degrees(geometry: Geometry, d: int, j: ArrayLike) -> PerDraw:
    """k, the degrees of freedom of ℓ_j: ν − j, less one for every entry below it that is pinned to its cusp."""
    return geometry.n + 2 + (d - 1 - j) * (1 - geometry.pinned)


def diagonal_of(matrix: Float[Array, "d d b"]) -> Float[Array, "d b"]:
    index = np.arange(len(matrix))
    return matrix[index, index]


def is_below(flow: StructuredColumns) -> Any:
    return (np.arange(len(flow.scatter))[:, None] > np.arange(flow.n_query))[..., None]
