"""Lines show quantiles of the posterior, on the given axes."""

import numpy as np
import pytest

from ggmflow import plot
from ggmflow.baselines import graphical_lasso
from ggmflow.model.precision import association, partial_correlation
from ggmflow.posterior.posterior import PoorFitWarning
from tests.plot.conftest import NAMES, legend_texts
from tests.support.models import pushed


def test_intervals_show_medians_bands_and_path(ax):
    lam = np.array([0.5, 1.0, 5.0])
    quantiles = np.stack([np.full((3, 2), value) for value in (-1.0, 0.25, 2.0)])
    path = np.array([[0.1, 0.2]] * 3)
    assert plot.intervals_along_lam(lam, quantiles, ["a – b", "c – d"], path=path, title="t", ax=ax) is ax
    heights = [line.get_ydata()[0] for line in ax.lines if len(line.get_ydata()) == 3]
    assert heights == [0.25, 0.1, 0.25, 0.2]
    assert legend_texts(ax) == ["a – b", "c – d", "graphical lasso"]
    assert ax.get_xscale() == "log"
    assert len(ax.collections) == 2


def test_solution_path_draws_every_entry_and_names_some(ax):
    lam = np.array([0.5, 1.0, 5.0])
    path, reference = np.arange(9.0).reshape(3, 3), np.arange(9.0).reshape(3, 3) + 0.5
    labels = {2: "a – b", 0: "c – d"}
    assert plot.solution_path(lam, path, labels, reference=reference, title="t", ax=ax) is ax
    drawn = [line for line in ax.lines if len(line.get_ydata()) == 3]
    # The unnamed entry is first, below the others; each has a dashed reference.
    np.testing.assert_array_equal(
        [line.get_ydata() for line in drawn],
        [path[:, 1], reference[:, 1], path[:, 2], reference[:, 2], path[:, 0], reference[:, 0]],
    )
    assert [line.is_dashed() for line in drawn] == [False, True] * 3
    assert legend_texts(ax) == ["a – b", "c – d", "other pairs", "graphical lasso"]
    assert ax.get_xscale() == "log"


@pytest.mark.parametrize("scale", ["precision", "association"])
def test_entries_along_lam_are_the_quantiles_of_the_posterior(fitted, ax, scale):
    lam = [1.0, 3.0]
    entries = [("_x", "$x_1$"), (2, "100 %")]
    assert plot.entries_along_lam(fitted, entries, q=0.5, lam=lam, level=0.8, scale=scale, ax=ax) is ax
    medians = np.array([line.get_ydata() for line in ax.lines if line.get_marker() in tuple("os")])
    for k, each in enumerate(lam):
        post = fitted.posterior(each, 0.5, num_draws=1000)
        low, middle, high = plot.pairs.quantiles_of(post, [0.1, 0.5, 0.9], np.array([[0, 1], [2, 3]]), scale)
        if scale == "precision":
            np.testing.assert_allclose(middle, post.median()[[0, 2], [1, 3]])
        np.testing.assert_allclose(medians[:, k], middle)
        bands = [band.get_paths()[0].vertices for band in ax.collections]
        for band, bottom, top in zip(bands, low, high, strict=True):
            here = band[np.isclose(band[:, 0], each), 1]
            np.testing.assert_allclose([here.min(), here.max()], [bottom, top])
    assert legend_texts(ax) == ["$x_1$ – _x", "a&b – 100 %"]  # dollar signs and underscores are plain characters
    ax.figure.canvas.draw()


def test_association_quantiles_are_those_of_the_draws(post, block):
    pairs = np.array([[0, 1], [2, 4]])
    found = plot.pairs.quantiles_of(post, [0.1, 0.5, 0.9], pairs)
    draws = partial_correlation(post.sample(400))[:, pairs[:, 0], pairs[:, 1]]
    np.testing.assert_allclose(found, np.quantile(draws, [0.1, 0.5, 0.9], axis=0, method="hazen"))
    # Row 0 belongs to column 3: its association with column 1, also of the query, is a partial correlation, and that
    # with column 0 a regression weight.
    pairs = np.array([[0, 1], [0, 0]])
    rows = block.sample(400)
    expected = np.stack(
        [-rows[:, 0, 1] / np.sqrt(rows[:, 0, 3] * rows[:, 1, 1]), -rows[:, 0, 0] / rows[:, 0, 3]], axis=1
    )
    found = plot.pairs.quantiles_of(block, [0.5], pairs)
    np.testing.assert_allclose(found[0], np.quantile(expected, 0.5, axis=0, method="hazen"))
    np.testing.assert_allclose(association(rows, block.query)[:, pairs[:, 0], pairs[:, 1]], expected)


def test_the_dashed_line_at_q_one_is_the_graphical_lasso(fitted, ax):
    plot.entries_along_lam(fitted, ("$x_1$", "_x"), q=1.0, lam=[2.0, 5.0], mode=True, scale="precision", ax=ax)
    dashed = next(line for line in ax.lines if line.is_dashed())
    S, n = fitted.scatter_.matrix, fitted.scatter_.n
    expected = [graphical_lasso(S / n, n, lam).precision[0, 1] for lam in (2.0, 5.0)]
    np.testing.assert_allclose(dashed.get_ydata(), expected, atol=1e-6)
    assert legend_texts(ax)[-1] == "graphical lasso"


def test_default_entries_are_the_strongest_and_each_appears_once(fitted, ax):
    plot.entries_along_lam(fitted, lam=[1.0, 2.0], ax=ax)
    assert len(set(legend_texts(ax))) == 5


def test_entry_across_q_shows_intervals_and_references(fitted, ax):
    draws = fitted.posterior(2.0, 1.0).sample(100, random_state=0).reshape(4, 25, 4, 4)
    references = {"$mine$": draws.reshape(100, 4, 4)[0], "_chains": draws}
    options = {"q": [0.5, 1.0], "scale": "precision", "references": references}
    assert plot.entry_across_q(fitted, ("_x", "$x_1$"), 2.0, ax=ax, **options) is ax
    own, point, chains = ax.containers
    for k, q in enumerate((0.5, 1.0)):
        low, middle, high = fitted.posterior(2.0, q, num_draws=1000).quantile([0.05, 0.5, 0.95])[:, 0, 1]
        np.testing.assert_allclose(own.lines[0].get_xydata()[k], [q, middle])
        np.testing.assert_allclose(own.lines[2][0].get_segments()[k][:, 1], [low, high])
    assert point.lines[0].get_ydata()[0] == draws[0, 0, 0, 1]
    assert chains.lines[0].get_ydata()[0] == pytest.approx(np.median(draws[..., 0, 1]))
    assert legend_texts(ax) == ["median, 90% interval", "$mine$", "_chains"]
    assert ax.get_title() == "$x_1$ – _x, λ = 2"
    ax.figure.canvas.draw()


@pytest.mark.slow
def test_across_q_the_default_reference_is_the_graphical_lasso(fitted, fitted_block, ax):
    plot.entry_across_q(fitted, (0, 1), 2.0, q=1.0, scale="precision", ax=ax)
    S, n = fitted.scatter_.matrix, fitted.scatter_.n
    expected = graphical_lasso(S / n, n, 2.0).precision[0, 1]
    assert ax.containers[1].lines[0].get_ydata()[0] == pytest.approx(expected, abs=1e-6)
    with pytest.raises(ValueError, match="shape"):
        plot.entry_across_q(fitted, (0, 1), 2.0, q=1.0, references={"wrong": np.eye(3)}, ax=ax)
    plot.entry_across_q(fitted_block, ("a", "d"), 2.0, q=1.0, ax=ax)
    assert ax.get_ylabel() == "association"


def test_mode_path_draws_associations_of_the_modes(fitted, fitted_block, ax):
    for model in (fitted, fitted_block):
        ax.clear()
        path = model.path(q=1.0, lam=[4.0, 1.0, 2.0])
        assert plot.mode_path(model, path, ax=ax) is ax
        values = association(path.precision, model.query_)[[1, 2, 0]]  # ascending λ
        drawn = {tuple(np.round(line.get_ydata(), 9)) for line in ax.lines if len(line.get_ydata()) == 3}
        pairs = plot.pairs.all_pairs(model.query_, 4)
        expected = {tuple(np.round(values[:, a, j], 9)) for a, j in pairs if np.any(values[:, a, j] != 0)}
        assert drawn == expected
    plot.mode_path(fitted, fitted.path(q=1.0, lam=[1.0, 2.0]), entries=[("_x", "$x_1$")], ax=ax)
    assert legend_texts(ax) == ["$x_1$ – _x", "other pairs"]


def test_poor_fits_give_one_warning(fitted, ax, monkeypatch):
    source = type(fitted)._source
    monkeypatch.setattr(type(fitted), "_source", lambda self, *condition: pushed(source(self, *condition)))
    with pytest.warns(PoorFitWarning, match="at 3 of 3 conditions") as caught:
        plot.entries_along_lam(fitted, (0, 1), q=0.5, lam=[1.0, 2.0, 4.0], ax=ax)
    assert len(caught) == 1 and caught[0].filename == __file__


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (("nobody", 1), "no column is named 'nobody'"),
        (("plan", 1), "did you mean 'plain'"),
        ((0, 9), "position from 0 to 4"),
        ((2, 2), "not a pair"),
        ((0, 2), "belongs to the query"),
        ([(1, 2, 3)], "pair of names"),
        ([], "no entries"),
    ],
)
def test_invalid_entries_raise_and_are_named(block, entry, message):
    with pytest.raises(ValueError, match=message):
        plot.pairs.find_pairs(entry, NAMES, block.query)


def test_pairs_are_found_in_either_order(block):
    np.testing.assert_array_equal(
        plot.pairs.find_pairs([("100 %", "_x"), (1, 3), (0, 1), ("_x", 0)], NAMES, block.query),
        [[0, 1], [0, 1], [1, 0], [1, 0]],
    )
    assert len(plot.pairs.all_pairs(block.query, 5)) == 4 + 3
