"""The integrated prior against closed forms and direct Wishart importance sampling, in which chains have no part."""

import numpy as np
import pytest
from scipy.integrate import simpson
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import wishart

from ggmflow.evidence import prior, prior_integral
from ggmflow.evidence.prior_integral import (
    PriorIntegral,
    integrate_prior,
    log_wishart,
    mean_power,
    nodes,
    num_pairs,
    realize,
)
from ggmflow.model.conditions import Ranges

RANGES = Ranges((0.5, 8.0), (0.25, 1.25), (1.0, 1.0))


@pytest.fixture(scope="module")
def longer():
    """Chains in thirty batches instead of six, so that standard errors are nearly normal ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prior_integral, "_DRAWS", 900)
        patch.setattr(prior_integral, "_NUM_BATCHES", 30)
        yield


@pytest.fixture(scope="module")
def four(longer):
    """d = s = 4."""
    return integrate_prior(4, 4, RANGES)


def direct(lam, q, s=4, d=4, num_draws=400_000):
    """log Z_prior of the first s rows by Wishart draws with weights exp(−λΣ|ω|^q) ≤ 1, and its error."""
    draws = wishart(d + 1, np.eye(d) / lam).rvs(num_draws, random_state=np.random.default_rng(0))
    i, j = np.triu_indices(s, 1, d)
    log_weight = -lam * np.sum(np.abs(draws[:, i, j]) ** q, axis=1)
    value = logsumexp(log_weight) - np.log(num_draws)
    error = np.std(np.exp(log_weight - value)) / np.sqrt(num_draws)
    return log_wishart(d, s) - (num_pairs(d, s) + s) * np.log(lam) + value, error


@pytest.mark.slow
@pytest.mark.parametrize("lam, q", [(0.5, 0.25), (8.0, 0.25), (2.0, 0.6), (2.0, 1.0), (0.5, 1.25), (8.0, 1.1)])
def test_the_integral_agrees_with_wishart_draws(four, lam, q):
    """Within 4.5 standard errors, of thirty batches: false-alarm rate 1e-4. That of another λ is seen to be wrong."""
    value, error = four.log_normalizer(lam, q)
    exact, own = direct(lam, q)
    assert error < 0.15 and own < 0.1
    assert abs(value - exact) < 4.5 * np.hypot(error, own)
    assert abs(four.log_normalizer(lam * (1.1 if lam < 8 else 0.9), q)[0] - exact) > 4.5 * np.hypot(error, own)


@pytest.mark.slow
def test_a_markov_blanket(longer):
    """As above, for two rows of five; false-alarm rate 1e-4."""
    value, error = integrate_prior(5, 2, RANGES).log_normalizer(2.0, 0.5)
    exact, own = direct(2.0, 0.5, s=2, d=5)
    assert error < 0.15 and abs(value - exact) < 4.5 * np.hypot(error, own)


def moments(log_variance, kappa, q):
    """E|ω|^q and Eω² under N(0, v) exp(−κ|ω|^q)."""
    t = np.linspace(-14, 3.2, 1501)
    x = np.exp(t + 0.5 * log_variance)
    log_weight = t - 0.5 * np.exp(2 * t) - kappa * x**q
    weight = np.exp(log_weight - log_weight.max())
    return np.sum(weight * x**q) / weight.sum(), np.sum(weight * x**2) / weight.sum()


def mean_field(d, kappa, q):
    """E|ω|^q for d variables if entries were independent, with a variance that shrinks as they do."""
    root = brentq(lambda a: np.exp(a) - 2 - (d - 1) * moments(a, kappa, q)[1] / np.exp(a), 0, np.log(2 * d + 10))
    return moments(root, kappa, q)[0]


def test_interpolation_is_good_enough_for_many_variables(monkeypatch):
    """At d = 107 errors of h count 5671 times. Without noise, on a model whose E[V] is known everywhere: some nats of
    tens of thousands, and no more than three times what is stated.
    """
    d, ranges = 107, Ranges((10**-0.5, 100.0), (0.25, 1.25), (1.0, 1.0))
    monkeypatch.setattr(prior_integral, "mean_power", lambda d, q: mean_field(d, 1e-9, q))

    def ratio(x, q):
        e = mean_field(d, 1e-9, q)
        return np.array([np.log(mean_field(d, np.expm1(each) / e, q) / e) if each > 0 else 0.0 for each in x])

    h = np.array([ratio(x, q) for q, x in zip(*nodes(d, ranges), strict=True)])
    found = PriorIntegral(d, d, ranges, np.stack([h, h]))
    for lam, q in ((0.32, 0.66), (9.0, 0.25), (9.0, 0.4), (95.0, 0.35), (3.0, 1.15)):
        x = np.linspace(0, np.log1p(lam ** (1 - q) * mean_field(d, 1e-9, q)), 61)
        exact = log_wishart(d, d) - 5671 * simpson(np.exp(ratio(x, q) + x), x=x) - 5778 * np.log(lam)
        value, error = found.log_normalizer(lam, q)
        assert abs(value - exact) < min(2.5, 3 * error + 0.5)


def test_chains_are_found_for_every_kappa():
    """With S = I, κ = λ/(1 + λ)^q, without data λ^{1−q}."""
    q, kappa = (each.ravel() for each in np.meshgrid([0.1, 0.5, 0.95, 1.0, 1.1, 2.0], np.geomspace(1e-4, 0.99, 9)))
    with_data, lam = realize(kappa, q)
    np.testing.assert_allclose(np.where(with_data, lam / (1 + lam) ** q, lam ** (1 - q))[q != 1], kappa[q != 1])
    np.testing.assert_allclose((lam / (1 + lam))[(q == 1) & with_data], kappa[(q == 1) & with_data])
    assert with_data[q < 1].all() and not with_data[q > 1].all()


@pytest.mark.parametrize("q", [0.25, 1.0, 1.7])
def test_mean_power_is_that_of_wishart_draws(q):
    """False-alarm rate 1e-5."""
    draws = np.abs(wishart(7, np.eye(6)).rvs(20_000, random_state=np.random.default_rng(1))[:, 0, 1]) ** q
    assert abs(draws.mean() - mean_power(6, q)) < 4.4 * draws.std() / np.sqrt(20_000)


@pytest.mark.slow
def test_ranges_may_be_points():
    """Against Wishart draws, 10 standard errors of six batches: false-alarm rate 2e-4."""
    value, error = integrate_prior(3, 3, Ranges((2.0, 2.0), (0.5, 0.5), (1.0, 1.0))).log_normalizer(2.0, 0.5)
    exact, own = direct(2.0, 0.5, s=3, d=3)
    assert error < 0.2 and abs(value - exact) < 10 * np.hypot(error, own)


@pytest.mark.slow
def test_the_prior_of_many_variables_is_integrated_and_stored(monkeypatch, tmp_path):
    monkeypatch.setenv("GGMFLOW_CACHE", str(tmp_path))
    monkeypatch.setattr(prior, "_MANY", 2)
    monkeypatch.setattr(prior, "_known", {})
    made = prior.fit_prior(3, 3, RANGES)
    assert isinstance(made, prior.LargePrior)
    monkeypatch.setattr(prior, "_known", {})
    monkeypatch.setattr(prior, "integrate_prior", lambda *args: pytest.fail("it was made again"))
    again = prior.fit_prior(3, 3, RANGES)
    found = again.log_normalizer(2.0, 0.5, 100)
    assert found[:2] == made.log_normalizer(2.0, 0.5, 100)[:2]
    assert found.method == "integral" and found.se > 0
    with pytest.raises(ValueError, match="lam=9 is outside"):
        again.log_normalizer(9.0, 0.5, 100)
