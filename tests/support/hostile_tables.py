"""Odd tables with their expected statistics: numbers × containers × names × options.

    case(number) → (X, options, values)   the same number gives the same case
    hopeless(values, options)             whether it must be refused
    clean(values, options)                the rows that are used, if it must be read

What is neither may be read or refused. `right_scatter` computes what `Scatter.from_data` should, in extended precision
and by another way.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
from scipy import sparse
from scipy.special import ndtri
from scipy.stats import rankdata


class Case(NamedTuple):
    """A table and the options for reading it.

    Attributes
    ----------
    X
        What is given to `Scatter.from_data`.
    options
        Its options.
    values : (n, d) array or None
        The numbers in X; None if it holds none, so that it must be refused.
    names
        Of the columns, if X has any.
    """

    X: Any
    options: dict[str, Any]
    values: np.ndarray | None
    names: list[str] | None = None


# ------------------------------------------------------------------------------------------------------------- numbers
def _plain(rng, n, d):
    return rng.normal(size=(n, d))


def _scales(rng, n, d):
    return rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-12, 12, d)


def _shifted(rng, n, d):
    return rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-12, 12, d) + 10.0 ** rng.uniform(-12, 12, d)


def _edge_of_range(rng, n, d):
    """From the smallest numbers that there are to the largest."""
    return rng.uniform(-1, 1, (n, d)) * 10.0 ** rng.choice([-323.0, -308, -200, -160, 150, 200, 307, 308], d)


def _cauchy(rng, n, d):
    return rng.standard_cauchy((n, d)) ** int(rng.integers(1, 6))


def _outlier(rng, n, d):
    X = rng.normal(size=(n, d))
    X[rng.integers(n), rng.integers(d)] = rng.choice([1e8, -1e8, 1e100, 1e300])
    return X


def _duplicated(rng, n, d):
    return rng.normal(size=(n, d))[:, rng.integers(d, size=d)] * rng.choice([-1, 1], d)


def _collinear(rng, n, d):
    rank = int(rng.integers(1, d))
    return rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d)) + 10.0 ** rng.uniform(-18, -6) * rng.normal(size=d)


def _integers(rng, n, d):
    return rng.integers(-(2**53), 2**53, (n, d)).astype(float)


def _ties(rng, n, d):
    return rng.integers(0, int(rng.integers(2, 4)), (n, d)).astype(float)


def _constant(rng, n, d):
    X = rng.normal(size=(n, d))
    X[:, rng.integers(d)] = rng.choice([0.0, -0.0, 1.0, 0.1, 1e300, 5e-324])
    return X


def _nearly_constant(rng, n, d):
    return 10.0 ** rng.uniform(-5, 15) + rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-18, 0)


def _missing(rng, n, d):
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-12, 12, d)
    X[rng.uniform(size=(n, d)) < rng.choice([0.05, 0.3, 0.8])] = np.nan
    return X


def _infinite(rng, n, d):
    X = rng.normal(size=(n, d))
    X[rng.integers(n), rng.integers(d)] = rng.choice([np.inf, -np.inf])
    return X


NUMBERS: list[Callable[[np.random.Generator, int, int], np.ndarray]] = [
    *(_plain, _scales, _shifted, _edge_of_range, _cauchy, _outlier, _duplicated, _collinear, _integers, _ties),
    *(_constant, _nearly_constant, _missing, _infinite),
]
SHAPES = [(2, 2), (2, 3), (3, 2), (5, 4), (30, 3), (4, 30), (2, 50), (200, 6)]


# ---------------------------------------------------------------------------------------------------------- containers
def _with_dtype(X: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(all="ignore"):
        out = np.nan_to_num(X, nan=0.0).astype(dtype) if np.dtype(dtype).kind in "iub" else X.astype(dtype)
    return out, out.astype(float)


def _masked(X: np.ndarray) -> tuple[Any, np.ndarray]:
    return np.ma.masked_invalid(X), np.where(np.isfinite(X), X, np.nan)


def _frame(X: np.ndarray, dtype: Any = None) -> tuple[pd.DataFrame, np.ndarray]:
    frame = pd.DataFrame(X.copy())
    return (frame if dtype is None else frame.astype(dtype)), X


def _decimals(X: np.ndarray) -> tuple[Any, np.ndarray]:
    out = np.empty(X.shape, object)
    out[...] = [[Decimal(float(x)) for x in row] for row in X]
    return out, X


def _objects(X: np.ndarray) -> tuple[Any, np.ndarray]:
    """None, NA, NaT and NaN in turn for what is missing."""
    out, blanks = X.astype(object), [None, pd.NA, pd.NaT, float("nan")]
    for k, (i, j) in enumerate(np.argwhere(np.isnan(X))):
        out[i, j] = blanks[k % 4]
    return pd.DataFrame(out), X


def _nullable_integers(X: np.ndarray) -> tuple[Any, np.ndarray]:
    whole = np.where(np.isfinite(X), np.clip(np.round(X), -(2**53), 2**53), np.nan)
    return pd.DataFrame(whole).astype("Int64"), whole


def _polars(X: np.ndarray) -> tuple[Any, np.ndarray]:
    return pl.DataFrame({f"c{j}": column for j, column in enumerate(X.T)}), X


FAITHFUL: list[Callable[[np.ndarray], tuple[Any, np.ndarray]]] = [
    lambda X: (X, X),
    lambda X: (X.tolist(), X),
    lambda X: (np.asfortranarray(X), X),
    lambda X: (np.repeat(X, 2, axis=0)[::2], X),
    lambda X: (X.astype(">f8"), X),
    lambda X: (np.matrix(X), X),
    lambda X: _with_dtype(X, np.float32),
    lambda X: _with_dtype(X, np.float16),
    lambda X: _with_dtype(X, np.longdouble),
    lambda X: _with_dtype(np.clip(X, -100, 100), np.int8),
    lambda X: _with_dtype(X > 0, bool),
    lambda X: (X.astype(object), X),
    lambda X: (np.array([[repr(float(x)) for x in row] for row in X]), X),
    _masked,
    _frame,
    lambda X: _frame(X, "Float64"),
    lambda X: _frame(X, "category"),
    lambda X: _frame(X, object),
    _decimals,
    _objects,
    _nullable_integers,
    _polars,
]
HOPELESS: list[Callable[[np.ndarray], Any]] = [
    lambda X: None,
    lambda X: {},
    lambda X: {"a": X[:, 0]},
    lambda X: X[:, 0],
    lambda X: X[:, :1],
    lambda X: X[:1],
    lambda X: X[:0],
    lambda X: X[:, :0],
    lambda X: X[None],
    lambda X: float(X[0, 0]),
    lambda X: "",
    lambda X: "\0",
    lambda X: "x" * 10_000,
    lambda X: b"a,b\n1,2\n",
    lambda X: iter(X.tolist()),
    lambda X: [[1, 2], [3]],
    lambda X: [[1, 2], 3],
    lambda X: set(map(tuple, X.tolist())),
    lambda X: object(),
    lambda X: X.dtype,
    lambda X: X + 1j,
    lambda X: sparse.csr_array(np.nan_to_num(X)),
    lambda X: sparse.dok_matrix(np.nan_to_num(X)),
    lambda X: pd.Series(X[:, 0]),
    lambda X: pd.DataFrame({"a": X[:, 0], "b": pd.Timestamp("2020")}),
    lambda X: pd.DataFrame({"a": X[:, 0], "b": pd.Timedelta("1d")}),
    lambda X: pd.DataFrame({"a": X[:, 0], "b": pd.Period("2020")}),
    lambda X: pd.DataFrame({"a": X[:, 0], "b": pd.Interval(0, 1)}),
    lambda X: pd.DataFrame({"a": X[:, 0], "b": pd.Categorical(["u"] * len(X))}),
    lambda X: pd.DataFrame({"a": X[:, 0], "b": [[1, 2]] * len(X)}),
    lambda X: pd.DataFrame(X, columns=["a"] * X.shape[1]),
    lambda X: np.zeros(X.shape, [("a", float), ("b", float)]),
    lambda X: np.zeros(X.shape, "datetime64[s]"),
    lambda X: np.full(X.shape, "low"),
    lambda X: np.full(X.shape, 10**400, object),
    lambda X: pl.DataFrame({"a": ["u", "v"], "b": ["w", "x"]}),
    lambda X: pl.LazyFrame({"a": [1, 2], "b": [3, 5]}),
]

# --------------------------------------------------------------------------------------------------------------- names
NAMES = [
    "a",
    "",
    " ",
    "שלום",
    "\u202eevil\u202c",
    "e\u0301\u0323",
    "Z\u0351\u036b\u0343" * 20,
    "👩‍👩‍👧‍👦",
    "名前",
    "λ",
    "a,b",
    'say "hi"',
    "it's",
    "two\nlines",
    "\r",
    "tab\there",
    "\0",
    "\x1b[31m",
    "\ufeff",
    "<script>alert(1)</script>",
    "</script>",
    "&amp;",
    "`x`",
    "${x}",
    "{{x}}",
    "%s%n",
    "=1+1",
    "@SUM(A1)",
    "-1",
    "+1",
    "../../etc/passwd",
    "C:\\con",
    "nan",
    "None",
    "0",
    "1e400",
    "x" * 10_000,
]


# --------------------------------------------------------------------------------------------------------------- cases
def case(number: int) -> Case:
    """A case by its number; every kind of numbers and every container comes in turn."""
    rng = np.random.default_rng([20231210, number])
    n, d = SHAPES[int(rng.integers(len(SHAPES)))]
    with np.errstate(all="ignore"):
        X = NUMBERS[number % len(NUMBERS)](rng, n, d)
    options: dict[str, Any] = {
        "standardize": bool(rng.integers(2)),
        "transform": "nonparanormal" if rng.integers(2) else None,
        "missing": str(rng.choice(["error", "drop", "em"])),
    }
    if rng.uniform() < 0.2:
        return Case(HOPELESS[int(rng.integers(len(HOPELESS)))](X), options, None)
    table, values = FAITHFUL[int(rng.integers(len(FAITHFUL)))](X)
    if rng.uniform() < 0.5:
        return Case(table, options, values)
    names = [str(name) for name in rng.choice(NAMES, d, replace=d > len(NAMES) or rng.uniform() < 0.2)]
    return Case(table, options | {"names": names}, values, names)


def _used(values: np.ndarray, options: dict[str, Any]) -> np.ndarray:
    gone = np.isnan(values).any(axis=1) if options["missing"] == "drop" else np.isnan(values).all(axis=1)
    return values[~gone]


def hopeless(values: np.ndarray, options: dict[str, Any]) -> bool:
    """Whether reading a table must raise: infinite or unwanted missing values, nothing to use, a constant column."""
    if np.isinf(values).any() or (options["missing"] == "error" and np.isnan(values).any()):
        return True
    rows = _used(values, options)
    if len(rows) < 2 or values.shape[1] < 2 or np.isnan(rows).all(axis=0).any():
        return True
    return bool(np.any(np.nanmin(rows, axis=0) == np.nanmax(rows, axis=0)))


def clean(values: np.ndarray, options: dict[str, Any]) -> np.ndarray | None:
    """The rows that are used if reading must succeed; None if it may or must raise."""
    if hopeless(values, options):
        return None
    rows = _used(values, options)
    spread, size = np.nanmax(rows / 2, axis=0) - np.nanmin(rows / 2, axis=0), np.nanmax(np.abs(rows), axis=0)
    if np.any(spread <= 1e-14 * size) or np.any(size < 1e-307):
        return None
    if (
        not options["standardize"]
        and options["transform"] is None
        and (np.any(size > 1e140) or np.any(spread < 1e-140))
    ):
        return None
    return rows


def right_scatter(rows: np.ndarray, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Correlations and standard deviations of complete rows in the scale that is asked for, in extended precision."""
    X = rows.astype(np.longdouble)
    if options["transform"]:
        X = ndtri(rankdata(rows, axis=0) / (len(rows) + 1)).astype(np.longdouble)
    X = X - X.mean(axis=0)
    X = X - X.mean(axis=0)
    sd = np.sqrt(np.mean(X**2, axis=0))
    X = X / sd
    return (X.T @ X / len(X)).astype(float), sd.astype(float)
