"""Pages: written completely or not at all, with names inserted as text, for models of every kind."""

import base64
import dataclasses
import hashlib
import html
import os
import re

import numpy as np
import pytest

import ggmflow as gf
from ggmflow.errors.advice import Surface, message_of
from ggmflow.report.content import collect
from ggmflow.report.page import render
from tests.report.conftest import FIVE, GRID, NASTY, Elements, data_of, five_variables
from tests.support.models import TABLE, quick


def test_a_failure_keeps_the_existing_file(small, tmp_path, monkeypatch):
    model, _ = small
    target = tmp_path / "report.html"
    assert gf.write_report(model, target, **GRID) == target
    before = target.read_bytes()
    assert len(before) < 300_000 and os.listdir(tmp_path) == ["report.html"]
    assert os.stat(target).st_mode & 0o777 == 0o644

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("ggmflow.report.page.render", fail)
    with pytest.raises(KeyboardInterrupt):
        gf.write_report(model, target, **GRID)
    assert target.read_bytes() == before and os.listdir(tmp_path) == ["report.html"]


def test_errors_are_raised_before_drawing(small, tmp_path, monkeypatch):
    model, _ = small
    monkeypatch.setattr("ggmflow.report.content._point", None)
    with pytest.raises(FileNotFoundError, match="make it first"):
        gf.write_report(model, tmp_path / "nowhere" / "report.html")
    with pytest.raises(IsADirectoryError, match=r"report\.html"):
        gf.write_report(model, tmp_path)
    with pytest.raises(ValueError, match="outside the fitted range"):
        gf.write_report(model, tmp_path / "report.html", lam=[1.0, 100.0])
    with pytest.raises(ValueError, match="positive number"):
        gf.write_report(model, tmp_path / "report.html", q=[])
    with pytest.raises(ValueError, match="q must be a positive number or a list of them, got 'half'") as caught:
        gf.write_report(model, tmp_path / "report.html", q="half")
    assert message_of(caught.value, Surface.COMMAND_LINE).startswith("--q must be a positive number")
    with pytest.raises(ValueError, match="not fitted"):
        gf.write_report(gf.GraphicalFlow(), tmp_path / "report.html")
    assert not os.listdir(tmp_path)


def test_names_are_inserted_as_text(nasty):
    text = render(nasty, collect(nasty, [1.0, 4.0], 1.0), NASTY[0])
    elements = Elements(text)
    assert elements.tags.count("script") == 2 and "img" not in elements.tags
    assert not [name for name, _ in elements.attributes if name.startswith("on")]
    assert data_of(text)["names"] == NASTY
    assert "\u2028" not in re.search(r'id="numbers">(.*?)</script>', text, re.S)[1]
    addresses = [value for name, value in elements.attributes if name in ("src", "href", "action")]
    assert all(value.startswith("#") for value in addresses)


def test_policy_allows_only_the_script_of_the_page(small):
    text = render(*small)
    policy = dict(part.split(" ", 1) for part in re.search(r'Security-Policy" content="(.*?)"', text)[1].split("; "))
    script = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert len(script) == 1
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert policy["script-src"] == f"'sha256-{digest}'" and policy["default-src"] == "'none'"
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_a_model_without_temperature_one_has_no_evidence(tmp_path):
    cold = quick(temperature=0.5).fit(TABLE)
    text = gf.write_report(cold, tmp_path / "cold.html", lam=[1, 4], q=1).read_text("utf-8")
    assert "fitted for temperatures up to 0.5 only" in text and "intervals are too narrow" in text
    assert text.index("intervals are too narrow") < text.index('id="network"')  # before the first of them
    assert ("id", "evidence-curve") not in Elements(text).attributes and "temperature=0.5" in text
    assert ("id", "pair-curve") in Elements(text).attributes


def test_single_values_have_no_sliders(tmp_path):
    one = quick(temperature=1.0, lam=2.0, q=1.0).fit(TABLE)
    text = gf.write_report(one, tmp_path / "one.html").read_text("utf-8")
    assert ("type", "range") not in Elements(text).attributes
    assert "nothing to choose: λ = 2, q = 1" in text


@pytest.mark.slow
def test_report_of_two_variables(tmp_path):
    two = quick(temperature=1.0, q=1.0).fit(TABLE[["a", "b"]])
    data = data_of(gf.write_report(two, tmp_path / "two.html", lam=[1, 4]).read_text("utf-8"))
    assert data["n_pairs"] == 1 and data["pairs"] == [[0, 1, 1]] and len(data["points"]) == 2


def test_report_without_edges(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 4))
    none = quick(temperature=1.0, lam=(20.0, 50.0), q=0.5).fit(X)
    text = gf.write_report(none, tmp_path / "none.html", lam=[30.0, 50.0]).read_text("utf-8")
    assert "show no network" in text and "No edges here" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [{"architecture": "paper", "temperature": (0.3, 1.0)}, {"query": ["c", "a"], "temperature": 1.0}]
)
def test_report_of_a_query_and_of_the_paper_architecture(kind, tmp_path):
    other = quick(**kind).fit(TABLE)
    text = gf.write_report(other, tmp_path / "other.html", lam=[1.0, 4.0], q=[0.5]).read_text("utf-8")
    data, blanket = data_of(text), "query" in kind
    assert data["blanket"] == blanket and len(data["pairs"]) == (5 if blanket else 6)
    assert f"with the {other.flow_.architecture} architecture" in text


def test_page_states_how_many_pairs_it_contains(small, monkeypatch):
    monkeypatch.setattr("ggmflow.report.content._CAPACITY", 12)
    model, _ = small
    content = collect(model, **GRID)
    assert len(content.kept) == 2
    text, count = render(model, content), content.selected.selections[0].n_edges
    assert count > 2 and "holds 2 of the 10 pairs" in text
    assert f"{count} of 10 pairs (2 of them are drawn)" in text
    assert f"2 edges. This page holds 2 of the {count} edges of this point." in text


def section(page, name):
    return html.unescape(re.search(rf'<section id="{name}">(.*?)</section>', page, re.S)[1])


def test_data_check_without_findings(small):
    model, content = small
    page = render(model, content)
    assert "The data check of 60 rows of 5 variables found nothing unusual." in section(page, "check")
    assert '<a href="#check">' in page


@pytest.mark.slow
def test_data_check_with_serious_findings(untrained):
    """A copy under a name that would be markup, and an outlier."""
    table = five_variables(FIVE)
    table["<b>copy</b>"] = table["pulse"]
    table.loc[7, "mood"] = 50.0
    with pytest.warns(gf.DataWarning):
        fitted = quick(temperature=1.0, lam=2.0, q=1.0).fit(table)
    page = render(fitted, collect(fitted))
    assert "<b>copy" not in page
    told = section(page, "check")
    assert "can make or hide edges by itself" in told
    assert "columns 'pulse' and '<b>copy</b>' are identical (r = 1.000)" in told
    assert "row 7 alone moves the correlation of" in told
    assert 'Read the <a href="#check">data check</a> first' in page
    assert "transform='nonparanormal' in Python, --transform nonparanormal on the command line" in told


def test_a_model_without_a_data_check(small):
    model, content = small
    scatter = model.scatter_
    model.scatter_ = dataclasses.replace(scatter, check=None)
    try:
        page = render(model, content)
        assert "The data were not checked" in section(page, "check") and 'href="#check">data check' not in page
    finally:
        model.scatter_ = scatter
