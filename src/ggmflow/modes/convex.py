"""Modes where the penalized likelihood is convex, q ≥ 1.

q = 1   the connected components of the graph |c_ij| > ρ are solved one by one, which gives the exact solution.
q > 1   f is smooth; Newton's method in U, where Ω = prox(U).
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool
from scipy.sparse.csgraph import connected_components

from ggmflow.modes.penalized_likelihood import Matrix, conjugate_gradient, solve_penalized
from ggmflow.modes.problem import TOLERANCE, Problem, complete, inverse_of

NEWTON_STEPS = 100
_STIFF = 1e8  # second derivative of the penalty, relative to κ, above which an entry is treated as fixed


def graphical_lasso_mode(problem: Problem, initial: Matrix | None) -> Matrix:
    """Mode at q = 1, the graphical lasso.

    Where |c_ij| ≤ ρ for all pairs between two groups, the solution has no edge between them: groups are solved one by
    one.

    Parameters
    ----------
    problem
        With q = 1.
    initial : (d, d) array, optional
        Positive definite matrix to start from.
    """
    if not problem.queried.all():
        return _lasso_of_query(problem, initial)
    penalty = problem.slopes(np.ones_like(problem.C))
    count, component = connected_components(np.abs(problem.C) > penalty, directed=False)
    if count == 1:
        return _lasso(problem, initial)
    Omega = np.diag(1 / (np.diag(problem.C) + problem.rho))
    for k in np.flatnonzero(np.bincount(component) > 1):
        block = np.ix_(component == k, component == k)
        start = None if initial is None else initial[block]
        Omega[block] = solve_penalized(problem.C[block], penalty[block], initial=start, tol=TOLERANCE).precision
    return Omega


def _lasso_of_query(problem: Problem, initial: Matrix | None) -> Matrix:
    """q = 1 for a query: solve with the variables that have an edge to it, and add others until none violates KKT."""
    query, penalty = np.flatnonzero(problem.queried), problem.slopes(np.ones_like(problem.C))
    start = np.diag(1 / (np.diag(problem.C) + problem.rho)) if initial is None else initial
    Omega, active = complete(problem, start[query], query), np.zeros(len(problem.C), dtype=bool)
    while True:
        gradient = np.abs(problem.C - inverse_of(Omega))[query]
        violated = gradient > penalty[query] * (1 + TOLERANCE)
        wanted = active | problem.queried | np.any((Omega[query] != 0) | violated, axis=0)
        if np.array_equal(wanted, active):
            return Omega
        active = wanted
        Omega = solve_on_active(problem, Omega, active, _lasso)


def _lasso(problem: Problem, initial: Matrix | None) -> Matrix:
    penalty = problem.slopes(np.ones_like(problem.C))
    return solve_penalized(problem.C, penalty, initial=initial, tol=TOLERANCE).precision


def solve_on_active(
    problem: Problem, Omega: Matrix, active: Bool[np.ndarray, " d"], solve: Callable[[Problem, Matrix], Matrix]
) -> Matrix:
    """Solve for a query with the active variables only, and no edge to the others: the same kind of problem.

    Parameters
    ----------
    problem
        With a query.
    Omega : (d, d) array
        Start.
    active : (d,) array of bool
        Variables that may have an edge to the query, which is among them.
    solve
        Solver of the smaller problem from a start.
    """
    query, kept = np.flatnonzero(problem.queried), np.flatnonzero(active)
    position, block = np.searchsorted(kept, query), np.ix_(kept, kept)
    inner = problem._replace(C=problem.C[block], penalized=problem.penalized[block])
    rows = np.zeros((len(query), len(Omega)))
    rows[:, kept] = solve(inner, complete(inner, Omega[np.ix_(query, kept)], position))[position]
    return complete(problem, rows, query)


def smooth_mode(problem: Problem, initial: Matrix | None) -> Matrix:
    """Mode at q > 1: Newton's method in U, where Ω = prox(U) entry by entry,  ω + (ρq/κ) |ω|^{q−1} sign ω = u.

    The slope of |ω|^q changes too fast near zero for steps in Ω, while p = dω/du lies between 0 and 1. The gradient is
    F = C + ρI − W + κ(U − Ω), and a step solves  W V W + κ(1/p − 1)∘V = −F  for V = p∘dU, the first-order change of Ω.
    """
    q, C = problem.q, problem.C + problem.rho * np.eye(len(problem.C))
    kappa = np.outer(np.diag(C), np.diag(C))  # the curvature of −log det at the diagonal solution
    strength = np.where(problem.penalized, problem.rho * q / kappa, 0.0)
    Omega = np.diag(1 / np.diag(C)) if initial is None else initial
    U = Omega + strength * np.sign(Omega) * np.abs(Omega) ** (q - 1)
    value, W = problem.objective(Omega), inverse_of(Omega)
    for _ in range(NEWTON_STEPS):
        if (residual := problem.residual(Omega, W)) <= TOLERANCE:
            break
        F = C - W + kappa * (U - Omega)
        size = np.maximum(np.abs(Omega), np.finfo(float).tiny)
        bend = kappa * strength * (q - 1) * size ** (q - 2)
        free = bend < _STIFF * kappa
        V = conjugate_gradient(W, free, np.where(free, -F, 0.0), min(0.1, residual), np.where(free, bend, 0.0))
        V = (V + V.T) / 2
        # Where Ω hardly changes with U, the equation gives dU; elsewhere dU = V/p, a descent even if V is not exact.
        dU = np.where(free, V * (1 + np.where(free, bend, 0.0) / kappa), -(F + W @ V @ W) / kappa)
        expected = float(np.sum(F * V))
        for length in 0.5 ** np.arange(30):
            trial = _prox(U + length * dU, strength, q)
            trial_value = problem.objective(trial)
            if trial_value <= value + 1e-4 * length * expected + 1e-14 * (abs(value) + len(C)):
                break
        else:
            break
        U, Omega, value, W = U + length * dU, trial, trial_value, inverse_of(trial)
    return Omega


def _prox(U: Matrix, strength: Matrix, q: float) -> Matrix:
    """ω with ω + a|ω|^{q−1} sign ω = u.

    With x = log |ω|, log(eˣ + a e^{(q−1)x}) is convex and increasing: Newton's method from the right never overshoots.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        target, log_a = np.log(np.abs(U)), np.log(strength)
        x = np.minimum(target, (target - log_a) / (q - 1))
        for _ in range(40):
            first, second = x, log_a + (q - 1) * x
            total = np.logaddexp(first, second)
            share = np.exp(first - total)
            step = (total - target) / (share + (q - 1) * (1 - share))
            x = x - np.where(np.isfinite(step), step, 0.0)
            if not np.any(np.abs(step) > 1e-14):
                break
    return np.sign(U) * np.where(U == 0, 0.0, np.exp(x))
