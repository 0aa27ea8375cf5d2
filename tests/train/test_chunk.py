"""The compiled chunk takes the conditions of a large blanket in groups, with the same losses as all at once."""

import numpy as np
import pytest

from ggmflow.train import chunk
from tests.support.toy import Toy, run, toy_loss


@pytest.mark.slow
def test_conditions_in_groups_give_the_same_gradients(monkeypatch):
    """A step of a large blanket takes its conditions in groups, which changes the order of sums only."""
    whole, seen = run(), []

    def loss(flow, noise, conditions):
        seen.append((noise.shape, conditions.shape))
        return toy_loss(flow, noise, conditions)

    monkeypatch.setattr(chunk, "_MAX_MATRIX_ENTRIES", 2)
    grouped = run(Toy(n_query=0, make_loss=loss))  # fewer columns than variables: a query
    assert set(seen) == {((1, 2, 4), (2, 3))}
    assert [each.step for each in grouped.history] == [each.step for each in whole.history]
    np.testing.assert_allclose(
        [each[2:4] for each in grouped.history], [each[2:4] for each in whole.history], rtol=1e-5
    )
    np.testing.assert_allclose(grouped.flow.mean, whole.flow.mean, rtol=1e-5)


@pytest.mark.parametrize(
    ("num", "d", "expected"), [(8, 318, 8), (8, 1024, 8), (8, 1025, 4), (8, 2006, 2), (8, 5000, 1)]
)
def test_more_variables_have_fewer_conditions_at_once(num, d, expected):
    assert chunk.conditions_at_once(num, d) == expected


def test_a_prime_number_of_conditions_is_one_group_or_groups_of_one():
    assert chunk.conditions_at_once(7, 1000) == 7 and chunk.conditions_at_once(7, 1200) == 1
