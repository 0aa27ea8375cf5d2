"""Tick labels do not overlap, for any number of names and any size of the axes."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import ggmflow as gf
from ggmflow import plot
from ggmflow.plot.style import lam_axis
from ggmflow.plot.ticks import Spaced, set_names
from tests.plot.conftest import texts, wishart_posterior
from tests.support.models import TABLE
from tests.support.ticks import overlapping, visible_labels

RANGES = {"narrow": (1.0, 3.0), "narrower": (1.0, 1.1), "usual": (0.5, 8.0), "wide": (0.01, 1000.0)}
OF_POSTERIOR = {
    "heat_map": plot.heat_map,
    "edge_intervals": lambda post, ax: plot.edge_intervals(post, count=40, ax=ax),
    "edge_ranking": lambda post, ax: plot.edge_ranking(post, count=40, ax=ax),
    "against_graphical_lasso": plot.against_graphical_lasso,
    "differences": lambda post, ax: plot.differences(gf.compare(post, post), count=40, ax=ax),
}


def evidence_table(low, high):
    grid = [(lam, q) for lam in np.geomspace(low, high, 9) for q in (0.25, 0.3, 0.35, 1.0)]
    lam, q = np.transpose(grid)
    value = -1000 - np.log(lam / low) ** 2 - q**2
    return pd.DataFrame({"lam": lam, "q": q, "log_evidence": value, "se": 0.1, "method": "bridge"})


ALONG_LAM = {
    "evidence_curve": lambda low, high, ax: plot.evidence_curve(evidence_table(low, high), ax=ax),
    "evidence_surface": lambda low, high, ax: plot.evidence_surface(evidence_table(low, high), ax=ax),
    "intervals_along_lam": lambda low, high, ax: plot.intervals_along_lam(
        np.geomspace(low, high, 5), np.linspace(-0.3, 0.4, 3)[:, None, None] * np.ones((1, 5, 1)), ["pair"], ax=ax
    ),
}


@pytest.fixture(scope="module")
def posteriors():
    """Posteriors of 5, 30 and 60 variables, whose names have 20 characters."""
    made = {}

    def make(d):
        if d not in made:
            made[d] = wishart_posterior([f"measurement {k:02d} level"[:20] for k in range(d)], num_draws=100, n=4 * d)
        return made[d]

    return make


def drawn(draw, small):
    """Axes of a figure of default size, or one of three panels side by side."""
    if not small:
        return draw(None)
    figure = plt.figure(figsize=(9, 3), layout="constrained")
    return draw(figure.subplots(1, 3)[0])


def check(ax):
    try:
        assert overlapping(ax.figure) == []
        return [text for text, _ in visible_labels(ax.xaxis)], [text for text, _ in visible_labels(ax.yaxis)]
    finally:
        plt.close(ax.figure)


def test_labels_that_overlap_are_found():
    """Otherwise the tests below could not fail."""
    ax = Figure(figsize=(2, 2)).subplots()
    ax.set_xticks(np.linspace(0, 1, 9), ["a long name"] * 9)
    assert len(overlapping(ax.figure)) >= 8
    ax.set_xticks([0, 1], ["a", "b"])
    assert overlapping(ax.figure) == []


@pytest.mark.slow
@pytest.mark.parametrize("small", [False, True], ids=["own figure", "panel"])
@pytest.mark.parametrize("d", [5, 30, 60])
@pytest.mark.parametrize("name", OF_POSTERIOR)
def test_plots_of_a_posterior(posteriors, name, d, small):
    post = posteriors(d)
    across, down = check(drawn(lambda ax: OF_POSTERIOR[name](post, ax=ax), small))
    assert across and down
    if name in ("edge_intervals", "edge_ranking", "differences") and not small:
        assert len(down) == min(40, d * (d - 1) // 2)  # in a figure of its own every pair has its name


@pytest.mark.parametrize("small", [False, True], ids=["own figure", "panel"])
@pytest.mark.parametrize("ends", RANGES.values(), ids=RANGES)
@pytest.mark.parametrize("name", ALONG_LAM)
def test_plots_along_lam(name, ends, small):
    across, down = check(drawn(lambda ax: ALONG_LAM[name](*ends, ax), small))
    assert len(across) >= 2 and len(down) >= 2  # one tick would not show the scale


@pytest.mark.slow
@pytest.mark.parametrize("small", [False, True], ids=["own figure", "panel"])
@pytest.mark.parametrize("ends", [RANGES["narrow"], RANGES["wide"]], ids=["narrow", "wide"])
def test_quality_of_a_model(untrained, ends, small):
    """Values of λ are names of columns; numbers are omitted in cells that are too small for them."""
    model = gf.GraphicalFlow(lam=ends, temperature=1.0, random_state=0, progress=False).fit(TABLE)
    lam, q = np.geomspace(*ends, 12), np.linspace(*model.q_range_, 5)
    ax = drawn(lambda ax: plot.fit_quality(model, lam, q, num_draws=50, ax=ax), small)
    assert bool(ax.texts) != small
    across, down = check(ax)
    assert len(across) >= 2 and len(down) >= 2 and not [text for text in across if "e" in text]


def test_training_curve_has_no_offset():
    steps = np.arange(25, 1001, 25)
    table = pd.DataFrame({"step": steps, "elbo": -1000.0 - 1 / steps, "ess": 0.5, "skipped": 0})
    ax = drawn(lambda ax: plot.training_curve(table, ax=ax), True)
    assert check(ax)[1] and not ax.yaxis.get_offset_text().get_text()


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (RANGES["narrow"], ["1", "1.5", "2", "2.5", "3"]),
        (RANGES["usual"], ["0.5", "1", "2", "5"]),
        (RANGES["wide"], ["0.01", "0.1", "1", "10", "100", "1000"]),
    ],
)
def test_ticks_of_lam_are_round_numbers(ends, expected):
    ax = Figure(figsize=(5, 3)).subplots()
    lam_axis(ax, np.array(ends))
    ax.figure.draw_without_rendering()
    assert [text for text, _ in visible_labels(ax.xaxis)] == expected


def test_more_names_appear_in_larger_figures():
    """Ticks are chosen when a figure is drawn: the same axes in figures of two sizes."""
    ax = Figure(figsize=(3, 1)).subplots()
    names = [f"${k}$ _name" for k in range(30)]
    set_names(ax.yaxis, names)
    ax.set_ylim(-0.5, 29.5)
    few = check(ax)[1]
    ax.figure.set_size_inches(3, 6)
    many = check(ax)[1]
    assert 2 <= len(few) < len(many) <= 25 and set(few) | set(many) <= set(names)
    assert not any(label.get_parse_math() for label in ax.get_yticklabels())


def test_zero_is_kept_when_ticks_are_thinned():
    ax = Figure(figsize=(1.2, 2)).subplots()
    ax.set_xlim(-0.35, 0.36)
    ax.xaxis.set_major_locator(Spaced())
    across, _ = check(ax)
    assert any(float(text.replace("\u2212", "-")) == 0 for text in across), across


def test_names_of_points_stay_within_the_axes(posteriors):
    """Long names beside points must not make the axes narrower."""
    for d in (5, 60):
        ax = plot.against_graphical_lasso(posteriors(d))
        ax.figure.draw_without_rendering()
        frame = ax.get_window_extent()
        assert frame.width > 0.6 * ax.figure.bbox.width
        assert ax.texts
        for text in ax.texts:
            box = text.get_window_extent()
            assert box.x0 > frame.x0 - 5 and box.x1 < frame.x1 + 5, texts(ax.texts)
        plt.close(ax.figure)
