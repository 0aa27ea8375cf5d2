"""Sparse precision matrices from non-convex penalties, by local linear approximation.

    minimize  f(Ω) = −log det Ω + tr(ΩS)/n + Σ_ij p_ρ(|ω_ij|)   over Ω ≻ 0.

A concave p lies below its tangents, so with the weights r_ij = p′_ρ(|ω_ij|) of the current Ω the graphical lasso

    −log det Ω + tr(ΩS)/n + Σ_ij r_ij |ω_ij|

bounds f from above, up to a constant, and touches it at the current Ω: minimizing the bound decreases f. One such step
from a good start is the one-step estimator of Zou & Li (2008); repeated to convergence it ends at a stationary point
of f. The level ρ is chosen by an information criterion, −n (log det Ω − tr(ΩS)/n) + (number of edges) · (price of one).

The defaults are those of the R package GGMncv 2.1.1, whose published answers are among the tests.
"""

import warnings
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from sklearn.covariance import ledoit_wolf

from ggmflow.baselines.graphical_lasso import as_symmetric
from ggmflow.baselines.penalties import find_penalty, penalty_slope, penalty_value
from ggmflow.errors.argument import ArgumentError, UnknownChoiceError
from ggmflow.model.precision import shrunk_precision
from ggmflow.modes.kkt import Matrix, kkt_residual
from ggmflow.modes.penalized_likelihood import solve_penalized

Criterion = Literal["bic", "ebic", "aic", "ric", "gic_1", "gic_2", "gic_3", "gic_4", "gic_5", "gic_6"]


class NonconvexResult(NamedTuple):
    """Estimate at the selected ρ, and the criterion along the path.

    Attributes
    ----------
    precision, covariance : (d, d) array
        Ω with exact zeros, and Ω⁻¹, in the scale of ``emp_cov``.
    edges : (d, d) array of bool
        Where Ω is not zero, the diagonal excluded.
    rho : float
        Selected level of the penalty, in the units of GGMncv.
    lam : float
        nρ, the λ of the posterior exp(−λ Σ_{i<j} |ω_ij|^q) that this penalty corresponds to.
    objective : float
        f(Ω) at the selected ρ; with ``penalty="lq"``, ``diagonal="l1"`` and ``offset=0`` it is −2/n times the log of
        the posterior density of the model, normalizing constants left out.
    kkt_residual : float
        Largest violation of the stationarity of f, relative to the variances; not small after a single step.
    converged : bool
        Whether the selected fit was solved to tolerance; if iterated, the iteration too.
    objective_history : (k,) array
        f at the start and after each step, for the selected ρ.
    rho_path, criterion_path, n_edges_path : (m,) array
        The levels tried, the criterion at each (``inf`` where there was no solution) and the number of edges.
    """

    precision: Matrix
    covariance: Matrix
    edges: Bool[np.ndarray, "d d"]
    rho: float
    lam: float
    objective: float
    kkt_residual: float
    converged: bool
    objective_history: Float[np.ndarray, " k"]
    rho_path: Float[np.ndarray, " m"]
    criterion_path: Float[np.ndarray, " m"]
    n_edges_path: Int[np.ndarray, " m"]


class _Fit(NamedTuple):
    precision: Matrix
    covariance: Matrix
    history: list[float]
    solved: bool  # whether the last graphical lasso converged
    converged: bool  # whether it did and, if iterated, the steps did too


class _Model(NamedTuple):
    """f as a function of Ω and ρ, for one penalty."""

    S: Matrix
    penalty: str
    gamma: float
    offset: float
    diagonal: str

    def slopes(self, Omega: Matrix, rho: float) -> Matrix:
        """r_ij = p′(|ω_ij|), the weights of the local linear approximation."""
        r = penalty_slope(self.penalty, Omega, rho, self.gamma, offset=self.offset)
        if self.diagonal == "l1":
            np.fill_diagonal(r, rho)
        return r

    def objective(self, Omega: Matrix, rho: float) -> float:
        p = penalty_value(self.penalty, Omega, rho, self.gamma, offset=self.offset)
        if self.diagonal == "l1":
            np.fill_diagonal(p, rho * np.diag(Omega))
        return float(np.sum(self.S * Omega) + np.sum(p)) - float(np.linalg.slogdet(Omega).logabsdet)

    def kkt_residual(self, fit: _Fit, rho: float) -> float:
        return kkt_residual(fit.precision, fit.covariance, self.S - fit.covariance, self.slopes(fit.precision, rho))

    def fit(self, initial: Matrix, rho: float, max_steps: int, tol: float) -> _Fit:
        """Take local linear approximation steps until Ω is stationary, at most `max_steps`."""
        Omega, history, settled = initial, [self.objective(initial, rho)], max_steps == 1
        while True:
            start = Omega if len(history) > 1 else None  # the first step can be large
            result = solve_penalized(self.S, self.slopes(Omega, rho), initial=start, tol=tol)
            change = np.max(np.abs(result.precision - Omega)) / np.max(result.precision)
            Omega = result.precision
            history.append(self.objective(Omega, rho))
            settled = settled or bool(change <= 10 * tol)
            if settled or not result.converged or len(history) > max_steps:
                return _Fit(Omega, result.covariance, history, result.converged, result.converged and settled)


def nonconvex_precision(
    emp_cov: ArrayLike,
    n_samples: float,
    penalty: str = "atan",
    *,
    rho: ArrayLike | None = None,
    gamma: float | None = None,
    initial: ArrayLike | None = None,
    criterion: Criterion = "bic",
    ebic_gamma: float = 0.5,
    iterate: bool = False,
    diagonal: Literal["penalty", "l1"] = "penalty",
    offset: float = 1e-4,
    n_rho: int = 50,
    rho_min_ratio: float = 0.01,
    tol: float = 1e-8,
    max_steps: int = 500,
) -> NonconvexResult:
    """Estimate a sparse precision matrix with a non-convex penalty.

    Parameters
    ----------
    emp_cov : (d, d) array_like
        S/n. The penalty acts in its scale: pass a correlation matrix for GGMncv's answers.
    n_samples : float
        n.
    penalty : str
        A key of ``PENALTIES``: atan, selo, exp, log, sica, scad, mcp, adapt, lq or lasso.
    rho, n_rho, rho_min_ratio : float or (m,) array_like, int, float
        Levels to choose from. By default there are ``n_rho``, in geometric progression from ``rho_min_ratio`` times
        the largest absolute off-diagonal entry of ``emp_cov`` to that entry. In terms of the model, ρ = λ/n.
    gamma : float, optional
        Shape of the penalty, for ``lq`` the q of the model; the default is in ``PENALTIES``.
    initial : (d, d) array_like, optional
        Positive definite precision matrix where the first tangents are taken, for instance
        ``ledoit_wolf_precision(X)``. By default the inverse of ``emp_cov`` shrunk as Ledoit and Wolf do, its
        intensity computed from ``emp_cov`` under normality.
    criterion : str
        Price of an edge. bic = gic_1: log n; aic: 2; ebic: log n + 4·ebic_gamma·log d; gic_2: d^{1/3};
        ric = gic_3: 2 log d; gic_4: 2 (log d + log log d); gic_5: log log n · log d; gic_6: log n · log d.
    ebic_gamma : float
        From 0 to 1, for ``criterion="ebic"``.
    iterate : bool
        Whether to repeat the step until Ω is stationary.
    diagonal : {"penalty", "l1"}
        Penalty of the diagonal: p_ρ(ω_ii) as in GGMncv, or ρ ω_ii as in the graphical lasso and in our model.
        If d > n only "l1" ensures that a solution exists, because flat penalties leave a singular S/n as it is.
    offset : float
        ε of p(|ω| + ε) − p(ε), for the penalties of infinite slope at zero (adapt, lq) only. With 0, an entry that
        becomes zero stays zero.
    tol : float
        Accuracy of each graphical lasso; steps end when Ω changes by less than ten times that, relatively.
    max_steps : int
        Bound on the steps if iterated.

    Returns
    -------
    NonconvexResult

    Raises
    ------
    ValueError
        If an argument is not valid, or no ρ has a solution. Fits that did not converge cause a RuntimeWarning.
    """
    S = as_symmetric("emp_cov", emp_cov)
    if not n_samples > 0:
        raise ArgumentError("n_samples", n_samples, "be positive")
    if max_steps < 1:
        raise ArgumentError("max_steps", max_steps, "be at least 1")
    if diagonal not in ("penalty", "l1"):
        raise ArgumentError("diagonal", diagonal, ("penalty", "l1"))
    price = _price(criterion, n_samples, len(S), ebic_gamma)
    levels = _levels(rho, S, n_rho, rho_min_ratio)
    row, gamma = find_penalty(penalty, float(np.max(levels)), gamma, offset)
    start = shrunk_precision(S, n_samples) if initial is None else as_symmetric("initial", initial, size=len(S))
    if np.linalg.eigvalsh(start)[0] <= 0:
        raise ArgumentError("initial", start, "be positive definite")
    model = _Model(S, penalty, gamma, offset if row.infinite_slope else 0.0, diagonal)
    fits = [model.fit(start, float(level), max_steps if iterate else 1, tol) for level in levels]
    return _select(model, fits, levels, n_samples, price)


def _select(
    model: _Model, fits: list[_Fit], levels: Float[np.ndarray, " m"], n: float, price: float
) -> NonconvexResult:
    """The fit of lowest criterion; warn of fits that did not converge."""
    path = np.array([fit.precision for fit in fits])
    deviance = n * (np.sum(model.S * path, axis=(1, 2)) - np.linalg.slogdet(path).logabsdet)
    n_edges = np.count_nonzero(np.triu(path, k=1), axis=(1, 2))
    values = deviance + price * n_edges
    values[[not fit.solved for fit in fits]] = np.inf
    best = int(np.argmin(values))
    if np.isinf(values[best]):
        raise ValueError('no rho has a solution: use diagonal="l1" or larger values of rho')
    failures = sum(not fit.converged for fit in fits)
    if failures:
        selected = "did" if fits[best].converged else "did not"
        warnings.warn(
            f"{failures} of {len(fits)} fits did not converge; the selected one {selected}. Increase max_steps if the "
            'matrix was still changing; use diagonal="l1" or larger rho if there was no solution.',
            RuntimeWarning,
            stacklevel=3,
        )
    fit, level = fits[best], float(levels[best])
    return NonconvexResult(
        precision=fit.precision,
        covariance=fit.covariance,
        edges=(fit.precision != 0) & ~np.eye(len(fit.precision), dtype=bool),
        rho=level,
        lam=n * level,
        objective=fit.history[-1],
        kkt_residual=model.kkt_residual(fit, level),
        converged=fit.converged,
        objective_history=np.array(fit.history),
        rho_path=levels,
        criterion_path=values,
        n_edges_path=n_edges,
    )


def ledoit_wolf_precision(X: ArrayLike) -> Matrix:
    """Inverse of the Ledoit–Wolf shrunk correlation matrix, a start for `nonconvex_precision` on correlations.

    GGMncv's function of that name divides by n − 1 where this one divides by n: at n = 40, changes of 1e-4.

    Parameters
    ----------
    X : (n, d) array_like
        Data; rows are observations.

    Returns
    -------
    (d, d) array
    """
    shrunk, _ = ledoit_wolf(np.asarray(X, dtype=float))
    scale = np.sqrt(np.diag(shrunk))
    return np.linalg.inv(shrunk / np.outer(scale, scale))


def _levels(rho: ArrayLike | None, S: Matrix, n_rho: int, rho_min_ratio: float) -> Float[np.ndarray, " m"]:
    """The levels ρ to choose from, checked."""
    if rho is not None:
        levels = np.atleast_1d(np.asarray(rho, dtype=float))
        if levels.ndim != 1 or levels.size == 0 or not np.all(levels > 0):
            raise ArgumentError("rho", rho, "be a positive number or a list of them")
        return levels
    largest = float(np.max(np.abs(S - np.diag(np.diag(S)))))
    if largest == 0:
        raise ArgumentError("rho", rho, "be given, because emp_cov is diagonal and leaves nothing to choose it by")
    if n_rho < 1:
        raise ArgumentError("n_rho", n_rho, "be at least 1")
    if not 0 < rho_min_ratio <= 1:
        raise ArgumentError("rho_min_ratio", rho_min_ratio, "be positive and at most 1")
    return np.geomspace(rho_min_ratio * largest, largest, n_rho)


def _price(criterion: str, n: float, d: int, ebic_gamma: float) -> float:
    """The price of an edge (Foygel & Drton 2010; Kim, Kwon & Choi 2012)."""
    if not 0 <= ebic_gamma <= 1:
        raise ArgumentError("ebic_gamma", ebic_gamma, "be between 0 and 1")
    log_n, log_d = np.log(n), np.log(d)
    prices = {
        "bic": log_n,
        "ebic": log_n + 4 * ebic_gamma * log_d,
        "aic": 2.0,
        "ric": 2 * log_d,
        "gic_1": log_n,
        "gic_2": d ** (1 / 3),
        "gic_3": 2 * log_d,
        "gic_4": 2 * (log_d + np.log(log_d)),
        "gic_5": np.log(log_n) * log_d,
        "gic_6": log_n * log_d,
    }
    if criterion not in prices:
        raise UnknownChoiceError("criterion", criterion, tuple(prices))
    return float(prices[criterion])
