"""Reports: numbers equal to the Python API, names that are only text, and the page in a browser without a network."""

import base64
import dataclasses
import hashlib
import html
import html.parser
import json
import os
import re
import warnings

import numpy as np
import pandas as pd
import pytest

import ggmflow as gf
from ggmflow.estimator import graphical_flow as estimator
from ggmflow.evidence import prior
from ggmflow.report import text as words
from ggmflow.report.content import RULES, Point, _keep, collect
from ggmflow.report.page import for_script, render, to_json
from tests.support.models import TABLE, no_training, quick

NASTY = [
    "<script>alert(1)</script>",
    "</script><script>document.title='owned'</script>",
    "<!--<img src=x onerror=document.title='owned'>",
    "\"'&amp; \u2028 ${x} $title \\u003c \u202eback",
    "long " * 30,
]
FIVE = ["tension", "pulse", "sleep", "age", "mood"]
GRID = {"lam": [0.8, 4.0, 24.0], "q": [0.4, 1.0]}


class Elements(html.parser.HTMLParser):
    """Names of all elements of a page, and the text of its JSON island."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.island, self._inside = [], [], "", False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self._inside = ("id", "numbers") in attrs

    def handle_data(self, data):
        self.island += data if self._inside else ""
        self._inside = False


@pytest.fixture(scope="module", autouse=True)
def untrained():
    """Flows as they start, which are near the posterior; the prior's too, so that evidence is there but rough."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimator, "train", no_training)
        patch.setattr(prior, "train", no_training)
        patch.setattr(prior, "_known", {})
        patch.setattr(prior, "_cache_path", lambda *_: None)
        yield


def five_variables(names):
    X = np.array(gf.simulate.toy_problem(5, 60, random_state=3)[0])
    X[:, 1] += 0.9 * X[:, 0]
    X[:, 3] += 0.5 * X[:, 2]
    X[:, 4] -= 0.7 * X[:, 2]
    return pd.DataFrame(X, columns=names)


@pytest.fixture(scope="module")
def small(untrained):
    """A model of five variables, some of them linked, with its report's numbers on a small grid."""
    fitted = quick(temperature=1.0, lam=(0.5, 30.0)).fit(five_variables(FIVE))
    return fitted, collect(fitted, **GRID)


@pytest.fixture(scope="module")
def nasty(untrained):
    return quick(temperature=1.0, lam=(0.5, 30.0)).fit(five_variables(NASTY))


def posterior_at(model, numbers, i, j):
    """What Python says; the page says itself where a fit is poor."""
    post = model.posterior(numbers.lam[i], numbers.q[j], numbers.temperature, num_draws=numbers.num_draws)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gf.PoorFitWarning)
        post.mean()  # it warns once
    return post


def island_of(text):
    return json.loads(Elements(text).island)


# -------------------------------------------------------------------------------------------------------------- numbers
def test_numbers_are_those_of_the_api(small):
    model, numbers = small
    for i, j in ((0, 0), (2, 1), (1, 0)):
        post = posterior_at(model, numbers, i, j)
        pairs = (numbers.first, numbers.second)
        lower, upper = post.association_interval(0.9)
        expected = [post.association(), lower, upper, post.sign_probability(), post.edge_probability()]
        point = numbers.at(i, j)
        np.testing.assert_allclose(point.values, [matrix[pairs] for matrix in expected], rtol=1e-12)
        for k, rule in enumerate(RULES):
            np.testing.assert_array_equal(point.edges[k], post.edges(rule=rule)[pairs])
        assert point.ess == post.diagnostics()["ess"]


def test_grid_runs_through_the_selected_point(small):
    full, _ = small
    numbers = collect(full)
    i, j = numbers.start
    assert numbers.lam[i] == pytest.approx(full.lam_, rel=1e-12) and numbers.q[j] == pytest.approx(full.q_, rel=1e-12)
    assert (numbers.lam[0], numbers.lam[-1]) == pytest.approx(full.lam_range_)
    assert np.all(np.diff(numbers.lam) > 0) and np.all(np.diff(numbers.q) > 0) and len(numbers.lam) <= 13
    table = full.evidence(numbers.lam[i], numbers.q[j], exact=False, num_draws=1000)
    assert numbers.selected.evidence == pytest.approx(float(table["log_evidence"].iloc[0]))
    assert numbers.below_best()[i, j] > -1  # the choice was made on another grid
    assert any("most probable" in text for text in words.selection(numbers))


def test_given_grid_starts_at_its_best_point(small):
    _, numbers = small
    assert not numbers.starts_at_choice and numbers.below_best()[numbers.start] == 0
    assert any("not on the grid" in text for text in words.selection(numbers))


def test_island_holds_the_numbers_with_four_digits(small):
    model, numbers = small
    text = render(model, numbers, "table.csv")
    island = island_of(text)
    assert island["names"] == FIVE and island["lam"] == GRID["lam"] and island["q"] == GRID["q"]
    np.testing.assert_allclose(island["fields"]["association"], numbers.field("association"), rtol=5e-4)
    bits = np.array(island["fields"]["edge"])
    for k in range(len(RULES)):
        np.testing.assert_array_equal(bits >> k & 1, [point.edges[k] for point in numbers.points])
    assert island == json.loads(json.dumps(for_script(numbers, tuple(FIVE), [0, 1, 2, 3, 4])))


# ------------------------------------------------------------------------------------------------------------- the file
def test_written_whole_or_not_at_all(small, tmp_path, monkeypatch):
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


def test_refusals_come_before_the_work(small, tmp_path, monkeypatch):
    model, _ = small
    monkeypatch.setattr("ggmflow.report.content._look", None)
    with pytest.raises(FileNotFoundError, match="make it first"):
        gf.write_report(model, tmp_path / "nowhere" / "report.html")
    with pytest.raises(IsADirectoryError, match=r"report\.html"):
        gf.write_report(model, tmp_path)
    with pytest.raises(ValueError, match="outside the fitted range"):
        gf.write_report(model, tmp_path / "report.html", lam=[1.0, 100.0])
    with pytest.raises(ValueError, match="positive number"):
        gf.write_report(model, tmp_path / "report.html", q=[])
    with pytest.raises(ValueError, match="not fitted"):
        gf.write_report(gf.GraphicalFlow(), tmp_path / "report.html")
    assert not os.listdir(tmp_path)


def test_names_are_only_text(nasty):
    text = render(nasty, collect(nasty, [1.0, 4.0], 1.0), NASTY[0])
    elements = Elements(text)
    assert elements.tags.count("script") == 2 and "img" not in elements.tags
    assert not [name for name, _ in elements.attributes if name.startswith("on")]
    assert island_of(text)["names"] == NASTY
    assert "\u2028" not in re.search(r'id="numbers">(.*?)</script>', text, re.S)[1]
    addresses = [value for name, value in elements.attributes if name in ("src", "href", "action")]
    assert all(value.startswith("#") for value in addresses)


def test_json_cannot_leave_its_element():
    for text in [*NASTY, "\ud800", "]]>", "--!>"]:
        written = to_json({"name": text})
        assert json.loads(written) == {"name": text}
        assert written.isascii() and not set(written) & set("<>&")


def test_script_is_the_one_that_the_policy_allows(small):
    text = render(*small)
    policy = dict(part.split(" ", 1) for part in re.search(r'Security-Policy" content="(.*?)"', text)[1].split("; "))
    script = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert len(script) == 1
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert policy["script-src"] == f"'sha256-{digest}'" and policy["default-src"] == "'none'"
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


# ------------------------------------------------------------------------------------------------------- special models
def test_without_temperature_one(tmp_path):
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


def test_two_variables(tmp_path):
    two = quick(temperature=1.0, q=1.0).fit(TABLE[["a", "b"]])
    island = island_of(gf.write_report(two, tmp_path / "two.html", lam=[1, 4]).read_text("utf-8"))
    assert island["n_pairs"] == 1 and island["pairs"] == [[0, 1, 1]] and len(island["points"]) == 2


def test_no_edges_anywhere(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 4))
    none = quick(temperature=1.0, lam=(20.0, 50.0), q=0.5).fit(X)
    text = gf.write_report(none, tmp_path / "none.html", lam=[30.0, 50.0]).read_text("utf-8")
    assert "show no network" in text and "No edges here" in text


@pytest.mark.parametrize(
    "kind", [{"architecture": "paper", "temperature": (0.3, 1.0)}, {"query": ["c", "a"], "temperature": 1.0}]
)
def test_other_models(kind, tmp_path):
    other = quick(**kind).fit(TABLE)
    text = gf.write_report(other, tmp_path / "other.html", lam=[1.0, 4.0], q=[0.5]).read_text("utf-8")
    island, blanket = island_of(text), "query" in kind
    assert island["blanket"] == blanket and len(island["pairs"]) == (5 if blanket else 6)
    assert f"with the {other.flow_.architecture} architecture" in text


def test_page_says_what_it_leaves_out(small, monkeypatch):
    monkeypatch.setattr("ggmflow.report.content._KEPT", 12)
    model, _ = small
    numbers = collect(model, **GRID)
    assert len(numbers.kept) == 2
    text, count = render(model, numbers), numbers.selected.selections[0].n_edges
    assert count > 2 and "holds 2 of the 10 pairs" in text
    assert f"{count} of 10 pairs (2 of them are drawn)" in text
    assert f"2 edges. This page holds 2 of the {count} edges of this point." in text


def a_point(associations, edges):
    """A point with these associations and edges, by all rules, and nothing else."""
    values = np.tile(np.asarray(associations, float), (5, 1))
    return Point(values, [], np.tile(np.asarray(edges, bool), (3, 1)), 0.1, 0.9, "good", 0.0, 0.0, True)


def test_page_keeps_the_edges_of_its_start_first(monkeypatch):
    """Whatever is stronger elsewhere; then all points take turns."""
    start = a_point([0.2, 0.1, 0.3, 0.0, 0.0, 0.0, 0.4], [1, 1, 0, 0, 0, 0, 0])
    wild = a_point([0.1, 0.1, 0.1, 0.9, 0.8, 0.1, 0.1], [0, 0, 0, 1, 1, 0, 0])
    calm = a_point([0.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.0], [0, 0, 0, 0, 0, 1, 0])
    points, found = [wild, start, calm], []
    for room in range(1, 8):
        monkeypatch.setattr("ggmflow.report.content._KEPT", 3 * room)
        found.append(_keep(points, start).tolist())
    assert found[:2] == [[0], [0, 1]]  # the strongest of its edges, both of them
    assert found[3] == [0, 1, 3, 5]  # the strongest edge of each of the others
    assert found[4] == [0, 1, 3, 4, 5] and found[6] == list(range(7))


def test_strongest_edge_is_taken_from_all_edges_of_the_point(small):
    """Also where the page lacks it, and where a pair that is no edge is stronger."""
    _, numbers = small
    point = a_point(np.r_[0.9, -0.5, 0.4, np.zeros(7)], np.r_[0, 1, 1, np.zeros(7)])
    points = [point if k == numbers.start[0] * 2 + numbers.start[1] else each for k, each in enumerate(numbers.points)]
    changed = numbers._replace(points=points, kept=np.array([0, 2, 5]))
    assert words.strongest(changed) == 1 and words.shown_first(changed) == 1 and changed.kept[1] == 2
    alone = numbers._replace(points=[a_point(np.linspace(0, 1, 10), np.zeros(10))] * 6, kept=np.array([3, 7]))
    assert words.strongest(alone) is None and words.shown_first(alone) == 1


def test_few_effective_draws_are_not_called_uncorrectable(small):
    _, numbers = small
    fair = numbers.selected._replace(ess=0.05, khat=0.3, verdict="fair")
    assert "50 of 1000 draws are effective" in words.trust(fair, numbers)
    assert "Few draws would count" in words.trust(fair, numbers) and "too far" not in words.trust(fair, numbers)
    assert "Weights cannot correct the fitted distribution here" in words.trust(fair._replace(verdict="poor"), numbers)


def test_verdicts_of_a_report_are_those_of_the_posterior(small):
    model, numbers = small
    for i, j in ((0, 0), (2, 1)):
        post, point = posterior_at(model, numbers, i, j), numbers.at(i, j)
        assert post.diagnostics()["message"].startswith(f"{words.VERDICTS[point.verdict]} fit")


@pytest.mark.parametrize("seed", [np.int64(3), np.random.RandomState(0), np.random.default_rng(0), None])
def test_code_of_the_page_runs(tmp_path, monkeypatch, seed):
    """Parameters of any type that the estimator takes become code; a fit with a seed gives the same numbers."""
    monkeypatch.chdir(tmp_path)
    five_variables(FIVE).to_csv("five.csv", index=False)
    given = {"lam": (np.float64(0.5), np.float64(30.0)), "q": np.array([0.4, 1.0]), "temperature": np.float32(1.0)}
    given |= {"query": pd.Index(["pulse", "sleep"]), "standardize": np.True_, "random_state": seed}
    model = quick(**given).fit("five.csv")
    numbers = collect(model, [np.float64(1.0), 4.0], [0.5])
    code = html.unescape(re.search(r"<pre>(import ggmflow.*?)</pre>", render(model, numbers, "five.csv"), re.S)[1])
    assert ("random_state=3)" in code) == (seed is not None and seed == 3) == ("had no seed" not in code)
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gf.PoorFitWarning)
        exec(compile(code, "report", "exec"), found)
    again, post = found["model"], found["post"]
    assert (again.lam_range_, again.q_range_, again.steps) == (model.lam_range_, model.q_range_, model.steps)
    assert [FIVE[k] for k in post.query] == ["pulse", "sleep"] and post.num_draws == numbers.num_draws
    if seed is not None and seed == 3:
        rows = [{1: 0, 2: 1}[k] for k in numbers.first]
        np.testing.assert_allclose(post.association()[rows, numbers.second], numbers.selected.values[0], rtol=1e-6)


def test_words():
    assert words.evidence(0.0) == "the highest of this grid"
    assert words.evidence(-np.log(20)).endswith("the data are 20 times less probable")
    assert words.evidence(-50.0).endswith("more than 10 000 times less probable")
    assert [words.step(value) for value in (0.0, -2.0, -4.0, -6.0, -60.0, np.nan)] == [0, 1, 2, 3, 4, 4]
    assert [words.percent(value) for value in (0, 0.001, 0.5, 0.999, 1)] == ["0 %", "<1 %", "50 %", ">99 %", "100 %"]
    assert [words.number(value) for value in (0.12345, 1.0, 1234.5)] == ["0.123", "1", "1230"]
    assert words.signed(-0.123) == "−0.12" and words.count(1, "edge") == "1 edge"


# ---------------------------------------------------------------------------------------------------------- the browser
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


def check_against_api(page, model, numbers, i, j):
    """The table with all pairs says what the posterior at this point says."""
    post = posterior_at(model, numbers, i, j)
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
    drawn = {(numbers.first[numbers.kept[k]], numbers.second[numbers.kept[k]]) for k in shown(page)}
    rows_of = dict(zip(post.query.tolist(), range(len(post.query)), strict=True))
    edges = post.edges()
    expected = {(a, b) for a, b in zip(numbers.first, numbers.second, strict=True) if edges[rows_of[a], b]}
    assert drawn == expected
    assert page.locator("#here-edges").text_content().startswith(f"{len(expected)} of ")


def test_sliders_move_everything(page, small, tmp_path):
    model, numbers = small
    path = gf.write_report(model, tmp_path / "report.html", **GRID)
    open_report(page, path)
    page.check("#all")
    check_against_api(page, model, numbers, *numbers.start)
    for i, j in ((0, 0), (2, 1), (2, 0)):
        page.locator("#lam").fill(str(i))
        page.locator("#q").fill(str(j))
        check_against_api(page, model, numbers, i, j)
        assert float(page.locator("#lam-value").text_content()) == GRID["lam"][i]
        assert page.get_attribute("#q", "aria-valuetext") == f"{GRID['q'][j]:g}"
    page.select_option("#rule", label=words.RULE_NAMES["interval"])
    assert len(shown(page)) == numbers.at(2, 0).selections[1].n_edges
    page.click("#home")
    assert float(page.locator("#lam-value").text_content()) == pytest.approx(numbers.lam[numbers.start[0]])
    assert page.is_disabled("#home")


def test_keyboard_and_clicks(page, small, tmp_path):
    model, _ = small
    open_report(page, gf.write_report(model, tmp_path / "report.html", **GRID))
    page.check("#all")
    page.focus("#lam")
    page.keyboard.press("Home")
    at_low, low = shown(page), table_of(page)
    page.keyboard.press("End")
    assert page.locator("#lam-value").text_content() == "24"
    assert table_of(page) != low and shown(page) != at_low
    page.locator(".cell[data-i='0'][data-j='1']").first.click()
    assert page.locator("#lam-value").text_content() == "0.8" and page.locator("#q-value").text_content() == "1"
    before = page.get_attribute("#pair-curve .line", "d")
    buttons = page.locator("#table .pair")
    buttons.last.focus()
    page.keyboard.press("Enter")
    assert page.get_attribute("#pair-curve .line", "d") != before
    assert page.evaluate("document.activeElement.className") == "pair"  # the keyboard stays where it was
    page.fill("#find", "MOOD")
    assert all("mood" in pair for pair in table_of(page)) and len(table_of(page)) == 4


def test_downloads(page, small, tmp_path):
    model, numbers = small
    open_report(page, gf.write_report(model, tmp_path / "report.html", **GRID))
    page.check("#all")
    with page.expect_download() as found:
        page.click("#csv")
    table = pd.read_csv(found.value.path())
    values = numbers.selected.values[0]
    np.testing.assert_allclose(sorted(table["association"]), sorted(values), rtol=1e-3)
    with page.expect_download() as found:
        page.click("#svg")
    assert found.value.path().read_text("utf-8").startswith("<svg")


def test_nasty_names_in_a_browser(page, nasty, tmp_path):
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


def test_query_block_of_hundreds(page, tmp_path):
    X = np.random.default_rng(1).normal(size=(80, 300))
    X[:, :6] += X[:, 6:12] + 0.5 * X[:, 12:18]
    # Not at temperature 1: evidence would need a prior of 300 variables.
    block = quick(temperature=0.5, query=list(range(6)), lam=(4.0, 40.0)).fit(X)
    numbers, path = collect(block, [8.0, 30.0], [0.5, 1.0]), tmp_path / "report.html"
    path.write_text(render(block, numbers), "utf-8")
    open_report(page, path)
    assert len(numbers.first) == 15 + 6 * 294
    page.locator("#lam").fill("0")
    page.locator("#q").fill("1")
    check_against_api(page, block, numbers, 0, 1)
    joined = page.locator("#graph .node:not(.off)").count()
    assert 6 <= joined < 300
    page.fill("#find", "x7")
    assert all("x7" in " ".join(pair) for pair in table_of(page))


def test_without_javascript(browser, small, tmp_path):
    model, numbers = small
    path = gf.write_report(model, tmp_path / "report.html", **GRID)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator("noscript").is_visible() and "switched off" in page.locator("noscript").inner_text()
    assert not page.locator("#controls").is_visible() and not page.locator(".tools").is_visible()
    assert page.locator("#graph .edge:visible").count() == numbers.selected.selections[0].n_edges
    assert page.locator("#table tbody tr").count() == numbers.selected.selections[0].n_edges
    assert page.locator("#pair-curve").is_visible() and page.locator("#here-badge").is_visible()
    context.close()


def test_static_page_and_script_agree(browser, small, tmp_path):
    """What Python draws at the start is what the script would draw there."""
    model, _ = small
    path = gf.write_report(model, tmp_path / "report.html", **GRID)
    found = []
    for enabled in (False, True):
        context = browser.new_context(java_script_enabled=enabled)
        page = context.new_page()
        page.goto(path.as_uri())
        texts = [page.locator(f"#{name}").text_content() for name in ("here", "more", "pair-name", "rule-words")]
        rows = page.locator("#table tbody tr").all_text_contents()
        whiskers = [each.get_attribute("x1") for each in page.locator("#table tbody .whisker").all()]
        paths = [page.locator(f"#{name} .line").get_attribute("d") for name in ("pair-curve", "evidence-curve")]
        widths = sorted(each.get_attribute("stroke-width") for each in page.locator("#graph .edge").all())
        found.append((texts, rows, whiskers, paths, widths))
        context.close()
    assert found[0][:2] == found[1][:2]
    for one, other in zip(found[0][2:], found[1][2:], strict=True):
        numbers = [[float(x) for text in part for x in re.findall(r"-?\d+\.?\d*", text)] for part in (one, other)]
        np.testing.assert_allclose(*numbers, atol=0.25)  # the script has four digits


@pytest.mark.parametrize(("width", "media"), [(1280, "screen"), (390, "screen"), (690, "print")])
def test_nothing_is_cut_off(browser, small, tmp_path, width, media):
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


# ----------------------------------------------------------------------------------------------------------- data check
def section(page, name):
    return html.unescape(re.search(rf'<section id="{name}">(.*?)</section>', page, re.S)[1])


def test_a_report_says_that_nothing_unusual_was_found(small):
    model, numbers = small
    page = render(model, numbers)
    assert "60 rows of 5 variables before the fit: nothing unusual was found." in section(page, "check")
    assert '<a href="#check">' in page


def test_a_report_tells_what_the_data_check_has_found(untrained):
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
    assert "Columns 'pulse' and '<b>copy</b>' are identical (r = 1.000)" in told
    assert "Row 7 alone moves the correlation of" in told
    assert 'Read the <a href="#check">data check</a> first' in page
    assert "transform='nonparanormal' in Python, --transform nonparanormal on the command line" in told


def test_a_report_of_an_earlier_model_has_no_data_check(small):
    model, numbers = small
    scatter = model.scatter_
    model.scatter_ = dataclasses.replace(scatter, check=None)
    try:
        page = render(model, numbers)
        assert "The data were not checked" in section(page, "check") and 'href="#check">data check' not in page
    finally:
        model.scatter_ = scatter
