"""Every plot makes new axes if none are given, changes no global style, and has no text below 8 points."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

import ggmflow as gf
from ggmflow import plot

TABLE = pd.DataFrame(
    {"lam": [1.0, 2.0] * 2, "q": [0.5, 0.5, 1.0, 1.0], "log_evidence": [1.0, 2, 3, 1], "se": 0.1, "method": "bridge"}
)
OF_POSTERIOR = {
    "network": plot.network,
    "heat_map": plot.heat_map,
    "edge_intervals": plot.edge_intervals,
    "edge_ranking": plot.edge_ranking,
    "against_graphical_lasso": plot.against_graphical_lasso,
    "differences": lambda post: plot.differences(gf.compare(post, post)),
    "evidence_curve": lambda post: plot.evidence_curve(TABLE),
    "evidence_surface": lambda post: plot.evidence_surface(TABLE),
    "solution_path": lambda post: plot.solution_path(np.array([1.0, 2.0]), np.zeros((2, 1)), {0: "_a"}),
    "intervals_along_lam": lambda post: plot.intervals_along_lam(np.array([1.0, 2.0]), np.zeros((3, 2, 1)), ["$a"]),
}
OF_MODEL = {
    "entries_along_lam": lambda model: plot.entries_along_lam(model, lam=[1.0, 2.0]),
    "entry_across_q": lambda model: plot.entry_across_q(model, (0, 1), 2.0, q=[0.5, 1.0]),
    "mode_path": lambda model: plot.mode_path(model, model.path(lam=[1.0, 2.0])),
    "training_curve": plot.training_curve,
    "fit_quality": lambda model: plot.fit_quality(model, 2.0, 1.0),
    "weight_tail": lambda model: plot.weight_tail(model.posterior(2.0, 1.0)),
}


def check(draw, what):
    before, figures = dict(matplotlib.rcParams), plt.get_fignums()
    ax = draw(what)
    try:
        assert dict(matplotlib.rcParams) == before
        assert len(plt.get_fignums()) == len(figures) + 1
        ax.figure.canvas.draw()
        texts = [text for text in ax.figure.findobj(Text) if text.get_text() and text.get_visible()]
        assert min(text.get_fontsize() for text in texts) >= 8
    finally:
        plt.close(ax.figure)


@pytest.mark.parametrize("draw", OF_POSTERIOR.values(), ids=OF_POSTERIOR)
def test_plots_of_a_posterior(draw, post):
    check(draw, post)


@pytest.mark.parametrize("draw", OF_MODEL.values(), ids=OF_MODEL)
def test_plots_of_a_model(draw, fitted):
    check(draw, fitted)


def test_every_plot_is_checked_here():
    drawing = {name for name in plot.__all__ if name.islower()} - {"layout", "network_layout"}
    assert drawing == {*OF_POSTERIOR, *OF_MODEL}
