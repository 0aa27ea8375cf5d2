"""Scatter.working transforms new rows as the first ones; storage preserves all values of a Scatter."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import norm, rankdata

from ggmflow.data.scatter import Scatter
from ggmflow.storage import archive

NAMES = ["age", "weight", "height", "dose"]
X = np.random.default_rng(0).normal(size=(30, 4)) @ np.random.default_rng(1).normal(size=(4, 4)) * [1, 10, 0.1, 3] + 5
TIED = np.column_stack([X[:, 0], np.round(X[:, 1:] * [0.2, 20, 1])])
HOLES = np.where(np.random.default_rng(2).random(X.shape) < 0.1, np.nan, X)
TABLES = {"plain": X, "five rows": X[:5], "tied": TIED, "huge": X * [1e100, 1, 1e-100, 1e12], "offset": X + 1e6}
OPTIONS = [
    {"standardize": standardize, "transform": transform}
    for standardize in (True, False)
    for transform in (None, "nonparanormal")
]


def scores(knots, x):
    """Scores of one column: the result of the public method without centring and scaling."""
    other = np.arange(len(knots)) % 2
    scatter = Scatter.from_data(np.column_stack([knots, other]), transform="nonparanormal")
    w = scatter.working(np.column_stack([x, np.zeros(len(x))]))[:, 0]
    return w * scatter.scale[0] + scatter.mean[0]


# ---------------------------------------------------------------- the rows of the fit


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_the_same_rows_reproduce_the_matrix(table, options):
    scatter = Scatter.from_data(table, **options)
    w = scatter.working(table)
    assert w.shape == table.shape
    size = np.sqrt(np.diag(scatter.matrix))
    np.testing.assert_allclose((w.T @ w) / np.outer(size, size), scatter.matrix / np.outer(size, size), atol=1e-9)
    np.testing.assert_allclose(w.mean(axis=0) / size, 0, atol=1e-9)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_observed_values_keep_their_scores_exactly(table):
    scatter = Scatter.from_data(table, transform="nonparanormal")
    expected = norm.ppf(rankdata(table, axis=0) / (len(table) + 1))
    np.testing.assert_array_equal(scatter.working(table), (expected - scatter.mean) / scatter.scale)


def test_observed_values_of_incomplete_columns_keep_their_scores():
    scatter = Scatter.from_data(HOLES, transform="nonparanormal", missing="em")
    complete = HOLES[~np.isnan(HOLES).any(axis=1)]
    ranks = rankdata(HOLES, axis=0, nan_policy="omit")[~np.isnan(HOLES).any(axis=1)]
    expected = norm.ppf(ranks / (np.sum(~np.isnan(HOLES), axis=0) + 1))
    np.testing.assert_array_equal(scatter.working(complete), (expected - scatter.mean) / scatter.scale)
    assert np.isnan(scatter.observed).any() and not np.isnan(scatter.observed).all(axis=0).any()


def test_observed_values_are_those_of_complete_rows_after_drop():
    scatter = Scatter.from_data(HOLES, transform="nonparanormal", missing="drop")
    assert len(scatter.observed) == scatter.n_rows < 30
    assert not np.isnan(scatter.observed).any()


def test_without_a_transform_there_are_no_observed_values():
    for scatter in (Scatter.from_data(X), Scatter.from_covariance(np.cov(X.T), 30)):
        assert scatter.observed is None and scatter.transform is None
    assert Scatter.from_data(X, transform="nonparanormal").transform == "nonparanormal"


def test_after_from_covariance_the_mean_is_zero():
    scatter = Scatter.from_covariance(np.cov(X.T, ddof=0), 30)
    w = scatter.working(X - X.mean(axis=0))
    np.testing.assert_allclose(w.T @ w, scatter.matrix, rtol=1e-12)


def test_observed_is_private_and_read_only():
    observed = np.sort(X, axis=0)
    scatter = Scatter(np.eye(4), 30, np.zeros(4), np.ones(4), tuple(NAMES), observed)
    observed[:] = 0
    assert scatter.observed[-1, 0] > scatter.observed[0, 0]
    with pytest.raises(ValueError, match="read-only"):
        scatter.observed[0, 0] = 7


# ---------------------------------------------------------------- new values under the transform


def test_scores_between_observed_values_by_hand():
    s = norm.ppf([0.2, 0.5, 0.8])  # of 0, 2 (twice) and 10: ranks 1, 2.5 and 4 among 4 values
    x = [0, 0.5, 1, 2, 4, 10, -1e300, 11, 1e300]
    expected = [s[0], 0.75 * s[0], 0.5 * s[0], 0, 0.25 * s[2], s[2], s[0], s[2], s[2]]
    np.testing.assert_allclose(scores([0, 2, 2, 10], x), expected, atol=1e-15)


@pytest.mark.parametrize(
    "knots",
    [
        X[:, 0],
        TIED[:, 1],
        [-1.7e308, 1.6e308, 1.7e308],  # their difference overflows
        [0.0, 5e-324, 2e-323, 1e-310],  # a slope between them would overflow
        [1.0, 1 + 2**-50, 1 + 2**-20, 2.0],
        [1e-300, 1.0, 1e300, 3.0],
    ],
    ids=["normal", "tied", "huge", "subnormal", "near", "wide"],
)
def test_scores_increase_from_the_first_to_the_last(knots):
    middle = np.sort(knots)
    steps = np.linspace(0, 1, 50)[:, None]
    x = np.unique(((1 - steps) * middle[:-1] + steps * middle[1:]).ravel())
    x = np.concatenate([[-1.75e308], x, [1.75e308]])
    s = scores(knots, x)
    assert np.isfinite(s).all()
    assert np.all(np.diff(s) >= 0)
    bound = norm.ppf(rankdata(knots) / (len(knots) + 1))
    np.testing.assert_allclose([s[0], s[-1]], [bound.min(), bound.max()], atol=1e-14)


def test_scores_are_continuous():
    """The largest step between 10 000 points is not above the largest slope times their distance."""
    knots = np.sort(X[:, 0])
    x = np.linspace(knots[0] - 1, knots[-1] + 1, 10_001)
    slope = np.max(np.diff(scores(knots, knots)) / np.diff(knots))
    assert np.max(np.diff(scores(knots, x))) <= slope * (x[1] - x[0]) * (1 + 1e-9)


# ---------------------------------------------------------------- tables of new rows


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_columns_of_a_table_are_found_by_name(tmp_path, options):
    scatter = Scatter.from_data(pd.DataFrame(X, columns=NAMES), **options)
    expected = scatter.working(X)
    mixed = pd.DataFrame(X, columns=NAMES)[["dose", "age", "height", "weight"]]
    mixed.to_csv(tmp_path / "new.csv", index=False)
    for table in (mixed, pl.DataFrame(mixed.to_dict("list")), X.tolist(), X.astype(object)):
        np.testing.assert_array_equal(scatter.working(table), expected)
    for path in (tmp_path / "new.csv", str(tmp_path / "new.csv")):
        np.testing.assert_allclose(scatter.working(path), expected, rtol=1e-12)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_reorder_keeps_the_transform(options):
    scatter = Scatter.from_data(TIED, names=NAMES, **options)
    order = [2, 0, 3, 1]
    np.testing.assert_array_equal(scatter.reorder(order).working(TIED[:, order]), scatter.working(TIED)[:, order])
    frame = pd.DataFrame(TIED, columns=NAMES)
    np.testing.assert_array_equal(scatter.reorder(order).working(frame), scatter.working(frame)[:, order])


FRAME = pd.DataFrame(X, columns=NAMES)
BAD = {
    "too few": (X[:, :3], ValueError, "X has 3 features, but Scatter is expecting 4 features as input"),
    "too many": (np.hstack([X, X]), ValueError, "X has 8 features, but Scatter is expecting 4 features as input"),
    "absent": (FRAME.drop(columns="dose"), ValueError, "X has no column 'dose': name the columns as before"),
    "extra": (FRAME.assign(id=1.0), ValueError, "X has a column 'id' that was not there before"),
    "renamed": (FRAME.rename(columns={"age": "years"}), ValueError, "X has no column 'age'.*pass an array"),
    "twice": (FRAME[["age", "age", "dose", "height"]], ValueError, "these repeat: 'age'"),
    "NaN": (HOLES, ValueError, r"column '\w+', row \d+ is missing \(NaN\): new rows must be complete"),
    "NaN by name": (
        FRAME.assign(age=np.nan)[NAMES[::-1]],
        ValueError,
        r"column 'age', row 0 is missing \(NaN\)",
    ),
    "inf": (np.where(X == X[3, 1], np.inf, X), ValueError, "column 'weight', row 3 is inf: .*finite"),
    "text": (FRAME.assign(age="old"), ValueError, "column 'age', row 0: could not convert"),
    "1-D": (X[0], ValueError, "Expected 2D array"),
    "None": (None, TypeError, "not NoneType"),
}


@pytest.mark.parametrize(("table", "error", "message"), BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("transform", [None, "nonparanormal"])
def test_bad_rows_are_named(table, error, message, transform):
    scatter = Scatter.from_data(FRAME, transform=transform)
    with pytest.raises(error, match=message):
        scatter.working(table)


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        (np.zeros(3), r"one column for each of the 2 names, got \(3,\)"),
        (np.zeros((3, 3)), r"got \(3, 3\)"),
        (np.zeros((0, 2)), "column 'a' must have two different observed values"),
        ([[1.0, 2.0], [1.0, 3.0]], "column 'a' must have two different observed values"),
        ([[1.0, np.nan], [2.0, np.nan]], "column 'b' must have two different observed values"),
        ([[1.0, 3.0], [2.0, 2.0]], "column 'b' must be finite and sorted"),
        ([[1.0, 3.0], [2.0, np.inf]], "column 'b' must be finite and sorted"),
        ([[1.0, np.nan], [2.0, 2.0], [3.0, 4.0]], "column 'b' must be finite and sorted, with NaN at the end"),
    ],
)
def test_the_constructor_checks_observed_values(observed, message):
    with pytest.raises(ValueError, match=message):
        Scatter(np.eye(2), 3, np.zeros(2), np.ones(2), ("a", "b"), observed)


# ---------------------------------------------------------------- storage


SCATTERS = {
    "plain": Scatter.from_data(X),
    "names": Scatter.from_data(X, names=["β", "a,b", "", "\n"]),
    "scores": Scatter.from_data(TIED, transform="nonparanormal"),
    "incomplete": Scatter.from_data(HOLES, transform="nonparanormal", missing="em"),
    "known mean": Scatter.from_data(X, mean="known"),
    "covariance": Scatter.from_covariance(np.cov(X.T), 30.5, standardize=False),
}


@pytest.mark.parametrize("scatter", SCATTERS.values(), ids=SCATTERS.keys())
def test_storage(tmp_path, scatter):
    header, arrays = scatter.to_arrays()
    assert json.loads(json.dumps(header)) == header
    archive.write(tmp_path / "scatter", header, arrays)
    found = Scatter.from_arrays(*archive.read(tmp_path / "scatter"))
    for name in ("n", "n_rows", "names", "transform"):
        assert getattr(found, name) == getattr(scatter, name)
    assert type(found.n) is type(scatter.n)
    for field, array in arrays.items():
        np.testing.assert_array_equal(getattr(found, field), array)
    np.testing.assert_array_equal(found.working(X), scatter.working(X))


BAD_STORAGE = {
    "no header": (None, {}, "must have n, names and transform"),
    "no names": ({"names": ...}, {}, "must have n, names and transform"),
    "names, text": ({"names": "abcd"}, {}, "must be a list of strings"),
    "names, numbers": ({"names": [1, 2, 3, 4]}, {}, "must be a list of strings"),
    "names, too few": ({"names": ["a"]}, {}, "1 names were given for 4 columns"),
    "names, twice": ({"names": ["a", "b", "c", "a"]}, {}, "these repeat: 'a'"),
    "n": ({"n": 0}, {}, "positive number"),
    "n, boolean": ({"n": True}, {}, "positive number"),
    "n, text": ({"n": "30"}, {}, "n, the degrees of freedom, cannot be 30"),
    "n, huge": ({"n": 10**400}, {}, "n, the degrees of freedom, cannot be 1000"),
    "transform": ({"transform": "log"}, {}, "unknown transform 'log'.*newer version"),
    "transform, list": ({"transform": [1]}, {}, "unknown transform"),
    "no transform": ({"transform": None}, {}, "has the arrays matrix, mean, scale, not"),
    "no observed": ({}, {"observed": ...}, "has the arrays matrix, mean, observed, scale, not matrix, mean, scale"),
    "more": ({}, {"more": np.zeros(2)}, "not matrix, mean, more, observed"),
    "matrix": ({}, {"matrix": -np.eye(4)}, "is no variance"),
    "matrix, 3-D": ({}, {"matrix": np.ones((4, 4, 4))}, "must be square"),
    "matrix, NaN": ({}, {"matrix": np.full((4, 4), np.nan)}, "is not finite"),
    "scale": ({}, {"scale": np.zeros(4)}, "scale must be positive"),
    "mean": ({}, {"mean": np.zeros(())}, "mean must hold one finite number"),
    "observed": ({}, {"observed": X}, "must be finite and sorted"),
}


@pytest.mark.parametrize(("header", "arrays", "message"), BAD_STORAGE.values(), ids=BAD_STORAGE.keys())
def test_bad_storage_is_named(header, arrays, message):
    good_header, good_arrays = SCATTERS["scores"].to_arrays()
    if header is not None:
        header = {key: value for key, value in (good_header | header).items() if value is not ...}
    arrays = {name: array for name, array in (good_arrays | arrays).items() if array is not ...}
    with pytest.raises(ValueError, match=message):
        Scatter.from_arrays(header, arrays)
