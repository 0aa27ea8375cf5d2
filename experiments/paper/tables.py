"""Write the tables of docs/results.md from the tables of the experiments.

    python -m experiments.paper.tables

A block between `<!-- table: name -->` and `<!-- end -->` is replaced by the table of that name; all other text of the
page is written by hand.
"""

import re
from pathlib import Path

import pandas as pd

from experiments.paper.record import EXPERIMENTS, RESULTS, experiment, read_tables
from ggmflow.storage.replace import write_text

PAGE = Path(__file__).parents[2] / "docs" / "results.md"
_BLOCK = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def page_tables(results: Path = RESULTS) -> dict[str, pd.DataFrame]:
    """Tables of the page by name, from the results of all experiments."""
    found = {}
    for name in EXPERIMENTS:
        found |= experiment(name).page_tables(read_tables(results / name))
    return found


def with_tables(page: str, tables: dict[str, pd.DataFrame]) -> str:
    """The page with every block replaced by its table.

    Raises
    ------
    KeyError
        If a block names a table that does not exist.
    """
    return _BLOCK.sub(lambda block: f"{block[1]}\n{as_markdown(tables[block['name']])}\n\n{block[3]}", page)


def without_tables(page: str) -> str:
    """The text of the page alone."""
    return _BLOCK.sub("", page)


def as_markdown(table: pd.DataFrame) -> str:
    """A table of text cells in Markdown; bars within cells are escaped."""
    lines = [list(table.columns), ["---"] * len(table.columns), *table.to_numpy().tolist()]
    return "\n".join("|" + "|".join(str(cell).replace("|", r"\|") for cell in line) + "|" for line in lines)


def main() -> None:
    """Rewrite the page."""
    write_text(PAGE, with_tables(PAGE.read_text(encoding="utf-8"), page_tables()))


if __name__ == "__main__":
    main()
