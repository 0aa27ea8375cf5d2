"""The directory of one fit. It says what it is, can be loaded, and a fit killed at any moment goes on from it.

    run.json        what is fitted to which data, with which versions; status, times, the chosen λ and q
    checkpoint      while the fit is not finished
    model.ggmflow   the fitted model; it keeps the scatter matrix, so no copy of the data is needed
    edges.csv       the edges at the chosen λ and q, strongest first
    README.txt      what these files are
    .next           while a finished fit is to be replaced: the directory of the fit that will

Every file is replaced whole, and run.json last: what it says is true at every moment. A finished fit stays until the
one that replaces it is finished too.
"""

import json
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from ggmflow.cli.run_record import (
    CHECKPOINT,
    EDGES,
    FORMAT,
    KIND,
    MADE_LATER,
    MODEL,
    NEXT,
    OWN,
    README,
    RECORD,
    RunError,
    check_directory,
    describe_file,
    finished_record,
    fit_to_go_on_with,
    gave_up,
    locked,
    record_in,
    settle,
    spoken,
)
from ggmflow.data.scatter import Scatter
from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.posterior.source import DrawsError
from ggmflow.storage import archive
from ggmflow.storage.json_values import plain
from ggmflow.storage.replace import TEMPORARY, write_text
from ggmflow.views.export import csv_text, edge_table, entry_table

_ATTEMPTS = 4  # to read a run whose fit is just being replaced, which takes a moment
_SPOKEN = {"random_state": "seed"}  # names that differ on the command line
_README = """\
This directory holds one fit of ggmflow {version} to {file} ({rows} rows of {d} variables).
run.json says how it was made and what was chosen, edges.csv lists the edges found, and model.ggmflow is the fitted
model. From this directory, look at it with

    ggmflow summary .
    ggmflow report .
    ggmflow explore .

or from Python with

    import ggmflow as gf
    model = gf.load_run(".")
"""


def load_run(path: str | Path) -> GraphicalFlow:
    """The fitted model of a run directory, as `ggmflow fit` leaves it.

    Parameters
    ----------
    path
        The directory.

    Returns
    -------
    GraphicalFlow

    Raises
    ------
    RunError
        If it is no run, damaged, or not finished.
    """
    return open_run(path)[1]


def open_run(path: str | Path) -> tuple[dict[str, Any], GraphicalFlow]:
    """`read_record` and `load_run` of one and the same fit, even if another one takes its place meanwhile."""
    file = Path(path) / MODEL
    for attempt in range(_ATTEMPTS):
        time.sleep(0.1 * attempt)
        record = finished_record(path)
        try:
            model = GraphicalFlow.load(file)
            # After loading: a file that was replaced before, or since, is not the one that the record tells of.
            if record.get("model") in (None, describe_file(file)["sha256"]):
                return record, model
        except FileNotFoundError:
            raise RunError(f"{path} is damaged: {MODEL} is missing. Fit again with --force") from None
        except archive.ModelFileError as error:
            raise RunError(f"{path} is damaged: {error}. Fit again with --force") from None
    raise RunError(f"{path} is damaged: {MODEL} is not the one that {RECORD} tells of. Fit again with --force")


def fit_run(
    model: GraphicalFlow,
    scatter: Scatter,
    path: str | Path,
    data: Mapping[str, Any],
    command: str,
    *,
    resume: bool = False,
    force: bool = False,
) -> GraphicalFlow:
    """Fit a model in a run directory.

    Parameters
    ----------
    model
        Not fitted yet; its `random_state` is an integer.
    scatter
        The data, made with the model's own options.
    path
        The directory; it is made if it is not there.
    data
        Where the data come from: `describe_file`, and how the file is to be read.
    command
        What a user types to do this again.
    resume
        Go on with a fit of the same data and parameters; one that is not there is begun, one that is finished loaded.
    force
        Begin anew whatever is there; what is finished stays until the new fit is.

    Returns
    -------
    GraphicalFlow
        Fitted, λ and q chosen.

    Raises
    ------
    RunError
        If the directory holds something else, or another fit is at work in it.
    KeyboardInterrupt
        Ctrl-C ends the fit; `resume` goes on where it stopped.
    """
    path = Path(path)
    check_directory(path)
    own = (RECORD, *OWN, CHECKPOINT)
    with locked(path, writes=(*own, *(f"{NEXT}/{name}" for name in own))):
        new = _new_record(model, scatter, data, command)
        place = _place(path, new, resume, force)
        clock = time.monotonic()
        try:
            record = _begin(place, new, resume, force)
            if record["status"] == "finished":
                return load_run(path)
            _fit(model, scatter, place)
            _write_results(model, place, record)
        except (KeyboardInterrupt, FloatingPointError, DrawsError, MemoryError) as error:
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            _write_end(place, status, time.monotonic() - clock)
            raise
        choice, timings = model.choice_, model.timings_._asdict()
        known = {
            "status": "finished",
            "seconds": round(record["seconds"] + time.monotonic() - clock, 1),
            "timings": {name: None if value is None else round(value, 1) for name, value in timings.items()},
            "steps": model.n_iter_,
            "training": model.status_,
            "model": describe_file(place / MODEL)["sha256"],
            "chosen": choice._asdict(),
            "ranges": {"lam": model.lam_range_, "q": model.q_range_, "temperature": model.temperature_range_},
        }
        _write_record(place, record | known)
        (place / CHECKPOINT).unlink(missing_ok=True)
        settle(path)
    return model


def _place(path: Path, new: dict[str, Any], resume: bool, force: bool) -> Path:
    """Where a fit is made: here, or beside a finished one until it can take its place."""
    beside = path / NEXT
    if beside.is_symlink():
        beside.unlink()  # not ours, and it may lead anywhere
    for leftover in (*path.glob(f"{TEMPORARY}*"), *beside.glob(f"{TEMPORARY}*")):
        leftover.unlink()  # of a process that was killed while it wrote
    if gave_up(beside):
        shutil.rmtree(beside)  # or whoever comes next without --force would go on with it, and replace what is finished
    try:
        old = record_in(path)
    except RunError:
        old = None  # damaged, or of a newer version: a model beside it may still be of use
    if not (old["status"] == "finished" if old else (path / MODEL).exists()):
        return path
    as_before = resume and old is not None and not _differences(old, new)
    wanted = force or ((beside / RECORD).exists() and not as_before)
    if wanted:
        beside.mkdir(exist_ok=True)
    return beside if wanted else path


def _fit(model: GraphicalFlow, scatter: Scatter, path: Path) -> None:
    checkpoint = path / CHECKPOINT
    try:
        model.fit(scatter, checkpoint=checkpoint)
    except ValueError as error:
        if str(checkpoint) not in str(error):
            raise
        raise RunError(f"the fit in {spoken(path)} cannot go on: {error}. Begin anew with --force") from None
    if model.status_ == "interrupted":
        raise KeyboardInterrupt


def _write_results(model: GraphicalFlow, path: Path, record: dict[str, Any]) -> None:
    post = model.posterior()  # chooses λ and q, which the model remembers
    model.save(path / MODEL)
    write_text(path / EDGES, csv_text(edge_table(entry_table(post))))
    data = record["data"]
    size = {"rows": f"{data['rows']:g}", "d": len(data["columns"])}
    write_text(path / README, _README.format(version=archive.versions()["ggmflow"], file=data["file"], **size))


def _new_record(model: GraphicalFlow, scatter: Scatter, data: Mapping[str, Any], command: str) -> dict[str, Any]:
    parameters = {name: value for name, value in model.get_params().items() if name != "progress"}
    check = None if scatter.check is None else scatter.check.to_dict()
    record = {
        "kind": KIND,
        "format": FORMAT,
        "status": "starting",
        "command": command,
        "data": dict(data) | {"rows": scatter.n, "columns": list(scatter.names), "check": check},
        "parameters": parameters,
        "versions": archive.versions(),
        "started": _now(),
        "updated": _now(),
        "seconds": 0.0,
    }
    return plain(record)


def _begin(path: Path, new: dict[str, Any], resume: bool, force: bool) -> dict[str, Any]:
    """The record of the fit to do, or of one that is finished; refuses to mix two fits."""
    old = fit_to_go_on_with(path, resume, force)
    if old is not None and (changes := _differences(old, new)):
        raise RunError(
            f"{spoken(path)} holds another fit, {'; '.join(changes)}: use the same, or begin anew with --force"
        )
    if old is not None and old["status"] == "finished":
        return old
    if old is None or old["status"] == "starting":
        # In this order: a checkpoint is never found beside the record of another fit.
        _write_record(path, new)
        for name in (CHECKPOINT, *MADE_LATER, *OWN):
            (path / name).unlink(missing_ok=True)
        old = new
    record = old | {"status": "running", "command": new["command"], "seconds": _seconds_so_far(path, old)}
    _write_record(path, record)
    return record


def _seconds_so_far(path: Path, record: dict[str, Any]) -> float:
    """What an unfinished fit took; one that was killed could not say so, but its last checkpoint has a date."""
    checkpoint = path / CHECKPOINT
    if record["status"] != "running" or not checkpoint.exists():
        return record["seconds"]
    since = checkpoint.stat().st_mtime - datetime.fromisoformat(record["updated"]).timestamp()
    return round(record["seconds"] + max(0.0, since), 1)


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What keeps a fit from going on with the same result."""
    changes = []
    if (before := str(old["data"].get("sha256"))) != (now := new["data"]["sha256"]):
        changes.append(f"its data differ (SHA-256 {before[:8]}… then, {now[:8]}… now)")
    pairs = [("data", name) for name in ("delimiter", "decimal", "drop") if name in new["data"]]
    pairs += [("parameters", name) for name in new["parameters"]]
    pairs += [("versions", name) for name in ("ggmflow", "jax")]
    for group, name in pairs:
        if ((was := old[group].get(name)) or None) != ((now := new[group][name]) or None):
            changes.append(f"{_SPOKEN.get(name, name)} was {_show(was)} and is {_show(now)}")
    return changes


def _show(value: Any) -> str:
    if value in (None, []):
        return "the default"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _write_record(path: Path, record: dict[str, Any]) -> None:
    record = plain(record | {"updated": _now()})
    write_text(path / RECORD, json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _write_end(path: Path, status: str, seconds: float) -> None:
    """Tell how a fit ended that run.json says is running; a signal may come before the fit has begun to."""
    with suppress(RunError):  # there is no record yet
        record = record_in(path)
        if record["status"] == "running":
            _write_record(path, record | {"status": status, "seconds": round(record["seconds"] + seconds, 1)})


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
