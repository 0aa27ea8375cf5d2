"""A run directory, read without JAX: its files, the record run.json, the lock, and whether a fit can start in it.

`ggmflow.cli.run` fits and loads models, and its docstring lists the files; `ggmflow.cli.run_status` lists the states.
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

from ggmflow.cli.run_status import Start, Status, how_to_start
from ggmflow.errors.advice import Advice, Surface
from ggmflow.model.conditions import Boundary, boundaries_from_json
from ggmflow.storage.replace import TEMPORARY
from ggmflow.views.formats import EXPORTS

FORMAT = 2  # 1 had sentences `at_ends` instead of `at_boundary`
RECORD, MODEL, CHECKPOINT, EDGES, README = "run.json", "model.ggmflow", "checkpoint", "edges.csv", "README.txt"
REPORT = "report.html"
KIND = "ggmflow run"
_MOST_BYTES = 2**26  # of run.json, which holds the names of columns and little else
_LOCK, NEXT = ".lock", ".next"
OWN = (MODEL, EDGES, README)  # results of a fit
MADE_LATER = (REPORT, *EXPORTS.values())  # files that other commands add


class RunError(ValueError):
    """A directory is not a run, is damaged, in use, or holds another fit.

    Attributes
    ----------
    path : Path
        The directory.
    reason : str
        The problem, a sentence without its final stop.
    advice : tuple of Advice
        Remedies, of which one is enough.
    """

    def __init__(self, path: str | Path, reason: str, *advice: Advice):
        self.path, self.reason, self.advice = Path(path), reason, advice
        super().__init__(path, reason, *advice)  # as `args`, so that the exception can be pickled

    def __str__(self) -> str:
        return self.text(Surface.PYTHON)

    def text(self, surface: Surface) -> str:
        """The message, in which options are written as they are typed at this surface."""
        remedies = ", or ".join(each.text(surface) for each in self.advice)
        return f"{self.reason}: {remedies}" if remedies else self.reason


FIT_AGAIN = Advice("fit again with `ggmflow fit --force`")  # also for readers of a run, who have no such option
BEGIN_AGAIN = Advice("begin again with", {"force": True})
_ANOTHER = Advice("choose another directory")


def read_record(path: str | Path) -> dict[str, Any]:
    """Read run.json, after a finished fit has replaced an earlier one.

    Parameters
    ----------
    path
        The directory, as the user names it.

    Returns
    -------
    dict
        status (a `Status`), command, versions, data (file, sha256, rows, columns, check, delimiter, decimal, drop),
        parameters, started, updated, seconds; of a finished fit also steps, training, timings (seconds: compiling,
        training, choosing; not in runs of earlier versions), model (the SHA-256 of its file), chosen (lam, q,
        at_boundary) and ranges.

    Raises
    ------
    RunError
        If there is no run, or run.json is damaged.
    """
    path = Path(path)
    if (path / NEXT).is_dir():
        with (
            suppress(RunError, OSError),
            locked(path),
        ):  # completes the replacement, if the lock is free
            pass
    return record_in(path)


def finished_record(path: str | Path) -> dict[str, Any]:
    """`read_record` of a finished fit; raises RunError for another one."""
    record = read_record(path)
    if nothing_to_resume(Path(path)):
        raise RunError(path, f"the fit in {path} failed and cannot be resumed", Advice("fit again"))
    if record["status"] != Status.FINISHED:
        resume = Advice(f"resume it with `{record['command']} --resume`")  # only the command line can
        raise RunError(path, f"the fit in {path} is not finished", resume)
    return record


def record_in(path: Path) -> dict[str, Any]:
    """Read the run.json of this directory, without any change on disk. Parameters and result as in `read_record`."""
    if not path.is_dir():
        problem = "is a file" if path.exists() else "does not exist"
        raise RunError(path, f"{path} {problem}", Advice("give the directory of a run"))
    if not (path / RECORD).is_file():
        raise RunError(path, f"{path} is not a ggmflow run: it has no {RECORD}")
    try:
        record = json.loads(_record_text(path))
    except (ValueError, RecursionError):
        raise RunError(path, f"{path} is damaged, {RECORD} cannot be read", FIT_AGAIN) from None
    if not isinstance(record, dict) or record.get("kind") != KIND:
        raise RunError(path, f"{path} is not a ggmflow run: another program wrote its {RECORD}")
    if isinstance(version := record.get("format"), int) and version > FORMAT:
        raise RunError(path, f"{path} was written by a newer ggmflow", Advice("update ggmflow to read it"))
    expected = {"status": str, "command": str, "seconds": int | float}
    expected |= dict.fromkeys(("versions", "data", "parameters"), dict)
    wrong = [name for name, kind in expected.items() if not isinstance(record.get(name), kind)]
    if record.get("status") not in list(Status) or wrong:
        name = wrong[0] if wrong else "status"
        raise RunError(path, f"{path} is damaged, {RECORD} has no valid {name!r}", FIT_AGAIN)
    if damaged := _damaged_part(record):
        raise RunError(path, f"{path} is damaged, {RECORD} has no valid {damaged!r}", FIT_AGAIN)
    return record | {"status": Status(record["status"])}


def _record_text(path: Path) -> str:
    with (path / RECORD).open("rb") as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError("too large")
    return text.decode("utf-8")


def _damaged_part(record: dict[str, Any]) -> str | None:
    """Name of the first part of a record that is missing or has a wrong type."""

    def number(value: object) -> bool:
        # Unlike math.isfinite, a comparison works with integers of any size; NaN fails it.
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max

    data = record["data"]
    if not (number(data.get("rows")) and isinstance(data.get("columns"), list) and isinstance(data.get("file"), str)):
        return "data"
    if not number(record["seconds"]):
        return "seconds"
    if record["status"] != Status.FINISHED:
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
    """Name and SHA-256 of a file, by which a run recognizes its data."""
    with path.open("rb") as file:
        return {"file": path.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def check_directory(path: Path) -> None:
    """Raise RunError if a path is neither free nor a run directory."""
    if path.exists() and not path.is_dir():
        raise RunError(path, f"{path} is a file", Advice("name a directory that is new, or that of a run"))
    if path.is_dir() and not _is_run(path) and ((path / RECORD).exists() or any(_foreign(path))):
        raise RunError(path, f"{path} holds other files and no run", Advice("choose a new directory"))


def check_free(path: Path) -> None:
    """Raise RunError if a fit cannot begin in a directory without `resume` or `force`.

    `fit_run` checks again when it has the lock, and alone decides about a fit that is to replace a finished one.
    """
    check_directory(path)
    if _is_run(path) and not (path / NEXT).exists():
        with locked(path):
            start_in(path, resume=False, force=False)


def start_in(path: Path, resume: bool, force: bool) -> tuple[Start, dict[str, Any] | None]:
    """How a fit starts in a directory, and the record of the fit that it must agree with.

    Parameters
    ----------
    path
        The directory in which the fit is made.
    resume, force
        As the user asked.

    Returns
    -------
    start : Start
        Never `Start.REFUSE`.
    record : dict or None
        Record of the fit that is resumed or loaded.

    Raises
    ------
    RunError
        If the directory holds a fit and the user asked neither to resume nor to replace it.
    """
    old = None if force or not (path / RECORD).exists() else record_in(path)
    status, has_checkpoint = None if old is None else old["status"], (path / CHECKPOINT).exists()
    start = how_to_start(status, has_checkpoint=has_checkpoint, resume=resume, force=force)
    if start is not Start.REFUSE:
        return start, None if nothing_to_resume(path) else old
    run = shown_path(path)
    if status is Status.FINISHED:
        raise RunError(run, f"{run} holds a finished fit", _ANOTHER, Advice("replace it with", {"force": True}))
    continue_it = Advice("resume it with", {"resume": True})
    raise RunError(run, f"{run} holds a fit that is not finished", continue_it, BEGIN_AGAIN)


def nothing_to_resume(path: Path) -> bool:
    """Whether the fit in this directory failed before its first checkpoint, for lack of memory for instance."""
    with suppress(RunError):
        return record_in(path)["status"] is Status.FAILED and not (path / CHECKPOINT).exists()
    return False


def settle(path: Path) -> None:
    """Replace a fit by a finished one in `.next`, if there is one; the next lock holder completes the swap."""
    beside = path / NEXT
    try:
        if beside.is_symlink() or record_in(beside)["status"] is not Status.FINISHED:
            return
    except (RunError, OSError):
        return  # there is none, or it is damaged
    for name in (CHECKPOINT, *MADE_LATER):
        (path / name).unlink(missing_ok=True)
    for name in (*OWN, RECORD):
        with suppress(FileNotFoundError):  # moved already
            os.replace(beside / name, path / name)
    shutil.rmtree(beside, ignore_errors=True)


def shown_path(path: Path) -> Path:
    """The directory that messages name: a fit in `.next` belongs to the run around it."""
    return path.parent if path.name == NEXT else path


def _is_run(path: Path) -> bool:
    """Whether run.json was written by ggmflow; a damaged one counts if a model or a checkpoint is beside it."""
    if not (path / RECORD).is_file():
        return False
    try:
        record = json.loads(_record_text(path))
    except (ValueError, RecursionError):
        return any((path / name).exists() for name in (MODEL, CHECKPOINT))
    return isinstance(record, dict) and record.get("kind") == KIND


def _foreign(path: Path) -> Iterator[Path]:
    """Files that no fit has left."""
    return (entry for entry in path.iterdir() if entry.name != _LOCK and not entry.name.startswith(TEMPORARY))


@contextmanager
def locked(path: Path, writes: Sequence[str] = ()) -> Iterator[None]:
    """Lock a directory for this process, and make it if necessary; the system unlocks it if the process is killed.

    If a process was killed before its finished fit replaced an earlier one, that is completed first.

    Parameters
    ----------
    path
        The directory.
    writes
        Files in it that will be written.

    Raises
    ------
    RunError
        If another process has the lock, or one of the files is a symbolic link.
    """
    path.mkdir(parents=True, exist_ok=True)
    for name in (_LOCK, *writes):
        if (path / name).is_symlink():  # a run may come from someone else, and the link point to any file of the user
            raise RunError(path, f"{path} holds a link where ggmflow would write, {name}", _ANOTHER)
    lock = filelock.FileLock(path / _LOCK)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        raise RunError(path, f"another ggmflow process uses {path}", Advice("wait for it"), _ANOTHER) from None
    try:
        settle(path)
        yield
    finally:
        lock.release()
