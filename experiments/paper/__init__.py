"""The paper's experiments with our code: `python -m experiments.paper toy`, `edges`, `blanket`, `runtime`.

Every experiment is a package with `FULL` and `QUICK` settings and three functions:

    make_jobs(settings) -> list[Job]             pieces of the experiment; results of finished jobs are kept
    figures(tables) -> {name: Figure}            drawn from the tables alone
    page_tables(tables) -> {name: DataFrame}     short tables of docs/results.md, published numbers beside ours
"""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from experiments.paper.record import experiment, run_jobs, write_figures


def reproduce(
    name: str,
    output: Path,
    *,
    quick: bool = False,
    command: str = "",
    tell: Callable[[str, float | None], None] = lambda name, seconds: None,
) -> tuple[dict[str, pd.DataFrame], list[Path]]:
    """Run the unfinished jobs of an experiment and draw its figures.

    Parameters
    ----------
    name
        toy, edges, blanket or runtime.
    output
        Tables and figures are written to the directory `output`/`name`.
    quick
        Use sizes small enough for a test; the numbers mean nothing.
    command
        The command that was typed, for the record.
    tell
        Progress callback, see `record.run_jobs`.

    Returns
    -------
    tables : dict of DataFrame
    figures : list of Path
    """
    module, directory = experiment(name), output / name
    settings = module.QUICK if quick else module.FULL
    tables = run_jobs(directory, module.make_jobs(settings), settings._asdict(), command, tell)
    return tables, write_figures(directory, module.figures(tables))
