"""Tick labels that do not run into each other: ticks are chosen when a figure is drawn, by the room that there is then.

Before that the size of axes is not known: a layout engine shrinks them to make room for titles, legends and labels.
"""

# matplotlib's own annotations are narrower than what it accepts.
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false, reportAttributeAccessIssue=false

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, Locator, LogLocator, MaxNLocator

_WIDTH, _HEIGHT = 0.64, 1.2  # of a character and of a line, in units of the font size


class Spaced(MaxNLocator):
    """Round numbers; fewer of them where their labels would run into each other."""

    def __init__(self):
        super().__init__(nbins="auto", steps=[1, 2, 2.5, 5, 10])

    def __call__(self) -> Any:
        """The ticks, in units of the data."""
        ticks = np.asarray(super().__call__(), float)
        axis: Any = self.axis
        low, high = sorted(axis.get_view_interval())
        ticks = ticks[(ticks >= low - 1e-9 * (high - low)) & (ticks <= high + 1e-9 * (high - low))]
        for step in range(1, len(ticks)):
            kept = _every(ticks, step)
            if _fits(axis, kept):
                return kept
        return ticks[:1]


class LamLocator(Locator):
    """Round numbers on a logarithmic axis: two to seven, as many as there is room for."""

    def __call__(self) -> Any:
        """The ticks, in units of the data."""
        axis: Any = self.axis
        return self.tick_values(*axis.get_view_interval())

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Ticks between two values."""
        low, high = sorted((vmin, vmax))
        candidates: list[Any] = []
        if high < 6 * low:  # 1, 2 and 5 of a decade would be one or two ticks
            candidates = [MaxNLocator(nbins, steps=[1, 2, 5, 10]).tick_values(low, high) for nbins in (6, 4, 3, 2)]
        decades = LogLocator(numticks=50).tick_values(low, high)
        candidates.append(np.sort(np.outer(decades, [1, 2, 5]).ravel()))
        candidates += [decades[k % step :: step] for step in range(1, len(decades)) for k in range(step)]
        found = [each[(each >= low * (1 - 1e-9)) & (each <= high * (1 + 1e-9))] for each in candidates]
        good = [each for each in found if 2 <= len(each) <= 7 and _fits(self.axis, each)]
        return max(good, key=len) if good else found[0][:1]


def set_names(axis: Axis, names: Sequence[str], *, most: int = 25, size: float = 8, vertical: bool = False) -> None:
    """Names at 0, 1, 2, …; only every so many of them where there is no room for all, or where there are hundreds.

    Parameters
    ----------
    axis
        Of x or y.
    names
        Written as they are, without typesetting.
    most
        How many names are written at most.
    size
        Of the font, in points.
    vertical
        Whether names are turned by 90 degrees.
    """
    axis.set_major_locator(_Names(len(names), most))
    axis.set_major_formatter(
        FuncFormatter(lambda x, position: str(names[round(x)]) if 0 <= round(x) < len(names) else "")
    )
    axis.set_tick_params(labelsize=size, labelrotation=90 if vertical else 0)
    for tick in axis.get_major_ticks(min(most, len(names))):  # else "$x$" would be typeset
        tick.label1.set_parse_math(False)


class _Names(Locator):
    """0, 1, 2, … below a count, or every so many of them."""

    def __init__(self, count: int, most: int):
        self.count, self.least = count, max(1, -(-count // max(1, most)))

    def __call__(self) -> Any:
        every = (np.arange(0, self.count, step) for step in range(self.least, self.count))
        return next((ticks for ticks in every if _fits(self.axis, ticks)), np.arange(min(1, self.count)))

    def tick_values(self, vmin: float, vmax: float) -> Any:
        return self()


def _every(ticks: np.ndarray, step: int) -> np.ndarray:
    """One of so many ticks, zero among them if it is one of the ticks."""
    zero = np.flatnonzero(np.abs(ticks) < 1e-12 * max(1e-300, float(np.abs(ticks).max())))
    return ticks[int(zero[0]) % step if zero.size else 0 :: step]


def _fits(axis: Any, ticks: np.ndarray) -> bool:
    """Whether the labels of these ticks, with a gap between them, have room beside each other."""
    if len(ticks) < 2:
        return True
    along_x = axis.axis_name == "x"
    points = np.column_stack([ticks, np.zeros(len(ticks))] if along_x else [np.zeros(len(ticks)), ticks])
    transform = axis.axes.get_xaxis_transform() if along_x else axis.axes.get_yaxis_transform()
    at = transform.transform(points)[:, 0 if along_x else 1] * 72 / axis.figure.dpi
    label = axis.get_major_ticks(1)[0].label1
    size = float(label.get_fontsize())
    turned = label.get_rotation() % 180 == 90
    if along_x != turned:
        texts = axis.get_major_formatter().format_ticks(ticks)
        width = np.array([_WIDTH * size * len(text) for text in texts])
        need = (width[1:] + width[:-1]) / 2 + 0.5 * size
    else:
        need = np.full(len(ticks) - 1, _HEIGHT * size)
    return bool(np.all(np.abs(np.diff(at)) >= need))
