"""A posterior to be moved by hand: λ, q and temperature on sliders, network, intervals and evidence redrawn at once.

Import it when it is wanted: Bokeh takes its time.
"""

from ggmflow.explorer.server import application, serve, show_inline
from ggmflow.explorer.session import Prepared, make_document, prepare

__all__ = ["serve", "application", "show_inline", "prepare", "Prepared", "make_document"]
