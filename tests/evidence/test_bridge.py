"""Bridge estimates against known normalizers. Keys are fixed; each comment says how often a new key would fail."""

import jax
import numpy as np
import pytest
from scipy import stats

from ggmflow import gibbs
from ggmflow.data.scatter import Scatter
from ggmflow.evidence.bridge import bridge, bridge_to_proposal
from tests.support.oracles import log_factor
from tests.support.wishart_bridge import WishartDensity, fit_wishart, log_normalizers


def log_ratio(x):
    """Two normal densities that are not normalized: N(0, 1) with Z = √2π and N(1, 2²) with Z = 2√2π."""
    return -0.5 * x**2 + 0.125 * (x - 1) ** 2


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_ratio_of_normals_and_its_error(rng, share):
    z = []
    for _ in range(200):
        first, second = rng.normal(size=(4, 100)), rng.normal(1, 2, size=(2, 100))
        value, se = bridge(log_ratio(first), log_ratio(second), share).estimate
        z.append((value + np.log(2)) / se)
    # 200 standardized errors: their mean is N(0, 1/200) and their sd 1 ± 0.05; 4.5 of these sds, 1e-5.
    assert abs(np.mean(z)) < 4.5 / np.sqrt(200)
    assert abs(np.std(z) - 1) < 0.25


def test_error_accounts_for_autocorrelation(rng):
    z = []
    for _ in range(100):
        chains = np.empty((8, 500))
        chains[:, 0] = rng.normal(size=8)
        for t in range(1, 500):
            chains[:, t] = 0.9 * chains[:, t - 1] + np.sqrt(1 - 0.9**2) * rng.normal(size=8)
        proposal = rng.normal(1, 2, size=4000)
        normalized = np.log(2 * np.sqrt(2 * np.pi))
        value, se = bridge_to_proposal(log_ratio(chains) + normalized, log_ratio(proposal) + normalized)
        z.append((value - 0.5 * np.log(2 * np.pi)) / se)
    # An error that ignored autocorrelation would give an sd above 2. Sd of the sd 0.07: false alarms below 1e-5.
    assert abs(np.mean(z)) < 0.45
    assert 0.7 < np.std(z) < 1.4


def test_wishart_density_is_that_of_scipy(rng):
    psi = stats.wishart(6, np.eye(4)).rvs(random_state=rng)
    density = WishartDensity(3.5, psi)
    Omega = density.sample(rng, 5)
    log_p = 0.5 * 3.5 * np.linalg.slogdet(Omega)[1] - 0.5 * np.trace(Omega @ psi, axis1=-2, axis2=-1)
    expected = stats.wishart(3.5 + 4 + 1, np.linalg.inv(psi)).logpdf(np.moveaxis(Omega, 0, -1))
    np.testing.assert_allclose(log_p - density.log_normalizer, expected)


def test_wishart_fit_finds_its_parameters(rng):
    psi = stats.wishart(8, np.eye(3)).rvs(random_state=rng)
    found = fit_wishart(WishartDensity(12.0, psi).sample(rng, 50_000))
    assert found.m == pytest.approx(12.0, rel=0.05)  # 5 sds
    np.testing.assert_allclose(found.psi, psi, rtol=0.1, atol=0.05 * np.diag(psi).max())


@pytest.mark.slow
def test_path_against_bounded_weights(rng):
    """Wishart proposals have weights exp(−λΣ|ω|^q) ≤ 1: log Z = log Z_Wishart + log E exp(−λΣ|ω|^q)."""
    scatter = Scatter.from_data(rng.normal(size=(6, 3)))
    lam, q = [0.5, 3.0, 3.0], [1.0, 0.5, 0.25]
    chains = gibbs.sample(jax.random.key(0), scatter, np.repeat(lam, 4), np.repeat(q, 4), num_draws=200)
    draws = [chains.draws[4 * p : 4 * p + 4].reshape(-1, 3, 3) for p in range(3)]
    estimates = log_normalizers(
        jax.random.key(1), scatter, lam, q, draws, num_rungs=4, num_replicas=4, num_draws=500, num_warmup=40
    )
    for p, estimate in enumerate(estimates):
        wishart = WishartDensity(scatter.n, scatter.matrix + lam[p] * np.eye(3))
        weights = np.exp(log_factor(wishart.sample(rng, 200_000), lam[p], q[p], 3))
        expected, se = wishart.log_normalizer + np.log(weights.mean()), weights.std() / weights.mean() / np.sqrt(2e5)
        assert estimate.se < 0.03
        # 4 sds, three conditions: 2e-4.
        assert abs(estimate.value - expected) < 4 * np.hypot(estimate.se, se)


def test_draws_where_the_other_density_is_zero(rng):
    """Half a normal density, Z = √(π/2), bridged to N(0, 1), half of whose draws have target zero; |z| < 5, 6e-7."""
    exact, proposal = np.abs(rng.normal(size=(8, 100))), rng.normal(size=1000)
    constant = 0.5 * np.log(2 * np.pi)
    value, se = bridge_to_proposal(np.full(exact.shape, constant), np.where(proposal > 0, constant, -np.inf))
    assert abs(value - 0.5 * np.log(np.pi / 2)) < 5 * se
    assert 0 < se < 0.1
