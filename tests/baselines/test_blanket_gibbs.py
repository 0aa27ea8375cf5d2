"""Kaufmann's sampler: its one-dimensional draws against SciPy, its posterior against brute force and our sampler."""

import importlib
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ggmflow.baselines import blanket_gibbs
from ggmflow.baselines.blanket_gibbs import draw_inverse_mixing, draw_normal, draw_schur_complement
from ggmflow.data.scatter import Scatter
from ggmflow.errors.argument import ArgumentError
from ggmflow.gibbs import sample
from tests.support.oracles import weighted_moments


def make_scatter(d, n=20, seed=3):
    rng = np.random.default_rng(seed)
    return Scatter.from_data(rng.normal(size=(n, d)) @ rng.normal(size=(d, d)))


# ------------------------------------------------------------------------------------------ the draws it is made of
@pytest.mark.parametrize("omega, lam", [(0.3, 2.0), (-5.0, 0.1), (1e-4, 30.0), (40.0, 8.0)])
def test_mixing_variables_are_inverse_gaussian(x64, omega, lam):
    """KS, 20 000 draws, p > 1e-6, which is the false-alarm rate; SciPy has mean μ·scale for shape `scale`."""
    drawn = draw_inverse_mixing(jax.random.key(0), jnp.full(20_000, omega), jnp.array(lam))
    exact = stats.invgauss(mu=1 / (lam * abs(omega)), scale=lam**2)
    assert stats.kstest(np.asarray(drawn), exact.cdf).pvalue > 1e-6


def test_mixing_variables_of_zero_are_finite(x64):
    """An entry that underflows to 0 gets the Lévy limit of the law, 1/τ = λ²/χ²: KS, p > 1e-6."""
    drawn = np.asarray(draw_inverse_mixing(jax.random.key(0), jnp.zeros(20_000), jnp.array(2.0)))
    assert np.all(np.isfinite(drawn) & (drawn > 0))
    assert stats.kstest(4 / drawn, stats.chi2(1).cdf).pvalue > 1e-6


draw_many = jax.jit(jax.vmap(draw_schur_complement, (0, None, None, None)))  # compiled once


@pytest.mark.slow
@pytest.mark.parametrize(
    "n, a, b", [(10, 3.0, 2.0), (190, 200.0, 30.0), (4, 0.1, 500.0), (1, 2.0, 1e-8), (118, 5.0, 0)]
)
def test_schur_complements_follow_their_law(x64, n, a, b):
    """KS against the generalized inverse Gaussian, the Gamma at b = 0; 20 000 draws, p > 1e-6, the false-alarm rate."""
    keys = jax.random.split(jax.random.key(1), 20_000)
    drawn = jax.jit(jax.vmap(draw_schur_complement, (0, None, None, None)))(
        keys, *map(jnp.array, (float(n), a, float(b)))
    )
    p = n / 2 + 1
    exact = stats.geninvgauss(p, np.sqrt(a * b), scale=np.sqrt(b / a)) if b else stats.gamma(p, scale=2 / a)
    # SciPy's cdf integrates: a grid of it is enough for a distance of this size.
    grid = exact.ppf(np.linspace(0.0005, 0.9995, 400))
    assert np.all(np.diff(grid) > 0)
    distance = np.abs(np.searchsorted(np.sort(np.asarray(drawn)), grid) / len(keys) - np.linspace(0.0005, 0.9995, 400))
    assert stats.kstwobign.sf(distance.max() * np.sqrt(len(keys))) > 1e-6


def test_normal_draws_have_the_right_moments(x64):
    """20 000 draws of 3 entries: 3 means, 6 covariances, |z| < 5: false-alarm rate 5e-6."""
    A = np.random.default_rng(0).normal(size=(3, 6))
    P, b = A @ A.T, np.array([1.0, -2.0, 0.5])
    keys = jax.random.split(jax.random.key(2), 20_000)
    drawn = np.asarray(jax.vmap(lambda key: draw_normal(key, jnp.asarray(P), jnp.asarray(b)))(keys))
    C = np.linalg.inv(P)
    z_mean = (drawn.mean(0) - C @ b) / np.sqrt(np.diag(C) / len(keys))
    spread = np.sqrt((np.outer(np.diag(C), np.diag(C)) + C**2) / len(keys))
    assert np.abs(z_mean).max() < 5
    assert np.abs((np.cov(drawn.T) - C) / spread).max() < 5


# ------------------------------------------------------------------------------------------------------ the posterior
@pytest.mark.parametrize("d, query, lam", [(4, [2, 0], 2.0), pytest.param(4, ["x1"], 0.5, marks=pytest.mark.slow)])
def test_equals_importance_sampling(d, query, lam):
    """Means and sds of up to 7 entries, |z| < 5: false-alarm rate below 1e-5 a test."""
    scatter = make_scatter(d, n=12)
    chains = blanket_gibbs(scatter, query, lam, num_chains=8, num_draws=3000)
    first = scatter.index(query).tolist()
    ordered = scatter.reorder([*first, *(k for k in range(d) if k not in first)])
    mean, sd, ess = weighted_moments(ordered.matrix, scatter.n, lam, 1.0, len(query))
    assert ess > 500  # the oracle must be able to judge
    assert chains.rhat.max() < 1.02
    assert np.all(np.abs(chains.pooled.mean(0) - mean) < 5 * sd * np.sqrt(1 / chains.ess_bulk + 1 / ess))
    # The sd of a sum of squares is governed by the kurtosis; 6 is generous for these posteriors.
    assert np.all(np.abs(chains.pooled.std(0) / sd - 1) < 5 * np.sqrt(1.5 * (1 / chains.ess_tail + 1 / ess)))


def largest_t(ours, exact):
    """Largest |t| between means of two sets of independent chains: of entries, and of shares below three quantiles."""
    i, j = np.triu_indices(ours.draws.shape[2], m=ours.draws.shape[3])
    levels = np.quantile(exact.pooled[:, i, j], [0.05, 0.5, 0.95], axis=0)

    def per_chain(chains):
        draws = chains.draws[:, :, i, j]
        shares = [np.mean(draws < level, axis=1) for level in levels]
        return np.stack([draws.mean(1), *shares], axis=1)

    a, b = per_chain(ours), per_chain(exact)
    return np.max(np.abs(a.mean(0) - b.mean(0)) / np.sqrt(a.var(0, ddof=1) / len(a) + b.var(0, ddof=1) / len(b)))


@pytest.mark.slow
def test_equals_the_exact_sampler():
    """21 entries of s = 3, d = 8, their means and three quantiles, 32 chains against 64, as many rows as columns.

    |t| < 6 of 84: false-alarm rate 1.1e-4 with 31 degrees of freedom. One row less must be seen: n − 1 beside the
    same S is the mistake of a Schur complement whose shape is ½ too small.
    """
    scatter, lam = make_scatter(8, n=8), 2.0
    exact = sample(jax.random.key(0), scatter, lam, n_query=3, num_chains=64, num_draws=1000)
    options = {"num_chains": 32, "num_draws": 500, "burn_in": 300, "thin": 2}
    assert exact.rhat.max() < 1.02
    assert largest_t(blanket_gibbs(scatter, range(3), lam, **options), exact) < 6
    assert largest_t(blanket_gibbs(replace(scatter, n=scatter.n - 1), range(3), lam, **options), exact) > 9


# ----------------------------------------------------------------------------------------------------- public interface
@pytest.mark.slow
def test_order_of_rows_and_columns():
    """Rows and first columns in the order of the query, wherever they are in the data; means agree to 5 errors."""
    scatter = make_scatter(4)
    ours = blanket_gibbs(scatter, ["x3", "x1"], 2.0, num_draws=2000)
    exact = sample(jax.random.key(0), scatter.reorder([3, 1, 0, 2]), 2.0, n_query=2)
    assert ours.draws.shape == (4, 2000, 2, 4)
    error = exact.pooled.std(0) * np.sqrt(1 / ours.ess_bulk + 1 / exact.ess_bulk)
    assert np.all(np.abs(ours.pooled.mean(0) - exact.pooled.mean(0)) < 5 * error)
    np.testing.assert_allclose(ours.draws[..., 0, 1], ours.draws[..., 1, 0], rtol=1e-12)
    assert np.linalg.eigvalsh(ours.draws[..., :2]).min() > 0


def test_the_same_seed_gives_the_same_draws_and_settings_of_jax_do_not_change():
    scatter, before = make_scatter(4), jax.numpy.ones(1).dtype
    options = {"num_chains": 2, "num_draws": 60, "burn_in": 10}  # more than a block of draws
    one, again = (blanket_gibbs(scatter, [0, 1], 2.0, **options, random_state=5) for _ in range(2))
    other = blanket_gibbs(scatter, [0, 1], 2.0, **options, random_state=6)
    np.testing.assert_array_equal(one.draws, again.draws)
    assert not np.allclose(one.draws, other.draws)
    assert not np.allclose(one.draws[0], one.draws[1])
    np.testing.assert_array_equal(np.column_stack([one.lam, one.q, one.temperature]), [[2.0, 1.0, 1.0]] * 2)
    assert jax.numpy.ones(1).dtype == before == np.float32


def test_thinning_keeps_every_kth_state():
    """Neighbours in a thinned chain are less alike: this posterior's diagonal has a memory of several sweeps."""
    scatter = make_scatter(4, n=4)
    ess = [blanket_gibbs(scatter, [0, 1], 0.3, num_draws=500, thin=thin).ess_bulk.min() for thin in (1, 10)]
    assert ess[1] > 2 * ess[0]


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(query=[0, 1, 2]), r"query=\[0, 1, 2\] holds all columns: use bayesian_graphical_lasso"),
        (dict(lam=0.0), "lam must be a positive number, got 0"),
        (dict(lam=np.inf), "lam must be a positive number"),
        (dict(lam="auto"), "lam must be a positive number, got 'auto'"),
        (dict(num_draws=0), "num_draws must be a whole number, at least 1"),
        (dict(num_chains=1.5), "num_chains must be a whole number"),
        (dict(burn_in=-1), "burn_in must be a whole number, at least 0"),
        (dict(thin=True), "thin must be a whole number"),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        blanket_gibbs(**{"scatter": make_scatter(3), "query": 0, "lam": 1.0} | change)
    assert {caught.value.argument: caught.value.value} == change


def test_an_overflow_asks_for_a_larger_lam(monkeypatch):
    module = importlib.import_module("ggmflow.baselines.blanket_gibbs")
    monkeypatch.setattr(module, "_advance", lambda key, rows, S, n, lam, sweeps: (rows, np.full((5, 1, 3), np.inf)))
    with pytest.raises(ArgumentError, match=r"lam=1e-05 made a chain exceed double precision: use a larger one"):
        blanket_gibbs(make_scatter(3), 0, 1e-5, num_draws=5)


def test_an_unknown_column_is_named():
    with pytest.raises(ValueError, match="no column is named 'z'"):
        blanket_gibbs(make_scatter(3), "z", 1.0)


def test_data_must_be_a_scatter():
    with pytest.raises(TypeError, match=r"use Scatter.from_data"):
        blanket_gibbs(np.eye(3), 0, 1.0)
