"""Names from others stay text in pages, notebooks and files."""

import html.parser
import json

import networkx as nx
import pandas as pd
import pytest
from bokeh.document import Document

from ggmflow.views.export import export
from tests.support.models import TABLE, no_training, quick

NASTY = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "'\"` onload=alert(3) x=`&amp;&lt;]]>",
    '=HYPERLINK("http://evil.example")',
]
FIRST = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1"]


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def nasty():
    from ggmflow.estimator import graphical_flow as estimator

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimator, "fit_flow", no_training)
        return quick(temperature=1.0).fit(TABLE.set_axis(NASTY, axis=1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")
def test_names_in_notebook_html(nasty):
    post = nasty.posterior(2.0, 1.0, num_draws=200)
    post.mean()
    for shown in (nasty, post):
        found = Tags(shown._repr_html_())
        assert not {"script", "img"} & set(found.tags)
        assert not [name for name in found.attributes if name.startswith("on")]
        assert all(name in found.text for name in NASTY)


@pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")
def test_names_in_files(nasty, tmp_path):
    """As they are, for any program that reads the format; nothing of them becomes a part of the format."""
    post = nasty.posterior(2.0, 1.0, num_draws=200)
    expected = post.to_networkx()
    export(post, tmp_path / "g.graphml", "graphml")
    assert set(nx.read_graphml(tmp_path / "g.graphml").nodes) == set(expected.nodes) == set(NASTY)
    export(post, tmp_path / "t.csv", "csv")
    table = pd.read_csv(tmp_path / "t.csv")
    assert set(table["row"]) == set(NASTY) and len(table) == 10
    export(post, tmp_path / "p.json", "json")
    assert json.loads((tmp_path / "p.json").read_text("utf-8"))["variables"] == NASTY


@pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")
def test_names_that_a_spreadsheet_takes_for_formulas_stay_names(untrained, tmp_path):
    """Decided: a CSV file holds names as they are, or no program could find them again. `export` says so."""
    for names in (FIRST[:4], FIRST[2:]):
        post = quick(temperature=1.0).fit(TABLE.set_axis(names, axis=1)).posterior(2.0, 1.0, num_draws=200)
        export(post, tmp_path / "t.csv", "csv")
        assert set(pd.read_csv(tmp_path / "t.csv")["row"]) == set(names)
    assert "formula" in export.__doc__


@pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")
def test_names_on_the_page_of_the_explorer(nasty):
    """Every text that the server sends as HTML; `tests/explorer/test_page.py` looks at the page in a browser."""
    from bokeh.models import Div

    from ggmflow.explorer import prepare
    from ggmflow.explorer.session import Session

    document = Document()
    Session(document, prepare(nasty, evidence=False)).redraw(at_rest=True)
    texts = [model.text for model in document.select({"type": Div})]
    assert texts
    for found in map(Tags, texts):
        assert not {"script", "img"} & set(found.tags)
        assert not [name for name in found.attributes if name.startswith("on")]
