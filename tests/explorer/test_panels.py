"""Panels of the explorer without a browser: what they are set to show."""

import numpy as np
import pytest
from bokeh.document import Document

from ggmflow.explorer import prepare
from ggmflow.explorer.changes import Changes
from ggmflow.explorer.geometry import brief, histogram_ends, lam_ticks, short, sides
from ggmflow.explorer.panels import PairPosterior
from ggmflow.explorer.session import Session
from ggmflow.views.pairs import Density
from tests.support.models import TABLE, quick


@pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")
def test_title_and_head_name_the_data(untrained):
    """The name of a file may hold HTML, which must stay text; without a name only the size is told."""
    document, name = Document(), "<b>a&b</b>.csv"
    page = Session(document, prepare(quick().fit(TABLE), evidence=False, data_name=name))
    assert document.title == "<b>a&b</b>.csv – ggmflow explorer"  # Bokeh escapes a title itself
    assert "<b>&lt;b&gt;a&amp;b&lt;/b&gt;.csv</b>" in page.texts["head"].text
    assert "20 rows × 4 variables" in page.texts["head"].text and "query" not in page.texts["head"].text
    document = Document()
    page = Session(document, prepare(quick(query=["c", "a"]).fit(TABLE), evidence=False))
    assert document.title == "ggmflow explorer" and "<b>" not in page.texts["head"].text
    assert "20 rows × 4 variables, 2 of them in the query" in page.texts["head"].text


@pytest.mark.parametrize(("middle", "zero_is_shown"), [(0.9, False), (-0.9, False), (0.012, True), (0.045, True)])
def test_a_histogram_has_the_range_of_its_pair(middle, zero_is_shown):
    """Draws are N(middle, 0.01²), so 0.045 is 4.5 sd from zero: outside of the draws, but near them."""
    rng = np.random.default_rng(0)
    values = middle + 0.01 * rng.normal(size=1000)
    weights = np.full(1001, 1 / 1000)
    weights[-1] = 1e-9
    found = Density(np.append(values, -5.0), weights / weights.sum(), middle - 0.02, middle + 0.02, middle)
    ends = histogram_ends(found)
    counts, _ = np.histogram(values, ends)
    assert counts.sum() == 1000 and np.count_nonzero(counts) >= 15
    assert (ends[0] <= 0 <= ends[-1]) == zero_is_shown
    assert not zero_is_shown or np.abs(ends).min() < 1e-12  # no bar holds both signs
    panel = PairPosterior()
    changes = Changes(Document(), panel.models)
    panel.update(changes, found)
    start, end = (changes.get(panel.figure.x_range, name) for name in ("start", "end"))
    assert start <= ends[0] and end >= ends[-1] and end - start < 0.15


def test_a_histogram_of_equal_draws():
    found = Density(np.full(50, 0.5), np.full(50, 1 / 50), 0.5, 0.5, 0.5)
    ends = histogram_ends(found)
    assert len(ends) > 1 and ends[0] <= 0.5 <= ends[-1]


@pytest.mark.parametrize("ends", [(1.0, 1.1), (1.0, 3.0), (0.5, 8.0), (0.02, 40.0), (0.01, 1000.0), (1e-3, 1e5)])
def test_ticks_of_lam_do_not_run_into_each_other(ends):
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


def test_short_names_stay_apart():
    names = [f"creatinine {k:03d} level" for k in range(40)]
    found = brief(names)
    assert len(set(found)) == 40 and max(map(len, found)) == 16  # at 15 the ends of 003 and 013 are equal
    assert brief(["a", "b"]) == ["a", "b"]
    hopeless = [f"{'x' * 20}{k}{'y' * 20}" for k in range(3)]
    assert max(map(len, brief(hopeless))) == 18


def test_labels_of_nodes_give_way():
    """Of three nodes side by side the second label stands above, the third nowhere, unless it is one to be kept."""
    labels, x = [short(f"haemoglobin level {k}", 12) for k in range(4)], np.array([0.0, 40.0, 60.0, 400.0])
    assert len(set(labels)) == 4 and max(map(len, labels)) == 12
    none, third = np.zeros(4, bool), np.arange(4) == 2
    np.testing.assert_array_equal(sides(x, np.zeros(4), labels, range(4), none), [1, -1, 0, 1])
    np.testing.assert_array_equal(sides(x, np.zeros(4), labels, range(4), third), [1, -1, 1, 1])
    np.testing.assert_array_equal(sides(x, np.zeros(4), labels, [2, 1, 0, 3], none), [0, -1, 1, 1])
    np.testing.assert_array_equal(sides(x, np.zeros(4), ["", *labels[1:]], range(4), none), [0, 1, -1, 1])
