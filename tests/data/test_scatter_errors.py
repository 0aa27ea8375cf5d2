"""Messages about tables, files and options that `Scatter` cannot use."""

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from ggmflow.data.scatter import Scatter
from ggmflow.errors.argument import ArgumentError
from tests.support.scatters import NAMED, SMALL, X, with_entry


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        (["age", "wieght"], ValueError, "no column is named 'wieght': did you mean 'weight'"),
        (["Age"], ValueError, "no column is named 'Age': did you mean 'age'"),
        (["zzz"], ValueError, "no column is named 'zzz': the columns are 'age'"),
        ("qqq", ValueError, "no column is named 'qqq'.*'age'"),
        (["age", "age"], ValueError, "twice: 'age'"),
        (["weight", 1], ValueError, "twice: 'weight'"),
        ([], ValueError, "empty"),
        (4, ValueError, "position 4 is outside 0 … 3"),
        ([-1], ValueError, "position -1 is outside"),
        ([1.0], ValueError, "not 1.0"),
        (1.5, ValueError, "not 1.5"),
        ([True, False, False, True], ValueError, "flatnonzero"),
        (np.array([True, False]), ValueError, "flatnonzero"),
        ([["age"]], ValueError, "names and integer positions"),
        (None, TypeError, "not NoneType"),
        ({"age": 1}, TypeError, "not dict"),
    ],
)
def test_bad_queries_are_named(query, error, message):
    with pytest.raises(error, match=message):
        NAMED.index(query)


FRAME = pd.DataFrame({"a": [1.0, 2, 3], "b": [2.0, 1, 5]})


BAD_DATA = {
    "None": (None, TypeError, "not NoneType"),
    "dict": ({"a": [1, 2]}, TypeError, "not dict"),
    "NaN": (with_entry(np.nan), ValueError, r"column 'x1', row 1 is missing \(NaN; 1 in all\).*missing='em'"),
    "inf": (with_entry(-np.inf), ValueError, "column 'x1', row 1 is -inf"),
    "constant": ([[1, 7], [2, 7], [3, 7]], ValueError, r"column 'x1' is constant \(always 7\)"),
    "constant zero": ([[1, 0], [2, 0], [3, 0]], ValueError, "column 'x1' is constant"),
    "constant up to rounding": ([[1, 0.3], [2, 0.1 + 0.2], [3, 0.3]], ValueError, "column 'x1' is constant"),
    "constant and huge": ([[1, 1e12], [2, 1e12], [3, 1e12]], ValueError, "column 'x1' is constant"),
    "text": (
        FRAME.assign(b=["u", "v", "w"]),
        ValueError,
        "column 'b', row 0: could not convert.*'u'.*encode",
    ),
    "some text": (with_entry("low", object), ValueError, "column 'x1', row 1: could not convert"),
    "object": (
        with_entry({}, object),
        TypeError,
        "column 'x1', row 1: .*argument must be a string or a real number",
    ),
    "huge integer": (with_entry(10**400, object), ValueError, "column 'x1', row 1: .*too large"),
    "category": (FRAME.assign(b=pd.Categorical(["u", "v", "w"])), ValueError, "column 'b', row 0: could not"),
    "date": (FRAME.assign(b=pd.date_range("2020", periods=3)), ValueError, "column 'b' holds dates"),
    "date array": (np.zeros((3, 2), dtype="datetime64[ns]"), ValueError, "columns 'x0' and 'x1' hold dates"),
    "polars text": (pl.DataFrame({"a": [1, 2], "b": ["u", "v"]}), ValueError, "column 'b', row 0: could not"),
    "complex": (SMALL + 1j, ValueError, "Complex data not supported: pass its real part"),
    "complex column": (FRAME.assign(b=[1, 2, 1j]), ValueError, "Complex data not supported: column 'b'"),
    "complex object": (with_entry(np.complex64(1j), object), ValueError, "Complex data not supported.*row 1"),
    "duplicate names": (pd.DataFrame(SMALL, columns=["a", "a"]), ValueError, "these repeat: 'a'"),
    "one row": ([[1.0, 2.0]], ValueError, r"Found 1 sample\(s\) \(shape=\(1, 2\)\).*minimum of 2"),
    "no rows": (np.empty((0, 3)), ValueError, r"Found 0 sample\(s\)"),
    "one column": ([[1.0], [2.0]], ValueError, r"Found 1 feature\(s\) \(shape=\(2, 1\)\).*minimum of 2"),
    "no columns": (np.empty((12, 0)), ValueError, r"0 feature\(s\) \(shape=\(\d*, 0\)\) while a minimum of"),
    "0-D": (3.0, ValueError, "Expected 2D array, got float"),
    "polars, lazy": (pl.LazyFrame({"a": [1, 2], "b": [3, 5]}), ValueError, "got LazyFrame"),
    "1-D": ([1.0, 2.0, 3.0], ValueError, r"got 1D array of shape \(3,\)\. Reshape your data"),
    "series": (FRAME["a"], ValueError, "got 1D"),
    "3-D": (np.zeros((2, 2, 2)), ValueError, "got 3D"),
    "ragged": ([[1, 2], [3]], ValueError, "rows of X differ in length"),
    "a random key": (jax.random.key(0), TypeError, "X must be a table of numbers: .*PRNGKey"),
    "sparse": (sparse.csr_array(SMALL), ValueError, r"sparse matrix.*toarray\(\)"),
}


@pytest.mark.parametrize(("table", "error", "message"), BAD_DATA.values(), ids=BAD_DATA.keys())
def test_bad_data_is_named(table, error, message):
    with pytest.raises(error, match=message):
        Scatter.from_data(table)


NAN = np.nan


BAD_OPTIONS = {
    "transform": ({"transform": "log"}, SMALL, "transform must be None or 'nonparanormal', got 'log'"),
    "missing": ({"missing": "impute"}, SMALL, "missing must be 'error', 'drop' or 'em', got 'impute'"),
    "too few names": ({"names": ["a"]}, SMALL, "1 names were given for 2 columns"),
    "one string": ({"names": "ab"}, SMALL, "must be a sequence of column names, not one string, got 'ab'"),
    "same names": ({"names": ["a", "a"]}, SMALL, "these repeat: 'a'"),
    "drop leaves one": (
        {"missing": "drop"},
        [[1, NAN], [NAN, 2], [1, 2]],
        "leaves 1 of 3 rows.*missing='em'",
    ),
    "empty column": ({"missing": "em"}, [[1, NAN], [2, NAN]], "no value was observed in column 'x1'"),
    "empty column, drop": ({"missing": "drop"}, [[1, NAN], [2, NAN]], "no value was observed in column 'x1'"),
    "inf stays an error": ({"missing": "em"}, [[1, NAN], [2, np.inf]], "column 'x1', row 1 is inf"),
    "one observed": ({"missing": "em"}, [[1, NAN], [2, 4], [3, NAN]], r"'x1' is constant \(always 4\)"),
    "constant after drop": ({"missing": "drop"}, [[1, 2], [NAN, 3], [2, 2]], "column 'x1' is constant"),
    "standardize": ({"standardize": "no"}, SMALL, "standardize must be True or False, got 'no'"),
    "missing as a table": ({"missing": FRAME}, SMALL, "missing must be"),
    "transform as a table": ({"transform": FRAME}, SMALL, "transform must be"),
    "names as a number": ({"names": 5}, SMALL, "names must be a sequence of column names, got 5"),
    "names as a number in an array": ({"names": np.array(5)}, SMALL, "names must be a sequence of column names"),
    "drop as a number": ({"drop": 5}, SMALL, "drop must be a sequence of column names, got 5"),
    "delimiter as a number": ({"delimiter": 5}, SMALL, "delimiter must be one character.*got 5"),
    "decimal as a number": ({"decimal": 5}, SMALL, "decimal must be"),
    "overflow": ({"standardize": False}, SMALL * 1e200, r"entry \('x0', 'x0'\) = inf.*standardize"),
}


@pytest.mark.parametrize(("options", "table", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS.keys())
def test_bad_options_are_named(options, table, message):
    with pytest.raises(ValueError, match=message):
        Scatter.from_data(table, **options)


BAD_CSV = {
    "empty": (b"", "is empty: it needs a header"),
    "blank": (b"\n \n", "is empty: it needs a header"),
    "header only": (b"a,b\n", r"table\.csv' has a header but no rows: it needs at least 2 lines of numbers"),
    "one row": (b"a,b\n1,2\n", r"table\.csv' has 1 row below the header, but at least 2 are needed"),
    "short line": (b"a,b\n1,2\n3\n", "line 3 has 1 field, but the header has 2"),
    "semicolons, a comma in a name": (
        b"a;IL-6, serum\n1;2\n3;4\n",
        r"seems to be separated by semicolons, not commas: give delimiter=';' to Scatter.from_data",
    ),
    "long line": (b"a,b\n\n1,2,3\n4,5\n", "line 3 has 3 fields, but the header has 2"),
    "long lines": (b"a,b\n7,2,3\n8,5,6\n", "line 2 has 3 fields, but the header has 2"),
    "semicolons": (b"a;b\n1,5;2\n3;4\n", r"separated by semicolons, not commas: .*delimiter=';'.*--delimiter ';'"),
    "tabs": (b"a\tb\n1\t2\n3\t4\n", r"separated by tabs, not commas: .*delimiter='\\t'.*--delimiter 'tab'"),
    "one column": (b"a\n1\n2\n", r"table\.csv' has 1 column, 'a', but at least 2 are needed: is the delimiter"),
    "no header": (b"0.5,1\n2,3\n4,6\n", "line 1 holds numbers.*header with names is required"),
    "no header, integers": (b"0,2\n2,3\n4,6\n", "line 1 holds numbers"),
    "unnamed column": (b"a,,b\n0,1,2\n1,3,5\n", "column 2 has no name: .*extra comma"),
    "two unnamed columns": (b",,b\n0,1,2\n1,3,5\n", "column 1 has no name"),
    "workbook": (b"PK\x03\x04\xff\xfe\x00", "save it as CSV first"),
    "same names": (b"a, a\n1,2\n3,5\n", "these repeat: 'a'"),
    "text": (b"a,b\n1,2\n3,low\n", "column 'b', line 3: could not convert string to float: 'low'"),
    "inf": (b"a,b\n1,2\n3,-Inf\n", "column 'b', line 3 is -inf"),
    "a label that Python takes for a number": (b"a,b\n1,2\n3,1_2\n", "column 'b', line 3: could not convert.*'1_2'"),
    "not UTF-8": ("a,b\n1,2\n3,5\n".encode("utf-16"), "not a CSV file in UTF-8: it seems to be in UTF-16"),
    "binary": (b"\x89\xff\xfe\x00", "not a CSV file in UTF-8: .*decode"),
    "oversized field": (b"a,b\n" + b"1" * 200_000 + b",2\n", "not a CSV file in UTF-8: field larger"),
}


@pytest.mark.parametrize(("content", "message"), BAD_CSV.values(), ids=BAD_CSV.keys())
def test_bad_csv_is_named(tmp_path, content, message):
    (tmp_path / "table.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        Scatter.from_data(tmp_path / "table.csv")


BAD_DIALECTS = {
    "wrong delimiter": ("a,b\n1,2\n3,5\n", {"delimiter": ";"}, "separated by commas, not semicolons.*delimiter=','"),
    "decimal commas": ("a;b\n1,5;2\n3;4\n", {"delimiter": ";"}, r"column 'a', line 2: .*'1,5'; .*decimal=','"),
    "points": ("a;b\n1,5;2\n1.234;4\n", {"delimiter": ";", "decimal": ","}, r"line 3: '1\.234' has a point"),
    "two characters": ("a", {"delimiter": "::"}, "one character between fields"),
    "no decimal sign": ("a", {"decimal": "x"}, r"decimal must be '\.' or ','"),
    "same": ("a", {"decimal": ","}, "both fields and decimals"),
}


@pytest.mark.parametrize(("text", "options", "message"), BAD_DIALECTS.values(), ids=BAD_DIALECTS.keys())
def test_wrong_delimiters_and_decimal_signs_are_named(tmp_path, text, options, message):
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        Scatter.from_data(tmp_path / "table.csv", **options)


def test_missing_file_and_directory(tmp_path):
    with pytest.raises(ValueError, match=r"'nowhere\.csv' does not exist"):
        Scatter.from_data("nowhere.csv")
    with pytest.raises(ValueError, match="is a directory"):
        Scatter.from_data(tmp_path)
    with pytest.raises(ValueError, match=r"'a,b\\n1,2.*…' cannot be the name of a file"):
        Scatter.from_data("a,b\n" + 1000 * "1,2\n")  # the text of a table instead of its path


ASYMMETRIC = [[1.0, 0.5], [0.2, 1.0]]
INDEFINITE = [[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]]


BAD_COVARIANCE = {
    "n one": (np.eye(2), 1, "n, the number of rows, must be more than 1 unless mean='known', got 1"),
    "n negative": (np.eye(2), -3, "mean='known', got -3"),
    "n NaN": (np.eye(2), np.nan, "mean='known', got nan"),
    "n infinite": (np.eye(2), np.inf, "mean='known', got inf"),
    "n boolean": (np.eye(2), True, "mean='known', got True"),
    "n text": (np.eye(2), "10", "mean='known', got '10'"),
    "n array": (np.eye(2), np.array([3]), "mean='known'"),
    "asymmetric": (
        ASYMMETRIC,
        5,
        r"not symmetric: entry \('x0', 'x1'\) = 0.5, but entry \('x1', 'x0'\) = 0.2",
    ),
    "indefinite": (INDEFINITE, 5, "not positive semi-definite: .*eigenvalue -0.8"),
    "correlation above one": ([[1, 2], [2, 1]], 5, "not positive semi-definite"),
    "not square": (np.ones((2, 3)), 5, r"must be square, got shape \(2, 3\)"),
    "zero variance": (np.diag([1.0, 0.0]), 5, r"entry \('x1', 'x1'\) = 0 is no variance"),
    "negative variance": (np.diag([1.0, -2.0]), 5, r"entry \('x1', 'x1'\) = -2 is no variance"),
    "NaN": ([[1, np.nan], [np.nan, 1]], 5, r"entry \('x0', 'x1'\) = nan of the matrix is not finite"),
    "1-D": ([1.0, 2.0], 5, "got 1D"),
}


@pytest.mark.parametrize(("cov", "n", "message"), BAD_COVARIANCE.values(), ids=BAD_COVARIANCE.keys())
def test_bad_covariance_is_named(cov, n, message):
    with pytest.raises(ValueError, match=message):
        Scatter.from_covariance(cov, n)


def test_with_a_known_mean_n_must_be_positive():
    assert Scatter.from_covariance(np.eye(2), 1, mean="known").n == 1
    with pytest.raises(ValueError, match="n, the number of rows, must be a positive number, got 0"):
        Scatter.from_covariance(np.eye(2), 0, mean="known")


@pytest.mark.parametrize("make", [Scatter.from_data, lambda X, mean: Scatter.from_covariance(np.eye(2), 5, mean=mean)])
@pytest.mark.parametrize("mean", ["zero", None, 0, ["known"]])
def test_unknown_treatments_of_the_mean(make, mean):
    with pytest.raises(ArgumentError, match="mean must be 'estimated' or 'known'"):
        make(np.random.default_rng(0).normal(size=(5, 2)), mean=mean)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"matrix": None}, "2 names were given for 1 columns"),
        ({"matrix": ASYMMETRIC}, "not symmetric"),
        ({"matrix": np.ones((2, 3))}, "must be square"),
        ({"n": 0}, "n, the degrees of freedom, must be a positive number"),
        ({"n_estimated": 2}, "n_estimated must be 0 or 1, got 2"),
        ({"n_estimated": 1.0}, "n_estimated must be 0 or 1, got 1.0"),
        ({"n_estimated": True}, "n_estimated must be 0 or 1, got True"),
        ({"mean": np.zeros(3)}, "mean must hold one finite number for each of the 2"),
        ({"scale": [1, np.nan]}, "scale must hold one finite number"),
        ({"scale": [1, 0]}, "scale must be positive"),
        ({"names": ("a",)}, "1 names were given for 2 columns"),
    ],
)
def test_the_constructor_checks_its_arguments(change, message):
    fields = {"matrix": np.eye(2), "n": 3, "mean": np.zeros(2), "scale": np.ones(2), "names": ("a", "b")}
    with pytest.raises(ValueError, match=message):
        Scatter(**(fields | change))


def test_a_number_that_is_the_name_of_another_column_raises():
    shifted = Scatter.from_data(pd.DataFrame(X, columns=[1, 2, 3, 4]))
    with pytest.raises(ValueError, match="1 may mean the column named '1' or position 1, which is column '2'"):
        shifted.index([1])
    assert shifted.index("1").tolist() == [0]
    assert shifted.reorder([1, 0, 2, 3]).names == ("2", "1", "3", "4")  # an order is one of positions
    assert shifted.index(0).tolist() == [0]  # no column has that name
    assert Scatter.from_data(pd.DataFrame(X, columns=[0, 1, 2, 3])).index([1, 3]).tolist() == [1, 3]
