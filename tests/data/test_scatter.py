"""Scatter: its statistics, and the tables and files that it accepts."""

import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

from ggmflow.data import scatter as data
from ggmflow.data.missing import ExpectedScatter, expected_scatter
from ggmflow.data.scatter import Scatter
from tests.support.scatters import NAMED, SMALL, WIDE, X, assert_same

# ---------------------------------------------------------------- statistics


@pytest.mark.parametrize("standardize", [True, False])
def test_scatter_of_complete_data(standardize):
    scatter = Scatter.from_data(X, standardize=standardize)
    cov = np.corrcoef(X.T) if standardize else np.cov(X.T, ddof=0)
    np.testing.assert_allclose(scatter.matrix, 30 * cov, rtol=1e-12)
    np.testing.assert_allclose(scatter.emp_cov, 30 / 29 * cov, rtol=1e-12)
    np.testing.assert_allclose(scatter.mean, X.mean(axis=0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(scatter.scale, X.std(axis=0, ddof=0) if standardize else 1.0, rtol=1e-12)
    assert (scatter.n, scatter.n_rows, scatter.n_features) == (29, 30, 4)
    assert scatter.names == ("x0", "x1", "x2", "x3")


@pytest.mark.parametrize("missing", ["error", "em"])
def test_an_estimated_mean_takes_one_degree_of_freedom_and_changes_nothing_else(missing):
    table = X.copy()
    table[3, 0] = X[3, 0] if missing == "error" else np.nan
    estimated, known = (Scatter.from_data(table, mean=mean, missing=missing) for mean in ("estimated", "known"))
    assert (estimated.n, estimated.n_rows, estimated.mean_variance) == (29, 30, 1 / 30)
    assert (known.n, known.n_rows, known.mean_variance) == (30, 30, 0)
    for name in ("matrix", "mean", "scale"):
        np.testing.assert_array_equal(getattr(estimated, name), getattr(known, name))
    assert estimated.reorder([3, 2, 1, 0]).n_rows == 30


def test_the_covariance_of_an_estimated_mean_is_unbiased():
    np.testing.assert_allclose(Scatter.from_data(X, standardize=False).emp_cov, np.cov(X.T), rtol=1e-12)


def test_mean_and_scale_define_the_working_scale():
    scatter = Scatter.from_data(X)
    working = (X - scatter.mean) / scatter.scale
    np.testing.assert_allclose(working.T @ working, scatter.matrix, rtol=1e-12, atol=1e-12)


def test_arrays_are_private_and_read_only():
    matrix = np.eye(2)
    scatter = Scatter(matrix, 3, np.zeros(2), np.ones(2), ("a", "b"))
    matrix[0, 0] = 7
    assert scatter.matrix[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        scatter.matrix[0, 0] = 7
    assert scatter != Scatter(np.eye(2), 3, np.zeros(2), np.ones(2), ("a", "b"))  # identity, not array, equality


def test_fewer_rows_than_columns_and_collinear_columns_are_legal():
    assert np.linalg.matrix_rank(Scatter.from_data(WIDE).matrix) == 4
    doubled = np.column_stack([X, 2 * X[:, 0] - X[:, 1], X[:, 0]])
    scatter = Scatter.from_data(doubled)
    np.testing.assert_allclose(scatter.matrix[0, 5], 30, rtol=1e-12)


@pytest.mark.parametrize("exponent", [-200, -12, 12, 200])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_extreme_scales(exponent, offset):
    factor = 10.0**exponent
    base = X + offset
    scatter = Scatter.from_data(base * [factor, 1, 1, 1])
    np.testing.assert_allclose(scatter.matrix, Scatter.from_data(base).matrix, rtol=1e-9)
    np.testing.assert_allclose(scatter.scale[0], base[:, 0].std() * factor, rtol=1e-9)
    np.testing.assert_allclose(scatter.mean[0], base[:, 0].mean() * factor, rtol=1e-9)


def test_a_mean_far_from_zero_costs_no_accuracy():
    exact = np.array([[0.0, 1.0], [1.0, 0.0], [3.0, 5.0]])
    shifted = exact + np.array([2.0**50, 0.0])  # exact, but the mean 2⁵⁰ + 4/3 is rounded to a multiple of 1/4
    np.testing.assert_allclose(Scatter.from_data(shifted).scale, exact.std(axis=0), rtol=1e-14)
    np.testing.assert_allclose(Scatter.from_data(shifted).matrix, Scatter.from_data(exact).matrix, rtol=1e-14)


@pytest.mark.parametrize("convert", [np.float16, np.float32, np.int8, np.int64, np.uint16, np.bool_, object])
def test_number_types(convert):
    table = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0], [0, 0, 1]])
    assert_same(Scatter.from_data(table.astype(convert)), Scatter.from_data(table.astype(float)))


def test_float16_is_widened_before_arithmetic():
    table = (1000 * X[:, :2]).astype(np.float16).clip(-6e4, 6e4)
    assert_same(Scatter.from_data(table), Scatter.from_data(table.astype(np.float64)))


# ---------------------------------------------------------------- tables and files


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1, 2, 4], dtype="Int64"),
        pd.Series([1, 2, 4], dtype="Float32"),
        pd.Series([True, False, True], dtype="boolean"),
        pd.Series([1, 2, 4], dtype="category"),
        pd.Series([Decimal("1"), 2, 4.5], dtype=object),
        pd.Series(["1", " 2 ", "4e0"]),
        pl.Series([1, 2, 4], dtype=pl.UInt8),
        pl.Series([True, False, True]),
        pl.Series([Decimal("1.5"), Decimal("2"), Decimal("4")]),
        pl.Series([1.0, 2.0, 4.0], dtype=pl.Float32),
    ],
    ids=lambda c: f"{type(c).__module__.split('.')[0]}-{c.dtype}",
)
def test_frames_keep_names_and_accept_numbers_of_all_types(column):
    frame = (pl if isinstance(column, pl.Series) else pd).DataFrame({"first": column, "second": [3.0, 1.0, 7.0]})
    expected = np.column_stack([[float(value) for value in column], [3.0, 1.0, 7.0]])
    assert_same(Scatter.from_data(frame), Scatter.from_data(expected, names=["first", "second"]))


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": pd.array([1, None, 4, 2], dtype="Int64"), "b": [3.0, 1.0, 7.0, 6.0]}),
        pd.DataFrame({"a": [1, None, 4, 2], "b": [3.0, 1.0, 7.0, 6.0]}, dtype=object),
        pd.DataFrame({"a": [1, pd.NA, 4, 2], "b": [3.0, 1.0, 7.0, 6.0]}),
        pl.DataFrame({"a": [1, None, 4, 2], "b": [3.0, 1.0, 7.0, 6.0]}),
        np.ma.array([[1, 3], [0, 1], [4, 7], [2, 6]], mask=[[0, 0], [1, 0], [0, 0], [0, 0]]),
    ],
    ids=["Int64", "object", "NA", "polars", "masked"],
)
def test_every_kind_of_missing_value_is_found(frame):
    with pytest.raises(ValueError, match=r"column '(a|x0)', row 1 is missing \(NaN; 1 in all\)"):
        Scatter.from_data(frame)
    dropped = Scatter.from_data(frame, missing="drop", names=["a", "b"])
    assert_same(dropped, Scatter.from_data([[1, 3], [4, 7], [2, 6]], names=["a", "b"]))


def test_names_can_be_replaced():
    frame = pd.DataFrame(SMALL, columns=["a", "b"])
    assert Scatter.from_data(frame, names=("u", "v")).names == ("u", "v")
    assert Scatter.from_data(pd.DataFrame(SMALL)).names == ("0", "1")


CSV = {
    "plain": "a,b\n1,2\n3,5\n2,1\n",
    "no final newline": "a,b\n1,2\n3,5\n2,1",
    "BOM": "\ufeffa,b\n1,2\n3,5\n2,1\n",
    "CRLF": "a,b\r\n1,2\r\n3,5\r\n2,1\r\n",
    "CR": "a,b\r1,2\r3,5\r2,1\r",
    "quoted": '"a","b"\n"1","2"\n3,5\n2,"1"\n',
    "blanks": ' a , "b" \n 1, 2 \n3 ,5\n2,\t1\n',
    "blank lines": "\na,b\n\n1,2\n3,5\n  \n2,1\n\n",
    "exponents": "a,b\n1e0,+2\n3.,.5e1\n2,1\n",
    "booleans": "a,b\nTrue,2\n3,5\n2,TRUE\n",
}


@pytest.mark.parametrize("text", CSV.values(), ids=CSV.keys())
@pytest.mark.parametrize("as_path", [str, lambda path: path])
def test_csv(tmp_path, text, as_path):
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode())
    assert_same(Scatter.from_data(as_path(path)), Scatter.from_data(SMALL, names=["a", "b"]))


def test_csv_names_may_hold_commas_quotes_and_unicode(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('"IL-6, serum","β ""raw"""\n1,2\n3,5\n2,1\n', encoding="utf-8")
    assert Scatter.from_data(path).names == ("IL-6, serum", 'β "raw"')


def test_csv_written_by_pandas_without_names(tmp_path):
    pd.DataFrame(X).to_csv(tmp_path / "table.csv", index=False)
    scatter = Scatter.from_data(tmp_path / "table.csv")
    assert scatter.names == ("0", "1", "2", "3")
    pd.DataFrame(X, columns=[1, 2, 3, 4]).to_csv(tmp_path / "from_one.csv", index=False)
    assert Scatter.from_data(tmp_path / "from_one.csv").names == ("1", "2", "3", "4")
    np.testing.assert_array_equal(scatter.matrix, Scatter.from_data(X).matrix)


@pytest.mark.parametrize("text", ["", "NA", "NaN", "nan", "N/A", "null", "None", " "])
def test_csv_missing_values(tmp_path, text):
    (tmp_path / "table.csv").write_text(f"a,b\n1,2\n3,{text}\n3,5\n2,1\n")
    with pytest.raises(ValueError, match="column 'b', line 3 is missing"):
        Scatter.from_data(tmp_path / "table.csv")
    dropped = Scatter.from_data(tmp_path / "table.csv", missing="drop")
    assert_same(dropped, Scatter.from_data(SMALL, names=["a", "b"]))


# ---------------------------------------------------------------- nonparanormal


def test_normal_scores_by_hand():
    table = np.array([[10.0, 1], [30.0, 1], [20.0, 2], [1e9, 3]])
    scatter = Scatter.from_data(table, transform="nonparanormal", standardize=False)
    scores = norm.ppf(np.array([[1, 1.5], [3, 1.5], [2, 3], [4, 4]]) / 5)  # tied values share ranks 1 and 2
    np.testing.assert_allclose(scatter.matrix, 4 * np.cov(scores.T, ddof=0), rtol=1e-12)
    np.testing.assert_allclose(scatter.mean, scores.mean(axis=0), atol=1e-15)


def test_normal_scores_are_invariant_under_monotone_transforms():
    stretched = Scatter.from_data(np.sinh(X / X.std(axis=0)), transform="nonparanormal")
    assert_same(stretched, Scatter.from_data(X, transform="nonparanormal"))


def test_normal_scores_leave_missing_values_in_place():
    table = X.copy()
    table[[3, 7], [0, 2]] = np.nan
    dropped = Scatter.from_data(table, transform="nonparanormal", missing="drop")
    complete = np.delete(X, [3, 7], axis=0)
    assert_same(dropped, Scatter.from_data(complete, transform="nonparanormal"))
    # Column 1 is complete, so its scores are those of the complete data; column 0 ranks 29 values.
    em = Scatter.from_data(table, transform="nonparanormal", missing="em")
    full = Scatter.from_data(X, transform="nonparanormal")
    np.testing.assert_allclose([em.mean[1], em.scale[1]], [full.mean[1], full.scale[1]], rtol=1e-12, atol=1e-12)
    assert em.n_rows == 30
    assert np.abs(em.emp_cov - full.emp_cov).max() < 0.1


# ---------------------------------------------------------------- missing values


def test_without_missing_values_em_and_drop_change_nothing():
    assert_same(Scatter.from_data(X, missing="em"), Scatter.from_data(X))
    assert_same(Scatter.from_data(X, missing="drop"), Scatter.from_data(X))


@pytest.mark.parametrize("standardize", [True, False])
def test_em_in_both_scales(standardize):
    table = X.copy()
    table[::5, 1] = np.nan
    scatter = Scatter.from_data(table, missing="em", standardize=standardize)
    unit = Scatter.from_data(table, missing="em")
    np.testing.assert_allclose(np.diag(unit.matrix), 30, rtol=1e-12)
    restored = scatter.emp_cov * np.outer(scatter.scale, scatter.scale)
    np.testing.assert_allclose(restored, unit.emp_cov * np.outer(unit.scale, unit.scale), rtol=1e-10)
    np.testing.assert_allclose(scatter.mean, unit.mean)
    result = expected_scatter(table)
    np.testing.assert_allclose(scatter.mean, result.mean, rtol=1e-10)
    np.testing.assert_allclose(restored, result.matrix / 29, rtol=1e-10)
    # Column 0 is complete, so its moments are those of its values.
    np.testing.assert_allclose(restored[0, 0], X[:, 0].var(ddof=1), rtol=1e-12)


def test_em_is_equivariant_under_extreme_scales():
    table = X.copy()
    table[::4, 0] = np.nan
    a, b = (Scatter.from_data(table * [f, 1, 1, 1], missing="em") for f in (1.0, 1e-12))
    np.testing.assert_allclose(a.matrix, b.matrix, rtol=1e-9)
    np.testing.assert_allclose(a.scale[0] * 1e-12, b.scale[0], rtol=1e-9)


def test_em_leaves_out_empty_rows_with_a_warning():
    table = np.vstack([X, np.full((2, 4), np.nan)])
    with pytest.warns(UserWarning, match="2 of 32 rows hold no value and are left out; the first is row 30"):
        scatter = Scatter.from_data(table, missing="em")
    assert_same(scatter, Scatter.from_data(X))


def test_em_warns_about_columns_never_observed_together():
    table = X.copy()
    table[:15, 0] = table[15:, 1] = np.nan
    with pytest.warns(UserWarning, match="'x0' and 'x1' are never observed together: .*leave one out"):
        Scatter.from_data(table, missing="em")


def test_em_that_does_not_converge_warns(monkeypatch):
    stopped = ExpectedScatter(np.zeros(2), np.eye(2), np.zeros(1), False, "EM for missing values stopped")
    monkeypatch.setattr(data, "expected_scatter", lambda working: stopped)
    with pytest.warns(ConvergenceWarning, match="stopped"):
        Scatter.from_data([[1, 2], [3, np.nan], [2, 1]], missing="em")


# ---------------------------------------------------------------- covariance input


def test_from_covariance_agrees_with_from_data():
    cov = np.cov(X.T, ddof=0)
    ours, theirs = Scatter.from_covariance(cov, 30), Scatter.from_data(X)
    np.testing.assert_allclose(ours.matrix, theirs.matrix, rtol=1e-12)
    np.testing.assert_allclose(ours.scale, theirs.scale, rtol=1e-12)
    assert (ours.n, ours.n_rows) == (theirs.n, theirs.n_rows) == (29, 30)
    raw = Scatter.from_covariance(cov, 30, mean="known", standardize=False)
    np.testing.assert_allclose(raw.emp_cov, cov, rtol=1e-12)
    np.testing.assert_array_equal(raw.scale, 1.0)
    np.testing.assert_array_equal(raw.mean, 0.0)


def test_from_covariance_accepts_frames_singular_matrices_and_float32():
    frame = pd.DataFrame(X, columns=list("abcd"))
    assert Scatter.from_covariance(frame.cov(), 30.5).names == tuple("abcd")
    scatter = Scatter.from_covariance(np.cov(WIDE.T, ddof=0).astype(np.float32), 5)
    np.testing.assert_array_equal(scatter.matrix, scatter.matrix.T)
    tiny = Scatter.from_covariance(np.diag([1e-24, 1e24]), 5)
    np.testing.assert_allclose(tiny.matrix, 5 * np.eye(2))


# ---------------------------------------------------------------- queries


@pytest.mark.parametrize(
    ("query", "positions"),
    [
        ("dose", [3]),
        (2, [2]),
        (["height", "age"], [2, 0]),
        (("height", 0), [2, 0]),
        (np.array([3, 1]), [3, 1]),
        (np.array(["weight"]), [1]),
        (pd.Index(["dose", "age"]), [3, 0]),
        (range(2), [0, 1]),
    ],
)
def test_index(query, positions):
    result = NAMED.index(query)
    assert result.tolist() == positions
    assert np.issubdtype(result.dtype, np.integer)


def test_reorder():
    order = ["dose", "age", "height", "weight"]
    scatter = NAMED.reorder(order)
    assert_same(scatter, Scatter.from_data(X[:, [3, 0, 2, 1]], names=order))
    with pytest.raises(ValueError, match="each of the 4 columns once, got 2"):
        NAMED.reorder([0, 1])


ROW_LABELS = {
    "pandas": ",a,b\n0,1.5,2\n1,3,4\n",
    "R, write.csv": '"","a","b"\n"p1",1.5,2\n"p2",3,4\n',
    "R, write.table": '"a","b"\n"1",1.5,2\n"2",3,4\n',
    "R, with names": "a,b\np1,1.5,2\np2,3,4\n",
}


@pytest.mark.parametrize("text", ROW_LABELS.values(), ids=ROW_LABELS.keys())
def test_labels_of_rows_are_left_out(tmp_path, text):
    (tmp_path / "table.csv").write_text(text)
    with pytest.warns(UserWarning, match="labels of the rows") as caught:
        scatter = Scatter.from_data(tmp_path / "table.csv", standardize=False)
    assert caught[0].filename == __file__
    assert scatter.names == ("a", "b")
    np.testing.assert_allclose(scatter.mean, [2.25, 3.0])


@pytest.mark.parametrize("kind", ["file", "pandas", "polars"])
def test_columns_can_be_left_out(tmp_path, kind):
    frame = pd.DataFrame({"id": ["p1", "p2"], "a": [1.5, 3.0], "date": ["x", "y"], "b": [2.0, 4.0]})
    frame.to_csv(tmp_path / "table.csv", index=False)
    X = {"file": tmp_path / "table.csv", "pandas": frame, "polars": pl.DataFrame(frame.to_dict("list"))}[kind]
    scatter = Scatter.from_data(X, standardize=False, drop=["date", "id"])
    assert scatter.names == ("a", "b")
    np.testing.assert_allclose(scatter.mean, [2.25, 3.0])
    with pytest.raises(ValueError, match="no column is named 'dat': did you mean 'date'"):
        Scatter.from_data(X, drop=["dat"])
    with pytest.raises(ValueError, match="no column is named 'zzz': the columns are 'id'"):
        Scatter.from_data(X, drop="zzz")
    with pytest.raises(ValueError, match=r"column 'id'.*drop=\['id', 'date'\]"):
        Scatter.from_data(X)


DIALECTS = {
    "semicolons": ("a;b\n1.5;2\n3;4\n", {"delimiter": ";"}),
    "decimal commas": ("a;b\n1,5;2\n3;4,0\n", {"delimiter": ";", "decimal": ","}),
    "tabs": ("a\tb\n1.5\t2\n3\t4\n", {"delimiter": "\t"}),
    "blanks": ("a b\n1.5 2\n3 4\n", {"delimiter": " "}),
    "quoted": ('"a";"b"\n"1,5";"2"\n"3";"4"\n', {"delimiter": ";", "decimal": ","}),
}


@pytest.mark.parametrize(("text", "options"), DIALECTS.values(), ids=DIALECTS.keys())
def test_other_delimiters_and_decimal_signs(tmp_path, text, options):
    (tmp_path / "table.csv").write_text(text)
    scatter = Scatter.from_data(tmp_path / "table.csv", standardize=False, **options)
    assert scatter.names == ("a", "b")
    np.testing.assert_allclose(scatter.mean, [2.25, 3.0])


def test_from_covariance_names():
    with pytest.raises(ValueError, match="3 names were given for 2 columns"):
        Scatter.from_covariance(np.eye(2), 5, names=["a", "b", "c"])


def test_polars_is_not_imported():
    code = "import sys; import ggmflow.data.scatter; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
