"""The page of results, docs/results.md, from the tables of the experiments alone.

    python -m experiments.paper.page results docs/results.md

A test holds the page to the tables that are kept with the code.
"""

import sys
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.paper.record import EXPERIMENTS, experiment, read_about, read_tables
from experiments.paper.text import filled, markdown
from ggmflow.storage.replace import write_text

_OPENING = """# The paper's results, and ours

Every figure and number of the paper (Negri, Arend Torres and Roth, *Conditional Matrix Flows for Gaussian Graphical
Models*, NeurIPS 2023) obtained with this package, and comparisons that the paper did not make. This page is written by
a program from the tables that the commands below leave in `results/`; change those, not this file.

## Published and measured
"""


def write_page(results: Path, path: Path) -> None:
    """Write the page for the experiments whose tables are there.

    Parameters
    ----------
    results
        Directory with one directory for each experiment.
    path
        The Markdown file.
    """
    found = [name for name in EXPERIMENTS if (results / name / "about.json").exists()]
    if not found:
        raise FileNotFoundError(f"{results} holds no results; begin with: ggmflow reproduce toy")
    tables = {name: read_tables(results / name) for name in found}
    verdicts = pd.concat([experiment(name).verdicts(tables[name]) for name in found], ignore_index=True)
    parts = [_OPENING, markdown(list(verdicts.columns), verdicts.to_numpy().tolist()), ""]
    if missing := [f"`{name}`" for name in EXPERIMENTS if name not in found]:
        parts += [f"Still to be run: {', '.join(missing)}.", ""]
    for name in found:
        parts += [experiment(name).section(tables[name]).strip(), "", _made(read_about(results / name) or {}), ""]
    write_text(path, "\n".join(parts).rstrip() + "\n")


def _made(about: dict[str, Any]) -> str:
    seconds, versions = sum(about["seconds"].values()), about["versions"]
    of = ", ".join(f"{name} {version}" for name, version in versions.items())
    cores = "one core" if about["cores"] == 1 else f"{about['cores']} cores"
    made = f"*Made by `{about['command']}` in {seconds / 60:.0f} min on {cores}; {of}.*"
    # What a reader must know of how these tables came about, such as a change of the code that they led to.
    return f"{filled(about['remarks'])}\n\n{made}" if "remarks" in about else made


if __name__ == "__main__":
    write_page(Path(sys.argv[1]), Path(sys.argv[2]))
