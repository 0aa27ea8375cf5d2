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

    def add(self, item: str, what: str, value: float, se: float | None = None, *, bar: str = "", digits: str = ".3f"):
        """One number; `bar` is "≤ 0.7" or "≥ 0.25" or nothing."""
        line = {"run": self.run, "item": item, "what": what.strip(), "value": value, "se": se, "bar": bar}
        if bar:
            limit = float(bar[1:])
            line["passed"] = bool(value <= limit if bar[0] == "≤" else value >= limit)
        self.lines.append(line | {"label": what, "digits": digits})

    def finish(self, item: str, title: str, note: str = "") -> None:
        """Print the lines of an item and write them to the file."""
        self.console.print(f"[bold]{title}[/]", highlight=False)
        table = Table()
        for column in ("", "measured", "±", "must be", ""):
            table.add_column(column, justify="right" if column else "left")
        lines = [line for line in self.lines if line["item"] == item]
        for line in (line for line in lines if line["label"]):
            se = "" if line["se"] is None else f"{line['se']:.2g}"
            mark = {True: "[green]✓[/]", False: "[red]✗[/]", None: ""}[line.get("passed")]
            table.add_row(line["label"], format(line["value"], line["digits"]), se, line["bar"], mark)
        self.console.print(table, *([note] if note else []), highlight=False)
        if self.file is None:
            return
        new = pd.DataFrame(lines).drop(columns=["label", "digits"])
        if self.file.exists():
            old = pd.read_csv(self.file)
            new = pd.concat([old[old["item"] != item], new]) if len(old) else new
        self.file.parent.mkdir(exist_ok=True)
        new.to_csv(self.file, index=False)
