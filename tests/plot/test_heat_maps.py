"""Heat maps show the numbers of the posterior, a different one in each triangle."""

import numpy as np
import pytest

from ggmflow import plot
from ggmflow.model.precision import partial_correlation
from ggmflow.plot.heat_maps import association_sd
from tests.plot.conftest import NAMES, texts


@pytest.mark.parametrize("d", [3, 300])
def test_labels_of_a_large_matrix_are_thinned(d, ax):
    names = [f"gene_{k}" for k in range(d)]
    matrix = np.linspace(-0.5, 0.5, 2 * d).reshape(2, d)
    assert plot.heat_map(matrix, names, title="t", ax=ax) is ax
    assert 3 <= len(ax.get_xticks()) <= 26
    assert texts(ax.get_yticklabels()) == ["gene_0", "gene_1"]
    assert ax.get_aspect() == "auto"
    assert ax.images[0].get_clim() == (-0.5, 0.5)


@pytest.mark.parametrize("uncertainty", ["sign", "sd"])
def test_triangles_are_means_and_uncertainty(post, ax, uncertainty):
    assert plot.heat_map(post, uncertainty=uncertainty, ax=ax) is ax
    mean, doubt = (np.ma.filled(image.get_array(), np.nan) for image in ax.images)
    lower = np.tri(5, k=-1, dtype=bool)
    np.testing.assert_allclose(mean[lower], post.association()[lower])
    draws = partial_correlation(post.sample(400))
    expected = draws.std(axis=0) if uncertainty == "sd" else np.minimum((draws > 0).mean(0), (draws < 0).mean(0))
    np.testing.assert_allclose(doubt[lower.T], expected[lower.T], atol=1e-12)
    assert np.isnan(mean[~lower]).all() and np.isnan(doubt[~lower.T]).all()
    assert texts(ax.get_xticklabels()) == list(NAMES) == texts(ax.get_yticklabels())
    assert not any(text.get_parse_math() for text in ax.get_xticklabels())
    ax.figure.canvas.draw()


def test_uncertainty_of_a_query_is_below_its_means(block, ax):
    plot.heat_map(block, uncertainty="sd", ax=ax)
    mean, doubt = (np.ma.filled(image.get_array(), np.nan) for image in ax.images)
    assert mean.shape == doubt.shape == (5, 5)
    expected, spread = block.association(), association_sd(block)
    expected[[0, 1], [3, 1]] = spread[[0, 1], [3, 1]] = np.nan
    np.testing.assert_allclose(mean[:2], expected)
    np.testing.assert_allclose(doubt[3:], spread)
    assert texts(ax.get_yticklabels()) == ["100 %", "_x"] * 2


def test_means_alone_and_errors(post, large, ax):
    plot.heat_map(post, uncertainty=None, ax=ax)
    (image,) = ax.images
    off = ~np.eye(5, dtype=bool)
    np.testing.assert_allclose(np.ma.filled(image.get_array(), np.nan)[off], post.association()[off])
    with pytest.raises(ValueError, match="uncertainty must be"):
        plot.heat_map(post, uncertainty="doubt", ax=ax)
    with pytest.raises(ValueError, match="needs names"):
        plot.heat_map(np.eye(3), ax=ax)
    ax.clear()
    plot.heat_map(large, ax=ax)
    assert 10 <= len(ax.get_xticks()) <= 25
    assert min(text.get_fontsize() for text in ax.get_xticklabels()) >= 8
