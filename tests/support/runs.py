"""A fit into a run directory, and the files of a finished one."""

import ggmflow as gf
from ggmflow.cli.run import fit_run
from ggmflow.cli.run_record import (
    EDGES,
    MODEL,
    README,
    RECORD,
    describe_file,
)
from ggmflow.data.scatter import Scatter
from ggmflow.train.loop import CHUNK

FINISHED = {".lock", EDGES, MODEL, README, RECORD}
COMMAND = "ggmflow fit table.csv"


def fit(path, table, resume=False, force=False, drop=(), **parameters):
    """Fit at one condition: there is no choice of λ and q, so no prior is fitted."""
    ranges = {"lam": 2.0, "q": 1.0}
    given = {**ranges, "steps": CHUNK, "pretrained": False, "random_state": 0, "progress": False, **parameters}
    about = describe_file(table) | {"delimiter": ",", "decimal": ".", "drop": list(drop)}
    model, scatter = gf.GraphicalFlow(**given), Scatter.from_data(table, drop=drop)
    return fit_run(model, scatter, path, about, COMMAND, resume=resume, force=force)


def files_of(path):
    return {entry.name for entry in path.iterdir()} if path.is_dir() else set()
