"""Known values of some variables, from which others are predicted: reading and checking them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ggmflow.data.table import read_table
from ggmflow.errors.columns import UnknownColumnError


def read_given(given: Any, names: tuple[str, ...]) -> tuple[Float[np.ndarray, "m d"], list[Any]]:
    """Read cases in which some variables are known.

    Parameters
    ----------
    given : mapping, pandas Series, pandas or polars DataFrame
        Names to numbers (or to one number per case); a table has a row per case.
    names
        Names of all columns.

    Returns
    -------
    values : (m, d) array
        NaN where a variable is not known.
    labels : list
        Names of the cases: the table's index, or 0, 1, ….
    """
    if isinstance(given, pd.Series):
        given = (
            given.to_dict() if given.index.is_unique else given.to_frame().T
        )  # reading the table names the repeated variable
    if isinstance(given, Mapping):
        given = pd.DataFrame(_columns_of_mapping(given), index=None if given else pd.RangeIndex(1))
    if not hasattr(given, "columns"):
        hint = "use {name: value}, or a Series or DataFrame whose columns are some of the variables"
        raise TypeError(f"given must name the variables that are known, got {type(given).__name__}: {hint}")
    for name in map(str, given.columns):
        if name not in names:
            raise UnknownColumnError(name, names)
    if len(given) == 0:
        raise ValueError("given has no cases: a table needs at least one row")
    out = np.full((len(given), len(names)), np.nan)
    if len(given.columns):
        values, found, where = read_table(given, None, min_rows=1, min_columns=1)
        for i, j in np.argwhere(np.isinf(values)):
            raise ValueError(f"given: column {found[j]!r}, {where(i)} is {values[i, j]}: give finite values")
        out[:, [names.index(name) for name in found]] = values
    return out, list(given.index) if isinstance(given, pd.DataFrame) else list(range(len(given)))


def _columns_of_mapping(given: Mapping[Any, Any]) -> dict[str, Any]:
    """Values as columns of one length; a single number holds for all cases."""
    columns = {str(name): list(value) if np.ndim(value) else [value] for name, value in given.items()}
    if len(columns) < len(given):
        raise ValueError("given names a variable twice: a number and its text are the same name")
    size = max(map(len, columns.values()), default=1)
    for name, column in columns.items():
        if len(column) not in (1, size):
            raise ValueError(f"given: {name!r} has {len(column)} values, another variable {size}: one per case, or one")
    return {name: column * size if len(column) == 1 else column for name, column in columns.items()}


def patterns(missing: np.ndarray) -> list[tuple[Int[np.ndarray, " a"], Int[np.ndarray, " m"]]]:
    """Group cases by their unknown variables: (unknown columns, cases), for cases that have any."""
    kinds, of_case = np.unique(missing, axis=0, return_inverse=True)
    found = [(np.flatnonzero(kind), np.flatnonzero(of_case.ravel() == k)) for k, kind in enumerate(kinds)]
    return [(unknown, cases) for unknown, cases in found if unknown.size]
