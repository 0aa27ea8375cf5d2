"""Redundant columns: copies of each other, and linear combinations of others."""

import numpy as np
from jaxtyping import Float, Int

from ggmflow.data.findings import KEPT, SAME_KIND, Finding, Kind, Severity

COPY, IDENTICAL = 0.999, 1 - 1e-9  # |r|
SERIOUS_COPY = 0.9999
EXPLAINED = 1e-3  # 1 − R², at most
LARGEST = 3000  # columns for which a factorization is made
SPARE_ROWS = 10  # more rows than columns; with fewer, R² may be near 1 by chance


def correlations(
    working: Float[np.ndarray, "n d"], of: Int[np.ndarray, " k"] | None = None
) -> Float[np.ndarray, "k d"]:
    """Correlations of some columns (default: all) with every column, from the rows in which both are observed.

    Parameters
    ----------
    working : (n, d) array
        NaN for missing values; without missing values, columns of mean 0 and variance 1.
    of : (k,) array of int, optional
        The columns that become rows of the result.
    """
    seen = ~np.isnan(working)
    if of is None and seen.all():
        return working.T @ working / len(working)
    present, filled = seen.astype(np.float64), np.where(seen, working, 0.0)
    here, mine = (present, filled) if of is None else (present[:, of], filled[:, of])
    both = here.T @ present
    total, other_total = mine.T @ present, here.T @ filled  # of each column of a pair, where both are observed
    product = mine.T @ filled * both - total * other_total
    spread = (mine**2).T @ present * both - total**2
    other_spread = here.T @ filled**2 * both - other_total**2
    scale = np.sqrt(np.maximum(spread, 0) * np.maximum(other_spread, 0))
    return np.where((scale > 0) & (both > 2), product / np.where(scale > 0, scale, 1.0), 0.0)


def check_pairs(
    correlation: Float[np.ndarray, "d d"],
    n: float,
    names: tuple[str, ...],
    among: Float[np.ndarray, "d d"] | None,
    n_among: float,
) -> list[Finding]:
    """Find groups of columns that are copies of each other, and columns that are combinations of others.

    Parameters
    ----------
    correlation : (d, d) array
        From the rows in which both columns are observed.
    n
        Number of rows.
    names
        Names of the columns.
    among : (d, d) array or None
        Correlation of complete rows, if there are enough of them.
    n_among
        Number of complete rows.
    """
    d = len(names)
    # With few rows a correlation may be near 1 by chance, but with more than two rows not equal to 1 up to rounding.
    limit = COPY if n >= SPARE_ROWS else IDENTICAL
    pairs = [np.zeros((0, 2), dtype=np.intp)]
    for start in range(0, d if n > 2 else 0, 256):
        i, j = np.nonzero(np.abs(correlation[start : start + 256]) >= limit)
        pairs.append(np.column_stack([i + start, j])[j > i + start])
    a, b = np.concatenate(pairs).T
    copies, found = np.zeros(d, dtype=bool), []
    if a.size:
        from scipy.sparse import coo_array  # here, because SciPy takes long to load
        from scipy.sparse.csgraph import connected_components

        _, group = connected_components(coo_array((np.ones(len(a)), (a, b)), shape=(d, d)), directed=False)
        r = correlation[a, b]
        for each in np.unique(group[a]):
            inside, members = group[a] == each, np.flatnonzero(group == each)
            weakest = float(r[inside][np.argmin(np.abs(r[inside]))])
            same = abs(weakest) >= IDENTICAL
            severity = Severity.SERIOUS if abs(weakest) >= SERIOUS_COPY else Severity.CAUTION
            kind = Kind.IDENTICAL if same else Kind.NEARLY_IDENTICAL
            shown = tuple(names[k] for k in members[:KEPT])
            found.append(Finding(kind, severity, shown, (), (float(np.clip(weakest, -1, 1)),), len(members)))
            copies[members[1:]] = True
    if among is not None and d <= LARGEST and n_among >= d + SPARE_ROWS:
        found += _check_combinations(among, n_among, names, np.flatnonzero(~copies))
    return found


def _check_combinations(
    correlation: Float[np.ndarray, "d d"], n: float, names: tuple[str, ...], columns: Int[np.ndarray, " k"]
) -> list[Finding]:
    """Columns that others explain, by a Cholesky factorization whose next pivot is the largest residual variance."""
    k = len(columns)
    # By chance alone k columns leave the share (n − k)/n of a variance unexplained.
    tolerance = EXPLAINED * (n - k) / n
    matrix = correlation[np.ix_(columns, columns)]
    try:
        np.linalg.cholesky(matrix - tolerance * np.eye(k))
        return []  # no eigenvalue is below the tolerance, so no residual variance is
    except np.linalg.LinAlgError:
        pass
    from scipy.linalg import get_lapack_funcs, solve_triangular  # takes long to load

    (pivoted_cholesky,) = get_lapack_funcs(("pstrf",), (matrix,))
    factor, order, rank, _ = pivoted_cholesky(matrix, tol=tolerance, lower=1)
    order = order - 1
    if rank == k:
        return []
    lower = np.tril(factor)
    weights = solve_triangular(lower[:rank, :rank], lower[rank:, :rank].T, lower=True, trans=1)
    left = np.diag(matrix)[order[rank:]] - np.sum(lower[rank:, :rank] ** 2, axis=1)
    found = []
    for m in np.argsort(left, kind="stable")[:SAME_KIND]:
        size = np.abs(weights[:, m])
        others = np.flatnonzero(size > 0.05 * size.max())
        others = others[np.argsort(-size[others], kind="stable")]
        members = [order[rank + m], *order[others]]
        shown = tuple(names[columns[each]] for each in members[:KEPT])
        r2 = float(np.clip(1 - left[m], 0, 1))
        found.append(Finding(Kind.COLLINEAR, Severity.CAUTION, shown, (), (r2,), len(members)))
    return found
