"""Data of an estimator, as its parameters ask for them."""

from collections.abc import Mapping
from typing import Any

from ggmflow.data.scatter import TREATMENTS, Scatter


def read_data(X: Any, parameters: Mapping[str, Any]) -> Scatter:
    """The scatter matrix that a fit uses; a `Scatter` is returned unchanged.

    Parameters
    ----------
    X
        Data as in `GraphicalFlow.fit`.
    parameters
        Parameters of the estimator, of which `TREATMENTS` are used.
    """
    if isinstance(X, Scatter):
        return X
    return Scatter.from_data(X, **{name: parameters[name] for name in TREATMENTS})
