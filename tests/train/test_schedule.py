"""Conditions of training steps and temperatures of the published cooling."""

import numpy as np
import pytest

from ggmflow.train.schedule import condition_grid, cooled_temperature, draw_conditions
from tests.support.toy import COOLING, HIGH, LOW


def test_cooling_is_geometric_in_a_hundred_steps():
    """T_i = 5·(0.01/5)^{i/100}, i = 0 … 100, each for the same number of chunks; the one nearest to 1 is 1."""
    temperatures = [cooled_temperature(COOLING, k, 404) for k in range(404)]
    stages, counts = np.unique(temperatures, return_counts=True)
    np.testing.assert_allclose(stages[::-1], 5 * 0.002 ** (np.arange(101) / 100), rtol=1e-12)
    assert set(counts) == {4}
    assert temperatures == sorted(temperatures, reverse=True)
    snapped = [cooled_temperature(COOLING, k, 404, (1.0, 0.01)) for k in range(404)]
    assert snapped.count(1.0) == 4
    assert snapped.count(0.01) == 4
    assert snapped == sorted(snapped, reverse=True)
    assert sum(a != b for a, b in zip(snapped, temperatures, strict=True)) <= 8
    np.testing.assert_allclose(snapped, temperatures, rtol=0.04)
    assert cooled_temperature(None, 3, 10) is None


@pytest.mark.parametrize("num_chunks", [2, 3, 12, 100, 150])
def test_cooling_reaches_its_end_in_any_number_of_chunks(num_chunks):
    temperatures = [cooled_temperature(COOLING, k, num_chunks, (0.01,)) for k in range(num_chunks)]
    assert temperatures[0] == 5
    assert temperatures[-1] == 0.01
    assert np.all(np.diff(temperatures) <= 0)


def draw(seed, num, low=LOW, high=HIGH, *more):
    return draw_conditions(np.random.default_rng(seed), num, low, high, *more)


def assert_spread(conditions, num):
    assert conditions.shape == (num, 3)
    assert conditions.dtype == np.float32
    assert np.all(conditions >= LOW.astype(np.float32) - 1e-6)
    assert np.all(conditions <= HIGH.astype(np.float32) + 1e-6)
    for end, share in ((HIGH[2], 0.5), (LOW[2], 0.125)):
        assert abs(np.isclose(conditions[:, 2], end, atol=1e-6).mean() - share) <= 2.5 / num
    for k in range(2):  # every quarter of the range has its quarter of conditions
        quarter = np.floor(4 * (conditions[:, k] - LOW[k]) / (HIGH[k] - LOW[k]) * (1 - 1e-6))
        assert np.all(np.abs(np.bincount(quarter.astype(int), minlength=4) / num - 0.25) <= 2 / num + 1e-9)


@pytest.mark.parametrize("num", [8, 32])
def test_conditions_fill_the_range_and_most_have_an_extreme_temperature(num):
    assert_spread(condition_grid(num, LOW, HIGH), num)
    for seed in range(5):
        assert_spread(draw(seed, num), num)
    a, b = (draw(seed, num) for seed in (0, 1))
    assert not np.allclose(a, b)
    # λ and q are paired at random, so they are not correlated. Correlation of 32 pairs, 3 sd = 0.53; fixed key.
    assert abs(np.corrcoef(condition_grid(32, LOW, HIGH)[:, :2].T)[0, 1]) < 0.53


def test_conditions_of_a_degenerate_range_are_that_point():
    low = high = np.array([0.7, 1.0, 0.0])
    np.testing.assert_array_equal(condition_grid(3, low, high), np.tile(low.astype(np.float32), (3, 1)))
    np.testing.assert_array_equal(draw(7, 3, low, high), np.tile(low.astype(np.float32), (3, 1)))
    assert condition_grid(1, LOW, HIGH).shape == (1, 3)


def test_conditions_while_cooling_share_the_temperature():
    conditions = draw(7, 16, LOW, HIGH, 0.4)
    np.testing.assert_array_equal(conditions[:, 2], np.float32(0.4))
    assert len(np.unique(conditions[:, 0])) == 16
    np.testing.assert_array_equal(condition_grid(4, LOW, HIGH, 0.4)[:, 2], np.float32(0.4))
    np.testing.assert_array_equal(condition_grid(4, LOW, HIGH, 0.4)[:, :2], condition_grid(4, LOW, HIGH)[:, :2])
