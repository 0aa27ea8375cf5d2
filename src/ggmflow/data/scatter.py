"""Data to sufficient statistics: X -> (S, n) with S = Σ_i w_i w_iᵀ and x_i = scale·w_i + mean."""

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int

from ggmflow.data.check import check_choices, check_columns, check_matrix
from ggmflow.data.columns import find_columns, match_columns
from ggmflow.data.findings import DataCheck
from ggmflow.data.missing import expected_scatter
from ggmflow.data.normal_scores import normal_scores, to_unit_variance, values_of_scores
from ggmflow.data.rows import use_rows
from ggmflow.data.scatter_checks import (
    check_estimated,
    check_n,
    check_observed,
    check_semidefinite,
    check_stored,
    count_estimated,
    require_matrices,
)
from ggmflow.data.table import check_names, parse_table, read_table

TREATMENTS = ("mean", "standardize", "transform", "missing")  # options of `from_data` that estimators have too


@final
@dataclass(frozen=True, eq=False, repr=False)
class Scatter:
    """Validated sufficient statistics of a Gaussian model, in the working scale.

    Long because every way to make one and to return to the data is a method here.

    Attributes
    ----------
    matrix : (d, d) ndarray
        S = Σ_i w_i w_iᵀ, the scatter matrix of the centred (and, if asked, scaled) rows, *not* divided by n.
        Positive semi-definite; it may be singular. Read-only, as are the other arrays.
    n : int or float
        Degrees of freedom: the likelihood is ∝ det(Ω)^{n/2} exp(−½ tr ΩS). The number of rows, less one if the mean is
        estimated. 0, with a matrix of zeros, stands for no data: the posterior is then the prior.
    mean, scale : (d,) ndarray
        original = working·scale + mean. After a transform, "original" means the transformed columns.
    names : tuple of str
        Column names, all different.
    observed : (m, d) ndarray, optional
        After the nonparanormal transform, the observed values of each column: sorted, NaN below them in columns
        with fewer than m. They define the transform of new rows.
    check : DataCheck, optional
        Findings about the table; None if there was no table.
    n_estimated : int
        Number of means that were estimated for each column and count against n: 1, or 0 if the mean is known.
    """

    matrix: Float[np.ndarray, "d d"]
    n: float
    mean: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    names: tuple[str, ...]
    observed: Float[np.ndarray, "m d"] | None = None
    check: DataCheck | None = None
    n_estimated: int = 0

    def __repr__(self) -> str:
        shown = ", ".join(self.names[:4]) + (", …" if len(self.names) > 4 else "")
        return f"Scatter({self.n_rows:g} rows, {self.n_features} variables: {shown})"

    def __post_init__(self):
        S = np.array(self.matrix, dtype=np.float64, ndmin=2)
        names = check_names(self.names, len(S))
        if np.any(S) or self.n != 0:
            check_n(self.n, name="n, the degrees of freedom,")
            check_semidefinite(S, names)
        check_estimated(self.n_estimated)
        arrays = {"matrix": (S + S.T) / 2}
        for label in ("mean", "scale"):
            arrays[label] = np.array(getattr(self, label), dtype=np.float64)
            if arrays[label].shape != (len(S),) or not np.isfinite(arrays[label]).all():
                raise ValueError(f"{label} must hold one finite number for each of the {len(S)} columns")
        if not np.all(arrays["scale"] > 0):
            raise ValueError("scale must be positive")
        if self.observed is not None:
            arrays["observed"] = np.array(self.observed, dtype=np.float64)
            check_observed(arrays["observed"], names)
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
    def n_rows(self) -> float:
        """Number of rows: n, and one more if the mean is estimated."""
        return self.n + self.n_estimated

    @property
    def mean_variance(self) -> float:
        """Variance of the mean relative to that of a row: 1/rows, or 0 if the mean is known."""
        return 1 / self.n_rows if self.n_estimated else 0.0

    @property
    def transform(self) -> str | None:
        """None or "nonparanormal": the transform of the columns before they were centred and scaled."""
        return None if self.observed is None else "nonparanormal"

    @classmethod
    def without_data(cls, n_features: int) -> "Scatter":
        """The scatter matrix of no rows: zeros."""
        names = tuple(f"x{k}" for k in range(n_features))
        return cls(np.zeros((n_features, n_features)), 0, np.zeros(n_features), np.ones(n_features), names)

    @property
    def emp_cov(self) -> Float[np.ndarray, "d d"]:
        """S/n, the empirical covariance in the working scale; unbiased if the mean is estimated."""
        return self.matrix / self.n

    @classmethod
    def from_data(
        cls,
        X: Any,
        *,
        mean: str = "estimated",
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
            columns are allowed, constant columns are not. A path is that of a UTF-8 file of separated values with a
            header; empty fields, NA, N/A, NaN, null and none are missing values there.
        mean : {"estimated", "known"}
            Columns are centred by their means. "estimated": n is the number of rows less one, which is exact for a flat
            prior on the mean of columns that are complete and not scaled or transformed. "known": n is the number of
            rows, as in the paper.
        standardize : bool
            Scale to unit variance (ddof=0). Centring always happens.
        transform : None or "nonparanormal"
            "nonparanormal" replaces each column by its normal scores Φ⁻¹(r/(m+1)), r the rank among the
            column's m observed values. Ties share their average rank, so ordinal columns can be used.
        missing : {"error", "drop", "em"}
            What to do about missing values: raise, use complete rows only, or take the expected statistics
            under a Gaussian model (`ggmflow.data.missing.expected_scatter`). "em" leaves out rows without any
            value, with a warning; every row that is used counts in full, so posteriors do not account for the missing
            values and are a little too narrow.
        names : sequence of str, optional
            Column names; default those of the table, or x0, x1, … for an array.
        delimiter, decimal : str
            The field separator and the decimal sign of a file.
        drop : sequence of str
            Columns to leave out, such as identifiers. A first column of a file without a name counts as row labels
            and is left out with a warning.

        Returns
        -------
        Scatter
            Its `n_rows` is the number of rows used.
        """
        n_estimated = count_estimated(mean)
        if not isinstance(standardize, bool | np.bool_):
            raise ValueError(f"standardize must be True or False, got {standardize!r}")
        check_choices(transform, missing)
        if len(shape := getattr(X, "shape", ())) == 2 and isinstance(drop, tuple) and not drop:
            require_matrices(shape[1])  # before names are made for millions of columns
        table = parse_table(X, names, delimiter=delimiter, decimal=decimal, drop=drop)
        require_matrices(len(table.names))
        used = use_rows(table, missing)
        values = used.values
        observed = None if transform is None else np.sort(values, axis=0)  # NaN comes last
        if observed is not None:
            values = normal_scores(values, observed)
        working, centre, scale = to_unit_variance(values)
        if np.isnan(working).any():
            S, shift, sd = _expected_statistics(working)
            centre, scale = centre + scale * shift, scale * sd
            check = check_columns(working, used, transform, missing)
        else:
            S = working.T @ working
            check = check_columns(working, used, transform, missing, scatter=S)
        if not standardize:
            with np.errstate(over="ignore", under="ignore"):
                S, scale = S * np.outer(scale, scale), np.ones_like(scale)
        return cls(S, len(working) - n_estimated, centre, scale, used.names, observed, check, n_estimated)

    @classmethod
    def from_covariance(
        cls,
        cov: Any,
        n: float,
        names: Sequence[str] | None = None,
        *,
        mean: str = "estimated",
        standardize: bool = True,
    ) -> "Scatter":
        """Use a covariance matrix that was computed elsewhere.

        Parameters
        ----------
        cov : (d, d) array-like, pandas or polars DataFrame, or path
            Σ_i (x_i − mean)(x_i − mean)ᵀ/n. One with divisor n − 1 should be multiplied by (n − 1)/n first.
        n : number
            Number of rows that it was computed from, more than 1 if the mean was estimated.
        mean : {"estimated", "known"}
            As in `from_data`; "known" if rows were not centred, or by a mean that is known.
        standardize : bool
            Use the correlation matrix, and keep the standard deviations as `scale`.
        names : sequence of str, optional
            Column names; default those of the table, or x0, x1, … for an array.

        Returns
        -------
        Scatter
            Its `mean` is zero.
        """
        n_estimated = count_estimated(mean)
        C, labels, _ = read_table(cov, names)
        check_n(n, more_than=n_estimated)
        check_semidefinite(C, labels)
        deviation = np.sqrt(np.diag(C))
        sd = deviation if standardize else np.ones(len(C))
        check = check_matrix(C / deviation / deviation[:, None], float(n), labels)
        S, zero = n * (C / sd / sd[:, None]), np.zeros(len(C))
        return cls(S, n - n_estimated, zero, sd, labels, check=check, n_estimated=n_estimated)

    def index(self, query: str | int | Iterable[str | int], *, strict: bool = True) -> Int[np.ndarray, " s"]:
        """Positions of query variables, in the order of the query.

        Parameters
        ----------
        query : str, int, or iterable of them
            Names or positions (from 0). A number is a position.
        strict
            Raise if a number is the name of another column too.

        Returns
        -------
        (s,) ndarray of int
        """
        return find_columns(query, self.names, strict=strict)

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
        columns = {"matrix": self.matrix[np.ix_(p, p)], "mean": self.mean[p], "scale": self.scale[p]}
        return replace(self, **columns, names=names, observed=observed)

    def working(self, X: Any) -> Float[np.ndarray, "n d"]:
        """Rows in the working scale: the same transform, then (x − mean)/scale.

        The rows that this scatter matrix was computed from (without missing values) give w with wᵀw = `matrix`.
        Under the nonparanormal transform, scores are interpolated linearly between observed values; a value beyond
        all of them gets the last score, since the data contain no information about farther tails.

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
            values = values[:, match_columns(labels, self.names)]
        elif len(labels) != self.n_features:
            raise ValueError(
                f"X has {len(labels)} features, but Scatter is expecting {self.n_features} features as input"
            )
        for i, j in np.argwhere(~np.isfinite(values)):
            found = "missing (NaN)" if np.isnan(values[i, j]) else f"{values[i, j]}"
            raise ValueError(f"column {self.names[j]!r}, {where(i)} is {found}: new rows must be complete and finite")
        return self.to_working(values)

    def to_working(self, values: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """`working` without checks of the values; missing values (NaN) stay missing.

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
        """Values in the scale of the data: working·scale + mean, then the inverse of the transform.

        The inverse of the nonparanormal transform interpolates linearly between observed values; a score beyond all of
        them gives the last value. In a column with repeated values, such as an ordinal one, every score gives an
        observed value. The cuts between them are chosen so that normal numbers with the mean and variance of the
        column's scores give each value as often as it was observed.

        Parameters
        ----------
        working : (…, k) array
        columns : (k,) array of int, optional
            Positions of the columns of `working`; default all.
        """
        columns = np.arange(self.n_features) if columns is None else columns
        values = working * self.scale[columns] + self.mean[columns]
        if self.observed is None:
            return values
        parts = [values_of_scores(values[..., k], self.observed[:, j]) for k, j in enumerate(columns)]
        return np.stack(parts, axis=-1) if parts else values

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """All values as a header, which JSON can hold, and arrays; for `ggmflow.storage.archive.write`.

        Returns
        -------
        header : dict
            `n`, `n_estimated`, `names`, `transform`, and `check` if there is one.
        arrays : dict of str to ndarray
            `matrix`, `mean`, `scale`, and `observed` if there is a transform.
        """
        header: dict[str, Any] = {name: getattr(self, name) for name in ("n", "n_estimated", "transform")}
        header["names"] = list(self.names)
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
            Exactly those that `to_arrays` returns.
        """
        check_stored(header, arrays)
        check = None if header.get("check") is None else DataCheck.from_dict(header["check"])  # older files have none
        n_estimated = header.get("n_estimated", 0)  # in older files the mean counts as known
        return cls(n=header["n"], names=tuple(header["names"]), **arrays, check=check, n_estimated=n_estimated)


def _expected_statistics(
    working: Float[np.ndarray, "n d"],
) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Expected scatter matrix of incomplete rows, scaled to unit variances, and their mean and standard deviations."""
    result = expected_scatter(working)
    if not result.converged:
        from sklearn.exceptions import ConvergenceWarning  # takes a second to load, and is seldom needed

        warnings.warn(result.message, ConvergenceWarning, stacklevel=3)
    # The observed values had unit variances; now the model's estimate of all values has.
    sd = np.sqrt(np.diag(result.matrix) / len(working))
    return result.matrix / np.outer(sd, sd), result.mean, sd
