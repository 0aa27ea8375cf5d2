"""Simulated data: sparse precisions Ω = D(Ω₀ + δI)D with diag(Ω⁻¹) = 1, and rows x = L⁻ᵀz for Ω = LLᵀ."""

from collections.abc import Callable
from numbers import Integral, Real
from typing import TypeAlias

import networkx as nx
import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import solve_triangular
from sklearn.datasets import make_sparse_spd_matrix

_Weights: TypeAlias = tuple[float, float]


def sparse_precision(
    n_features: int,
    *,
    graph: str = "sparse",
    weights: tuple[float, float] = (0.1, 0.9),
    max_condition: float = 100.0,
    random_state: int | np.random.Generator | None = None,
    **options: float,
) -> Float[np.ndarray, "d d"]:
    """Draw a sparse precision matrix whose covariance is a correlation matrix.

    Positive definiteness: a ridge δ ≥ 0 is added to the diagonal, and doubled, until the condition number of
    the result is at most `max_condition`. Since Ω⁻¹ is a correlation matrix, no eigenvalue of Ω is below
    1/d. Zeros stay exact zeros, and edges keep the ratios of their weights as partial correlations.

    Parameters
    ----------
    n_features : int
        d, at least 2.
    graph : {"sparse", "band", "hub", "scale-free", "random"}
        The pattern of edges, and its `options`:

        - "sparse": scikit-learn's `make_sparse_spd_matrix`, whose *Cholesky factor* has a fraction `alpha`
          (0.9) of zeros; Ω itself has fewer. Signs are scikit-learn's.
        - "band": i and j are joined if |i − j| ≤ `bandwidth` (1).
        - "hub": columns form `n_hubs` (default d // 10, at least 1) consecutive groups of nearly equal
          size; the first of each group is joined to all others in it.
        - "scale-free": Barabási–Albert, every new node adds `n_attach` (1) edges; 1 gives a tree.
        - "random": Erdős–Rényi, a pair is left unjoined with probability `alpha` (0.9).
    weights : (low, high)
        Range of the uniform magnitudes of the edges (for "sparse", of the Cholesky factor's entries) relative
        to a unit diagonal, before the ridge; 0 < low ≤ high ≤ 1. Signs are random (except for "sparse").
    max_condition : float
        Largest condition number allowed, above 1. At d=15 "sparse" practically never needs the ridge.
    random_state : int, numpy Generator or None
    **options
        See `graph`.

    Returns
    -------
    (d, d) ndarray
        Symmetric, positive definite, with diag(Ω⁻¹) = 1.

    Examples
    --------
    >>> precision = sparse_precision(20, graph="hub", n_hubs=2, random_state=0)
    >>> int(np.count_nonzero(np.triu(precision, 1)))
    18
    """
    d = _check_count("n_features", n_features, low=2)
    if graph not in _GRAPHS:
        raise ValueError(f"unknown graph {graph!r}: choose one of {', '.join(_GRAPHS)}")
    low, high = weights
    if not 0 < low <= high <= 1:
        raise ValueError(f"weights must be (low, high) with 0 < low <= high <= 1, got {weights}")
    if not max_condition > 1:
        raise ValueError(f"max_condition must be above 1, got {max_condition}")
    build, defaults = _GRAPHS[graph]
    if unknown := sorted(set(options) - set(defaults)):
        raise ValueError(f"graph={graph!r} takes the option {', '.join(defaults)}, not {', '.join(unknown)}")
    start = build(np.random.default_rng(random_state), d, (low, high), **(defaults | options))
    return _condition(start, max_condition)


def sample_gaussian(
    precision: Float[np.ndarray, "d d"],
    n_samples: int,
    *,
    random_state: int | np.random.Generator | None = None,
) -> Float[np.ndarray, "n d"]:
    """Draw rows from N(0, Ω⁻¹).

    Parameters
    ----------
    precision : (d, d) ndarray
        Ω, symmetric positive definite.
    n_samples : int
        n.
    random_state : int, numpy Generator or None

    Returns
    -------
    (n, d) ndarray
    """
    n = _check_count("n_samples", n_samples, low=1)
    Omega = np.asarray(precision, dtype=np.float64)
    if Omega.ndim != 2 or Omega.shape[0] != Omega.shape[1]:
        raise ValueError(f"precision must be a square matrix, got shape {Omega.shape}")
    if not np.isfinite(Omega).all() or np.max(np.abs(Omega - Omega.T)) > 1e-8 * np.max(np.abs(Omega)):
        raise ValueError("precision must be symmetric and finite")
    try:
        L = np.linalg.cholesky(Omega)
    except np.linalg.LinAlgError:
        raise ValueError("precision must be positive definite") from None
    z = np.random.default_rng(random_state).standard_normal((len(Omega), n))
    return solve_triangular(L, z, lower=True, trans=1).T  # cov(L⁻ᵀz) = L⁻ᵀL⁻¹ = Ω⁻¹


def toy_problem(
    n_features: int = 15,
    n_samples: int = 15,
    alpha: float = 0.9,
    *,
    random_state: int | np.random.Generator | None = None,
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "d d"]]:
    """Draw the toy problem of the Conditional Matrix Flow paper: a sparse truth and a few rows from it.

    Parameters
    ----------
    n_features, n_samples : int
        d and n.
    alpha : float
        Fraction of zeros in the Cholesky factor of the truth.
    random_state : int, numpy Generator or None

    Returns
    -------
    X : (n, d) ndarray
    precision : (d, d) ndarray
        The truth; its covariance has unit diagonal, so X is in the working scale up to sampling error.
    """
    rng = np.random.default_rng(random_state)
    precision = sparse_precision(n_features, graph="sparse", alpha=alpha, random_state=rng)
    return sample_gaussian(precision, n_samples, random_state=rng), precision


def _build_sparse(rng: np.random.Generator, d: int, weights: _Weights, alpha: float) -> np.ndarray:
    _check_fraction("alpha", alpha)
    low, high = weights
    # scikit-learn takes an integer seed, which is drawn from rng.
    seed = int(rng.integers(2**31))
    matrix = make_sparse_spd_matrix(d, alpha=alpha, smallest_coef=low, largest_coef=high, random_state=seed)
    sd = np.sqrt(np.diag(matrix))
    return matrix / np.outer(sd, sd)


def _build_band(rng: np.random.Generator, d: int, weights: _Weights, bandwidth: int) -> np.ndarray:
    bandwidth = _check_count("bandwidth", bandwidth, low=1, high=d - 1)
    node = np.arange(d)
    return _draw_weights(rng, np.abs(np.subtract.outer(node, node)) <= bandwidth, weights)


def _build_hub(rng: np.random.Generator, d: int, weights: _Weights, n_hubs: int | None) -> np.ndarray:
    n_hubs = max(1, d // 10) if n_hubs is None else _check_count("n_hubs", n_hubs, low=1, high=d // 2)
    joined = np.zeros((d, d), dtype=bool)
    for group in np.array_split(np.arange(d), n_hubs):
        joined[group[0], group[1:]] = True
    return _draw_weights(rng, joined, weights)


def _build_scale_free(rng: np.random.Generator, d: int, weights: _Weights, n_attach: int) -> np.ndarray:
    n_attach = _check_count("n_attach", n_attach, low=1, high=d - 1)
    graph = nx.barabasi_albert_graph(d, n_attach, seed=int(rng.integers(2**31)))
    joined = nx.to_numpy_array(graph, nodelist=range(d)) > 0
    return _draw_weights(rng, joined, weights)


def _build_random(rng: np.random.Generator, d: int, weights: _Weights, alpha: float) -> np.ndarray:
    _check_fraction("alpha", alpha)
    return _draw_weights(rng, rng.random((d, d)) >= alpha, weights)


_GRAPHS: dict[str, tuple[Callable[..., np.ndarray], dict[str, float | None]]] = {
    "sparse": (_build_sparse, {"alpha": 0.9}),
    "band": (_build_band, {"bandwidth": 1}),
    "hub": (_build_hub, {"n_hubs": None}),
    "scale-free": (_build_scale_free, {"n_attach": 1}),
    "random": (_build_random, {"alpha": 0.9}),
}


def _draw_weights(
    rng: np.random.Generator, joined: Bool[np.ndarray, "d d"], weights: _Weights
) -> Float[np.ndarray, "d d"]:
    """Unit diagonal, and ±uniform(weights) wherever the strict upper triangle of `joined` is true."""
    magnitude = rng.uniform(*weights, size=joined.shape)
    sign = rng.choice([-1.0, 1.0], size=joined.shape)
    upper = np.triu(np.where(joined, sign * magnitude, 0.0), k=1)
    return upper + upper.T + np.eye(len(joined))


def _condition(start: Float[np.ndarray, "d d"], max_condition: float) -> Float[np.ndarray, "d d"]:
    """D(Ω₀ + δI)D with unit variances and a bounded condition number; the loop ends since δ → ∞ gives I."""
    d = len(start)
    smallest, *_, largest = np.linalg.eigvalsh(start)
    # This δ satisfies the limit before D is applied; D can, but seldom does, increase the condition number.
    ridge = max(0.0, (largest - max_condition * smallest) / (max_condition - 1))
    while True:
        ridged = start + ridge * np.eye(d)
        sd = np.sqrt(np.diag(np.linalg.inv(ridged)))
        precision = ridged * np.outer(sd, sd)
        precision = (precision + precision.T) / 2
        if np.linalg.cond(precision) <= max_condition:
            return precision
        ridge = max(2 * ridge, 1 / max_condition)


def _check_count(name: str, value: object, *, low: int, high: int | None = None) -> int:
    # bool is an Integral, but True as a count is a mistake.
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise ValueError(f"{name} must be an integer, got {value!r}")
    count = int(value)
    if count < low or (high is not None and count > high):
        limit = "" if high is None else f" and at most {high}"
        raise ValueError(f"{name} must be at least {low}{limit}, got {count}")
    return count


def _check_fraction(name: str, value: object) -> None:
    if not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value!r}")
