"""Expected scatter of incomplete Gaussian rows: x_m | x_o ~ N(μ_m − Ω_mm⁻¹Ω_mo(x_o − μ_o), Ω_mm⁻¹)."""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float


@final
@dataclass(frozen=True, eq=False)
class ExpectedScatter:
    """Result of `expected_scatter`.

    Attributes
    ----------
    mean : (d,) ndarray
        μ̂.
    matrix : (d, d) ndarray
        Σ_i E[(x_i − μ̂)(x_i − μ̂)ᵀ | observed values of row i], not divided by n.
    objective : (k,) ndarray
        The maximized quantity before each of the k iterations; it never decreases.
    converged : bool
    message : str
        Why the iteration ended.
    """

    mean: Float[np.ndarray, " d"]
    matrix: Float[np.ndarray, "d d"]
    objective: Float[np.ndarray, " k"]
    converged: bool
    message: str


@dataclass(frozen=True, eq=False)
class _Pattern:
    """Rows in which the same columns are missing; they share one conditional distribution."""

    rows: np.ndarray
    columns: np.ndarray


def expected_scatter(
    X: Float[np.ndarray, "n d"],
    *,
    ridge: float | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> ExpectedScatter:
    """EM for the mean and scatter matrix of Gaussian rows with missing (NaN) entries.

    Maximizes the observed-data log-likelihood less (n·ridge/2) Σ_j v_j ω_jj, v_j the observed variance of
    column j. The M-step is then Σ = S/n + ridge·diag(v), positive definite for any n, d and collinearity.
    Without the penalty the likelihood is unbounded for n ≤ d, and for n a little larger the plain algorithm
    converges very slowly. The default 0.3 d/n is a compromise; it vanishes at the 1/n rate of the
    maximum-likelihood bias itself. The ridge acts on the conditional moments only and is not part of the result, so
    complete rows give exactly their scatter matrix.

    The covariance of two columns that are never observed together is not identified: the ridge determines it.

    Parameters
    ----------
    X : (n, d) ndarray
        Rows with NaN for missing values; no row and no column may be entirely NaN.
    ridge : float, optional
        Relative to each column's observed variance; default 0.3 d/n. Zero is the plain EM algorithm.
    tol : float
        Stop when no mean or covariance changes by more than this, relative to the standard deviations involved.
    max_iter : int
        Stop after this many iterations, with the last iterate and `converged=False`.

    Returns
    -------
    ExpectedScatter

    Raises
    ------
    ValueError
        If Σ becomes singular, which only `ridge=0` allows.
    """
    n, d = X.shape
    absent = np.isnan(X)
    if absent.all(axis=0).any() or absent.all(axis=1).any():
        raise ValueError("expected_scatter needs an observed value in every row and in every column")
    patterns = _find_patterns(absent)
    mean, variance = np.nanmean(X, axis=0), np.nanvar(X, axis=0)
    penalty = (0.3 * d / n if ridge is None else ridge) * variance
    covariance = np.diag(variance + penalty)
    objective, change = [], np.inf
    scatter = np.zeros((d, d))
    while change > tol and len(objective) < max_iter:
        deviations, spread, log_likelihood, precision = _expect(X - mean, absent, patterns, covariance)
        objective.append(log_likelihood - 0.5 * n * penalty @ np.diag(precision))
        step = deviations.mean(axis=0)
        deviations -= step
        scatter = deviations.T @ deviations + spread
        updated = scatter / n + np.diag(penalty)
        sd = np.sqrt(np.diag(updated))
        change = max(np.max(np.abs(step) / sd), np.max(np.abs(updated - covariance) / np.outer(sd, sd)))
        mean, covariance = mean + step, updated
    converged = bool(change <= tol)
    message = (
        f"EM converged in {len(objective)} iterations"
        if converged
        else f"EM for missing values stopped after {max_iter} iterations, still moving by {change:.1e}: "
        "too little is observed for these columns; leave out those with most missing values, or use complete rows only"
    )
    return ExpectedScatter(mean, scatter, np.array(objective), converged, message)


def _find_patterns(absent: Bool[np.ndarray, "n d"]) -> list[_Pattern]:
    masks, member = np.unique(absent, axis=0, return_inverse=True)
    return [
        _Pattern(rows=np.flatnonzero(member.ravel() == k), columns=np.flatnonzero(mask))
        for k, mask in enumerate(masks)
        if mask.any()
    ]


def _expect(
    deviations: Float[np.ndarray, "n d"],
    absent: Bool[np.ndarray, "n d"],
    patterns: list[_Pattern],
    covariance: Float[np.ndarray, "d d"],
) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
    """E-step: rows filled with conditional means, summed conditional covariances, log-likelihood, and Ω.

    Written with Ω because few entries are missing: Ω_mm⁻¹ costs m³, Σ_oo⁻¹ would cost (d−m)³.
    """
    n, d = deviations.shape
    try:
        L = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        L = np.zeros((d, d))
    # L_jj² is the variance of column j given the earlier columns; rounding makes it tiny where it should be 0.
    if np.min(np.diag(L) ** 2 / np.diag(covariance)) < 1e-12:
        raise ValueError("the covariance became singular: this EM needs ridge > 0")
    inverse_factor = np.linalg.inv(L)
    precision = inverse_factor.T @ inverse_factor
    filled = np.where(absent, 0.0, deviations)
    spread = np.zeros((d, d))
    log_det = 2 * n * np.sum(np.log(np.diag(inverse_factor)))
    for pattern in patterns:
        rows, m = pattern.rows, pattern.columns
        conditional = np.linalg.inv(precision[np.ix_(m, m)])
        # Missing entries are zero, so this product runs over observed columns only.
        filled[np.ix_(rows, m)] = -(filled[rows] @ precision[:, m]) @ conditional
        spread[np.ix_(m, m)] += len(rows) * conditional
        # log det Ω_oo.m = log det Ω − log det Ω_mm, where Ω_oo.m = Σ_oo⁻¹.
        log_det += len(rows) * np.linalg.slogdet(conditional)[1]
    # δ̂ᵀΩδ̂ at the filled row is the observed quadratic form δ_oᵀΣ_oo⁻¹δ_o.
    quadratic = np.sum((filled @ precision) * filled)
    n_observed = absent.size - np.count_nonzero(absent)
    return filled, spread, 0.5 * (log_det - quadratic - n_observed * np.log(2 * np.pi)), precision
