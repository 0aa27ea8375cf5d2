"""Positions of columns that are given by name or by number."""

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
from jaxtyping import Int

from ggmflow.errors.columns import UnknownColumnError


def find_columns(
    query: str | int | Iterable[str | int], names: tuple[str, ...], *, strict: bool = True
) -> Int[np.ndarray, " s"]:
    """Positions of columns, in the order of the query.

    Parameters
    ----------
    query : str, int, or iterable of them
        Names or positions (from 0). A number is a position.
    names
        Names of all columns.
    strict
        Raise if a number is the name of another column too.

    Returns
    -------
    (s,) ndarray of int
    """
    if query is None or isinstance(query, dict):
        raise TypeError(f"a query is one or more column names or positions, not {type(query).__name__}")
    try:
        entries: list[Any] = [query] if isinstance(query, str) else list(query)  # pyright: ignore[reportArgumentType]
    except TypeError:
        entries = [query]
    if not entries:
        raise ValueError("the query is empty: name at least one column")
    positions = [_position(entry, names, strict) for entry in entries]
    if len(set(positions)) < len(positions):
        repeated = sorted({names[p] for p in positions if positions.count(p) > 1})
        raise ValueError(f"the query names a column twice: {', '.join(map(repr, repeated))}")
    return np.array(positions, dtype=np.intp)


def match_columns(labels: tuple[str, ...], names: tuple[str, ...]) -> list[int]:
    """Positions in `labels` of all names; raise if one is absent, or if there are others."""
    absent = [name for name in names if name not in labels]
    extra = [label for label in labels if label not in names]
    if absent or extra:
        problem = f"no column {absent[0]!r}" if absent else f"a column {extra[0]!r} that was not there before"
        hint = "name the columns as before, or pass an array to go by position"
        raise ValueError(f"X has {problem}: {hint}")
    return [labels.index(name) for name in names]


def _position(entry: object, names: tuple[str, ...], strict: bool) -> int:
    if isinstance(entry, str):
        if entry in names:
            return names.index(entry)
        raise UnknownColumnError(entry, names)
    if isinstance(entry, bool) or not isinstance(entry, Integral):
        hint = " (np.flatnonzero turns a mask into positions)" if isinstance(entry, bool | np.bool_) else ""
        raise ValueError(f"a query takes names and integer positions, not {entry!r}{hint}")
    if not 0 <= int(entry) < len(names):
        raise ValueError(f"position {entry} is outside 0 … {len(names) - 1}")
    if strict and str(entry) in names and names[int(entry)] != str(entry):
        raise ValueError(
            f"{entry} may mean the column named '{entry}' or position {entry}, which is column "
            f"{names[int(entry)]!r}: write the name as text"
        )
    return int(entry)
