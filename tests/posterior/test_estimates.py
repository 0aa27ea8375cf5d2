"""Weights are used where they lower the error, judged without knowing it."""

import numpy as np
import pytest
from scipy import stats

from ggmflow.posterior.estimates import Sample
from ggmflow.posterior.weights import importance_weights

LEVELS = [0.05, 0.5, 0.95]


def errors(num_entries, shift, seed, num_draws=4000):
    """Draws of N(shift, 1), weighted for N(0, 1): the decision, and true quantile errors with and without weights."""
    x = np.random.default_rng(seed).normal(size=(num_entries, num_draws)) + shift
    weights = importance_weights(np.sum(stats.norm.logpdf(x) - stats.norm.logpdf(x, shift), axis=0))
    sample, equal = Sample(x, None), np.full(num_draws, 1 / num_draws)  # pyright: ignore[reportArgumentType]
    truth = stats.norm.ppf(LEVELS)[:, None]
    plain, weighted = (np.mean(np.abs(sample.quantile(LEVELS, w) - truth)) for w in (equal, weights.values))
    return sample.gains(weights.values), plain, weighted


# Shifts at which one way is clearly better; with thousands of entries, tiny shifts already make weights uneven.
@pytest.mark.parametrize(
    ("num_entries", "shift", "gain"),
    [(3, 0.3, True), (30, 0.2, True), (100, 0.1, True), (1600, 0.04, False), (3000, 0.03, False)],
)
def test_weights_are_used_where_they_lower_the_error(num_entries, shift, gain):
    decided, plain, weighted = errors(num_entries, shift, seed=0)
    assert decided == gain == (weighted < plain)


def test_the_decision_is_seldom_costly():
    """Over many cases, what is decided loses at most a tenth of the error to what would have been best."""
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
    assert not Sample(x, None).gains(np.full(100, 0.01))  # pyright: ignore[reportArgumentType]
