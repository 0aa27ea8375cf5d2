"""The page in a browser: everything moves with the sliders, and nothing is loaded from elsewhere."""

import re

import numpy as np
import pandas as pd
import pytest

import ggmflow as gf
from ggmflow.report import text
from ggmflow.report.content import collect
from ggmflow.report.page import render
from tests.report.conftest import GRID, NASTY, posterior_at
from tests.support.browser import expecting
from tests.support.models import quick


def shown(page):
    """Edges as drawn: pair → (sign, width)."""
    found = page.eval_on_selector_all(
        "#graph .edge:not(.off)",
        "all => all.map(e => [e.dataset.pair, e.classList[1], e.getAttribute('stroke-width')])",
    )
    return {int(pair): (sign, float(width)) for pair, sign, width in found}


def table_of(page):
    """Rows of the table: (first, second) → mean, lower, upper, P(sign), P(large) as texts."""
    return {
        tuple(cells[:2]): cells[2:]
        for cells in page.eval_on_selector_all(
            "#table tbody tr",
            """rows => rows.map(row => [...[...row.querySelectorAll("bdi")].map(e => e.textContent),
               ...["mean-value", "interval-value", "sign-value", "large-value"].map(
                 name => row.querySelector("." + name).textContent)])""",
        )
    }


def to_numbers(text):
    return [float(each) for each in text.replace("−", "-").split(" … ")]


def open_report(page, path):
    """The page from its file; anything else that it asks for fails the test."""
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    assert asked == [path.as_uri()]


def check_against_api(page, model, content, i, j):
    """The table with all pairs says what the posterior at this point says; waits until the page shows this point."""
    expecting(page.locator("#here-lam")).to_have_text(text.number(content.lam[i]))
    expecting(page.locator("#here-q")).to_have_text(text.number(content.q[j]))
    post = posterior_at(model, content, i, j)
    association, (lower, upper) = post.association(), post.association_interval(0.9)
    row_of = {post.names[k]: row for row, k in enumerate(post.query)}
    rows = table_of(page)
    assert rows
    for (first, second), (mean, interval, sign, _) in rows.items():
        at = row_of[first], post.names.index(second)
        np.testing.assert_allclose(to_numbers(mean), association[at], atol=0.0051)
        np.testing.assert_allclose(to_numbers(interval), [lower[at], upper[at]], atol=0.0051)
        surer = max(post.sign_probability()[at], 1 - post.sign_probability()[at])
        assert abs(float(sign.strip(">% ")) - 100 * surer) < 1.01
    drawn = {(content.first[content.kept[k]], content.second[content.kept[k]]) for k in shown(page)}
    rows_of = dict(zip(post.query.tolist(), range(len(post.query)), strict=True))
    edges = post.edges()
    expected = {(a, b) for a, b in zip(content.first, content.second, strict=True) if edges[rows_of[a], b]}
    assert drawn == expected
    assert page.locator("#here-edges").text_content().startswith(f"{len(expected)} of ")


def test_sliders_update_table_and_network(page, small, tmp_path):
    model, content = small
    path = gf.write_report(model, tmp_path / "report.html", **GRID)
    open_report(page, path)
    page.check("#all")
    check_against_api(page, model, content, *content.start)
    for i, j in ((0, 0), (2, 1), (2, 0)):
        page.locator("#lam").fill(str(i))
        page.locator("#q").fill(str(j))
        check_against_api(page, model, content, i, j)
        expecting(page.locator("#lam-value")).to_have_text(text.number(GRID["lam"][i]))
        expecting(page.locator("#q")).to_have_attribute("aria-valuetext", text.number(GRID["q"][j]))
    page.select_option("#rule", label=text.RULE_NAMES["interval"])
    expecting(page.locator("#graph .edge:not(.off)")).to_have_count(content.at(2, 0).selections[1].n_edges)
    page.click("#home")
    expecting(page.locator("#lam-value")).to_have_text(text.number(content.lam[content.start[0]]))
    expecting(page.locator("#home")).to_be_disabled()


def test_keyboard_and_mouse_select_points_and_pairs(page, small, tmp_path):
    model, _ = small
    open_report(page, gf.write_report(model, tmp_path / "report.html", **GRID))
    page.check("#all")
    page.focus("#lam")
    page.keyboard.press("Home")
    expecting(page.locator("#lam-value")).to_have_text("0.8")
    at_low, low = shown(page), table_of(page)
    page.keyboard.press("End")
    expecting(page.locator("#lam-value")).to_have_text("24")
    assert table_of(page) != low and shown(page) != at_low
    page.locator(".cell[data-i='0'][data-j='1']").first.click()
    expecting(page.locator("#lam-value")).to_have_text("0.8")
    expecting(page.locator("#q-value")).to_have_text("1")
    curve = page.locator("#pair-curve .line")
    before = curve.get_attribute("d")
    buttons = page.locator("#table .pair")
    buttons.last.focus()
    page.keyboard.press("Enter")
    expecting(curve).not_to_have_attribute("d", before)
    assert page.evaluate("document.activeElement.className") == "pair"  # the keyboard stays where it was
    page.fill("#find", "MOOD")
    expecting(page.locator("#table tbody tr")).to_have_count(4)
    assert all("mood" in pair for pair in table_of(page))


def test_table_and_network_can_be_downloaded(page, small, tmp_path):
    model, content = small
    open_report(page, gf.write_report(model, tmp_path / "report.html", **GRID))
    page.check("#all")
    with page.expect_download() as found:
        page.click("#csv")
    table = pd.read_csv(found.value.path())
    values = content.selected.values[0]
    np.testing.assert_allclose(sorted(table["association"]), sorted(values), rtol=1e-3)
    with page.expect_download() as found:
        page.click("#svg")
    assert found.value.path().read_text("utf-8").startswith("<svg")


def test_names_with_markup_are_not_executed(page, nasty, tmp_path):
    page.on("dialog", lambda dialog: pytest.fail(f"a name was executed: {dialog.message}"))
    path = gf.write_report(nasty, tmp_path / "report.html", data_name=NASTY[1], lam=[1.0, 4.0], q=[0.5, 1.0])
    open_report(page, path)
    page.check("#all")
    page.locator("#lam").fill("1")
    assert page.title() == f"Network of {NASTY[1]}"
    assert {name for pair in table_of(page) for name in pair} == set(NASTY)
    assert page.locator("#graph .node title").all_text_contents() == NASTY
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate("document.querySelectorAll('script, img').length") == 2


@pytest.mark.slow
def test_query_among_hundreds_of_variables(page, tmp_path):
    X = np.random.default_rng(1).normal(size=(80, 300))
    X[:, :6] += X[:, 6:12] + 0.5 * X[:, 12:18]
    # Not at temperature 1: evidence would need a prior of 300 variables.
    block = quick(temperature=0.5, query=list(range(6)), lam=(4.0, 40.0)).fit(X)
    content, path = collect(block, [8.0, 30.0], [0.5, 1.0]), tmp_path / "report.html"
    path.write_text(render(block, content), "utf-8")
    open_report(page, path)
    assert len(content.first) == 15 + 6 * 294
    page.locator("#lam").fill("0")
    page.locator("#q").fill("1")
    check_against_api(page, block, content, 0, 1)
    joined = page.locator("#graph .node:not(.off)").count()
    assert 6 <= joined < 300
    page.fill("#find", "x7")
    assert all("x7" in " ".join(pair) for pair in table_of(page))


def test_page_without_javascript(browser, small, tmp_path):
    model, content = small
    path = gf.write_report(model, tmp_path / "report.html", **GRID)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator("noscript").is_visible() and "switched off" in page.locator("noscript").inner_text()
    assert not page.locator("#controls").is_visible() and not page.locator(".tools").is_visible()
    # Not ":visible": Playwright takes a horizontal line, which has no height, for hidden.
    displayed = page.locator("#graph .edge").evaluate_all("all => all.map(e => getComputedStyle(e).display)")
    assert sum(each != "none" for each in displayed) == content.selected.selections[0].n_edges
    assert page.locator("#table tbody tr").count() == content.selected.selections[0].n_edges
    assert page.locator("#pair-curve").is_visible() and page.locator("#here-badge").is_visible()
    context.close()


def test_script_draws_the_start_as_python_does(browser, small, tmp_path):
    """Python draws at the start the same as the script would."""
    model, _ = small
    path = gf.write_report(model, tmp_path / "report.html", **GRID)
    found = []
    for enabled in (False, True):
        context = browser.new_context(java_script_enabled=enabled)
        page = context.new_page()
        page.goto(path.as_uri())
        texts = [page.locator(f"#{name}").text_content() for name in ("here", "more", "pair-name", "rule-text")]
        rows = page.locator("#table tbody tr").all_text_contents()
        whiskers = [each.get_attribute("x1") for each in page.locator("#table tbody .whisker").all()]
        paths = [page.locator(f"#{name} .line").get_attribute("d") for name in ("pair-curve", "evidence-curve")]
        widths = sorted(each.get_attribute("stroke-width") for each in page.locator("#graph .edge").all())
        found.append((texts, rows, whiskers, paths, widths))
        context.close()
    assert found[0][:2] == found[1][:2]
    for one, other in zip(found[0][2:], found[1][2:], strict=True):
        content = [[float(x) for text in part for x in re.findall(r"-?\d+\.?\d*", text)] for part in (one, other)]
        np.testing.assert_allclose(*content, atol=0.25)  # the script has four digits


@pytest.mark.parametrize(("width", "media"), [(1280, "screen"), (390, "screen"), (690, "print")])
def test_page_fits_screens_and_paper(browser, small, tmp_path, width, media):
    model, _ = small
    path = gf.write_report(model, tmp_path / "report.html", data_name="table.csv", **GRID)
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(path.as_uri())
    page.emulate_media(media=media)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    outside = page.evaluate(
        """[...document.querySelectorAll("main *")].filter(e => !e.closest("svg, .scroll, pre, [hidden]") &&
           e.getBoundingClientRect().right > window.innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert outside == []
    if media == "print":
        assert not page.locator("#controls").is_visible()
        assert len(page.pdf(format="A4", print_background=True)) > 20_000
    page.close()
