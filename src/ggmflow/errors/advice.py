"""Options that a message advises, written as the reader would type them: in Python or on the command line."""

import shlex
from collections.abc import Sequence
from enum import Enum

_SHOWN = 4  # names in a list before it is cut
_MOST_DROPPED = 20  # names in an option; nobody types more


class Surface(Enum):
    """Where a message is read, which decides how an option is written."""

    PYTHON = "python"
    COMMAND_LINE = "command line"
    REPORT = "report"


def option(name: str, value: str, surface: Surface) -> str:
    """An option with a value that is one word: missing='em', --missing em, or both.

    Parameters
    ----------
    name, value
        Of the option; both surfaces use the same words.
    surface
        Where the text is read. A report has readers of both kinds.
    """
    python, command_line = f"{name}={value!r}", f"--{name} {value}"
    if surface is Surface.REPORT:
        return f"{python} in Python, {command_line} on the command line"
    return python if surface is Surface.PYTHON else command_line


def in_python(options: str) -> str:
    """Options of `Scatter.from_data`, which reads tables for every part of the package, as they are typed."""
    return f"Scatter.from_data(..., {options})"


def drop(columns: Sequence[str], surface: Surface, *, alone: bool = True) -> str:
    """The option that leaves columns out: Scatter.from_data(..., drop=['id', 'date']) or --drop 'id,date'.

    Parameters
    ----------
    columns
        Their names, all of them: the text is meant to be copied. More than 20 names are left to the reader.
    surface
        Where the text is read.
    alone
        Whether it is the only option; otherwise it is given without the function that takes it.
    """
    python, command_line = "drop=[...]", "--drop ..."
    if len(columns) <= _MOST_DROPPED:
        text = ",".join(map(_csv_field, columns))
        quoted = shlex.quote(text)
        python = f"drop={list(columns)!r}"
        command_line = f"--drop {quoted}" if quoted != text else f"--drop '{text}'"
    python = in_python(python) if alone else python
    if surface is Surface.REPORT:
        return f"{python} in Python, {command_line} on the command line"
    return python if surface is Surface.PYTHON else command_line


def _csv_field(name: str) -> str:
    """The command line splits names at commas, as a line of a CSV file is split."""
    special = any(sign in name for sign in ',"\r\n') or name != name.strip()
    return '"' + name.replace('"', '""') + '"' if special else name


def listing(names: Sequence[str], total: int | None = None, shown: int = _SHOWN) -> str:
    """Names in quotes: 'a', 'b' and 'c'; a long list is cut: 'a', 'b', 'c', 'd' and 6 more.

    Parameters
    ----------
    names
        The first ones, or all.
    total
        How many there are; default as many as are given.
    shown
        The longest list that is not cut.
    """
    total = len(names) if total is None else total
    quoted = [repr(name) for name in names[:shown]]
    if total > len(quoted):
        return f"{', '.join(quoted)} and {total - len(quoted)} more"
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
