"""The l_q-penalized likelihood, whose minimizer is a posterior mode.

    f(Ω) = −log det Ω + tr(ΩC) + ρ (tr Ω + Σ_{i≠j} |ω_ij|^q),     C = S/n,  ρ = λ/n,

is −2/n times the log posterior at T = 1. For a query the sum runs over pairs with a query variable only: Ω₂₂.₁ then has
its own, separate maximum, and the rows [Ω₁₁ Ω₁₂] of the minimizer are the mode of the query's posterior.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ggmflow.modes.kkt import kkt_residual
from ggmflow.modes.penalized_likelihood import Matrix, cholesky, inverse, log_det

TOLERANCE = 1e-8  # of the KKT residual


class Problem(NamedTuple):
    """f at one (ρ, q)."""

    C: Matrix
    rho: float
    q: float
    penalized: Bool[np.ndarray, "d d"]  # pairs with a penalty; never the diagonal

    @property
    def queried(self) -> Bool[np.ndarray, " d"]:
        """The query: variables all of whose pairs are penalized."""
        return np.sum(self.penalized, axis=0) == len(self.C) - 1

    def objective(self, Omega: Matrix) -> float:
        """f(Ω), ∞ if Ω is not positive definite."""
        factor = cholesky(Omega)
        if factor is None:
            return np.inf
        powers = np.sum(np.abs(Omega[self.penalized]) ** self.q)
        return float(np.sum(self.C * Omega) + self.rho * (np.trace(Omega) + powers)) - log_det(factor)

    def slopes(self, Omega: Matrix) -> Matrix:
        """ρ q |ω_ij|^{q−1}; ρ on the diagonal, 0 for pairs without a penalty.

        At zero it is the slope at the smallest positive number: nearly infinite for q < 1, and not zero for q just
        above 1, where the entry of a mode may be smaller than any number.
        """
        slopes = self.rho * np.eye(len(Omega))
        size = np.maximum(np.abs(Omega[self.penalized]), np.finfo(float).tiny)
        slopes[self.penalized] = self.rho * self.q * size ** (self.q - 1)
        return slopes

    def residual(self, Omega: Matrix, W: Matrix) -> float:
        """KKT residual of f at Ω, with W = Ω⁻¹."""
        return kkt_residual(Omega, W, self.C - W, self.slopes(Omega))


def make_problem(S: Matrix, n: float, lam: float, q: float, query: Int[np.ndarray, " s"]) -> Problem:
    """f for given data, λ, q and query columns."""
    queried = np.isin(np.arange(len(S)), query)
    return Problem(S / n, lam / n, q, (queried[:, None] | queried) & ~np.eye(len(S), dtype=bool))


def complete(problem: Problem, rows: Float[np.ndarray, "s d"], query: Int[np.ndarray, " s"]) -> Matrix:
    """The matrix with given rows of a query and the best Ω₂₂.₁ = (C₂₂ + ρI)⁻¹ for the other variables."""
    d = len(problem.C)
    rest = np.setdiff1d(np.arange(d), query)
    Omega = np.empty((d, d))
    Omega[query], Omega[:, query] = rows, rows.T
    if len(rest):
        inner = np.linalg.inv(problem.C[np.ix_(rest, rest)] + problem.rho * np.eye(len(rest)))
        Omega[np.ix_(rest, rest)] = inner + rows[:, rest].T @ np.linalg.solve(rows[:, query], rows[:, rest])
    return (Omega + Omega.T) / 2


def inverse_of(Omega: Matrix) -> Matrix:
    """Ω⁻¹ of a positive definite matrix."""
    factor = cholesky(Omega)
    if factor is None:
        raise FloatingPointError("the precision matrix is too near singular for double precision: use a larger λ")
    return inverse(factor)
