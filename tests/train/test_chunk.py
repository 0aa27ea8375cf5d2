"""The compiled chunk takes the conditions of a large blanket in groups, with the same losses as all at once."""

import equinox as eqx
import jax
import numpy as np
import pytest

from ggmflow.data.scatter import Scatter
from ggmflow.flow.base import untrained_flow
from ggmflow.model.conditions import Ranges
from ggmflow.train import chunk, loop
from ggmflow.train.settings import Settings
from tests.support.toy import Toy, run, toy_loss


@pytest.mark.slow
def test_groups_of_conditions_do_not_change_the_training_of_a_blanket(x64, monkeypatch, rng):
    """In double precision and over few steps, before Adam amplifies rounding errors."""
    ranges, curves = Ranges((1.0, 20.0), (0.25, 1.25), (1.0, 1.0)), []
    scatter = Scatter.from_data(rng.normal(size=(20, 6)))
    flow = untrained_flow(jax.random.key(0), "structured", scatter, np.arange(2), ranges)
    flow = jax.tree.map(lambda leaf: leaf.astype(float) if eqx.is_inexact_array(leaf) else leaf, flow)
    monkeypatch.setattr(loop, "CHUNK", 2)
    for largest, at_once in ((2**23, 4), (2 * 6**2, 2)):
        monkeypatch.setattr(chunk, "_MAX_MATRIX_ENTRIES", largest)
        assert chunk.conditions_at_once(4, 6) == at_once
        jax.clear_caches()  # the size of groups is compiled in, and not part of the key of the cache
        with jax.numpy_dtype_promotion("standard"):  # conditions are drawn in single precision
            trained = loop.train(flow, jax.random.key(1), ranges.low, ranges.high, Settings(6, 4, 4))
        curves.append([each.elbo for each in trained.history])
    np.testing.assert_allclose(*curves, rtol=1e-12)
    assert curves[0][0] != curves[0][-1]


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
