"""Exceptions and warnings of a problem and a remedy, which each surface writes with its own options."""

from ggmflow.errors.advice import Advice, Surface


class Advised(Exception):
    """A problem and its remedy.

    Parameters
    ----------
    problem
        A sentence without its final stop.
    advice
        The remedy, with the options that it takes.

    Attributes
    ----------
    problem, advice
        As given.
    """

    def __init__(self, problem: str, advice: Advice):
        self.problem, self.advice = problem, advice
        super().__init__(problem, advice)  # as `args`, so that the exception can be pickled

    def __str__(self) -> str:
        return self.text(Surface.PYTHON)

    def text(self, surface: Surface) -> str:
        """The message, in which options are written as they are typed at this surface."""
        return f"{self.problem}: {self.advice.text(surface)}"


class AdvisedWarning(Advised, UserWarning):
    """A warning that says what to do."""


class AdvisedMemoryError(Advised, MemoryError):
    """Something does not fit into memory; the advice gives a smaller problem."""
