"""Python and NumPy values as values that JSON can hold."""

import math
from typing import Any

import numpy as np

_MAX_DEPTH = 32


def plain(value: Any) -> Any:
    """The value for JSON: NaN and infinity become None, NumPy's numbers Python's, tuples lists, keys strings."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def exact(value: Any, where: str, depth: int = 0) -> Any:
    """The value in Python's own types, such that JSON returns exactly the same; raise if that is not possible.

    Parameters
    ----------
    value
        None, a boolean, an integer, a finite float, a string, or lists, tuples and dicts of them.
    where
        Name of the value in messages.
    depth
        Number of lists and dicts around it.
    """
    if depth > _MAX_DEPTH:
        raise ValueError(f"the header is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}: keys must be strings")
        return {key: exact(entry, f"{where}[{key!r}]", depth + 1) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [exact(entry, f"{where}[{i}]", depth + 1) for i, entry in enumerate(value)]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {value}: numbers in a header must be finite, put others in an array")
        return float(value)
    raise TypeError(
        f"{where} is of type {type(value).__name__}: a header holds None, booleans, integers, floats, strings, "
        "and lists and dicts of them; arrays go beside it"
    )
