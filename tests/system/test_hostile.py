"""Hostile input: a right answer or a clear error, never NaN, never a hang, never a traceback of the command line."""

import sys
import time

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ggmflow.data import scatter as data
from ggmflow.data import table
from ggmflow.data.scatter import Scatter
from ggmflow.model import conditions
from ggmflow.model.conditions import Ranges, find_ranges
from ggmflow.posterior.edge_rules import find_rule
from ggmflow.posterior.source import as_key
from ggmflow.train.settings import default_settings
from tests.support import hostile, hostile_files, hostile_questions, hostile_tables

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a case is stopped by an alarm, which POSIX has")
# The same examples in every run, and no timed assertions.
SAME = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
ANYTHING = st.one_of(
    *(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.complex_numbers(),
        st.text(max_size=5),
        st.binary(max_size=3),
    ),
    *(
        st.tuples(st.floats(), st.floats()),
        st.lists(st.floats(), max_size=3),
        st.dictionaries(st.text(max_size=2), st.floats()),
    ),
    *(
        st.decimals(),
        st.fractions(),
        st.dates(),
        hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(max_dims=2, max_side=3)),
    ),
)
OPTIONS = st.fixed_dictionaries(
    {
        "standardize": st.booleans(),
        "transform": st.sampled_from([None, "nonparanormal"]),
        "missing": st.sampled_from(["error", "drop", "em"]),
    }
)
TABLES = hnp.arrays(
    st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.uint8, np.bool_]),
    st.tuples(st.integers(0, 6), st.integers(0, 5)),
    fill=st.nothing(),
)

# Cases of a brief run, for kinds that need no training.
BRIEF = {
    "tables to sufficient statistics": 150,
    "parameters of a fit": 11,
    "files to ggmflow fit": 3,
    "options of the commands": 10,
    "damaged runs to the commands": 6,
}


def holds(attempt):
    """Whether something ends well or with an error of ours."""
    assert hostile.outcome(attempt) in (None, hostile.REFUSED)


# ---------------------------------------------------------------------------------------------------------- properties
@SAME
@given(TABLES, OPTIONS)
def test_any_table(values, options):
    holds(lambda: hostile.check_scatter(hostile_tables.Case(values, options, values.astype(float))))


@SAME
@given(ANYTHING)
def test_anything_as_a_table(anything):
    def read():
        scatter = Scatter.from_data(anything)
        return None if np.isfinite(scatter.matrix).all() else "not finite"

    holds(read)


@SAME
@given(st.lists(st.text(), min_size=2, max_size=6), st.integers(0, 1000))
def test_any_names(names, seed):
    """Names are kept as they are, found again, and follow their columns; those that repeat are refused."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(5, len(names)))
    if len(set(names)) < len(names):
        with pytest.raises(ValueError, match="these repeat"):
            Scatter.from_data(X, names=names)
        return
    order = rng.permutation(len(names))
    scatter = Scatter.from_data(pd.DataFrame(X, columns=names))
    assert scatter.names == tuple(names) and scatter.index(names).tolist() == list(range(len(names)))
    moved = scatter.reorder([names[k] for k in order])
    np.testing.assert_allclose(moved.matrix, Scatter.from_data(X[:, order]).matrix, atol=1e-10)
    header, arrays = scatter.to_arrays()
    assert Scatter.from_arrays(header, arrays).names == scatter.names


@SAME
@given(hnp.arrays(float, (6, 3), elements=st.integers(-1000, 1000)), st.data())
def test_units_and_their_zero_do_not_matter(values, drawn):
    """Columns scaled by 1e-12 to 1e12 and shifted have the same statistics in the working scale."""
    assume(np.ptp(values, axis=0).all())
    scale = 10.0 ** np.array(drawn.draw(st.lists(st.integers(-12, 12), min_size=3, max_size=3)))
    shift = np.array(drawn.draw(st.lists(st.integers(-1000, 1000), min_size=3, max_size=3)))
    here, there = Scatter.from_data(values), Scatter.from_data((values + shift) * scale)
    np.testing.assert_allclose(there.matrix, here.matrix, atol=1e-9)
    np.testing.assert_allclose(there.scale, here.scale * scale, rtol=1e-9)
    np.testing.assert_allclose(there.mean, (here.mean + shift) * scale, rtol=1e-9, atol=1e-9 * scale.max())


@SAME
@given(ANYTHING, ANYTHING, ANYTHING)
def test_any_ranges(lam, q, temperature):
    """Three good ranges, or an error that names one of them."""
    scatter = Scatter.from_data(hostile_questions.TABLE)
    try:
        ranges = find_ranges(lam, q, temperature, scatter, np.arange(4))
    except ValueError as error:
        assert any(name in str(error) for name in Ranges._fields)
    else:
        assert np.isfinite(ranges.low).all() and np.all(ranges.low <= ranges.high)


@SAME
@given(st.sampled_from(["level", "rate", "threshold", "cut"]), ANYTHING, ANYTHING)
def test_any_rule(name, value, rule):
    def find():
        _, numbers = find_rule(rule, **{name: value})
        return None if np.isfinite(list(numbers.values())).all() else "not finite"

    holds(find)


@SAME
@given(ANYTHING, ANYTHING, ANYTHING)
def test_any_counts_and_seeds(steps, batch_size, random_state):
    def use():
        found = default_settings(10, False, steps, batch_size)
        as_key(random_state)
        return None if found.steps >= 0 and found.num_conditions >= 1 else "nothing to do"

    holds(use)


@SAME
@given(st.binary(max_size=200) | st.text(alphabet='a1,;"\n\r\t .e-\0', max_size=80).map(str.encode))
def test_any_file(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content)

    def read():
        values, names, _ = table.read_table(path, None)
        return None if values.shape[1] == len(names) and len(set(names)) == len(names) else "torn"

    holds(read)


# ------------------------------------------------------------------------------------------------------- the benchmark
@pytest.mark.parametrize(("name", "count"), BRIEF.items())
def test_a_few_cases_of_each_kind_without_training(name, count):
    (kind,) = [each for each in hostile.KINDS if each.name == name]
    with hostile.no_training():
        tried = hostile.attempt_all(kind.make, count)
    assert not tried.failed
    assert tried.count == count and tried.refused > 0


def broken(monkeypatch, mistake):
    """Mistakes that somebody could make."""
    parse, use = data.parse_table, data.use_rows
    if mistake == "wrong numbers":
        monkeypatch.setattr(data, "to_unit_variance", lambda values: (values * 1.0, *np.ones((2, values.shape[1]))))
    elif mistake == "refuses":
        monkeypatch.setattr(data, "use_rows", lambda *args: (_ for _ in ()).throw(ValueError("no " * 9)))
    elif mistake == "unclear":

        def unchecked(X, *_, **__):
            return table.Table(np.asarray(X, float), ("a", "b"), table.RowNames(None), None, ())

        monkeypatch.setattr(data, "parse_table", unchecked)
    elif mistake == "drops":
        monkeypatch.setattr(data, "use_rows", lambda read, missing: use(read, missing.replace("error", "drop")))
    elif mistake == "hides":

        def finite(*args, **more):
            read = parse(*args, **more)
            return read._replace(values=np.where(np.isinf(read.values), 0.0, read.values))

        monkeypatch.setattr(data, "parse_table", finite)
    elif mistake == "accepts":
        for module in (data, table):
            monkeypatch.setattr(module, "check_names", lambda names, n_features: tuple(map(str, names)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mistake", ["wrong numbers", "refuses", "unclear", "accepts", "drops", "hides"])
def test_mistakes_are_seen(monkeypatch, mistake):
    broken(monkeypatch, mistake)
    assert hostile.attempt_all(hostile.table_case, 200).failed


def test_attempts_are_counted():
    tried = []

    def make(number):
        return "", lambda: tried.append(number) or (None, hostile.REFUSED, "wrong")[number % 3]

    found = hostile.attempt_all(make, 8)
    assert found.count == len(tried) == 8
    assert (found.answered, found.refused) == (3, 3)
    assert found.failed == ["2: : wrong", "5: : wrong"]


def test_numbers_that_are_none_are_seen():
    """In every kind of answer and every cell, but for those that are documented to be empty."""
    finite, nan = hostile_questions.finite, float("nan")
    bad = [nan, np.float32("inf"), np.array([1.0, nan]), jnp.array([nan]), pd.Series([nan]), (1.0, [nan])]
    for answer in (*bad, np.array([nan], object), object(), {"a": nan}, np.array(1j), np.datetime64("NaT")):
        assert finite(answer), answer
    for answer in (
        None,
        1,
        True,
        0.5,
        np.float16(1),
        np.bool_(1),
        np.ones(2),
        jnp.ones(2),
        ("a", [1.0]),
        {"a": 1.0},
        pd.Series(["a"]),
    ):
        assert finite(answer) is None, answer
    evidence = {"log_evidence": 1.0, "se": 1.0, "elbo": 1.0, "ess": 1.0, "khat": np.inf, "method": "cumulant"}
    entry = {"row": "a", "column": "b", "mean": 1.0, "sd": 1.0, "p_positive": 1.0, "association": 1.0}
    for good in (evidence, entry):
        assert finite(pd.DataFrame([good])) is None
        for name in {"log_evidence", "se", "elbo", "ess", "mean", "sd", "p_positive", "association"} & set(good):
            assert finite(pd.DataFrame([good | {name: nan}])), name
    assert finite(pd.DataFrame([evidence | {"se": nan, "method": "published"}])) is None
    diagonal = entry | {"column": "a", "p_positive": nan, "association": nan}
    assert finite(pd.DataFrame([diagonal])) is None and finite(pd.DataFrame([diagonal | {"sd": nan}]))
    table = pd.DataFrame([entry])
    table.attrs["expected_fdr"] = nan
    assert finite(table)


def test_each_way_to_fail_is_seen():
    def nothing_said():
        raise ValueError("bad")

    def loop():
        while True:
            time.sleep(0.01)

    assert hostile.outcome(lambda: None) is None
    assert hostile.outcome(lambda: find_ranges("x", 1.0, 1.0, None, None)) == hostile.REFUSED
    assert "ValueError from" in hostile.outcome(nothing_said)
    assert "ZeroDivisionError" in hostile.outcome(lambda: 1 / 0)
    assert hostile.outcome(loop, seconds=1) == "more than 1 s"
    assert hostile_questions.definite(-np.eye(2))
    assert hostile_files.ended_badly(1, "Traceback (most recent call last)\n")
    assert hostile_files.ended_badly(2, "Error: a\nError: b\n")
    assert hostile_files.ended_badly(2, "") and hostile_files.ended_badly(134, "Error: a\n")
    assert hostile_files.ended_badly(2, "Error: it is wrong\n") is None


def test_limits_are_those_of_model_files():
    """Every model that can be fitted can be saved and loaded."""
    assert (
        1e-40 < conditions.LAM_LIMITS[0] and conditions.LAM_LIMITS[1] < 1e40 and conditions.LOWEST_TEMPERATURE > 1e-40
    )
