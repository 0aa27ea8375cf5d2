"""Exceptions for an argument with a value that cannot be used."""

from numbers import Real
from typing import Any

from ggmflow.errors.advice import Advice, Surface, option, option_name, option_value


class ArgumentError(ValueError):
    """An argument has a value that cannot be used. `str` gives the message for Python, `text` for any surface.

    Parameters
    ----------
    argument
        Name of the Python parameter; the command line writes it as an option.
    value
        The value that was given.
    allowed
        The rest of a sentence after "must", such as "be a positive number"; or a tuple of all allowed values.
    reason
        Instead of `allowed`: the rest of a sentence whose subject is the argument and its value, such as
        "is outside the fitted range 0.5 … 8".
    advice
        A remedy, with the options that it takes.

    Attributes
    ----------
    argument, value, allowed, reason, advice
        As given.

    Examples
    --------
    >>> advice = Advice("fit again with", {"lam": (0.5, 20.0)})
    >>> error = ArgumentError("lam", 20.0, reason="is outside the fitted range 0.5 … 8", advice=advice)
    >>> print(error)
    lam=20 is outside the fitted range 0.5 … 8: fit again with lam=(0.5, 20)
    >>> print(error.text(Surface.COMMAND_LINE))
    --lam 20 is outside the fitted range 0.5 … 8: fit again with --lam 0.5,20
    >>> print(ArgumentError("missing", "mean", ("error", "drop", "em")))
    missing must be 'error', 'drop' or 'em', got 'mean'
    """

    def __init__(
        self,
        argument: str,
        value: Any,
        allowed: str | tuple[Any, ...] = "",
        reason: str = "",
        advice: Advice | None = None,
    ):
        self.argument, self.value, self.allowed, self.reason, self.advice = argument, value, allowed, reason, advice
        super().__init__(argument, value, allowed, reason, advice)  # as `args`, so that the exception can be pickled

    def __str__(self) -> str:
        return self.text(Surface.PYTHON)

    def text(self, surface: Surface) -> str:
        """The message, in which options are written as they are typed.

        Parameters
        ----------
        surface
            Where the message is read.
        """
        if self.allowed:
            must = self.allowed if isinstance(self.allowed, str) else f"be {_alternatives(self.allowed, surface)}"
            problem = f"{option_name(self.argument, surface)} must {must}, got {option_value(self.value, surface)}"
        else:
            problem = f"{option(self.argument, self.value, surface)} {self.reason}"
        return problem if self.advice is None else f"{problem}: {self.advice.text(surface)}"


class UnknownChoiceError(ArgumentError):
    """The value of an argument is none of the choices.

    Parameters
    ----------
    argument, value
        As in `ArgumentError`.
    allowed
        Names of all choices.

    Examples
    --------
    >>> error = UnknownChoiceError("format", "xml", ("csv", "json"))
    >>> print(error)
    unknown format 'xml': choose one of csv, json
    >>> print(error.text(Surface.COMMAND_LINE))
    unknown --format 'xml': choose one of csv, json
    """

    def text(self, surface: Surface) -> str:
        """The message, in which the option is written as it is typed."""
        shown = repr(self.value) if isinstance(self.value, str) else f"of type {type(self.value).__name__}"
        return f"unknown {option_name(self.argument, surface)} {shown}: choose one of {', '.join(self.allowed)}"


def check_share(name: str, value: object, example: float | None = None) -> float:
    """A number between 0 and 1, neither of them; raise if it is not, such as a level of 90.

    Parameters
    ----------
    name, value
        Name and value of the argument.
    example
        A value that the message recommends.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
        such_as = "" if example is None else f", such as {example:g}"
        raise ArgumentError(name, value, f"be a number between 0 and 1{such_as}")
    return float(value)


def _alternatives(values: tuple[Any, ...], surface: Surface) -> str:
    """Values in a sentence: 'a', 'b' or 'c'."""
    *others, last = (option_value(value, surface) for value in values)
    return f"{', '.join(others)} or {last}" if others else last
