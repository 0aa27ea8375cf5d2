"""Hostile input: tables, parameters, questions and files of every wrong kind (`tests.support.hostile`)."""

import sys
from contextlib import nullcontext

from benchmarks.trust import Row
from tests.support.hostile import KINDS, attempt_all, no_training


def measure(quick: bool) -> list[Row]:
    """Count inputs and failures of each kind."""
    rows, total = [], 0
    for kind in KINDS:
        with no_training() if kind.untrained else nullcontext():
            tried = attempt_all(kind.make, kind.quick if quick else kind.full)
        for line in tried.failed:
            print(f"FAILED {kind.name} {line}", file=sys.stderr)
        value = f"{len(tried.failed)} failures; {tried.answered} answers, {tried.refused} clear errors"
        rows.append(Row(f"{kind.name}, {tried.count} inputs", value, "0 failures", not tried.failed))
        total += tried.count
    rows.append(Row("hostile inputs in all", f"{total}"))
    return rows
