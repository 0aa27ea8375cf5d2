"""Local linear approximation agrees with GGMncv, decreases its objective and ends where it is stationary."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ggmflow.baselines import (
    PENALTIES,
    graphical_lasso,
    ledoit_wolf_precision,
    nonconvex_precision,
    penalty_slope,
    penalty_value,
)
from ggmflow.errors.argument import ArgumentError

REFERENCE = Path(__file__).parents[1] / "reference"
SUMMARY = pd.read_csv(REFERENCE / "ggmncv_summary.csv").set_index("penalty")
X = np.loadtxt(REFERENCE / "X.csv", delimiter=",", skiprows=1)
R = np.corrcoef(X, rowvar=False)
N, D = X.shape


def count_edges(precision: np.ndarray) -> int:
    return int(np.count_nonzero(np.triu(precision, k=1)))


@pytest.mark.parametrize("penalty", SUMMARY.index)
def test_agrees_with_ggmncv(penalty):
    """Same level, same edges, same entries.

    What remains, 2e-4 at most, has three causes: GGMncv stops its graphical lasso at a threshold of 1e-4, its
    Ledoit–Wolf start divides by n − 1 where scikit-learn divides by n, and it adds 1e-4 to entries of log and sica.
    """
    expected = np.loadtxt(REFERENCE / f"ggmncv_{penalty}_Theta.csv", delimiter=",")
    result = nonconvex_precision(R, N, penalty, initial=ledoit_wolf_precision(X))
    assert result.rho == pytest.approx(SUMMARY.loc[penalty, "lambda_min"], rel=1e-9)
    assert result.lam == pytest.approx(N * result.rho)
    assert PENALTIES[penalty].gamma == SUMMARY.loc[penalty, "gamma"]
    np.testing.assert_array_equal(result.precision != 0, expected != 0)
    assert count_edges(result.precision) == SUMMARY.loc[penalty, "n_edges"]
    np.testing.assert_allclose(result.precision, expected, atol=1e-3)


def test_lasso_is_the_graphical_lasso():
    result = nonconvex_precision(R, N, "lasso", rho=0.1)
    expected = graphical_lasso(R, N, 0.1 * N)
    np.testing.assert_allclose(result.precision, expected.precision, atol=1e-6)
    assert result.objective == pytest.approx(expected.objective)
    assert result.kkt_residual <= 1e-8


@pytest.mark.parametrize("diagonal", ["penalty", "l1"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_one_step_is_the_graphical_lasso_with_slopes_as_penalties(penalty, diagonal):
    initial, rho = ledoit_wolf_precision(X), 0.15
    slopes = penalty_slope(penalty, initial, rho, offset=1e-4 if PENALTIES[penalty].infinite_slope else 0.0)
    if diagonal == "l1":
        np.fill_diagonal(slopes, rho)
    expected = graphical_lasso(R, N, N, weights=slopes)
    result = nonconvex_precision(R, N, penalty, rho=rho, initial=initial, diagonal=diagonal)
    np.testing.assert_allclose(result.precision, expected.precision, atol=1e-6)


@pytest.mark.parametrize("diagonal", ["penalty", "l1"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_iteration_decreases_the_objective_and_ends_stationary(penalty, diagonal):
    rho = 0.1
    result = nonconvex_precision(R, N, penalty, rho=rho, iterate=True, diagonal=diagonal)
    assert result.converged
    assert np.all(np.diff(result.objective_history) <= 1e-9)
    assert result.objective == result.objective_history[-1]
    assert result.kkt_residual <= 1e-5


@pytest.mark.parametrize("q", [0.25, 0.5, 0.75])
def test_lq_iterates_to_a_stationary_point_of_the_model(q):
    """With no offset, on the support: ∂/∂ω_ij [−log det Ω + tr ΩR + ρ tr Ω + ρ Σ_{i≠j} |ω_ij|^q] = 0."""
    rho = 2.0 / N
    result = nonconvex_precision(R, N, "lq", rho=rho, gamma=q, iterate=True, diagonal="l1", offset=0.0)
    assert result.converged and 0 < count_edges(result.precision) < D * (D - 1) // 2
    assert np.all(np.diff(result.objective_history) <= 1e-9)
    assert len(result.objective_history) > 3
    Omega, edges = result.precision, result.edges
    off = np.abs(Omega[edges])
    objective = -np.linalg.slogdet(Omega)[1] + np.sum(R * Omega) + rho * (np.trace(Omega) + np.sum(off**q))
    assert result.objective == pytest.approx(objective, abs=1e-10)
    gradient = R - np.linalg.inv(Omega)
    np.testing.assert_allclose(np.diag(gradient), -rho, atol=1e-6)
    np.testing.assert_allclose(gradient[edges], -rho * q * off ** (q - 1) * np.sign(Omega[edges]), atol=1e-5)
    np.testing.assert_array_equal(edges, (Omega != 0) & ~np.eye(D, dtype=bool))


def test_lq_at_one_is_the_graphical_lasso():
    result = nonconvex_precision(R, N, "lq", rho=0.1, gamma=1.0, iterate=True)
    np.testing.assert_allclose(result.precision, graphical_lasso(R, N, 0.1 * N).precision, atol=1e-6)


@pytest.mark.parametrize("penalty", ["scad", "mcp"])
def test_large_entries_are_not_shrunk(penalty):
    """With edges beyond γρ, every entry on the support satisfies the unpenalized likelihood equations."""
    S = np.linalg.inv(np.array([[2.0, 1.2, 0.0], [1.2, 2.0, 0.0], [0.0, 0.0, 1.0]]))
    result = nonconvex_precision(S, 100, penalty, rho=0.05, iterate=True)
    np.testing.assert_allclose(result.precision, np.linalg.inv(S), atol=1e-6)
    assert np.all(result.precision[2, :2] == 0)


def test_criteria_are_the_deviance_plus_the_price_of_edges():
    rho = [0.02, 0.05, 0.1, 0.2, 0.4]
    fits = [graphical_lasso(R, N, N * r).precision for r in rho]
    deviance = np.array([N * (np.sum(R * Omega) - np.linalg.slogdet(Omega)[1]) for Omega in fits])
    edges = np.array([count_edges(Omega) for Omega in fits])
    prices = {
        "bic": np.log(40),
        "ebic": np.log(40) + 4 * 0.5 * np.log(10),
        "aic": 2,
        "ric": 2 * np.log(10),
        "gic_1": np.log(40),
        "gic_2": 10 ** (1 / 3),
        "gic_3": 2 * np.log(10),
        "gic_4": 2 * (np.log(10) + np.log(np.log(10))),
        "gic_5": np.log(np.log(40)) * np.log(10),
        "gic_6": np.log(40) * np.log(10),
    }
    for criterion, price in prices.items():
        result = nonconvex_precision(R, N, "lasso", rho=rho, criterion=criterion)  # pyright: ignore[reportArgumentType]
        np.testing.assert_array_equal(result.n_edges_path, edges)
        np.testing.assert_allclose(result.criterion_path, deviance + price * edges, rtol=1e-7)
        assert result.rho == rho[int(np.argmin(deviance + price * edges))]
    selected = [nonconvex_precision(R, N, "lasso", criterion=c).edges.sum() for c in ("aic", "bic", "ebic")]
    assert selected[0] > selected[1] > selected[2]


def test_default_levels():
    path = nonconvex_precision(R, N, "lasso", n_rho=5, rho_min_ratio=0.1).rho_path
    largest = np.max(np.abs(R - np.eye(D)))
    np.testing.assert_allclose(path, largest * 10 ** np.linspace(-1, 0, 5))


def test_default_start_is_close_to_the_ledoit_wolf_start():
    by_default = nonconvex_precision(R, N, "scad", rho=0.15)
    from_data = nonconvex_precision(R, N, "scad", rho=0.15, initial=ledoit_wolf_precision(X))
    np.testing.assert_allclose(by_default.precision, from_data.precision, atol=0.1)


def test_ledoit_wolf_precision_inverts_a_correlation_matrix():
    scaled = X * np.linspace(1, 1.5, D)
    correlation = np.linalg.inv(ledoit_wolf_precision(scaled))
    np.testing.assert_allclose(np.diag(correlation), 1.0)
    assert np.all(np.abs(correlation - np.eye(D)) <= np.abs(R - np.eye(D)) + 1e-12)


def test_more_variables_than_observations():
    few = np.corrcoef(X[:6], rowvar=False)
    result = nonconvex_precision(few, 6, "atan", rho=[0.1, 0.3], diagonal="l1", iterate=True)
    assert result.converged
    assert np.linalg.eigvalsh(result.precision)[0] > 0


def test_levels_without_a_solution_are_not_selected():
    S = np.ones((3, 3))  # rank one: unpenalized entries leave the likelihood unbounded
    initial = 10 * np.eye(3) - 3  # every entry beyond the flat part of mcp at 0.1, none at 20
    with pytest.warns(RuntimeWarning, match="1 of 2 fits did not converge; the selected one did"):
        result = nonconvex_precision(S, 10, "mcp", rho=[0.1, 20.0], initial=initial)
    assert result.rho == 20.0 and result.converged
    assert np.isinf(result.criterion_path[0])
    with pytest.raises(ValueError, match="no rho has a solution"):
        nonconvex_precision(S, 10, "mcp", rho=0.1, initial=initial)


def test_unfinished_iteration_is_reported():
    with pytest.warns(RuntimeWarning, match="the selected one did not. Increase max_steps"):
        result = nonconvex_precision(R, N, "lq", gamma=0.5, rho=0.05, iterate=True, max_steps=2)
    assert not result.converged
    assert len(result.objective_history) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(penalty="ridge"), "unknown penalty 'ridge': choose one of"),
        (dict(criterion="loo"), "unknown criterion 'loo': choose one of bic, ebic"),
        (dict(ebic_gamma=2.0), "ebic_gamma must be between 0 and 1"),
        (dict(diagonal="none"), "diagonal must be"),
        (dict(rho=-1.0), "rho must be a positive number"),
        (dict(rho=[]), "rho must be a positive number"),
        (dict(n_samples=0), "n_samples must be positive"),
        (dict(initial=np.eye(3)), r"initial must have shape \(10, 10\)"),
        (dict(initial=-np.eye(D)), "initial must be positive definite"),
        (dict(n_rho=0), "n_rho must be at least 1"),
        (dict(rho_min_ratio=2.0), "rho_min_ratio must be positive and at most 1, got 2"),
        (dict(max_steps=0), "max_steps must be at least 1"),
        (dict(emp_cov=np.eye(D)), "emp_cov is diagonal"),
        (dict(gamma=-1.0), "gamma must be above 0 for the penalty 'atan', got -1"),
    ],
)
def test_invalid_arguments(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        nonconvex_precision(**(dict(emp_cov=R, n_samples=N) | arguments))


def test_value_and_slope_of_the_table_are_those_used():
    result = nonconvex_precision(R, N, "sica", rho=0.1)
    Omega = result.precision
    expected = -np.linalg.slogdet(Omega)[1] + np.sum(R * Omega) + np.sum(penalty_value("sica", Omega, 0.1))
    assert result.objective == pytest.approx(expected)
