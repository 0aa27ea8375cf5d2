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

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import filelock

from ggmflow import io
from ggmflow.data import Scatter
from ggmflow.estimator import GraphicalFlow
from ggmflow.export import FORMATS, csv_text, edge_table, entry_table, plain
from ggmflow.source import DrawsError

FORMAT = 1
RECORD, MODEL, CHECKPOINT, EDGES, README = "run.json", "model.ggmflow", "checkpoint", "edges.csv", "README.txt"
REPORT = "report.html"
_KIND = "ggmflow run"
_MOST_BYTES = 2**26  # of run.json, which holds the names of columns and little else
_LOCK, _NEXT = ".lock", ".next"
_ATTEMPTS = 4  # to read a run whose fit is just being replaced, which takes a moment
# What a new fit removes: all that describes an earlier one. First what it replaces by its own.
_OWN = (MODEL, EDGES, README)
MADE_LATER = (REPORT, *(name for name, _ in FORMATS.values()))
# "starting": files of an earlier fit may still be there. A fit that was killed still says "running".
_STATUSES = ("starting", "running", "interrupted", "failed", "finished")
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


class RunError(ValueError):
    """A directory is not a run, is damaged, in use, or holds another fit; the message says which and what to do."""


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
        record = read_record(path)
        if _gave_up(Path(path)):
            raise RunError(f"the fit in {path} failed, and there is nothing to go on with: fit again")
        if record["status"] != "finished":
            raise RunError(f"the fit in {path} is not finished: go on with `{record['command']} --resume`")
        try:
            model = GraphicalFlow.load(file)
            # After loading: a file that was replaced before, or since, is not the one that the record tells of.
            if record.get("model") in (None, describe_file(file)["sha256"]):
                return record, model
        except FileNotFoundError:
            raise RunError(f"{path} is damaged: {MODEL} is missing. Fit again with --force") from None
        except io.ModelFileError as error:
            raise RunError(f"{path} is damaged: {error}. Fit again with --force") from None
    raise RunError(f"{path} is damaged: {MODEL} is not the one that {RECORD} tells of. Fit again with --force")


def read_record(path: str | Path) -> dict[str, Any]:
    """What run.json says.

    Parameters
    ----------
    path
        The directory.

    Returns
    -------
    dict
        status ("starting", "running", "interrupted", "failed" or "finished"), command, versions, data (file, sha256,
        rows, columns, delimiter, decimal), parameters, started, updated, seconds; of a finished fit also steps,
        training, model (the SHA-256 of its file), chosen (lam, q, at_ends) and ranges.
    """
    path = Path(path)
    if (path / _NEXT).is_dir():
        with suppress(RunError, OSError), locked(path):  # which settles; whoever is at work here will do so itself
            pass
    return _read_record(path)


def _read_record(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise RunError(f"{path} {'is a file' if path.exists() else 'does not exist'}: give the directory of a run")
    if not (path / RECORD).is_file():
        raise RunError(f"{path} is no ggmflow run: it has no {RECORD}")
    try:
        record = json.loads(_record_text(path))
    except (ValueError, RecursionError):
        raise RunError(f"{path} is damaged: {RECORD} cannot be read. Fit again with --force") from None
    if not isinstance(record, dict) or record.get("kind") != _KIND:
        raise RunError(f"{path} is no ggmflow run: its {RECORD} is not ours")
    if isinstance(version := record.get("format"), int) and version > FORMAT:
        raise RunError(f"{path} was written by a newer ggmflow: update ggmflow to read it")
    expected = {"status": str, "command": str, "seconds": int | float}
    expected |= dict.fromkeys(("versions", "data", "parameters"), dict)
    wrong = [name for name, kind in expected.items() if not isinstance(record.get(name), kind)]
    if record.get("status") not in _STATUSES or wrong:
        raise RunError(f"{path} is damaged: {RECORD} has no valid {wrong[0] if wrong else 'status'!r}")
    if damaged := _damaged_part(record):
        raise RunError(f"{path} is damaged: {RECORD} has no valid {damaged!r}. Fit again with --force")
    return record


def _record_text(path: Path) -> str:
    with (path / RECORD).open("rb") as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError("too large")
    return text.decode("utf-8")


def _damaged_part(record: dict[str, Any]) -> str | None:
    """The first part of a record that others rely on and that is not what it should be."""

    def number(value: object) -> bool:
        # Comparisons, unlike math.isfinite, bear with whole numbers of any length; NaN fails them.
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max

    data = record["data"]
    if not (number(data.get("rows")) and isinstance(data.get("columns"), list) and isinstance(data.get("file"), str)):
        return "data"
    if not number(record["seconds"]):
        return "seconds"
    if record["status"] != "finished":
        return None
    chosen, ranges = record.get("chosen"), record.get("ranges")
    if not isinstance(chosen, dict) or not (number(chosen.get("lam")) and number(chosen.get("q"))):
        return "chosen"
    pairs = [ranges.get(name) for name in ("lam", "q", "temperature")] if isinstance(ranges, dict) else [None]
    if not all(isinstance(pair, list) and len(pair) == 2 and all(map(number, pair)) for pair in pairs):
        return "ranges"
    ends = chosen.get("at_ends")
    return None if isinstance(ends, list) and all(isinstance(end, str) for end in ends) else "chosen"


def describe_file(path: Path) -> dict[str, str]:
    """Name and SHA-256 of a file, by which a run knows its data again."""
    with path.open("rb") as file:
        return {"file": path.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


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
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file: name a directory that is new, or that of a run")
    if path.is_dir() and not _is_run(path) and ((path / RECORD).exists() or any(_foreign(path))):
        raise RunError(f"{path} holds other files and no run: choose a new directory")
    own = (RECORD, *_OWN, CHECKPOINT)
    with locked(path, writes=(*own, *(f"{_NEXT}/{name}" for name in own))):
        new = _new_record(model, scatter, data, command)
        place = _place(path, new, resume, force)
        record = _begin(place, new, resume, force)
        if record["status"] == "finished":
            return load_run(path)
        clock, before = time.monotonic(), record["seconds"]

        def seconds() -> float:
            return round(before + time.monotonic() - clock, 1)

        try:
            _fit(model, scatter, place)
            _write_results(model, place, record)
        except (KeyboardInterrupt, FloatingPointError, DrawsError, MemoryError) as error:
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            _write_record(place, record | {"status": status, "seconds": seconds()})
            raise
        choice = model._chosen()
        known = {
            "status": "finished",
            "seconds": seconds(),
            "steps": model.n_iter_,
            "training": model.status_,
            "model": describe_file(place / MODEL)["sha256"],
            "chosen": choice._asdict(),
            "ranges": {"lam": model.lam_range_, "q": model.q_range_, "temperature": model.temperature_range_},
        }
        _write_record(place, record | known)
        (place / CHECKPOINT).unlink(missing_ok=True)
        _settle(path)
    return model


def _place(path: Path, new: dict[str, Any], resume: bool, force: bool) -> Path:
    """Where a fit is made: here, or beside a finished one until it can take its place."""
    beside = path / _NEXT
    if beside.is_symlink():
        beside.unlink()  # not ours, and it may lead anywhere
    for leftover in (*path.glob(f"{io.TEMPORARY}*"), *beside.glob(f"{io.TEMPORARY}*")):
        leftover.unlink()  # of a process that was killed while it wrote
    if _gave_up(beside):
        shutil.rmtree(beside)  # or whoever comes next without --force would go on with it, and replace what is finished
    try:
        old = _read_record(path)
    except RunError:
        old = None  # damaged, or of a newer version: a model beside it may still be of use
    if not (old["status"] == "finished" if old else (path / MODEL).exists()):
        return path
    as_before = resume and old is not None and not _differences(old, new)
    wanted = force or ((beside / RECORD).exists() and not as_before)
    if wanted:
        beside.mkdir(exist_ok=True)
    return beside if wanted else path


def _gave_up(place: Path) -> bool:
    """Whether a fit was refused before it began, for want of memory for instance: there is nothing to go on with."""
    with suppress(RunError):
        return _read_record(place)["status"] == "failed" and not (place / CHECKPOINT).exists()
    return False


def _settle(path: Path) -> None:
    """Let a finished fit take the place of the one it was to replace; whoever has the lock next goes on with it."""
    beside = path / _NEXT
    try:
        if beside.is_symlink() or _read_record(beside)["status"] != "finished":
            return
    except (RunError, OSError):
        return  # there is none, or it is damaged: no reason to refuse the finished one
    for name in (CHECKPOINT, *MADE_LATER):
        (path / name).unlink(missing_ok=True)
    for name in (*_OWN, RECORD):
        with suppress(FileNotFoundError):  # moved already
            os.replace(beside / name, path / name)
    shutil.rmtree(beside, ignore_errors=True)


def _spoken(place: Path) -> Path:
    """The run as its user knows it, whose fit may be made in a directory of its own."""
    return place.parent if place.name == _NEXT else place


def _is_run(path: Path) -> bool:
    """Whether run.json is ours; a damaged one is, beside a model or a checkpoint."""
    if not (path / RECORD).is_file():
        return False
    try:
        record = json.loads(_record_text(path))
    except (ValueError, RecursionError):
        return any((path / name).exists() for name in (MODEL, CHECKPOINT))
    return isinstance(record, dict) and record.get("kind") == _KIND


def _fit(model: GraphicalFlow, scatter: Scatter, path: Path) -> None:
    checkpoint = path / CHECKPOINT
    try:
        model.fit(scatter, checkpoint=checkpoint)
    except ValueError as error:
        if str(checkpoint) not in str(error):
            raise
        raise RunError(f"the fit in {_spoken(path)} cannot go on: {error}. Begin anew with --force") from None
    if model.status_ == "interrupted":
        raise KeyboardInterrupt


def _write_results(model: GraphicalFlow, path: Path, record: dict[str, Any]) -> None:
    post = model.posterior()  # chooses λ and q, which the model remembers
    model.save(path / MODEL)
    io.write_text(path / EDGES, csv_text(edge_table(entry_table(post))))
    data = record["data"]
    size = {"rows": f"{data['rows']:g}", "d": len(data["columns"])}
    io.write_text(path / README, _README.format(version=io.versions()["ggmflow"], file=data["file"], **size))


def _new_record(model: GraphicalFlow, scatter: Scatter, data: Mapping[str, Any], command: str) -> dict[str, Any]:
    parameters = {name: value for name, value in model.get_params().items() if name != "progress"}
    record = {
        "kind": _KIND,
        "format": FORMAT,
        "status": "starting",
        "command": command,
        "data": dict(data) | {"rows": scatter.n, "columns": list(scatter.names)},
        "parameters": parameters,
        "versions": io.versions(),
        "started": _now(),
        "updated": _now(),
        "seconds": 0.0,
    }
    return plain(record)


def _begin(path: Path, new: dict[str, Any], resume: bool, force: bool) -> dict[str, Any]:
    """The record of the fit to do, or of one that is finished; refuses to mix two fits."""
    old = None if force or not (path / RECORD).exists() or _gave_up(path) else _read_record(path)
    run = _spoken(path)
    if old is not None and not resume:
        if old["status"] == "finished":
            raise RunError(f"{run} holds a finished fit: choose another directory, or replace it with --force")
        raise RunError(f"{run} holds a fit that is not finished: go on with --resume, or begin anew with --force")
    if old is not None and (changes := _differences(old, new)):
        raise RunError(f"{run} holds another fit, {'; '.join(changes)}: use the same, or begin anew with --force")
    if old is not None and old["status"] == "finished":
        return old
    if old is None or old["status"] == "starting":
        # In this order: a checkpoint is never found beside the record of another fit.
        _write_record(path, new)
        for name in (CHECKPOINT, *MADE_LATER, *_OWN):
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
    io.write_text(path / RECORD, json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _foreign(path: Path) -> Iterator[Path]:
    """Files that no run of ours has left."""
    return (entry for entry in path.iterdir() if entry.name != _LOCK and not entry.name.startswith(io.TEMPORARY))


@contextmanager
def locked(path: Path, writes: Sequence[str] = ()) -> Iterator[None]:
    """The directory, made if need be, for this process alone; the system unlocks it if the process is killed.

    A finished fit that was to replace another one, and was killed before it could, does so first.

    Parameters
    ----------
    path
        The directory.
    writes
        Files in it that will be written; none of them may be a link.
    """
    path.mkdir(parents=True, exist_ok=True)
    for name in (_LOCK, *writes):
        if (path / name).is_symlink():  # a run may come from someone else, and the link lead to any file of the user
            raise RunError(f"{path} holds a link where ggmflow would write, {name}: choose another directory")
    lock = filelock.FileLock(path / _LOCK)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        raise RunError(f"another ggmflow is at work in {path}: wait for it, or choose another directory") from None
    try:
        _settle(path)
        yield
    finally:
        lock.release()
