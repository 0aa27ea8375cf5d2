"""A disk that fails at its k-th step, for every k: afterwards each file must be the old one or the new one.

    step = a file is made, a block of it written, forced to the disk, renamed, removed, a directory made or removed
    kill: the process is gone, half of the block written        full: no space from this step on
    interrupt: KeyboardInterrupt

It forks before every kill, so it needs a system that can, and a process in which JAX does not compute.
"""

import builtins
import errno
import io
import os
import shutil
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from ggmflow.cli import run_record
from ggmflow.storage.archive import ModelFileError, read
from ggmflow.storage.replace import TEMPORARY

KINDS = ("kill", "full", "interrupt")
_KILLED = 9
_BLOCK = 2**12  # bytes that reach the disk at a time
_OPEN = open
_CALLS = {name: getattr(os, name) for name in ("fsync", "replace", "remove", "unlink", "mkdir", "rmdir", "open")}
_FREES = ("remove", "unlink", "rmdir")


# ------------------------------------------------------------------------------------------------------------ the disk
class Disk:
    """Count the steps of writing, and fail at one of them.

    Parameters
    ----------
    kind
        One of `KINDS`.
    at
        The step, from 1; 0 for a disk that works.
    """

    def __init__(self, kind: str, at: int):
        self.kind, self.at, self.steps = kind, at, 0

    def step(self, name: str, file: Any = None, half: Callable[[], Any] = lambda: None) -> None:
        """Called before each step on a file; `half` does a part of the step before it fails."""
        self.steps += 1
        if not self.at or self.steps < self.at:
            return
        if self.kind == "kill":
            half()
            os._exit(_KILLED)
        if self.kind == "full" and name not in _FREES:
            half()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file)
        if self.kind == "interrupt" and self.steps == self.at:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        """Route every write of this process through the failing disk."""
        replace_functions(os, **{name: self._wrapped(name, call) for name, call in _CALLS.items()})
        builtins.open = io.open = self._open
        return self

    def __exit__(self, *args: Any) -> None:
        """Restore the functions of the system."""
        replace_functions(os, **_CALLS)
        builtins.open = io.open = _OPEN

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            if name != "open" or args[1] & os.O_CREAT:
                self.step(name, None if name == "fsync" else os.fspath(args[0]))
            return call(*args, **options)

        return wrapped

    def _open(self, file: Any, mode: str = "r", buffering: int = -1, *args: Any, **options: Any) -> Any:
        if not set(mode) & set("wxa+"):
            return _OPEN(file, mode, buffering, *args, **options)
        if "+" not in mode:
            self.step("open", os.fspath(file))
        raw = _File(self, file, mode.replace("b", "").replace("t", ""))
        binary = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw, _BLOCK)
        return binary if "b" in mode else io.TextIOWrapper(binary, *args, **options)


class _File(io.FileIO):
    def __init__(self, disk: Disk, *args: Any):
        self.disk = disk
        super().__init__(*args)

    def write(self, block: Any, /) -> int:
        self.disk.step("write", None, lambda: os.write(self.fileno(), bytes(block)[: len(bytes(block)) // 2]))
        return super().write(block)


# --------------------------------------------------------------------------------------------- functions that write
class Victim(NamedTuple):
    """A function that writes files.

    Attributes
    ----------
    write : callable
        Given a directory and whether it is the old or the new content.
    files : tuple of str
        Names of the files, the same in every process.
    again : callable or None
        Called after a fault, leads to the new content; None where nobody needs it.
    """

    write: Callable[[Path, bool], Any]
    files: tuple[str, ...]
    again: Callable[[Path], Any] | None = None


def replace_functions(owner: Any, **functions: Callable[..., Any]) -> None:
    """Replace functions for the rest of this process."""
    for name, function in functions.items():
        setattr(owner, name, function)


# ------------------------------------------------------------------------------------------------------------- faults
def attempt(call: Callable[[], Any], disk: Disk) -> str:
    """The error that ended a call on this disk, as text; empty if there was none."""
    try:
        with disk, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except KeyboardInterrupt:
        return "KeyboardInterrupt"
    except OSError as problem:
        return f"{type(problem).__name__}: {problem.filename}: {problem.strerror}"
    except run_record.RunError as problem:
        return str(problem)
    except Exception:
        return traceback.format_exc()
    return ""


def is_killed(call: Callable[[], Any], disk: Disk) -> bool:
    """Run the call in a child process; return whether it reached the step that kills it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX and Python warn of forks; nothing in the child needs their threads
        child = os.fork()
    if child == 0:
        attempt(call, disk)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, _KILLED):
        raise RuntimeError(f"a child ended with {code}")
    return code == _KILLED


def contents(place: Path, names: tuple[str, ...]) -> dict[str, bytes | None]:
    """Contents of files; None for a missing one."""
    return {name: (place / name).read_bytes() if (place / name).exists() else None for name in names}


def try_all(victim: Victim, kind: str, directory: Path) -> tuple[int, list[str]]:
    """Write with one fault at each step; return the number of faults and the problems found."""
    states = []
    for new in (False, True):  # contents after a write without faults
        place = directory / f"whole{new}"
        place.mkdir()
        for until in (False, True)[: new + 1]:
            victim.write(place, until)
        states.append(contents(place, victim.files))
    problems = []
    for at in range(1, 1000):
        place = directory / f"{kind}{at}"
        shutil.copytree(directory / "wholeFalse", place)
        disk, write, error = Disk(kind, at), partial(victim.write, place, True), ""
        if kind == "kill":
            reached = is_killed(write, disk)
        else:
            error = attempt(write, disk)
            reached = disk.steps >= at
        if not reached:
            return at - 1, problems
        problems += [f"step {at}: {problem}" for problem in find_damage(victim, kind, place, states, error)]
        shutil.rmtree(place)
    raise RuntimeError("a write without end")


def find_damage(victim: Victim, kind: str, place: Path, states: list[dict[str, bytes | None]], error: str) -> list[str]:
    """Problems that a fault has caused."""
    problems = []
    if (place / "run").is_dir():
        problems += check_run(place / "run", states)
    elif (found := contents(place, victim.files)) not in states:
        problems.append(f"neither old nor new: {[len(content or b'') for content in found.values()]} bytes")
    temporary = [path.name for path in place.rglob(f"{TEMPORARY}*")]
    if kind != "kill" and temporary:
        problems.append(f"left {temporary}")
    if error.startswith("Traceback"):
        problems.append(error)
    if (
        kind == "full"
        and error
        and not any(name in error for name in (*victim.files, ".lock", run_record.RECORD, "run"))
    ):
        problems.append(f"the error names no file: {error}")
    if victim.again is not None:
        error = attempt(partial(victim.again, place), Disk(kind, 0))
        finished = victim.files[0].startswith("run/") and contents(place, victim.files) == states[1]
        # A finished run that was not touched yet is still the earlier fit, and the error says so.
        untouched = "holds a finished fit" in error and contents(place, victim.files) == states[0]
        if not (finished or untouched):
            problems.append(f"cannot continue: {error}")
        elif finished and any((place / "run").glob(f"{TEMPORARY}*")):
            problems.append("what was left is still there after going on")
    return problems


def check_run(path: Path, states: list[dict[str, bytes | None]]) -> list[str]:
    """Problems of a run: files must be complete, match the record, and a finished fit stays until the next is."""
    for name in (run_record.MODEL, run_record.CHECKPOINT):
        try:
            if (path / name).exists():
                read(path / name)
        except ModelFileError as error:
            return [str(error)]
    was_finished = states[0][f"run/{run_record.MODEL}"] is not None
    if not (path / run_record.RECORD).exists():
        return ["the finished fit is lost"] if was_finished else []
    record = run_record.read_record(path)
    if record["status"] != "finished":
        return ["the finished fit is lost"] if was_finished else []
    expected = states[record["parameters"]["lam"] == 2.0]
    found = contents(path.parent, tuple(expected))
    return [] if found == expected else ["the record is of another fit than the files"]
