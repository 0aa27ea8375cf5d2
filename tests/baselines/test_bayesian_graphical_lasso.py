"""λ under its hyperprior against quadrature of p(λ)·p(X|λ), with the evidence by importance sampling."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp, multigammaln

from ggmflow.baselines import bayesian_graphical_lasso
from ggmflow.data.scatter import Scatter
from tests.support.oracles import log_factor


def log_evidence(S, n, lam, num_draws=20_000):
    """log Z_post(λ) − log Z_prior(λ) up to a constant, at q = 1 where Z_prior ∝ λ^{−d(d+1)/2}."""
    d, nu = len(S), n + len(S) + 1
    scale = np.linalg.inv(S + lam * np.eye(d))
    log_wishart = 0.5 * nu * (np.linalg.slogdet(scale)[1] + d * np.log(2)) + multigammaln(nu / 2, d)
    weights = log_factor(stats.wishart(df=nu, scale=scale).rvs(num_draws, random_state=0), lam, 1.0, d)
    return log_wishart + logsumexp(weights) - np.log(num_draws) + 0.5 * d * (d + 1) * np.log(lam)


@pytest.mark.slow
def test_lam_follows_its_posterior():
    """Mean and sd of λ over 64 independent chains, |t₆₃| < 4.5 (false-alarm rate 3e-5), 1 % for the oracle's error."""
    rng = np.random.default_rng(1)
    scatter = Scatter.from_data(rng.normal(size=(10, 3)) @ rng.normal(size=(3, 3)))
    shape, rate = 2.0, 0.5
    lam = np.linspace(0.02, 25, 60)  # 300 points give the same mean and sd to 1e-4
    log_p = [(shape - 1) * np.log(x) - rate * x + log_evidence(scatter.matrix, scatter.n, x) for x in lam]
    p = np.exp(np.array(log_p) - max(log_p))
    p /= p.sum()
    mean, sd = p @ lam, np.sqrt(p @ lam**2 - (p @ lam) ** 2)
    chains = bayesian_graphical_lasso(scatter, hyperprior=[shape, rate], num_chains=64, num_draws=1000)
    draws = chains.lam
    assert draws.shape == (64, 1000)
    # Chains are independent, so their means give an honest standard error.
    error = draws.mean(1).std(ddof=1) / 8
    assert abs(draws.mean() - mean) < 4.5 * error + 0.01 * mean
    spread = draws.std(1)
    assert abs(spread.mean() / sd - 1) < 4.5 * spread.std(ddof=1) / 8 / sd + 0.02


def test_a_given_lam_is_not_drawn():
    scatter = Scatter.from_data(np.random.default_rng(0).normal(size=(9, 3)))
    chains = bayesian_graphical_lasso(scatter, 2.5, num_chains=16, num_draws=50)
    np.testing.assert_array_equal(chains.lam, np.full(16, 2.5))


def test_lam_and_hyperprior_exclude_each_other():
    scatter = Scatter.from_data(np.random.default_rng(0).normal(size=(9, 3)))
    with pytest.raises(ValueError, match="either lam or a hyperprior"):
        bayesian_graphical_lasso(scatter, 2.0, hyperprior=(1.0, 0.1))
