"""Rows of the table of edges, at the point that the page shows first."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ggmflow.report.content import FIELDS, Content
from ggmflow.report.text import MEASURES, percent, signed

ROWS = 40  # of the table, before "Show all rows"


class Row(NamedTuple):
    """Texts of one row.

    Attributes
    ----------
    pair : int or None
        Position among the kept pairs; None for the row that the script copies and fills.
    names : (str, str)
        Names of the two variables.
    measure : str
        Kind of association.
    kind : {"positive", "negative"}
        Sign of the association.
    low, high, middle : str
        Horizontal positions of the ends of the interval and of the mean.
    mean, interval, sign, large : str
        Mean, interval, probability of the sign, and probability that |association| exceeds the threshold.
    """

    pair: int | None
    names: tuple[str, str]
    measure: str
    kind: str
    low: str
    high: str
    middle: str
    mean: str
    interval: str
    sign: str
    large: str


def edge_rows(content: Content) -> list[Row]:
    """Return the rows of the strongest edges, at most `ROWS`."""
    point, kept = content.selected, content.kept
    found = np.flatnonzero(point.edges[0, kept])
    order = found[np.argsort(-np.abs(point.values[0, kept[found]]), kind="stable")][:ROWS].tolist()
    rows = []
    for k in order:
        pair = kept[k]
        names = content.names[content.first[pair]], content.names[content.second[pair]]
        rows.append(_row(content, k, names, MEASURES[int(content.inside[pair])], point.values[:, pair]))
    return rows


def blank_row(content: Content) -> Row:
    """Return the row that the script copies and fills."""
    return _row(content, None, ("", ""), "", np.zeros(len(FIELDS)))


def decimals(content: Content) -> int:
    """Return the number of decimals of associations: at least two digits of the largest one."""
    return max(2, int(np.ceil(-np.log10(content.limit))) + 1)


def _row(
    content: Content, pair: int | None, names: tuple[str, str], measure: str, values: Float[np.ndarray, " 5"]
) -> Row:
    mean, low, high, positive, large = values.tolist()
    digits, limit = decimals(content), content.limit
    x = [f"{50 * (1 + float(np.clip(value / limit, -1, 1))):.2f}%" for value in (low, high, mean)]
    return Row(
        pair,
        names,
        measure,
        "negative" if mean < 0 else "positive",
        *x,
        mean=signed(mean, digits),
        interval=f"{signed(low, digits)} … {signed(high, digits)}",
        sign=percent(max(positive, 1 - positive)),
        large=percent(large),
    )
