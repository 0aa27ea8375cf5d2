"""Faults: kill -9, full disks, two fits in one directory, Ctrl-C and SIGTERM, at every step or at seeded moments.

    data lost = a file that is neither the old one nor the new one, an earlier result that is gone,
                a fit that does not go on to the same bytes

Steps of every write are tried one by one on a disk that fails (`benchmarks.trust.disk`). Whole programs are hit at
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

import numpy as np
import pandas as pd

from benchmarks.trust import Row
from ggmflow.cli.run_record import CHECKPOINT, EDGES, MODEL, README, RECORD, REPORT, read_record
from ggmflow.storage import archive

SEED = 1
OPTIONS = ["--lam", "2", "--q", "1", "--temperature", "1", "--steps", "100"]
# A checkpoint after every chunk: a fit of seconds can be killed between them.
OFTEN = """
from ggmflow.train import checkpoint
from ggmflow.__main__ import main
checkpoint.SECONDS_BETWEEN_CHECKPOINTS = 0.0
main()
"""
# Two models take turns under one name.
SAVING = """
import sys
from ggmflow.storage import archive
models = [archive.read(path) for path in sys.argv[1:3]]
print("ready", flush=True)
while True:
    for model in models:
        archive.write(sys.argv[3], *model)
"""
# Three models in one directory, each saved when it is there; with a number, it waits after so many to be killed.
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
    """What faults of one kind did."""

    faults: int
    lost: list[str]
    shown: list[str]  # tracebacks, and messages that are none


class Ended(NamedTuple):
    """A process that has ended; `hit` says whether the fault came before its end."""

    code: int
    errors: str
    hit: bool


class Stage(NamedTuple):
    """A table, an earlier fit and the fit that faults disturb, with the seconds that this one takes."""

    directory: Path
    table: Path
    old: Path
    whole: Path
    seconds: float

    def fresh(self, source: Path | None = None) -> Path:
        """A new place for a run, with an earlier one in it or not yet there."""
        path = Path(tempfile.mkdtemp(dir=self.directory)) / "run"
        if source is not None:
            shutil.copytree(source, path)
        return path


def start(*arguments: Any, code: str | None = None, **options: Any) -> subprocess.Popen[str]:
    """The command line, or another program."""
    command = [sys.executable, *(["-m", "ggmflow"] if code is None else ["-c", code]), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def end(process: subprocess.Popen[str], hit: bool = False) -> Ended:
    """Wait for a process."""
    _, errors = process.communicate(timeout=300)
    return Ended(process.returncode, errors, hit)


def hit(process: subprocess.Popen[str], seconds: float, number: int) -> Ended:
    """Send a signal some time after the program has begun, and wait for its end."""
    wait_until(process, lambda: catches(process.pid, signal.SIGTERM))
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return end_with(process, number)
    return end(process)


def end_with(process: subprocess.Popen[str], number: int) -> Ended:
    """Send a signal, and wait for the end."""
    process.send_signal(number)
    return end(process, hit=True)


def catches(pid: int, number: int) -> bool:
    """Whether a process handles a signal: ours does from its first line on; before that Python itself starts."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:  # another system: a moment later
        time.sleep(0.3)
        return True
    mask = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(mask.split()[1], 16) >> (number - 1) & 1)


def wait_until(process: subprocess.Popen[str], condition: Callable[[], bool], seconds: float = 600) -> None:
    """Look every few milliseconds."""
    last = time.monotonic() + seconds
    while process.poll() is None and not condition():
        if time.monotonic() > last:
            raise TimeoutError
        time.sleep(0.002)


def set_up(directory: Path) -> Stage:
    """A fit, and an earlier one to be replaced by it."""
    table, old, whole = (directory / name for name in ("table.csv", "old", "whole"))
    X = np.random.default_rng(SEED).normal(size=(30, 4)) @ (np.eye(4) + 0.5 * np.eye(4, k=1))
    pd.DataFrame(X, columns=list("abcd")).to_csv(table, index=False)
    begin = time.monotonic()
    result = end(start("fit", table, "-o", whole, *OPTIONS))
    seconds = time.monotonic() - begin
    if result.code:
        raise RuntimeError(result.errors)
    # The earlier one is the same flow under another λ: what it says does not matter here, only that it stays.
    shutil.copytree(whole, old)
    header, arrays = archive.read(whole / MODEL)
    archive.write(old / MODEL, header | {"parameters": header["parameters"] | {"lam": 3.0}}, arrays)
    record = read_record(whole)
    text = json.dumps(record | {"parameters": record["parameters"] | {"lam": 3.0}})
    (old / RECORD).write_text(text, encoding="utf-8")
    return Stage(directory, table, old, whole, seconds)


# ------------------------------------------------------------------------------------------------------ what must hold
def bytes_of(run: Path, *names: str) -> list[bytes]:
    """Of a run's files; by default those that are the same for the same fit."""
    return [(run / name).read_bytes() for name in names or (MODEL, EDGES)]


def damage(run: Path) -> list[str]:
    """Files under their own names that are not whole."""
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
    """What is wrong with a disturbed run, and with what comes of it when it goes on."""
    lost = damage(run)
    if before is not None:
        status, model = read_record(run)["status"], bytes_of(run)
        if status != "finished" or model not in (bytes_of(before), bytes_of(stage.whole)):
            lost.append(f"the earlier fit is gone: {status}")
    again = end(start("fit", stage.table, "-o", run, *OPTIONS, "--resume"))
    if before is not None and "holds another fit" in again.errors:  # the new one had not begun yet
        again = end(start("fit", stage.table, "-o", run, *OPTIONS, "--force"))
    if again.code:
        lost.append(f"does not go on: {again.errors}")
    elif bytes_of(run) != bytes_of(stage.whole):
        lost.append("goes on to another model")
    names = [path.name for path in run.iterdir()]
    left = [name for name in names if name.startswith(archive.TEMPORARY) or name in (CHECKPOINT, ".next")]
    return lost + [f"leaves {name}" for name in left]


def speech(result: Ended, codes: tuple[int, ...], words: str) -> list[str]:
    """What is wrong with how a program ended: exit code, one line that says why, no traceback."""
    lines = result.errors.rstrip().splitlines() or [""]
    if "Traceback" in result.errors or "Error" in result.errors.replace("Error: ", ""):
        return [result.errors]
    if result.code not in codes or (result.code > 0 and words not in lines[-1]):
        return [f"exit code {result.code}: {lines[-1]}"]
    return []


# -------------------------------------------------------------------------------------------------------------- faults
def kill_fits(stage: Stage, rng: random.Random, count: int, before: Path | None) -> Found:
    """SIGKILL at random moments of a fit, new or in place of a finished one; two in a row before it goes on."""
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
    """SIGKILL of report, export and explore: the run stays as it is, a file they write the earlier or a whole one."""
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
        # They write at their very end: half of the moments are there.
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


def kill_many(stage: Stage, count: int) -> Found:
    """SIGKILL of `fit_many` once one or two models are in its directory: the same call fits the others alone."""
    lost, faults, whole = [], 0, stage.fresh()
    if (undisturbed := end(start(stage.table, whole, code=MANY))).code:
        raise RuntimeError(undisturbed.errors)
    for k in range(count):
        place = stage.fresh()
        process = start(stage.table, place, 1 + k % 2, code=MANY)
        wait_until(process, (place / f"rows{k % 2}.ggmflow").exists)
        faults += end_with(process, signal.SIGKILL).code == -signal.SIGKILL
        # A file that is written again is another file, even with the same bytes.
        kept = {path: path.stat().st_ino for path in place.glob("rows*")}
        if len(kept) not in (1, 2):
            lost.append(f"{len(kept)} of 3 models after the kill")
        again = end(start(stage.table, place, code=MANY))
        if again.code:
            lost.append(f"does not go on: {again.errors}")
        elif any(path.read_bytes() != (place / path.name).read_bytes() for path in whole.iterdir()):
            lost.append("goes on to other models")
        lost += [f"{path.name} was fitted again" for path, number in kept.items() if path.stat().st_ino != number]
    return Found(faults, lost, [])


def end_by_signal(stage: Stage, rng: random.Random, count: int, number: int) -> Found:
    """Ctrl-C or SIGTERM between the first line of a program and its end: one line, exit code 128 + number."""
    lost, shown, faults = [], [], 0
    for k in range(count):
        reading = k % 4 == 3  # one in four is a report
        run = stage.fresh(stage.whole if reading else None)
        arguments = ["report", run] if reading else ["fit", stage.table, "-o", run, *OPTIONS]
        # Evenly over the time, at random within each part.
        result = hit(start(*arguments), stage.seconds * (k + rng.random()) / count, number)
        faults += result.hit
        # Its last act is to give the signal back to the system: what comes then ends what was done already.
        shown += speech(result, (128 + number, 0, -number) if result.hit else (0,), "Interrupted")
        lost += damage(run)
        left = [path.name for path in run.glob(f"{archive.TEMPORARY}*")] if run.exists() else []
        lost += [f"left {name}" for name in left]
        if not reading:
            lost += goes_on(stage, run, None)
    return Found(faults, lost, shown)


def two_at_once(stage: Stage, count: int) -> Found:
    """Two fits begin in one directory: one is made, the other says why not."""
    lost, shown = [], []
    for _ in range(count):
        run = stage.fresh()
        pair = [start("fit", stage.table, "-o", run, *OPTIONS) for _ in range(2)]
        first, second = sorted((end(process) for process in pair), key=lambda result: result.code)
        words = "is at work" if "is at work" in second.errors else "holds a finished fit"
        shown += speech(first, (0,), "") + speech(second, (2,), words)
        if damage(run) or bytes_of(run) != bytes_of(stage.whole):
            lost.append("two fits made something else than one")
    return Found(count, lost, shown)


def fill_disk(stage: Stage, make: Callable[[Path], Any], reason: str) -> Found:
    """Commands whose files do not fit: one line that names the file, the earlier files untouched, nothing left."""
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
            shown += speech(result, (2,), reason)
            if str(run / written[name]) not in result.errors:
                shown.append(f"{name} does not name the file: {result.errors}")
            if (after := contents(run)) != before:
                changed = {file for file in before | after if before.get(file) != after.get(file)}
                lost.append(f"{name} changed {', '.join(changed)}")
            lost += [f"{name} left {path.name}" for path in run.rglob(f"{archive.TEMPORARY}*")]
    return Found(len(written), lost, shown)


def contents(run: Path) -> dict[str, bytes]:
    """All files of a run but its lock."""
    return {path.name: path.read_bytes() for path in run.iterdir() if path.is_file() and path.name != ".lock"}


@contextmanager
def small_files(run: Path) -> Iterator[tuple[Path, Callable[[], Any], dict[str, Any]]]:
    """No file may grow beyond 2000 bytes."""
    import resource  # not on Windows

    yield run, lambda: None, {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))}


@contextmanager
def small_disk(run: Path) -> Iterator[tuple[Path, Callable[[], Any], dict[str, Any]]]:
    """A disk that is full once the earlier files are on it; only root may make one."""
    place = run.with_name("disk")
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", place], check=True)
    try:
        yield place / "run", lambda: (place / "ballast").write_bytes(bytes(shutil.disk_usage(place).free)), {}
    finally:
        subprocess.run(["umount", place], check=True)


def can_mount() -> bool:
    """Whether this process may make a small disk."""
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
    """A port of this machine that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def every_step() -> Found:
    """All writes on a disk that fails at each of their steps."""
    command = [sys.executable, "-m", "benchmarks.trust.disk"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    tried = [(name, kind, *result) for name, kinds in found.items() for kind, result in kinds.items()]
    lost = [f"{name}, {kind}: {problem}" for name, kind, _, problems in tried for problem in problems]
    return Found(sum(number for _, _, number, _ in tried), lost, [])


# --------------------------------------------------------------------------------------------------------------- table
def measure(quick: bool) -> list[Row]:
    """All faults; a quick one tries every step of the writes, and each kind of real fault once."""
    rng = random.Random(SEED)

    def count(many: int) -> int:
        return 1 if quick else many

    found: dict[str, Found] = {"killed, disk full or interrupted at every step of every write": every_step()}
    with tempfile.TemporaryDirectory() as directory:
        stage = set_up(Path(directory))
        found["kill -9 of report, export and explore"] = kill_readers(stage, rng, count(24))
        found["kill -9 of a process that saves"] = kill_saves(stage, rng, count(20))
        found["kill -9 of a fit that replaces a finished one"] = kill_fits(stage, rng, count(12), stage.old)
        if not quick:
            found["kill -9 of a new fit"] = kill_fits(stage, rng, 12, None)
        found["kill -9 of many fits into one directory"] = kill_many(stage, count(6))
        found["two fits in one directory"] = two_at_once(stage, count(4))
        found["Ctrl-C"] = end_by_signal(stage, rng, count(32), signal.SIGINT)
        found["SIGTERM"] = end_by_signal(stage, rng, count(32), signal.SIGTERM)
        found["files that may not grow (RLIMIT_FSIZE)"] = fill_disk(stage, small_files, "File too large")
        if not quick and can_mount():
            found["a full disk (tmpfs)"] = fill_disk(stage, small_disk, "No space left on device")
    rows = []
    for name, (faults, lost, shown) in found.items():
        for problem in lost + shown:
            print(f"{name}: {problem}", file=sys.stderr)
        value = f"{faults} faults: {len(lost)} lost, {len(shown)} without a clear line"
        rows.append(Row(name, value, "0 and 0", not lost and not shown))
    faults, lost, shown = map(sum, zip(*((f.faults, len(f.lost), len(f.shown)) for f in found.values()), strict=True))
    value = f"{faults} faults: data lost {lost}, tracebacks {shown}"
    return [*rows, Row("all faults", value, "0 and 0", lost + shown == 0)]
