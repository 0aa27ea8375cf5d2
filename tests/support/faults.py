"""Faults: kill -9, full disks, two fits in one directory, Ctrl-C and SIGTERM, at every step or at seeded moments.

    data lost = a file that is neither the old one nor the new one, an earlier result that is gone,
                a fit that does not continue to the same bytes

Steps of every write are tried one by one on a disk that fails (`tests.support.disk`). Whole programs are hit at
random moments between their first line and the end of an undisturbed run.
"""

import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ggmflow.cli.run_record import CHECKPOINT, EDGES, MODEL, README, RECORD, REPORT, read_record
from ggmflow.storage import archive
from ggmflow.storage.replace import TEMPORARY
from tests.support.processes import OFTEN, OPTIONS, Ended, Stage, end, end_with, hit, start, wait_until

# Save two models alternately under one name.
SAVING = """
import sys
from ggmflow.storage import archive
models = [archive.read(path) for path in sys.argv[1:3]]
print("ready", flush=True)
while True:
    for model in models:
        archive.write(sys.argv[3], *model)
"""
# Fit three models into one directory; with a number, wait to be killed after that many fits.
MANY = """
import sys
import time
import pandas as pd
import ggmflow as gf
rows = pd.read_csv(sys.argv[1])
tables = {f"rows{k}": rows.sample(len(rows), replace=True, random_state=k) for k in range(3)}
model = gf.GraphicalFlow(lam=2.0, q=1.0, temperature=1.0, steps=100, random_state=0, progress=False)
fit, fitted = gf.GraphicalFlow.fit, []
def wait_for_the_kill(self, *args, **more):
    if len(sys.argv) > 3 and len(fitted) == int(sys.argv[3]):
        time.sleep(600)
    fitted.append(fit(self, *args, **more))
    return fitted[-1]
gf.GraphicalFlow.fit = wait_for_the_kill
gf.fit_many(tables, model, directory=sys.argv[2])
"""


class Found(NamedTuple):
    """Results of faults of one kind."""

    faults: int
    lost: list[str]
    shown: list[str]  # tracebacks and unclear messages


# -------------------------------------------------------------------------------------------------------------- checks
def bytes_of(run: Path, *names: str) -> list[bytes]:
    """Contents of a run's files; by default those that equal fits share."""
    return [(run / name).read_bytes() for name in names or (MODEL, EDGES)]


def damage(run: Path) -> list[str]:
    """Files of a run that are incomplete."""
    readers: dict[str, Callable[[Path], Any]] = {
        RECORD: lambda path: read_record(path.parent),
        MODEL: archive.read,
        CHECKPOINT: archive.read,
        EDGES: pd.read_csv,
        README: lambda path: path.read_text(encoding="utf-8").index("load_run"),
        REPORT: lambda path: path.read_text(encoding="utf-8").index("</html>"),
    }
    found = []
    for path in list(run.rglob("*")):
        try:
            if path.name in readers:
                readers[path.name](path)
        except (ValueError, OSError, KeyError) as error:
            found.append(f"{path.name}: {error}")
    return found


def goes_on(stage: Stage, run: Path, before: Path | None) -> list[str]:
    """Problems of a disturbed run, and of its result after continuing."""
    lost = damage(run)
    if before is not None:
        status, model = read_record(run)["status"], bytes_of(run)
        if status != "finished" or model not in (bytes_of(before), bytes_of(stage.whole)):
            lost.append(f"the earlier fit is gone: {status}")
    again = end(start("fit", stage.table, "-o", run, *OPTIONS, "--resume"))
    if before is not None and "holds another fit" in again.errors:  # the new one had not begun yet
        again = end(start("fit", stage.table, "-o", run, *OPTIONS, "--force"))
    if again.code:
        lost.append(f"does not continue: {again.errors}")
    elif bytes_of(run) != bytes_of(stage.whole):
        lost.append("continues to another model")
    names = [path.name for path in run.iterdir()]
    left = [name for name in names if name.startswith(TEMPORARY) or name in (CHECKPOINT, ".next")]
    return lost + [f"leaves {name}" for name in left]


def bad_end(result: Ended, codes: tuple[int, ...], text: str) -> list[str]:
    """Problems with the end of a program: exit code, one line with the reason, no traceback."""
    lines = result.errors.rstrip().splitlines() or [""]
    if "Traceback" in result.errors or "Error" in result.errors.replace("Error: ", ""):
        return [result.errors]
    if result.code not in codes or (result.code > 0 and text not in lines[-1]):
        return [f"exit code {result.code}: {lines[-1]}"]
    return []


# -------------------------------------------------------------------------------------------------------------- faults
def kill_fits(stage: Stage, rng: random.Random, count: int, before: Path | None) -> Found:
    """SIGKILL at random moments of a fit, new or in place of a finished one; two in a row before it continues."""
    lost, faults = [], 0
    for _ in range(count):
        run = stage.fresh(before)
        for more in (["--force"] if before else [], ["--resume"]):
            process = start("fit", stage.table, "-o", run, *OPTIONS, *more, code=OFTEN)
            faults += hit(process, rng.uniform(0, stage.seconds), signal.SIGKILL).hit
            lost += damage(run)
        lost += goes_on(stage, run, before)
    return Found(faults, lost, [])


def kill_readers(stage: Stage, rng: random.Random, count: int) -> Found:
    """SIGKILL of report, export and explore: the run must not change, a written file be complete."""
    lost, faults, earlier = [], 0, b"<html>of an earlier day</html>"
    commands = {REPORT: ["report"], "summary.json": ["export", "--format", "json"]}
    ends, seconds = {REPORT: b"</html>", "summary.json": b"}"}, {}
    for command, *options in commands.values():
        begin = time.monotonic()
        if (undisturbed := end(start(command, stage.fresh(stage.whole), *options))).code:
            raise RuntimeError(undisturbed.errors)
        seconds[command] = time.monotonic() - begin
    seconds["explore"] = max(seconds.values())
    readers = [*commands.values(), ["explore", "--no-browser", "--port", str(free_port())]]
    for k in range(count):
        run = stage.fresh(stage.whole)
        for name in commands:
            (run / name).write_bytes(earlier)
        command, *options = readers[k % len(readers)]
        # They write at the end: half of the kills happen there.
        moment = rng.uniform(0 if k % 2 else 0.8, 1.02) * seconds[command]
        faults += hit(start(command, run, *options), moment, signal.SIGKILL).hit
        lost += damage(run)
        if bytes_of(run, MODEL, EDGES, RECORD) != bytes_of(stage.whole, MODEL, EDGES, RECORD):
            lost.append(f"{command} changed the run")
        for name, last in ends.items():
            if (found := (run / name).read_bytes()) != earlier and not found.rstrip().endswith(last):
                lost.append(f"{name} is neither the earlier one nor whole after a kill of {command}")
    return Found(faults, lost, [])


def kill_saves(stage: Stage, rng: random.Random, count: int) -> Found:
    """SIGKILL of a process that does nothing but save two models under one name."""
    lost, target = [], stage.directory / "saved"
    known = [*bytes_of(stage.old, MODEL), *bytes_of(stage.whole, MODEL)]
    for _ in range(count):
        process = start(stage.old / MODEL, stage.whole / MODEL, target, code=SAVING)
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise RuntimeError(end(process).errors)
        time.sleep(rng.uniform(0.01, 0.2))
        process.kill()
        end(process)
        if target.read_bytes() not in known:
            lost.append("a saved model is neither of the two")
    return Found(count, lost, [])


def kill_many(stage: Stage, count: int, whole: Path | None = None) -> Found:
    """SIGKILL of `fit_many` once one or two models are in its directory: the same call then fits only the others.

    `whole` has the models of an undisturbed call, which is otherwise made here.
    """
    lost, faults = [], 0
    if whole is None:
        whole = stage.fresh()
        if (undisturbed := end(start(stage.table, whole, code=MANY))).code:
            raise RuntimeError(undisturbed.errors)
    for k in range(count):
        place = stage.fresh()
        process = start(stage.table, place, 1 + k % 2, code=MANY)
        wait_until(process, (place / f"rows{k % 2}.ggmflow").exists)
        faults += end_with(process, signal.SIGKILL).code == -signal.SIGKILL
        # A file that is written again has another inode, even with the same bytes.
        kept = {path: path.stat().st_ino for path in place.glob("rows*")}
        if len(kept) not in (1, 2):
            lost.append(f"{len(kept)} of 3 models after the kill")
        again = end(start(stage.table, place, code=MANY))
        if again.code:
            lost.append(f"does not continue: {again.errors}")
        elif any(path.read_bytes() != (place / path.name).read_bytes() for path in whole.iterdir()):
            lost.append("continues to other models")
        lost += [f"{path.name} was fitted again" for path, number in kept.items() if path.stat().st_ino != number]
    return Found(faults, lost, [])


def end_by_signal(stage: Stage, rng: random.Random, count: int, number: int) -> Found:
    """Ctrl-C or SIGTERM between the first line of a program and its end: one line, exit code 128 + number."""
    lost, shown, faults = [], [], 0
    for k in range(count):
        reading = k % 4 == 3  # one in four is a report
        run = stage.fresh(stage.whole if reading else None)
        arguments = ["report", run] if reading else ["fit", stage.table, "-o", run, *OPTIONS]
        # Stratified over the running time.
        result = hit(start(*arguments), stage.seconds * (k + rng.random()) / count, number)
        faults += result.hit
        # The program restores the signal's default at its end; a later signal ends it after its results are written.
        shown += bad_end(result, (128 + number, 0, -number) if result.hit else (0,), "Interrupted")
        lost += damage(run)
        left = [path.name for path in run.glob(f"{TEMPORARY}*")] if run.exists() else []
        lost += [f"left {name}" for name in left]
        if not reading:
            lost += goes_on(stage, run, None)
    return Found(faults, lost, shown)


def two_at_once(stage: Stage, count: int) -> Found:
    """Start two fits in one directory: one must finish, the other report the reason why not."""
    lost, shown = [], []
    for _ in range(count):
        run = stage.fresh()
        pair = [start("fit", stage.table, "-o", run, *OPTIONS) for _ in range(2)]
        first, second = sorted((end(process) for process in pair), key=lambda result: result.code)
        text = "process uses" if "process uses" in second.errors else "holds a finished fit"
        shown += bad_end(first, (0,), "") + bad_end(second, (2,), text)
        if damage(run) or bytes_of(run) != bytes_of(stage.whole):
            lost.append("two fits made something else than one")
    return Found(count, lost, shown)


def fill_disk(stage: Stage, make: Callable[[Path], Any], reason: str) -> Found:
    """Run commands on a full disk: one line must name the file, earlier files stay, no temporary file remains."""
    lost, shown = [], []
    written = {"fit": "", "report": REPORT, "csv": "summary.csv", "json": "summary.json", "netcdf": "posterior.nc"}
    for name in written:
        with make(stage.fresh()) as (run, fill, options):
            shutil.copytree(stage.old if name == "fit" else stage.whole, run)
            if name == "fit":
                arguments = ["fit", stage.table, "-o", run, *OPTIONS, "--force"]
            else:
                arguments = ["report", run] if name == "report" else ["export", run, "--format", name]
                (run / written[name]).write_text("earlier</html>", encoding="utf-8")
            before = contents(run)
            fill()
            result = end(start(*arguments, **options))
            shown += bad_end(result, (2,), reason)
            if str(run / written[name]) not in result.errors:
                shown.append(f"{name} does not name the file: {result.errors}")
            if (after := contents(run)) != before:
                changed = {file for file in before | after if before.get(file) != after.get(file)}
                lost.append(f"{name} changed {', '.join(changed)}")
            lost += [f"{name} left {path.name}" for path in run.rglob(f"{TEMPORARY}*")]
    return Found(len(written), lost, shown)


def contents(run: Path) -> dict[str, bytes]:
    """Contents of all files of a run except its lock."""
    return {path.name: path.read_bytes() for path in run.iterdir() if path.is_file() and path.name != ".lock"}


@contextmanager
def small_files(run: Path) -> Iterator[tuple[Path, Callable[[], Any], dict[str, Any]]]:
    """Forbid files beyond 2000 bytes in the program."""
    import resource  # not on Windows

    yield run, lambda: None, {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))}


@contextmanager
def small_disk(run: Path) -> Iterator[tuple[Path, Callable[[], Any], dict[str, Any]]]:
    """Mount a disk that can be filled; only root may do so."""
    place = run.with_name("disk")
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", place], check=True)
    try:
        yield place / "run", lambda: (place / "ballast").write_bytes(bytes(shutil.disk_usage(place).free)), {}
    finally:
        subprocess.run(["umount", place], check=True)


def can_mount() -> bool:
    """Whether this process may mount a small disk."""
    with tempfile.TemporaryDirectory() as place:
        try:
            command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place]
            made = subprocess.run(command, capture_output=True).returncode == 0
        except OSError:
            return False
        if made:
            subprocess.run(["umount", place], check=True)
        return made


def free_port() -> int:
    """An unused port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def every_step() -> Found:
    """Try all writes on a disk that fails at each of their steps."""
    command = [sys.executable, "-m", "tests.support.disk_victims"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    tried = [(name, kind, *result) for name, kinds in found.items() for kind, result in kinds.items()]
    lost = [f"{name}, {kind}: {problem}" for name, kind, _, problems in tried for problem in problems]
    return Found(sum(number for _, _, number, _ in tried), lost, [])
