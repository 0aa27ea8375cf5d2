"""What does not fit into memory is refused before anything is allocated.

    bytes that are needed at least  >  bytes that can be had   →   MemoryError

The message says what was asked, what it needs, what there is, and what would do. Needs are lower bounds: whatever might
work is tried.
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
    """Refuse what cannot fit.

    Parameters
    ----------
    need
        Bytes that it takes at least.
    what
        Was asked for, as the begin of a sentence in the plural: "1000000000 draws".
    advice
        What would do.

    Raises
    ------
    MemoryError
    """
    there = available()
    if there is not None and need > there:
        problem = f"{what} need at least {in_words(need)} of memory, and {in_words(there)} are available"
        raise AdvisedMemoryError(problem, Advice(advice) if isinstance(advice, str) else advice)


def available() -> int | None:
    """Bytes that this process could still get, swap space included; None where nobody says.

    That is what the machine has left, or all that a container or a job of a cluster may have if that is less.
    """
    found = []
    try:
        lines = (line.split() for line in _MEMINFO.read_text(encoding="ascii").splitlines())
        known = {words[0]: int(words[1]) for words in lines if len(words) == 3}  # in kB
        found.append(1024 * (known["MemAvailable:"] + known.get("SwapFree:", 0)))
    except (OSError, KeyError, ValueError):
        try:
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        except (AttributeError, OSError, ValueError):  # not on Windows
            pass
    for path in _limits():
        try:
            found.append(int(path.read_text(encoding="ascii")))
        except (OSError, ValueError):  # there is none, or it is "max"
            pass
    return min(found, default=None)


def _limits() -> Iterator[Path]:
    """Files that may hold a limit: those of the process's own control group and of all that it lies in."""
    yield _GROUPS / "memory.max"
    yield _GROUPS / "memory" / "memory.limit_in_bytes"  # of the older kind of groups
    try:
        lines = [line.split(":", 2) for line in _OWN_GROUP.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return
    for _, kinds, name in (line for line in lines if len(line) == 3):
        if kinds == "" or "memory" in kinds.split(","):
            top, file = (_GROUPS, "memory.max") if kinds == "" else (_GROUPS / "memory", "memory.limit_in_bytes")
            own = PurePosixPath(name.lstrip("/"))
            yield from (top / group / file for group in (own, *own.parents))


def in_words(size: float) -> str:
    """Bytes for people: 3.2 GB."""
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {_UNITS[unit]}"
