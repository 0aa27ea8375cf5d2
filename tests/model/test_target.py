"""The target against a direct evaluation by slogdet and traces, finite differences, and its reductions."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ggmflow.model import target

SIZES = [(2, 2), (3, 1), (5, 5), (6, 2), (6, 5)]  # (d, s)
CONDITIONS = [(0.3, 0.25, 1.0), (2.0, 1.0, 1.0), (7.0, 0.5, 0.01), (1.0, 2.0, 5.0)]  # (λ, q, T)


def random_problem(rng, d, n=7):
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    Z = rng.normal(size=(d + 3, d))
    return X.T @ X, n, Z.T @ Z / d  # S, n, Ω


def direct(Omega, S, n, lam, q, T, s):
    """§1 of the model, written with determinants, inverses and traces; s < d by the blanket formula."""
    d = len(S)
    i, j = np.triu_indices(d, 1)
    penalty = np.sum(np.abs(Omega[i, j][i < s]) ** q)
    A = S + lam * np.eye(d)
    O11, O12 = Omega[:s, :s], Omega[:s, s:]
    exponent = np.trace(O11 @ A[:s, :s]) + 2 * np.trace(O12.T @ S[:s, s:])
    exponent += np.trace(O12.T @ np.linalg.inv(O11) @ O12 @ A[s:, s:])
    return (0.5 * n * np.linalg.slogdet(O11)[1] - 0.5 * exponent - lam * penalty) / T


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("d, s", SIZES)
@pytest.mark.parametrize("lam, q, T", CONDITIONS)
def test_equals_direct_evaluation(rng, d, s, lam, q, T):
    S, n, Omega = random_problem(rng, d)
    L = jnp.asarray(np.linalg.cholesky(Omega)[:, :s])
    got = target.unnormalized_log_prob(L, jnp.asarray(S), n, lam, q, T)
    np.testing.assert_allclose(got, direct(Omega, S, n, lam, q, T, s), rtol=1e-11)


@pytest.mark.usefixtures("x64")
def test_full_model_is_the_textbook_density(rng):
    S, n, Omega = random_problem(rng, 5)
    i, j = np.triu_indices(5, 1)
    expected = 0.5 * n * np.linalg.slogdet(Omega)[1] - 0.5 * np.trace(Omega @ S) - np.trace(Omega)
    expected -= 2.0 * np.sum(np.sqrt(np.abs(Omega[i, j])))
    got = target.unnormalized_log_prob(jnp.linalg.cholesky(jnp.asarray(Omega)), jnp.asarray(S), n, 2.0, 0.5)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("d, s", SIZES)
def test_gradients_equal_finite_differences(rng, d, s):
    S, n, Omega = random_problem(rng, d)
    x = target.to_entries(jnp.asarray(np.linalg.cholesky(Omega)[:, :s]))

    def f(x, lam, q, T):
        return target.unnormalized_log_prob(target.to_columns(x, d, s), jnp.asarray(S), n, lam, q, T)

    point = (x, 1.3, 0.6, 0.7)
    gradients = jax.grad(f, argnums=(0, 1, 2, 3))(*point)
    h = 1e-6
    for k in range(x.size):
        step = jnp.zeros_like(x).at[k].set(h)
        numeric = (f(x + step, *point[1:]) - f(x - step, *point[1:])) / (2 * h)
        np.testing.assert_allclose(gradients[0][k], numeric, rtol=2e-5, atol=1e-5)
    for k in (1, 2, 3):
        up, down = list(point), list(point)
        up[k], down[k] = up[k] + h, down[k] - h
        np.testing.assert_allclose(gradients[k], (f(*up) - f(*down)) / (2 * h), rtol=1e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("d, s", SIZES)
def test_without_penalty_it_is_a_wishart(rng, d, s):
    """With λ|ω|^q replaced by nothing, log p̃ is Wishart(n+d+1, (S+λI)⁻¹) up to one constant (s = d),
    and the volume element turns it into the Bartlett density of L (any s)."""
    S, n, _ = random_problem(rng, d)
    lam, nu = 1.7, n + d + 1
    values, expected = [], []
    for seed in range(4):
        Omega = stats.wishart(df=nu, scale=np.linalg.inv(S + lam * np.eye(d))).rvs(random_state=seed).reshape(d, d)
        L = jnp.asarray(np.linalg.cholesky(Omega)[:, :s])
        off = target.to_entries(L @ L[:s].T)[np.greater(*target.entry_indices(d, s))]
        values.append(target.unnormalized_log_prob(L, jnp.asarray(S), n, lam, 0.5) + lam * jnp.sum(jnp.abs(off) ** 0.5))
        if s == d:
            expected.append(stats.wishart(df=nu, scale=np.linalg.inv(S + lam * np.eye(d))).logpdf(Omega))
        else:  # B = UᵀL with Ψ = UUᵀ is the Bartlett factor: χ diagonal, normal below, constant Jacobian
            U = np.linalg.cholesky((S + lam * np.eye(d))[::-1, ::-1])[::-1, ::-1]
            B = U.T @ np.asarray(L)
            log_q = sum(stats.chi(nu - j).logpdf(B[j, j]) + stats.norm.logpdf(B[j + 1 :, j]).sum() for j in range(s))
            expected.append(log_q - float(target.log_volume(L)))
    np.testing.assert_allclose(np.diff(values), np.diff(expected), rtol=1e-9)


@pytest.mark.usefixtures("x64")
def test_temperature_scales_n_s_and_lam(rng):
    S, n, Omega = random_problem(rng, 4)
    L, T = jnp.linalg.cholesky(jnp.asarray(Omega)), 0.37
    tempered = target.unnormalized_log_prob(L, jnp.asarray(S), n, 2.0, 0.5, T)
    scaled = target.unnormalized_log_prob(L, jnp.asarray(S / T), n / T, 2.0 / T, 0.5)
    np.testing.assert_allclose(tempered, scaled, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("d, s", SIZES)
def test_log_volume_is_the_jacobian(rng, d, s):
    x = jnp.asarray(rng.normal(size=len(target.entry_indices(d, s)[0])))
    diagonal = np.equal(*target.entry_indices(d, s))
    x = jnp.where(diagonal, jnp.abs(x) + 0.1, x)

    def entries_of_omega(x):
        L = target.to_columns(x, d, s)
        return target.to_entries(L @ L[:s].T)

    expected = jnp.linalg.slogdet(jax.jacobian(entries_of_omega)(x))[1]
    np.testing.assert_allclose(target.log_volume(target.to_columns(x, d, s)), expected, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("scale", [0.0, 1e-8, 1e-3, 1.0, 1e4])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_value_and_gradient_are_finite_everywhere(q, scale, dtype):
    """ω_ij = ℓ_j·L_ij spans 0 to 1e4 in both precisions; at 0 exactly the l_q term's gradient is 0."""
    with jax.enable_x64(dtype == jnp.float64):
        L = jnp.eye(3, dtype=dtype).at[2, 0].set(scale)
        S = jnp.zeros((3, 3), dtype)
        args = (S, jnp.asarray(5, dtype), jnp.asarray(2, dtype), jnp.asarray(q, dtype), jnp.asarray(1, dtype))
        value, gradients = jax.value_and_grad(target.unnormalized_log_prob, argnums=(0, 2, 3, 4, 5))(L, *args)
        assert np.isfinite(value)
        assert all(np.all(np.isfinite(g)) for g in jax.tree.leaves(gradients))
        if scale == 0:
            np.testing.assert_array_equal(gradients[0][2, 0], 0)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("x", [-1e4, -1e-8, 1e-8, 0.3, 1e4])
@pytest.mark.parametrize("q", [0.1, 0.5, 1.0, 2.0])
def test_absolute_power_is_exact(x, q):
    value, gradient = jax.value_and_grad(target.absolute_power)(jnp.asarray(x), q)
    np.testing.assert_allclose(value, abs(x) ** q, rtol=1e-13)
    np.testing.assert_allclose(gradient, q * abs(x) ** (q - 1) * np.sign(x), rtol=1e-13)


@pytest.mark.usefixtures("x64")
def test_batched_by_vmap_with_a_condition_per_draw_and_no_factorization(rng):
    S, n, _ = random_problem(rng, 4)
    Omega = np.stack([random_problem(rng, 4)[2] for _ in range(3)])
    L = jnp.linalg.cholesky(jnp.asarray(Omega))
    lam, q, T = jnp.asarray([0.5, 1, 2]), jnp.asarray([0.3, 1, 2]), jnp.asarray([1, 0.1, 2.0])
    batched = jax.vmap(target.unnormalized_log_prob, in_axes=(0, None, None, 0, 0, 0))
    got = batched(L, jnp.asarray(S), n, lam, q, T)
    expected = [direct(Omega[k], S, n, lam[k], q[k], T[k], 4) for k in range(3)]
    np.testing.assert_allclose(got, expected, rtol=1e-11)
    program = str(jax.make_jaxpr(batched)(L, jnp.asarray(S), n, lam, q, T))
    assert not re.search(r"\b(cholesky|lu|triangular_solve|eigh|qr)\b", program)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("d, s", SIZES)
def test_rows_and_columns_are_two_views_of_one_block(rng, d, s):
    _, _, Omega = random_problem(rng, d)
    L = target.cholesky_columns(jnp.asarray(Omega[:s]))
    np.testing.assert_allclose(L, np.linalg.cholesky(Omega)[:, :s], atol=1e-12)
    np.testing.assert_allclose(L[:s] @ L.T, Omega[:s], atol=1e-12)
    np.testing.assert_array_equal(target.to_columns(target.to_entries(L), d, s), L)
