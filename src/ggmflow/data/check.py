"""Checks of a table before a fit: outliers, skewness, heavy tails, copies of columns, collinearity, missing values.

All checks use the columns in the working scale, with NaN for missing values. Columns are processed in blocks, so little
memory is needed besides the table, and one d×d matrix is factorized.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ggmflow.data.collinearity import LARGEST, check_pairs, correlations
from ggmflow.data.findings import KEPT, SAME_KIND, DataCheck, Finding, Kind, Severity
from ggmflow.data.normal_scores import normal_scores, to_unit_variance
from ggmflow.data.rows import Usable, use_rows
from ggmflow.data.table import parse_table
from ggmflow.errors.argument import ArgumentError

OUTLIER = 8.0  # robust standard deviations; one in 10¹⁵ normal numbers exceeds it
SKEWNESS = 1.0  # a lognormal column of this skewness still has the correlation 0.98 with its logarithm
KURTOSIS = 3.0  # excess; intervals of correlations are then √2 too narrow, if the distribution is elliptical
NOISE = 4.5  # standard errors that both must also exceed, as less than 1e-5 of normal columns do
FEW_VALUES = 7

_BLOCK = 32  # columns at a time
_SAMPLE = 10_000  # rows from which medians are taken
_ROWS_TRIED = 200


class DataWarning(UserWarning):
    """The data have a feature that alone can change edges: identical columns, or a row that makes a correlation."""


class _Columns(NamedTuple):
    """Statistics of every column, and the cells that are far from its median."""

    skewness: Float[np.ndarray, " d"]
    kurtosis: Float[np.ndarray, " d"]
    count: Int[np.ndarray, " d"]
    distinct: Int[np.ndarray, " d"]
    far_row: Int[np.ndarray, " k"]
    far_column: Int[np.ndarray, " k"]
    far_by: Float[np.ndarray, " k"]


def check_data(
    X: Any,
    *,
    transform: str | None = None,
    missing: str = "error",
    names: Sequence[str] | None = None,
    delimiter: str = ",",
    decimal: str = ".",
    drop: Sequence[str] = (),
) -> DataCheck:
    """Check a table before a fit, without fitting anything.

    `Scatter.from_data` makes the same check and keeps it as `Scatter.check`. Here missing values are only counted, and
    raise no error.

    Parameters
    ----------
    X : (n, d) array-like, pandas or polars DataFrame, or path
        As in `Scatter.from_data`.
    transform, missing, names, delimiter, decimal, drop
        As in `Scatter.from_data`. With "nonparanormal", skewness, tails and outliers are not checked.

    Returns
    -------
    DataCheck
        ``print`` shows it as short sentences.

    Raises
    ------
    TableError
        If the table cannot be used: text, infinite values, constant columns. The message lists all problems.

    Examples
    --------
    >>> import numpy as np, ggmflow as gf
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> check = gf.check_data(np.column_stack([X, -X[:, 0]]), names=["a", "b", "c", "d"])
    >>> [(each.kind.value, each.columns) for each in check.findings]
    [('identical', ('a', 'd'))]
    """
    check_choices(transform, missing)
    table = parse_table(X, names, delimiter=delimiter, decimal=decimal, drop=drop)
    used = use_rows(table, missing, allow_missing=True)
    values = used.values if transform is None else normal_scores(used.values, np.sort(used.values, axis=0))
    return check_columns(to_unit_variance(values)[0], used, transform, missing)


def check_choices(transform: object, missing: object) -> None:
    """Raise ArgumentError if `transform` or `missing` is unknown."""
    for name, value, allowed in (
        ("transform", transform, (None, "nonparanormal")),
        ("missing", missing, ("error", "drop", "em")),
    ):
        if not isinstance(value, str | None) or value not in allowed:
            raise ArgumentError(name, value, allowed)


def check_columns(
    working: Float[np.ndarray, "n d"],
    used: Usable,
    transform: str | None,
    missing: str,
    scatter: Float[np.ndarray, "d d"] | None = None,
) -> DataCheck:
    """Check columns in the working scale.

    Parameters
    ----------
    working : (n, d) array
        The observed values of each column with mean 0 and variance 1; NaN for missing values.
    used
        The rows of the table that `working` holds, and counts of missing values.
    transform, missing
        Treatment of the table so far.
    scatter : (d, d) array, optional
        workingᵀ working, if it is known already.
    """
    n, names = len(working), used.names
    seen = _column_statistics(working, outliers=transform is None)
    found: list[Finding] = []
    correlation = correlations(working) if scatter is None else scatter / n
    if transform is None:
        found += _check_rows(working, used, seen, correlation)
    full = working if not np.isnan(working).any() else working[~np.isnan(working).any(axis=1)]
    among = correlation if len(full) == n else _correlation_of_complete_rows(full)
    found += check_pairs(correlation, n, names, among, len(full))
    if transform is None:
        found += _check_shapes(seen, names)
    few = np.flatnonzero((seen.distinct <= FEW_VALUES) & (2 * seen.distinct < seen.count))
    found += _grouped(Kind.FEW_VALUES, Severity.NOTE, few, seen.distinct, names, ascending=True)
    gaps = np.flatnonzero(used.n_missing)
    found += [
        replace(each, total=int(used.n_missing.sum()))  # cells instead of columns
        for each in _grouped(Kind.MISSING, Severity.NOTE, gaps, used.n_missing, names)
    ]
    found += _check_size(n, len(names))
    return DataCheck(_sorted(found), n, len(names), used.by_line, missing, used.n_left_out, transform)


def _correlation_of_complete_rows(full: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "d d"] | None:
    """None if there are too few rows, or a column hardly varies in them, so that only rounding errors would be left."""
    if len(full) <= full.shape[1] or np.any(full.std(axis=0) < 1e-6):
        return None
    return np.corrcoef(full.T)


def check_matrix(correlation: Float[np.ndarray, "d d"], n: float, names: tuple[str, ...]) -> DataCheck:
    """Check for copies of columns and linear combinations, for which no rows are needed.

    Parameters
    ----------
    correlation : (d, d) array
    n
        Number of rows it was computed from.
    names
        Names of the columns.
    """
    found = check_pairs(correlation, n, names, correlation, n) + _check_size(n, len(names))
    return DataCheck(_sorted(found), n, len(names))


def _sorted(found: list[Finding]) -> tuple[Finding, ...]:
    order = {kind: k for k, kind in enumerate(Kind)}
    return tuple(sorted(found, key=lambda each: (-each.severity, order[each.kind])))


def _check_size(n: float, d: int) -> list[Finding]:
    found = [Finding(Kind.FEW_ROWS, Severity.NOTE)] if n <= d else []
    return found + ([Finding(Kind.NOT_CHECKED, Severity.NOTE)] if d > LARGEST and n > d else [])


def _grouped(
    kind: Kind,
    severity: Severity,
    columns: Int[np.ndarray, " k"],
    numbers: np.ndarray,
    names: tuple[str, ...],
    ascending: bool = False,
) -> list[Finding]:
    """One finding for all columns of a kind, the most unusual first."""
    if not columns.size:
        return []
    size = np.abs(numbers[columns])
    order = columns[np.argsort(size if ascending else -size, kind="stable")]
    kept = order[:KEPT]
    values = tuple(float(f"{numbers[j]:.6g}") for j in kept)
    return [Finding(kind, severity, tuple(names[j] for j in kept), (), values, len(columns))]


# ----------------------------------------------------------------------------------------------------- column by column
def _column_statistics(working: Float[np.ndarray, "n d"], outliers: bool) -> _Columns:
    n, d = working.shape
    skewness, kurtosis = np.zeros(d), np.zeros(d)
    count, distinct = np.zeros(d, dtype=np.intp), np.zeros(d, dtype=np.intp)
    far: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for start in range(0, d, _BLOCK):
        part = working[:, start : start + _BLOCK]
        at = slice(start, start + part.shape[1])
        absent = np.isnan(part)
        filled = np.where(absent, 0.0, part)  # the mean, which does not change a moment
        count[at] = n - absent.sum(axis=0)
        square = filled**2
        skewness[at] = np.einsum("ij,ij->j", square, filled) / count[at]
        kurtosis[at] = np.einsum("ij,ij->j", square, square) / count[at] - 3
        distinct[at] = [_count_distinct(column) for column in part.T]
        if outliers:
            centre, limit, scale = _robust(part)
            usable = (scale > 0) & (distinct[at] > FEW_VALUES)
            distance = np.where(absent | ~usable, 0.0, np.abs(filled - centre))
            i, j = np.nonzero(distance > limit)
            far.append((i, j + start, distance[i, j] / scale[j]))
    row, column, by = (np.concatenate(each) for each in zip(*far, strict=True)) if far else (np.zeros(0, int),) * 3
    return _Columns(skewness, kurtosis, count, distinct, row, column, by)


def _count_distinct(column: Float[np.ndarray, " n"]) -> int:
    """Number of different values; if it exceeds FEW_VALUES, a lower bound that exceeds it too."""
    first = column[: 20 * FEW_VALUES]
    if (few := len(np.unique(first[~np.isnan(first)]))) > FEW_VALUES:
        return few
    return len(np.unique(column[~np.isnan(column)]))


def _robust(part: Float[np.ndarray, "n k"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Median, distance from it beyond which a value is an outlier, and robust standard deviation (0: there is none).

    With few rows the scale itself is uncertain. With the factor 1 + 200/n², found by simulation, about one in 10⁵
    columns of n ≥ 8 normal numbers has an outlier.
    """
    sample = np.sort(part[:: max(1, len(part) // _SAMPLE)], axis=0)  # NaN comes last
    count = len(sample) - np.isnan(sample).sum(axis=0)
    low, centre, high = (_quantile(sample, count, p) for p in (0.25, 0.5, 0.75))
    deviations = np.sort(np.abs(sample - centre), axis=0)
    mad = 1.4826 * _quantile(deviations, count, 0.5)
    # If half of a column has the same value, such as zero counts, it has no useful scale.
    scale = np.where((mad > 1e-9) & (count >= 8), np.maximum(mad, (high - low) / 1.349), 0.0)
    n = np.maximum(1, len(part) - np.isnan(part).sum(axis=0))
    return centre, OUTLIER * (1 + 200 / n**2) * scale, scale


def _quantile(ordered: Float[np.ndarray, "n k"], count: Int[np.ndarray, " k"], p: float) -> Float[np.ndarray, " k"]:
    """Quantile of the first `count` entries of each column, which are sorted."""
    position = p * (np.maximum(count, 1) - 1)
    low = np.floor(position).astype(np.intp)
    columns, part = np.arange(ordered.shape[1]), position - low
    return (1 - part) * ordered[low, columns] + part * ordered[np.minimum(low + 1, np.maximum(count, 1) - 1), columns]


def _check_shapes(seen: _Columns, names: tuple[str, ...]) -> list[Finding]:
    """Skewed columns, and heavy tails of the others; both must exceed the sampling noise of normal numbers."""
    usual = seen.distinct > FEW_VALUES  # the others are a finding of their own
    skewed = usual & (np.abs(seen.skewness) > SKEWNESS) & (np.abs(skewness_z(seen.skewness, seen.count)) > NOISE)
    heavy = usual & ~skewed & (seen.kurtosis > KURTOSIS) & (kurtosis_z(seen.kurtosis, seen.count) > NOISE)
    found = _grouped(Kind.SKEWED, Severity.CAUTION, np.flatnonzero(skewed), seen.skewness, names)
    return found + _grouped(Kind.HEAVY_TAILS, Severity.CAUTION, np.flatnonzero(heavy), seen.kurtosis, names)


def skewness_z(skewness: Float[np.ndarray, " d"], n: Int[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """Test statistic of skewness, standard normal for normal data (D'Agostino, Biometrika 1970); 0 where n < 8."""
    m = np.maximum(n, 8).astype(np.float64)
    y = skewness * np.sqrt((m + 1) * (m + 3) / (6 * (m - 2)))
    beta = 3 * (m**2 + 27 * m - 70) * (m + 1) * (m + 3) / ((m - 2) * (m + 5) * (m + 7) * (m + 9))
    w2 = np.sqrt(2 * (beta - 1)) - 1
    z = np.arcsinh(y / np.sqrt(2 / (w2 - 1))) / np.sqrt(0.5 * np.log(w2))
    return np.where(n < 8, 0.0, z)


def kurtosis_z(kurtosis: Float[np.ndarray, " d"], n: Int[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """Test statistic of excess kurtosis (Anscombe and Glynn, Biometrika 1983); 0 where n < 20."""
    m = np.maximum(n, 20).astype(np.float64)
    variance = 24 * m * (m - 2) * (m - 3) / ((m + 1) ** 2 * (m + 3) * (m + 5))
    x = (kurtosis + 3 - 3 * (m - 1) / (m + 1)) / np.sqrt(variance)
    skew = 6 * (m**2 - 5 * m + 2) / ((m + 7) * (m + 9)) * np.sqrt(6 * (m + 3) * (m + 5) / (m * (m - 2) * (m - 3)))
    a = 6 + 8 / skew * (2 / skew + np.sqrt(1 + 4 / skew**2))
    root = np.cbrt((1 - 2 / a) / np.maximum(1e-9, 1 + x * np.sqrt(2 / (a - 4))))
    return np.where(n < 20, 0.0, (1 - 2 / (9 * a) - root) / np.sqrt(2 / (9 * a)))


# ----------------------------------------------------------------------------------------------------------- row by row
def _check_rows(
    working: Float[np.ndarray, "n d"], used: Usable, seen: _Columns, correlation: Float[np.ndarray, "d d"]
) -> list[Finding]:
    """Rows that alone change a correlation, rows that are far out in many columns, and other outliers."""
    rows, per_row = np.unique(seen.far_row, return_counts=True)
    if not rows.size:
        return []
    n, d = working.shape
    largest = np.argsort(-np.bincount(seen.far_row, np.abs(working[seen.far_row, seen.far_column]) ** 2)[rows])
    moved = []
    for i in rows[largest[:_ROWS_TRIED]]:
        columns = seen.far_column[seen.far_row == i]
        change, a, b, without = _most_moved(working, i, columns[:KEPT], correlation)
        if change > max(0.1, 3 / np.sqrt(n)):
            moved.append((change, i, a, b, without))
    moved.sort(key=lambda each: -each[0])
    count = dict(zip(rows.tolist(), per_row.tolist(), strict=True))
    found = [
        Finding(
            Kind.ROW_MAKES_CORRELATION,
            Severity.SERIOUS,
            (used.names[a], used.names[b]),
            (int(used.rows[i]),),
            (round(float(correlation[a, b]), 4), round(without, 4)),
            count[int(i)],
        )
        for _, i, a, b, without in moved[:SAME_KIND]
    ]
    reported = np.array([i for _, i, *_ in moved[:SAME_KIND]], dtype=np.intp)
    many = np.setdiff1d(rows[per_row >= max(3, 0.1 * d)], reported)
    return found + _far_cells(seen, used, ~np.isin(seen.far_row, reported), many)


def _most_moved(
    working: Float[np.ndarray, "n d"],
    i: int,
    columns: Int[np.ndarray, " k"],
    correlation: Float[np.ndarray, "d d"],
) -> tuple[float, int, int, float]:
    """The correlation of these columns with others that changes most without row i: change, two columns, value then."""
    n, w, r = len(working), working[i], correlation[columns]
    if np.isnan(working).any():
        without = correlations(np.delete(working, i, axis=0), columns)
    else:
        left = np.maximum(1e-12, n - n / (n - 1) * w**2)  # sums of squares without the row; n with it
        without = (n * r - n / (n - 1) * np.outer(w[columns], w)) / np.sqrt(np.outer(left[columns], left))
    change = np.abs(r - without)
    change[np.arange(len(columns)), columns] = 0.0
    k, j = divmod(int(np.argmax(change)), len(w))
    return float(change[k, j]), int(columns[k]), j, float(np.clip(without[k, j], -1, 1))


def _far_cells(
    seen: _Columns, used: Usable, of_interest: Bool[np.ndarray, " k"], many: Int[np.ndarray, " m"]
) -> list[Finding]:
    """One finding for each row that is far out in many columns, and one for the outliers of other rows."""
    found = []

    def cells(at: Bool[np.ndarray, " k"]) -> tuple[np.ndarray, tuple[str, ...], tuple[float, ...]]:
        order = np.flatnonzero(at)
        order = order[np.argsort(-seen.far_by[order], kind="stable")][:KEPT]
        by = tuple(float(f"{value:.4g}") for value in np.minimum(seen.far_by[order], 1e300))
        return order, tuple(used.names[j] for j in seen.far_column[order]), by

    count = np.bincount(seen.far_row, minlength=1)
    for i in many[np.argsort(-count[many], kind="stable")][:SAME_KIND]:
        at = seen.far_row == i
        _, columns, by = cells(at)
        found.append(Finding(Kind.EXTREME_ROW, Severity.CAUTION, columns, (int(used.rows[i]),), by, int(at.sum())))
    alone = of_interest & ~np.isin(seen.far_row, many)
    if alone.any():
        order, columns, by = cells(alone)
        rows = tuple(int(used.rows[i]) for i in seen.far_row[order])
        found.append(Finding(Kind.OUTLIERS, Severity.CAUTION, columns, rows, by, int(alone.sum())))
    return found
