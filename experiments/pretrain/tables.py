"""Simulated tables: scatter matrices of many shapes, numbers of rows, and conditions to train on."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ggmflow.data.simulate import sparse_precision

MAX_ROWS = 5000


class Tables(NamedTuple):
    """Scatter matrices of one size and their numbers of rows; 0 rows and S = 0 stand for the prior."""

    scatter: Float[np.ndarray, "k d d"]
    n: Float[np.ndarray, " k"]


def _graph(name: str, **ranges: tuple[float, float]) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Covariances of a kind of graph, with options drawn from ranges."""

    def draw(rng: np.random.Generator, d: int) -> np.ndarray:
        options = {key: rng.uniform(*ends) for key, ends in ranges.items()}
        largest = rng.uniform(0.3, 0.95)
        weights = (0.1, largest)
        return np.linalg.inv(sparse_precision(d, graph=name, weights=weights, random_state=rng, **options))

    return draw


def _factors(rng: np.random.Generator, d: int) -> np.ndarray:
    loadings = rng.normal(size=(d, int(rng.integers(1, 4)))) * rng.uniform(0.3, 1.5)
    return loadings @ loadings.T + np.diag(rng.uniform(0.3, 1.5, d))


def _collinear(rng: np.random.Generator, d: int) -> np.ndarray:
    """Pairs of columns that are nearly copies of each other."""
    covariance = _graph("random", alpha=(0.6, 0.95))(rng, d)
    for _ in range(max(1, d // 8)):
        i, j = rng.permutation(d)[:2]
        mix = np.eye(d)
        mix[j], mix[j, i] = mix[j] * rng.uniform(0.05, 0.5), 1.0
        covariance = mix @ covariance @ mix.T
    return covariance


def _blocks(rng: np.random.Generator, d: int) -> np.ndarray:
    group = rng.integers(0, max(1, d // 4), d)
    same = group[:, None] == group
    covariance = np.where(same, rng.uniform(0.2, 0.9), 0.0)
    np.fill_diagonal(covariance, 1.0)
    return covariance


FAMILIES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "sparse": _graph("sparse", alpha=(0.6, 0.98)),
    "band": _graph("band"),
    "scale-free": _graph("scale-free"),
    "factors": _factors,
    "collinear": _collinear,
    "independent": lambda rng, d: np.eye(d),
}
HELD_OUT = {"hub": _graph("hub"), "blocks": _blocks}


def draw_table(rng: np.random.Generator, covariance: np.ndarray, n: int | None = None) -> tuple[np.ndarray, int]:
    """S = XᵀX of n rows or of a random number, and that number; centred, standardized in two of three cases."""
    d = len(covariance)
    n = _draw_rows(rng, d) if n is None else n
    X = rng.normal(size=(n, d)) @ np.linalg.cholesky(covariance).T
    X = X - X.mean(0)
    spread = X.std(0) + 1e-6 * np.sqrt(np.diag(covariance))
    X = X / spread if rng.random() < 2 / 3 else X / np.median(spread) * np.exp(0.4 * rng.normal(size=d))
    return X.T @ X, n


def _draw_rows(rng: np.random.Generator, d: int) -> int:
    """From d/3 + 2 to 12d in most cases, otherwise from 2 to `MAX_ROWS`."""
    near, everywhere = (rng.uniform(np.log(low), np.log(high)) for low, high in ((d / 3 + 2, 12 * d), (2, MAX_ROWS)))
    return int(np.clip(np.exp(near if rng.random() < 0.7 else everywhere), 2, MAX_ROWS))


def draw_tables(rng: np.random.Generator, d: int, num: int, families=FAMILIES, *, prior: float = 0.06) -> Tables:
    """Tables of one size; a share `prior` of them without rows."""
    scatter, rows, names = np.zeros((num, d, d), np.float32), np.zeros(num, np.float32), list(families)
    for k in range(num):
        if rng.random() >= prior:
            order = rng.permutation(d)
            covariance = families[names[rng.integers(len(names))]](rng, d)[np.ix_(order, order)]
            scatter[k], rows[k] = draw_table(rng, covariance)
    return Tables(scatter, rows)


def draw_conditions(rng: np.random.Generator, n: Float[np.ndarray, " ..."]) -> Float[np.ndarray, "... 3"]:
    """[log λ, q, log T] for tables of n rows: λ/n from 10⁻³ to 3, q from 0.1 to 2, T from 0.01 to 1."""
    shape = n.shape
    relative = rng.uniform(np.log(1e-3), np.log(3), shape)
    usual = rng.uniform(np.log(0.02), np.log(1.5), shape)
    log_lam = np.log(np.maximum(n, 1)) + np.where(rng.random(shape) < 0.6, usual, relative)
    log_lam = np.where(n == 0, rng.uniform(np.log(0.05), np.log(50), shape), log_lam)
    q = np.where(rng.random(shape) < 0.75, rng.uniform(0.2, 1.3, shape), rng.uniform(0.1, 2.0, shape))
    cold = np.clip(rng.uniform(-0.35, 1.0, shape), 0, 1) * np.log(0.01)
    log_temperature = np.where((rng.random(shape) < 0.5) | (n == 0), 0.0, cold)
    return np.stack([log_lam, q, log_temperature], -1).astype(np.float32)
