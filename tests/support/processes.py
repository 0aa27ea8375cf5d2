"""Programs that tests start, disturb by signals and wait for, and the fits that they disturb."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ggmflow.cli.run_record import MODEL, RECORD, read_record
from ggmflow.storage import archive

SEED = 1
OPTIONS = ["--lam", "2", "--q", "1", "--temperature", "1", "--steps", "100"]
# Write a checkpoint after every chunk, so that a short fit can be killed between two.
OFTEN = """
from ggmflow.train import checkpoint
from ggmflow.__main__ import main
checkpoint.SECONDS_BETWEEN_CHECKPOINTS = 0.0
main()
"""


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
        """A new path for a run; with `source`, a copy of that run."""
        path = Path(tempfile.mkdtemp(dir=self.directory)) / "run"
        if source is not None:
            shutil.copytree(source, path)
        return path


def start(*arguments: Any, code: str | None = None, **options: Any) -> subprocess.Popen[str]:
    """Start the command line, or Python code."""
    command = [sys.executable, *(["-m", "ggmflow"] if code is None else ["-c", code]), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def end(process: subprocess.Popen[str], hit: bool = False) -> Ended:
    """Wait for a process."""
    _, errors = process.communicate(timeout=300)
    return Ended(process.returncode, errors, hit)


def hit(process: subprocess.Popen[str], seconds: float, number: int) -> Ended:
    """Send a signal some seconds after the program has begun, and wait for its end."""
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
    """Whether a process handles a signal: ggmflow does from its first line on, Python does not while it starts."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:  # no /proc on this system: wait a moment instead
        time.sleep(0.3)
        return True
    mask = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(mask.split()[1], 16) >> (number - 1) & 1)


def wait_until(process: subprocess.Popen[str], condition: Callable[[], bool], seconds: float = 600) -> None:
    """Poll until the condition holds or the process has ended."""
    last = time.monotonic() + seconds
    while process.poll() is None and not condition():
        if time.monotonic() > last:
            raise TimeoutError
        time.sleep(0.002)


def set_up(directory: Path) -> Stage:
    """Make a finished fit, and an earlier one that it replaces."""
    table, old, whole = (directory / name for name in ("table.csv", "old", "whole"))
    X = np.random.default_rng(SEED).normal(size=(30, 4)) @ (np.eye(4) + 0.5 * np.eye(4, k=1))
    pd.DataFrame(X, columns=list("abcd")).to_csv(table, index=False)
    begin = time.monotonic()
    result = end(start("fit", table, "-o", whole, *OPTIONS))
    seconds = time.monotonic() - begin
    if result.code:
        raise RuntimeError(result.errors)
    # The earlier fit is the same flow with another λ: its content does not matter here.
    shutil.copytree(whole, old)
    header, arrays = archive.read(whole / MODEL)
    archive.write(old / MODEL, header | {"parameters": header["parameters"] | {"lam": 3.0}}, arrays)
    record = read_record(whole)
    text = json.dumps(record | {"parameters": record["parameters"] | {"lam": 3.0}})
    (old / RECORD).write_text(text, encoding="utf-8")
    return Stage(directory, table, old, whole, seconds)
