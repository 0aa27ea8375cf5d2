"""An interactive page: λ, q and temperature on sliders, with network, intervals and evidence redrawn at every move.

`ggmflow` imports this package at first use, because loading Bokeh takes about a second.
"""

from ggmflow.explorer.prepared import Prepared, prepare
from ggmflow.explorer.server import application, serve, show_inline
from ggmflow.explorer.session import make_document

__all__ = ["serve", "application", "show_inline", "prepare", "Prepared", "make_document"]
