"""A sweep leaves the posterior invariant: Geweke's joint-distribution test and the closed-form Wishart."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ggmflow.gibbs import one_dimension, sweep
from tests.oracles import prior_draws

pytestmark = pytest.mark.usefixtures("x64")


def run(key, rows, scatter, n, ridge, strength, q, num_sweeps, resample=None):
    """Independent chains (leading axis); with `resample(key, rows)` new data are drawn before every sweep."""

    def chain(key, rows):
        def step(carry, key):
            rows, sigma = carry
            key_data, key_noise = jax.random.split(key)
            S = scatter if resample is None else resample(key_data, rows)
            noise = sweep.draw_noise(key_noise, *rows.shape)
            return sweep.sweep(noise, rows, sigma, S, n, ridge, strength, q), None

        start = (rows, jnp.linalg.inv(rows[:, : len(rows)]))
        return jax.lax.scan(step, start, jax.random.split(key, num_sweeps))[0]

    return jax.vmap(chain)(jax.random.split(key, len(rows)), rows)


def compiled(function):
    return jax.jit(function, static_argnames=("num_sweeps", "resample"))


run_once = compiled(run)  # shared by the tests that leave the sampler as it is


# ------------------------------------------------------------------ Geweke (2004): data | Ω and Ω | data alternate
D, N, LAM = 3, 4, 1.0


def draw_data(key, Omega):
    """S = XᵀX of n rows from N(0, Ω⁻¹)."""
    X = jax.random.normal(key, (N, D))
    X = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(Omega), X.T, lower=True, trans=1).T
    return X.T @ X


def geweke_z(q, run=run_once, resample=draw_data, num_chains=8000, num_sweeps=15):
    """Largest |z| between prior draws and what they become after data/Ω/data/Ω…, over functions of Ω."""
    rng = np.random.default_rng(5)
    prior, fresh = prior_draws(rng, D, LAM, q, num_chains), prior_draws(rng, D, LAM, q, 100_000)
    out, _ = run(jax.random.key(2), jnp.asarray(prior), jnp.zeros((D, D)), float(N), LAM, LAM, q, num_sweeps, resample)
    i, j = np.triu_indices(D)

    def functions(Omega):
        off = np.abs(Omega[:, i[i < j], j[i < j]])
        return np.column_stack([Omega[:, i, j], np.log(off), off > 0.1, np.linalg.slogdet(Omega)[1]])

    a, b = functions(np.asarray(out)), functions(fresh)
    return np.max(np.abs(a.mean(0) - b.mean(0)) / np.sqrt(a.var(0) / len(a) + b.var(0) / len(b)))


@pytest.mark.parametrize("q", [0.25, 1.0, 2.0])
def test_geweke_joint_distribution(q):
    """13 functions, |z| < 4.7: false-alarm rate below 4e-5 a test."""
    assert geweke_z(q) < 4.7


def test_geweke_sees_a_wrong_shape_of_the_diagonal(monkeypatch):
    """The mistake of a published sampler, shape n/2 for γ, must be caught."""
    monkeypatch.setattr(one_dimension, "schur_shape", lambda n_samples: n_samples / 2)
    assert geweke_z(1.0, run=compiled(partial(run))) > 15


def test_geweke_sees_a_wrong_scale_of_the_data():
    """S off by one tenth, as when a scatter matrix is divided by the wrong n."""
    assert geweke_z(1.0, resample=lambda key, Omega: 1.1 * draw_data(key, Omega)) > 8


# ------------------------------------------------------------------ l_q off: Wishart(n+d+1, (S+λI)⁻¹) in closed form
@pytest.mark.parametrize("d, s, n", [(6, 6, 4), (6, 6, 40), (6, 2, 9), (5, 1, 3)])
def test_without_penalty_it_is_wishart(rng, d, s, n):
    """KS tests of diagonal entries (χ²) and log det, z test of the mean: |z| < 5 and p > 1e-6 of at most 48 checks."""
    X = rng.normal(size=(n, d))
    S, lam, nu = X.T @ X, 0.8, n + d + 1
    scale = np.linalg.inv(S + lam * np.eye(d))
    rows = jnp.asarray(np.broadcast_to(nu * scale[:s], (4000, s, d)))
    # Strength 1e-30 and not 0: log 0 would be −∞.
    out, sigma = run_once(jax.random.key(0), rows, jnp.asarray(S), float(n), lam, 1e-30, 1.0, 150)
    out = np.asarray(out)
    for k in range(s):
        assert stats.kstest(out[:, k, k] / scale[k, k], stats.chi2(nu).cdf).pvalue > 1e-6
    z = (out.mean(0) - nu * scale[:s]) / (out.std(0) / np.sqrt(len(out)))
    assert np.abs(z).max() < 5
    exact = stats.wishart(df=nu, scale=scale).rvs(20_000, random_state=1)
    log_det = np.linalg.slogdet(out[:, :, :s])[1]
    assert stats.ks_2samp(log_det, np.linalg.slogdet(exact[:, :s, :s])[1]).pvalue > 1e-6
    np.testing.assert_allclose(np.asarray(sigma) @ out[:, :, :s], np.broadcast_to(np.eye(s), sigma.shape), atol=1e-10)
