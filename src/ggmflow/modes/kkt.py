"""Stationarity of a penalized likelihood: the Karush–Kuhn–Tucker conditions.

With the gradient G of the smooth part and slopes r_ij ≥ 0 of the penalty in |ω_ij|, Ω is stationary if and only if
−g_ij ∈ r_ij ∂|ω_ij| for all i, j.
"""

import numpy as np
from jaxtyping import Float

Matrix = Float[np.ndarray, "d d"]


def smallest_subgradient(Omega: Matrix, gradient: Matrix, slopes: Matrix) -> Matrix:
    """The element of the subdifferential that is nearest to zero, entry by entry.

    Parameters
    ----------
    Omega : (d, d) array
        Ω, its zeros exactly 0.0.
    gradient : (d, d) array
        Gradient of the smooth part at Ω.
    slopes : (d, d) array
        r_ij ≥ 0; ``inf`` is allowed where ω_ij = 0.
    """
    nonzero = Omega != 0
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - slopes, 0.0)
    return np.where(nonzero, gradient + np.where(nonzero, slopes, 0.0) * np.sign(Omega), at_zero)


def kkt_residual(Omega: Matrix, W: Matrix, gradient: Matrix, slopes: Matrix) -> float:
    """Largest entry of the smallest subgradient, entry (i, j) relative to √(w_ii w_jj), W = Ω⁻¹; 0 if stationary."""
    variance = np.diag(W)
    violation = np.abs(smallest_subgradient(Omega, gradient, slopes))
    return float(np.max(violation / np.sqrt(np.outer(variance, variance))))
