"""All problems of a table in one exception with fields, and remedies written for each surface."""

import pickle

import numpy as np
import pandas as pd
import pytest

from ggmflow.data.problems import ProblemKind, TableError
from ggmflow.data.scatter import Scatter
from ggmflow.errors.advice import Surface, listing, option

BAD = "id,diagnosis,a,b,c,d\n1x,M,1,,7,1\n2x,B,2,3,7,2.5\n3x,M,,4,7,3\n"


def problems_of(table, **options):
    with pytest.raises(TableError) as caught:
        Scatter.from_data(table, **options)
    return caught.value


@pytest.fixture
def bad(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(BAD)
    return path


def test_one_exception_has_all_problems_of_a_file(bad):
    error = problems_of(bad)
    text, missing, constant = error.problems
    assert text.kind is ProblemKind.TEXT and text.columns == ("id", "diagnosis")
    assert text.where == "line 2" and text.count == 6
    assert missing.kind is ProblemKind.MISSING and missing.columns == ("b", "a")
    assert missing.where == "line 2" and missing.count == 2
    assert constant.kind is ProblemKind.CONSTANT and constant.columns == ("c",)
    message = str(error)
    for part in ("for 3 reasons", "column 'id', line 2: could not convert string to float: '1x'", "2 in all", "'c'"):
        assert part in message
    assert message.endswith(
        "To use the rest of it: Scatter.from_data(..., drop=['id', 'diagnosis', 'c'], missing='em')"
    )


def test_advice_for_all_problems_works(bad):
    Scatter.from_data(bad, drop=["id", "diagnosis", "c"], missing="em")


def test_message_for_the_command_line_has_its_options(bad):
    lines = problems_of(bad).lines(Surface.COMMAND_LINE)
    assert lines[-1] == "To use the rest of it: --drop 'id,diagnosis,c' --missing em"
    assert "missing=" not in "".join(lines) and "drop=" not in "".join(lines)


@pytest.mark.parametrize(
    ("table", "options", "kinds"),
    [
        ([[1, 5, np.inf], [np.nan, 5, 1], [3, 5, 2]], {}, ["INFINITE", "MISSING", "CONSTANT"]),
        ([[1, 5, np.inf], [np.nan, 5, 1], [3, 5, 2]], {"missing": "em"}, ["INFINITE", "CONSTANT"]),
        ([[1, np.nan, 2], [3, np.nan, 2], [4, np.nan, 2]], {"missing": "drop"}, ["EMPTY_COLUMN", "CONSTANT"]),
        # A column without any value is to be left out; EM would not help.
        ([[1, np.nan, 2], [3, np.nan, 3], [4, np.nan, 2]], {}, ["EMPTY_COLUMN"]),
        ([[1, np.nan], [np.nan, 2], [3, 4]], {"missing": "drop"}, ["FEW_ROWS"]),
    ],
)
def test_kinds_of_problems(table, options, kinds):
    assert [problem.kind.name for problem in problems_of(table, **options).problems] == kinds


def test_blanks_beside_text_are_missing_values(tmp_path):
    """A column with text and a blank has two problems, which are reported together."""
    (tmp_path / "table.csv").write_text("a,b\n1,2\n?,3\n,4\n5,6\n")
    text, missing = problems_of(tmp_path / "table.csv").problems
    assert (text.kind, text.count) == (ProblemKind.TEXT, 1)
    assert (missing.kind, missing.where, missing.count) == (ProblemKind.MISSING, "line 4", 1)


def test_objects_raise_a_type_error():
    table = pd.DataFrame({"a": [1, {}, 2], "b": [1.0, 1.0, 1.0]}, dtype=object)
    with pytest.raises(TypeError, match="argument must be a string or a real number") as caught:
        Scatter.from_data(table)
    assert [problem.kind for problem in caught.value.problems] == [ProblemKind.OBJECT, ProblemKind.CONSTANT]


def test_one_problem_is_one_line():
    error = problems_of([[1, 7], [2, 7], [3, 7]])
    assert str(error) == "column 'x1' is constant (always 7): leave it out with Scatter.from_data(..., drop=['x1'])"


def test_exception_can_be_pickled(bad):
    error = problems_of(bad)
    again = pickle.loads(pickle.dumps(error))
    assert again.problems == error.problems and str(again) == str(error)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["id"], "--drop 'id'"),
        (["id", "date of birth"], "--drop 'id,date of birth'"),
        (["HLA,β"], """--drop '"HLA,β"'"""),
        (["it's"], """--drop 'it'"'"'s'"""),
        (['6"'], '--drop \'"6"""\''),
        ([f"x{k}" for k in range(21)], "--drop ..."),
    ],
)
def test_drop_as_it_is_typed(names, expected):
    assert option("drop", names, Surface.COMMAND_LINE) == expected


def test_long_lists_are_cut():
    assert listing(["a"]) == "'a'"
    assert listing(["a", "b", "c"]) == "'a', 'b' and 'c'"
    assert listing(list("abcdef")) == "'a', 'b', 'c', 'd' and 2 more"


def test_advice_leaves_a_usable_table():
    """Missing values in columns that are left out need no option; there is no advice if too few columns remain."""
    table = pd.DataFrame({"city": ["P", None, "R", "S"], "k": [1, 1, 1, 1], "a": [1, 2, 3, 4], "b": [2, 1, 4, 4]})
    assert str(problems_of(table)).endswith("To use the rest of it: Scatter.from_data(..., drop=['city', 'k'])")
    Scatter.from_data(table, drop=["city", "k"])
    assert "To use the rest" not in str(problems_of(table[["city", "k"]]))


def test_only_numbers_of_a_file_have_decimal_commas(tmp_path):
    (tmp_path / "table.csv").write_text('a,b\n1,"Paris, France"\n2,3\n')
    assert problems_of(tmp_path / "table.csv").problems[0].kind is ProblemKind.TEXT
    (tmp_path / "table.csv").write_text('a,b\n1,"2,5"\n2,3\n')
    assert problems_of(tmp_path / "table.csv").problems[0].kind is ProblemKind.DECIMAL_COMMA
    assert problems_of(pd.DataFrame({"a": [1, 2], "b": ["2,5", "3"]})).problems[0].kind is ProblemKind.TEXT
