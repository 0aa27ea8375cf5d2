"""Measurements behind docs/trust.md: one module for each promise, each with

    measure(quick: bool) -> list[Row]

`quick` is small enough for a test; its numbers mean less.
"""

from typing import NamedTuple


class Row(NamedTuple):
    """A line of the table.

    Attributes
    ----------
    what : str
        The measured quantity, with its sizes.
    value : str
        The result as text.
    bar : str
        The requirement; empty if there is none.
    holds : bool or None
        Whether the requirement is met; None without one.
    """

    what: str
    value: str
    bar: str = ""
    holds: bool | None = None
