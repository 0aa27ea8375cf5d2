"""What a run directory says of itself, read without JAX: its files, run.json, the lock, and what cannot be done in it.

`ggmflow.cli.run` fits, and loads models; its first lines say what the files are.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import filelock

from ggmflow.model.conditions import Boundary, boundaries_from_json
from ggmflow.storage.replace import TEMPORARY
from ggmflow.views.formats import EXPORTS

FORMAT = 2  # 1 had sentences `at_ends` instead of `at_boundary`
RECORD, MODEL, CHECKPOINT, EDGES, README = "run.json", "model.ggmflow", "checkpoint", "edges.csv", "README.txt"
REPORT = "report.html"
KIND = "ggmflow run"
_MOST_BYTES = 2**26  # of run.json, which holds the names of columns and little else
_LOCK, NEXT = ".lock", ".next"
# What a new fit removes: all that describes an earlier one. First what it replaces by its own.
OWN = (MODEL, EDGES, README)
MADE_LATER = (REPORT, *EXPORTS.values())
# "starting": files of an earlier fit may still be there. A fit that was killed still says "running".
_STATUSES = ("starting", "running", "interrupted", "failed", "finished")


class RunError(ValueError):
    """A directory is not a run, is damaged, in use, or holds another fit; the message says which and what to do."""


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
        rows, columns, check, delimiter, decimal, drop), parameters, started, updated, seconds; of a finished fit also
        steps, training, timings (seconds: compiling, training, choosing; not in runs of earlier versions), model (the
        SHA-256 of its file), chosen (lam, q, at_boundary) and ranges.
    """
    path = Path(path)
    if (path / NEXT).is_dir():
        with suppress(RunError, OSError), locked(path):  # which settles; whoever is at work here will do so itself
            pass
    return record_in(path)


def finished_record(path: str | Path) -> dict[str, Any]:
    """`read_record` of a fit that is finished; refuses another one."""
    record = read_record(path)
    if gave_up(Path(path)):
        raise RunError(f"the fit in {path} failed, and there is nothing to go on with: fit again")
    if record["status"] != "finished":
        raise RunError(f"the fit in {path} is not finished: go on with `{record['command']} --resume`")
    return record


def record_in(path: Path) -> dict[str, Any]:
    """What run.json says, of just this directory."""
    if not path.is_dir():
        raise RunError(f"{path} {'is a file' if path.exists() else 'does not exist'}: give the directory of a run")
    if not (path / RECORD).is_file():
        raise RunError(f"{path} is no ggmflow run: it has no {RECORD}")
    try:
        record = json.loads(_record_text(path))
    except (ValueError, RecursionError):
        raise RunError(f"{path} is damaged: {RECORD} cannot be read. Fit again with --force") from None
    if not isinstance(record, dict) or record.get("kind") != KIND:
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
    if "timings" in record:  # runs of earlier versions have none
        timings = record["timings"]
        times = [timings.get(name) for name in ("compiling", "training")] if isinstance(timings, dict) else [None]
        if not all(map(number, times)) or not (timings.get("choosing") is None or number(timings["choosing"])):
            return "timings"
    try:
        chosen_boundaries(record)
    except ValueError:
        return "chosen"
    return None


def chosen_boundaries(record: dict[str, Any]) -> tuple[Boundary, ...]:
    """The ends of the fitted ranges at which the evidence is highest; runs of format 1 call them `at_ends`."""
    chosen = record["chosen"]
    return boundaries_from_json(chosen.get("at_boundary", chosen.get("at_ends")))


def describe_file(path: Path) -> dict[str, str]:
    """Name and SHA-256 of a file, by which a run knows its data again."""
    with path.open("rb") as file:
        return {"file": path.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def check_directory(path: Path) -> None:
    """Refuse a path that is neither free nor that of a run."""
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file: name a directory that is new, or that of a run")
    if path.is_dir() and not _is_run(path) and ((path / RECORD).exists() or any(_foreign(path))):
        raise RunError(f"{path} holds other files and no run: choose a new directory")


def check_free(path: Path) -> None:
    """Refuse a directory in which a fit cannot begin without `resume` or `force`.

    `fit_run` does the same once more, when it has the lock; a fit that is to replace a finished one is left to it.
    """
    check_directory(path)
    if _is_run(path) and not (path / NEXT).exists():
        with locked(path):
            fit_to_go_on_with(path, resume=False, force=False)


def fit_to_go_on_with(path: Path, resume: bool, force: bool) -> dict[str, Any] | None:
    """The record of the fit that `path` holds, if a new one has to do with it; refuses one that would be in the way."""
    old = None if force or not (path / RECORD).exists() or gave_up(path) else record_in(path)
    run = spoken(path)
    if old is not None and not resume:
        if old["status"] == "finished":
            raise RunError(f"{run} holds a finished fit: choose another directory, or replace it with --force")
        raise RunError(f"{run} holds a fit that is not finished: go on with --resume, or begin anew with --force")
    return old


def gave_up(place: Path) -> bool:
    """Whether a fit was refused before it began, for want of memory for instance: there is nothing to go on with."""
    with suppress(RunError):
        return record_in(place)["status"] == "failed" and not (place / CHECKPOINT).exists()
    return False


def settle(path: Path) -> None:
    """Let a finished fit take the place of the one it was to replace; whoever has the lock next goes on with it."""
    beside = path / NEXT
    try:
        if beside.is_symlink() or record_in(beside)["status"] != "finished":
            return
    except (RunError, OSError):
        return  # there is none, or it is damaged: no reason to refuse the finished one
    for name in (CHECKPOINT, *MADE_LATER):
        (path / name).unlink(missing_ok=True)
    for name in (*OWN, RECORD):
        with suppress(FileNotFoundError):  # moved already
            os.replace(beside / name, path / name)
    shutil.rmtree(beside, ignore_errors=True)


def spoken(place: Path) -> Path:
    """The run as its user knows it, whose fit may be made in a directory of its own."""
    return place.parent if place.name == NEXT else place


def _is_run(path: Path) -> bool:
    """Whether run.json is ours; a damaged one is, beside a model or a checkpoint."""
    if not (path / RECORD).is_file():
        return False
    try:
        record = json.loads(_record_text(path))
    except (ValueError, RecursionError):
        return any((path / name).exists() for name in (MODEL, CHECKPOINT))
    return isinstance(record, dict) and record.get("kind") == KIND


def _foreign(path: Path) -> Iterator[Path]:
    """Files that no run of ours has left."""
    return (entry for entry in path.iterdir() if entry.name != _LOCK and not entry.name.startswith(TEMPORARY))


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
        settle(path)
        yield
    finally:
        lock.release()
