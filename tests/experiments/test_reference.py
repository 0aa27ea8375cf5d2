"""Quantile errors of draws that are wrong by a known amount."""

import numpy as np
import pytest

from experiments.paper.reference import LEVELS, free, quantile_error, refer


@pytest.fixture
def draws(rng):
    return rng.normal(size=(8, 500, 2, 5))


def test_free_entries_are_those_on_and_above_the_diagonal():
    assert list(zip(*map(np.ndarray.tolist, free(np.zeros((7, 2, 3)))), strict=True)) == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 1),
        (1, 2),
    ]


def test_error_of_a_shift_and_of_a_scale(draws):
    reference = refer(draws)
    pooled = draws.reshape(-1, 2, 5)

    def error(other):
        return quantile_error(np.quantile(other, LEVELS, axis=0), reference)

    assert error(pooled).mean == 0
    # A shift by half a standard deviation moves every quantile by that; scaling by 2 moves the outer two by 1.645.
    assert error(pooled + 0.5 * pooled.std(axis=0)).mean == pytest.approx(0.5, abs=1e-6)
    assert error(2 * pooled).mean == pytest.approx(2 / 3 * 1.645, abs=0.05)
    one = pooled.copy()
    one[:, 1, 4] += 3 * pooled[:, 1, 4].std()
    found = error(one)
    assert (found.largest, found.worst) == (pytest.approx(3), 8) and found.mean == pytest.approx(3 / 9)


def test_own_error_is_that_of_independent_draws(draws):
    # sd of the estimated quantiles of N normal draws, levels 5, 50, 95 %: 2.11, 1.25, 2.11 over √N; E|x| = 0.80 sd.
    expected = 0.798 * (2.113 + 1.253 + 2.113) / 3 / np.sqrt(4000)
    assert refer(draws).own_error == pytest.approx(expected, rel=0.5)  # 9 entries, 3 levels: 4 sd is about half
    np.testing.assert_allclose(refer(draws).mean, draws.mean(axis=(0, 1)))
