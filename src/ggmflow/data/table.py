"""Reading tables: array, pandas, polars or CSV -> (n×d floats, column names, names of rows for messages)."""

import csv
import os
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ggmflow.data.problems import Problem, ProblemKind, raise_problems
from ggmflow.errors.advice import Advice
from ggmflow.errors.advised import AdvisedWarning
from ggmflow.errors.argument import ArgumentError
from ggmflow.errors.columns import UnknownColumnError
from ggmflow.storage.memory import require

_VALUES = {"": "nan", "na": "nan", "n/a": "nan", "null": "nan", "none": "nan", "true": "1", "false": "0"}
_MANY_ROWS = 10  # from here on values that increase by one are not a coincidence
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "blanks"}


class RowNames(NamedTuple):
    """Names of rows in messages: their line in a file, or their position.

    Attributes
    ----------
    lines : list of int, optional
        The line on which each row ends; None for tables that are not files.
    """

    lines: list[int] | None

    def number(self, i: int) -> int:
        """Line or position of row i."""
        return int(i) if self.lines is None else self.lines[i]

    def __call__(self, i: int) -> str:
        return f"row {i}" if self.lines is None else f"line {self.lines[i]}"


class Table(NamedTuple):
    """A table as it was read, with the problems found so far.

    Attributes
    ----------
    values : (n, d) array
        NaN for values that are missing or could not be read.
    names : tuple of str
        Names of the columns.
    where : RowNames
        Names row i in a message.
    unreadable : (n, d) array of bool, optional
        Cells that do not hold a number; None if there are none.
    problems : tuple of Problem
        One for each column that could not be read.
    """

    values: Float[np.ndarray, "n d"]
    names: tuple[str, ...]
    where: RowNames
    unreadable: Bool[np.ndarray, "n d"] | None
    problems: tuple[Problem, ...]


class _Column(NamedTuple):
    """A column as numbers, and the reason if some could not be read."""

    values: Float[np.ndarray, " n"]
    unreadable: Bool[np.ndarray, " n"] | None = None
    problem: Problem | None = None


def read_table(
    X: Any, names: Sequence[str] | None, min_rows: int = 2, min_columns: int = 2
) -> tuple[Float[np.ndarray, "n d"], tuple[str, ...], RowNames]:
    """Numbers with NaN for missing values, column names, and names of rows; raise if a column is not numeric."""
    table = parse_table(X, names, min_rows, min_columns, depth=1)
    raise_problems(table.problems)
    return table.values, table.names, table.where


def parse_table(
    X: Any,
    names: Sequence[str] | None,
    min_rows: int = 2,
    min_columns: int = 2,
    delimiter: str = ",",
    decimal: str = ".",
    drop: Sequence[str] = (),
    depth: int = 0,
) -> Table:
    """Read a table; columns that are not numeric become problems in the result, not exceptions.

    Parameters
    ----------
    X, names, delimiter, decimal, drop
        As in `Scatter.from_data`.
    min_rows, min_columns
        Raise if the table is smaller.
    depth
        Number of calls between the caller of this function and the function that a user calls, for warnings.
    """
    _check_signs(delimiter, decimal)
    # Not imported: if X is a table of pandas or polars, or a sparse matrix, the library is loaded already.
    pandas, polars, sparse = (sys.modules.get(name) for name in ("pandas", "polars", "scipy.sparse"))
    if sparse is not None and sparse.issparse(X):  # first: some sparse matrices are dicts
        raise ValueError("X is a sparse matrix; centring makes it dense anyway: pass X.toarray()")
    if X is None or isinstance(X, dict):
        raise TypeError(f"X must be a table of numbers or the path of a CSV file, not {type(X).__name__}")
    lines: list[int] | None = None
    if isinstance(X, str | os.PathLike):
        found, columns, lines = _read_csv(Path(X), delimiter, decimal, depth)
    elif pandas is not None and isinstance(X, pandas.DataFrame):
        found, columns = list(X.columns), [X.iloc[:, j] for j in range(X.shape[1])]
    elif polars is not None and isinstance(X, polars.DataFrame):
        found, columns = X.columns, X.get_columns()
    else:
        array = _read_array(X)
        found, columns = [f"x{j}" for j in range(array.shape[1])], list(array.T)
    where = RowNames(lines)
    labels = check_names(found if names is None else names, len(columns))
    kept = _kept(labels, drop)
    labels, columns = tuple(labels[j] for j in kept), [columns[j] for j in kept]
    shape = (len(columns[0]) if columns else 0, len(columns))
    if lines is not None:
        _check_file_size(Path(str(X)), (len(lines), len(columns)), labels, min_rows, min_columns)
    for count, axis, least in ((shape[1], "feature", min_columns), (shape[0], "sample", min_rows)):
        if count < least:
            raise ValueError(f"Found {count} {axis}(s) (shape={shape}) while a minimum of {least} is required.")
    read = [_to_float(column, name, where) for column, name in zip(columns, labels, strict=True)]
    first = read[0].values
    if lines is not None and len(lines) >= _MANY_ROWS and (np.diff(first) == 1).all():
        problem = f"column {labels[0]!r} counts the rows, from {first[0]:g} to {first[-1]:g}"
        advice = Advice("if these are labels, leave it out with", {"drop": [labels[0]]})
        warnings.warn(AdvisedWarning(problem, advice), stacklevel=3 + depth)
    problems = tuple(column.problem for column in read if column.problem is not None)
    unreadable = None
    if problems:
        none = np.zeros(shape[0], dtype=bool)
        unreadable = np.column_stack([none if each.unreadable is None else each.unreadable for each in read])
    return Table(np.column_stack([column.values for column in read]), labels, where, unreadable, problems)


def _check_file_size(
    path: Path, shape: tuple[int, int], labels: tuple[str, ...], min_rows: int, min_columns: int
) -> None:
    """Raise if a file has too few rows or columns; the message names the file."""
    rows, columns = shape
    if rows == 0:
        least = "at least 2 lines" if min_rows > 1 else "lines"
        raise ValueError(f"{str(path)!r} has a header but no rows: it needs {least} of numbers below the header")
    if columns < min_columns:
        has = f"1 column, {labels[0]!r}" if columns else "no column"
        hint = "is the delimiter right, and was nothing dropped that is needed?"
        raise ValueError(f"{str(path)!r} has {has}, but at least {min_columns} are needed: {hint}")
    if rows < min_rows:
        raise ValueError(f"{str(path)!r} has {rows} row below the header, but at least {min_rows} are needed")


def _kept(labels: tuple[str, ...], drop: Sequence[str]) -> list[int]:
    """Positions of the columns that are not dropped."""
    try:
        left_out = [drop] if isinstance(drop, str) else list(map(str, drop))
    except TypeError:
        raise ArgumentError("drop", drop, "be a sequence of column names") from None
    known = set(labels)
    for name in left_out:
        if name not in known:
            raise UnknownColumnError(name, labels)
    gone = set(left_out)
    return [j for j, label in enumerate(labels) if label not in gone]


def _read_array(X: Any) -> np.ndarray:
    if np.ma.isMaskedArray(X):
        X = np.ma.filled(X.astype(np.float64), np.nan)
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise ValueError(f"the rows of X differ in length: {error}") from None
    except TypeError as error:
        raise TypeError(f"X must be a table of numbers: {error}") from None
    if array.ndim != 2:
        got = f"{array.ndim}D array of shape {array.shape}" if array.ndim else type(X).__name__
        hint = "rows are observations, columns are variables"
        raise ValueError(f"Expected 2D array, got {got}. Reshape your data: {hint}")
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported: pass its real part")
    return array


def _check_signs(delimiter: str, decimal: str) -> None:
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n\0':
        raise ArgumentError("delimiter", delimiter, "be one character between fields, such as ';' or a tab")
    if not isinstance(decimal, str) or decimal not in (".", ","):
        raise ArgumentError("decimal", decimal, (".", ","))
    if decimal == delimiter:
        advice = Advice("if fields are separated by another sign, give it, such as", {"delimiter": ";"})
        raise ArgumentError("decimal", decimal, reason="cannot separate both fields and decimals", advice=advice)


def _read_csv(path: Path, delimiter: str, decimal: str, depth: int) -> tuple[list[str], list[Any], list[int]]:
    """Header, columns (numbers, or texts if not all fields are numbers), and the line on which each row ends."""
    try:
        problem = None if path.is_file() else "is a directory" if path.is_dir() else "does not exist"
    except OSError as error:  # too long for a name, for instance the text of a table instead of its path
        problem = f"cannot be the name of a file ({error.strerror})"
    if problem is not None:
        shown = str(path) if len(str(path)) <= 200 else f"{str(path)[:50]}…"
        raise ValueError(f"{shown!r} {problem}: give the path of a CSV file")
    require(path.stat().st_size, f"the rows of {str(path)!r}", "leave out rows or columns")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            # A blank must not be skipped if it is the separator.
            reader = csv.reader(file, delimiter=delimiter, skipinitialspace=delimiter != " ")
            # A blank line is ignored, but ",," is a row of missing values.
            rows = [(reader.line_num, row) for row in reader if len(row) > 1 or "".join(row).strip()]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{str(path)!r} is not a CSV file in UTF-8: {_other_kind(path) or error}") from None
    if not rows:
        raise ValueError(f"{str(path)!r} is empty: it needs a header and rows of numbers")
    rows = _without_row_labels(rows, depth)
    header = [name.strip() for name in rows[0][1]]
    _check_header(header, path, delimiter)
    for line, row in rows:
        if len(row) != len(header):
            _check_delimiter(row, path, delimiter)  # the header may hold the delimiter within a name
            raise ValueError(
                f"line {line} has {len(row)} field{'s' * (len(row) > 1)}, but the header has {len(header)}"
            )
    if decimal == ",":
        rows = [rows[0], *((line, _points_for_commas(row, line)) for line, row in rows[1:])]
    columns = [_read_fields([row[j] for _, row in rows[1:]]) for j in range(len(header))]
    return header, columns, [line for line, _ in rows[1:]]


def _check_delimiter(fields: list[str], path: Path, delimiter: str) -> None:
    """Raise if a line is one field that contains another usual separator: the delimiter is probably wrong."""
    for sign, plural in _DELIMITERS.items():
        if len(fields) == 1 and sign in fields[0]:
            shown = "'tab'" if sign == "\t" else repr(sign)
            hint = f"give delimiter={sign!r} to Scatter.from_data, or --delimiter {shown} on the command line"
            expected = _DELIMITERS.get(delimiter, repr(delimiter))
            raise ValueError(f"{str(path)!r} seems to be separated by {plural}, not {expected}: {hint}")


def _other_kind(path: Path) -> str | None:
    """The probable kind of a file that is not a CSV file in UTF-8; None if it is unknown."""
    with path.open("rb") as file:
        start = file.read(4)
    if start.startswith(b"PK"):
        return "it seems to be a workbook such as .xlsx; save it as CSV first"
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "it seems to be in UTF-16; save it as CSV in UTF-8"
    return None


def _without_row_labels(rows: list[tuple[int, list[str]]], depth: int) -> list[tuple[int, list[str]]]:
    """Rows without labels: R and pandas write a first column whose name is empty or absent in the header."""
    header, body = rows[0][1], rows[1:]
    # One field more than the header may also be a mistake. Different texts, or a count of the rows, are labels.
    labels = [row[0].strip() for _, row in body if len(row) == len(header) + 1]
    counts = ([*map(str, range(len(body)))], [*map(str, range(1, len(body) + 1))])
    named = len(set(labels)) == len(body) and all(_number(label) is None for label in labels)
    left_out = len(labels) == len(body) > 0 and (named or labels in counts)
    empty = len(header) > 1 and not header[0].strip() and all(name.strip() for name in header[1:])
    if not left_out and not empty:
        return rows
    warnings.warn("the first column has no name: it is taken for labels of the rows and left out", stacklevel=5 + depth)
    return [(rows[0][0], header if left_out else header[1:]), *((line, row[1:]) for line, row in body)]


def _number(text: str) -> float | None:
    try:
        return _to_number(text)
    except ValueError:
        return None


def _to_number(entry: Any) -> float:
    if isinstance(entry, complex | np.complexfloating):  # float() of a complex NumPy number drops its imaginary part
        raise TypeError(str(entry))
    # Python reads 1_000 as a thousand, but in a table it is probably a label, such as that of a sample.
    if isinstance(entry, str) and "_" in entry:
        raise ValueError(f"could not convert string to float: {entry!r}")
    return float(entry)


def _points_for_commas(row: list[str], line: int) -> list[str]:
    for text in row:
        if "." in text:  # 1.234 may mean 1234 or 1.234
            raise ValueError(f"line {line}: {text!r} has a point, but decimals are to follow a comma")
    return [text.replace(",", ".") for text in row]


def _read_fields(fields: list[str]) -> np.ndarray | list[str]:
    try:
        return np.array([_to_number(text) for text in fields])
    except ValueError:
        return [_VALUES.get(text.strip().lower(), text) for text in fields]


def _check_header(header: list[str], path: Path, delimiter: str) -> None:
    _check_delimiter(header, path, delimiter)
    if "" in header:
        column = header.index("") + 1
        raise ValueError(f"column {column} has no name: name it or remove it (a row index? an extra comma?)")
    try:
        numbers = [float(name) for name in header]
    except ValueError:
        return
    # A row of data, unless it counts 0, 1, 2, … (as pandas names columns) or 1, 2, 3, …
    if numbers not in ([*range(len(header))], [*range(1, len(header) + 1)]):
        raise ValueError(f"line 1 holds numbers ({', '.join(header[:3])}, …): a header with names is required")


def _to_float(column: Any, name: str, where: RowNames) -> _Column:
    dtype: Any = getattr(column, "dtype", None)
    if hasattr(dtype, "is_numeric"):  # polars
        is_number = dtype.is_numeric() or str(dtype) == "Boolean"
        return _Column(column.cast(float).to_numpy()) if is_number else _parse(column.to_list(), name, where)
    kind = getattr(dtype, "kind", "O")
    if kind in "cmM":
        is_complex = kind == "c"
        problem = Problem(ProblemKind.COMPLEX if is_complex else ProblemKind.DATES, (name,), detail="complex")
        return _Column(np.full(len(column), np.nan), np.ones(len(column), dtype=bool), problem)
    if kind not in "biuf":
        return _parse(list(column), name, where)
    if hasattr(column, "iloc"):  # pandas
        return _Column(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return _Column(column.astype(np.float64))


def _parse(entries: list[Any], name: str, where: RowNames) -> _Column:
    numbers, unreadable = np.full(len(entries), np.nan), np.zeros(len(entries), dtype=bool)
    pandas = sys.modules.get("pandas")
    absent = (None,) if pandas is None else (None, pandas.NA, pandas.NaT)
    problem = None
    for i, entry in enumerate(entries):
        if any(entry is nothing for nothing in absent):
            continue
        try:
            numbers[i] = _to_number(entry)
        except (TypeError, ValueError, OverflowError) as error:
            unreadable[i] = True
            # The message of float() names the value, but not its place.
            problem = problem or Problem(_kind_of(entry, error, where), (name,), where(i), str(error))
    return (
        _Column(numbers)
        if problem is None
        else _Column(numbers, unreadable, problem._replace(count=int(unreadable.sum())))
    )


def _kind_of(entry: Any, error: Exception, where: RowNames) -> ProblemKind:
    """The reason why an entry could not be read as a number. Only files can have another decimal sign."""
    if isinstance(entry, complex | np.complexfloating):
        return ProblemKind.COMPLEX
    if isinstance(error, TypeError):
        return ProblemKind.OBJECT
    if isinstance(error, OverflowError):
        return ProblemKind.TOO_LARGE
    commas = where.lines is not None and isinstance(entry, str) and _number(entry.replace(",", ".", 1)) is not None
    return ProblemKind.DECIMAL_COMMA if commas else ProblemKind.TEXT


def check_names(names: Sequence[str], n_features: int) -> tuple[str, ...]:
    """Column names as a tuple of strings; raise if their number is wrong or names repeat."""
    if isinstance(names, str):
        raise ArgumentError("names", names, "be a sequence of column names, not one string")
    try:
        labels = tuple(str(name) for name in names)
    except TypeError:
        raise ArgumentError("names", names, "be a sequence of column names") from None
    if len(labels) != n_features:
        raise ValueError(f"{len(labels)} names were given for {n_features} columns")
    if repeated := [name for name, count in Counter(labels).items() if count > 1]:
        raise ValueError(f"column names must differ, but these repeat: {', '.join(map(repr, repeated))}")
    return labels
