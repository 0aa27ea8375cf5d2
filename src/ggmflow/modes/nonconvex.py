"""Modes where the penalized likelihood is not convex, q < 1, and has many local minima.

Every start descends by reweighted graphical lassos, which bound f from above, then by moves of one entry each to the
best value on its line, zero or not, over all pairs, until no move helps. Each solution is also a start for the next λ,
in both directions, and the best one is kept. A single entry moves along

    −log(1 + 2t w_ij − t²(w_ii w_jj − w_ij²)) + 2t c_ij + 2ρ|ω_ij + t|^q,     W = Ω⁻¹.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ggmflow.modes.convex import NEWTON_STEPS, graphical_lasso_mode, solve_on_active
from ggmflow.modes.penalized_likelihood import Matrix, conjugate_gradient, solve_penalized
from ggmflow.modes.problem import TOLERANCE, Problem, complete, inverse_of

_GAIN = 1e-10  # smallest decrease of f for which a move is made
_REWEIGHTINGS = 200
_ROUNDS = 200
_MOVES = 60  # of single entries before all others adapt
_LINE_STEPS = 15  # entries that stop short of the minimum are polished with all others


def nonconvex_modes(
    problems: Sequence[Problem], shrunk: Matrix, flow_starts: Sequence[Sequence[Matrix]], report: Callable[[], None]
) -> list[tuple[Matrix, str]]:
    """The best local minimum found for each problem, with the name of the start that led to it.

    Parameters
    ----------
    problems
        With ascending ρ.
    shrunk : (d, d) array
        A shrunk estimate of the precision matrix, one of the starts.
    flow_starts
        More starts for each problem.
    report
        Called once for each problem.
    """
    best: list[tuple[float, Matrix, str]] = []
    lasso = None
    for k in range(len(problems) - 1, -1, -1):
        each = problems[k]
        lasso = graphical_lasso_mode(each._replace(q=1.0), lasso)
        starts = [(lasso, "lasso"), (_edgeless(each), "empty"), (_ridge(each), "ridge"), (shrunk, "shrunk")]
        starts += [(start, "flow") for start in flow_starts[k]]
        found = [(each.objective(mode), mode, name) for mode, name in ((_descend(each, s), name) for s, name in starts)]
        best.insert(0, min(found, key=lambda entry: entry[0]))
        report()
    count = len(problems)
    # Up and down along λ until no neighbouring solution helps.
    for order in (range(1, count), range(count - 2, -1, -1)) * 2:
        helped = False
        for k in order:
            neighbour = best[k - 1][1] if order.step > 0 else best[k + 1][1]
            mode = _descend(problems[k], neighbour)
            value = problems[k].objective(mode)
            if value < best[k][0] - _GAIN:
                best[k], helped = (value, mode, "neighbour"), True
        if not helped and order.step < 0:
            break
    return [(mode, name) for _, mode, name in best]


def _ridge(problem: Problem) -> Matrix:
    return np.linalg.inv(problem.C + problem.rho * np.eye(len(problem.C)))


def _edgeless(problem: Problem) -> Matrix:
    """The best matrix without an edge: a local minimum of f, from which moves of single entries may lead away."""
    query = np.flatnonzero(problem.queried)
    return complete(problem, np.diag(1 / (np.diag(problem.C) + problem.rho))[query], query)


def _descend(problem: Problem, start: Matrix) -> Matrix:
    """Descend from a positive definite matrix to one that no change of a single entry improves."""
    Omega = _reweight(problem, _drop_small_entries(problem, start))
    for _ in range(_ROUNDS):
        if (moved := _move_entries(problem, Omega)) is None:
            break
        Omega = _reweight(problem, moved)
    return Omega


def _drop_small_entries(problem: Problem, Omega: Matrix) -> Matrix:
    """For a query, drop the entries of Ω₁₂ at which f is concave, usually most of them: no minimum can be there.

    The second derivative along an entry is 2(w_ii w_jj + w_ij²) − 2ρq(1−q)|ω_ij|^{q−2}.
    """
    queried = problem.queried
    if queried.all():
        return Omega
    query, W = np.flatnonzero(queried), inverse_of(Omega)
    curvature = np.outer(np.diag(W), np.diag(W)) + W**2
    least = (problem.rho * problem.q * (1 - problem.q) / curvature) ** (1 / (2 - problem.q))
    return complete(problem, np.where(queried | (np.abs(Omega) > least), Omega, 0.0)[query], query)


def _reweight(problem: Problem, Omega: Matrix) -> Matrix:
    """Solve reweighted graphical lassos, then apply Newton's method to the nonzero entries.

    Zeros stay zero, so for a query the variables without an edge to it are left out, and few remain.
    """
    queried = problem.queried
    active = queried | np.any(Omega[queried] != 0, axis=0)
    if not active.all():
        return solve_on_active(problem, Omega, active, _reweight)
    for _ in range(_REWEIGHTINGS):
        solved = solve_penalized(problem.C, problem.slopes(Omega), initial=Omega, tol=1e-6).precision
        change = np.max(np.abs(solved - Omega)) / np.max(solved)
        same = np.array_equal(solved != 0, Omega != 0)
        Omega = solved
        if same and change < 1e-2:
            polished = _polish(problem, Omega)
            if polished is not None:
                return polished
        if change < 1e-10:
            break
    return Omega


def _polish(problem: Problem, Omega: Matrix) -> Matrix | None:
    """Newton's method on the nonzero entries; None if f does not fall or an entry would change its sign."""
    free, q = Omega != 0, problem.q
    value = problem.objective(Omega)
    for _ in range(NEWTON_STEPS):
        W = inverse_of(Omega)
        if (residual := problem.residual(Omega, W)) <= TOLERANCE:
            return Omega
        slopes = np.where(free, problem.slopes(np.where(free, Omega, 1.0)), 0.0)
        gradient = np.where(free, problem.C - W + slopes * np.sign(Omega), 0.0)
        off = free & problem.penalized
        bend = np.zeros_like(Omega)
        bend[off] = slopes[off] * (q - 1) / np.abs(Omega[off])
        step = conjugate_gradient(W, free, -gradient, min(0.1, np.sqrt(residual)), bend)
        step = (step + step.T) / 2
        trial = Omega + step
        trial_value = problem.objective(trial)
        if np.any(trial[off] * Omega[off] <= 0) or not trial_value <= value + 1e-13 * (abs(value) + len(Omega)):
            return None
        Omega, value = trial, trial_value
    return None


def _move_entries(problem: Problem, Omega: Matrix) -> Matrix | None:
    """Repeat the best move of a single entry; None if no move helps."""
    Omega, W, moved = Omega.copy(), inverse_of(Omega), False
    i, j = np.nonzero(np.triu(problem.penalized))
    for _ in range(_MOVES):
        target, gain = _best_on_line(problem, Omega[i, j], W[i, i], W[j, j], W[i, j], problem.C[i, j])
        k = int(np.argmax(gain))
        if not gain[k] > _GAIN:
            break
        Omega[i[k], j[k]] = Omega[j[k], i[k]] = target[k]
        W, moved = inverse_of(Omega), True
    return Omega if moved else None


def _best_on_line(problem: Problem, omega, w_ii, w_jj, w_ij, c):
    """Best value of each entry if it alone changes, and the decrease of f; all arguments and results are vectors.

    The likelihood's part is convex with its minimum at some x; a minimum of the sum other than zero lies between zero
    and x. Reweighting from x descends to the one nearest to x.
    """
    rho, q = problem.rho, problem.q
    A = w_ii * w_jj - w_ij**2

    def change(t):
        with np.errstate(invalid="ignore", divide="ignore"):
            smooth = -np.log1p(2 * t * w_ij - A * t**2) + 2 * t * c
            total = smooth + 2 * rho * (np.abs(omega + t) ** q - np.abs(omega) ** q)
        return np.where(np.isfinite(total), total, np.inf)

    def minimizer(slope):  # of the likelihood's part plus 2·slope·t
        return 2 * (w_ij - slope) / (A + 2 * slope * w_ij + np.sqrt(A**2 + 4 * slope**2 * w_ii * w_jj))

    t = minimizer(c)
    side = np.sign(omega + t)
    alive = side != 0
    for _ in range(_LINE_STEPS):
        with np.errstate(divide="ignore", invalid="ignore"):
            t_next = minimizer(c + rho * q * np.abs(omega + t) ** (q - 1) * side)
        alive &= np.isfinite(t_next) & ((omega + t_next) * side > 0)
        t = np.where(alive, t_next, -omega)
    options = np.stack([t, -omega])
    changes = np.stack([change(t), change(-omega)])
    pick = np.argmin(changes, axis=0)[None]
    best, value = np.take_along_axis(options, pick, 0)[0], np.take_along_axis(changes, pick, 0)[0]
    return np.where(best == -omega, 0.0, omega + best), -value
