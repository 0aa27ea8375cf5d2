"""The table of promises on the page about trust is what was measured."""

import csv
import re
from pathlib import Path

import benchmarks.trust.__main__ as trust
from benchmarks.trust import Row

ROOT = Path(__file__).parents[2]


def measured():
    with (ROOT / trust.FILE).open(encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["item", "measured", "result", "must be", "holds"]
    return lines


def test_every_promise_was_measured_and_holds():
    """A number that came out badly is mended, or the promise is taken back: it does not stay on the page as a no."""
    lines = measured()
    assert not [line for line in lines if line[4] not in ("yes", "")]
    assert {item for item, *_, holds in lines if holds == "yes"} == set(trust.ITEMS)
    assert [item for item, what, *_ in lines if what == trust.WHEN] == list(trust.ITEMS)


def test_the_page_has_what_was_measured():
    lines = measured()
    page = (ROOT / trust.PAGE).read_text(encoding="utf-8")
    assert page.split(trust.BEGIN)[1].split(trust.END)[0].strip() == trust.as_markdown(lines).strip()


def test_an_item_that_is_not_measured_again_keeps_its_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "FILE", tmp_path / "trust.csv")
    monkeypatch.setattr(trust, "PAGE", tmp_path / "trust.md")
    trust.PAGE.write_text(f"before\n{trust.BEGIN}\n{trust.END}\nafter\n", encoding="utf-8")
    trust.write({"faults": [Row("kills", "12, none lost", "none", True)]})
    trust.write({"calibration": [Row("p | d = 3", "0.2", "≥ 0.01", True), Row("seconds", "9")]})
    trust.write({"faults": [Row("kills", "12, one lost", "none", False)]})
    page = trust.PAGE.read_text(encoding="utf-8")
    assert page.startswith("before\n") and page.endswith("\nafter\n")
    now = r"\|20\d\d-\d\d-\d\d, ggmflow [\d.]+\S*, jax [\d.]+, numpy [\d.]+, Python [\d.]+\S*, \w+\|"
    rows = [re.sub(now, "|now|", line) for line in page.splitlines() if line.startswith("|")][2:]
    assert rows == [
        "|**calibration**|p \\| d = 3|0.2|≥ 0.01|yes|",
        "||measured on, with|now|||",
        "|**faults**|kills|12, one lost|none|no|",
        "||measured on, with|now|||",
    ]
