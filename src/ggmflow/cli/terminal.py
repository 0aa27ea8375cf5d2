"""Messages on the terminal besides the results of a command. A mistake of the user is one line and exit code 2."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console
from rich.text import Text

from ggmflow.data.problems import TableError
from ggmflow.errors.advice import Surface, message_of


@contextmanager
def mistakes(*kinds: type[Exception], then: str = "") -> Iterator[None]:
    """Turn exceptions that the user's input causes into a message and exit code 2; others keep their traceback.

    Parameters
    ----------
    kinds
        Exceptions that the user's input may cause here; MemoryError always may.
    then
        Added to the message.
    """
    try:
        yield
    except MemoryError as error:
        stop(message_of(error, Surface.COMMAND_LINE) or "there is not enough memory")
    except kinds as error:
        if isinstance(error, TableError):
            *lines, last = error.lines(Surface.COMMAND_LINE)
            stop(*lines, last + then)
        if isinstance(error, OSError):
            stop(f"cannot use {error.filename or 'a file'}: {error.strerror or error}")
        stop(message_of(error, Surface.COMMAND_LINE) + then)


@contextmanager
def notes(*left_out: type[Warning]) -> Iterator[list[str]]:
    """Collect the messages of warnings, written for the command line.

    Parameters
    ----------
    left_out
        Kinds of warnings that are not collected, because the command shows their content elsewhere.
    """
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield found
        finally:
            for warning in caught:
                for_users = issubclass(warning.category, UserWarning | RuntimeWarning)
                if for_users and not issubclass(warning.category, left_out):
                    message = warning.message
                    found.append(message if isinstance(message, str) else message_of(message, Surface.COMMAND_LINE))


def print_notes(notes: list[str]) -> None:
    """Print each note once."""
    for note in dict.fromkeys(notes):
        print_line(f"Note: {note}.")


def stop(*lines: str) -> NoReturn:
    """End with an error message of one or more lines and exit code 2."""
    for k, text in enumerate(lines):
        print_line(text if k else f"Error: {text}", style="red")
    raise typer.Exit(2) from None


def print_line(text: str, style: str = "yellow") -> None:
    """Print one line on standard error."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(plain_text(text), style=style)


def plain_text(text: str, style: str = "") -> Text:
    """Text of unknown origin, in which markup and control characters of the terminal have no effect."""
    return Text("".join(character if character.isprintable() else "�" for character in text), style=style)


def print_next(commands: dict[str, str]) -> None:
    """Print commands that a user may type next, each with its effect."""
    console = Console(highlight=False, soft_wrap=True)  # without line breaks, so that a command can be copied
    console.print(Text("\nNext", style="bold"))
    width = max(map(len, commands))
    for command, effect in commands.items():
        console.print(plain_text(command.ljust(width)).append(f"   {effect}", style="dim"))


def print_written(path: Path) -> None:
    """Print the name of a file that was written."""
    Console(highlight=False, soft_wrap=True).print(plain_text(f"Written: {path}"))


def duration(seconds: float) -> str:
    """Seconds as text: 24 s, 3.5 min."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
