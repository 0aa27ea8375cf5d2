"""Data to sufficient statistics: X -> (S, n) with S = Σ_i w_i w_iᵀ and x_i = scale·w_i + mean."""

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from ggmflow.data.check import check_choices, check_columns, check_matrix
from ggmflow.data.findings import DataCheck
from ggmflow.data.missing import expected_scatter
from ggmflow.data.normal_scores import normal_scores, to_unit_variance, values_of_scores
from ggmflow.data.rows import use_rows
from ggmflow.data.table import check_names, parse_table, read_table
from ggmflow.errors.advice import Advice
from ggmflow.errors.columns import UnknownColumnError
from ggmflow.storage.memory import require

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
        Number of rows. 0, with a matrix of zeros, stands for no data: the posterior is then the prior.
    mean, scale : (d,) ndarray
        original = working·scale + mean. After a transform, "original" means the transformed columns.
    names : tuple of str
        Column names, all different.
    observed : (m, d) ndarray, optional
        After the nonparanormal transform, the observed values of each column: sorted, NaN below them in columns
        with fewer than m. They bring new rows to the working scale.
    check : DataCheck, optional
        What a look at the table has found; None if there was no table.
    """

    matrix: Float[np.ndarray, "d d"]
    n: float
    mean: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    names: tuple[str, ...]
    observed: Float[np.ndarray, "m d"] | None = None
    check: DataCheck | None = None

    def __repr__(self) -> str:
        shown = ", ".join(self.names[:4]) + (", …" if len(self.names) > 4 else "")
        return f"Scatter(n={self.n:g}, {self.n_features} variables: {shown})"

    def __post_init__(self):
        S = np.array(self.matrix, dtype=np.float64, ndmin=2)
        names = check_names(self.names, len(S))
        if np.any(S) or self.n != 0:
            _check_n(self.n)
            _check_semidefinite(S, names)
        arrays = {"matrix": (S + S.T) / 2}
        for label in ("mean", "scale"):
            arrays[label] = np.array(getattr(self, label), dtype=np.float64)
            if arrays[label].shape != (len(S),) or not np.isfinite(arrays[label]).all():
                raise ValueError(f"{label} must hold one finite number for each of the {len(S)} columns")
        if not np.all(arrays["scale"] > 0):
            raise ValueError("scale must be positive")
        if self.observed is not None:
            arrays["observed"] = np.array(self.observed, dtype=np.float64)
            _check_observed(arrays["observed"], names)
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
    def transform(self) -> str | None:
        """None or "nonparanormal": what the columns went through before they were centred and scaled."""
        return None if self.observed is None else "nonparanormal"

    @classmethod
    def without_data(cls, n_features: int) -> "Scatter":
        """No rows at all, of so many variables."""
        names = tuple(f"x{k}" for k in range(n_features))
        return cls(np.zeros((n_features, n_features)), 0, np.zeros(n_features), np.ones(n_features), names)

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
        delimiter: str = ",",
        decimal: str = ".",
        drop: Sequence[str] = (),
    ) -> "Scatter":
        """Summarize a table whose rows are observations.

        Parameters
        ----------
        X : (n, d) array-like, pandas or polars DataFrame, or path
            At least 2 rows and 2 columns of real numbers; booleans count as 0 and 1. n < d and collinear
            columns are fine, constant columns are not. A path leads to a UTF-8 file of separated values with a
            header; empty fields, NA, N/A, NaN, null and none are missing values there.
        standardize : bool
            Scale to unit variance (ddof=0). Centring always happens.
        transform : None or "nonparanormal"
            "nonparanormal" replaces each column by its normal scores Φ⁻¹(r/(m+1)), r the rank among the
            column's m observed values. Ties share their average rank, so ordinal columns can be used.
        missing : {"error", "drop", "em"}
            What to do about missing values: refuse, use complete rows only, or take the expected statistics
            under a Gaussian model (`ggmflow.data.missing.expected_scatter`). "em" leaves out rows without any
            value, with a warning; n stays the number of rows used, so posteriors ignore what was not seen and
            are a little too narrow.
        names : sequence of str, optional
            Column names; default those of the table, or x0, x1, … for an array.
        delimiter, decimal : str
            What separates fields, and decimals, in a file.
        drop : sequence of str
            Columns to leave out, such as identifiers. In a file, a first column without a name is taken for labels of
            the rows and left out with a warning.

        Returns
        -------
        Scatter
            Its `n` is the number of rows used.
        """
        if not isinstance(standardize, bool | np.bool_):
            raise ValueError(f"standardize must be True or False, got {standardize!r}")
        check_choices(transform, missing)
        if len(shape := getattr(X, "shape", ())) == 2 and isinstance(drop, tuple) and not drop:
            _require_matrices(shape[1])  # before names are made for millions of columns
        table = parse_table(X, names, delimiter=delimiter, decimal=decimal, drop=drop)
        _require_matrices(len(table.names))
        used = use_rows(table, missing)
        values = used.values
        observed = None if transform is None else np.sort(values, axis=0)  # NaN comes last
        if observed is not None:
            values = normal_scores(values, observed)
        working, mean, scale = to_unit_variance(values)
        n = len(working)
        if np.isnan(working).any():
            result = expected_scatter(working)
            if not result.converged:
                from sklearn.exceptions import ConvergenceWarning  # takes a second to load, and is seldom needed

                warnings.warn(result.message, ConvergenceWarning, stacklevel=2)
            # The observed values were standardized; now the model's estimate of all values is.
            sd = np.sqrt(np.diag(result.matrix) / n)
            S, mean, scale = result.matrix / np.outer(sd, sd), mean + scale * result.mean, scale * sd
            check = check_columns(working, used, transform, missing)
        else:
            S = working.T @ working
            check = check_columns(working, used, transform, missing, scatter=S)
        if not standardize:
            with np.errstate(over="ignore", under="ignore"):
                S, scale = S * np.outer(scale, scale), np.ones_like(scale)
        return cls(S, n, mean, scale, used.names, observed, check)

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
        deviation = np.sqrt(np.diag(C))
        sd = deviation if standardize else np.ones(len(C))
        check = check_matrix(C / deviation / deviation[:, None], float(n), labels)
        return cls(n * (C / sd / sd[:, None]), n, np.zeros(len(C)), sd, labels, check=check)

    def index(self, query: str | int | Iterable[str | int], *, strict: bool = True) -> Int[np.ndarray, " s"]:
        """Positions of query variables, in the order asked.

        Parameters
        ----------
        query : str, int, or iterable of them
            Names or positions (from 0). A number is a position.
        strict
            Refuse a number that is the name of another column too.

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
        positions = [self._position(entry, strict) for entry in entries]
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
        p = self.index(order, strict=False)
        if len(p) != self.n_features:
            raise ValueError(f"the order must hold each of the {self.n_features} columns once, got {len(p)}")
        names = tuple(self.names[i] for i in p)
        observed = None if self.observed is None else self.observed[:, p]
        return Scatter(self.matrix[np.ix_(p, p)], self.n, self.mean[p], self.scale[p], names, observed, self.check)

    def working(self, X: Any) -> Float[np.ndarray, "n d"]:
        """Bring rows to the working scale: the same transform, then (x − mean)/scale.

        The rows behind this scatter matrix (without missing values) give w with wᵀw = `matrix`. Under the
        nonparanormal transform, a value between two observed ones gets a score on the line between theirs; one
        beyond all of them gets the last score, since the data say nothing about farther tails.

        Parameters
        ----------
        X : (n, d) array-like, pandas or polars DataFrame, or path
            Complete rows. Tables and files must have columns of the same names, in any order; the
            columns of an array are taken in order.

        Returns
        -------
        (n, d) ndarray
            Columns in the order of `names`. After `from_covariance` the mean is zero, so X should be centred.
        """
        values, labels, where = read_table(X, None, min_rows=1)
        if hasattr(X, "columns") or isinstance(X, str | os.PathLike):
            values = values[:, self._columns(labels)]
        elif len(labels) != self.n_features:
            raise ValueError(
                f"X has {len(labels)} features, but Scatter is expecting {self.n_features} features as input"
            )
        for i, j in np.argwhere(~np.isfinite(values)):
            found = "missing (NaN)" if np.isnan(values[i, j]) else f"{values[i, j]}"
            raise ValueError(f"column {self.names[j]!r}, {where(i)} is {found}: new rows must be complete and finite")
        return self.to_working(values)

    def to_working(self, values: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """`working` for numbers that need no checks; a value that is missing (NaN) stays so.

        Parameters
        ----------
        values : (n, d) array
            Columns in the order of `names`.
        """
        if self.observed is not None:
            values = normal_scores(values, self.observed)
        return (values - self.mean) / self.scale

    def to_original(
        self, working: Float[np.ndarray, "*rows k"], columns: Int[np.ndarray, " k"] | None = None
    ) -> Float[np.ndarray, "*rows k"]:
        """Bring numbers in the working scale back to that of the data: working·scale + mean, then the transform undone.

        Under the nonparanormal transform a score between those of two observed values gives a value on the line between
        them, and one beyond all of them the last value. In a column in which values repeat, such as an ordinal one,
        every score gives an observed value, so that none is made up; cuts between them are where normal numbers, of
        the mean and variance of the column's scores, give each value as often as it was observed.

        Parameters
        ----------
        working : (…, k) array
        columns : (k,) array of int, optional
            Positions of the columns that they belong to; default all.
        """
        columns = np.arange(self.n_features) if columns is None else columns
        values = working * self.scale[columns] + self.mean[columns]
        if self.observed is None:
            return values
        parts = [values_of_scores(values[..., k], self.observed[:, j]) for k, j in enumerate(columns)]
        return np.stack(parts, axis=-1) if parts else values

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Everything in it as a header, which JSON can hold, and arrays; for `ggmflow.storage.archive.write`.

        Returns
        -------
        header : dict
            `n`, `names`, `transform`, and `check` if there is one.
        arrays : dict of str to ndarray
            `matrix`, `mean`, `scale`, and `observed` if there is a transform.
        """
        header: dict[str, Any] = {"n": self.n, "names": list(self.names), "transform": self.transform}
        if self.check is not None:
            header["check"] = self.check.to_dict()
        arrays = {"matrix": self.matrix, "mean": self.mean, "scale": self.scale}
        return header, arrays if self.observed is None else {**arrays, "observed": self.observed}

    @classmethod
    def from_arrays(cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Scatter":
        """The inverse of `to_arrays`. Its arguments may come from a file that need not be trusted.

        Parameters
        ----------
        header : dict
        arrays : dict of str to ndarray
            No others than `to_arrays` gives.
        """
        if not isinstance(header, Mapping) or not {"n", "names", "transform"} <= set(header):
            raise ValueError("the header of a Scatter must have n, names and transform")
        n, names, transform = header["n"], header["names"], header["transform"]
        if transform not in (None, "nonparanormal"):
            raise ValueError(f"unknown transform {transform!r}: a newer version of ggmflow may know it")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("the names in the header of a Scatter must be a list of strings")
        if not isinstance(n, int | float) or abs(n) > 2**53:  # JSON knows integers that no float can hold
            raise ValueError(f"n, the number of rows, cannot be {str(n)[:20]}")
        expected = {"matrix", "mean", "scale"} | ({"observed"} if transform else set())
        if set(arrays) != expected:
            raise ValueError(f"a Scatter has the arrays {', '.join(sorted(expected))}, not {', '.join(sorted(arrays))}")
        check = header.get("check")  # absent from files of earlier versions
        return cls(n=n, names=tuple(names), **arrays, check=None if check is None else DataCheck.from_dict(check))

    def _columns(self, labels: tuple[str, ...]) -> list[int]:
        """Where a table that has names keeps our columns."""
        absent = [name for name in self.names if name not in labels]
        extra = [label for label in labels if label not in self.names]
        if absent or extra:
            problem = f"no column {absent[0]!r}" if absent else f"a column {extra[0]!r} that was not there before"
            hint = "name the columns as before, or pass an array to go by position"
            raise ValueError(f"X has {problem}: {hint}")
        return [labels.index(name) for name in self.names]

    def _position(self, entry: object, strict: bool) -> int:
        if isinstance(entry, str):
            if entry in self.names:
                return self.names.index(entry)
            raise UnknownColumnError(entry, self.names)
        if isinstance(entry, bool) or not isinstance(entry, Integral):
            hint = " (np.flatnonzero turns a mask into positions)" if isinstance(entry, bool | np.bool_) else ""
            raise ValueError(f"a query takes names and integer positions, not {entry!r}{hint}")
        if not 0 <= int(entry) < self.n_features:
            raise ValueError(f"position {entry} is outside 0 … {self.n_features - 1}")
        if strict and str(entry) in self.names and self.names[int(entry)] != str(entry):
            raise ValueError(
                f"{entry} may mean the column named '{entry}' or position {entry}, which is column "
                f"{self.names[int(entry)]!r}: write the name as text"
            )
        return int(entry)


def _check_n(n: object) -> None:
    if isinstance(n, bool) or not isinstance(n, Real) or not 0 < float(n) < np.inf:
        raise ValueError(f"n, the number of rows, must be a positive number, got {n!r}")


def _require_matrices(d: int) -> None:
    """Refuse scatter matrices that cannot fit: five exist at a time, while one is checked."""
    advice = Advice("leave some of them out, for instance with", {"drop": ...})
    require(40 * d**2, f"the scatter matrices of {d} columns", advice)


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
            "Was it rounded, or computed from pairwise complete rows? Use the rows themselves"
        ) from None


def _check_observed(observed: Float[np.ndarray, "m d"], names: tuple[str, ...]) -> None:
    if observed.ndim != 2 or observed.shape[1] != len(names):
        raise ValueError(f"observed must have one column for each of the {len(names)} names, got {observed.shape}")
    for column, name in zip(observed.T, names, strict=True):
        values = column[: np.count_nonzero(~np.isnan(column))]
        if np.isnan(values).any() or np.isinf(values).any() or np.any(values[1:] < values[:-1]):
            raise ValueError(f"observed values of column {name!r} must be finite and sorted, with NaN at the end")
        if not values.size or values[0] == values[-1]:
            raise ValueError(f"column {name!r} must have two different observed values or more")
