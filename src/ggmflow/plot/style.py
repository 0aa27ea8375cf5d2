"""Shared style of all plots: colours, names without typesetting, axes of λ.

Colours are those of Okabe and Ito, which colour-blind readers can distinguish. Colour is never the only difference:
negative associations are dashed, lines have markers, and points that were not chosen are hollow.
"""

import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.ticker import AutoLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from ggmflow.plot.ticks import LamLocator, Spaced

POSITIVE, NEGATIVE, NEUTRAL = "#0072b2", "#d55e00", "#4d4d4d"
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = "os^Dv<P"
FAINT, DASHED = "#bdbdbd", (0, (4, 2))
DOUBT = LinearSegmentedColormap.from_list("doubt", ["#ffffff", "#636363"])
SIGNED = LinearSegmentedColormap.from_list("signed", [NEGATIVE, "#ffffff", POSITIVE])
SMALL = 8  # points: size of the smallest text


def new_axes(ax: Axes | None, width: float = 5.0, height: float = 3.6) -> Axes:
    """Return the given axes, or new ones in a figure of the given size in inches."""
    return ax if ax is not None else plt.subplots(figsize=(width, height), layout="constrained")[1]


def short(name: str, most: int = 20) -> str:
    """Return a name, or its beginning and end if it is long, which distinguish names of one family."""
    return name if len(name) <= most else f"{name[: most - 8]}…{name[-7:]}"


def room_for(names: Sequence[str]) -> float:
    """Return the width in inches of the longest name."""
    return 0.061 * max(map(len, names), default=0)


def set_title(ax: Axes, title: str | None) -> None:
    """Set a title that is at most as wide as the axes; dollar signs are not typeset as maths."""
    if title:
        lines = [textwrap.fill(line, _characters(ax, 9), break_on_hyphens=False) for line in title.splitlines()]
        ax.set_title("\n".join(lines), fontsize=9, parse_math=False)


def _characters(ax: Axes, size: float) -> int:
    """Number of characters of a font size in points that fit the width of the axes."""
    return max(24, int(0.85 * 72 * inches(ax)[0] / (0.55 * size)))  # layout engines shrink axes later


def inches(ax: Axes) -> tuple[float, float]:
    """Return width and height of axes."""
    box, dpi = ax.get_window_extent(), ax.figure.dpi
    return box.width / dpi, box.height / dpi


def overlaps(box: Float[np.ndarray, " 4"], others: Float[np.ndarray, "m 4"]) -> bool:
    """Return whether a box (left, bottom, right, top) overlaps any other box."""
    return bool(np.any(np.all(box[:2] < others[:, 2:], axis=1) & np.all(others[:, :2] < box[2:], axis=1)))


def legend(ax: Axes, handles: Sequence[Artist], **options: Any) -> Legend | None:
    """Draw a legend with unchanged labels; matplotlib itself would hide `_x` and typeset `$x$`."""
    if not handles:
        return None
    made = ax.legend(handles, [str(k) for k in range(len(handles))], **{"frameon": False, "fontsize": SMALL} | options)
    for text, handle in zip(made.get_texts(), handles, strict=True):
        text.set_text(str(handle.get_label()))
        text.set_parse_math(False)
    return made


def legend_below(ax: Axes, handles: Sequence[Artist], label: bool = True, **options: Any) -> Legend | None:
    """Draw a legend below the axes and their label, in as many columns as fit."""
    column = 32 + 0.56 * SMALL * max((len(str(each.get_label())) for each in handles), default=0)
    columns = max(1, min(len(handles), int(0.95 * 72 * inches(ax)[0] / column)))
    # In inches, which stay the same when a layout engine shrinks the axes: ticks and label need half an inch.
    down = ScaledTranslation(0, -0.45 if label else 0.0, ax.figure.dpi_scale_trans)
    place = {
        "loc": "upper center",
        "bbox_to_anchor": (0.5, 0.0),
        "bbox_transform": ax.transAxes + down,
        "ncols": columns,
        "columnspacing": 1.2,
    }
    return legend(ax, handles, **place | options)


def dashed_handle(label: str) -> Line2D:
    """Return the legend handle of a reference."""
    return Line2D([], [], color=NEUTRAL, lw=1.2, ls=DASHED, label=label)


def lam_axis(ax: Axes, lam: Float[np.ndarray, " k"]) -> None:
    """Make the horizontal axis one of λ: logarithmic, with plain numbers."""
    ax.set_xscale("log")
    ax.set_xlabel("shrinkage λ")
    if lam[0] < lam[-1]:
        ax.set_xlim(lam[0], lam[-1])
    ax.xaxis.set_major_locator(LamLocator())
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_locator(NullLocator())


def open_frame(ax: Axes) -> None:
    """Remove the upper and right lines, and keep the numbers along both axes from overlapping."""
    ax.spines[["top", "right"]].set_visible(False)
    for axis in (ax.xaxis, ax.yaxis):
        if isinstance(axis.get_major_locator(), AutoLocator):
            axis.set_major_locator(Spaced())
