"""Numbers as text for the page of results: tables, paragraphs, differences with their intervals."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

Frame = Any  # a DataFrame or Series: their annotations leave open what a column or a sum is
Tables = Mapping[str, Frame]


def markdown(header: Sequence[object], rows: Sequence[Sequence[object]], *, right: bool = False) -> str:
    """A table; a bar within a cell does not end it. With `right`, all columns but the first are numbers."""
    marks = ["---", *["---:" if right else "---"] * (len(header) - 1)]
    lines = [header, marks, *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", r"\|") for cell in line) + " |" for line in lines)


def filled(*parts: str) -> str:
    """A paragraph in lines of at most 120 characters; a table, heading or picture stays as it is."""
    paragraph = " ".join(parts)
    if paragraph.startswith(("|", "#", "!")):
        return paragraph
    return textwrap.fill(" ".join(paragraph.split()), 120, break_long_words=False, break_on_hyphens=False)


def percent(level: float) -> str:
    """A share, as 90 %."""
    return f"{100 * level:g} %"


def joined(words: Sequence[str]) -> str:
    """One, two and three."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def between(low: str, high: str) -> str:
    """Low to high, or one of them if they read the same."""
    return low if low == high else f"{low} to {high}"


def span(values: Frame, digits: str) -> str:
    """Smallest to largest of some numbers."""
    return between(format(float(np.min(values)), digits), format(float(np.max(values)), digits))


class Difference(NamedTuple):
    """A mean over data sets, with its 95 % t interval."""

    mean: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 or −1 if the interval excludes zero, else 0."""
        return int(self.low > 0) - int(self.high < 0)

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def difference(values: Frame) -> Difference:
    """Of paired differences, data set by data set, missing ones left out; one alone leaves everything open."""
    found = values.dropna().to_numpy(float)
    if len(found) < 2:
        return Difference(float(found[0]) if len(found) else np.nan, -np.inf, np.inf)
    mean, half = found.mean(), stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found))
    return Difference(float(mean), float(mean - half), float(mean + half))
