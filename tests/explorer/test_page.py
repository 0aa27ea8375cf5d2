"""The explorer in a browser: it shows the numbers of the Python API, and names are never HTML or scripts."""

import html

import numpy as np
import pandas as pd
import pytest

from ggmflow.explorer.state import RULES
from ggmflow.views.export import export_table
from ggmflow.views.pairs import middle
from tests.support.explorer_page import (
    NAMES,
    QUERY,
    check_values,
    drawn,
    listed,
    nodes_of,
    press,
    property_of,
    until,
    wait_at_rest,
    wait_for_change,
)

pytestmark = pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")


def test_values_are_those_of_the_posterior_and_sliders_change_the_graph(small, page):
    model, address = small
    page.goto(address)
    check_values(page, model)
    assert wait_at_rest(page, model)[:2] == pytest.approx(middle(model)[:2], rel=1e-3)
    lines = drawn(page)
    before = property_of(page, "trust", "text")
    press(page, 0, "End", 1)
    wait_for_change(page, before)
    assert wait_at_rest(page, model)[0] == model.lam_range_[1]
    check_values(page, model)
    assert drawn(page) != lines
    press(page, 1, "ArrowLeft", 7)
    press(page, 2, "Home", 1)
    page.wait_for_function("Bokeh.documents[0].get_model_by_name('trust').text.includes(', 0.01, num')", timeout=60_000)
    _, q, temperature, _ = wait_at_rest(page, model)
    assert q < middle(model)[1] and temperature == model.temperature_range_[0]
    check_values(page, model)


@pytest.mark.slow
def test_only_a_posterior_has_intervals_and_probabilities(small, page):
    model, address = small
    page.goto(address)
    probabilities = {"clicked": "P(positive)", "listed": "P(edge)", "state": "false discovery rate"}

    def check_posterior():
        assert wait_at_rest(page, model)[2] == 1
        for name, text in probabilities.items():
            assert text in property_of(page, name, "text")
        assert "90 % intervals" in property_of(page, "chosen", "text")
        assert page.get_by_text("not a credible interval").count() == 0 and page.locator(".note").count() == 0
        assert "P(edge)" in listed(page)

    check_posterior()
    press(page, 2, "Home", 1)
    page.wait_for_function("Bokeh.documents[0].get_model_by_name('trust').text.includes(', 0.01, num')", timeout=60_000)
    for entry in RULES.values():  # none of them shows probabilities
        page.locator("select").select_option(label=entry.label)
        assert wait_at_rest(page, model)[2] == 0.01
        for name, text in probabilities.items():
            assert text not in property_of(page, name, "text") and "expected to be false" not in property_of(
                page, name, "text"
            )
        for name in ("chosen", "clicked", "listed"):
            shown = property_of(page, name, "text")
            assert "pread at T = 0.01, not a credible interval" in shown or "none qualifies" in shown
        assert "Tempered posterior" in page.locator(".note").inner_text()
        until(page, lambda: "P(edge)" not in listed(page))
    page.locator("select").select_option(label=next(iter(RULES.values())).label)
    before = property_of(page, "trust", "text")
    press(page, 2, "End", 1)
    wait_for_change(page, before)
    check_posterior()


@pytest.mark.slow
def test_rules_select_the_edges_of_the_api(blanket, page):
    model, address = blanket
    page.goto(address)
    wait_at_rest(page, model)
    press(page, 0, "Home", 1)  # where the rules differ most
    page.wait_for_function("Bokeh.documents[0].get_model_by_name('trust').text.includes('(2.0, ')", timeout=60_000)
    found = set()
    for entry in reversed(RULES.values()):
        page.locator("select").select_option(label=entry.label)
        page.wait_for_function(f"Bokeh.documents[0].get_model_by_name('rule').value == {entry.value!r}")
        *condition, num_draws = wait_at_rest(page, model)
        post = model.posterior(*condition, num_draws=num_draws)
        chosen = post.select_edges(entry.key, **entry.parameters)
        table = export_table(post, entry.parameters.get("level", 0.9), chosen)
        until(page, lambda rule=table.attrs["rule"]: html.escape(rule) in property_of(page, "state", "text"))
        expected = table[table["edge"]].set_index(["row", "column"])
        # The text may be correct already for the view of few draws that was shown before.
        lowest = expected["association_lower"].sort_values().to_numpy()
        until(page, lambda low=lowest: np.array_equal(np.sort(drawn(page)["lower"]).round(9), low.round(9)))
        lines = pd.DataFrame({name: drawn(page)[name] for name in ("row", "column", "lower")})
        shown = lines.set_index(["row", "column"])
        assert set(shown.index) == set(expected.index)
        most = listed(page).iloc[:200].set_index(["row", "column"])
        assert len(most) == min(200, len(expected)) and set(most.index) <= set(expected.index)
        np.testing.assert_allclose(shown["lower"], expected["association_lower"].loc[shown.index], atol=1e-9)
        found.add(frozenset(expected.index))
    assert len(found) > 2  # or the test would not have seen a change


@pytest.mark.slow
def test_names_are_never_interpreted(small, page):
    """Neither in labels nor in tooltips, table, search and headings."""
    model, address = small
    page.goto(address)
    wait_at_rest(page, model)
    assert page.locator("script", has_text="alert(1)").count() == 0
    assert page.locator("img[src=x]").count() == 0 and page.locator("mjx-container").count() == 0
    table = listed(page)
    assert {*table["row"], *table["column"]} & {*NAMES[:2]}
    # Tooltips of all nodes.
    assert sorted(name for name, *_ in nodes_of(page)) == sorted(NAMES)
    for k in range(len(NAMES)):
        name, x, y = nodes_of(page)[k]  # a long name in a heading may have moved the nodes
        page.mouse.move(x, y)
        until(page, lambda name=name: name in " ".join(page.locator("[class*=ooltip]").all_text_contents()))
        page.mouse.click(x, y)
        until(page, lambda name=name: any(name in text for text in page.locator("h2, .faint").all_text_contents()))
        page.wait_for_timeout(500)  # or the next click may count as the second of a double click
    page.locator("input[type=text]").first.press_sequentially("alert(2)")
    assert NAMES[1] in page.locator(".bk-menu").all_text_contents()
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    assert page.locator("img[src=x]").count() == 0 and page.locator("mjx-container").count() == 0


@pytest.mark.slow
def test_query_block_shows_connected_variables_and_finds_others(blanket, page):
    model, address = blanket
    page.goto(address)
    check_values(page, model)
    data = "Bokeh.documents[0].get_model_by_name('network').renderers.map((r) => r.data_source.data)"
    shown = f"Array.from({data}.map((d) => d.get?.('name') ?? d.name).find((n) => n != null))"
    names = page.evaluate(shown)
    edges = drawn(page)
    assert set(names) == set(QUERY) | set(edges["row"]) | set(edges["column"])
    assert len(names) < 300
    hidden = next(f"gene {k}" for k in range(293, 0, -1) if f"gene {k}" not in names)
    page.locator("input[type=text]").first.press_sequentially(hidden)
    page.keyboard.press("Enter")
    page.wait_for_function(f"{shown}.includes({hidden!r})")
    for text in ("chosen", "clicked"):
        page.wait_for_function(f"Bokeh.documents[0].get_model_by_name({text!r}).text.includes({hidden!r})")


@pytest.mark.slow
@pytest.mark.parametrize("button, name", [("Graph (GraphML)", "graph.graphml"), ("Table (CSV)", "summary.csv")])
def test_downloads(small, page, tmp_path, button, name):
    import networkx as nx

    model, address = small
    page.goto(address)
    lam, q, _, num_draws = wait_at_rest(page, model)
    with page.expect_download() as download:
        page.get_by_text(button).click()
    assert download.value.suggested_filename == name
    download.value.save_as(tmp_path / name)
    post = model.posterior(lam, q, num_draws=num_draws)
    if name.endswith("csv"):
        table = pd.read_csv(tmp_path / name)
        assert (table.pop("num_draws") == num_draws).all()
        pd.testing.assert_frame_equal(table, export_table(post, 0.9, "f1"), check_dtype=False)
        assert {"lam", "q", "temperature", "level", "rule", "scale"} <= set(table)
        own, place = post.select_edges().probability, {name: k for k, name in enumerate(post.names)}
        pairs = table[table["row"] != table["column"]]
        at = [place[name] for name in pairs["row"]], [place[name] for name in pairs["column"]]
        np.testing.assert_allclose(pairs["rule_probability"], own[at], atol=1e-9)
    else:
        graph, expected = nx.read_graphml(tmp_path / name), post.to_networkx()
        assert set(map(frozenset, graph.edges)) == set(map(frozenset, expected.edges))
        for a, b, weight in expected.edges(data="weight"):
            assert graph.edges[a, b]["weight"] == pytest.approx(weight)


@pytest.mark.slow
def test_download_of_the_figure(small, page, tmp_path):
    _, address = small
    page.goto(address)
    wait_at_rest(page, small[0])
    with page.expect_download() as download:
        page.get_by_text("Figure (SVG)").click()
    download.value.save_as(tmp_path / "network.svg")
    text = (tmp_path / "network.svg").read_text(encoding="utf-8")
    assert text.startswith("<svg") and "plain" in text and "<script>alert" not in text
