"""What a command says on the terminal besides its results. A mistake of the user is one line and exit code 2."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console
from rich.text import Text

from ggmflow.data.problems import TableError
from ggmflow.errors.advice import Surface


@contextmanager
def mistakes(*kinds: type[Exception], then: str = "") -> Iterator[None]:
    """Exceptions that come from what the user gave: one line, exit code 2. Others are our mistakes, with traceback.

    `then` is added to what they say.
    """
    try:
        yield
    except MemoryError as error:
        stop(as_options(str(error)) or "there is not enough memory")
    except kinds as error:
        if isinstance(error, TableError):
            *lines, last = error.lines(Surface.COMMAND_LINE)
            stop(*lines, last + then)
        if isinstance(error, OSError):
            stop(f"cannot use {error.filename or 'a file'}: {error.strerror or error}")
        stop(as_options(str(error)) + then)


def as_options(advice: str) -> str:
    """Advice for Python, such as missing='em' or q=(0.1, 2), in terms of the command line."""
    advice = re.sub(r"\b(missing|transform)='(\w+)'", r"--\1 \2", advice)
    advice = re.sub(r"\b(drop|query)=\[\.\.\.\]", r"--\1 ...", advice)
    advice = re.sub(r"\bdrop=\['([^']*)'\]", r"--drop '\1'", advice)
    advice = re.sub(r"did you mean '([^'\"]*,[^'\"]*)'\?", r"""did you mean '"\1"', with double quotes?""", advice)
    return re.sub(r"\bwith (lam|q|temperature)=\((\S+), (\S+)\)", r"with --\1 \2,\3", advice)


@contextmanager
def notes(*left_out: type[Warning]) -> Iterator[list[str]]:
    """Collect warnings, to be told in plain words.

    Parameters
    ----------
    left_out
        Kinds of warnings that are not collected, because what they say is told elsewhere.
    """
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield found
        finally:
            for warning in caught:
                told = issubclass(warning.category, UserWarning | RuntimeWarning)
                if told and not issubclass(warning.category, left_out):
                    found.append(str(warning.message))


def tell(notes: list[str]) -> None:
    """Print each note once."""
    for note in dict.fromkeys(notes):
        line(f"Note: {as_options(note)}.")


def stop(*lines: str) -> NoReturn:
    """End with an error message of one or more lines and exit code 2."""
    for k, text in enumerate(lines):
        line(text if k else f"Error: {text}", style="red")
    raise typer.Exit(2) from None


def line(text: str, style: str = "yellow") -> None:
    """One line on standard error."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(as_text(text), style=style)


def as_text(text: str, style: str = "") -> Text:
    """Text of unknown origin: neither markup nor control characters of the terminal do anything."""
    return Text("".join(character if character.isprintable() else "�" for character in text), style=style)


def print_next(commands: dict[str, str]) -> None:
    """What a user may type next: command → effect."""
    console = Console(highlight=False, soft_wrap=True)  # a command is to be copied: never broken
    console.print(Text("\nNext", style="bold"))
    width = max(map(len, commands))
    for command, effect in commands.items():
        console.print(as_text(command.ljust(width)).append(f"   {effect}", style="dim"))


def print_written(path: Path) -> None:
    """That a file was written."""
    Console(highlight=False, soft_wrap=True).print(as_text(f"Written: {path}"))


def duration(seconds: float) -> str:
    """Seconds for people."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
