"""The sampler as users call it: against brute force, another package, the graphical lasso, and itself."""

from pathlib import Path

import jax
import numpy as np
import pytest

from ggmflow.baselines import graphical_lasso
from ggmflow.data.scatter import Scatter
from ggmflow.errors.argument import ArgumentError
from ggmflow.gibbs import sample
from ggmflow.gibbs.chains import _wishart_rows
from tests.support.oracles import weighted_moments

REFERENCE = Path(__file__).parents[1] / "reference"


def make_scatter(d, n=12, seed=3):
    rng = np.random.default_rng(seed)
    return Scatter.from_data(rng.normal(size=(n, d)) @ rng.normal(size=(d, d)))


SLOW = pytest.mark.slow


@pytest.mark.parametrize("d, s", [(3, 3), pytest.param(4, 4, marks=SLOW), (4, 2), pytest.param(3, 1, marks=SLOW)])
def test_equals_importance_sampling(d, s):
    """Means and sds at q ∈ {0.25, 0.5, 1, 2}, T ∈ {1, 0.7}, one condition per chain in a single call.

    Up to 160 z-scores, |z| < 5: false-alarm rate below 1e-4 a test.
    """
    scatter, lam, per = make_scatter(d), 2.0, 16
    conditions = [(q, T) for q in (0.25, 0.5, 1.0, 2.0) for T in (1.0, 0.7)]
    q, T = np.repeat(conditions, per, axis=0).T
    chains = sample(jax.random.key(1), scatter, lam, q, T, n_query=s, num_draws=600, num_warmup=200)
    for k, (qk, Tk) in enumerate(conditions):
        part = chains.select(np.arange(k * per, (k + 1) * per))
        mean, sd, ess = weighted_moments(scatter.matrix, scatter.n, lam, qk, s, Tk)
        assert ess > 500  # the oracle must be able to judge
        assert part.rhat.max() < 1.03
        assert np.all(np.abs(part.pooled.mean(0) - mean) < 5 * sd * np.sqrt(1 / part.ess_bulk + 1 / ess))
        # The sd of a sum of squares is governed by the kurtosis; 6 is generous for these posteriors.
        assert np.all(np.abs(part.pooled.std(0) / sd - 1) < 5 * np.sqrt(1.5 * (1 / part.ess_tail + 1 / ess)))


@pytest.mark.slow
def test_equals_the_bayesian_graphical_lasso_of_another_package():
    """Reference: 20 000 draws in R, n is rows, Monte Carlo error sd/√9000. 55 entries, |z| < 4.5: false alarms 4e-4."""
    X = np.loadtxt(REFERENCE / "X.csv", delimiter=",", skiprows=1)
    mean = np.loadtxt(REFERENCE / "bgl_lam2_mean.csv", delimiter=",")
    sd = np.loadtxt(REFERENCE / "bgl_lam2_sd.csv", delimiter=",")
    scatter = Scatter.from_data(X, mean="known")
    chains = sample(jax.random.key(0), scatter, lam=2.0, q=1.0, num_chains=16, num_draws=3000)
    assert chains.rhat.max() < 1.01
    z = (chains.pooled.mean(0) - mean) / (sd * np.sqrt(1 / 9000 + 1 / chains.ess_bulk))
    assert np.abs(z).max() < 4.5
    np.testing.assert_allclose(chains.pooled.std(0), sd, rtol=0.06)


@pytest.mark.slow
def test_cold_chains_approach_the_graphical_lasso():
    """At T → 0 and q = 1 the draws converge to the MAP, the graphical lasso of S/n with ρ = λ/n."""
    scatter, lam = make_scatter(5, n=30), 3.0
    mode = graphical_lasso(scatter.emp_cov, scatter.n, lam).precision
    distance = []
    for T in (0.03, 0.003, 0.0003):
        chains = sample(jax.random.key(0), scatter, lam, 1.0, T, num_draws=500)
        assert chains.rhat.max() < 1.02
        distance.append(np.abs(chains.pooled.mean(0) - mode).max() / np.abs(mode).max())
    assert distance[2] < 1e-3
    assert distance[2] < distance[1] < distance[0]


@pytest.mark.slow
@pytest.mark.parametrize("T, q", [(1.0, 0.1), (1.0, 1.0), (1.0, 2.0), (1e-3, 1.0)])
@pytest.mark.parametrize("s", [12, 3])
def test_never_loses_positive_definiteness(T, q, s):
    """n ≪ d, exactly collinear columns, a λ per chain over six decades: finite, symmetric, definite."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, 12))
    X[:, 1], X[:, 5] = X[:, 0], -2 * X[:, 0]
    lam = np.geomspace(1e-4, 1e2, 10)
    chains = sample(jax.random.key(0), Scatter.from_data(X), lam, q, T, n_query=s, num_draws=50, num_warmup=100)
    block = chains.draws[..., :s]
    assert np.all(np.isfinite(chains.draws))
    np.testing.assert_allclose(block, np.swapaxes(block, -1, -2), rtol=1e-12)
    d = 1 / np.sqrt(np.diagonal(block, axis1=-2, axis2=-1))
    assert np.linalg.eigvalsh(block * d[..., None] * d[..., None, :]).min() > 0


@pytest.mark.slow
def test_raw_scales_work_and_a_tiny_lam_raises():
    """Unstandardized data of scale 1e3 with n < d; and a λ so small that float64 cannot represent Ω."""
    X = 1e3 * np.random.default_rng(0).normal(size=(4, 12))
    raw = Scatter.from_data(X, standardize=False)
    chains = sample(jax.random.key(0), raw, np.geomspace(300, 3e4, 10), num_draws=50, num_warmup=100)
    assert np.all(np.isfinite(chains.draws))
    with pytest.raises(ValueError, match=r"numerically singular at λ = 1e-14.*larger λ"):
        sample(jax.random.key(0), Scatter.from_data(X), np.full(10, 1e-14), num_draws=50, num_warmup=100)


@pytest.mark.slow
def test_exact_draws_stay_exact_from_the_first_sweep():
    """Chains started at exact tempered draws and run for one sweep: |z| < 5 for 6 means, false alarms 4e-6.

    It fails if `start` were read at another temperature than the draws are returned.
    """
    scatter, lam, q, T = make_scatter(3), 2.0, 0.5, 0.7
    exact = sample(jax.random.key(0), scatter, lam, q, T, num_draws=250, num_warmup=200)
    start = exact.pooled
    once = sample(jax.random.key(1), scatter, lam, q, T, start=start, num_draws=1, num_warmup=0).pooled
    z = (once.mean(0) - start.mean(0)) / (start.std(0) * np.sqrt(1 / len(once) + 1 / exact.ess_bulk))
    assert np.abs(z).max() < 5


def test_chains_begin_at_the_given_start_and_repeat_with_the_same_key():
    scatter = make_scatter(4)
    start = np.eye(4) * 1e3
    cold = dict(lam=2.0, q=1.0, num_chains=2, num_draws=3, num_warmup=0)
    from_far = sample(jax.random.key(0), scatter, start=start, **cold)
    again = sample(jax.random.key(0), scatter, start=start, **cold)
    elsewhere = sample(jax.random.key(0), scatter, **cold)
    np.testing.assert_array_equal(from_far.draws, again.draws)
    assert not np.allclose(from_far.draws[:, 0], elsewhere.draws[:, 0])


@pytest.mark.parametrize("s", [4, 2])
def test_default_starts_are_wishart_under_the_condition_of_each_chain(s):
    """Means ν Ψ⁻¹ at four conditions in turns: at most 40 z, |z| < 5, false-alarm rate 2e-5."""
    scatter, num_chains = make_scatter(4), 4000
    lam, T = np.where(np.arange(num_chains) % 2, 1.0, 50.0), np.where(np.arange(num_chains) % 4 < 2, 1.0, 0.3)
    rows = _wishart_rows(jax.random.key(0), scatter, lam, T, s)
    for k in range(4):
        mean = (scatter.n / T[k] + 5) * T[k] * np.linalg.inv(scatter.matrix + lam[k] * np.eye(4))[:s]
        part = rows[k::4]
        assert np.abs((part.mean(0) - mean) / part.std(0)).max() < 5 / np.sqrt(len(part))


@pytest.mark.slow
def test_thin_and_progress():
    calls = []
    chains = sample(
        jax.random.key(0),
        make_scatter(3),
        1.0,
        num_chains=2,
        num_draws=70,
        num_warmup=60,
        thin=3,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert chains.draws.shape == (2, 70, 3, 3)
    assert [done for done, _ in calls] == [50, 100, 250, 400]
    assert {total for _, total in calls} == {400}
    one = sample(jax.random.key(0), make_scatter(3), 1.0, num_chains=2, num_draws=200, num_warmup=60)
    thinned = sample(jax.random.key(0), make_scatter(3), 1.0, num_chains=2, num_draws=200, num_warmup=60, thin=10)
    assert thinned.ess_bulk.min() > 1.5 * one.ess_bulk.min()


def test_a_second_call_compiles_nothing_new():
    from ggmflow.gibbs.chains import _advance

    scatter = make_scatter(3)
    sample(jax.random.key(0), scatter, 1.0, num_chains=2, num_draws=50, num_warmup=50)
    compiled = _advance._cache_size()  # pyright: ignore
    sample(jax.random.key(1), scatter, 3.0, 0.5, 0.7, num_chains=2, num_draws=150, num_warmup=0, thin=4)
    assert _advance._cache_size() == compiled  # pyright: ignore


@pytest.mark.slow
def test_settings_of_jax_do_not_change():
    before = jax.numpy.ones(1).dtype
    assert sample(jax.random.key(0), make_scatter(3), 1.0, num_chains=1, num_draws=5).draws.dtype == np.float64
    assert jax.numpy.ones(1).dtype == before == np.float32


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(lam=0.0), "lam must be positive"),
        (dict(lam=np.nan), "lam must be positive"),
        (dict(q=-1.0), "q must be positive"),
        (dict(temperature=np.inf), "temperature must be positive"),
        (dict(q=np.ones((2, 2))), "one number per chain"),
        (dict(lam="high"), "lam must be a number.*'high'"),
        (dict(lam=None), "lam must be a number.*None"),
        (dict(lam=[]), "lam must be a number"),
        (dict(q=2j), "q must be a number"),
        (dict(num_draws=10.5), "num_draws must be a whole number.*10.5"),
        (dict(n_query=np.array([0, 1])), "n_query must be a whole number"),
        (dict(start="identity"), "start must be an array of numbers"),
        (dict(hyperprior=1), "positive shape and a positive rate"),
        (dict(lam=np.ones(3), q=np.ones(2)), "q must agree on the number of chains with lam, which gives 3"),
        (dict(n_query=0), "n_query must be a whole number, at least 1"),
        (dict(n_query=4), "n_query must be at most the number of variables, 3"),
        (dict(num_draws=0), "num_draws must be a whole number, at least 1"),
        (dict(num_warmup=-1), "num_warmup must be a whole number, at least 0"),
        (dict(start=np.eye(2)), "start must have shape"),
        (dict(start=-np.eye(3)), "positive definite"),
        (dict(start=np.full((3, 3), np.nan)), "start must be finite"),
        (dict(start=np.triu(np.ones((3, 3)))), "symmetric"),
        (dict(hyperprior=(1.0, 0.1), q=0.5), "needs q = 1"),
        (dict(hyperprior=(0.0, 0.1)), "positive"),
    ],
)
def test_bad_arguments_are_named(change, message):
    arguments = {"lam": 1.0, "q": 1.0} | change
    with pytest.raises(ArgumentError, match=message):
        sample(jax.random.key(0), make_scatter(3), **arguments)


@pytest.mark.slow
def test_diagnostics_of_different_conditions_raise():
    chains = sample(jax.random.key(0), make_scatter(3), np.repeat([1.0, 5.0], 2), num_draws=50)
    with pytest.raises(ValueError, match="`select` those of one condition"):
        _ = chains.rhat
    assert chains.select(chains.lam == 5).rhat.shape == (3, 3)
    assert repr(chains) == "Chains(4 chains of 50 draws, 3×3 entries)"


def test_wrong_kinds_of_arguments_are_named():
    with pytest.raises(TypeError, match=r"use Scatter.from_data"):
        sample(jax.random.key(0), np.eye(3), 1.0)
    with pytest.raises(TypeError, match=r"jax.random.key\(0\), not 0"):
        sample(0, make_scatter(3), 1.0)
