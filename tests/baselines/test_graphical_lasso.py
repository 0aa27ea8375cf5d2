"""The graphical lasso satisfies its optimality conditions, reduces as it must and agrees with R's glasso."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.covariance import graphical_lasso as sklearn_graphical_lasso

from ggmflow.baselines import graphical_lasso

REFERENCE = Path(__file__).parents[1] / "reference"


def empirical_covariance(n: int, d: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ (np.eye(d) + 0.3 * rng.normal(size=(d, d)))
    X -= X.mean(axis=0)
    return X.T @ X / n


def violation(S: np.ndarray, penalty: np.ndarray, precision: np.ndarray) -> float:
    """Distance of 0 from the subdifferential, written independently of the solver."""
    gradient = S - np.linalg.inv(precision)
    worst = 0.0
    for i in range(len(S)):
        for j in range(len(S)):
            if precision[i, j] > 0:
                worst = max(worst, abs(gradient[i, j] + penalty[i, j]))
            elif precision[i, j] < 0:
                worst = max(worst, abs(gradient[i, j] - penalty[i, j]))
            else:
                worst = max(worst, abs(gradient[i, j]) - penalty[i, j])
    return worst


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_agrees_with_r_glasso(k):
    summary = pd.read_csv(REFERENCE / "glasso_path_summary.csv").set_index("k").loc[k]
    S = np.loadtxt(REFERENCE / "S_over_n.csv", delimiter=",")
    expected = np.loadtxt(REFERENCE / f"glasso_pdTRUE_rho0{k}.csv", delimiter=",")
    result = graphical_lasso(S, n_samples=40, lam=40 * summary["rho"])
    np.testing.assert_allclose(result.precision, expected, atol=1e-7)
    np.testing.assert_array_equal(result.precision != 0, expected != 0)
    assert result.objective == pytest.approx(summary["objective"], abs=1e-9)


@pytest.mark.parametrize(("n", "d"), [(8, 15), (60, 15), (25, 30)])
@pytest.mark.parametrize("rho", [0.02, 0.1, 0.5])
def test_optimality(n, d, rho):
    S = empirical_covariance(n, d)
    result = graphical_lasso(S, n, n * rho)
    assert result.converged
    assert result.kkt_residual <= 1e-8
    assert violation(S, np.full_like(S, rho), result.precision) <= 1e-8 * np.max(np.diag(S) + rho)
    assert -1e-10 <= result.duality_gap <= 1e-5
    np.testing.assert_array_equal(result.precision, result.precision.T)
    np.testing.assert_allclose(result.precision @ result.covariance, np.eye(d), atol=1e-9)
    np.testing.assert_allclose(np.diag(result.covariance), np.diag(S) + rho, rtol=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_optimality_with_weights_from_zero_to_infinity(seed):
    rng = np.random.default_rng(seed)
    n, d, lam = 12, 20, 3.0
    S = empirical_covariance(n, d, seed)
    w = np.exp(2 * rng.normal(size=(d, d)))
    w[rng.random((d, d)) < 0.2] = 0.0
    w[rng.random((d, d)) < 0.2] = np.inf
    w = np.maximum(w, w.T)
    np.fill_diagonal(w, rng.uniform(0.5, 2, size=d))
    result = graphical_lasso(S, n, lam, weights=w)
    assert result.converged
    assert violation(S, lam / n * w, result.precision) <= 1e-8 * np.max(np.diag(result.covariance))
    assert np.all(result.precision[np.isinf(w)] == 0.0)
    assert result.duality_gap <= 1e-5


def test_unit_weights_are_no_weights():
    S = empirical_covariance(30, 12)
    plain, weighted = graphical_lasso(S, 30, 4.0), graphical_lasso(S, 30, 4.0, weights=np.ones_like(S))
    np.testing.assert_array_equal(plain.precision, weighted.precision)


def test_agrees_with_scikit_learn_on_an_inflated_diagonal():
    S, rho = empirical_covariance(50, 12), 0.1
    _, expected = sklearn_graphical_lasso(S + rho * np.eye(12), rho, tol=1e-9, enet_tol=1e-9, max_iter=1000)
    np.testing.assert_allclose(graphical_lasso(S, 50, 50 * rho).precision, expected, atol=1e-6)


def test_large_lam_gives_the_diagonal_solution():
    S = empirical_covariance(20, 8)
    rho = np.max(np.abs(S - np.diag(np.diag(S))))
    result = graphical_lasso(S, 20, 20 * rho)
    np.testing.assert_allclose(result.precision, np.diag(1 / (np.diag(S) + rho)), rtol=1e-12)
    assert np.count_nonzero(graphical_lasso(S, 20, 20 * rho * 0.99).precision) == 8 + 2


def test_no_penalty_gives_the_inverse():
    S = empirical_covariance(100, 8)
    np.testing.assert_allclose(graphical_lasso(S, 100, 0.0).precision, np.linalg.inv(S), rtol=1e-6, atol=1e-8)


def test_block_diagonal_input_gives_block_diagonal_output():
    A, B = empirical_covariance(20, 6, seed=1), empirical_covariance(20, 5, seed=2)
    S = np.block([[A, np.zeros((6, 5))], [np.zeros((5, 6)), B]])
    whole = graphical_lasso(S, 20, 2.0).precision
    assert np.all(whole[:6, 6:] == 0.0)
    np.testing.assert_allclose(whole[:6, :6], graphical_lasso(A, 20, 2.0).precision, atol=1e-6)
    np.testing.assert_allclose(whole[6:, 6:], graphical_lasso(B, 20, 2.0).precision, atol=1e-6)


def test_zero_and_infinite_weights_give_maximum_likelihood_on_a_graph():
    S = empirical_covariance(100, 4)
    # On a chain the maximum likelihood estimate is a sum of inverses of cliques minus those of separators.
    chain = np.abs(np.subtract.outer(range(4), range(4))) <= 1
    expected = np.zeros((4, 4))
    for i in range(3):
        expected[i : i + 2, i : i + 2] += np.linalg.inv(S[i : i + 2, i : i + 2])
    expected[1, 1] -= 1 / S[1, 1]
    expected[2, 2] -= 1 / S[2, 2]
    for lam in (0.0, 1.0):
        result = graphical_lasso(S, 100, lam, weights=np.where(chain, 0.0, np.inf))
        np.testing.assert_allclose(result.precision, expected, rtol=1e-6, atol=1e-12)


def test_rescaling_a_variable_rescales_the_answer():
    S, scale = empirical_covariance(30, 6), np.array([1e-4, 1e-2, 1.0, 10.0, 1e3, 1e5])
    outer = np.outer(scale, scale)
    plain = graphical_lasso(S, 30, 3.0)
    scaled = graphical_lasso(S * outer, 30, 3.0, weights=outer)
    np.testing.assert_allclose(scaled.precision * outer, plain.precision, rtol=1e-6, atol=1e-9)
    assert scaled.objective == pytest.approx(plain.objective + 2 * np.sum(np.log(scale)))


def test_warm_start_ends_at_the_same_answer_sooner():
    S = empirical_covariance(25, 20)
    cold = graphical_lasso(S, 25, 1.0)
    warm = graphical_lasso(S, 25, 1.0, initial=graphical_lasso(S, 25, 1.05).precision)
    np.testing.assert_allclose(warm.precision, cold.precision, atol=1e-5)
    assert warm.n_iter < cold.n_iter


def test_one_variable():
    assert graphical_lasso([[2.0]], 10, 5.0).precision == pytest.approx(np.array([[0.4]]))


def test_failure_is_reported_and_says_what_to_do():
    S = empirical_covariance(5, 10)
    with pytest.warns(RuntimeWarning, match="increase max_iter or lam"):
        result = graphical_lasso(S, 5, 0.0, max_iter=50)  # S is singular: there is no solution
    assert not result.converged
    assert np.all(np.isfinite(result.precision))


GOOD = np.array([[1.0, 0.3], [0.3, 1.0]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(emp_cov=np.ones((2, 3))), "emp_cov must have shape"),
        (dict(emp_cov=np.empty((0, 0))), "emp_cov must have shape"),
        (dict(emp_cov=[1.0, 2.0]), "emp_cov must have shape"),
        (dict(emp_cov=[[1.0, 0.3], [0.2, 1.0]]), "emp_cov must be symmetric"),
        (dict(emp_cov=[[1.0, np.nan], [np.nan, 1.0]]), "emp_cov must hold no NaN"),
        (dict(n_samples=0), "n_samples must be positive"),
        (dict(lam=-1.0), "lam must be"),
        (dict(lam=np.inf), "lam must be"),
        (dict(weights=np.ones((3, 3))), r"weights must have shape \(2, 2\)"),
        (dict(weights=-np.ones((2, 2))), "weights must not be negative"),
        (dict(weights=np.diag([np.inf, 1.0])), "finite on the diagonal"),
        (dict(initial=-np.eye(2)), "initial must be positive definite"),
        (dict(emp_cov=np.zeros((2, 2)), lam=0.0), "positive variance"),
    ],
)
def test_invalid_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        graphical_lasso(**(dict(emp_cov=GOOD, n_samples=10, lam=1.0) | arguments))
