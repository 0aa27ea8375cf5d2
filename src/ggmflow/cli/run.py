"""Fits in run directories: a fit that is killed at any moment can be resumed, and a finished one can be loaded.

    run.json        data, parameters, versions, status, times; the chosen λ and q
    checkpoint      while the fit is not finished
    model.ggmflow   the fitted model with its scatter matrix, so that no copy of the data is needed
    edges.csv       the edges at the chosen λ and q, strongest first
    README.txt      describes these files
    .next           directory of a fit that will replace a finished one

`ggmflow.cli.run_status` has the table of states and transitions. Every file is replaced as a whole, and run.json last,
so it is true at every moment. A finished fit stays until the fit that replaces it is finished too.
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
    BEGIN_AGAIN,
    CHECKPOINT,
    EDGES,
    FIT_AGAIN,
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
    locked,
    nothing_to_resume,
    record_in,
    settle,
    shown_path,
    start_in,
)
from ggmflow.cli.run_status import TRANSITIONS, Action, Start, Status
from ggmflow.data.scatter import Scatter
from ggmflow.errors.advice import Advice, Surface, option_name
from ggmflow.errors.checkpoint import CheckpointError
from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.posterior.source import DrawsError
from ggmflow.storage import archive
from ggmflow.storage.json_values import plain
from ggmflow.storage.replace import TEMPORARY, write_text
from ggmflow.train import status as train_status
from ggmflow.views.export import csv_text, edge_table, export_table

_ATTEMPTS = 4  # to read a run while its fit is being replaced, which takes a moment
_FAILURES = (FloatingPointError, DrawsError, MemoryError)
# Parameters that records of earlier versions lack, with the value that their fits had.
_ADDED = {"pretrained": False}
# The same, for parameters that a continued fit must share: a present one with another value raises an error.
_BEFORE = {"mean": "known"}
_README = """\
This directory holds one fit of ggmflow {version} to {file} ({rows} rows of {d} variables).
run.json holds the settings and the chosen λ and q, edges.csv the edges, and model.ggmflow the fitted model.
From this directory, show the results with

    ggmflow summary .
    ggmflow report .
    ggmflow explore .

or from Python with

    import ggmflow as gf
    model = gf.load_run(".")
"""


def load_run(path: str | Path) -> GraphicalFlow:
    """Load the fitted model of a run directory that `ggmflow fit` has written.

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
        If it is not a run, damaged, or not finished.
    """
    return open_run(path)[1]


def open_run(path: str | Path) -> tuple[dict[str, Any], GraphicalFlow]:
    """The record and the model of the same fit, even if another fit replaces it meanwhile."""
    file = Path(path) / MODEL
    for attempt in range(_ATTEMPTS):
        time.sleep(0.1 * attempt)
        record = finished_record(path)
        try:
            model = GraphicalFlow.load(file)
            # After loading: the file may have been replaced since the record was read.
            if record.get("model") in (None, describe_file(file)["sha256"]):
                return record, model
        except FileNotFoundError:
            raise RunError(path, f"{path} is damaged, {MODEL} is missing", FIT_AGAIN) from None
        except archive.ModelFileError as error:
            raise RunError(path, f"{path} is damaged, {error}", FIT_AGAIN) from None
    raise RunError(path, f"{path} is damaged, {MODEL} and {RECORD} are of different fits", FIT_AGAIN)


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
        The data, read with the options of the model.
    path
        The directory; it is made if it does not exist.
    data
        Source of the data: `describe_file`, and the options that the file is read with.
    command
        The command that a user types to repeat this fit.
    resume
        Resume a fit of the same data and parameters. If there is none, a fit begins; a finished one is loaded.
    force
        Start a new fit even if the directory holds one; a finished fit stays until the new one is finished.

    Returns
    -------
    GraphicalFlow
        Fitted, λ and q chosen.

    Raises
    ------
    RunError
        If the directory holds something else, or another process uses it.
    KeyboardInterrupt
        After Ctrl-C; `resume` continues from the last checkpoint.
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
            if record["status"] is Status.FINISHED:
                return load_run(path)
            earlier = {name: value for name, value in _ADDED.items() if name not in record["parameters"]}
            _fit(model.set_params(**earlier), scatter, place)
            _write_results(model, place, record)
        except KeyboardInterrupt:
            _end(place, Action.INTERRUPT, clock)
            raise
        except _FAILURES:
            _end(place, Action.FAIL, clock)
            raise
        _advance(place, record, Action.FINISH, _results(model, place), clock)
        (place / CHECKPOINT).unlink(missing_ok=True)
        settle(path)
    return model


def _place(path: Path, new: dict[str, Any], resume: bool, force: bool) -> Path:
    """The directory in which a fit is made: the run itself, or `.next` if a finished fit is to be replaced."""
    beside = path / NEXT
    if beside.is_symlink():
        beside.unlink()  # ggmflow makes no links, and this one may point anywhere
    for leftover in (*path.glob(f"{TEMPORARY}*"), *beside.glob(f"{TEMPORARY}*")):
        leftover.unlink()  # of a process that was killed while it wrote
    if nothing_to_resume(beside):
        shutil.rmtree(beside)  # otherwise the next fit, without --force, would replace the finished one
    try:
        old = record_in(path)
    except RunError:
        old = None  # damaged, or of a newer version; a model beside it may still be of use
    has_results = (path / MODEL).exists() if old is None else old["status"] is Status.FINISHED
    if not has_results:
        return path
    same = resume and old is not None and not _differences(old, new)
    if not (force or ((beside / RECORD).exists() and not same)):
        return path
    beside.mkdir(exist_ok=True)
    return beside


def _fit(model: GraphicalFlow, scatter: Scatter, path: Path) -> None:
    try:
        model.fit(scatter, checkpoint=path / CHECKPOINT)
    except (CheckpointError, archive.ModelFileError) as error:
        run = shown_path(path)
        raise RunError(run, f"the fit in {run} cannot be resumed, {error}", BEGIN_AGAIN) from None
    if model.status_ == train_status.Status.INTERRUPTED:
        raise KeyboardInterrupt


def _write_results(model: GraphicalFlow, path: Path, record: dict[str, Any]) -> None:
    post = model.posterior()  # chooses λ and q, which are saved with the model
    model.save(path / MODEL)
    write_text(path / EDGES, csv_text(edge_table(export_table(post))))
    data = record["data"]
    size = {"rows": f"{data['rows']:g}", "d": len(data["columns"])}
    write_text(path / README, _README.format(version=archive.versions()["ggmflow"], file=data["file"], **size))


def _new_record(model: GraphicalFlow, scatter: Scatter, data: Mapping[str, Any], command: str) -> dict[str, Any]:
    parameters = {name: value for name, value in model.get_params().items() if name != "progress"}
    check = None if scatter.check is None else scatter.check.to_dict()
    record = {
        "kind": KIND,
        "format": FORMAT,
        "status": None,
        "command": command,
        "data": dict(data) | {"rows": scatter.n_rows, "columns": list(scatter.names), "check": check},
        "parameters": parameters,
        "versions": archive.versions(),
        "started": _now(),
        "updated": _now(),
        "seconds": 0.0,
    }
    return plain(record)


def _results(model: GraphicalFlow, path: Path) -> dict[str, Any]:
    """Entries that the record of a finished fit has in addition."""
    choice, timings = model.choice_, model.timings_._asdict()
    return {
        "timings": {name: None if value is None else round(value, 1) for name, value in timings.items()},
        "steps": model.n_iter_,
        "training": model.status_,
        "model": describe_file(path / MODEL)["sha256"],
        "chosen": choice._asdict(),
        "ranges": {"lam": model.lam_range_, "q": model.q_range_, "temperature": model.temperature_range_},
    }


def _begin(path: Path, new: dict[str, Any], resume: bool, force: bool) -> dict[str, Any]:
    """The record of a fit that now runs, or of a finished fit to load; raises RunError rather than mix two fits."""
    start, old = start_in(path, resume, force)
    if old is not None and (changes := _differences(old, new)):
        run = shown_path(path)
        raise RunError(run, f"{run} holds another fit, {'; '.join(changes)}", Advice("use the same"), BEGIN_AGAIN)
    if old is not None and start is Start.LOAD:
        return old
    if old is None or start is Start.BEGIN:
        # In this order: a checkpoint is never beside the record of another fit.
        old = _advance(path, new, Action.BEGIN)
        for name in (CHECKPOINT, *MADE_LATER, *OWN):
            (path / name).unlink(missing_ok=True)
    known = {"format": FORMAT, "command": new["command"], "seconds": _seconds_so_far(path, old)}
    return _advance(path, old, Action.TRAIN, known)


def _seconds_so_far(path: Path, record: dict[str, Any]) -> float:
    """Seconds that an unfinished fit took; those of a fit that was killed follow from the date of its checkpoint."""
    checkpoint = path / CHECKPOINT
    if record["status"] is not Status.RUNNING or not checkpoint.exists():
        return record["seconds"]
    since = checkpoint.stat().st_mtime - datetime.fromisoformat(record["updated"]).timestamp()
    return round(record["seconds"] + max(0.0, since), 1)


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Differences between two fits, because of which the one cannot be a continuation of the other."""
    changes = []
    if (before := str(old["data"].get("sha256"))) != (now := new["data"]["sha256"]):
        changes.append(f"its data differ (SHA-256 {before[:8]}… then, {now[:8]}… now)")
    pairs = [("data", name) for name in ("delimiter", "decimal", "drop") if name in new["data"]]
    pairs += [("parameters", name) for name in new["parameters"] if name in old["parameters"] or name not in _ADDED]
    pairs += [("versions", name) for name in ("ggmflow", "jax")]
    for group, name in pairs:
        if _given(was := old[group].get(name, _BEFORE.get(name))) != _given(now := new[group][name]):
            changes.append(f"{_shown_name(group, name)} was {_show(was)} and is {_show(now)}")
    return changes


def _given(value: Any) -> Any:
    """The value, or None if it is empty; 0 and False are values."""
    return None if value == [] else value


def _shown_name(group: str, name: str) -> str:
    return name if group == "versions" else option_name(name, Surface.COMMAND_LINE)


def _show(value: Any) -> str:
    if value in (None, []):
        return "the default"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _advance(
    path: Path,
    record: dict[str, Any],
    action: Action,
    known: Mapping[str, Any] | None = None,
    clock: float | None = None,
) -> dict[str, Any]:
    """Write the record with the status that an action leads to.

    Parameters
    ----------
    path
        Directory in which the fit is made.
    record
        Before the action; its status is None if the fit is new.
    action
        The action; the transition must be in the table.
    known
        Entries to change.
    clock
        `time.monotonic` when this process began to fit; the seconds since then are added.
    """
    passed = 0.0 if clock is None else time.monotonic() - clock
    changed = {
        "status": TRANSITIONS[record["status"], action],
        "seconds": round(record["seconds"] + passed, 1),
        "updated": _now(),
    }
    record = record | changed | dict(known or {})
    text = json.dumps(plain(record), indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path / RECORD, text + "\n")
    return record


def _end(path: Path, action: Action, clock: float) -> None:
    """Record that a fit ended before it was finished; a signal may come before there is a record."""
    with suppress(RunError):
        record = record_in(path)
        if TRANSITIONS[record["status"], action] is not record["status"]:
            _advance(path, record, action, clock=clock)


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
