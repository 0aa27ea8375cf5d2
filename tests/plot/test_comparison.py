"""Comparisons of pairs: drawn values equal those of the tables."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import ggmflow as gf
from ggmflow import plot
from ggmflow.baselines import graphical_lasso
from ggmflow.model.precision import partial_correlation
from tests.plot.conftest import NAMES, legend_texts, texts, wishart_posterior


def test_edge_intervals_are_sorted_quantiles(post, ax):
    lasso = graphical_lasso(post.scatter.matrix / 60, 60, 2.0).precision
    assert plot.edge_intervals(post, count=6, references={"_lasso": lasso}, ax=ax) is ax
    draws = partial_correlation(post.sample(400))
    names = texts(ax.get_yticklabels())
    pairs = [[NAMES.index(name) for name in label.split(" – ")] for label in names]
    low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=0, method="hazen")[:, *np.transpose(pairs)]
    assert len(names) == 6 and np.all(np.diff(middle) >= 0)
    np.testing.assert_allclose([segment[:, 0] for segment in ax.collections[0].get_segments()], np.c_[low, high])
    crosses = next(line for line in ax.lines if line.get_marker() == "x")
    np.testing.assert_allclose(crosses.get_xdata(), partial_correlation(lasso)[*np.transpose(pairs)])
    assert legend_texts(ax)[-1] == "_lasso"
    # Hollow if the interval contains zero.
    hollow = [x for line in ax.lines if line.get_markerfacecolor() == "white" for x in line.get_xdata()]
    np.testing.assert_allclose(np.sort(hollow), middle[(low <= 0) & (high >= 0)])
    plot.edge_intervals(post, [("_x", "$x_1$")], ax=ax)
    assert texts(ax.get_yticklabels()) == ["$x_1$ – _x"]


def test_every_pair_is_compared_with_the_graphical_lasso(post, block, ax):
    assert plot.against_graphical_lasso(post, ax=ax) is ax
    lasso = partial_correlation(graphical_lasso(post.scatter.matrix / 60, 60, 2.0).precision)
    upper = np.triu_indices(5, 1)
    middle = np.quantile(partial_correlation(post.sample(400)), 0.5, axis=0, method="hazen")
    points = np.concatenate([line.get_xydata() for line in ax.lines if line.get_marker() == "o"])
    expected = np.c_[lasso[upper], middle[upper]]
    np.testing.assert_allclose(points[np.argsort(points[:, 1])], expected[np.argsort(middle[upper])], atol=1e-6)
    ax.figure.canvas.draw()
    ax.clear()
    plot.against_graphical_lasso(block, ax=ax)
    assert sum(len(line.get_xydata()) for line in ax.lines if line.get_marker() == "o") == 7
    bare = gf.Posterior(post.source, NAMES, post.query, 2.0, 1.0, 1.0, num_draws=400)
    with pytest.raises(ValueError, match="needs the data"):
        plot.against_graphical_lasso(bare, ax=ax)
    plot.against_graphical_lasso(bare, np.eye(5), label="$nothing$", ax=ax)
    assert ax.get_xlabel().startswith("$nothing$")


def test_ranking_is_by_probability_and_marks_the_edges(post, ax):
    chosen = post.select_edges("f1")
    assert plot.edge_ranking(post, chosen, ax=ax) is ax
    pairs = [[NAMES.index(name) for name in label.split(" – ")] for label in texts(ax.get_yticklabels())]
    expected = chosen.probability[*np.transpose(pairs)]
    assert len(pairs) == 10 and np.all(np.diff(expected) <= 0)
    drawn = {round(y): x for line in ax.lines if line.get_marker() in "os" for x, y in line.get_xydata()}
    np.testing.assert_allclose([drawn[k] for k in range(10)], expected)
    filled = {
        round(y)
        for line in ax.lines
        if line.get_marker() in "os" and line.get_markerfacecolor() != "white"
        for y in line.get_ydata()
    }
    assert filled == set(range(chosen.n_edges))
    assert chosen.rule in ax.get_title().replace("\n", " ")
    with pytest.raises(ValueError, match="has no probabilities"):
        plot.edge_ranking(post, "interval", ax=ax)
    with pytest.raises(ValueError, match="shape"):
        plot.edge_ranking(post, chosen._replace(edges=np.ones((2, 2), bool)), ax=ax)


def test_differences_are_those_of_the_table(post, ax):
    table = gf.compare(post, wishart_posterior(NAMES, seed=5), names=("$A$", "_B"))
    assert plot.differences(table, count=4, ax=ax) is ax
    names = [f"{a} – {b}" for a, b in zip(table["row"], table["column"], strict=True)]
    part = table.iloc[[names.index(name) for name in texts(ax.get_yticklabels())]]
    score = (table["difference"].abs() / table["sd"]).sort_values()
    assert set(part.index) == set(score.index[-4:]) and part["difference"].is_monotonic_increasing
    np.testing.assert_allclose(
        [segment[:, 0] for segment in ax.collections[0].get_segments()], part[["lower", "upper"]]
    )
    assert ax.get_xlabel() == "difference of association: _B − $A$"
    ax.figure.canvas.draw()
    with pytest.raises(ValueError, match="not a comparison"):
        plot.differences(table.drop(columns="sd"), ax=ax)


@pytest.mark.parametrize("length", [3, 60])
def test_names_of_any_length_stay_within_the_figure(length):
    names = [f"{k}{'x' * (length - 2)}{k}" for k in range(5)]
    one, other = wishart_posterior(names), wishart_posterior(names, seed=5)
    drawn = [plot.edge_intervals(one), plot.edge_ranking(one), plot.heat_map(one)]
    drawn.append(plot.differences(gf.compare(one, other, names=("wild type", "mutant"))))
    for axes in drawn:
        figure = axes.figure
        figure.canvas.draw()
        box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
        assert box.x0 > -0.02 and box.y0 > -0.02 and box.x1 < width + 0.02 and box.y1 < height + 0.02
        labels = texts(axes.get_yticklabels())
        assert len(set(labels)) == len(labels)  # including shortened ones
        plt.close(figure)
