"""A disk that fails at its k-th step, for every k: whatever this package writes is the old file or the new one.

    step = a file is made, a block of it written, forced to the disk, renamed, removed, a directory made or removed
    kill: the process is gone, half of the block written        full: no space from this step on
    interrupt: KeyboardInterrupt

    python -m benchmarks.trust.disk      prints {what is written: {fault: [number of faults, [what went wrong]]}}

It forks before every kill, so it needs a system that can, and a process in which JAX does not compute.
"""

import builtins
import errno
import io
import json
import os
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

import ggmflow as gf
from ggmflow.cli import run, run_record
from ggmflow.data.scatter import Scatter
from ggmflow.estimator import graphical_flow as estimator
from ggmflow.evidence.prior import write_prior
from ggmflow.report import page
from ggmflow.storage.archive import TEMPORARY, ModelFileError, read, write
from ggmflow.train import loop as train
from ggmflow.train.checkpoint import Progress, write_checkpoint
from ggmflow.train.chunk import initial_state
from ggmflow.views import export

KINDS = ("kill", "full", "interrupt")
_KILLED = 9
_BLOCK = 2**12  # bytes that reach the disk at a time
_OPEN = open
_CALLS = {name: getattr(os, name) for name in ("fsync", "replace", "remove", "unlink", "mkdir", "rmdir", "open")}
_FREES = ("remove", "unlink", "rmdir")


# ------------------------------------------------------------------------------------------------------------ the disk
class Disk:
    """Counts steps, and fails at one of them.

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
        """Before a step is done to a file, whose name the system gives if it knows it; `half` does a part of it."""
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
        """Let every write of this process go through here."""
        replace(os, **{name: self._wrapped(name, call) for name, call in _CALLS.items()})
        builtins.open = io.open = self._open
        return self

    def __exit__(self, *args: Any) -> None:
        """As before."""
        replace(os, **_CALLS)
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


# -------------------------------------------------------------------------------------------------- what is written
class Victim(NamedTuple):
    """Something that writes.

    Attributes
    ----------
    write : callable
        Given a directory and whether it is the old or the new content.
    files : tuple of str
        What it writes, which is the same in every process.
    again : callable or None
        After a fault, what leads to the new content; None where nobody needs it.
    """

    write: Callable[[Path, bool], Any]
    files: tuple[str, ...]
    again: Callable[[Path], Any] | None = None


def victims() -> dict[str, Victim]:
    """What this package writes, of each kind one; files of `fit_many` are written as models are, HDF5 by itself."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 4))
    table = pd.DataFrame({"row": "a", "column": list("bcd"), "association": [0.3, -0.2, 0.1], "edge": True})
    texts = ["old " * 5000, "new " * 6000]

    def untrained(flow: Any, *args: Any, **options: Any) -> train.Trained:
        return train.Trained(flow, {}, [train.Report(25, 25, 0.0, 1.0, 0)], "finished")

    replace(estimator, train=untrained)
    models = [gf.GraphicalFlow(lam=lam, q=1.0, random_state=0, progress=False).fit(X) for lam in (3.0, 2.0)]
    for model in models:
        _ = model.choice_
    save, weights = gf.GraphicalFlow.save, [rng.normal(size=3000) for _ in range(2)]

    def checkpoint(path: Path, new: bool) -> None:
        history = [train.Report(25, 25, 0.0, 1.0, 0)]
        progress = Progress(initial_state(weights[new]), weights[new], {}, history, 0.0, 1)
        write_checkpoint(path, {"of": new}, progress)

    def fit(model: gf.GraphicalFlow, scatter: Scatter, place: Path) -> None:
        new = model.lam == 2.0
        checkpoint(place / run_record.CHECKPOINT, new)
        vars(model).update(vars(models[new]))

    def fit_run(place: Path, new: bool, **options: bool) -> None:
        model = gf.GraphicalFlow(lam=2.0 if new else 3.0, q=1.0, random_state=0, progress=False)
        run.fit_run(model, scatter, place / "run", {"file": "x.csv", "sha256": "0"}, "ggmflow fit x.csv", **options)

    scatter = Scatter.from_data(X)
    # What computes has done so above: nothing but writing is left. A run's model is small, its own victim is not.
    replace(run, _fit=fit, entry_table=lambda post: table, load_run=lambda path: None)
    replace(page, collect=lambda *args: None, render=lambda model, *args: texts[model.lam == 2.0])
    replace(
        export,
        entry_table=lambda post, *args: table.assign(mean=float(post), **dict.fromkeys(_SHARED, 0.0)),
        describe=lambda post, table: {"condition": post},
        graphml=lambda post, *args: texts[post].encode(),
    )
    replace(
        gf.GraphicalFlow,
        posterior=lambda self: None,
        save=lambda self, path: write(path, {"lam": self.lam}, {"few": weights[0][:10]}),
    )

    def exported(format: str) -> Victim:
        name = export.FORMATS[format][0]
        return Victim(lambda place, new: export.export(new, place / name, format), (name,))  # pyright: ignore

    results = tuple(f"run/{name}" for name in (run_record.MODEL, run_record.EDGES, run_record.README))
    return {
        "model": Victim(lambda place, new: save(models[new], place / "model"), ("model",)),
        "checkpoint": Victim(lambda place, new: checkpoint(place / "checkpoint", new), ("checkpoint",)),
        "report": Victim(lambda place, new: gf.write_report(models[new], place / "report.html"), ("report.html",)),
        **{format: exported(format) for format in ("csv", "json", "graphml")},
        "prior": Victim(lambda place, new: write_prior(place / "prior", {"h": weights[new]}), ("prior",)),
        "new run": Victim(
            lambda place, new: fit_run(place, True) if new else None,
            results,
            lambda place: fit_run(place, True, resume=True),
        ),
        "run replaced": Victim(
            lambda place, new: fit_run(place, new, force=new),
            results,
            lambda place: fit_run(
                place, True, resume=(place / "run" / run_record.NEXT / run_record.RECORD).exists(), force=False
            ),
        ),
    }


_SHARED = ("lam", "q", "temperature", "level", "rule")


def replace(owner: Any, **functions: Callable[..., Any]) -> None:
    """Put others in the place of functions, for the rest of this process."""
    for name, function in functions.items():
        setattr(owner, name, function)


# ------------------------------------------------------------------------------------------------------------- faults
def attempt(call: Callable[[], Any], disk: Disk) -> str:
    """The error that ended a call with this disk, as text; empty if there was none."""
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
    """Whether a child that does the same came to the step that kills it."""
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
    """Of some files; None for one that is not there."""
    return {name: (place / name).read_bytes() if (place / name).exists() else None for name in names}


def try_all(victim: Victim, kind: str, directory: Path) -> tuple[int, list[str]]:
    """One fault at every step of a write."""
    states = []
    for new in (False, True):  # what an undisturbed write leaves
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
        problems += [f"step {at}: {problem}" for problem in look(victim, kind, place, states, error)]
        shutil.rmtree(place)
    raise RuntimeError("a write without end")


def look(victim: Victim, kind: str, place: Path, states: list[dict[str, bytes | None]], error: str) -> list[str]:
    """What a fault has broken."""
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
        # A finished run that was not touched yet is still another fit, and says so.
        untouched = "holds a finished fit" in error and contents(place, victim.files) == states[0]
        if not (finished or untouched):
            problems.append(f"cannot go on: {error}")
        elif finished and any((place / "run").glob(f"{TEMPORARY}*")):
            problems.append("what was left is still there after going on")
    return problems


def check_run(path: Path, states: list[dict[str, bytes | None]]) -> list[str]:
    """Whatever has its own name is whole, the record is true, and a finished fit stays until another one is."""
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


def main() -> None:
    """Try all faults; one JSON object on standard output."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for name, victim in victims().items():
            for kind in KINDS:
                place = Path(directory, f"{name}-{kind}")
                place.mkdir()
                found.setdefault(name, {})[kind] = try_all(victim, kind, place)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
