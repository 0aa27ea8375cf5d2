"""Colours, font and axes that the panels share."""

# Bokeh's own annotations are narrower than the values it accepts.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.models import CustomJSTickFormatter, FixedTicker
from bokeh.plotting import figure

from ggmflow.explorer.geometry import lam_ticks

POSITIVE, NEGATIVE, ACCENT = "#2166ac", "#d95f02", "#b5179e"
INK, FAINT, QUERY = "#22303c", "#8a97a3", "#fff3c4"  # as in page.css, like the font
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


def sign_colours(association: Sequence[float] | np.ndarray) -> list[str]:
    """Blue for positive values, orange for the others."""
    return [POSITIVE if value > 0 else NEGATIVE for value in association]


def make_figure(**options: Any) -> figure:
    """A figure without tools and with unobtrusive axes in the page's font.

    Parameters
    ----------
    **options
        As in `bokeh.plotting.figure`.
    """
    plot = figure(**({"tools": "", "toolbar_location": None, "sizing_mode": "stretch_width"} | options))
    plot.outline_line_color = None
    plot.min_border = 6
    plot.background_fill_alpha = plot.border_fill_alpha = 0
    plot.grid.grid_line_color = "#eceff2"
    for axis in plot.axis:
        axis.update(
            axis_label_text_font=FONT,
            axis_label_text_font_size="12px",
            axis_label_text_font_style="normal",
            axis_label_text_color=INK,
            axis_label_standoff=4,
            major_label_text_font=FONT,
            major_label_text_font_size="11px",
            major_label_text_color=INK,
            axis_line_color=FAINT,
            major_tick_line_color=FAINT,
            major_tick_in=0,
            major_tick_out=4,
            minor_tick_line_color=None,
        )
    return plot


def set_lam_ticks(plot: figure, low: float, high: float) -> None:
    """Put ticks at round values of λ, labelled as plain numbers."""
    plot.xaxis.ticker = FixedTicker(ticks=lam_ticks(low, high), minor_ticks=[])
    plot.xaxis.formatter = CustomJSTickFormatter(code="return String(Number(tick.toPrecision(3)))")
