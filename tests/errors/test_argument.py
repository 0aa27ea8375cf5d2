"""An error in an argument: its fields, and its message in Python and on the command line."""

import pickle

import numpy as np
import pytest

from ggmflow.errors.advice import Advice, Surface, message_of, option
from ggmflow.errors.argument import ArgumentError, UnknownChoiceError

OUTSIDE = ArgumentError(
    "lam", 20.0, reason="is outside the fitted range 0.5 … 8", advice=Advice("fit again with", {"lam": (0.5, 20.0)})
)


def test_error_keeps_its_fields_when_it_is_pickled():
    found = pickle.loads(pickle.dumps(OUTSIDE))
    assert isinstance(found, ValueError) and str(found) == str(OUTSIDE)
    assert (found.argument, found.value, found.reason, found.advice) == ("lam", 20.0, OUTSIDE.reason, OUTSIDE.advice)


@pytest.mark.parametrize(
    ("error", "python", "command_line"),
    [
        (
            OUTSIDE,
            "lam=20 is outside the fitted range 0.5 … 8: fit again with lam=(0.5, 20)",
            "--lam 20 is outside the fitted range 0.5 … 8: fit again with --lam 0.5,20",
        ),
        (
            ArgumentError("q", (0.1, 5), "lie between 0.1 and 2"),
            "q must lie between 0.1 and 2, got (0.1, 5)",
            "--q must lie between 0.1 and 2, got 0.1,5",
        ),
        (
            ArgumentError("missing", "mean", ("error", "drop", "em")),
            "missing must be 'error', 'drop' or 'em', got 'mean'",
            "--missing must be 'error', 'drop' or 'em', got 'mean'",
        ),
        (
            ArgumentError("random_state", None, "be an integer", advice=Advice("choose one")),
            "random_state must be an integer, got None: choose one",
            "--seed must be an integer, got None: choose one",
        ),
        (
            ArgumentError("start", np.ones((40, 3, 3)), "be symmetric"),
            "start must be symmetric, got an array of shape (40, 3, 3)",
            "--start must be symmetric, got an array of shape (40, 3, 3)",
        ),
        (
            UnknownChoiceError("rule", ["f1"], ("f1", "fdr")),
            "unknown rule of type list: choose one of f1, fdr",
            "unknown --rule of type list: choose one of f1, fdr",
        ),
        (
            UnknownChoiceError("architecture", "cubic", ("structured", "paper")),  # the command line has no option
            "unknown architecture 'cubic': choose one of structured, paper",
            "unknown architecture 'cubic': choose one of structured, paper",
        ),
    ],
)
def test_message_writes_options_as_they_are_typed(error, python, command_line):
    assert str(error) == message_of(error, Surface.PYTHON) == python
    assert message_of(error, Surface.COMMAND_LINE) == command_line


def test_message_of_another_exception_is_its_text():
    assert message_of(RuntimeError("stop"), Surface.COMMAND_LINE) == "stop"


@pytest.mark.parametrize(
    ("name", "value", "python", "command_line"),
    [
        ("missing", "em", "missing='em'", "--missing em"),
        ("decimal", ",", "decimal=','", "--decimal ','"),
        ("drop", ["id", "a, b", "it's"], """drop=['id', 'a, b', "it's"]""", """--drop 'id,"a, b",it'"'"'s'"""),
        ("drop", ["id"] * 30, "drop=[...]", "--drop ..."),
        ("query", ..., "query=[...]", "--query ..."),
        ("standardize", False, "standardize=False", "--no-standardize"),
        ("n_samples", np.int64(2_000_000), "n_samples=2000000", "--n-samples 2000000"),
        ("lam", np.float64(1 / 3), "lam=0.3333333333333333", "--lam 0.3333333333333333"),
    ],
)
def test_option_with_its_value(name, value, python, command_line):
    assert option(name, value, Surface.PYTHON) == python
    assert option(name, value, Surface.COMMAND_LINE) == command_line
    assert option(name, value, Surface.REPORT) == f"{python} in Python, {command_line} on the command line"
