"""Ranges of (λ, q, T) and points within them; what is refused is tested with the estimator."""

import numpy as np
import pytest

from ggmflow.conditions import Ranges, find_ranges
from ggmflow.data import Scatter

SCATTER = Scatter(np.array([[10.0, -4.0], [-4.0, 10.0]]), 10, np.zeros(2), np.ones(2), ("a", "b"))
RANGES = Ranges((0.5, 8.0), (0.25, 1.25), (0.01, 0.5))


def test_ends_and_warmest():
    np.testing.assert_allclose(RANGES.low, [np.log(0.5), 0.25, np.log(0.01)])
    np.testing.assert_allclose(RANGES.high, [np.log(8.0), 1.25, np.log(0.5)])
    assert RANGES.warmest == 0.5
    assert RANGES.many_temperatures and not RANGES._replace(temperature=(1.0, 1.0)).many_temperatures


def test_condition():
    np.testing.assert_allclose(RANGES.condition(2.0, 1.0, 0.1), [np.log(2.0), 1.0, np.log(0.1)])
    # the ends themselves, whatever the last digit
    np.testing.assert_allclose(RANGES.condition(8.0 * (1 + 1e-12), 1.25, 0.01), [np.log(8.0), 1.25, np.log(0.01)])
    with pytest.raises(ValueError, match=r"lam=8\.1 is outside the fitted range 0\.5 … 8"):
        RANGES.condition(8.1, 1.0, 0.1)
    for wrong in (np.nan, "1", True, None):
        with pytest.raises(ValueError, match="q must be a number"):
            RANGES.condition(2.0, wrong, 0.1)


def test_automatic_range_ends_where_the_graphical_lasso_has_no_edge():
    assert find_ranges("auto", 1.0, 1.0, SCATTER) == ((0.08, 4.0), (1.0, 1.0), (1.0, 1.0))
    independent = Scatter(10.0 * np.eye(2), 10, np.zeros(2), np.ones(2), ("a", "b"))
    assert find_ranges("auto", 1.0, 1.0, independent).lam == (0.01, 0.5)
