"""The explorer in a browser answers to mouse and keyboard, and keeps its state."""

import html
import json

import numpy as np
import pandas as pd
import pytest
from bokeh.document import Document
from bokeh.models import ColumnDataSource, Div

from ggmflow.explorer.changes import Changes
from ggmflow.views.pairs import middle
from tests.support.explorer_page import (
    NAMES,
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


@pytest.mark.slow
def test_the_ring_can_be_dragged(small, page):
    model, address = small
    page.goto(address)
    wait_at_rest(page, model)
    box = page.evaluate(
        "(() => {const m = Bokeh.documents[0].get_model_by_name('plane'); const v = Bokeh.index.find_one(m);"
        "const {x, y} = v.el.getBoundingClientRect(); const {left, top, width, height} = v.frame.bbox;"
        "return [x + left, y + top, width, height]})()"
    )
    x, y, width, height = box
    before = property_of(page, "trust", "text")
    page.mouse.move(x + width / 2, y + height / 2)
    page.mouse.down()
    page.mouse.move(x + 0.6 * width, y + 0.4 * height, steps=4)
    page.mouse.move(x + 0.8 * width, y + 0.2 * height, steps=8)
    page.mouse.up()
    wait_for_change(page, before)
    lam, q, *_ = wait_at_rest(page, model)
    low, high = np.log(model.lam_range_)
    assert np.log(lam) == pytest.approx(low + (0.8 * 1.1 - 0.05) * (high - low), abs=0.1)
    assert q == pytest.approx(0.25 + 0.8 * 1.14 - 0.07, abs=0.05)
    check_values(page, model)
    before = property_of(page, "trust", "text")
    page.get_by_text("Go to the highest evidence").click()
    wait_for_change(page, before)
    assert wait_at_rest(page, model)[:2] == pytest.approx(middle(model)[:2], rel=1e-3)


@pytest.mark.slow
def test_the_table_is_sorted_and_selects_a_pair(small, page):
    model, address = small
    page.goto(address)
    wait_at_rest(page, model)
    table = listed(page)
    assert len(table) > 2
    for column, title, key in (("upper", "upper", float), ("row", "variable", str)):
        for again in (False, True):
            page.locator("th", has_text=title).first.click()
            first = (key is float) != again  # the largest number first, but names from A to Z
            wanted = sorted(table[column], key=key, reverse=first)
            until(page, lambda column=column, wanted=wanted: listed(page)[column].tolist() == wanted)
    last = listed(page).iloc[-1]
    page.locator("tr[data-pair]").last.click()
    for side in ("row", "column"):
        until(page, lambda side=side: html.escape(last[side]) in property_of(page, "clicked", "text"))
    until(page, lambda: page.locator("tr.on").all_text_contents() == ["".join(last)])
    # Every click counts, also one on the same row after the selection was cleared.
    page.get_by_text("Clear").click()
    until(page, lambda: page.locator("tr.on").count() == 0)
    page.locator("tr[data-pair]").last.click()
    until(page, lambda: page.locator("tr.on").count() == 1)


@pytest.mark.slow
def test_a_click_on_a_node_does_not_select_an_edge(small, page):
    """Edges end at the centre of a node."""
    model, address = small
    page.goto(address)
    wait_at_rest(page, model)
    for k in range(len(NAMES)):
        name, x, y = nodes_of(page)[k]
        page.mouse.click(x, y)
        until(page, lambda name=name: f"pairs of {html.escape(name)}" in property_of(page, "chosen", "text"))
        page.wait_for_timeout(500)  # or the next click may count as the second of a double click
        assert f"pairs of {html.escape(name)}" in property_of(page, "chosen", "text")
    page.mouse.click(x, y)  # twice, a pixel apart, before the server has answered
    page.mouse.click(x + 1, y)
    page.wait_for_timeout(1000)
    assert f"pairs of {html.escape(name)}" in property_of(page, "chosen", "text") and page.locator("tr.on").count() == 0


@pytest.mark.slow
def test_a_click_on_an_edge_selects_its_pair(small, page):
    model, address = small
    page.goto(address)
    wait_at_rest(page, model)
    at = {name: np.array([x, y]) for name, x, y in nodes_of(page)}
    lines = pd.DataFrame({name: drawn(page)[name] for name in ("row", "column")})
    middles = [(at[a] + at[b]) / 2 for a, b in lines.itertuples(index=False)]
    free = [min(np.linalg.norm(each - other) for other in at.values()) for each in middles]  # of any node
    k = int(np.argmax(free))
    assert free[k] > 20
    page.mouse.click(*middles[k].tolist())
    until(page, lambda: page.locator("tr.on").count() == 1)
    assert all(name in page.locator("tr.on").text_content() for name in lines.iloc[k])
    assert "strongest edges" in property_of(page, "chosen", "text")


@pytest.mark.slow
def test_clear_empties_the_search(small, page):
    model, address = small
    page.goto(address)
    wait_at_rest(page, model)
    search = page.locator("input[type=text]").first
    search.press_sequentially("no such variable")
    page.get_by_text("Clear").click()
    until(page, lambda: search.input_value() == "")


@pytest.mark.slow
def test_a_page_that_loses_its_server_says_so_and_does_not_change(small, page):
    """If the page reconnected, it would return to its first state."""
    model, address = small
    page.add_init_script(
        "window.sockets = []; const send = WebSocket.prototype.send; WebSocket.prototype.send = function (...args) {"
        "if (!sockets.includes(this)) sockets.push(this); return send.apply(this, args) }"
    )
    page.goto(address)
    wait_at_rest(page, model)
    before = property_of(page, "trust", "text")
    press(page, 0, "End", 1)
    wait_for_change(page, before)
    assert wait_at_rest(page, model)[0] == model.lam_range_[1]
    page.evaluate("sockets.at(-1).close()")
    page.get_by_text("connection was lost").first.wait_for()
    page.wait_for_timeout(4000)
    assert page.evaluate("sockets.length") == 1
    assert wait_at_rest(page, model)[0] == model.lam_range_[1]


def test_properties_set_before_the_page_is_loaded_are_not_lost():
    """Before, they are set on the models; when the page is loaded all are sent; afterwards only new ones."""
    doc, text, data = Document(), Div(), ColumnDataSource()
    changes = Changes(doc, [text, data])
    changes.set(text, text="early")
    changes.send()
    assert text.text == "early"
    changes.begin()
    assert json.loads(changes.message.data["text"][0]) == {text.id: {"text": "early"}}
    changes.set(text, text="early")
    changes.set(data, data={"x": np.array([1.0, np.nan])})
    changes.send()
    assert json.loads(changes.message.data["text"][0]) == {data.id: {"data": {"x": [1.0, None]}}}
    assert text.text == "early" and changes.get(data, "data") == {"x": [1.0, None]}
