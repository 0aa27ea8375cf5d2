"""Panels of the explorer without a browser: what they are set to show."""

import pytest
from bokeh.document import Document

from ggmflow.explorer import prepare
from ggmflow.explorer.session import Session
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
