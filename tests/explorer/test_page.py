"""The explorer in a browser: it shows the numbers of the Python API, and names are never HTML or scripts."""

import asyncio
import html
import json
import re
import threading

import numpy as np
import pandas as pd
import pytest
from bokeh.document import Document
from bokeh.models import ColumnDataSource, Div

from ggmflow.estimator import graphical_flow as estimator
from ggmflow.explorer import make_document, prepare
from ggmflow.explorer.changes import Changes
from ggmflow.explorer.server import listen, stop
from ggmflow.explorer.state import RULES
from ggmflow.model.conditions import Choice
from ggmflow.views.export import export_table
from ggmflow.views.pairs import middle, num_draws_of
from ggmflow.views.surface import Surface
from tests.support.models import no_training, quick

pytestmark = pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")
NAMES = [
    "<script>alert(1)</script>",
    '<img src=x onerror=alert(2)>" onmouseover="alert(3)',
    "$$\\frac{a}{b}$$",
    "@{row} $x {{x}}",
    "plain",
]
QUERY = [f"query {k}" for k in range(6)]


def until(page, condition, seconds=20):
    """Wait until a condition is true."""
    for _ in range(20 * seconds):
        if condition():
            return
        page.wait_for_timeout(50)
    raise AssertionError("the condition did not become true")


def fitted(names, n_samples, **parameters):
    """An untrained flow for a chain of strongly correlated columns."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_samples, len(names)))
    for k in range(1, len(names)):
        X[:, k] += 0.9 * X[:, k - 1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimator, "train", no_training)
        return quick(**parameters).fit(pd.DataFrame(X, columns=names))


@pytest.fixture(scope="module")
def start_server():
    """A function that serves prepared models; the servers are stopped at the end."""
    running = []

    def start(prepared):
        ready, address = threading.Event(), []

        async def main():
            server, url = await listen(lambda doc: make_document(doc, prepared), 0)
            server.start()
            stopped = asyncio.Event()
            address.append(url)
            running.append((asyncio.get_running_loop(), stopped, thread))
            ready.set()
            await stopped.wait()
            await stop(server)

        thread = threading.Thread(target=lambda: asyncio.run(main()))
        thread.start()
        assert ready.wait(20)
        return address[0]

    yield start
    for loop, stopped, thread in running:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(20)


@pytest.fixture(scope="module")
def small(start_server):
    """d = 5 with names that contain HTML and TeX; an evidence surface with a known maximum."""
    model = fitted(NAMES, 60)
    lam, q = np.geomspace(*model.lam_range_, 9), np.linspace(*model.q_range_, 5)
    surface = Surface(lam, q, -((np.log(lam / lam[4])[:, None]) ** 2) - (q - q[2]) ** 2, Choice(lam[4], q[2], ()))
    prepared = prepare(model, evidence=False)._replace(surface=surface)
    return model, start_server(prepared)


@pytest.fixture(scope="module")
def blanket(start_server):
    """Six query variables among 300."""
    model = fitted([*QUERY, *(f"gene {k}" for k in range(294))], 80, query=QUERY, temperature=1.0, lam=(2.0, 40.0))
    return model, start_server(prepare(model, evidence=False))


@pytest.fixture
def page(page):
    """Any dialog means that a name was executed."""
    page.on("dialog", lambda dialog: pytest.fail(f"a name was executed: {dialog.message}"))
    return page


def property_of(page, name, label):
    """A property of a model of the page."""
    return page.evaluate(f"Bokeh.documents[0].get_model_by_name({name!r}).{label}")


def wait_at_rest(page, model):
    """Wait until the page is redrawn with all draws and does not change; returns the condition shown."""
    wanted = f"num_draws={num_draws_of(model)})"
    text = "Bokeh.documents[0]?.get_model_by_name('trust')?.text"
    known = None
    while True:
        page.wait_for_function(f"{text}?.includes({wanted!r})", timeout=60_000)
        shown = re.search(r"model\.posterior\((.*), num_draws=(\d+)", property_of(page, "trust", "text"))
        if known is not None and shown[0] == known:
            lam, q, temperature = [*map(float, shown[1].split(", ")), 1.0][:3]
            return lam, q, temperature, int(shown[2])
        known = shown[0]
        page.wait_for_timeout(700)


def columns_of(page, source):
    """Columns of a data source of the page."""
    return page.evaluate(
        f"(() => {{const {{data}} = {source};"
        "const entries = data instanceof Map ? [...data] : Object.entries(data);"
        "return Object.fromEntries(entries.map(([k, v]) => [k, Array.from(v)]))})()"
    )


def listed(page):
    """The texts of the table of edges."""
    cells = "[...r.cells].map((c) => c.textContent)"
    shown = page.evaluate(
        "(() => {const v = Bokeh.index.find_one(Bokeh.documents[0].get_model_by_name('pairs'));"
        f"return [...v.shadow_el.querySelectorAll('tr')].map((r) => {cells})}})()"
    )
    head, *rows = shown
    names = ["row", "column", "association", "lower", "upper", "P(edge)"][: len(head)]
    assert [title.rstrip(" ▾▴") for title in head] == ["variable", "variable", "assoc.", "lower", "upper", "P(edge)"][
        : len(head)
    ]
    return pd.DataFrame(rows, columns=names)


def drawn(page):
    """Columns of the edges of the network; the first segments are the halo of the selected pair."""
    segments = "Bokeh.documents[0].get_model_by_name('network').renderers.filter(r => r.glyph.type == 'Segment')"
    return columns_of(page, f"{segments}[1].data_source")


def nodes_of(page):
    """Name of every node, and its position on the screen."""
    return page.evaluate(
        "(() => {const v = Bokeh.index.find_one(Bokeh.documents[0].get_model_by_name('network'));"
        "const {x, y} = v.el.getBoundingClientRect(); const f = v.frame;"
        "const d = v.model.renderers.map((r) => r.data_source.data).find((d) => d.name != null || d.get?.('name'));"
        "const get = (k) => Array.from(d.get?.(k) ?? d[k]);"
        "const [X, Y] = [get('x').map((a) => x + f.x_scale.compute(a)), get('y').map((a) => y + f.y_scale.compute(a))];"
        "return get('name').map((n, k) => [n, X[k], Y[k]])})()"
    )


def check_values(page, model):
    """Assert that table and headline are those of the posterior at the condition shown."""
    lam, q, temperature, num_draws = wait_at_rest(page, model)
    post = model.posterior(lam, q, temperature, num_draws=num_draws)
    table = post.summary()
    table = table[table["edge"]].set_index(["row", "column"])
    shown = pd.DataFrame({name: drawn(page)[name] for name in ("row", "column", "association", "lower", "upper")})
    shown = shown.set_index(["row", "column"]).loc[table.index]
    lower, upper = post.association_interval(0.9)
    column = {name: k for k, name in enumerate(post.names)}
    row = {post.names[k]: a for a, k in enumerate(post.query)}
    at = ([row[a] for a, _ in table.index], [column[b] for _, b in table.index])
    np.testing.assert_allclose(shown["association"], table["association"], atol=1e-9)
    np.testing.assert_allclose(shown["lower"], lower[at], atol=1e-9)
    np.testing.assert_allclose(shown["upper"], upper[at], atol=1e-9)
    assert property_of(page, "state", "text").startswith(f"<h2>{len(table)} edge")
    assert len(drawn(page)["x0"]) == len(table)
    # The cells, the strongest edge first.
    expected = pd.DataFrame({"association": table["association"], "lower": lower[at], "upper": upper[at]})
    expected = expected.map(lambda value: f"{round(value, 2) + 0.0:+.2f}").reset_index()
    if temperature == 1:
        expected["P(edge)"] = [f"{value:.2f}" for value in post.select_edges().probability[at]]
    order = np.argsort(table["association"].abs().to_numpy(), kind="stable")[::-1]
    pd.testing.assert_frame_equal(listed(page), expected.iloc[order].reset_index(drop=True), check_dtype=False)


def wait_for_change(page, text):
    """Wait until the text below the network has changed."""
    page.wait_for_function(f"Bokeh.documents[0].get_model_by_name('trust').text != {json.dumps(text)}", timeout=60_000)


def press(page, handle, key, times):
    page.locator(".noUi-handle").nth(handle).focus()
    for _ in range(times):
        page.keyboard.press(key)


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
