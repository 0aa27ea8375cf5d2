"""The plane of (λ, q) with the evidence, and the number of edges along λ."""

# Bokeh's own annotations are narrower than the values it accepts.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import numpy as np
from bokeh.model import Model
from bokeh.models import BasicTickFormatter, ColumnDataSource, Range1d, Span
from bokeh.plotting import figure
from scipy.interpolate import pchip_interpolate

from ggmflow.explorer.changes import Changes
from ggmflow.explorer.panels.style import ACCENT, INK, POSITIVE, make_figure, set_lam_ticks
from ggmflow.views.surface import Surface

_DROPS = [0, 0.5, 1, 2, 5, 10, 20, 50, 100, 1e6]  # contours: log evidence below its maximum
_BLUES = ["#08306b", "#08519c", "#2171b5", "#4292c6", "#6baed6", "#9ecae1", "#c6dbef", "#deebf7", "#f7fbff"]


class Plane:
    """Contours of the evidence over (λ, q), and a ring at the present condition, which can be dragged.

    Parameters
    ----------
    lam, q
        Fitted ranges.
    surface
        The evidence, if it is known.
    """

    def __init__(self, lam: tuple[float, float], q: tuple[float, float], surface: Surface | None):
        self.cursor = ColumnDataSource({"lam": [lam[0]], "q": [q[0]]})
        lam_low, lam_high = _widened(lam)
        q_low, q_high = q if q[0] < q[1] else (q[0] - 0.3, q[0] + 0.3)
        self.figure = plot = make_figure(
            x_axis_type="log",
            # A little more than the ranges, so that the whole ring is visible at their ends.
            x_range=Range1d(lam_low * (lam_low / lam_high) ** 0.05, lam_high * (lam_high / lam_low) ** 0.05),
            y_range=Range1d(q_low - 0.07 * (q_high - q_low), q_high + 0.07 * (q_high - q_low)),
            x_axis_label="shrinkage λ",
            y_axis_label="exponent q",
            height=230,
            name="plane",
        )
        set_lam_ticks(plot, lam_low, lam_high)
        plot.grid.visible = False
        self._box = np.log([lam_low, lam_high]), (q_low, q_high)
        plot.scatter("lam", "q", source=self.cursor, size=17, fill_alpha=0, line_color="#ffffff", line_width=5)
        plot.scatter("lam", "q", source=self.cursor, size=17, fill_alpha=0, line_color=ACCENT, line_width=3)
        if surface is not None:
            self.show(surface)

    def show(self, surface: Surface) -> None:
        """Draw the evidence below the ring."""
        plot, ring = self.figure, list(self.figure.renderers)
        if min(surface.log_evidence.shape) > 3:
            _add_contours(plot, surface, *self._box)
        best = surface.best
        plot.scatter([best.lam], [best.q], marker="star", size=15, color="#ffd166", line_color=INK)
        plot.renderers = [*(each for each in plot.renderers if each not in ring), *ring]

    @property
    def models(self) -> list[Model]:
        """The models whose properties `update` sets."""
        return [self.cursor]

    def update(self, changes: Changes, lam: float, q: float) -> None:
        """Move the ring."""
        changes.set(self.cursor, data={"lam": [lam], "q": [q]})


def _add_contours(plot: figure, surface: Surface, log_lam: np.ndarray, q: tuple[float, float]) -> None:
    x, y = np.linspace(*log_lam, 61), np.linspace(*q, 41)
    # This interpolation does not move maxima, so the star is at the top of the contours.
    values = pchip_interpolate(np.log(surface.lam), surface.log_evidence, x, axis=0)
    values = pchip_interpolate(surface.q, values, y, axis=1)
    below = (values - values.max()).T
    levels = [-drop for drop in reversed(_DROPS)]
    plot.contour(np.exp(x), y, below, levels=levels, fill_color=_BLUES[::-1], line_color="#ffffff", line_width=0.6)


class EdgeCounts:
    """Number of edges along λ, at the present q and temperature.

    Parameters
    ----------
    lam
        Fitted range.
    """

    def __init__(self, lam: tuple[float, float]):
        self.line = ColumnDataSource({"lam": [], "edges": []})
        low, high = _widened(lam)
        self.figure = plot = make_figure(
            x_axis_type="log",
            x_range=Range1d(low, high),
            y_range=Range1d(0, 1),
            x_axis_label="shrinkage λ",
            y_axis_label="edges",
            height=165,
            name="sparsity",
        )
        plot.min_border_right = 20  # half of the label at the end of the axis
        set_lam_ticks(plot, low, high)
        plot.yaxis.ticker.desired_num_ticks = 4
        plot.yaxis.formatter = BasicTickFormatter(use_scientific=False)
        plot.varea("lam", y1="edges", y2=0, source=self.line, fill_color=POSITIVE, fill_alpha=0.12)
        plot.line("lam", "edges", source=self.line, line_color=POSITIVE, line_width=2)
        plot.scatter("lam", "edges", source=self.line, size=5, color=POSITIVE)
        self.cursor = Span(location=low, dimension="height", line_color=ACCENT, line_width=2)
        plot.add_layout(self.cursor)

    @property
    def models(self) -> list[Model]:
        """The models whose properties `update` and `move_to` set."""
        return [self.line, self.figure.y_range, self.cursor]

    def update(self, changes: Changes, counts: dict[float, int]) -> None:
        """Draw the numbers of edges that are known so far, by λ."""
        lams = sorted(counts)
        changes.set(self.line, data={"lam": lams, "edges": [counts[lam] for lam in lams]})
        changes.set(self.figure.y_range, end=1.15 * max(4, *counts.values(), 0))

    def move_to(self, changes: Changes, lam: float) -> None:
        """Mark this λ."""
        changes.set(self.cursor, location=lam)


def _widened(lam: tuple[float, float]) -> tuple[float, float]:
    """The range of an axis of λ: a single value gets half and double of it."""
    return lam if lam[0] < lam[1] else (lam[0] / 2, lam[0] * 2)
