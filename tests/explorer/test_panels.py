"""Panels of the explorer without a browser: what they are set to show."""

import numpy as np
import pytest
from bokeh.document import Document

from ggmflow.explorer import prepare
from ggmflow.explorer.changes import Changes
from ggmflow.explorer.panels import PairPosterior, histogram_ends
from ggmflow.explorer.session import Session
from ggmflow.views import Density
from tests.models import TABLE, quick


@pytest.mark.filterwarnings("ignore::ggmflow.posterior.PoorFitWarning")
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
