"""Tick labels that do not overlap: ticks are chosen when a figure is drawn.

Before that the size of the axes is unknown, because a layout engine shrinks them for titles, legends and labels.
"""

# The annotations of matplotlib are narrower than the types that it accepts.
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false, reportAttributeAccessIssue=false

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, Locator, LogLocator, MaxNLocator

_WIDTH, _HEIGHT = 0.64, 1.2  # of a character and of a line, in units of the font size


class Spaced(MaxNLocator):
    """Round numbers; fewer of them if their labels would overlap."""

    def __init__(self):
        super().__init__(nbins="auto", steps=[1, 2, 2.5, 5, 10])

    def __call__(self) -> Any:
        """Return the ticks, in units of the data."""
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
    """Two to seven round numbers on a logarithmic axis, as many as fit."""

    def __call__(self) -> Any:
        """Return the ticks, in units of the data."""
        axis: Any = self.axis
        return self.tick_values(*axis.get_view_interval())

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Return ticks between two values."""
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
    """Write names at 0, 1, 2, …; only every k-th name if not all of them fit, or if there are hundreds.

    Parameters
    ----------
    axis
        Horizontal or vertical axis.
    names
        Names, which are written without typesetting.
    most
        Largest number of names.
    size
        Font size in points.
    vertical
        Whether names are rotated by 90 degrees.
    """
    axis.set_major_locator(_Names(len(names), most))
    axis.set_major_formatter(
        FuncFormatter(lambda x, position: str(names[round(x)]) if 0 <= round(x) < len(names) else "")
    )
    axis.set_tick_params(labelsize=size, labelrotation=90 if vertical else 0)
    for tick in axis.get_major_ticks(min(most, len(names))):  # else "$x$" would be typeset
        tick.label1.set_parse_math(False)


class _Names(Locator):
    """0, 1, 2, … below a count, or every k-th of them."""

    def __init__(self, count: int, most: int):
        self.count, self.least = count, max(1, -(-count // max(1, most)))

    def __call__(self) -> Any:
        every = (np.arange(0, self.count, step) for step in range(self.least, self.count))
        return next((ticks for ticks in every if _fits(self.axis, ticks)), np.arange(min(1, self.count)))

    def tick_values(self, vmin: float, vmax: float) -> Any:
        return self()


def _every(ticks: np.ndarray, step: int) -> np.ndarray:
    """Every `step`-th tick, including zero if it is one of the ticks."""
    zero = np.flatnonzero(np.abs(ticks) < 1e-12 * max(1e-300, float(np.abs(ticks).max())))
    return ticks[int(zero[0]) % step if zero.size else 0 :: step]


def _fits(axis: Any, ticks: np.ndarray) -> bool:
    """Whether the labels of these ticks fit side by side with a gap."""
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
