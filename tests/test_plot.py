"""Plots draw what they are given, on the axes they are given."""

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from ggmflow import plot
from ggmflow.precision import partial_correlation

matplotlib.use("Agg")
OMEGA = np.array([[2.0, -0.5, 0.0], [-0.5, 1.0, 0.3], [0.0, 0.3, 1.5]])


@pytest.fixture
def ax():
    return Figure().subplots()


def test_intervals_show_medians_bands_and_path(ax):
    lam = np.array([0.5, 1.0, 5.0])
    quantiles = np.stack([np.full((3, 2), value) for value in (-1.0, 0.25, 2.0)])
    path = np.array([[0.1, 0.2]] * 3)
    assert plot.intervals_along_lam(lam, quantiles, ["a – b", "c – d"], path=path, title="t", ax=ax) is ax
    heights = [line.get_ydata()[0] for line in ax.lines if len(line.get_ydata()) == 3]
    assert heights == [0.25, 0.1, 0.25, 0.2]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a – b", "c – d", "graphical lasso"]
    assert ax.get_xscale() == "log"
    assert len(ax.collections) == 2


def test_solution_path_draws_every_entry_and_names_some(ax):
    lam = np.array([0.5, 1.0, 5.0])
    path, reference = np.arange(9.0).reshape(3, 3), np.arange(9.0).reshape(3, 3) + 0.5
    labels = {2: "a – b", 0: "c – d"}
    assert plot.solution_path(lam, path, labels, reference=reference, title="t", ax=ax) is ax
    drawn = [line for line in ax.lines if len(line.get_ydata()) == 3]
    # The unnamed entry first, below the others; each with its dashed reference.
    np.testing.assert_array_equal(
        [line.get_ydata() for line in drawn],
        [path[:, 1], reference[:, 1], path[:, 2], reference[:, 2], path[:, 0], reference[:, 0]],
    )
    assert [line.is_dashed() for line in drawn] == [False, True] * 3
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["a – b", "c – d", "other pairs", "graphical lasso"]
    assert ax.get_xscale() == "log"


def test_network_draws_each_edge_once_with_its_sign(ax):
    edges = OMEGA != 0
    highlight = np.zeros((3, 3), bool)
    highlight[0, 1] = True
    assert plot.network(OMEGA, edges, ["a", "$b$", "<c>"], highlight=highlight, ax=ax) is ax
    assert [line.get_color() for line in ax.lines] == [plot.POSITIVE, plot.NEGATIVE]
    assert [line.get_linestyle() for line in ax.lines] == ["-", ":"]
    widths = [line.get_linewidth() for line in ax.lines]
    partial = np.abs(partial_correlation(OMEGA))
    np.testing.assert_allclose(widths, 0.8 + 6 * partial[[0, 1], [1, 2]])
    assert [text.get_text() for text in ax.texts] == ["a", "$b$", "<c>"]
    ax.figure.canvas.draw()  # a name with a dollar sign is a name, not maths


def test_layout_is_a_stable_circle():
    edges = np.eye(12, k=5) + np.eye(12, k=-5) > 0
    positions = plot.layout(edges)
    np.testing.assert_allclose(np.linalg.norm(positions, axis=1), 1)
    np.testing.assert_array_equal(positions, plot.layout(edges))
    assert len(np.unique(positions.round(6), axis=0)) == 12


@pytest.mark.parametrize("d", [3, 300])
def test_heat_map_labels_thin_out(d, ax):
    names = [f"gene_{k}" for k in range(d)]
    matrix = np.linspace(-0.5, 0.5, 2 * d).reshape(2, d)
    assert plot.heat_map(matrix, names, title="t", ax=ax) is ax
    assert 3 <= len(ax.get_xticks()) <= 26
    assert [text.get_text() for text in ax.get_yticklabels()] == ["gene_0", "gene_1"]
    assert ax.get_aspect() == "auto"
    assert ax.images[0].get_clim() == (-0.5, 0.5)


def test_new_axes_when_none_are_given():
    import matplotlib.pyplot as plt

    for made in (
        plot.heat_map(partial_correlation(OMEGA), ["a", "b", "c"]),
        plot.network(OMEGA, OMEGA != 0, ["a", "b", "c"]),
        plot.intervals_along_lam(np.array([1.0, 2.0]), np.zeros((3, 2, 1)), ["a"]),
        plot.solution_path(np.array([1.0, 2.0]), np.zeros((2, 1)), {0: "a"}),
    ):
        plt.close(made.figure)
