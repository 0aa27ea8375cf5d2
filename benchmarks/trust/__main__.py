"""Calibration, hostile input, faults, memory and sharding in one table.

    python -m benchmarks.trust [--only calibration,hostile,faults,memory,sharding] [--quick] [--write]

With --write the lines go to docs/tables/trust.csv, with the day and the versions for each item. One that is not
measured again keeps its lines, and the table of docs/trust.md is made from that file.
"""

import argparse
import csv
import platform
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.trust import Row, calibration, faults, hostile, memory, sharding
from ggmflow.storage.archive import versions

ITEMS: dict[str, Callable[[bool], list[Row]]] = {
    "calibration": calibration.measure,
    "hostile": hostile.measure,
    "faults": faults.measure,
    "memory": memory.measure,
    "sharding": sharding.measure,
}
FILE, PAGE = Path("docs/tables/trust.csv"), Path("docs/trust.md")
WHEN = "measured on, with"
BEGIN, END = "<!-- table of benchmarks.trust -->", "<!-- end of the table -->"


def main() -> None:
    """Print one table; exit with 1 if a requirement is not met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(ITEMS), help="items, separated by commas (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--write", action="store_true", help="into the documentation")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := sorted(set(wanted) - set(ITEMS)):
        parser.error(f"unknown item {', '.join(unknown)}: choose from {', '.join(ITEMS)}")
    if options.write and options.quick:
        parser.error("quick numbers are not for the documentation")
    found, console = {}, Console()
    for item in (item for item in ITEMS if item in wanted):
        begin = time.perf_counter()
        found[item] = ITEMS[item](options.quick)
        console.print(f"{item}: {(time.perf_counter() - begin) / 60:.1f} min", style="dim")
        if options.write:
            write({item: found[item]})  # kept even if the next item fails
    console.print(as_table(found))
    broken = [row.what for rows in found.values() for row in rows if row.holds is False]
    sys.exit(f"does not hold: {'; '.join(broken)}" if broken else None)


def as_table(found: dict[str, list[Row]]) -> Table:
    """The rows as a table for the terminal."""
    table = Table("", "measured", "result", "must be", "")
    for item, rows in found.items():
        for k, row in enumerate(rows):
            verdict = "" if row.holds is None else "holds" if row.holds else "[bold red]does not hold"
            table.add_row("" if k else item, row.what, row.value, row.bar, verdict)
        table.add_section()
    return table


def write(found: dict[str, list[Row]]) -> None:
    """Write the rows to the CSV file, and the table of that file to the page."""
    lines = {}
    if FILE.exists():
        with FILE.open(encoding="utf-8", newline="") as file:
            for item, *cells in list(csv.reader(file))[1:]:
                lines.setdefault(item, []).append(cells)
    for item, rows in found.items():
        lines[item] = [
            [row.what, row.value, row.bar, "" if row.holds is None else "yes" if row.holds else "no"]
            for row in (*rows, Row(WHEN, _today()))
        ]
    kept = [[item, *cells] for item in ITEMS for cells in lines.get(item, [])]
    with FILE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["item", "measured", "result", "must be", "holds"], *kept])
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{as_markdown(kept)}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def _today() -> str:
    """The date and the versions that results depend on."""
    known = versions()
    packages = ", ".join(f"{name} {known[name]}" for name in ("ggmflow", "jax", "numpy"))
    return f"{date.today()}, {packages}, Python {known['python']}, {platform.system()}"


def as_markdown(lines: list[list[str]]) -> str:
    """The table of the page in Markdown: the lines that something was promised of, and when they were measured."""
    rows = [["", "measured", "result", "must be", "holds"], ["---"] * 5]
    shown = [line for line in lines if line[3] or line[1] == WHEN]
    for k, (item, *cells) in enumerate(shown):
        rows.append(["" if k and shown[k - 1][0] == item else f"**{item}**", *cells])
    return "".join("|" + "|".join(cell.replace("|", "\\|") for cell in row) + "|\n" for row in rows)


if __name__ == "__main__":
    main()
