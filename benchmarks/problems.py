"""Problems of the benchmarks, simulated and real, with exact answers at some points (λ, q)."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

# Benchmarks time compilation, so no compiled program may come from the disk; read when JAX first computes.
os.environ["GGMFLOW_CACHE"] = "off"

import jax
import numpy as np
from jaxtyping import Float
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

from ggmflow import gibbs
from ggmflow.data.scatter import Scatter
from ggmflow.data.simulate import toy_problem
from ggmflow.evidence.bridge import Estimate
from tests.support.wishart_bridge import log_normalizers

# Settings of fits that are compared: without training, as users get it, and without the shipped weights.
PLAIN = "pretrained=False"
SETTINGS: dict[str, dict[str, Any]] = {"steps=0": {"steps": 0}, "default": {}, PLAIN: {"pretrained": False}}
Q_RANGE = (0.25, 1.25)
COLD = 0.01  # the lowest temperature
LEVELS = [0.05, 0.5, 0.95]
SLOW = 6  # times as many exact chains for λ < 1, where they mix slowly


class Effort(NamedTuple):
    """Length of exact chains, those at the points (`num_chains` each) or those of a path (`num_chains` per rung)."""

    num_chains: int
    num_draws: int
    num_warmup: int
    thin: int = 1


@dataclass(frozen=True, eq=False)
class Problem:
    """Data, the range of λ that a flow is fitted for, the points (λ, q), and the lengths of exact chains.

    Attributes
    ----------
    points
        (λ, q), all at T = 1.
    path, rungs
        Effort and number of bridges for log Z, where it is wanted.
    table
        Gives real data; without it they are simulated from d, n and the seed.
    """

    name: str
    d: int
    n: int
    seed: int
    lam_range: tuple[float, float]
    points: list[tuple[float, float]]
    exact: Effort
    path: Effort | None = None
    rungs: int = 0
    n_query: int | None = None
    table: Callable[[], Float[np.ndarray, "n d"]] | None = None

    @cached_property
    def X(self) -> Float[np.ndarray, "n d"]:
        return toy_problem(self.d, self.n, random_state=self.seed)[0] if self.table is None else self.table()

    @cached_property
    def scatter(self) -> Scatter:
        return Scatter.from_data(self.X, mean="known")

    @cached_property
    def chains(self) -> list[gibbs.Chains]:
        """Exact draws at every point."""
        size, num_draws, num_warmup, thin = self.exact
        sizes = np.array([SLOW * size if lam < 1 else size for lam, _ in self.points])
        lam, q = np.repeat(np.array(self.points), sizes, axis=0).T
        options: dict[str, Any] = {"num_draws": num_draws, "num_warmup": num_warmup, "thin": thin}
        chains = gibbs.sample(jax.random.key(11), self.scatter, lam, q, **options)
        ends = np.cumsum(sizes)
        return [chains.select(np.arange(end - size, end)) for size, end in zip(sizes, ends, strict=True)]

    @cached_property
    def log_normalizers(self) -> list[Estimate]:
        """log Z at every point."""
        assert self.path is not None
        lam, q = (list(values) for values in zip(*self.points, strict=True))
        draws, (size, num_draws, num_warmup, _) = [chains.pooled for chains in self.chains], self.path
        lengths = {"num_replicas": size, "num_draws": num_draws, "num_warmup": num_warmup}
        return log_normalizers(jax.random.key(12), self.scatter, lam, q, draws, num_rungs=self.rungs, **lengths)

    def timed_chains(self) -> tuple[gibbs.Chains, float]:
        """Exact draws at the only point and the seconds they took, compilation and warm-up left out."""
        ((lam, q),), (size, num_draws, num_warmup, thin) = self.points, self.exact

        def run(seed: int, **options) -> gibbs.Chains:
            return gibbs.sample(jax.random.key(seed), self.scatter, lam, q, n_query=self.n_query, thin=thin, **options)

        # The first call compiles; the second, which counts, starts where it ended.
        warm = run(15, num_chains=size, num_draws=min(50, num_draws), num_warmup=num_warmup)
        begin = time.perf_counter()
        chains = run(16, start=warm.draws[:, -1], num_draws=num_draws, num_warmup=0)
        self.__dict__["chains"] = [chains]  # they serve as exact draws too
        return chains, time.perf_counter() - begin

    def cheaper(self) -> "Problem":
        """The same with chains too short to mean anything."""
        path = self.path and Effort(1, 20, 20)
        return replace(self, exact=Effort(4, 50, 50), path=path, rungs=min(self.rungs, 4))


TOY_RANGE, WIDE_RANGE = (10**-0.5, 10.0), (1.0, 100.0)
QS = (1.0, 0.5, 0.25)
TOY_POINTS, WIDE_POINTS = list(product((0.5, 2.0, 8.0), QS)), list(product((2.0, 10.0, 50.0), QS))
TOY = Problem("d = n = 15", 15, 15, 0, TOY_RANGE, TOY_POINTS, Effort(8, 1000, 2000, 12), Effort(8, 600, 100), 12)
D30 = Problem("d = 30, n = 25", 30, 25, 0, WIDE_RANGE, WIDE_POINTS, Effort(8, 200, 200), Effort(1, 300, 100), 16)
# Points on the diagonal of the grid.
D100 = Problem("d = 100, n = 60", 100, 60, 0, WIDE_RANGE, WIDE_POINTS[::4], Effort(20, 400, 300), Effort(1, 40, 40), 30)
BLANKET = Problem("s = 6, t = 312, n = 190", 318, 190, 0, TOY_RANGE, [(2.0, 0.5)], Effort(64, 200, 150), n_query=6)
MARGINALS = [TOY, replace(TOY, name="d = 15, n = 40", n=40, seed=1), replace(TOY, name="d = 15, n = 8", n=8, seed=2)]


def _diabetes() -> Float[np.ndarray, "n d"]:
    whole: Any = load_diabetes(as_frame=True, scaled=False)
    return whole.frame.drop(columns="sex").to_numpy(float)


def _wine() -> Float[np.ndarray, "n d"]:
    whole: Any = load_wine()
    return whole.data


def _breast_cancer() -> Float[np.ndarray, "n d"]:
    whole: Any = load_breast_cancer()
    return whole.data


# Real tables, λ over the automatic range; only the diagonal of the grid, because columns of two of them are nearly
# collinear and need long chains.
TABLES = [
    Problem(
        name, d, n, 0, (lam / 7, 7 * lam), [(lam / 4, 1.0), (lam, 0.5), (4 * lam, 0.25)], Effort(16, *more), table=read
    )
    for name, d, n, lam, more, read in (
        ("diabetes", 10, 442, 0.46, (500, 1000, 8), _diabetes),
        ("wine", 13, 178, 1.6, (500, 1000, 8), _wine),
        ("breast cancer", 30, 569, 0.27, (250, 1000, 8), _breast_cancer),
    )
]
