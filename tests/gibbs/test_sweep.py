"""A sweep leaves the posterior invariant: Geweke's joint-distribution test and the closed-form Wishart."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ggmflow.gibbs import one_dimension, sweep
from tests.support.oracles import prior_draws

pytestmark = pytest.mark.usefixtures("x64")


def run(key, rows, scatter, n, lam, strength, q, num_sweeps, resample=None):
    """Independent chains (last axis); with `resample(key, rows)` new data are drawn before every sweep."""
    num_chains = rows.shape[-1]
    conditions = [jnp.full(num_chains, value) for value in (lam, strength, q)]

    def step(rows, key):
        key_data, key_noise = jax.random.split(key)
        S = scatter if resample is None else resample(key_data, rows)
        return sweep.sweep(sweep.draw_noise(key_noise, rows.shape), rows, S, n, *conditions), None

    return jax.lax.scan(step, rows, jax.random.split(key, num_sweeps))[0]


def compiled(function):
    return jax.jit(function, static_argnames=("num_sweeps", "resample"))


run_once = compiled(run)  # shared by the tests that leave the sampler as it is


# ------------------------------------------------------------------ Geweke (2004): data | Ω and Ω | data alternate
D, N, LAM = 3, 4, 1.0


def draw_data(key, Omega):
    """S = XᵀX of n rows from N(0, Ω⁻¹), for every chain."""
    factor = jnp.linalg.cholesky(jnp.moveaxis(Omega, -1, 0))
    Z = jax.random.normal(key, (Omega.shape[-1], D, N))
    X = jax.scipy.linalg.solve_triangular(factor, Z, lower=True, trans=1)
    return jnp.einsum("cin,cjn->ijc", X, X)


def geweke_z(q, run=run_once, resample=draw_data, num_chains=8000, num_sweeps=15):
    """Largest |z| between prior draws and what they become after data/Ω/data/Ω…, over functions of Ω."""
    rng = np.random.default_rng(5)
    prior, fresh = prior_draws(rng, D, LAM, q, num_chains), prior_draws(rng, D, LAM, q, 100_000)
    start = jnp.asarray(np.moveaxis(prior, 0, -1))
    out = run(jax.random.key(2), start, jnp.zeros((D, D, 1)), float(N), LAM, LAM, q, num_sweeps, resample)
    i, j = np.triu_indices(D)

    def functions(Omega):
        off = np.abs(Omega[:, i[i < j], j[i < j]])
        return np.column_stack([Omega[:, i, j], np.log(off), off > 0.1, np.linalg.slogdet(Omega)[1]])

    a, b = functions(np.moveaxis(out, -1, 0)), functions(fresh)
    return np.max(np.abs(a.mean(0) - b.mean(0)) / np.sqrt(a.var(0) / len(a) + b.var(0) / len(b)))


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.25, 1.0, 2.0])
def test_geweke_joint_distribution(q):
    """13 functions, |z| < 4.7: false-alarm rate below 4e-5 a test."""
    assert geweke_z(q) < 4.7


@pytest.mark.slow
def test_geweke_sees_a_wrong_shape_of_the_diagonal(monkeypatch):
    """The mistake of a published sampler, shape n/2 for γ, must be caught. (Five sweeps: it drifts to singular Ω.)"""
    monkeypatch.setattr(one_dimension, "schur_shape", lambda n_samples: n_samples / 2)
    assert geweke_z(1.0, run=compiled(partial(run)), num_sweeps=5) > 15


@pytest.mark.slow
def test_geweke_sees_a_wrong_scale_of_the_data():
    """S off by one tenth, as when a scatter matrix is divided by the wrong n."""
    assert geweke_z(1.0, resample=lambda key, Omega: 1.1 * draw_data(key, Omega)) > 8


# ------------------------------------------------------------------ l_q off: Wishart(n+d+1, (S+λI)⁻¹) in closed form
@pytest.mark.slow
@pytest.mark.parametrize("d, s, n", [(6, 6, 4), (6, 6, 40), (6, 2, 9), (5, 1, 3)])
def test_without_penalty_it_is_wishart(rng, d, s, n):
    """KS tests of diagonal entries (χ²) and log det, z test of the mean: |z| < 5 and p > 1e-6 of at most 48 checks."""
    X = rng.normal(size=(n, d))
    S, lam, nu = X.T @ X, 0.8, n + d + 1
    scale = np.linalg.inv(S + lam * np.eye(d))
    rows = jnp.asarray(np.repeat(nu * scale[:s, :, None], 4000, axis=2))
    # Strength 1e-30 and not 0: log 0 would be −∞.
    out = run_once(jax.random.key(0), rows, jnp.asarray(S[:, :, None]), float(n), lam, 1e-30, 1.0, 150)
    out = np.moveaxis(out, -1, 0)
    for k in range(s):
        assert stats.kstest(out[:, k, k] / scale[k, k], stats.chi2(nu).cdf).pvalue > 1e-6
    z = (out.mean(0) - nu * scale[:s]) / (out.std(0) / np.sqrt(len(out)))
    assert np.abs(z).max() < 5
    exact = stats.wishart(df=nu, scale=scale).rvs(20_000, random_state=1)
    log_det = np.linalg.slogdet(out[:, :, :s])[1]
    assert stats.ks_2samp(log_det, np.linalg.slogdet(exact[:, :s, :s])[1]).pvalue > 1e-6


def test_the_inverse_of_near_singular_matrices_is_accurate(rng):
    """Gauss–Jordan on correlations up to 1 − 1e-10: residual of the order of rounding times the condition number."""
    for gap in (1e-1, 1e-5, 1e-10):
        A = np.full((4, 4), 1 - gap) + gap * np.eye(4)
        A = A * np.outer(*[np.array([1e-3, 1, 50, 1e4])] * 2)
        out = np.asarray(sweep._inverse(jnp.asarray(np.stack([A, np.diag(np.diag(A))], axis=-1))))
        scale = np.sqrt(np.diag(A))
        residual = (out[..., 0] * np.outer(scale, scale)) @ (A / np.outer(scale, scale)) - np.eye(4)
        assert np.abs(residual).max() < 1e-14 / gap
        np.testing.assert_allclose(out[..., 1], np.diag(1 / np.diag(A)))


def test_an_indefinite_matrix_becomes_nan_and_stays():
    """So that the check after a block of sweeps detects it."""
    indefinite = jnp.asarray(np.array([[1.0, 2.0], [2.0, 1.0]])[:, :, None])
    assert np.all(np.isnan(sweep._inverse(indefinite)[1]))
    out = run(jax.random.key(0), indefinite, jnp.eye(2)[:, :, None], 5.0, 1.0, 1.0, 1.0, 3)
    assert np.all(np.isnan(out))
