"""The exception for the name of a column that a table does not have."""

from collections.abc import Sequence

from ggmflow.errors.advice import Surface, listing

_SHOWN = 8  # columns that the message names if none is similar


class UnknownColumnError(ValueError):
    """No column has this name. `str` gives the message for Python, `text` for any surface.

    Parameters
    ----------
    name
        The name that was given.
    columns
        Names of all columns.

    Attributes
    ----------
    name, columns
        As given.

    Examples
    --------
    >>> print(UnknownColumnError("wieght", ["age", "weight"]))
    no column is named 'wieght': did you mean 'weight'?
    """

    def __init__(self, name: str, columns: Sequence[str]):
        self.name, self.columns = name, tuple(columns)
        super().__init__(name, self.columns)  # as `args`, so that the exception can be pickled

    @property
    def similar(self) -> list[str]:
        """Columns that may be meant: those that differ in case and punctuation only, or else in few letters."""
        from difflib import get_close_matches  # seldom needed

        same = [column for column in self.columns if _letters(column) == _letters(self.name)]
        return same or get_close_matches(self.name, self.columns)

    def __str__(self) -> str:
        return self.text(Surface.PYTHON)

    def text(self, surface: Surface) -> str:
        """The message for this surface. On the command line, a name with a comma has to be quoted."""
        return f"no column is named {self.name!r}: {self._hint(surface)}"

    def _hint(self, surface: Surface) -> str:
        if not (similar := self.similar):
            return f"the columns are {listing(self.columns, shown=_SHOWN)}"
        typed = surface is Surface.COMMAND_LINE and any("," in column for column in similar)
        shown = [f"""'"{column}"'""" if typed and "," in column else repr(column) for column in similar]
        return f"did you mean {' or '.join(shown)}{', with double quotes' * typed}?"


def _letters(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
