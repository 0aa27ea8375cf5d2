"""The state of a page: selection, order of the table, and the pairs whose intervals are shown."""

from types import SimpleNamespace

import pandas as pd
import pytest

from ggmflow.explorer.state import RULES, State

START = (2.0, 0.75, 1.0)
PAIRS = pd.DataFrame(
    {"i": [0, 0, 0, 1, 1, 2], "j": [1, 2, 3, 2, 3, 3], "association": [0.1, -0.6, 0.2, 0.5, -0.3, 0.0]}
)


def view(edges):
    """The parts of a `View` that the state uses."""
    return SimpleNamespace(pairs=PAIRS.assign(edge=[k in edges for k in range(6)]), n_edges=len(edges))


def test_the_level_is_that_of_the_rule():
    state = State(START)
    assert (state.rule.key, state.rule.parameters, state.level) == ("f1", {}, 0.9)
    levels = {}
    for value, state.rule in RULES.items():
        levels[value] = state.level
    assert levels["interval level=0.8"] == 0.8 and levels["interval level=0.95"] == 0.95 and levels["fdr"] == 0.9


def test_a_variable_or_a_pair_is_selected_but_not_both():
    state = State(START)
    state.select(node=2)
    assert (state.node, state.pair) == (2, None)
    state.select(pair=4)
    assert (state.node, state.pair) == (None, 4)
    state.select()
    assert (state.node, state.pair) == (None, None)


def test_numbers_are_sorted_from_the_largest_and_names_from_a_to_z():
    state = State(START)
    assert (state.sorted_by, state.descending) == ("association", True)
    for column, descending in (("association", False), ("lower", True), ("row", False), ("row", True)):
        state.sort(column)
        assert (state.sorted_by, state.descending) == (column, descending)


@pytest.mark.parametrize(
    ("selected", "edges", "expected"),
    [
        ({}, {0, 3, 4}, [3, 4, 0]),  # edges
        ({}, set(), [1, 3, 4, 2, 0, 5]),  # all pairs, if there are no edges
        ({"node": 0}, {3}, [1, 2, 0]),  # pairs of a variable
        ({"pair": 3}, {0, 3, 4}, [3, 4, 0]),
        ({"pair": 5}, {0, 3, 4}, [5, 3, 4, 0]),  # the selected pair comes first if it would not be shown
        ({"pair": 0}, {0, 3, 4}, [0, 3, 4, 0]),
    ],
)
def test_the_strongest_pairs_are_shown(selected, edges, expected):
    state = State(START)
    state.select(**selected)
    assert state.strongest(view(edges), most=2).tolist() == expected
