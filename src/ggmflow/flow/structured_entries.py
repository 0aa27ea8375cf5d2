"""Elementary maps of the structured flow: diagonal entries, couplings, and products for every draw.

    ℓ = σ √k u₊^{3/2},   u = 1 − w² + w (shift + e^{log scale} z),   w² = 2/(9k)          Wilson–Hilferty

u₊ = (u + √(u² + ε))/2 keeps the cube root of ℓ² positive. Draws lie on the last axis of every array.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from paramax import unwrap

from ggmflow.flow.structured_geometry import Columns, PerDraw
from ggmflow.flow.structured_network import Couplings
from ggmflow.model.target import entry_indices

_BEND = 1e-3  # ε, large enough that u₊ stays far from float32's limit where u ≪ 0


def diagonal_entry(degrees: PerDraw, scale: PerDraw, z: PerDraw, correction: PerDraw, shift: PerDraw) -> PerDraw:
    """ℓ_j: scale times a χ variable of given degrees of freedom, since (χ²)^{1/3} is nearly normal."""
    width = jnp.sqrt(2 / (9 * degrees))
    u = 1 - width**2 + width * (correction[1] + shift + jnp.exp(correction[0]) * z)
    root = jnp.sqrt(u * u + _BEND)
    # Both are the same number; each is free of cancellation on its side.
    positive = jnp.where(u > 0, 0.5 * (u + root), 0.5 * _BEND / (root + jnp.abs(u)))
    return scale * jnp.sqrt(degrees) * positive**1.5


def diagonal_noise(
    degrees: PerDraw, scale: PerDraw, ell: PerDraw, correction: PerDraw, shift: PerDraw
) -> tuple[PerDraw, PerDraw]:
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


def place(z: Float[Array, "D b"], flow: Columns) -> Float[Array, "d s b"]:
    """Free entries to a lower triangular matrix of columns."""
    d, s = len(unwrap(flow).scatter), flow.n_query
    # Reading rows (a row of zeros for positions above the diagonal) is several times faster than writing them.
    position = np.full((d, s), len(z), dtype=np.int32)
    position[entry_indices(d, s)] = np.arange(len(z))
    return jnp.concatenate([z, jnp.zeros_like(z[:1])])[position]


def pick(matrix: Float[Array, "d s b"]) -> Float[Array, "D b"]:
    """The free entries; inverse of `place`."""
    return matrix[entry_indices(*matrix.shape[:2])]


def squash(x: PerDraw) -> PerDraw:
    """tanh(x/2): values of τ, bounded, as couplings use them."""
    return jnp.tanh(0.5 * x)


def squash_fill(fill: PerDraw, typical_ell: PerDraw, sigma: PerDraw, below: PerDraw) -> PerDraw:
    """Fill-in relative to the size of an entry, bounded."""
    return jnp.where(below, squash(fill / (typical_ell * sigma)), 0.0)


def diagonal_of(matrix: Float[Array, "d d b"]) -> Float[Array, "d b"]:
    """The diagonal of a matrix per draw."""
    index = np.arange(len(matrix))
    return matrix[index, index]


def is_below(flow: Columns) -> Any:
    """Mask of the entries below the diagonal, (d, s, 1)."""
    return (np.arange(len(flow.scatter))[:, None] > np.arange(flow.n_query))[..., None]


def couple(weights: Float[Array, "i R k"], basis: Float[Array, "R b"], features: Float[Array, "k b"]) -> PerDraw:
    """Σ_r basis_r (W_r features): the couplings of one column, a linear map that depends on the condition, (i, b)."""
    return jnp.sum(jnp.tensordot(weights, features, 1) * basis, axis=1)


def couple_columns(
    weights: Float[Array, "s i R k"], basis: Float[Array, "R b"], features: Float[Array, "k s b"]
) -> PerDraw:
    """`couple` for every column, (i, s, b)."""
    return jnp.moveaxis(jax.vmap(couple, (0, None, 1))(weights, basis, features), 0, 1)


def couple_to_fill(couplings: Couplings, features: Float[Array, "k j b"]) -> tuple[PerDraw, PerDraw]:
    """Shifts of δ, (i, j, b), and of ℓ, (j, b), by the shipped network's couplings to the fill-in of some columns."""
    moved = couplings.out * contract(couplings.matrix, couplings.gate * features)
    return moved, jnp.sum(couplings.diagonal * features**2, axis=0)


def couplings_of_column(couplings: Couplings, j: Array) -> Couplings:
    """Those of one column, as arrays of one column."""
    matrix, *columns = couplings
    return Couplings(matrix, *(jax.lax.dynamic_slice_in_dim(each, j, 1, axis=1) for each in columns))
