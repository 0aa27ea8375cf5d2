"""EM for incomplete Gaussian rows: closed forms, monotonicity, and bias over many data sets."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, t

from ggmflow.data.missing import expected_scatter

COV = np.array([[1.0, 0.7, -0.3], [0.7, 2.0, 0.0], [-0.3, 0.0, 0.5]])
MEAN = np.array([1.0, -2.0, 0.5])


def draw(rng, n, cov=COV, mean=MEAN):
    return rng.multivariate_normal(mean, cov, size=n)


def drop_at_random(rng, X, fraction):
    """Remove values completely at random, but keep at least one in every row."""
    absent = rng.random(X.shape) < fraction
    absent[absent.all(axis=1), 0] = False
    return np.where(absent, np.nan, X)


def random_problem(seed, n, d, fraction=0.2):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(d, d)) / np.sqrt(d) + np.eye(d)
    return drop_at_random(rng, draw(rng, n, factor @ factor.T, rng.normal(size=d)), fraction)


def log_likelihood(X, mean, cov):
    """Log-likelihood of the observed entries, row by row."""
    seen = ~np.isnan(X)
    return sum(multivariate_normal.logpdf(x[o], mean[o], cov[np.ix_(o, o)]) for x, o in zip(X, seen, strict=True))


# ---------------------------------------------------------------- exact answers


@pytest.mark.parametrize("n", [2, 5, 100])
def test_complete_rows_give_their_scatter_matrix(n):
    X = draw(np.random.default_rng(0), n)
    result = expected_scatter(X)
    centred = X - X.mean(axis=0)
    np.testing.assert_allclose(result.matrix, centred.T @ centred, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(result.mean, X.mean(axis=0), rtol=1e-12)
    assert result.converged


def test_the_result_converges_to_that_of_complete_rows():
    rng = np.random.default_rng(1)
    X, u = draw(rng, 400), rng.random((400, 3))
    complete = np.cov(X.T, ddof=0)
    errors = []
    for fraction in (0.3, 0.1, 0.03, 0.01, 0.003):
        result = expected_scatter(np.where(u < fraction, np.nan, X)[~(u < fraction).all(axis=1)])
        errors.append(np.abs(result.matrix / 400 - complete).max())
    assert errors[-1] < 0.01 < errors[0]
    assert errors == sorted(errors, reverse=True)


def test_plain_em_finds_the_closed_form_of_a_monotone_pattern():
    """Anderson (1957): regress the incomplete column on the complete one among complete rows."""
    X = draw(np.random.default_rng(2), 60)[:, :2]
    X[40:, 1] = np.nan
    y, both = X[:, 0], X[:40]
    slope = np.cov(both.T, ddof=0)[0, 1] / both[:, 0].var()
    mean = np.array([y.mean(), both[:, 1].mean() + slope * (y.mean() - both[:, 0].mean())])
    residual = both[:, 1].var() - slope**2 * both[:, 0].var()
    cov = np.array([[y.var(), slope * y.var()], [slope * y.var(), residual + slope**2 * y.var()]])
    result = expected_scatter(X, ridge=0, tol=1e-13)
    np.testing.assert_allclose(result.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(result.matrix / 60, cov, rtol=1e-10)


def test_objective_is_the_observed_log_likelihood():
    X = random_problem(3, 50, 4)
    result = expected_scatter(X, ridge=0, tol=1e-12)
    start = log_likelihood(X, np.nanmean(X, axis=0), np.diag(np.nanvar(X, axis=0)))
    np.testing.assert_allclose(result.objective[0], start, rtol=1e-12)
    end = log_likelihood(X, result.mean, result.matrix / 50)
    np.testing.assert_allclose(result.objective[-1], end, rtol=1e-12)
    # A maximum: steps in every entry of μ and Σ, far larger than the convergence error, decrease it.
    for i in range(4):
        for sign in (-1, 1):
            assert log_likelihood(X, result.mean + sign * 1e-3 * np.eye(4)[i], result.matrix / 50) < end
            for j in range(4):
                step = np.zeros((4, 4))
                step[i, j] = step[j, i] = sign * 1e-3
                assert log_likelihood(X, result.mean, result.matrix / 50 + step) < end


def test_objective_is_penalized_by_the_ridge():
    X, ridge = random_problem(3, 50, 4), 0.1
    mean, variance = np.nanmean(X, axis=0), np.nanvar(X, axis=0)
    start = log_likelihood(X, mean, np.diag(variance * (1 + ridge))) - 0.5 * 50 * ridge * 4 / (1 + ridge)
    np.testing.assert_allclose(expected_scatter(X, ridge=ridge).objective[0], start, rtol=1e-12)


@pytest.mark.parametrize(("n", "d", "ridge"), [(60, 4, 0.0), (60, 4, None), (20, 15, None), (10, 20, None)])
@pytest.mark.parametrize("seed", range(3))
def test_objective_never_decreases(seed, n, d, ridge):
    result = expected_scatter(random_problem(seed, n, d), ridge=ridge)
    assert result.converged
    assert len(result.objective) > 3
    assert np.diff(result.objective).min() > -1e-12 * np.abs(result.objective).max()  # rounding only


@pytest.mark.parametrize(("n", "d"), [(20, 15), (15, 15), (10, 20)])
def test_few_rows_still_converge_to_a_semidefinite_matrix(n, d):
    X = random_problem(0, n, d)
    X[:, 1] = 2 * X[:, 0]  # exactly collinear, and missing together
    result = expected_scatter(X)
    assert result.converged
    eigenvalues = np.linalg.eigvalsh(result.matrix)
    assert eigenvalues[0] > -1e-12 * eigenvalues[-1]


def test_the_result_is_equivariant_under_units():
    X, units = random_problem(4, 30, 4), np.array([1e-6, 1.0, 1e3, 1e6])
    a, b = expected_scatter(X), expected_scatter(X * units)
    np.testing.assert_allclose(a.matrix * np.outer(units, units), b.matrix, rtol=1e-8)
    np.testing.assert_allclose(a.mean * units, b.mean, rtol=1e-8)


# ---------------------------------------------------------------- failures


def test_a_run_without_convergence_is_reported():
    result = expected_scatter(random_problem(0, 30, 4), max_iter=2)
    assert not result.converged
    assert len(result.objective) == 2
    assert "stopped after 2 iterations, still moving by" in result.message
    assert np.isfinite(result.matrix).all()


def test_plain_em_raises_for_collinear_columns():
    X = draw(np.random.default_rng(0), 30)
    X[:, 1] = 2 * X[:, 0]
    X[::3, 2] = np.nan
    assert expected_scatter(X).converged
    with pytest.raises(ValueError, match="singular: this EM needs ridge > 0"):
        expected_scatter(X, ridge=0)


@pytest.mark.parametrize("where", [np.s_[0, :], np.s_[:, 0]])
def test_empty_rows_and_columns_raise(where):
    X = random_problem(0, 30, 3)
    X[where] = np.nan
    with pytest.raises(ValueError, match="an observed value in every row and in every column"):
        expected_scatter(X)


# ---------------------------------------------------------------- bias over data sets

ENTRIES = np.triu_indices(3)
FALSE_ALARM = 1e-4  # rate of each unbiasedness test below, over its 9 t-statistics (Bonferroni), if keys were random


def em(X):
    result = expected_scatter(X)
    # ddof=1 removes the part of the maximum-likelihood bias that complete data have as well.
    return result.mean, result.matrix / (len(X) - 1)


def mean_imputation(X):
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    return filled.mean(axis=0), np.cov(filled.T)


def complete_rows(X):
    complete = X[~np.isnan(X).any(axis=1)]
    return complete.mean(axis=0), np.cov(complete.T)


def mcar(rng, X):
    return drop_at_random(rng, X, 0.25)


def mar(rng, X):
    """Remove most values of the second column where the first, which is always observed, is large."""
    X = X.copy()
    X[(rng.random(len(X)) < 0.9) & (X[:, 0] > MEAN[0]), 1] = np.nan
    return X


def bias_statistics(estimate, remove, num_sets=120, n=500):
    """t-statistics of mean and covariance estimates against the truth."""
    rng = np.random.default_rng(6)
    estimates = []
    for _ in range(num_sets):
        mean, cov = estimate(remove(rng, draw(rng, n)))
        estimates.append(np.concatenate([mean - MEAN, (cov - COV)[ENTRIES]]))
    estimates = np.array(estimates)
    return estimates.mean(axis=0) / (estimates.std(axis=0, ddof=1) / np.sqrt(num_sets))


LIMIT = t.isf(FALSE_ALARM / 2 / 9, df=119)


@pytest.mark.parametrize("remove", [mcar, mar])
def test_em_is_unbiased(remove):
    assert np.abs(bias_statistics(em, remove)).max() < LIMIT


@pytest.mark.parametrize(
    ("estimate", "remove"), [(mean_imputation, mcar), (mean_imputation, mar), (complete_rows, mar)]
)
def test_the_bias_test_detects_biased_methods(estimate, remove):
    assert np.abs(bias_statistics(estimate, remove)).max() > 3 * LIMIT
