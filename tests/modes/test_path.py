"""Modes against other solvers, against brute force over all graphs, and against their own definition."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

import ggmflow as gf
from ggmflow.baselines import graphical_lasso
from ggmflow.baselines.nonconvex import nonconvex_precision
from ggmflow.modes.path import ModePath, solve_path
from ggmflow.modes.problem import complete, make_problem
from tests.support.models import quick


def scatter_matrix(d, n, seed=0):
    return gf.Scatter.from_data(gf.simulate.toy_problem(d, n, random_state=seed)[0]).matrix


def objective(Omega, S, n, lam, q, query=None):
    """f from its definition, with NumPy alone."""
    d = len(S)
    asked = np.isin(np.arange(d), np.arange(d) if query is None else query)
    pays = (asked[:, None] | asked) & ~np.eye(d, dtype=bool)
    sign, log_det = np.linalg.slogdet(Omega)
    penalty = np.trace(Omega) + np.sum(np.abs(Omega[pays]) ** q)
    return np.inf if sign <= 0 else -log_det + np.sum(S * Omega) / n + lam / n * penalty


def smooth_optimum(S, n, lam, q, support, start):
    """The best matrix near `start` whose off-diagonal entries are in `support`, by a general-purpose minimizer."""
    d = len(S)
    i, j = np.array(np.triu_indices(d, 1))[:, np.array(support)]

    def matrix(x):
        Omega = np.diag(np.exp(x[:d]))
        Omega[i, j] = Omega[j, i] = x[d:]
        return Omega

    def value(x):
        return min(objective(matrix(x), S, n, lam, q), 1e6)

    x0 = np.r_[np.log(np.diag(start)), start[i, j]]
    return minimize(value, x0, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 8000}).fun


# ---------------------------------------------------------------------------------------------------------------- q = 1
@pytest.mark.parametrize(("d", "n"), [(5, 20), (15, 15), (30, 25)])
def test_q_one_is_the_graphical_lasso(d, n):
    S, lams = scatter_matrix(d, n), np.geomspace(0.3, n, 12)
    found = solve_path(S, n, lams, 1.0, np.arange(d))
    for lam, Omega, edges, value in zip(lams, found.precision, found.n_edges, found.objective, strict=True):
        lasso = graphical_lasso(S / n, n, lam)
        np.testing.assert_allclose(Omega, lasso.precision, atol=1e-5)
        assert np.array_equal(Omega != 0, lasso.precision != 0)
        assert edges == np.count_nonzero(np.triu(lasso.precision, 1))
        assert value == pytest.approx(lasso.objective, abs=1e-9)
    assert found.kkt_residual.max() < 1e-8
    assert found.n_edges[0] > 0 and found.n_edges[-1] == 0


def test_connected_components_are_solved_separately():
    """Two groups of columns that hardly correlate: each is solved as if alone, with the same entries."""
    S = np.zeros((9, 9))
    S[:4, :4], S[4:, 4:] = scatter_matrix(4, 20, 1), scatter_matrix(5, 20, 2)
    S[0, 8] = S[8, 0] = 0.5
    together = solve_path(S, 20, [1.0], 1.0, np.arange(9)).precision[0]
    for part in (slice(0, 4), slice(4, 9)):
        alone = graphical_lasso(S[part, part] / 20, 20, 1.0).precision
        np.testing.assert_allclose(together[part, part], alone, atol=1e-7)
    assert not together[:4, 4:].any()


@pytest.mark.parametrize("q", [1.0, 0.5, 1.25])
def test_only_pairs_with_a_query_variable_are_penalized(q):
    """At q = 1 it is the graphical lasso with weight zero elsewhere; the rows solve the reduced problem for any q."""
    d, n, query = 8, 12, np.array([5, 2])
    S, lams = scatter_matrix(d, n), [0.7, 2.0, 5.0]
    found = solve_path(S, n, lams, q, query)
    assert found.precision.shape == (3, 2, 8) and found.kkt_residual.max() < 1e-7
    for k, lam in enumerate(lams):
        at = make_problem(S, n, lam, q, query)
        full = complete(at, found.precision[k], query)
        assert at.objective(full) == pytest.approx(objective(full, S, n, lam, q, query), abs=1e-10)
        assert found.objective[k] == pytest.approx(at.objective(full), abs=1e-10)
        asked = np.isin(np.arange(d), query)
        weights = np.where(asked[:, None] | asked | np.eye(d, dtype=bool), 1.0, 0.0)
        lasso = graphical_lasso(S / n, n, lam, weights=weights).precision
        if q == 1:
            np.testing.assert_allclose(full, lasso, atol=1e-5)
        else:
            assert found.objective[k] < objective(lasso, S, n, lam, q, query)


# ---------------------------------------------------------------------------------------------------------------- q > 1
@pytest.mark.parametrize("q", [1.01, 1.1, 1.25, 1.5, 2.0])
def test_smooth_penalties(q):
    """f is convex, so a matrix that no small change of any entry, or of all, improves is the minimum."""
    d, n, rng = 8, 8, np.random.default_rng(0)
    S = scatter_matrix(d, n)
    found = solve_path(S, n, [0.4, 3.0], q, np.arange(d))
    assert found.kkt_residual.max() < 1e-7
    for lam, Omega, value in zip(found.lam, found.precision, found.objective, strict=True):
        assert value == pytest.approx(objective(Omega, S, n, lam, q), abs=1e-10)
        one = [np.eye(d)[[i]].T @ np.eye(d)[[j]] for i, j in zip(*np.triu_indices(d), strict=True)]
        for direction, size in product(
            one + list(rng.normal(size=(50, d, d))), (1e-1, -1e-1, 1e-3, -1e-3, 1e-5, -1e-5)
        ):
            assert objective(Omega + size * (direction + direction.T), S, n, lam, q) > value - 1e-12


# ---------------------------------------------------------------------------------------------------------------- q < 1
@pytest.mark.slow
@pytest.mark.parametrize("q", [0.25, 0.5, 0.75])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_graph_on_three_variables_does_better(q, seed):
    """All 8 graphs, from two starts each."""
    S, n = scatter_matrix(3, 6, seed), 6
    for lam in (0.2, 0.6, 2.0):
        found = solve_path(S, n, [lam], q, np.arange(3))
        ridge = np.linalg.inv(S / n + lam / n * np.eye(3))
        values = [
            smooth_optimum(S, n, lam, q, support, start)
            for support in product([False, True], repeat=3)
            for start in (ridge, np.diag(np.diag(ridge)) + 0.1 * (1 - np.eye(3)))
        ]
        assert found.objective[0] <= min(values) + 1e-7


@pytest.mark.parametrize(
    "q", [pytest.param(0.25, marks=pytest.mark.slow), 0.5, pytest.param(0.75, marks=pytest.mark.slow)]
)
def test_no_change_of_a_single_entry_improves_a_mode(q):
    """Every pair on a fine grid of values, zero included: f does not fall. The order of λ has no effect."""
    d, n, lams = 8, 10, [0.3, 1.0, 3.0]
    S = scatter_matrix(d, n, 3)
    found = solve_path(S, n, lams, q, np.arange(d))
    assert found.kkt_residual.max() < 1e-8
    for lam, Omega, value in zip(lams, found.precision, found.objective, strict=True):
        assert value == pytest.approx(objective(Omega, S, n, lam, q), abs=1e-10)
        assert np.array_equal(Omega, Omega.T)
        for i, j in zip(*np.triu_indices(d, 1), strict=True):
            for x in np.r_[0.0, np.linspace(-4, 4, 81) + Omega[i, j] * 0.999]:
                moved = Omega.copy()
                moved[i, j] = moved[j, i] = x
                assert objective(moved, S, n, lam, q) > value - 1e-9
        for k in range(d):
            moved = Omega + 1e-4 * np.diag(np.eye(d)[k])
            assert objective(moved, S, n, lam, q) > value
    shuffled = solve_path(S, n, [1.0, 0.3, 3.0], q, np.arange(d))
    np.testing.assert_allclose(shuffled.objective, found.objective[[1, 0, 2]], atol=1e-10)
    np.testing.assert_array_equal(shuffled.n_edges, found.n_edges[[1, 0, 2]])


@pytest.mark.slow
def test_never_worse_than_the_local_linear_approximation():
    d, n, better = 12, 12, 0
    for seed, q in product(range(3), (0.25, 0.5, 0.75)):
        S, lams = scatter_matrix(d, n, seed), [0.5, 1.5, 4.0]
        found = solve_path(S, n, lams, q, np.arange(d))
        for lam, value in zip(lams, found.objective, strict=True):
            options = {"iterate": True, "diagonal": "l1", "offset": 0.0}
            other = nonconvex_precision(S / n, n, "lq", gamma=q, rho=lam / n, **options)
            assert value == pytest.approx(objective(other.precision, S, n, lam, q), abs=1e-8) or value < other.objective
            better += value < other.objective - 1e-6
    assert better >= 20  # of 27


@pytest.mark.slow
def test_starts_are_used():
    """A given start is used if it leads to a lower minimum than the other starts; the result is never worse."""
    d, n, lam, q = 10, 8, 0.3, 0.25
    better = 0
    for seed in range(6):
        S, rng = scatter_matrix(d, n, seed), np.random.default_rng(seed)
        alone = solve_path(S, n, [lam], q, np.arange(d))
        starts = [np.linalg.inv(S / n + np.diag(rng.uniform(0.02, 1, d))) for _ in range(12)]
        found = solve_path(S, n, [lam], q, np.arange(d), lambda lam, starts=starts: starts)
        assert found.objective[0] <= alone.objective[0]
        if found.objective[0] < alone.objective[0] - 1e-6:
            assert found.start == ["flow"]
            better += 1
    assert better  # else nothing was tested


def test_the_kkt_residual_is_zero_only_at_a_solution():
    S = scatter_matrix(6, 12)
    for q in (0.5, 1.0, 1.5):
        at = make_problem(S, 12, 2.0, q, np.arange(6))
        assert at.residual(np.eye(6), np.eye(6)) > 0.05
        Omega = solve_path(S, 12, [2.0], q, np.arange(6)).precision[0]
        assert at.residual(Omega, np.linalg.inv(Omega)) < 1e-7
        assert at.residual(Omega * 1.01, np.linalg.inv(Omega * 1.01)) > 1e-3
    assert make_problem(S, 12, 2.0, 1.0, np.arange(6)).objective(-np.eye(6)) == np.inf


# -------------------------------------------------------------------------------------------------------- the estimator
def test_path_of_a_model(model):
    full = model("full")
    found = full.path(q=1.0, lam=[0.5, 2.0, 8.0])
    assert found.q == 1.0 and found.lam.tolist() == [0.5, 2.0, 8.0] and found.precision.shape == (3, 4, 4)
    for lam, Omega in zip(found.lam, found.precision, strict=True):
        lasso = graphical_lasso(full.scatter_.matrix / full.scatter_.n, full.scatter_.n, lam)
        np.testing.assert_allclose(Omega, lasso.precision, atol=1e-5)
    assert full.path().lam.shape == (20,)
    assert full.path(0.5, 2.0).precision.shape == (1, 4, 4)
    cold = full.path(q=1.0, lam=[0.5, 2.0, 8.0], exact=False)
    assert cold.start == ["flow"] * 3 and cold.n_edges.tolist() == [6, 6, 6]
    np.testing.assert_allclose(cold.precision, found.precision, atol=0.05)  # T = 0.01: a tenth of the posterior's sd
    assert np.all(cold.objective >= found.objective) and np.all(cold.objective < found.objective + 0.2)
    assert np.all(cold.kkt_residual > found.kkt_residual)


@pytest.mark.slow
def test_flow_draws_are_starts(model, monkeypatch):
    seen = []

    def spy(S, n, lams, q, query, starts, report):
        seen.extend(starts(lam) for lam in lams)
        return solve_path(S, n, lams, q, query, starts, report)

    monkeypatch.setattr("ggmflow.estimator.modes_of_flow.solve_path", spy)
    blanket = model("blanket")
    found = blanket.path(0.5, [1.0, 4.0], num_starts=3)
    assert [len(starts) for starts in seen] == [3, 3] and seen[0][0].shape == (2, 4)
    # Cold draws are near the mode already.
    assert np.abs(seen[1][0] - found.precision[1]).max() < 0.5
    blanket.path(0.5, 1.0, num_starts=0)
    assert seen[-1] == []


def test_wrong_arguments_of_path_raise(model, untrained):
    full = model("full")
    for bad in (
        {"lam": 100.0},
        {"q": 2.0},
        {"lam": []},
        {"lam": [[1.0]]},
        {"num_starts": -1},
        {"num_starts": 1.5},
        {"lam": "auto"},
        {"lam": [1.0, np.nan]},
    ):
        with pytest.raises(ValueError, match=r"lam|q=2|num_starts"):
            full.path(**bad)
    warm = quick(temperature=1.0).fit(gf.simulate.toy_problem(4, 20, random_state=0)[0])
    with pytest.raises(ValueError, match="fit with temperature"):
        warm.path(1.0, 2.0, exact=False)
    assert warm.path(1.0, 2.0).kkt_residual[0] < 1e-8


def test_a_mode_that_is_not_stationary_warns(model, monkeypatch):
    monkeypatch.setattr("ggmflow.modes.convex.NEWTON_STEPS", 1)
    with pytest.warns(RuntimeWarning, match="not quite stationary"):
        model("full").path(1.25, 1.0)


def test_a_path_is_shown_in_one_line():
    path = ModePath(0.5, np.array([4.0, 1.0]), np.ones((2, 3, 3)), np.zeros(2), np.zeros(2), np.array([0, 3]), ["", ""])
    assert repr(path).startswith("<ModePath: 2 modes at q = 0.5, λ from 1 to 4, 0 to 3 edges; fields q, lam")
