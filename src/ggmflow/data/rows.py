"""Which part of a table can be used: rows that enter, or every reason why there are none."""

import warnings
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ggmflow.data.problems import Problem, ProblemKind, refuse
from ggmflow.data.table import Table


class Usable(NamedTuple):
    """The rows of a table that enter.

    Attributes
    ----------
    values : (n, d) array
        Finite numbers, NaN for what is missing; no column is constant or empty.
    names : tuple of str
        Of the columns.
    rows : (n,) array of int
        Line in the file, or position in the table, of each row.
    by_line : bool
        Whether these are lines of a file.
    n_missing : (d,) array of int
        Missing cells of each column, those of rows that were left out among them.
    n_left_out : int
        Rows of the table that do not enter.
    """

    values: Float[np.ndarray, "n d"]
    names: tuple[str, ...]
    rows: Int[np.ndarray, " n"]
    by_line: bool
    n_missing: Int[np.ndarray, " d"]
    n_left_out: int


def use_rows(table: Table, missing: str, *, only_look: bool = False) -> Usable:
    """Decide which rows of a table enter, or raise one exception with everything that is wrong with it.

    Parameters
    ----------
    table
        As it was read.
    missing : {"error", "drop", "em"}
        Refuse missing values, keep complete rows, or keep rows with at least one value.
    only_look
        Missing values are then no reason to refuse the table, whatever `missing` says.

    Raises
    ------
    TableError
    """
    values, names = table.values, table.names
    problems = list(table.problems)
    unreadable = np.zeros(values.shape, dtype=bool) if table.unreadable is None else table.unreadable
    absent = np.isnan(values) & ~unreadable
    problems += _infinite(table)
    empty = np.asarray(absent.all(axis=0))
    problems += [Problem(ProblemKind.EMPTY_COLUMN, (names[j],)) for j in np.flatnonzero(empty)]
    if missing == "error" and not only_look:
        problems += _missing(table, absent & ~empty)
    keep = _kept_rows(absent, empty, missing)
    if only_look and keep.sum() < 2:
        keep = _kept_rows(absent, empty, "em")
    if keep.sum() < 2:
        few = Problem(ProblemKind.FEW_ROWS, (), count=int(keep.sum()), n_rows=len(keep), missing=missing)
        # Once a column without values is left out, there may be rows enough; so there are where cells are mended.
        problems += [] if problems else [few]
        keep[:] = True
    problems += constant_columns(values[keep], names, skip=empty | unreadable.any(axis=0))
    refuse(problems, len(names))
    if missing == "em" and absent.any():
        _warn_of_gaps(table, absent, keep)
    rows = np.array([table.where.number(int(i)) for i in np.flatnonzero(keep)], dtype=np.intp)
    by_line = table.where.lines is not None
    return Usable(values[keep], names, rows, by_line, absent.sum(axis=0), int((~keep).sum()))


def _kept_rows(absent: Bool[np.ndarray, "n d"], empty: Bool[np.ndarray, " d"], missing: str) -> Bool[np.ndarray, " n"]:
    """Rows that enter, once columns without any value are left out."""
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
    """The first missing cell, row by row, and how many there are."""
    cells = np.argwhere(absent)
    if not len(cells):
        return []
    i, j = cells[0]
    columns = (table.names[j], *(table.names[k] for k in np.unique(cells[:, 1]) if k != j))
    return [Problem(ProblemKind.MISSING, columns, table.where(i), count=len(cells))]


def constant_columns(
    values: Float[np.ndarray, "n d"], names: tuple[str, ...], skip: Bool[np.ndarray, " d"]
) -> list[Problem]:
    """Columns of one value only.

    Parameters
    ----------
    values : (n, d) array
        NaN for what is missing.
    names
        Of the columns.
    skip : (d,) array of bool
        Columns to leave out, such as those without any value.
    """
    looked = np.flatnonzero(~skip & ~np.isinf(values).any(axis=0))
    looked = looked[(~np.isnan(values[:, looked])).any(axis=0)]
    if not looked.size:
        return []
    low, high = np.nanmin(values[:, looked], axis=0), np.nanmax(values[:, looked], axis=0)
    # Relative to the column's magnitude: 1e-12·(1, 2, 3) varies, 0.1 + 0.2 against 0.3 does not.
    constant = high / 2 - low / 2 <= 4 * np.finfo(np.float64).eps * np.maximum(np.abs(low), np.abs(high))
    return [Problem(ProblemKind.CONSTANT, (names[looked[k]],), detail=f"{low[k]:g}") for k in np.flatnonzero(constant)]


def _warn_of_gaps(table: Table, absent: Bool[np.ndarray, "n d"], keep: Bool[np.ndarray, " n"]) -> None:
    """What EM cannot use, or must guess."""
    for i in np.flatnonzero(~keep)[:1]:
        text = f"{np.sum(~keep)} of {len(keep)} rows hold no value and are left out; the first is {table.where(i)}"
        warnings.warn(text, stacklevel=4)
    seen = (~absent).astype(np.float64)
    for i, j in np.argwhere(seen.T @ seen == 0)[:1]:
        text = f"columns {table.names[i]!r} and {table.names[j]!r} are never observed together"
        warnings.warn(f"{text}: no data determine their covariance, so leave one out", stacklevel=4)
