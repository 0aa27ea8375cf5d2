"""Gaussian likelihood with one l1 penalty per entry of the precision matrix, solved to its optimality conditions.

    minimize  −log det Ω + tr(ΩS) + Σ_ij r_ij |ω_ij|   over Ω ≻ 0,   0 ≤ r_ij ≤ ∞,

here with S = XᵀX/n. Ω solves it if and only if, with W = Ω⁻¹,  w_ij − s_ij ∈ r_ij ∂|ω_ij|  for all i, j.

Two methods are combined. The alternating direction method of multipliers finds signs and zeros from anywhere,
but refines values slowly. Newton's method, on the signs and zeros it is given, converges quadratically, but only
from nearby. Their steps are products, factorizations and eigendecompositions of d×d matrices: compiled loops over
entries, as coordinate descent needs, are not required.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool
from numpy.linalg import norm
from scipy.linalg import get_lapack_funcs
from threadpoolctl import ThreadpoolController

from ggmflow.modes.kkt import Matrix, smallest_subgradient

_HANDOVER = 1e-2  # subgradient at which Newton's method is first tried; then at each tenth
_NEWTON_STEPS = 10
_CONJUGATE_GRADIENT_STEPS = 250
_RELAXATION = 1.6  # over-relaxation of the alternating directions; 1.5 to 1.8 is customary

# NumPy and SciPy each load their own BLAS, whose idle threads compete for the cores. On two busy cores that costs far
# more than it gains, so solvers limit both to one thread.
BLAS = ThreadpoolController()

_potrf, _potri = get_lapack_funcs(("potrf", "potri"), dtype=np.float64)


class PenalizedLikelihoodResult(NamedTuple):
    """Solution of the penalized likelihood problem, with measures of its accuracy.

    Attributes
    ----------
    precision : (d, d) array
        Ω, symmetric, its zeros exactly 0.0.
    covariance : (d, d) array
        W = Ω⁻¹.
    objective : float
        −log det Ω + tr(ΩS) + Σ_ij r_ij |ω_ij|, the minimized value.
    kkt_residual : float
        Largest entry of the smallest subgradient, entry (i, j) divided by √(v_i v_j), where v_i = s_ii + r_ii are
        the variances of the solution, so that it has no units; 0 at the exact solution.
    duality_gap : float
        Objective minus the lower bound log det V + d, V the nearest dual feasible matrix to W; ``inf`` if V is
        not positive definite. No Ω has an objective below ``objective − duality_gap``.
    n_iter : int
        Alternating direction steps and Newton steps taken.
    converged : bool
        Whether ``kkt_residual`` reached the tolerance.
    """

    precision: Matrix
    covariance: Matrix
    objective: float
    kkt_residual: float
    duality_gap: float
    n_iter: int
    converged: bool


def solve_penalized(
    S: Matrix, penalty: Matrix, *, initial: Matrix | None = None, tol: float = 1e-8, max_iter: int = 2000
) -> PenalizedLikelihoodResult:
    """Minimize −log det Ω + tr(ΩS) + Σ_ij r_ij |ω_ij|.

    Parameters
    ----------
    S : (d, d) array
        Empirical covariance, symmetric.
    penalty : (d, d) array
        r_ij, symmetric. Zero leaves an entry unpenalized, ``inf`` off the diagonal fixes it at zero.
    initial : (d, d) array, optional
        Positive definite matrix to start from. By default the solution of the problem with Ω diagonal.
    tol : float
        Bound on ``kkt_residual``.
    max_iter : int
        Bound on the alternating direction steps. If it is reached, the best matrix found is returned and
        ``converged`` is false.

    Returns
    -------
    PenalizedLikelihoodResult

    Raises
    ------
    ValueError
        If some s_ii + r_ii is not positive, or ``initial`` not positive definite.
    """
    variance = np.diag(S) + np.diag(penalty)
    if not np.all((variance > 0) & np.isfinite(variance)):
        raise ValueError("each variable needs a positive variance or a positive, finite penalty on its diagonal entry")
    # Scaling the variables to unit variances in the solution leaves the problem in the same form, and lets step
    # sizes and tolerances mean the same for all data.
    scale = np.sqrt(np.outer(variance, variance))
    scaled_S = S / scale
    # There |w_ij| < 1, so |w_ij − s_ij| stays below this bound: a larger penalty, even ∞, acts no differently.
    largest = 1 + max(1.0, float(np.max(np.abs(scaled_S))))
    problem = _Problem(scaled_S, np.minimum(penalty / scale, largest))
    start = np.eye(len(S)) if initial is None else initial * scale
    factor = cholesky(start)
    if factor is None:
        raise ValueError("initial must be positive definite")

    with BLAS.limit(limits=1, user_api="blas"):
        best, best_residual, n_iter = _minimize(problem, _Point(start, factor), tol, max_iter)
    covariance = inverse(best.factor)
    objective = problem.objective(best)
    # The dual maximizes log det V + d over the box |v_ij − s_ij| ≤ r_ij.
    dual_factor = cholesky(problem.S + np.clip(covariance - problem.S, -problem.penalty, problem.penalty))
    bound = -np.inf if dual_factor is None else log_det(dual_factor) + len(S)
    return PenalizedLikelihoodResult(
        precision=best.Omega / scale,
        covariance=covariance * scale,
        objective=float(objective + np.sum(np.log(variance))),  # only log det Ω changes with the scale
        kkt_residual=best_residual,
        duality_gap=float(objective - bound),
        n_iter=n_iter,
        converged=bool(best_residual <= tol),
    )


class _Point(NamedTuple):
    Omega: Matrix
    factor: Matrix  # lower Cholesky factor: its existence is the proof that Ω ≻ 0


class _Problem(NamedTuple):
    S: Matrix
    penalty: Matrix

    def objective(self, point: _Point) -> float:
        linear = np.sum(self.S * point.Omega) + np.sum(self.penalty * np.abs(point.Omega))
        return float(linear) - log_det(point.factor)

    def subgradient(self, Omega: Matrix, W: Matrix) -> Matrix:
        """Smallest element of the subdifferential of the objective; its largest entry is the KKT residual."""
        return smallest_subgradient(Omega, self.S - W, self.penalty)


def cholesky(matrix: Matrix) -> Matrix | None:
    """Lower Cholesky factor, or None if the matrix is not positive definite: an exception would slow a line search."""
    factor, info = _potrf(matrix, lower=True, clean=True)
    return factor if info == 0 else None


def inverse(factor: Matrix) -> Matrix:
    """Inverse of a matrix from its lower Cholesky factor."""
    lower, _ = _potri(factor, lower=True)
    return lower + np.tril(lower, -1).T


def log_det(factor: Matrix) -> float:
    """Log-determinant of a matrix from its lower Cholesky factor."""
    return 2 * float(np.sum(np.log(np.diag(factor))))


def _minimize(problem: _Problem, start: _Point, tol: float, max_iter: int) -> tuple[_Point, float, int]:
    """Refine the alternating directions' matrices by Newton's method; return the best, its residual and all steps."""
    best, best_residual, n_iter, newton_steps = start, np.inf, 0, 0
    for candidate, admm_steps in _alternating_directions(problem, start, max_iter):
        refined, residual, steps = _newton(problem, candidate, tol)
        newton_steps += steps
        n_iter = admm_steps + newton_steps
        if residual < best_residual:
            best, best_residual = refined, residual
        if residual <= tol:
            break
    return best, best_residual, n_iter


def _alternating_directions(problem: _Problem, start: _Point, max_iter: int) -> Iterator[tuple[_Point, int]]:
    """Yield better and better positive definite matrices with the number of steps so far; at the end the latest one.

    The splitting is Ω = Z: likelihood of Ω, penalty of Z, and step·U the multiplier.
    """
    S, penalty = problem
    Z, step = start.Omega, 1.0
    U = np.clip(inverse(start.factor) - S, -penalty, penalty)
    latest, handover = start, _HANDOVER
    for count in range(max_iter):
        factor = cholesky(Z) if count % 5 == 0 else None
        if factor is not None:
            latest = _Point(Z, factor)
            residual = np.max(np.abs(problem.subgradient(Z, inverse(factor))))
            if residual <= handover:
                yield latest, count
                handover = residual / 10
        # S − Ω⁻¹ + step (Ω − Z + U) = 0 is a quadratic equation for each eigenvalue.
        eigenvalues, Q = np.linalg.eigh(step * (Z - U) - S)
        Omega = (Q * ((eigenvalues + np.sqrt(eigenvalues**2 + 4 * step)) / (2 * step))) @ Q.T
        relaxed = _RELAXATION * (Omega + Omega.T) / 2 + (1 - _RELAXATION) * Z + U
        previous, Z = Z, np.sign(relaxed) * np.maximum(np.abs(relaxed) - penalty / step, 0.0)
        U = relaxed - Z
        if count % 10 == 9 and count < 300:  # convergence is certain only with a fixed step
            # Balance the primal and the dual residual, each relative to its own size: for small penalties this
            # takes far fewer iterations than a fixed step or absolute residuals.
            primal = norm(Omega - Z) * norm(U)
            dual = norm(Z - previous) * max(norm(Omega), norm(Z))
            if primal > 0 and dual > 0:
                change = np.clip(np.sqrt(primal / dual), 0.2, 5.0)
                step, U = step * change, U / change
    yield latest, max_iter


def _newton(problem: _Problem, point: _Point, tol: float) -> tuple[_Point, float, int]:
    """Newton steps, each within the orthant that the subgradient points to; return Ω, its residual and the steps."""
    value = problem.objective(point)
    rounding = 1e-14 * (abs(value) + len(point.Omega))  # smaller differences of the objective are rounding
    count = 0
    while True:
        Omega, W = point.Omega, inverse(point.factor)
        subgradient = problem.subgradient(Omega, W)
        residual = float(np.max(np.abs(subgradient)))
        if residual <= tol or count == _NEWTON_STEPS:
            return point, residual, count
        orthant = np.sign(np.where(Omega != 0, Omega, -subgradient))
        gradient = problem.S - W + problem.penalty * orthant
        direction = _newton_direction(Omega, W, gradient, orthant, rtol=min(0.1, np.sqrt(residual)))
        for length in 0.5 ** np.arange(11):
            moved = Omega + length * direction
            projected = np.where(moved * orthant > 0, moved, 0.0)
            factor = cholesky(projected)
            if factor is None:
                continue
            trial = _Point(projected, factor)
            trial_value = problem.objective(trial)
            expected = min(float(np.sum(subgradient * (projected - Omega))), 0.0)
            if trial_value <= value + 1e-4 * expected + rounding:
                point, value, count = trial, trial_value, count + 1
                break
        else:
            return point, residual, count


def _newton_direction(Omega: Matrix, W: Matrix, gradient: Matrix, orthant: Matrix, rtol: float) -> Matrix:
    """D with W D W = −gradient on the entries in the orthant, zero elsewhere.

    Entries that would cross zero are pinned there and the others solved for again. Without this the projection
    onto the orthant undoes their part of the step, and the same step is tried again and again.
    """
    free = orthant != 0
    pinned = direction = np.zeros_like(Omega)
    for _ in range(3):
        right_side = np.where(free, -gradient - W @ pinned @ W, 0.0)
        direction = pinned + conjugate_gradient(W, free, right_side, rtol)
        crossing = free & ((Omega + direction) * orthant < 0)
        if not crossing.any():
            break
        free = free & ~crossing
        pinned = np.where(crossing, -Omega, pinned)
    return (direction + direction.T) / 2


def conjugate_gradient(
    W: Matrix, free: Bool[np.ndarray, "d d"], right_side: Matrix, rtol: float, bend: Matrix | float = 0.0
) -> Matrix:
    """Solve W D W + B∘D = right_side for symmetric D on the free entries, zero elsewhere.

    Where B (``bend``) makes the operator indefinite, the solution so far is returned, or the right side itself.
    """
    # Up to a factor 2 for the first part, the operator's diagonal off the diagonal.
    curvature = np.maximum(np.outer(np.diag(W), np.diag(W)) + W**2 + bend, 1e-8)
    solution, remainder = np.zeros_like(W), right_side
    search = remainder / curvature
    size = first_size = float(np.sum(remainder * search))
    for _ in range(_CONJUGATE_GRADIENT_STEPS):
        if size <= rtol**2 * first_size:
            break
        image = np.where(free, W @ search @ W + bend * search, 0.0)
        along = float(np.sum(search * image))
        if along <= 0:
            return solution if solution.any() else search
        length = size / along
        solution = solution + length * search
        remainder = remainder - length * image
        preconditioned = remainder / curvature
        last_size, size = size, float(np.sum(remainder * preconditioned))
        search = preconditioned + (size / last_size) * search
    return solution
