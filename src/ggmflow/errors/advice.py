"""Options and advice in messages, written as the reader would type them: in Python or on the command line."""

import shlex
from collections.abc import Mapping, Sequence
from enum import Enum
from numbers import Integral, Real
from typing import Any, NamedTuple

_SHOWN = 4  # names in a list before it is cut
_MOST_NAMES = 20  # names in an option; nobody types more
_COMMAND_LINE_NAMES = {"random_state": "seed"}  # options whose names differ on the command line
_NO_OPTIONS = ("architecture", "probs")  # arguments that the command line has no option for


class Surface(Enum):
    """Where a message is read, which decides how an option is written."""

    PYTHON = "python"
    COMMAND_LINE = "command line"
    REPORT = "report"


class Advice(NamedTuple):
    """A remedy and the options that it takes: Advice("fit again with", {"lam": (0.5, 20.0)}).

    Attributes
    ----------
    action
        The text before the options. If it differs between surfaces, a text for each; one that is missing is Python's.
    options
        Values of Python parameters; `...` as a value leaves it to the reader.
    """

    action: str | Mapping[Surface, str]
    options: Mapping[str, Any] = {}

    def text(self, surface: Surface) -> str:
        """The action and the options, as they are typed at this surface."""
        action = self.action if isinstance(self.action, str) else self.action.get(surface, self.action[Surface.PYTHON])
        return " ".join([action, *([options_text(self.options, surface)] if self.options else [])])


def message_of(error: Exception, surface: Surface) -> str:
    """The message of an exception or a warning; one with a method `text` is asked to write it for the surface."""
    text = getattr(error, "text", None)
    return str(text(surface)) if callable(text) else str(error)


def options_text(options: Mapping[str, Any], surface: Surface) -> str:
    """Several options: "drop=['id'], missing='em'" in Python, "--drop 'id' --missing em" on the command line.

    Parameters
    ----------
    options
        Values of Python parameters.
    surface
        Where the text is read. A report has readers of both kinds.
    """
    if surface is Surface.REPORT:
        python, command_line = (options_text(options, each) for each in (Surface.PYTHON, Surface.COMMAND_LINE))
        return f"{python} in Python, {command_line} on the command line"
    separator = ", " if surface is Surface.PYTHON else " "
    return separator.join(option(name, value, surface) for name, value in options.items())


def option(name: str, value: Any, surface: Surface) -> str:
    """One option and its value: missing='em' in Python, --missing em on the command line, both in a report."""
    if surface is Surface.REPORT:
        return options_text({name: value}, surface)
    if surface is Surface.PYTHON:
        return f"{name}={'[...]' if value is ... else option_value(value, surface)}"
    if isinstance(value, bool):
        return option_name(name if value else f"no_{name}", surface)
    if isinstance(value, str):
        text = value if value.isalnum() else _quoted(value)
    elif isinstance(value, Sequence) and all(isinstance(each, str) for each in value):
        text = _quoted(",".join(map(_csv_field, value))) if len(value) <= _MOST_NAMES else "..."
    else:
        text = "..." if value is ... else option_value(value, surface)
    return f"{option_name(name, surface)} {text}"


def option_name(name: str, surface: Surface) -> str:
    """Name of an option: lam in Python and in a report, --lam on the command line."""
    if surface is not Surface.COMMAND_LINE or name in _NO_OPTIONS:
        return name
    return f"--{_COMMAND_LINE_NAMES.get(name, name).replace('_', '-')}"


def option_value(value: Any, surface: Surface) -> str:
    """A value in a sentence: (0.5, 8) in Python, 0.5,8 on the command line; text is in quotes on both.

    A matrix is described by its shape.
    """
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Real) and not isinstance(value, bool):
        number = float(value)
        return f"{number:g}" if float(f"{number:g}") == number else repr(number)
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and len(shape) > 1:
        return f"an array of shape {shape}"
    if type(value) not in (tuple, list):
        return repr(value)
    if len(value) > _MOST_NAMES:
        return "[...]"
    entries = [option_value(each, surface) for each in value]
    if surface is Surface.COMMAND_LINE:
        return ",".join(entries)
    opening, closing = "()" if isinstance(value, tuple) else "[]"
    return f"{opening}{', '.join(entries)}{',' * (isinstance(value, tuple) and len(value) == 1)}{closing}"


def _quoted(text: str) -> str:
    quoted = shlex.quote(text)
    return quoted if quoted != text else f"'{text}'"


def _csv_field(name: str) -> str:
    """The command line splits names at commas, as a line of a CSV file is split."""
    special = any(sign in name for sign in ',"\r\n') or name != name.strip()
    return '"' + name.replace('"', '""') + '"' if special else name


def read_with(options: Mapping[str, Any], surface: Surface) -> str:
    """Options for reading a table: Scatter.from_data(..., drop=['id']) in Python, --drop 'id' on the command line."""
    if surface is Surface.COMMAND_LINE:
        return options_text(options, surface)
    python = f"Scatter.from_data(..., {options_text(options, Surface.PYTHON)})"
    if surface is Surface.PYTHON:
        return python
    return f"{python} in Python, {options_text(options, Surface.COMMAND_LINE)} on the command line"


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
