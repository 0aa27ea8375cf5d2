"""Reading the explorer's page in a browser: its texts, table and network, and models to show there."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from ggmflow.estimator import graphical_flow as estimator
from ggmflow.views.pairs import num_draws_of
from tests.support.models import no_training, quick

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
        patch.setattr(estimator, "fit_flow", no_training)
        return quick(**parameters).fit(pd.DataFrame(X, columns=names))


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
    """Press a key several times on the handle of a slider."""
    page.locator(".noUi-handle").nth(handle).focus()
    for _ in range(times):
        page.keyboard.press(key)
