"""The rows of a table that a fit uses, or an exception with every problem of the table."""

import warnings
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ggmflow.data.problems import Problem, ProblemKind, raise_problems
from ggmflow.data.table import Table


class Usable(NamedTuple):
    """The rows of a table that a fit uses.

    Attributes
    ----------
    values : (n, d) array
        Finite numbers, NaN for missing values; no column is constant or empty.
    names : tuple of str
        Names of the columns.
    rows : (n,) array of int
        Line in the file, or position in the table, of each row.
    by_line : bool
        Whether `rows` are lines of a file.
    n_missing : (d,) array of int
        Missing cells of each column, including those of rows that are left out.
    n_left_out : int
        Rows of the table that are not used.
    """

    values: Float[np.ndarray, "n d"]
    names: tuple[str, ...]
    rows: Int[np.ndarray, " n"]
    by_line: bool
    n_missing: Int[np.ndarray, " d"]
    n_left_out: int


def use_rows(table: Table, missing: str, *, allow_missing: bool = False) -> Usable:
    """Select the rows of a table that a fit uses.

    Parameters
    ----------
    table
        As it was read.
    missing : {"error", "drop", "em"}
        Raise for missing values, keep complete rows, or keep rows with at least one value.
    allow_missing
        Do not raise for missing values, whatever `missing` is.

    Raises
    ------
    TableError
        With all problems of the table.
    """
    values, names = table.values, table.names
    problems = list(table.problems)
    unreadable = np.zeros(values.shape, dtype=bool) if table.unreadable is None else table.unreadable
    absent = np.isnan(values) & ~unreadable
    problems += _infinite(table)
    empty = np.asarray(absent.all(axis=0))
    problems += [Problem(ProblemKind.EMPTY_COLUMN, (names[j],)) for j in np.flatnonzero(empty)]
    if missing == "error" and not allow_missing:
        problems += _missing(table, absent & ~empty)
    keep = _kept_rows(absent, empty, missing)
    if allow_missing and keep.sum() < 2:
        keep = _kept_rows(absent, empty, "em")
    if keep.sum() < 2:
        few = Problem(ProblemKind.FEW_ROWS, (), count=int(keep.sum()), n_rows=len(keep), missing=missing)
        # Once other problems are solved, there may be enough rows.
        problems += [] if problems else [few]
        keep[:] = True
    problems += constant_columns(values[keep], names, skip=empty | unreadable.any(axis=0))
    raise_problems(problems, len(names))
    if missing == "em" and absent.any():
        _warn_of_gaps(table, absent, keep)
    rows = np.array([table.where.number(int(i)) for i in np.flatnonzero(keep)], dtype=np.intp)
    by_line = table.where.lines is not None
    return Usable(values[keep], names, rows, by_line, absent.sum(axis=0), int((~keep).sum()))


def _kept_rows(absent: Bool[np.ndarray, "n d"], empty: Bool[np.ndarray, " d"], missing: str) -> Bool[np.ndarray, " n"]:
    """Rows to use, once columns without any value are left out."""
    n_absent = np.count_nonzero(absent[:, ~empty], axis=1)
    return n_absent == 0 if missing == "drop" else n_absent < max(1, np.count_nonzero(~empty))


def _infinite(table: Table) -> list[Problem]:
    cells = np.argwhere(np.isinf(table.values))
    if not len(cells):
        return []
    i, j = cells[0]
    columns = (table.names[j], *(table.names[k] for k in np.unique(cells[:, 1]) if k != j))
    detail = str(table.values[i, j])
    return [Problem(ProblemKind.INFINITE, columns, table.where(i), detail, count=len(cells))]


def _missing(table: Table, absent: Bool[np.ndarray, "n d"]) -> list[Problem]:
    """A problem with the first missing cell, row by row, and the number of missing cells."""
    cells = np.argwhere(absent)
    if not len(cells):
        return []
    i, j = cells[0]
    columns = (table.names[j], *(table.names[k] for k in np.unique(cells[:, 1]) if k != j))
    return [Problem(ProblemKind.MISSING, columns, table.where(i), count=len(cells))]


def constant_columns(
    values: Float[np.ndarray, "n d"], names: tuple[str, ...], skip: Bool[np.ndarray, " d"]
) -> list[Problem]:
    """A problem for each column that has one value only.

    Parameters
    ----------
    values : (n, d) array
        NaN for missing values.
    names
        Names of the columns.
    skip : (d,) array of bool
        Columns to leave out, such as those without any value.
    """
    checked = np.flatnonzero(~skip & ~np.isinf(values).any(axis=0))
    checked = checked[(~np.isnan(values[:, checked])).any(axis=0)]
    if not checked.size:
        return []
    low, high = np.nanmin(values[:, checked], axis=0), np.nanmax(values[:, checked], axis=0)
    # Relative to the column's magnitude: 1e-12·(1, 2, 3) varies, 0.1 + 0.2 against 0.3 does not.
    constant = high / 2 - low / 2 <= 4 * np.finfo(np.float64).eps * np.maximum(np.abs(low), np.abs(high))
    return [Problem(ProblemKind.CONSTANT, (names[checked[k]],), detail=f"{low[k]:g}") for k in np.flatnonzero(constant)]


def _warn_of_gaps(table: Table, absent: Bool[np.ndarray, "n d"], keep: Bool[np.ndarray, " n"]) -> None:
    """Warn of rows without any value, and of columns that are never observed together."""
    for i in np.flatnonzero(~keep)[:1]:
        text = f"{np.sum(~keep)} of {len(keep)} rows hold no value and are left out; the first is {table.where(i)}"
        warnings.warn(text, stacklevel=4)
    seen = (~absent).astype(np.float64)
    for i, j in np.argwhere(seen.T @ seen == 0)[:1]:
        text = f"columns {table.names[i]!r} and {table.names[j]!r} are never observed together"
        warnings.warn(f"{text}: no data determine their covariance, so leave one out", stacklevel=4)
