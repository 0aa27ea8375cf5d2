"""Associations: intervals of the strongest pairs, and the posterior of one pair."""

# Bokeh's and pandas' own annotations are narrower than the values they accept.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

from collections.abc import Sequence

import numpy as np
from bokeh.model import Model
from bokeh.models import ColumnDataSource, FixedTicker, Range1d, Span

from ggmflow.explorer.changes import Changes
from ggmflow.explorer.geometry import histogram_bins, shorten
from ggmflow.explorer.panels.style import FONT, INK, make_figure, sign_colours
from ggmflow.views.pairs import Density, View


class Forest:
    """Associations of some pairs with their intervals, one below the other."""

    rows = 10

    def __init__(self):
        self.source = ColumnDataSource()
        self.figure = plot = make_figure(
            x_range=Range1d(-1, 1), y_range=Range1d(-self.rows + 0.3, 0.7), height=212, name="intervals"
        )
        plot.yaxis.visible = False
        plot.grid.visible = False
        # Always the same ticker with other ticks: for a new one Bokeh would search all models of the page.
        self.ticker = plot.xaxis.ticker = FixedTicker(ticks=[0], minor_ticks=[])
        plot.add_layout(Span(location=0, dimension="height", line_color=INK, line_width=1))
        plot.segment("lower", "y", "upper", "y", source=self.source, line_color="colour", line_width=3, line_alpha=0.55)
        plot.scatter("association", "y", source=self.source, size=8, color="colour")
        options = {"text_font": {"value": FONT}, "text_font_size": "11.5px", "text_baseline": "middle"}
        plot.text("left", "y", text="label", source=self.source, text_align="left", text_color=INK, **options)

    @property
    def models(self) -> list[Model]:
        """The models whose properties `update` sets."""
        return [self.source, self.figure.x_range, self.ticker]

    def update(self, changes: Changes, view: View, shown: Sequence[int]) -> None:
        """Draw the first ten of these rows of the table of pairs."""
        part = view.pairs.iloc[list(shown)[: self.rows]]
        low, high = min(float(part["lower"].min()), -0.02), max(float(part["upper"].max()), 0.02)
        margin = 0.04 * (high - low)
        left = low - margin - 1.05 * (high - low)  # names take the left half
        changes.set(self.figure.x_range, start=left, end=high + margin)
        changes.set(self.ticker, ticks=sorted({-_tick(-low), 0.0, _tick(high)}))
        pairs = zip(part["row"], part["column"], strict=True)
        data = {
            "y": -np.arange(len(part)),
            "label": [f"{shorten(a, 16)} – {shorten(b, 16)}" for a, b in pairs],
            "left": np.full(len(part), left),
            "colour": sign_colours(part["association"].to_numpy()),
            **{label: part[label].to_numpy() for label in ("association", "lower", "upper")},
        }
        changes.set(self.source, data=data)


def _tick(limit: float) -> float:
    """The largest round number up to `limit`; 0 if none fits."""
    return max((t for t in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 2.0, 5.0) if t <= limit), default=0.0)


class PairPosterior:
    """Histogram of the association of one pair, with its mean and interval."""

    def __init__(self):
        self.bars, self.interval = ColumnDataSource(), ColumnDataSource()
        self.figure = plot = make_figure(
            x_range=Range1d(-1, 1), y_range=Range1d(0, 1), x_axis_label="association", height=150, name="posterior"
        )
        plot.yaxis.visible = False
        plot.ygrid.visible = False
        box = {"left": "left", "right": "right", "bottom": 0, "top": "top"}
        plot.quad(**box, source=self.bars, fill_color="colour", line_color="#ffffff", fill_alpha=0.75)
        plot.add_layout(Span(location=0, dimension="height", line_color=INK, line_width=1))
        plot.segment("lower", "y", "upper", "y", source=self.interval, line_color=INK, line_width=3)
        plot.scatter("mean", "y", source=self.interval, size=9, color=INK)

    @property
    def models(self) -> list[Model]:
        """The models whose properties `update` sets."""
        return [self.bars, self.interval, self.figure.x_range, self.figure.y_range]

    def update(self, changes: Changes, density: Density | None) -> None:
        """Draw the posterior of one pair, or nothing."""
        if density is None:
            changes.set(self.bars, data={label: [] for label in ("left", "right", "top", "colour")})
            changes.set(self.interval, data={label: [] for label in ("lower", "upper", "mean", "y")})
            return
        bins = histogram_bins(density)
        top, _ = np.histogram(density.values, bins, weights=density.weights)
        width = float(bins[1] - bins[0])
        middle = (bins[1:] + bins[:-1]) / 2
        height = float(top.max())
        interval = {"lower": [density.lower], "upper": [density.upper], "mean": [density.mean], "y": [-0.08 * height]}
        changes.set(self.bars, data={"left": bins[:-1], "right": bins[1:], "top": top, "colour": sign_colours(middle)})
        changes.set(self.interval, data=interval)
        changes.set(self.figure.x_range, start=float(bins[0] - width), end=float(bins[-1] + width))
        changes.set(self.figure.y_range, start=-0.18 * height, end=1.08 * height)
