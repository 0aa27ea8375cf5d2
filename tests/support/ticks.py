"""Tick labels of a drawn figure that run into each other."""

from itertools import combinations

from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox


def visible_labels(axis: Axis) -> list[tuple[str, Bbox]]:
    """Text and box in pixels of every tick label that is shown, major and minor."""
    low, high = sorted(axis.get_view_interval())
    slack = 1e-9 * max(abs(low), abs(high))
    out = []
    for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
        if tick.get_visible() and low - slack <= tick.get_loc() <= high + slack:
            labels = [label for label in (tick.label1, tick.label2) if label.get_visible() and label.get_text()]
            out += [(label.get_text(), label.get_window_extent()) for label in labels]
    return out


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of tick labels of one axis, of any axes of the figure, whose boxes overlap.

    A figure without any tick label gives an empty list: ask `visible_labels` whether there are some.
    """
    figure.draw_without_rendering()  # layout engines and tickers decide only then
    out = []
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            if not (axis.get_visible() and ax.axison):
                continue
            for (a, first), (b, second) in combinations(visible_labels(axis), 2):
                if first.x0 < second.x1 and second.x0 < first.x1 and first.y0 < second.y1 and second.y0 < first.y1:
                    out.append((a, b))
    return out
