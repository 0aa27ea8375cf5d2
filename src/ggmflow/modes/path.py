"""Posterior modes along λ with exact zeros: the l_q-penalized likelihood, minimized for any q > 0.

    f(Ω) = −log det Ω + tr(ΩC) + ρ (tr Ω + Σ_{i≠j} |ω_ij|^q),     C = S/n,  ρ = λ/n,

is −2/n times the log posterior at T = 1. For a query the sum runs over pairs with a query variable only: Ω₂₂.₁ then has
its own, separate maximum, and the rows [Ω₁₁ Ω₁₂] of the minimizer are the mode of the query's posterior.

q = 1   convex; the connected parts of the graph |c_ij| > ρ are solved one by one, which loses nothing.
q > 1   convex and smooth; Newton's method in U, where Ω = prox(U).
q < 1   many local minima. Every start descends by reweighted graphical lassos, which bound f from above, then by moves
        of one entry each to the best place on its line, in or out of zero, over all pairs, until none helps. Solutions
        are handed along λ in both directions, and the best one is kept.

A single entry moves along  −log(1 + 2t w_ij − t²(w_ii w_jj − w_ij²)) + 2t c_ij + 2ρ|ω_ij + t|^q,  W = Ω⁻¹.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import connected_components

from ggmflow.model.precision import shrunk_precision
from ggmflow.modes.penalized_likelihood import (
    BLAS,
    Matrix,
    cholesky,
    conjugate_gradient,
    inverse,
    log_det,
    solve_penalized,
)

_TOL = 1e-8  # of the KKT residual
_GAIN = 1e-10  # of one move, below which it is not worth making
_REWEIGHTINGS = 200
_NEWTON_STEPS = 100
_ROUNDS = 200
_MOVES = 60  # of single entries before all others adapt
_LINE_STEPS = 15  # those who stop short of the place are polished with all others
_STIFF = 1e8  # bend, relative to κ, from which an entry is as good as fixed


class ModePath(NamedTuple):
    """Modes along λ.

    Attributes
    ----------
    q : float
    lam : (k,) array
    precision : (k, d, d) array, or (k, s, d) with a query
        In the working scale; zeros are exactly 0.0.
    objective : (k,) array
        f, which is −2/n times the log posterior density without its constants.
    kkt_residual : (k,) array
        Largest violation of stationarity, entry (i, j) relative to √(w_ii w_jj); 0 at a stationary point.
    n_edges : (k,) array
        Pairs that are not zero.
    start : list of str
        Where the best descent began: "lasso", "empty", "ridge", "shrunk", for which no flow is needed, "flow", or
        "neighbour", the solution at the next λ; "convex" where it does not matter.
    """

    q: float
    lam: Float[np.ndarray, " k"]
    precision: Float[np.ndarray, "k s d"]
    objective: Float[np.ndarray, " k"]
    kkt_residual: Float[np.ndarray, " k"]
    n_edges: Int[np.ndarray, " k"]
    start: list[str]

    def __repr__(self) -> str:
        along = f"{len(self.lam)} modes at q = {self.q:g}, λ from {np.min(self.lam):.3g} to {np.max(self.lam):.3g}"
        edges = f"{np.min(self.n_edges)} to {np.max(self.n_edges)} edges"
        return f"<ModePath: {along}, {edges}; fields {', '.join(self._fields)}>"


class Problem(NamedTuple):
    """f at one (ρ, q)."""

    C: Matrix
    rho: float
    q: float
    penalized: Bool[np.ndarray, "d d"]  # pairs that pay; never the diagonal

    @property
    def asked(self) -> Bool[np.ndarray, " d"]:
        """Variables all of whose pairs pay."""
        return np.sum(self.penalized, axis=0) == len(self.C) - 1

    def objective(self, Omega: Matrix) -> float:
        """f(Ω), ∞ if Ω is not positive definite."""
        factor = cholesky(Omega)
        if factor is None:
            return np.inf
        powers = np.sum(np.abs(Omega[self.penalized]) ** self.q)
        return float(np.sum(self.C * Omega) + self.rho * (np.trace(Omega) + powers)) - log_det(factor)

    def slopes(self, Omega: Matrix) -> Matrix:
        """ρ q |ω_ij|^{q−1}; ρ on the diagonal, 0 for pairs that do not pay.

        At zero it is that of the smallest positive number: all but infinite for q < 1, and for q just above 1, where
        entries may be too small for any number, not zero.
        """
        slopes = self.rho * np.eye(len(Omega))
        size = np.maximum(np.abs(Omega[self.penalized]), np.finfo(float).tiny)
        slopes[self.penalized] = self.rho * self.q * size ** (self.q - 1)
        return slopes

    def residual(self, Omega: Matrix, W: Matrix) -> float:
        """Largest entry of the gradient of f, at zeros of its smallest subgradient, relative to √(w_ii w_jj)."""
        gradient, slopes = self.C - W, self.slopes(Omega)
        at_zero = np.maximum(np.abs(gradient) - slopes, 0.0)
        violation = np.where(Omega != 0, np.abs(gradient + slopes * np.sign(Omega)), at_zero)
        return float(np.max(violation / np.sqrt(np.outer(np.diag(W), np.diag(W)))))


def make_problem(S: Matrix, n: float, lam: float, q: float, query: Int[np.ndarray, " s"]) -> Problem:
    """f for given data, λ, q and query columns."""
    asked = np.isin(np.arange(len(S)), query)
    return Problem(S / n, lam / n, q, (asked[:, None] | asked) & ~np.eye(len(S), dtype=bool))


# ------------------------------------------------------------------------------------------------------------- the path
def solve_path(
    S: Matrix,
    n: float,
    lams: Sequence[float],
    q: float,
    query: Int[np.ndarray, " s"],
    flow_starts: Callable[[float], Sequence[Float[np.ndarray, "s d"]]] = lambda lam: (),
    report: Callable[[], None] = lambda: None,
) -> ModePath:
    """Minimize f for every λ.

    Parameters
    ----------
    S : (d, d) array
        Scatter matrix.
    n
        Number of rows behind it.
    lams
        Values of λ, in any order.
    q
        Exponent.
    query : (s,) array of int
        Columns whose pairs pay the penalty and whose rows are returned; all of them for the full problem.
    flow_starts
        Rows of the query to descend from, given λ; asked for q < 1 only.
    report
        Called once for each λ.

    Returns
    -------
    ModePath
    """
    ascending = np.argsort(lams, kind="stable")
    problems = [make_problem(S, n, lam, q, query) for lam in lams]
    with BLAS.limit(limits=1, user_api="blas"):
        if q < 1:
            starts = [[complete(problems[k], rows, query) for rows in flow_starts(lams[k])] for k in ascending]
            found = _nonconvex_path([problems[k] for k in ascending], shrunk_precision(S / n, n), starts, report)
        else:
            found, previous = [], None
            # From much penalty to little: few edges first, each solution the next one's start.
            for k in ascending[::-1]:
                previous = _graphical_lasso(problems[k], previous) if q == 1 else _smooth(problems[k], previous)
                found.insert(0, (previous, "convex"))
                report()
    place = np.argsort(ascending)
    return describe(problems, lams, [found[k][0] for k in place], [found[k][1] for k in place], query)


def describe(
    problems: Sequence[Problem],
    lams: Sequence[float],
    modes: Sequence[Matrix],
    starts: list[str],
    query: Int[np.ndarray, " s"],
) -> ModePath:
    """A path from matrices found somehow, one for each problem."""
    solved = list(zip(problems, modes, strict=True))
    return ModePath(
        q=problems[0].q,
        lam=np.asarray(lams, float),
        precision=np.array(modes)[:, query],
        objective=np.array([each.objective(mode) for each, mode in solved]),
        kkt_residual=np.array([each.residual(mode, inverse_of(mode)) for each, mode in solved]),
        n_edges=np.array([np.count_nonzero(np.triu(mode * each.penalized)) for each, mode in solved]),
        start=starts,
    )


def complete(problem: Problem, rows: Float[np.ndarray, "s d"], query: Int[np.ndarray, " s"]) -> Matrix:
    """The matrix with given rows of a query and the best Ω₂₂.₁ = (C₂₂ + ρI)⁻¹."""
    d = len(problem.C)
    rest = np.setdiff1d(np.arange(d), query)
    Omega = np.empty((d, d))
    Omega[query], Omega[:, query] = rows, rows.T
    if len(rest):
        inner = np.linalg.inv(problem.C[np.ix_(rest, rest)] + problem.rho * np.eye(len(rest)))
        Omega[np.ix_(rest, rest)] = inner + rows[:, rest].T @ np.linalg.solve(rows[:, query], rows[:, rest])
    return (Omega + Omega.T) / 2


# --------------------------------------------------------------------------------------------------------- q = 1, q > 1
def _graphical_lasso(problem: Problem, initial: Matrix | None) -> Matrix:
    """q = 1, part by part: where |c_ij| ≤ ρ for all pairs between two groups, the solution has no edge between them."""
    if not problem.asked.all():
        return _lasso_of_a_query(problem, initial)
    penalty = problem.slopes(np.ones_like(problem.C))
    count, part = connected_components(np.abs(problem.C) > penalty, directed=False)
    if count == 1:
        return _lasso_as_it_is(problem, initial)
    Omega = np.diag(1 / (np.diag(problem.C) + problem.rho))
    for k in np.flatnonzero(np.bincount(part) > 1):
        block = np.ix_(part == k, part == k)
        start = None if initial is None else initial[block]
        Omega[block] = solve_penalized(problem.C[block], penalty[block], initial=start, tol=_TOL).precision
    return Omega


def _lasso_of_a_query(problem: Problem, initial: Matrix | None) -> Matrix:
    """q = 1 for a query: with those variables only that have an edge to it, until no other one wants one."""
    query, penalty = np.flatnonzero(problem.asked), problem.slopes(np.ones_like(problem.C))
    start = np.diag(1 / (np.diag(problem.C) + problem.rho)) if initial is None else initial
    Omega, active = complete(problem, start[query], query), np.zeros(len(problem.C), dtype=bool)
    while True:
        gradient = np.abs(problem.C - inverse_of(Omega))[query]
        violated = gradient > penalty[query] * (1 + _TOL)
        wanted = active | problem.asked | np.any((Omega[query] != 0) | violated, axis=0)
        if np.array_equal(wanted, active):
            return Omega
        active = wanted
        Omega = _with_some(problem, Omega, active, _lasso_as_it_is)


def _lasso_as_it_is(problem: Problem, initial: Matrix | None) -> Matrix:
    penalty = problem.slopes(np.ones_like(problem.C))
    return solve_penalized(problem.C, penalty, initial=initial, tol=_TOL).precision


def _with_some(
    problem: Problem, Omega: Matrix, active: Bool[np.ndarray, " d"], solve: Callable[[Problem, Matrix], Matrix]
) -> Matrix:
    """Solve for a query with some of the other variables, and no edge to the rest; that is the same kind of problem."""
    query, used = np.flatnonzero(problem.asked), np.flatnonzero(active)
    place, block = np.searchsorted(used, query), np.ix_(used, used)
    inner = problem._replace(C=problem.C[block], penalized=problem.penalized[block])
    rows = np.zeros((len(query), len(Omega)))
    rows[:, used] = solve(inner, complete(inner, Omega[np.ix_(query, used)], place))[place]
    return complete(problem, rows, query)


def _smooth(problem: Problem, initial: Matrix | None) -> Matrix:
    """q > 1: Newton's method in U, where Ω = prox(U) entry by entry,  ω + (ρq/κ) |ω|^{q−1} sign ω = u.

    The slope of |ω|^q changes too fast near zero for steps in Ω, while p = dω/du lies between 0 and 1. The gradient is
    F = C + ρI − W + κ(U − Ω), and a step solves  W V W + κ(1/p − 1)∘V = −F  for V = p∘dU, the first-order change of Ω.
    """
    q, C = problem.q, problem.C + problem.rho * np.eye(len(problem.C))
    kappa = np.outer(np.diag(C), np.diag(C))  # the curvature of −log det at the diagonal solution
    strength = np.where(problem.penalized, problem.rho * q / kappa, 0.0)
    Omega = np.diag(1 / np.diag(C)) if initial is None else initial
    U = Omega + strength * np.sign(Omega) * np.abs(Omega) ** (q - 1)
    value, W = problem.objective(Omega), inverse_of(Omega)
    for _ in range(_NEWTON_STEPS):
        if (residual := problem.residual(Omega, W)) <= _TOL:
            break
        F = C - W + kappa * (U - Omega)
        size = np.maximum(np.abs(Omega), np.finfo(float).tiny)
        bend = kappa * strength * (q - 1) * size ** (q - 2)
        free = bend < _STIFF * kappa
        V = conjugate_gradient(W, free, np.where(free, -F, 0.0), min(0.1, residual), np.where(free, bend, 0.0))
        V = (V + V.T) / 2
        # Where Ω hardly moves with U, the equation gives dU; elsewhere dU = V/p, a descent even if V is not exact.
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


# ---------------------------------------------------------------------------------------------------------------- q < 1
def _nonconvex_path(
    problems: Sequence[Problem], shrunk: Matrix, flow_starts: Sequence[Sequence[Matrix]], report: Callable[[], None]
) -> list[tuple[Matrix, str]]:
    """The best minimum found for each ρ, ascending."""
    best: list[tuple[float, Matrix, str]] = []
    lasso = None
    for k in range(len(problems) - 1, -1, -1):
        each = problems[k]
        lasso = _graphical_lasso(each._replace(q=1.0), lasso)
        starts = [(lasso, "lasso"), (_empty(each), "empty"), (_ridge(each), "ridge"), (shrunk, "shrunk")]
        starts += [(start, "flow") for start in flow_starts[k]]
        found = [(each.objective(mode), mode, name) for mode, name in ((_descend(each, s), name) for s, name in starts)]
        best.insert(0, min(found, key=lambda entry: entry[0]))
        report()
    count = len(problems)
    # Up and down until no neighbour helps.
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


def _empty(problem: Problem) -> Matrix:
    """The best matrix without an edge: a local minimum itself, which moves of single entries may leave."""
    query = np.flatnonzero(problem.asked)
    return complete(problem, np.diag(1 / (np.diag(problem.C) + problem.rho))[query], query)


def _descend(problem: Problem, start: Matrix) -> Matrix:
    """From any positive definite matrix to one that no change of a single entry improves."""
    Omega = _reweight(problem, _without_small(problem, start))
    for _ in range(_ROUNDS):
        if (moved := _move_entries(problem, Omega)) is None:
            break
        Omega = _reweight(problem, moved)
    return Omega


def _without_small(problem: Problem, Omega: Matrix) -> Matrix:
    """For a query, drop the entries of Ω₁₂ at which f bends down, since no minimum can be there: most, as a rule.

    The second derivative along an entry is 2(w_ii w_jj + w_ij²) − 2ρq(1−q)|ω_ij|^{q−2}.
    """
    asked = problem.asked
    if asked.all():
        return Omega
    query, W = np.flatnonzero(asked), inverse_of(Omega)
    curvature = np.outer(np.diag(W), np.diag(W)) + W**2
    least = (problem.rho * problem.q * (1 - problem.q) / curvature) ** (1 / (2 - problem.q))
    return complete(problem, np.where(asked | (np.abs(Omega) > least), Omega, 0.0)[query], query)


def _reweight(problem: Problem, Omega: Matrix) -> Matrix:
    """Reweighted graphical lassos, then Newton's method on what is not zero.

    Zeros stay zero. So for a query, variables without an edge to it are left out, and few remain.
    """
    asked = problem.asked
    active = asked | np.any(Omega[asked] != 0, axis=0)
    if not active.all():
        return _with_some(problem, Omega, active, _reweight)
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
    """Newton's method on the entries that are not zero; None if it leads away or entries want to vanish."""
    free, q = Omega != 0, problem.q
    value = problem.objective(Omega)
    for _ in range(_NEWTON_STEPS):
        W = inverse_of(Omega)
        if (residual := problem.residual(Omega, W)) <= _TOL:
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
    """The best move of a single entry, again and again; None if there is none."""
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
    """Best value of each entry if it alone changes, and by how much f falls; all arguments and results are vectors.

    The likelihood's part is convex with its minimum at some x; a minimum of the sum other than zero lies between zero
    and x. Reweighting from x comes down to the one nearest to x.
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


def inverse_of(Omega: Matrix) -> Matrix:
    """Ω⁻¹ of a positive definite matrix."""
    factor = cholesky(Omega)
    if factor is None:
        raise FloatingPointError("the precision matrix is too near singular for double precision: use a larger λ")
    return inverse(factor)
