"""Weighted draws: estimates against formulas on whole matrices, and weights only where they lower the error."""

import numpy as np
import pytest
from scipy import stats

from ggmflow.model.precision import association
from ggmflow.posterior.weighted_draws import WeightedDraws
from ggmflow.posterior.weights import importance_weights

LEVELS = [0.05, 0.5, 0.95]


def independent_entries(x, log_ratio):
    """Draws of a row with as many columns as entries."""
    names = tuple(f"x{k}" for k in range(len(x)))
    return WeightedDraws(x, names, np.array([0]), importance_weights(log_ratio))


def errors(num_entries, shift, seed, num_draws=4000):
    """Draws of N(shift, 1), weighted for N(0, 1): the decision, and true quantile errors with and without weights."""
    x = np.random.default_rng(seed).normal(size=(num_entries, num_draws)) + shift
    draws = independent_entries(x, np.sum(stats.norm.logpdf(x) - stats.norm.logpdf(x, shift), axis=0))
    truth = stats.norm.ppf(LEVELS)[:, None]
    plain, weighted = (np.mean(np.abs(draws.using(use).quantile(LEVELS) - truth)) for use in (False, True))
    return draws.gains, plain, weighted


# Shifts at which one way is clearly better; with thousands of entries, tiny shifts already make weights uneven.
@pytest.mark.parametrize(
    ("num_entries", "shift", "gain"),
    [
        (3, 0.3, True),
        (30, 0.2, True),
        (100, 0.1, True),
        (1600, 0.04, False),
        pytest.param(3000, 0.03, False, marks=pytest.mark.slow),
    ],
)
def test_weights_are_used_where_they_lower_the_error(num_entries, shift, gain):
    decided, plain, weighted = errors(num_entries, shift, seed=0)
    assert decided == gain == (weighted < plain)


def test_the_decision_is_seldom_costly():
    """Over many cases, the decisions increase the error of the best ones by at most a tenth."""
    lost, best = 0.0, 0.0
    for seed, (num_entries, shift) in enumerate(
        (D, c / np.sqrt(D)) for D in (5, 50, 500) for c in (0.3, 0.6, 1.0, 1.4)
    ):
        decided, plain, weighted = errors(num_entries, shift, seed)
        lost += (weighted if decided else plain) - min(plain, weighted)
        best += min(plain, weighted)
    assert lost < 0.1 * best


def test_equal_weights_and_constant_entries_gain_nothing():
    x = np.vstack([np.ones(100), np.arange(100.0)])
    assert not independent_entries(x, np.zeros(100)).gains


@pytest.fixture
def draws(rng):
    """Rows of variables d and b among a, b, c, d, in this order; uneven weights."""
    L = rng.normal(size=(300, 4, 4)) / 4 + 2 * np.eye(4)
    rows = (L @ np.swapaxes(L, 1, 2))[:, [3, 1]]
    made = WeightedDraws(np.empty((7, 300)), tuple("abcd"), np.array([3, 1]), importance_weights(rng.normal(size=300)))
    made.entries[:] = rows[:, made.free.row, made.free.column].T
    return made, rows


@pytest.mark.parametrize("use", [True, False])
def test_estimates_are_those_of_whole_matrices(draws, use):
    draws, rows = draws[0].using(use), draws[1]
    w = draws.importance.values if use else np.full(300, 1 / 300)
    np.testing.assert_array_equal(draws.weights, w)
    np.testing.assert_array_equal(draws.rows(slice(None)), rows)
    np.testing.assert_array_equal(draws.rows(np.array([5, 5, 2])), rows[[5, 5, 2]])
    mean, rho = np.tensordot(w, rows, 1), association(rows, draws.query)
    np.testing.assert_allclose(draws.matrix(draws.mean()), mean)
    np.testing.assert_allclose(draws.matrix(draws.sd()) ** 2, np.tensordot(w, (rows - mean) ** 2, 1))
    np.testing.assert_allclose(draws.matrix(draws.power(0.5)), np.tensordot(w, np.abs(rows) ** 0.5, 1))
    np.testing.assert_allclose(draws.matrix(draws.association()), np.tensordot(w, rho, 1))
    spread = np.sqrt(np.tensordot(w, (rho - np.tensordot(w, rho, 1)) ** 2, 1))
    np.testing.assert_allclose(draws.matrix(draws.association_sd()), spread, atol=1e-12)
    own = np.arange(4) == draws.query[:, None]
    large = np.where(own, 0, np.tensordot(w, np.abs(rho) > 0.1, 1))
    np.testing.assert_allclose(draws.matrix(draws.edge_probability(0.1)), large)
    np.testing.assert_allclose(draws.matrix(draws.sign_probability())[~own], np.tensordot(w, rows < 0, 1)[~own])
    np.testing.assert_array_equal(draws.matrix(draws.sign_probability())[own], 1)
    lower, upper = draws.matrix(draws.quantile([0.2, 0.8]))
    expected = ~own & ((lower > 0) | (upper < 0))
    np.testing.assert_array_equal(draws.matrix(draws.excludes_zero([0.2, 0.8])), expected)


def test_quantiles_of_some_associations_are_those_of_all(draws):
    draws = draws[0]
    every, some = draws.association_quantile(LEVELS), np.array([4, 0, 5])
    np.testing.assert_array_equal(draws.association_quantile(LEVELS, some), every[:, some])
    mean, variance = draws.association_moments(some)
    np.testing.assert_allclose(mean[[0, 1]], draws.association()[[4, 0]])
    np.testing.assert_allclose(np.sqrt(variance[:2]), draws.association_sd()[[4, 0]])


def test_resampling_follows_the_weights_in_use(draws, rng):
    draws = draws[0]
    for use in (True, False):
        count = np.bincount(draws.using(use).resample(rng, 3000), minlength=300)
        assert np.all(np.abs(count - 3000 * draws.using(use).weights) < 1)


def test_exact_draws_have_no_weights_to_use():
    draws = WeightedDraws(np.ones((1, 10)), ("a",), np.array([0]))
    assert not draws.weighted and not draws.using(True).weighted and not draws.gains
    assert repr(draws) == "WeightedDraws(10 draws of 1 entries, equal weights)"


def test_copies_share_computed_orders(draws, monkeypatch):
    """Sorting takes most of the time of quantiles: both choices of weights use one order."""
    draws = draws[0]
    draws.quantile(LEVELS)
    monkeypatch.setattr("ggmflow.posterior.weighted_draws.sort_order", None)  # a second sort would fail
    assert not np.array_equal(draws.using(True).quantile(LEVELS), draws.using(False).quantile(LEVELS))
