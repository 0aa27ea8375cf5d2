"""Tables of an experiment, written job by job: finished jobs are not run again.

    directory/about.json     command, settings, versions, cores, seconds of every finished job
    directory/<table>.csv    rows of all jobs; the column `job` says whose

Figures are drawn from the tables, so they can be drawn again without running the jobs.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import joblib
import pandas as pd
from matplotlib.figure import Figure

from ggmflow.storage.archive import versions
from ggmflow.storage.replace import replacing, write_text

EXPERIMENTS = ("toy", "edges", "blanket", "runtime")
RESULTS = Path(__file__).parent / "results"
ABOUT = "about.json"
LARGEST_FIGURE = 200_000  # bytes


def experiment(name: str) -> Any:
    """The package of an experiment; imported here, because all of them import this module."""
    from experiments.paper import blanket, edges, runtime, toy

    return {"toy": toy, "edges": edges, "blanket": blanket, "runtime": runtime}[name]


class Job(NamedTuple):
    """A piece of an experiment that runs at once.

    Attributes
    ----------
    name : str
        Unique in the experiment: "n = 15, truth 3".
    run : callable
        Called without arguments; returns the rows to add to each table.
    """

    name: str
    run: Callable[[], Mapping[str, pd.DataFrame]]


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """The result of a call, and its wall time in seconds."""
    begin = time.perf_counter()
    result = jax.block_until_ready(call())
    return result, time.perf_counter() - begin


class OtherSettingsError(ValueError):
    """A directory holds results of other settings.

    Attributes
    ----------
    directory : Path
    """

    def __init__(self, directory: Path):
        super().__init__(f"{directory} holds results of other settings; choose another directory, or remove it")
        self.directory = directory


def run_jobs(
    directory: Path,
    jobs: Iterable[Job],
    settings: Mapping[str, Any],
    command: str,
    tell: Callable[[str, float | None], None] = lambda name, seconds: None,
) -> dict[str, pd.DataFrame]:
    """Run the jobs that are not finished yet, and return all tables.

    Parameters
    ----------
    directory
        Created if it does not exist.
    jobs
        In the order in which they run.
    settings
        All settings that the numbers depend on; plain values that JSON can store.
    command
        The command that was typed.
    tell
        Called with a job's name and None when it begins, and with its seconds when it is finished.

    Raises
    ------
    OtherSettingsError
        If the directory holds results of other settings.
    """
    directory.mkdir(parents=True, exist_ok=True)
    asked = json.loads(json.dumps(dict(settings)))
    new = {"command": command, "settings": asked, "versions": versions(), "cores": joblib.cpu_count(), "seconds": {}}
    about = read_about(directory) or new
    if about["settings"] != asked:
        raise OtherSettingsError(directory)
    tables = read_tables(directory)
    for job in jobs:
        if job.name in about["seconds"]:
            continue
        tell(job.name, None)
        start = time.perf_counter()
        for table, rows in job.run().items():
            tables[table] = _with_rows(tables.get(table), job.name, rows)
            with replacing(directory / f"{table}.csv") as temporary:
                tables[table].to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
        # Written after the rows: a job killed in between runs again, and its rows are replaced.
        about["seconds"][job.name] = round(time.perf_counter() - start, 1)
        write_text(directory / ABOUT, json.dumps(about, indent=1, ensure_ascii=False) + "\n")
        tell(job.name, about["seconds"][job.name])
    return read_tables(directory)  # rounded as in the files, so that figures are the same when drawn again


def _with_rows(table: pd.DataFrame | None, job: str, rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows.copy()
    rows.insert(0, "job", job)
    return rows if table is None else pd.concat([table.loc[table["job"] != job], rows], ignore_index=True)


def read_about(directory: Path) -> dict[str, Any] | None:
    """Command, settings, versions and times of the results in a directory; None if there are none."""
    path = directory / ABOUT
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def read_tables(directory: Path) -> dict[str, pd.DataFrame]:
    """All tables of a directory, by name."""
    return {path.stem: pd.read_csv(path) for path in sorted(directory.glob("*.csv"))}


def write_figures(directory: Path, figures: Mapping[str, Figure]) -> list[Path]:
    """Write figures as PNG; raise if one is too large to be kept with the code.

    Parameters
    ----------
    directory
        Existing.
    figures
        By name of the file, without suffix.
    """
    paths = []
    for name, figure in figures.items():
        path = directory / f"{name}.png"
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=110, metadata={"Software": None})
            if (size := Path(temporary).stat().st_size) > LARGEST_FIGURE:
                raise ValueError(f"{path} would have {size} bytes, more than {LARGEST_FIGURE}: draw less")
        paths.append(path)
    return paths
