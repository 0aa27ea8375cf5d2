"""Checks of the values of a `Scatter`."""

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from jaxtyping import Float

from ggmflow.errors.advice import Advice
from ggmflow.errors.argument import ArgumentError
from ggmflow.storage.memory import require

# Asymmetry and negative eigenvalues up to this, relative to unit variances, count as float32 rounding.
_ROUNDING = 1e-6
MEANS = {"estimated": 1, "known": 0}  # degrees of freedom that each treatment of the mean takes


def check_n(n: object, more_than: int = 0, name: str = "n, the number of rows,") -> None:
    """Raise if a number of rows, or of what `name` says, is not a number above `more_than`."""
    if isinstance(n, bool) or not isinstance(n, Real) or not more_than < float(n) < np.inf:
        must = f"more than {more_than} unless mean='known'" if more_than else "a positive number"
        raise ValueError(f"{name} must be {must}, got {n!r}")


def count_estimated(mean: object) -> int:
    """`Scatter.n_estimated` for a treatment of the mean; raises ArgumentError if it is unknown."""
    if not isinstance(mean, str) or mean not in MEANS:
        raise ArgumentError("mean", mean, tuple(MEANS))
    return MEANS[mean]


def check_estimated(n_estimated: object) -> None:
    """Raise if `Scatter.n_estimated` is not 0 or 1."""
    if type(n_estimated) is not int or n_estimated not in MEANS.values():
        raise ValueError(f"n_estimated must be 0 or 1, got {n_estimated!r}")


def require_matrices(d: int) -> None:
    """Raise if scatter matrices of d columns do not fit into memory: five exist at a time, while one is checked."""
    advice = Advice("leave some of them out, for instance with", {"drop": ...})
    require(40 * d**2, f"the scatter matrices of {d} columns", advice)


def check_semidefinite(S: Float[np.ndarray, "d d"], names: tuple[str, ...]) -> None:
    """Raise if a matrix is not symmetric and positive semi-definite with positive variances, up to rounding."""
    if S.ndim != 2 or S.shape[0] != S.shape[1]:
        raise ValueError(f"a covariance or scatter matrix must be square, got shape {S.shape}")

    def entry(i: Any, j: Any) -> str:
        return f"entry ({names[i]!r}, {names[j]!r}) = {S[i, j]:g}"

    for i, j in np.argwhere(~np.isfinite(S)):
        raise ValueError(f"{entry(i, j)} of the matrix is not finite; if the data are huge, standardize them")
    for j in np.flatnonzero(np.diag(S) <= 0):
        raise ValueError(f"{entry(j, j)} is no variance: it must be positive")
    sd = np.sqrt(np.diag(S))
    R = S / sd / sd[:, None]
    i, j = divmod(int(np.argmax(np.abs(R - R.T))), len(R))
    if abs(R[i, j] - R[j, i]) > _ROUNDING:
        raise ValueError(f"the matrix is not symmetric: {entry(i, j)}, but {entry(j, i)}")
    try:
        np.linalg.cholesky(R + _ROUNDING * np.eye(len(R)))
    except np.linalg.LinAlgError:
        smallest = np.linalg.eigvalsh(R)[0]
        raise ValueError(
            f"the matrix is not positive semi-definite: its correlations have the eigenvalue {smallest:.2g}. "
            "Was it rounded, or computed from pairwise complete rows? Use the rows themselves"
        ) from None


def check_observed(observed: Float[np.ndarray, "m d"], names: tuple[str, ...]) -> None:
    """Raise if the columns are not finite, sorted values with NaN after them, at least two of them different."""
    if observed.ndim != 2 or observed.shape[1] != len(names):
        raise ValueError(f"observed must have one column for each of the {len(names)} names, got {observed.shape}")
    for column, name in zip(observed.T, names, strict=True):
        values = column[: np.count_nonzero(~np.isnan(column))]
        if np.isnan(values).any() or np.isinf(values).any() or np.any(values[1:] < values[:-1]):
            raise ValueError(f"observed values of column {name!r} must be finite and sorted, with NaN at the end")
        if not values.size or values[0] == values[-1]:
            raise ValueError(f"column {name!r} must have two different observed values or more")


def check_stored(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Raise if header and arrays of a file are not those that `Scatter.to_arrays` returns."""
    if not isinstance(header, Mapping) or not {"n", "names", "transform"} <= set(header):
        raise ValueError("the header of a Scatter must have n, names and transform")
    n, names, transform = header["n"], header["names"], header["transform"]
    if transform not in (None, "nonparanormal"):
        raise ValueError(f"unknown transform {transform!r}: a newer version of ggmflow may know it")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("the names in the header of a Scatter must be a list of strings")
    if not isinstance(n, int | float) or abs(n) > 2**53:  # JSON can hold integers that no float can
        raise ValueError(f"n, the degrees of freedom, cannot be {str(n)[:20]}")
    expected = {"matrix", "mean", "scale"} | ({"observed"} if transform else set())
    if set(arrays) != expected:
        raise ValueError(f"a Scatter has the arrays {', '.join(sorted(expected))}, not {', '.join(sorted(arrays))}")
