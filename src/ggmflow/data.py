"""Data to sufficient statistics: X -> (S, n) with S = Σ_i w_i w_iᵀ and x_i = scale·w_i + mean."""

import difflib
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri
from scipy.stats import rankdata
from sklearn.exceptions import ConvergenceWarning

from ggmflow.missing import expected_scatter, usable_rows
from ggmflow.table import check_names, read_table

# Asymmetry and negative eigenvalues up to this, relative to unit variances, pass as float32 rounding.
_ROUNDING = 1e-6


@final
@dataclass(frozen=True, eq=False, repr=False)
class Scatter:
    """Validated sufficient statistics of a Gaussian model, in the working scale.

    Attributes
    ----------
    matrix : (d, d) ndarray
        S = Σ_i w_i w_iᵀ, the scatter matrix of the centred (and, if asked, scaled) rows, *not* divided by n.
        Positive semi-definite; it may be singular. Read-only, as are the other arrays.
    n : int or float
        Number of rows.
    mean, scale : (d,) ndarray
        original = working·scale + mean. After a transform, "original" means the transformed columns.
    names : tuple of str
        Column names, all different.
    """

    matrix: Float[np.ndarray, "d d"]
    n: float
    mean: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    names: tuple[str, ...]

    def __repr__(self) -> str:
        shown = ", ".join(self.names[:4]) + (", …" if len(self.names) > 4 else "")
        return f"Scatter(n={self.n:g}, {self.n_features} variables: {shown})"

    def __post_init__(self):
        S = np.array(self.matrix, dtype=np.float64, ndmin=2)
        names = check_names(self.names, len(S))
        _check_n(self.n)
        _check_semidefinite(S, names)
        arrays = {"matrix": (S + S.T) / 2}
        for label in ("mean", "scale"):
            arrays[label] = np.array(getattr(self, label), dtype=np.float64)
            if arrays[label].shape != (len(S),) or not np.isfinite(arrays[label]).all():
                raise ValueError(f"{label} must hold one finite number for each of the {len(S)} columns")
        if not np.all(arrays["scale"] > 0):
            raise ValueError("scale must be positive")
        for label, array in arrays.items():
            array.flags.writeable = False
            object.__setattr__(self, label, array)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "n", int(self.n) if isinstance(self.n, Integral) else float(self.n))

    @property
    def n_features(self) -> int:
        """d, the number of columns."""
        return len(self.names)

    @property
    def emp_cov(self) -> Float[np.ndarray, "d d"]:
        """S/n, the empirical covariance in the working scale."""
        return self.matrix / self.n

    @classmethod
    def from_data(
        cls,
        X: Any,
        *,
        standardize: bool = True,
        transform: str | None = None,
        missing: str = "error",
        names: Sequence[str] | None = None,
    ) -> "Scatter":
        """Summarize a table whose rows are observations.

        Parameters
        ----------
        X : (n, d) array-like, pandas or polars DataFrame, or path
            At least 2 rows and 2 columns of real numbers; booleans count as 0 and 1. n < d and collinear
            columns are fine, constant columns are not. A path leads to a comma-separated UTF-8 file with a
            header; empty fields, NA, N/A, NaN, null and none are missing values there.
        standardize : bool
            Scale to unit variance (ddof=0). Centring always happens.
        transform : None or "nonparanormal"
            "nonparanormal" replaces each column by its normal scores Φ⁻¹(r/(m+1)), r the rank among the
            column's m observed values. Ties share their average rank, so ordinal columns can be used.
        missing : {"error", "drop", "em"}
            What to do about missing values: refuse, use complete rows only, or take the expected statistics
            under a Gaussian model (`ggmflow.missing.expected_scatter`). "em" leaves out rows without any
            value, with a warning; n stays the number of rows used, so posteriors ignore what was not seen and
            are a little too narrow.
        names : sequence of str, optional
            Column names; default those of the table, or x0, x1, … for an array.

        Returns
        -------
        Scatter
            Its `n` is the number of rows used.
        """
        if transform not in (None, "nonparanormal"):
            raise ValueError(f"unknown transform {transform!r}: choose None or 'nonparanormal'")
        if missing not in ("error", "drop", "em"):
            raise ValueError(f"unknown missing={missing!r}: choose 'error', 'drop' or 'em'")
        values, labels, where = read_table(X, names)
        values = values[usable_rows(values, labels, where, missing)]
        _check_varying(values, labels)
        if transform is not None:
            values = np.apply_along_axis(_normal_scores, 0, values)
        working, mean, scale = _standardize(values)
        n = len(working)
        if np.isnan(working).any():
            result = expected_scatter(working)
            if not result.converged:
                warnings.warn(result.message, ConvergenceWarning, stacklevel=2)
            # The observed values were standardized; now the model's estimate of all values is.
            sd = np.sqrt(np.diag(result.matrix) / n)
            S, mean, scale = result.matrix / np.outer(sd, sd), mean + scale * result.mean, scale * sd
        else:
            S = working.T @ working
        if not standardize:
            with np.errstate(over="ignore", under="ignore"):
                S, scale = S * np.outer(scale, scale), np.ones_like(scale)
        return cls(S, n, mean, scale, labels)

    @classmethod
    def from_covariance(
        cls, cov: Any, n: float, names: Sequence[str] | None = None, *, standardize: bool = True
    ) -> "Scatter":
        """Take a covariance matrix that was computed elsewhere.

        Parameters
        ----------
        cov : (d, d) array-like, pandas or polars DataFrame, or path
            S/n. A covariance with divisor n−1 should be multiplied by (n−1)/n first.
        n : number
            Rows behind it.
        standardize : bool
            Turn it into a correlation matrix and remember the scale.
        names : sequence of str, optional
            Column names; default those of the table, or x0, x1, … for an array.

        Returns
        -------
        Scatter
            Its `mean` is zero.
        """
        C, labels, _ = read_table(cov, names)
        _check_n(n)
        _check_semidefinite(C, labels)
        sd = np.sqrt(np.diag(C)) if standardize else np.ones(len(C))
        return cls(n * (C / sd / sd[:, None]), n, np.zeros(len(C)), sd, labels)

    def index(self, query: str | int | Iterable[str | int]) -> Int[np.ndarray, " s"]:
        """Positions of query variables, in the order asked.

        Parameters
        ----------
        query : str, int, or iterable of them
            Names or positions (from 0). A number is always a position, also if columns are named by numbers.

        Returns
        -------
        (s,) ndarray of int
        """
        if query is None or isinstance(query, dict):
            raise TypeError(f"a query is one or more column names or positions, not {type(query).__name__}")
        entries = list(query) if isinstance(query, Iterable) and not isinstance(query, str) else [query]
        if not entries:
            raise ValueError("the query is empty: name at least one column")
        positions = [self._position(entry) for entry in entries]
        if len(set(positions)) < len(positions):
            repeated = sorted({self.names[p] for p in positions if positions.count(p) > 1})
            raise ValueError(f"the query names a column twice: {', '.join(map(repr, repeated))}")
        return np.array(positions, dtype=np.intp)

    def reorder(self, order: Iterable[str | int]) -> "Scatter":
        """The same statistics with columns in another order.

        Parameters
        ----------
        order : iterable of str or int
            Every column once, by name or position.
        """
        p = self.index(order)
        if len(p) != self.n_features:
            raise ValueError(f"the order must hold each of the {self.n_features} columns once, got {len(p)}")
        names = tuple(self.names[i] for i in p)
        return Scatter(self.matrix[np.ix_(p, p)], self.n, self.mean[p], self.scale[p], names)

    def _position(self, entry: object) -> int:
        if isinstance(entry, str):
            if entry in self.names:
                return self.names.index(entry)
            close = difflib.get_close_matches(entry, self.names) or self.names[:5]
            hint = f"did you mean {' or '.join(map(repr, close))}?"
            raise ValueError(f"no column is named {entry!r}: {hint}")
        if isinstance(entry, bool) or not isinstance(entry, Integral):
            hint = " (np.flatnonzero turns a mask into positions)" if isinstance(entry, bool | np.bool_) else ""
            raise ValueError(f"a query takes names and integer positions, not {entry!r}{hint}")
        if not 0 <= int(entry) < self.n_features:
            raise ValueError(f"position {entry} is outside 0 … {self.n_features - 1}")
        return int(entry)


def _check_n(n: object) -> None:
    if isinstance(n, bool) or not isinstance(n, Real) or not 0 < float(n) < np.inf:
        raise ValueError(f"n, the number of rows, must be a positive number, got {n!r}")


def _check_varying(values: Float[np.ndarray, "n d"], names: tuple[str, ...]) -> None:
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    # Relative to the column's magnitude: 1e-12·(1, 2, 3) varies, 0.1 + 0.2 against 0.3 does not.
    constant = high / 2 - low / 2 <= 4 * np.finfo(np.float64).eps * np.maximum(np.abs(low), np.abs(high))
    for j in np.flatnonzero(constant):
        raise ValueError(f"column {names[j]!r} is constant (always {low[j]:g}): leave it out")


def _check_semidefinite(S: Float[np.ndarray, "d d"], names: tuple[str, ...]) -> None:
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
            "Was it rounded, or computed from pairwise complete rows? Use the rows themselves (missing='em')"
        ) from None


def _normal_scores(column: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    scores = np.full(len(column), np.nan)
    seen = ~np.isnan(column)
    scores[seen] = ndtri(rankdata(column[seen], method="average") / (seen.sum() + 1))
    return scores


def _standardize(values: Float[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centre and scale the observed values: working, mean, scale with values = working·scale + mean."""
    # Powers of two move every column near 1 without rounding, so that squares neither over- nor underflow.
    _, power = np.frexp(np.nanmax(np.abs(values), axis=0))
    working = np.ldexp(values, -power)
    mean = np.zeros(values.shape[1])
    for _ in range(2):  # the second pass removes the rounding error of a mean far from zero
        step = np.nanmean(working, axis=0)
        working, mean = working - step, mean + step
    scale = np.sqrt(np.nanmean(working**2, axis=0))
    return working / scale, np.ldexp(mean, power), np.ldexp(scale, power)
