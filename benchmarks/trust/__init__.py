"""What is promised of trust, measured: one module for each kind of promise, each with

    measure(quick: bool) -> list[Row]

`quick` is small enough for a test; its numbers mean less.
"""

from typing import NamedTuple


class Row(NamedTuple):
    """A line of the table.

    Attributes
    ----------
    what : str
        What was measured, with its sizes.
    value : str
        What came out, as people read it.
    bar : str
        What must hold; empty where a number is only told.
    holds : bool or None
        Whether it does; None without a bar.
    """

    what: str
    value: str
    bar: str = ""
    holds: bool | None = None
