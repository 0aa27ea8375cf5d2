"""Draws of the structured flow: columns of L and Ω from noise, one entry after the other.

    δ = (r_i μ_ij − c_ij)/σ_i + couplings,   x = τ(z; δ, log κ, q),   L_ij = c_ij + σ_i x,   ω_ij = ℓ_j σ_i x

Three nested loops: over columns, over blocks of rows, over the rows of a block. `structured_columns` explains the
symbols.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from paramax import unwrap

from ggmflow.flow.structured_entries import (
    contract,
    couple,
    couple_to_fill,
    couplings_of_column,
    diagonal_entry,
    diagonal_of,
    squash,
    squash_fill,
    weigh,
)
from ggmflow.flow.structured_geometry import Columns, Geometry, PerDraw, chi_degrees
from ggmflow.flow.transport import Network, transport

_BLOCK = 16  # rows


class _Rows(NamedTuple):
    """Arrays of all rows, padded to whole blocks; the same for every column."""

    size: int  # rows of a block
    num_blocks: int
    a: PerDraw  # (d, b), A_ii
    stretch: PerDraw  # (d, b), r_i = (σ_i/A_ii)²
    A: PerDraw  # (rows, rows, b)
    from_above: Float[Array, "s rows R rows"]


class _Column(NamedTuple):
    """Column j as far as it is known before its entries below the diagonal are drawn; (d, b) unless noted."""

    j: Array
    ell: PerDraw  # (b,)
    fill: PerDraw
    cusp: PerDraw
    slope: PerDraw  # (A_ij/A_jj) ℓ_j
    sigma: PerDraw
    offset: PerDraw  # the part of σδ that does not depend on entries of this column
    log_kappa: PerDraw
    noise: PerDraw  # after its affine map
    from_above: Float[Array, "rows R rows"]


class _Entries(NamedTuple):
    """Entries of one column that are drawn so far, zero elsewhere; (rows, b) each."""

    epsilon: PerDraw
    x: PerDraw  # values of τ
    squashed: PerDraw
    log_dx: PerDraw


class _Block(NamedTuple):
    """One block of rows, and the sums over the blocks above it."""

    first: Array  # row
    A: PerDraw  # (size, size, b), the block on the diagonal
    couplings: PerDraw  # (size, size, b)
    mean_before: PerDraw  # (size, b), Σ A_im ε_m over the blocks above
    coupled_before: PerDraw  # (size, b)


def draw_columns(flow: Columns, geometry: Geometry, z: Float[Array, "D b"]) -> tuple[PerDraw, PerDraw, PerDraw]:
    """L, the lower triangle of Ω, and log dτ/dz below the diagonal, (d, s, b) each; sequential, not differentiated.

    Off-diagonal entries of Ω come from τ, not from LLᵀ, so that tiny ones keep their relative precision.
    """
    flow = unwrap(flow)
    rows = _prepare_rows(flow, geometry)
    zeros = jnp.zeros((len(flow.scatter), flow.n_query, z.shape[-1]), z.dtype)
    return jax.lax.fori_loop(0, flow.n_query, partial(_draw_column, flow, geometry, rows, z), (zeros, zeros, zeros))


def _prepare_rows(flow: Columns, geometry: Geometry) -> _Rows:
    d, A, a = len(flow.scatter), geometry.A, diagonal_of(geometry.A)
    # Sums over the entries above are accumulated block by block, so that drawing an entry reads one block only.
    size = d if d <= 2 * _BLOCK else _BLOCK
    num_blocks = -(-d // size)
    rest = num_blocks * size - d
    A_padded = jnp.pad(A, ((0, rest), (0, rest), (0, 0)))
    from_above = jnp.pad(flow.learned.from_above, ((0, 0), (0, rest), (0, 0), (0, rest)))
    return _Rows(size, num_blocks, a, (geometry.scale / a) ** 2, A_padded, from_above)


def _draw_column(
    flow: Columns,
    geometry: Geometry,
    rows: _Rows,
    z: Float[Array, "D b"],
    j: Array,
    drawn: tuple[PerDraw, PerDraw, PerDraw],
) -> tuple[PerDraw, PerDraw, PerDraw]:
    """Add column j to L, Ω and log dτ/dz."""
    L, omega, log_dx = drawn
    d, below = len(flow.scatter), (jnp.arange(len(flow.scatter)) > j)[:, None]
    column = _start_column(flow, geometry, rows, z, j, L)
    zeros = jnp.zeros((rows.num_blocks * rows.size, z.shape[-1]), z.dtype)
    draw_block = partial(_draw_block, flow.network, geometry, rows, column)
    entries = jax.lax.fori_loop((j + 1) // rows.size, rows.num_blocks, draw_block, _Entries(*(zeros,) * 4))
    x, ell, sigma = entries.x[:d], column.ell, column.sigma
    L_j = jnp.where(below, column.cusp + sigma * x, 0.0).at[j].set(ell)
    omega_j = jnp.where(below, ell * sigma * x, 0.0).at[j].set(column.fill[j] + ell**2)
    return L.at[:, j].set(L_j), omega.at[:, j].set(omega_j), log_dx.at[:, j].set(entries.log_dx[:d])


def _start_column(
    flow: Columns, geometry: Geometry, rows: _Rows, z: Float[Array, "D b"], j: Array, L: PerDraw
) -> _Column:
    """Draw ℓ_j, and compute from it and the earlier columns the coordinates of the entries below."""
    d, s, scale = len(flow.scatter), flow.n_query, geometry.scale
    start = jnp.asarray(np.cumsum(np.r_[0, d - np.arange(s)])[:-1] - np.arange(s))
    # Only rows below j are used; those above read noise of other columns and are masked.
    noise = jnp.take(z, jnp.clip(start[j] + jnp.arange(d), 0, len(z) - 1), axis=0)
    correction = jax.lax.dynamic_index_in_dim(geometry.correction, j, 2, keepdims=False)
    below = (jnp.arange(d) > j)[:, None]
    fill = jnp.sum(L * L[j], axis=1)
    sigma = scale * jnp.exp(0.5 * correction[0])
    degrees = chi_degrees(geometry, d, j.astype(z.dtype))
    features = squash_fill(fill, scale[j] * jnp.sqrt(degrees), sigma, below)
    coupled, shift = couple_column(flow, geometry, features, j)
    ell = diagonal_entry(degrees, scale[j], noise[j], correction[:, j], shift)
    cusp = -fill / ell
    slope = geometry.A[:, j] / rows.a[j] * ell
    return _Column(
        j=j,
        ell=ell,
        fill=fill,
        cusp=cusp,
        slope=slope,
        sigma=sigma,
        offset=rows.stretch * slope - cusp + sigma * (correction[1] + coupled),
        log_kappa=jnp.log(geometry.lam) + geometry.q * jnp.log(ell * sigma) + correction[2],
        noise=noise * jnp.exp(correction[3]) + correction[4],
        from_above=rows.from_above[j],
    )


def couple_column(flow: Columns, geometry: Geometry, features: PerDraw, j: Array) -> tuple[PerDraw, PerDraw]:
    """Shifts of δ, (d, b), and of ℓ_j, (b,), by the squashed fill-in of column j."""
    coupled = couple(flow.learned.from_fill[j], geometry.basis, features)
    if geometry.couplings is None:
        return coupled, coupled[j]
    moved, shift = couple_to_fill(couplings_of_column(geometry.couplings, j), features[:, None])
    return coupled + moved[:, 0], coupled[j] + shift[0]


def _draw_block(
    network: Network, geometry: Geometry, rows: _Rows, column: _Column, k: Array, entries: _Entries
) -> _Entries:
    """Add the entries of the k-th block of rows to a column."""
    size, first = rows.size, k * rows.size
    rows_A, rows_above = (jax.lax.dynamic_slice_in_dim(m, first, size) for m in (rows.A, column.from_above))
    own_above = jax.lax.dynamic_slice_in_dim(rows_above, first, size, 2)
    block = _Block(
        first=first,
        A=jax.lax.dynamic_slice_in_dim(rows_A, first, size, 1),
        couplings=jnp.einsum("irk,rb->ikb", own_above, geometry.basis),
        # Entries of this block are still zero, so these are sums over the blocks above.
        mean_before=contract(jnp.swapaxes(rows_A, 0, 1), entries.epsilon[:, None])[:, 0],
        coupled_before=couple(rows_above, geometry.basis, entries.squashed),
    )
    empty = _Entries(*(jnp.zeros((size, column.noise.shape[-1]), column.noise.dtype),) * 4)
    start, end = jnp.maximum(column.j + 1, first), jnp.minimum(first + size, len(geometry.A))
    local = jax.lax.fori_loop(start, end, partial(_draw_entry, network, geometry, rows, column, block), empty)
    return jax.tree.map(lambda whole, part: jax.lax.dynamic_update_slice_in_dim(whole, part, first, 0), entries, local)


def _draw_entry(
    network: Network, geometry: Geometry, rows: _Rows, column: _Column, block: _Block, i: Array, local: _Entries
) -> _Entries:
    """Add the entry of row i to a block."""
    r, sigma = i - block.first, column.sigma
    mean = block.mean_before[r] + weigh(block.A[r], local.epsilon)
    coupled = block.coupled_before[r] + weigh(block.couplings[r], local.squashed)
    delta = (column.offset[i] + rows.stretch[i] * mean) / sigma[i] + coupled
    x, log_dx = transport(network, column.noise[i], delta, column.log_kappa[i], geometry.q)
    residual = column.cusp[i] + sigma[i] * x - column.slope[i] - mean
    values = _Entries(residual / rows.a[i], x, squash(x), log_dx)
    return jax.tree.map(lambda array, value: array.at[r].set(value), local, values)
