"""Plots with matplotlib: every function draws on the given axes, or on new ones, and returns them.

Positive associations are blue and solid, negative ones orange and dashed. No global style is changed.
"""

from ggmflow.plot.comparison import against_graphical_lasso, differences, edge_intervals, edge_ranking
from ggmflow.plot.evidence import evidence_curve, evidence_surface
from ggmflow.plot.heat_maps import heat_map
from ggmflow.plot.lines import entries_along_lam, entry_across_q, intervals_along_lam, mode_path, solution_path
from ggmflow.plot.networks import network
from ggmflow.plot.quality import fit_quality, training_curve, weight_tail
from ggmflow.plot.style import NEGATIVE, NEUTRAL, POSITIVE
from ggmflow.views.layout import circle_layout as layout
from ggmflow.views.layout import network_layout

__all__ = [
    # along λ and q
    "entries_along_lam",
    "entry_across_q",
    "mode_path",
    "intervals_along_lam",
    "solution_path",
    # graph and matrix
    "network",
    "network_layout",
    "layout",
    "heat_map",
    # pair by pair
    "edge_intervals",
    "edge_ranking",
    "against_graphical_lasso",
    "differences",
    # choice of λ and q
    "evidence_curve",
    "evidence_surface",
    # quality of the fit
    "training_curve",
    "fit_quality",
    "weight_tail",
    # colours
    "POSITIVE",
    "NEGATIVE",
    "NEUTRAL",
]
