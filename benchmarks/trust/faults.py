"""Faults: kill -9, full disks, two fits in one directory, Ctrl-C and SIGTERM (`tests.support.faults`)."""

import random
import signal
import sys
import tempfile
from pathlib import Path

from benchmarks.trust import Row
from tests.support.faults import (
    Found,
    can_mount,
    end_by_signal,
    every_step,
    fill_disk,
    kill_fits,
    kill_many,
    kill_readers,
    kill_saves,
    small_disk,
    small_files,
    two_at_once,
)
from tests.support.processes import SEED, set_up


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
