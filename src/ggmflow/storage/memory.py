"""Raise MemoryError before an allocation that cannot succeed.

    bytes that are needed at least  >  bytes that are available   →   MemoryError

The message gives the request, the bytes that it needs, the bytes that are available, and a remedy. The bytes needed are
a lower bound: a request that might succeed is tried.
"""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ggmflow.errors.advice import Advice
from ggmflow.errors.advised import AdvisedMemoryError

_MEMINFO = Path("/proc/meminfo")
_GROUPS, _OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def require(need: float, what: str, advice: str | Advice) -> None:
    """Raise AdvisedMemoryError if a request needs more memory than there is.

    Parameters
    ----------
    need
        Bytes that the request needs at least.
    what
        The request, as the subject of a sentence in the plural: "1000000000 draws".
    advice
        A remedy.

    Raises
    ------
    MemoryError
    """
    there = available()
    if there is not None and need > there:
        problem = f"{what} need at least {format_bytes(need)} of memory, and {format_bytes(there)} are available"
        raise AdvisedMemoryError(problem, Advice(advice) if isinstance(advice, str) else advice)


def available() -> int | None:
    """Bytes that this process can still allocate, swap space included; None if the system does not say.

    That is the free memory of the machine, or the limit of a container or cluster job if it is smaller.
    """
    found = []
    try:
        lines = (line.split() for line in _MEMINFO.read_text(encoding="ascii").splitlines())
        known = {fields[0]: int(fields[1]) for fields in lines if len(fields) == 3}  # in kB
        found.append(1024 * (known["MemAvailable:"] + known.get("SwapFree:", 0)))
    except (OSError, KeyError, ValueError):
        try:
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        except (AttributeError, OSError, ValueError):  # not on Windows
            pass
    for path in _limits():
        try:
            found.append(int(path.read_text(encoding="ascii")))
        except (OSError, ValueError):  # the file does not exist, or holds "max"
            pass
    return min(found, default=None)


def _limits() -> Iterator[Path]:
    """Files that may hold a limit: those of the process's own control group and of all groups that contain it."""
    yield _GROUPS / "memory.max"
    yield _GROUPS / "memory" / "memory.limit_in_bytes"  # version 1 of control groups
    try:
        lines = [line.split(":", 2) for line in _OWN_GROUP.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return
    for _, kinds, name in (line for line in lines if len(line) == 3):
        if kinds == "" or "memory" in kinds.split(","):
            top, file = (_GROUPS, "memory.max") if kinds == "" else (_GROUPS / "memory", "memory.limit_in_bytes")
            own = PurePosixPath(name.lstrip("/"))
            yield from (top / group / file for group in (own, *own.parents))


def format_bytes(size: float) -> str:
    """A number of bytes as text: 3.2 GB."""
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {_UNITS[unit]}"
