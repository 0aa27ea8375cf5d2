"""Networks: widths are associations, positions are fixed, names are not typeset."""

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from ggmflow import plot
from ggmflow.model.precision import partial_correlation
from tests.plot.conftest import NAMES, legend_texts, texts

OMEGA = np.array([[2.0, -0.5, 0.0], [-0.5, 1.0, 0.3], [0.0, 0.3, 1.5]])


def edge_lines(ax):
    return [line for line in ax.lines if len(line.get_xdata()) == 2]


def test_a_matrix_has_each_edge_once_with_its_sign(ax):
    highlight = np.zeros((3, 3), bool)
    highlight[0, 1] = True
    assert plot.network(OMEGA, OMEGA != 0, ["a", "$b$", "<c>"], highlight=highlight, ax=ax) is ax
    lines = edge_lines(ax)
    assert [line.get_color() for line in lines] == [plot.POSITIVE, plot.NEGATIVE]
    assert [line.get_linestyle() for line in lines] == ["-", ":"]
    partial = np.abs(partial_correlation(OMEGA))
    np.testing.assert_allclose([line.get_linewidth() for line in lines], 10 * partial[[0, 1], [1, 2]])
    assert sorted(texts(ax.texts)) == ["$b$", "<c>", "a"]
    ax.figure.canvas.draw()  # a name with dollar signs is not typeset as maths


def test_widths_of_a_posterior_are_in_proportion_to_associations(post, ax):
    assert plot.network(post, rule="interval", width=8.0, ax=ax) is ax
    selection = post.select_edges("interval")
    pairs = np.argwhere(np.triu(selection.edges))
    lines, strength = edge_lines(ax), post.association()[tuple(pairs.T)]
    assert len(lines) == selection.n_edges > 2
    np.testing.assert_allclose([line.get_linewidth() for line in lines], 8 * np.abs(strength))
    # Negative edges are dashed too.
    assert [line.is_dashed() for line in lines] == (strength < 0).tolist() and (strength < 0).any()
    positions = plot.network_layout(post, selection)
    np.testing.assert_allclose([line.get_xydata() for line in lines], positions[pairs])
    assert "90 % credible interval excludes zero" in ax.get_title().replace("\n", " ")
    assert sorted(texts(ax.texts)) == sorted(NAMES)
    # The scale of widths is drawn in the same proportion.
    for text, line in zip(legend_texts(ax), ax.get_legend().legend_handles, strict=True):
        if text not in ("positive", "negative"):
            assert line.get_linewidth() == pytest.approx(8 * float(text))


def test_positions_are_the_same_for_every_condition(fitted, ax):
    positions = plot.network_layout(fitted)
    np.testing.assert_array_equal(positions, plot.network_layout(fitted))
    found = []
    for lam, q in ((0.6, 0.3), (4.0, 1.0)):
        ax.clear()
        plot.network(fitted.posterior(lam, q), np.ones((4, 4), bool), positions=positions, ax=ax)
        found.append(sorted(text.xy for text in ax.texts))
        np.testing.assert_allclose(sorted(map(tuple, positions)), found[-1])
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_large_graph_omits_names_that_overlap(large):
    ax = plot.network(large, rule="fdr")
    import matplotlib.pyplot as plt

    plt.close(ax.figure)
    edges = large.select_edges("fdr").edges
    joined = int(edges.any(axis=0).sum())
    names, dots = texts(ax.texts), [line for line in ax.lines if line.get_marker() == "o"]
    assert 10 < len(names) < joined < 300
    # Each shown variable is a dot or a name in a box.
    boxed = sum(text.get_bbox_patch() is not None for text in ax.texts)
    assert len(dots) + boxed == joined
    assert f"{300 - joined} variables without one are not shown" in ax.get_title().replace("\n", " ")
    # No two names overlap.
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])
    assert min(text.get_fontsize() for text in ax.texts) >= 8


def test_a_query_is_highlighted_and_only_its_neighbours_are_shown(wide, ax):
    selection = wide.select_edges("fdr")
    plot.network(wide, selection, ax=ax)
    shown = set(wide.query.tolist()) | set(np.flatnonzero(selection.edges.any(axis=0)).tolist())
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    boxed = [text for text in ax.texts if text.get_bbox_patch() is not None]
    assert len(dots) + len(boxed) == len(shown) < 40
    bold = {text.get_text() for text in ax.texts if text.get_weight() == "bold"}
    assert bold <= {wide.names[k] for k in wide.query} and len(bold) >= 4
    yellow = [line for line in dots if line.get_markerfacecolor() != "white"]
    yellow += [text for text in boxed if text.get_bbox_patch().get_facecolor() != to_rgba("white")]
    assert len(yellow) == 6
    assert len(edge_lines(ax)) == selection.n_edges


def test_isolated_variables_are_drawn_in_small_graphs_only(post, ax):
    nothing = np.zeros((5, 5), bool)
    plot.network(post, nothing, ax=ax)
    assert len(texts(ax.texts)) == 5 and not edge_lines(ax)
    ax.clear()
    plot.network(post, nothing, isolated=False, ax=ax)
    assert not ax.texts and "5 variables without one" in ax.get_title().replace("\n", " ")


@pytest.mark.slow
def test_layout_is_within_a_disc_and_reproducible(large, wide, post):
    for each in (large, wide, post):
        positions = plot.network_layout(each, "fdr")
        assert positions.shape == (len(each.names), 2) and np.isfinite(positions).all()
        assert np.linalg.norm(positions, axis=1).max() <= 1 + 1e-9
        assert len(np.unique(positions.round(6), axis=0)) == len(positions)
        np.testing.assert_array_equal(positions, plot.network_layout(each, each.select_edges("fdr")))
    # Joined variables are closer to each other than other pairs.
    edges, positions = large.select_edges("fdr").edges, plot.network_layout(large, "fdr")
    distance = np.linalg.norm(positions[:, None] - positions, axis=2)
    core = edges.any(axis=0)
    assert distance[edges].mean() < 0.4 * distance[np.ix_(core, core)].mean()


def test_mismatched_arguments_raise(post, ax):
    with pytest.raises(ValueError, match="needs edges and names"):
        plot.network(OMEGA, ax=ax)
    with pytest.raises(ValueError, match="do not belong"):
        plot.network(post, np.ones((3, 3), bool), positions=np.zeros((5, 2)), ax=ax)
