"""The paper's experiments with our code: `ggmflow reproduce toy`, `edges`, `blanket`, `runtime`.

Every experiment is a module with `FULL` and `QUICK` settings and four functions:

    jobs(settings) -> list[Job]        the work, in pieces that are kept when finished
    figures(tables) -> {name: Figure}  drawn from the tables alone
    verdicts(tables) -> DataFrame      what was published, what we found, and what that means
    section(tables) -> str             its part of docs/results.md, from the tables alone
"""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from experiments.paper.record import carry_out, experiment, write_figures


def reproduce(
    name: str,
    output: Path,
    *,
    quick: bool = False,
    command: str = "",
    tell: Callable[[str, float | None], None] = lambda name, seconds: None,
) -> tuple[dict[str, pd.DataFrame], list[Path]]:
    """Do an experiment, or what is left of it, and draw its figures.

    Parameters
    ----------
    name
        toy, edges, blanket or runtime.
    output
        Its tables and figures go to the directory `output`/`name`.
    quick
        Small enough for a test; the numbers mean nothing.
    command
        That was typed, for the record.
    tell
        As in `record.carry_out`.

    Returns
    -------
    tables : dict of DataFrame
    figures : list of Path
    """
    module, directory = experiment(name), output / name
    settings = module.QUICK if quick else module.FULL
    tables = carry_out(directory, module.jobs(settings), settings._asdict(), command, tell)
    return tables, write_figures(directory, module.figures(tables))
