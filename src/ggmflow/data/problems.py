"""Problems that make a table unusable: records, an exception that carries all of them, and its message."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from ggmflow.errors.advice import Surface, listing, option, read_with


class ProblemKind(Enum):
    """Why a table cannot be used; in the order in which problems are listed."""

    TEXT = "text"
    DECIMAL_COMMA = "decimal comma"
    OBJECT = "object"
    TOO_LARGE = "too large"
    DATES = "dates"
    COMPLEX = "complex"
    INFINITE = "infinite"
    EMPTY_COLUMN = "empty column"
    MISSING = "missing"
    FEW_ROWS = "few rows"
    CONSTANT = "constant"


class Problem(NamedTuple):
    """One reason why a table cannot be used.

    Attributes
    ----------
    kind
        The reason.
    columns : tuple of str
        The columns concerned, in the order of the table.
    where : str
        The first cell's row, such as "line 7"; empty if the problem is that of whole columns.
    detail : str
        The first cell's value, or Python's message about it.
    count : int
        Number of cells concerned; for FEW_ROWS the number of rows that are left.
    n_rows : int
        Rows of the table, for FEW_ROWS.
    missing : str
        Treatment of missing values, for FEW_ROWS.
    """

    kind: ProblemKind
    columns: tuple[str, ...]
    where: str = ""
    detail: str = ""
    count: int = 0
    n_rows: int = 0
    missing: str = "error"


class TableError(ValueError):
    """A table cannot be used; the message names every problem with its remedy.

    Attributes
    ----------
    problems : tuple of Problem
    n_columns : int or None
        Number of columns of the table, if known.
    """

    def __init__(self, problems: Iterable[Problem], n_columns: int | None = None):
        self.problems, self.n_columns = tuple(problems), n_columns
        super().__init__(self.problems, n_columns)  # as `args`, so that the exception can be pickled

    def __str__(self) -> str:
        return "\n".join(self.lines(Surface.PYTHON))

    def lines(self, surface: Surface) -> list[str]:
        """The message: one line for one problem; otherwise a heading, a line for each problem, and a remedy for all.

        Parameters
        ----------
        surface
            Where it is read.
        """
        texts = [_sentence(problem, surface) for problem in self.problems]
        if len(texts) == 1:
            return texts
        lines = [f"the table cannot be used as it is, for {len(texts)} reasons:", *(f"- {text}" for text in texts)]
        remedy = _options_for_all(self.problems, self.n_columns, surface)
        return lines + ([f"To use the rest of it: {remedy}"] if remedy else [])


class TableTypeError(TableError, TypeError):
    """A table holds objects that are not numbers. It is a TypeError too, as scikit-learn expects."""


def raise_problems(problems: Sequence[Problem], n_columns: int | None = None) -> None:
    """Raise TableError if there are any problems.

    Parameters
    ----------
    problems
        In any order; those of the same kind become one.
    n_columns
        Number of columns of the table.
    """
    if not problems:
        return
    together = [_merge([each for each in problems if each.kind is kind]) for kind in ProblemKind]
    found = [problem for problem in together if problem is not None]
    objects = any(problem.kind is ProblemKind.OBJECT for problem in found)
    raise TableTypeError(found, n_columns) if objects else TableError(found, n_columns)


def _merge(same: list[Problem]) -> Problem | None:
    if not same:
        return None
    columns = tuple(column for problem in same for column in problem.columns)
    return same[0]._replace(columns=columns, count=sum(problem.count for problem in same))


# ----------------------------------------------------------------------------------------------------------------- text
def _sentence(problem: Problem, surface: Surface) -> str:
    columns, several = problem.columns, len(problem.columns) > 1
    first = ", ".join([f"column {column!r}" for column in columns[:1]] + [problem.where] * bool(problem.where))
    them = "them" if several else "it"
    out = f"leave {them} out with {read_with({'drop': list(columns)}, surface)}"
    match problem.kind:
        case ProblemKind.TEXT | ProblemKind.OBJECT | ProblemKind.TOO_LARGE:
            what = f"{first}: {problem.detail}{_such_cells(problem)}"
            column = "the columns" if several else "the column"
            return f"{what}; encode {column} as numbers, {out}, or leave missing entries empty"
        case ProblemKind.DECIMAL_COMMA:
            give = option("decimal", ",", surface)
            return f"{first}: {problem.detail}{_such_cells(problem)}; if decimals follow a comma, give {give}"
        case ProblemKind.DATES:
            hold = f"columns {listing(columns)} hold" if several else f"column {columns[0]!r} holds"
            return f"{hold} dates or times: turn them into numbers or {out}"
        case ProblemKind.COMPLEX:
            return f"Complex data not supported: {first} is {problem.detail}{_such_cells(problem)}, pass its real part"
        case ProblemKind.INFINITE:
            return f"{first} is {problem.detail}{_such_cells(problem)}: every value must be finite"
        case ProblemKind.EMPTY_COLUMN:
            return f"no value was observed in column{'s' * several} {listing(columns)}: {out}"
        case ProblemKind.MISSING:
            where = f", in {len(columns)} columns" if several else ""
            em, complete = (option("missing", value, surface) for value in ("em", "drop"))
            advice = f"choose {em} to use every row, or {complete} for complete rows only"
            return f"{first} is missing (NaN; {problem.count} in all{where}): {advice}"
        case ProblemKind.FEW_ROWS:
            left = f"leaves {problem.count} of {problem.n_rows} rows, fewer than 2"
            em = f"choose {option('missing', 'em', surface)}, or leave out the columns with most missing values"
            advice = em if problem.missing == "drop" else "there is nothing to estimate from"
            return f"{option('missing', problem.missing, surface)} {left}: {advice}"
        case ProblemKind.CONSTANT:
            if several:
                return f"columns {listing(columns)} are constant: {out}"
            return f"column {columns[0]!r} is constant (always {problem.detail}): {out}"


def _such_cells(problem: Problem) -> str:
    """The number of cells with the same problem, if there are several."""
    if problem.count < 2:
        return ""
    several = len(problem.columns)
    where = f", in columns {listing(problem.columns)}" if several > 1 else ""
    return f" ({problem.count} such cells{where})"


def _options_for_all(problems: Sequence[Problem], n_columns: int | None, surface: Surface) -> str:
    """Options that leave out every column that cannot be used, and allow missing values; "" if too little is left."""
    whole = (ProblemKind.TEXT, ProblemKind.OBJECT, ProblemKind.DATES, ProblemKind.EMPTY_COLUMN, ProblemKind.CONSTANT)
    if any(problem.kind not in (*whole, ProblemKind.MISSING) for problem in problems):
        return ""  # a cell has to be corrected first
    columns = dict.fromkeys(column for problem in problems if problem.kind in whole for column in problem.columns)
    if n_columns is not None and n_columns - len(columns) < 2:
        return ""
    options: dict[str, Any] = {"drop": list(columns)} if columns else {}
    if any(problem.kind is ProblemKind.MISSING and not columns.keys() >= set(problem.columns) for problem in problems):
        options["missing"] = "em"
    return read_with(options, surface)
