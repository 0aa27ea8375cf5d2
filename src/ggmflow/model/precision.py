"""Functions of precision matrices, or of some of their rows.

    partial correlation of i and j = −ω_ij / √(ω_ii ω_jj)

Rows [Ω₁₁ Ω₁₂] of a query are s×d: rows in the order of the query, columns in the order of the data. Row a
belongs to column query[a], so the square block Ω₁₁ is `rows[:, query]`.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from ggmflow.errors.argument import ArgumentError

# Asymmetry up to this, relative to √(ω_ii ω_jj), counts as float32 rounding.
_ROUNDING = 1e-5
_EPS_32, _TINY_32 = 2.0**-23, 2.0**-126  # float32: distance from 1 to the next number, smallest normal number


def partial_correlation(precision: Float[np.ndarray, "*draws d d"]) -> Float[np.ndarray, "*draws d d"]:
    """−ω_ij/√(ω_ii ω_jj), with ones on the diagonal."""
    scale = 1 / np.sqrt(np.diagonal(precision, axis1=-2, axis2=-1))
    out = -precision * scale[..., :, None] * scale[..., None, :]
    index = np.arange(precision.shape[-1])
    out[..., index, index] = 1.0
    return out


def shrunk_precision(S: Float[np.ndarray, "d d"], n: float) -> Float[np.ndarray, "d d"]:
    """Shrunk estimate from an empirical covariance S of n rows: the inverse of (1−α) S + α m I, m = tr S/d.

    α is that of Ledoit and Wolf with E‖S − Σ‖² = (tr Σ² + (tr Σ)²)/n, as for the normal distribution.
    """
    d = len(S)
    target = np.trace(S) / d * np.eye(d)
    distance = np.sum((S - target) ** 2)
    error = (np.sum(S**2) + np.trace(S) ** 2) / n
    alpha = min(1.0, error / distance) if distance > 0 else 1.0
    return np.linalg.inv((1 - alpha) * S + alpha * target)


def association(rows: Float[np.ndarray, "*draws s d"], query: Int[np.ndarray, " s"]) -> Float[np.ndarray, "*draws s d"]:
    """Partial correlations within the query, regression weights −ω_ij/ω_ii to the other columns, ones for i = j.

    Parameters
    ----------
    rows : (..., s, d) array
        Rows of Ω: those of the columns `query`, in this order.
    query : (s,) array of int
        All columns for a full matrix, whose associations are partial correlations.

    Examples
    --------
    >>> association(np.array([[4.0, -1.0, 2.0]]), np.array([0]))
    array([[ 1.  ,  0.25, -0.5 ]])
    """
    index = np.arange(len(query))
    scale = 1 / np.sqrt(rows[..., index, query])
    other = np.broadcast_to(scale[..., :, None], rows.shape).copy()
    other[..., query] = scale[..., None, :]
    out = -rows * scale[..., :, None] * other
    out[..., index, query] = 1.0
    return out


@final
@dataclass(frozen=True, eq=False)
class FreeEntries:
    """Positions of the D free entries of the rows [Ω₁₁ Ω₁₂], where Ω₁₁ is symmetric and holds its off-diagonal twice.

    Attributes
    ----------
    row, column : (D,) arrays
        Row by row; an entry that appears twice is taken where it appears first. The upper triangle, for a full matrix.
    position : (s, d) array
        The inverse map: `entries[position]` are the rows.
    diagonal : (D,) array of bool
        The entries ω_ii.
    inside : (D,) array of bool
        Entries of Ω₁₁: the column, too, belongs to the query.
    own : (s,) array
        Position of each row's ω_ii among the free entries.
    partner : (D,) array
        Row of the entry's other variable; outside Ω₁₁, where that variable has no row, `row` again.
    """

    row: Int[np.ndarray, " D"]
    column: Int[np.ndarray, " D"]
    position: Int[np.ndarray, "s d"]
    diagonal: Bool[np.ndarray, " D"]
    inside: Bool[np.ndarray, " D"]
    own: Int[np.ndarray, " s"]
    partner: Int[np.ndarray, " D"]


def free_entries(query: Int[np.ndarray, " s"], n_features: int) -> FreeEntries:
    """Find the free entries of the rows that belong to the columns `query`.

    Examples
    --------
    >>> free = free_entries(np.array([2, 0]), 3)
    >>> list(zip(free.row.tolist(), free.column.tolist()))
    [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    >>> free.position
    array([[0, 1, 2],
           [3, 4, 0]])
    """
    s = len(query)
    rank = np.full(n_features, s)  # row of a column's variable; columns outside the query come after all rows
    rank[query] = np.arange(s)
    row, column = np.nonzero(rank >= np.arange(s)[:, None])
    position = np.empty((s, n_features), np.intp)
    position[row, column] = np.arange(len(row))
    inside = rank[column] < s
    position[rank[column[inside]], query[row[inside]]] = np.flatnonzero(inside)
    own, partner = position[np.arange(s), query], np.where(inside, rank[column], row)
    return FreeEntries(row, column, position, rank[column] == row, inside, own, partner)


def smallest_eigenvalue(block: Float[np.ndarray, "k s s"]) -> Float[np.ndarray, " k"]:
    """Smallest eigenvalue of symmetric matrices after scaling their diagonals to one, so that units do not matter.

    Diagonal entries that are zero, negative or tiny count as the smallest normal number of float32.
    """
    scale = 1 / np.sqrt(np.maximum(np.diagonal(block, axis1=-2, axis2=-1), _TINY_32))
    return np.linalg.eigvalsh(block * scale[:, :, None] * scale[:, None, :])[:, 0]


def restore_definiteness(rows: Float[np.ndarray, "k s d"], query: Int[np.ndarray, " s"]) -> Float[np.ndarray, "k s d"]:
    """Rows [Ω₁₁ Ω₁₂] with a positive definite Ω₁₁, from rows that rounding to float32 may have made indefinite.

    With μ the smallest eigenvalue of Ω₁₁ scaled to a unit diagonal and ε = 2⁻²³ that of float32, rows with μ < ε get
    ω_jj (1 + ε + 2 max(−μ, 0)) in place of ω_jj, after which μ is at least ε. Rounding makes −μ no larger than a few ε,
    so the change is of the size of the rounding. Rows with μ ≥ ε are returned as they are.

    Parameters
    ----------
    rows : (k, s, d) array
        Finite, with a symmetric Ω₁₁.
    query : (s,) array of int
        Column to which each row belongs.

    Returns
    -------
    (k, s, d) array

    Examples
    --------
    >>> rounded = np.array([[[1.0, 1.0, 0.3], [1.0, 1.0, 0.5]]])  # Ω₁₁ is singular
    >>> restored = restore_definiteness(rounded, np.array([0, 1]))
    >>> bool(np.linalg.det(restored[0, :, :2]) > 0), float(np.max(np.abs(restored - rounded)))
    (True, 1.1920928955078125e-07)
    """
    block = rows[:, :, query]
    smallest = smallest_eigenvalue(block)
    lost = np.flatnonzero(smallest < _EPS_32)
    if not lost.size:
        return rows
    # Twice −μ, because in a matrix that is far from definite ε would be smaller than the rounding of μ.
    increase = _EPS_32 + 2 * np.maximum(-smallest[lost], 0.0)
    diagonal = np.maximum(np.diagonal(block, axis1=-2, axis2=-1), _TINY_32)
    out = rows.copy()
    out[lost[:, None], np.arange(len(query)), query] += increase[:, None] * diagonal[lost]
    return out


def check_rows(
    precision: ArrayLike, query: Int[np.ndarray, " s"], n_features: int
) -> tuple[Float[np.ndarray, "k s d"], bool]:
    """Rows of a precision matrix as a (k, s, d) array; raise if they cannot be the rows of the query.

    Parameters
    ----------
    precision : (s, d) or (k, s, d) array-like
    query
        Column to which each row belongs.
    n_features
        d.

    Returns
    -------
    rows : (k, s, d) array
    single : bool
        Whether one matrix was given, without the leading axis.
    """
    shape = (len(query), n_features)
    try:
        rows = np.asarray(precision)
    except (ValueError, TypeError) as error:
        raise ArgumentError("precision", precision, f"be an array of real numbers ({error})") from None
    if rows.dtype.kind not in "iuf":
        raise ArgumentError("precision", rows, f"hold real numbers, not {rows.dtype}")
    if rows.ndim not in (2, 3) or rows.shape[-2:] != shape:
        raise ArgumentError("precision", rows, f"have shape {shape} or (k, {shape[0]}, {shape[1]})")
    rows, single = rows.astype(np.float64).reshape(-1, *shape), rows.ndim == 2
    if not np.all(np.isfinite(rows)):
        raise ArgumentError("precision", rows, "be finite, without NaN or infinite entries")
    block = rows[:, :, query]
    diagonal = np.diagonal(block, axis1=-2, axis2=-1)
    if np.any(diagonal <= 0):
        raise ArgumentError("precision", rows, "be positive definite, with a positive diagonal")
    # Unit diagonal, so that both checks are independent of scale.
    unit = block / np.sqrt(diagonal[:, :, None] * diagonal[:, None, :])
    if np.any(np.abs(unit - np.swapaxes(unit, -1, -2)) > _ROUNDING):
        raise ArgumentError("precision", rows, "be symmetric, with the same two entries for a pair of query variables")
    if np.any(np.linalg.eigvalsh(unit) <= 0):
        raise ArgumentError("precision", rows, "be positive definite, with positive eigenvalues")
    return rows, single
