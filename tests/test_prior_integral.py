"""The integrated prior against closed forms and direct Wishart importance sampling, in which chains have no part."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import wishart

from ggmflow import evidence, prior_integral
from ggmflow.conditions import Ranges
from ggmflow.prior_integral import _log_wishart, _mean_power, integrate_prior

RANGES = Ranges((0.5, 8.0), (0.25, 1.25), (1.0, 1.0))


@pytest.fixture(scope="module")
def four():
    """d = s = 4."""
    return integrate_prior(4, 4, RANGES)


def direct(lam, q, s=4, d=4, num_draws=400_000):
    """log Z_prior of the first s rows by Wishart draws with weights exp(−λΣ|ω|^q) ≤ 1, and its error."""
    draws = wishart(d + 1, np.eye(d) / lam).rvs(num_draws, random_state=np.random.default_rng(0))
    i, j = np.triu_indices(s, 1, d)
    log_weight = -lam * np.sum(np.abs(draws[:, i, j]) ** q, axis=1)
    value = logsumexp(log_weight) - np.log(num_draws)
    error = np.std(np.exp(log_weight - value)) / np.sqrt(num_draws)
    n_entries = s * d - s * (s - 1) // 2
    return _log_wishart(d, s) - n_entries * np.log(lam) + value, error


@pytest.mark.parametrize("lam, q", [(0.5, 0.25), (8.0, 0.25), (2.0, 0.5), (2.0, 1.0), (0.5, 1.25), (8.0, 1.25)])
def test_it_is_that_of_wishart_draws(four, lam, q):
    """Within 4.5 standard errors, of six batches: false-alarm rate about 0.7 % a case at worst (t, 5 degrees)."""
    value, error = four.log_normalizer(lam, q)
    exact, own = direct(lam, q)
    assert error < 0.3 and own < 0.1
    assert abs(value - exact) < 4.5 * np.hypot(error, own)


def test_the_scaling_law_holds_exactly(four):
    """At q = 1, log Z + D log λ does not depend on λ."""
    values = [four.log_normalizer(lam, 1.0)[0] + 10 * np.log(lam) for lam in (0.5, 2.0, 8.0)]
    np.testing.assert_allclose(values, values[0], rtol=1e-12)


def test_a_markov_blanket():
    """As above, for two rows of five; false-alarm rate 0.7 %."""
    found = integrate_prior(5, 2, RANGES)
    value, error = found.log_normalizer(2.0, 0.5)
    exact, own = direct(2.0, 0.5, s=2, d=5)
    assert error < 0.3 and abs(value - exact) < 4.5 * np.hypot(error, own)


@pytest.mark.parametrize("q", [0.25, 1.0, 1.7])
def test_mean_power_is_that_of_wishart_draws(q):
    """False-alarm rate 1e-5."""
    draws = np.abs(wishart(7, np.eye(6)).rvs(20_000, random_state=np.random.default_rng(1))[:, 0, 1]) ** q
    assert abs(draws.mean() - _mean_power(6, q)) < 4.4 * draws.std() / np.sqrt(20_000)


def test_one_condition_is_enough(monkeypatch):
    monkeypatch.setattr(prior_integral, "_BATCH", 10)
    found = integrate_prior(3, 3, Ranges((2.0, 2.0), (0.5, 0.5), (1.0, 1.0)))
    value, error = found.log_normalizer(2.0, 0.5)
    assert np.isfinite(value) and error > 0


def test_many_variables_have_an_integral_and_it_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("GGMFLOW_CACHE", str(tmp_path))
    monkeypatch.setattr(evidence, "_MANY", 2)
    monkeypatch.setattr(prior_integral, "_BATCH", 10)
    monkeypatch.setattr(evidence, "_known", {})
    made = evidence.fit_prior(3, 3, RANGES)
    assert isinstance(made, evidence.LargePrior)
    monkeypatch.setattr(evidence, "_known", {})
    monkeypatch.setattr(evidence, "integrate_prior", lambda *args: pytest.fail("it was made again"))
    again = evidence.fit_prior(3, 3, RANGES)
    found = again.log_normalizer(2.0, 0.5, 100)
    assert found == made.log_normalizer(2.0, 0.5, 100)._replace(elbo=found.elbo, ess=found.ess, khat=found.khat)
    assert found.method == "integral" and found.se > 0
