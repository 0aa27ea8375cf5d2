"""The table of promises on the page about trust is what was measured."""

import csv
from pathlib import Path

import benchmarks.trust.__main__ as trust
from benchmarks.trust import Row

ROOT = Path(__file__).parents[2]


def test_the_page_has_what_was_measured():
    with (ROOT / trust.FILE).open(encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["item", "measured", "result", "must be", "holds"] and lines
    assert {item for item, *_ in lines} <= set(trust.ITEMS)
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
    rows = [line for line in page.splitlines() if line.startswith("|")][2:]
    assert rows == [
        "| **calibration** | p \\| d = 3 | 0.2 | ≥ 0.01 | yes |",
        "|  | seconds | 9 |  |  |",
        "| **faults** | kills | 12, one lost | none | no |",
    ]
