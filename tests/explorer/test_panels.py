"""Panels of the explorer without a browser."""

import numpy as np
import pytest
from bokeh.document import Document

from ggmflow.explorer import prepare
from ggmflow.explorer.changes import Changes
from ggmflow.explorer.geometry import histogram_bins, label_sides, lam_ticks, shorten, shorten_all
from ggmflow.explorer.panels import style
from ggmflow.explorer.panels.associations import PairPosterior
from ggmflow.explorer.session import Session
from ggmflow.storage.package_files import package_text
from ggmflow.views.pairs import Density
from tests.support.models import TABLE, quick


@pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")
def test_title_and_heading_name_the_data(untrained):
    """The name of a file may hold HTML, which must stay text; without a name the heading gives only the size."""
    document, name = Document(), "<b>a&b</b>.csv"
    page = Session(document, prepare(quick().fit(TABLE), evidence=False, data_name=name))
    assert document.title == "<b>a&b</b>.csv – ggmflow explorer"  # Bokeh escapes a title itself
    assert "<b>&lt;b&gt;a&amp;b&lt;/b&gt;.csv</b>" in page.panels.texts["head"].text
    assert "20 rows × 4 variables" in page.panels.texts["head"].text and "query" not in page.panels.texts["head"].text
    document = Document()
    page = Session(document, prepare(quick(query=["c", "a"]).fit(TABLE), evidence=False))
    assert document.title == "ggmflow explorer" and "<b>" not in page.panels.texts["head"].text
    assert "20 rows × 4 variables, 2 of them in the query" in page.panels.texts["head"].text


@pytest.mark.parametrize(("middle", "zero_is_shown"), [(0.9, False), (-0.9, False), (0.012, True), (0.045, True)])
def test_a_histogram_has_the_range_of_its_pair(middle, zero_is_shown):
    """Draws are N(middle, 0.01²): zero is 4.5 sd from the middle 0.045, outside of the draws but near them."""
    rng = np.random.default_rng(0)
    values = middle + 0.01 * rng.normal(size=1000)
    weights = np.full(1001, 1 / 1000)
    weights[-1] = 1e-9
    density = Density(np.append(values, -5.0), weights / weights.sum(), middle - 0.02, middle + 0.02, middle)
    bins = histogram_bins(density)
    counts, _ = np.histogram(values, bins)
    assert counts.sum() == 1000 and np.count_nonzero(counts) >= 15
    assert (bins[0] <= 0 <= bins[-1]) == zero_is_shown
    assert not zero_is_shown or np.abs(bins).min() < 1e-12  # no bin holds both signs
    panel = PairPosterior()
    changes = Changes(Document(), panel.models)
    panel.update(changes, density)
    start, end = (changes.get(panel.figure.x_range, name) for name in ("start", "end"))
    assert start <= bins[0] and end >= bins[-1] and end - start < 0.15


def test_a_histogram_of_equal_draws():
    density = Density(np.full(50, 0.5), np.full(50, 1 / 50), 0.5, 0.5, 0.5)
    bins = histogram_bins(density)
    assert len(bins) > 1 and bins[0] <= 0.5 <= bins[-1]


@pytest.mark.parametrize("ends", [(1.0, 1.1), (1.0, 3.0), (0.5, 8.0), (0.02, 40.0), (0.01, 1000.0), (1e-3, 1e5)])
def test_labels_of_lam_ticks_do_not_overlap(ends):
    """On an axis of 200 pixels, with digits of 6 pixels, and at least 4 pixels between labels."""
    ticks = np.array(lam_ticks(*ends))
    assert 3 <= len(ticks) <= 7 and ticks[0] >= 0.999 * ends[0] and ticks[-1] <= 1.001 * ends[1]
    at = 200 * np.log(ticks / ends[0]) / np.log(ends[1] / ends[0])
    width = np.array([6 * len(f"{tick:.3g}") for tick in ticks])
    assert np.all(np.diff(at) >= (width[1:] + width[:-1]) / 2 + 4), ticks


def test_usual_ticks_of_lam():
    assert lam_ticks(1.0, 3.0) == pytest.approx([1, 1.5, 2, 2.5, 3])
    assert lam_ticks(0.5, 8.0) == pytest.approx([0.5, 1, 2, 5])
    assert lam_ticks(0.01, 1000.0) == pytest.approx([0.01, 0.1, 1, 10, 100, 1000])


def test_shortened_names_still_differ():
    names = [f"creatinine {k:03d} level" for k in range(40)]
    found = shorten_all(names)
    assert len(set(found)) == 40 and max(map(len, found)) == 16  # at 15 the ends of 003 and 013 are equal
    assert shorten_all(["a", "b"]) == ["a", "b"]
    alike = [f"{'x' * 20}{k}{'y' * 20}" for k in range(3)]
    assert max(map(len, shorten_all(alike))) == 18


def test_labels_of_nodes_do_not_overlap():
    """Of three nodes side by side the second label is above its node, the third is left out unless it must be kept."""
    labels, x = [shorten(f"haemoglobin level {k}", 12) for k in range(4)], np.array([0.0, 40.0, 60.0, 400.0])
    assert len(set(labels)) == 4 and max(map(len, labels)) == 12
    none, third = np.zeros(4, bool), np.arange(4) == 2
    np.testing.assert_array_equal(label_sides(x, np.zeros(4), labels, range(4), none), [1, -1, 0, 1])
    np.testing.assert_array_equal(label_sides(x, np.zeros(4), labels, range(4), third), [1, -1, 1, 1])
    np.testing.assert_array_equal(label_sides(x, np.zeros(4), labels, [2, 1, 0, 3], none), [0, -1, 1, 1])
    np.testing.assert_array_equal(label_sides(x, np.zeros(4), ["", *labels[1:]], range(4), none), [0, 1, -1, 1])


def test_figures_and_stylesheet_have_the_same_colours_and_font():
    """Glyphs are coloured in Python, texts by page.css."""
    for name, value in {"ink": style.INK, "faint": style.FAINT, "query": style.QUERY, "font": style.FONT}.items():
        assert f"--{name}: {value};" in package_text("explorer/page.css")
