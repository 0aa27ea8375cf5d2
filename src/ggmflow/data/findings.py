"""Findings of a data check: records, their JSON, and short sentences made from them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any, NamedTuple, final

from ggmflow.errors.advice import Surface, listing, option, read_with

KEPT, SAME_KIND = 50, 10  # largest number of entries of a finding, and of findings of one kind

_LINES = 8  # largest number of sentences
_ONE_KIND = 2  # largest number of sentences about one kind of finding
_NAMED = 3  # largest number of columns that a sentence names
_MOST = 10_000  # largest number of findings in a file, and of entries in each list of a finding


class Kind(Enum):
    """The kind of a finding. Findings of the same severity are sorted in this order."""

    ROW_MAKES_CORRELATION = "row makes correlation"
    IDENTICAL = "identical"
    NEARLY_IDENTICAL = "nearly identical"
    EXTREME_ROW = "extreme row"
    OUTLIERS = "outliers"
    COLLINEAR = "collinear"
    SKEWED = "skewed"
    HEAVY_TAILS = "heavy tails"
    FEW_VALUES = "few values"
    MISSING = "missing"
    FEW_ROWS = "few rows"
    NOT_CHECKED = "not checked"


class Severity(IntEnum):
    """How much a finding can affect the edges. `GraphicalFlow.fit` warns about serious findings."""

    NOTE = 0
    CAUTION = 1
    SERIOUS = 2


@final
@dataclass(frozen=True)
class Finding:
    """One unusual feature of a table.

    Attributes
    ----------
    kind, severity
        The kind of the feature, and how much it can affect the edges.
    columns : tuple of str
        The columns with this feature, the most unusual first; at most `KEPT` of them.
    rows : tuple of int
        The rows with this feature: lines of a file if `DataCheck.by_line`, otherwise positions. `OUTLIERS` has one row
        for each entry of `columns`.
    numbers : tuple of float
        The numbers depend on the kind: correlation with the row and without it (`ROW_MAKES_CORRELATION`), the
        correlation closest to zero in the group (`IDENTICAL`, `NEARLY_IDENTICAL`), distances from the median in robust
        standard deviations (`EXTREME_ROW`, `OUTLIERS`), R² (`COLLINEAR`), skewness, excess kurtosis, numbers of
        different values or of missing cells (one for each column).
    total : int
        Number of all columns with this feature; for `OUTLIERS` and `MISSING`, number of cells.
    """

    kind: Kind
    severity: Severity
    columns: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    numbers: tuple[float, ...] = ()
    total: int = 0


@final
@dataclass(frozen=True, repr=False)
class DataCheck:
    """The findings about a table before a fit; ``print`` shows them as short sentences.

    Attributes
    ----------
    findings : tuple of Finding
        The findings, the most severe first; empty if nothing unusual was found.
    n_rows, n_columns : number
        Size of the table that was checked.
    by_line : bool
        Whether `Finding.rows` are lines of a file, or positions in a table.
    missing : {"error", "drop", "em"}
        Treatment of missing values.
    n_left_out : int
        Number of rows that were left out because of missing values.
    transform : None or "nonparanormal"
        Transform that was applied before the check.
    """

    findings: tuple[Finding, ...]
    n_rows: float
    n_columns: int
    by_line: bool = False
    missing: str = "error"
    n_left_out: int = 0
    transform: str | None = None

    @property
    def serious(self) -> tuple[Finding, ...]:
        """Findings that can create or hide edges without any other cause."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.SERIOUS)

    def __repr__(self) -> str:
        size = f"{self.n_rows:g} rows, {self.n_columns} columns"
        found = ", ".join(dict.fromkeys(finding.kind.value for finding in self.findings)) or "nothing unusual"
        return f"DataCheck({size}: {found})"

    def __str__(self) -> str:
        size = f"{self.n_rows:g} rows of {self.n_columns} columns"
        if not self.findings:
            return f"Data check of {size}: nothing unusual was found"
        return "\n".join([f"Data check of {size}:", *(f"- {line}" for line in sentences(self))])

    def to_dict(self) -> dict[str, Any]:
        """Return the content as values that can be written as JSON."""
        findings = [
            {
                "kind": each.kind.value,
                "severity": each.severity.name.lower(),
                "columns": list(each.columns),
                "rows": list(each.rows),
                "numbers": list(each.numbers),
                "total": each.total,
            }
            for each in self.findings
        ]
        return {
            "n_rows": self.n_rows,
            "n_columns": self.n_columns,
            "by_line": self.by_line,
            "missing": self.missing,
            "n_left_out": self.n_left_out,
            "transform": self.transform,
            "findings": findings,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "DataCheck":
        """Read the result of `to_dict`. The content is checked, because it may come from an untrusted file.

        Parameters
        ----------
        content
            Result of `to_dict`.

        Raises
        ------
        ValueError
            If the content is not valid.
        """
        try:
            found = content["findings"]
            if not isinstance(found, list) or len(found) > _MOST:
                raise ValueError("findings must be a list")
            return cls(
                findings=tuple(map(_read_finding, found)),
                n_rows=_read_number(content["n_rows"]),
                n_columns=_read_count(content["n_columns"]),
                by_line=bool(content["by_line"]),
                missing=_read_choice(content["missing"], ("error", "drop", "em")),
                n_left_out=_read_count(content["n_left_out"]),
                transform=_read_choice(content["transform"], (None, "nonparanormal")),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"this is not a data check: {error}") from None


def _read_finding(content: Mapping[str, Any]) -> Finding:
    columns, rows, numbers = content["columns"], content["rows"], content["numbers"]
    if not all(isinstance(each, list) and len(each) <= _MOST for each in (columns, rows, numbers)):
        raise ValueError("columns, rows and numbers must be lists")
    if not all(isinstance(name, str) for name in columns):
        raise ValueError("columns must be names")
    kind, severity = Kind(content["kind"]), Severity[str(content["severity"]).upper()]
    columns_least, rows_least, numbers_least = _LEAST[kind]
    if len(columns) < columns_least or len(rows) < rows_least or len(numbers) < numbers_least:
        raise ValueError(f"{kind.value!r} lacks columns, rows or numbers")
    if kind in _ONE_EACH and len(numbers) < len(columns):
        raise ValueError(f"{kind.value!r} needs a number for every column")
    if kind is Kind.OUTLIERS and len(rows) < len(columns):
        raise ValueError(f"{kind.value!r} needs a row for every column")
    places, values = tuple(map(_read_count, rows)), tuple(map(_read_number, numbers))
    return Finding(kind, severity, tuple(columns), places, values, _read_count(content["total"]))


def _read_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{str(value)[:20]} is not a finite number")
    return value


def _read_count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise ValueError(f"{str(value)[:20]} is not a count")
    return value


def _read_choice(value: Any, known: tuple[Any, ...]) -> Any:
    if isinstance(value, str | None) and value in known:
        return value
    raise ValueError(f"{str(value)[:20]!r} is not one of {known}")


# ------------------------------------------------------------------------------------------------------------ sentences
def sentences(check: DataCheck, surface: Surface = Surface.PYTHON, limit: int = _LINES) -> list[str]:
    """Short sentences about the findings, the most severe first.

    Parameters
    ----------
    check
        The findings.
    surface
        Where the sentences are shown; it determines how options are written.
    limit
        Largest number of sentences. If there are more findings, a sentence gives the number of those not shown.

    Returns
    -------
    list of str
        Empty if nothing unusual was found. Names of columns are not escaped.
    """
    shown = []
    for kind, severity in dict.fromkeys((each.kind, each.severity) for each in check.findings):
        shown += [each for each in check.findings if (each.kind, each.severity) == (kind, severity)][:_ONE_KIND]
    # The sentence of a finding names the option for normal scores; if several need it, one last sentence does.
    at_end = sum(each.kind in _ADVISE_SCORES for each in shown) > 1
    available = limit - at_end
    if len(shown) > available or len(shown) < len(check.findings):
        shown = shown[: available - 1]
        at_end = sum(each.kind in _ADVISE_SCORES for each in shown) > 1
    hidden = len(check.findings) - len(shown)
    scores = option("transform", "nonparanormal", surface)
    advice = "use normal scores" if at_end else f"use normal scores ({scores})"
    lines = [_SENTENCES[each.kind](each, check, _Style(surface, advice)) for each in shown]
    lines += [f"{hidden} more finding{'s' * (hidden > 1)}"] * bool(hidden)
    return lines + [f"for normal scores, fit with {scores}"] * at_end


def serious_sentences(check: DataCheck, surface: Surface = Surface.PYTHON) -> list[str]:
    """`sentences` about the serious findings only."""
    return sentences(replace(check, findings=check.serious), surface)


class _Style(NamedTuple):
    """Where a sentence is shown, and how it recommends normal scores."""

    surface: Surface
    scores: str


def _row(number: int, check: DataCheck) -> str:
    return f"line {number}" if check.by_line else f"row {number}"


def _signed(value: float, decimals: int) -> str:
    return f"{value:.{decimals}f}".replace("-", "−")


def _each(finding: Finding, form: Callable[[float], str]) -> str:
    """'a' (1.2), 'b' (1.1) and 7 more."""
    pairs = list(zip(finding.columns, finding.numbers, strict=False))[:_NAMED]
    named = [f"{name!r} ({form(number)})" for name, number in pairs]
    if finding.total > len(named):
        return f"{', '.join(named)} and {finding.total - len(named)} more"
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def _row_makes_correlation(finding: Finding, check: DataCheck, style: _Style) -> str:
    with_it, without = (_signed(value, 2) for value in finding.numbers[:2])
    what = f"alone moves the correlation of {listing(finding.columns[:2])} from {without} to {with_it}"
    return f"{_row(finding.rows[0], check)} {what}: check that row"


def _identical(finding: Finding, check: DataCheck, style: _Style) -> str:
    r, count = finding.numbers[0], finding.total
    measure = "r" if count == 2 else "|r|"
    r = r if count == 2 else abs(r)
    if finding.kind is Kind.IDENTICAL:
        what = f"identical{' except for their sign' * (r < 0)} ({measure} = {_signed(r, 3)})"
    else:
        digits = 4 if abs(r) < 0.99995 else 6
        what = f"nearly identical ({measure} {'=' if count == 2 else '≥'} {_signed(r, digits)})"
    out = (
        f" with {read_with({'drop': list(finding.columns[1:])}, style.surface)}"
        if count == len(finding.columns)
        else ""
    )
    return f"columns {listing(finding.columns, count)} are {what}: leave out all but one{out}"


def _extreme_row(finding: Finding, check: DataCheck, style: _Style) -> str:
    farthest = f"farthest in {finding.columns[0]!r} ({finding.numbers[0]:.0f})"
    where = f"{finding.total} of {check.n_columns} columns, {farthest}"
    return f"{_row(finding.rows[0], check)} is beyond 8 robust standard deviations in {where}: check that row"


def _outliers(finding: Finding, check: DataCheck, style: _Style) -> str:
    cells = list(zip(finding.columns, finding.rows, finding.numbers, strict=False))[:_NAMED]
    named = ", ".join(f"{column!r} in {_row(row, check)} ({number:.0f})" for column, row, number in cells)
    more = f" and {finding.total - len(cells)} more" if finding.total > len(cells) else ""
    values = "1 value lies" if finding.total == 1 else f"{finding.total} values lie"
    what = f"{values} beyond 8 robust standard deviations: {named}{more}"
    return f"{what}; check {'it' if finding.total == 1 else 'them'}, or {style.scores}"


def _collinear(finding: Finding, check: DataCheck, style: _Style) -> str:
    first, *others = finding.columns
    exactly = "" if finding.numbers[0] > 1 - 1e-6 else "nearly "
    what = f"column {first!r} is {exactly}a linear combination of {listing(others, finding.total - 1)}"
    r2 = math.floor(finding.numbers[0] * 1e4 + 1e-6) / 1e4  # rounded down, so that it is 1 only if exact
    return f"{what} (R² = {r2:.4f}): edges among them cannot be distinguished; leave one of them out"


def _shape(finding: Finding, check: DataCheck, style: _Style) -> str:
    """Skewed columns, or columns with heavy tails."""
    skewed = finding.kind is Kind.SKEWED
    measure, result = ("skewness", "") if skewed else ("excess kurtosis", "intervals may be too narrow; ")
    if finding.total == 1:
        value, feature = _signed(finding.numbers[0], 1), "is skewed" if skewed else "has heavy tails"
        return f"column {finding.columns[0]!r} {feature} ({measure} {value}): {result}{style.scores}"
    named, feature = _each(finding, lambda value: _signed(value, 1)), "are skewed" if skewed else "have heavy tails"
    return f"{finding.total} columns {feature}, with the largest {measure} in {named}: {result}{style.scores}"


def _few_values(finding: Finding, check: DataCheck, style: _Style) -> str:
    if finding.total == 1:
        what = f"column {finding.columns[0]!r} has only {finding.numbers[0]:.0f} different values"
    else:
        named = _each(finding, lambda value: f"{value:.0f}")
        what = f"{finding.total} columns have at most 7 different values, the fewest in {named}"
    model = f"the model treats {'it' if finding.total == 1 else 'them'} as continuous"
    binary = finding.total == len(finding.numbers) and all(number == 2 for number in finding.numbers)
    if check.transform is not None or binary:  # normal scores of a binary column are binary too
        return f"{what}: {model}, so {'its' if finding.total == 1 else 'their'} edges are approximate"
    return f"{what}: {model}; {option('transform', 'nonparanormal', style.surface)} uses only the order of values"


def _missing(finding: Finding, check: DataCheck, style: _Style) -> str:
    cells = "1 cell is missing" if finding.total == 1 else f"{finding.total} cells are missing"
    pairs = list(zip(finding.columns, finding.numbers, strict=False))[:_NAMED]
    named = ", ".join(f"{name!r} ({number:.0f})" for name, number in pairs)
    what = f"{cells}, {'all' if len(finding.columns) == 1 else 'most'} in {named}"
    match check.missing:
        case "drop":
            all_rows = check.n_rows + check.n_left_out
            return f"{what}: {check.n_left_out} of {all_rows:g} rows were left out for this reason"
        case "em":
            left_out = "1 row" if check.n_left_out == 1 else f"{check.n_left_out} rows"
            verb = "was" if check.n_left_out == 1 else "were"
            gone = f"; {left_out} without any value {verb} left out" if check.n_left_out else ""
            them = "it" if finding.total == 1 else "them"
            return f"{what}: EM estimates {them}, which makes intervals a little too narrow{gone}"
        case _:
            em, complete = (option("missing", value, style.surface) for value in ("em", "drop"))
            return f"{what}: choose {em} to use every row, or {complete} for complete rows only"


def _few_rows(finding: Finding, check: DataCheck, style: _Style) -> str:
    return f"{check.n_rows:g} rows of {check.n_columns} columns: with so few rows, edges depend strongly on λ and q"


def _not_checked(finding: Finding, check: DataCheck, style: _Style) -> str:
    return f"{check.n_columns} columns are too many to check for linear combinations"


_SENTENCES: dict[Kind, Callable[[Finding, DataCheck, _Style], str]] = {
    Kind.ROW_MAKES_CORRELATION: _row_makes_correlation,
    Kind.IDENTICAL: _identical,
    Kind.NEARLY_IDENTICAL: _identical,
    Kind.EXTREME_ROW: _extreme_row,
    Kind.OUTLIERS: _outliers,
    Kind.COLLINEAR: _collinear,
    Kind.SKEWED: _shape,
    Kind.HEAVY_TAILS: _shape,
    Kind.FEW_VALUES: _few_values,
    Kind.MISSING: _missing,
    Kind.FEW_ROWS: _few_rows,
    Kind.NOT_CHECKED: _not_checked,
}
# Smallest numbers of columns, rows and numbers from which a sentence can be written.
_LEAST = {kind: (1, 0, 1) for kind in Kind} | {
    Kind.ROW_MAKES_CORRELATION: (2, 1, 2),
    Kind.IDENTICAL: (2, 0, 1),
    Kind.NEARLY_IDENTICAL: (2, 0, 1),
    Kind.EXTREME_ROW: (1, 1, 1),
    Kind.OUTLIERS: (1, 1, 1),
    Kind.COLLINEAR: (2, 0, 1),
    Kind.FEW_ROWS: (0, 0, 0),
    Kind.NOT_CHECKED: (0, 0, 0),
}
_ADVISE_SCORES = (Kind.OUTLIERS, Kind.SKEWED, Kind.HEAVY_TAILS)
_ONE_EACH = (Kind.OUTLIERS, Kind.EXTREME_ROW, Kind.SKEWED, Kind.HEAVY_TAILS, Kind.FEW_VALUES, Kind.MISSING)
