"""Results of a benchmark: printed as tables, and kept in a CSV file."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table


class Report:
    """Lines of results: printed as tables, item by item, and kept in a file, if one is given."""

    def __init__(self, console: Console, file: Path | None):
        self.console, self.file = console, file
        self.run = datetime.now().isoformat(timespec="seconds")
        self.lines: list[dict[str, Any]] = []

    def add(
        self,
        item: str,
        what: str,
        value: float,
        se: float | None = None,
        *,
        bar: str = "",
        digits: str = ".3f",
        setting: str = "",
        shown: bool = True,
    ) -> None:
        """One number.

        Parameters
        ----------
        item, what
            Where it belongs, and what it is.
        value, se
            The number and its standard error.
        bar
            "≤ 0.7" or "≥ 0.25" or nothing.
        digits
            Format of the value.
        setting
            How the model was fitted. An item whose lines have settings gets a column for each.
        shown
            Whether the item's table has it; the file always does.
        """
        line = {"run": self.run, "item": item, "what": what.strip(), "setting": setting, "value": value, "se": se}
        line["bar"] = bar
        if bar:
            limit = float(bar[1:])
            line["passed"] = bool(value <= limit if bar[0] == "≤" else value >= limit)
        self.lines.append(line | {"label": what if shown else "", "digits": digits})

    def finish(self, item: str, title: str, note: str = "") -> None:
        """Print the lines of an item and write them to the file."""
        self.console.print(f"[bold]{title}[/]", highlight=False)
        lines = [line for line in self.lines if line["item"] == item]
        shown = [line for line in lines if line["label"]]
        table = _by_setting(shown) if any(line["setting"] for line in shown) else _by_line(shown)
        self.console.print(table, *([note] if note else []), highlight=False)
        if self.file is None:
            return
        new = pd.DataFrame(lines).drop(columns=["label", "digits"])
        if self.file.exists():
            old = pd.read_csv(self.file)
            new = pd.concat([old[old["item"] != item], new]) if len(old) else new
        self.file.parent.mkdir(exist_ok=True)
        new.to_csv(self.file, index=False)


_MARKS = {True: "[green]✓[/]", False: "[red]✗[/]", None: ""}


def _by_line(lines: list[dict[str, Any]]) -> Table:
    """A row for each line."""
    table = Table()
    for column in ("", "measured", "±", "must be", ""):
        table.add_column(column, justify="right" if column else "left")
    for line in lines:
        se = "" if line["se"] is None else f"{line['se']:.2g}"
        mark = _MARKS[line.get("passed")]
        table.add_row(line["label"], format(line["value"], line["digits"]), se, line["bar"], mark)
    return table


def _by_setting(lines: list[dict[str, Any]]) -> Table:
    """A row for each quantity, a column for each setting; the bar is beside the number."""
    labels, settings = (list(dict.fromkeys(line[key] for line in lines)) for key in ("label", "setting"))
    cells = {(line["label"], line["setting"]): _cell(line) for line in lines}
    table = Table("")
    for setting in settings:
        table.add_column(setting, justify="right")
    for label in labels:
        table.add_row(label, *(cells.get((label, setting), "") for setting in settings))
    return table


def _cell(line: dict[str, Any]) -> str:
    se = "" if line["se"] is None else f" ± {line['se']:.2g}"
    bar = f"  {line['bar']} {_MARKS[line['passed']]}" if line["bar"] else ""
    return format(line["value"], line["digits"]) + se + bar
