"""Timed runs of the exact sampler at points (λ, q) of simulated problems."""

import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import NamedTuple

import jax
import numpy as np

from experiments.paper.record import timed
from experiments.paper.runtime.settings import BLOCK, CHAINS, Q_RANGE, WARMUP, Size
from ggmflow import gibbs
from ggmflow.data.scatter import Scatter
from ggmflow.data.simulate import toy_problem
from ggmflow.model.conditions import find_ranges

Point = tuple[float, float]  # (λ, q)


def grid(ends: tuple[float, float], side: int) -> list[Point]:
    """Midpoints of a grid of side × side cells over log λ and q."""
    middle = (np.arange(side) + 0.5) / side
    lam = np.exp(np.log(ends[0]) + middle * np.log(ends[1] / ends[0]))
    q = Q_RANGE[0] + middle * (Q_RANGE[1] - Q_RANGE[0])
    return list(product(lam.tolist(), q.tolist()))


def simulate(size: Size) -> Scatter:
    """The toy problem of a size."""
    return Scatter.from_data(toy_problem(size.d, size.n, random_state=0)[0], mean="known")


def find_lam_range(scatter: Scatter, size: Size) -> tuple[float, float]:
    """The automatic range of a fit."""
    return find_ranges("auto", Q_RANGE, 1.0, scatter, np.arange(size.s)).lam


class Exact(NamedTuple):
    """Exact chains at some points and their times.

    Attributes
    ----------
    chains
        Of each point.
    compile_seconds
        Once for all.
    sweep_seconds
        Of one sweep of one chain, 16 of which run at once: the median of blocks of 50 sweeps.
    cores
        CPU time over wall time.
    """

    chains: list[gibbs.Chains]
    compile_seconds: float
    sweep_seconds: float
    cores: float


def run_exact(scatter: Scatter, points: list[Point], size: Size) -> Exact:
    """Chains at all points in one call, as many in all as the sampler would run at one point by default."""
    each = CHAINS // len(points)
    lam, q = np.repeat(np.array(points), each, axis=0).T
    run = partial(gibbs.sample, scatter=scatter, lam=lam, q=q, n_query=size.s)
    begin = time.perf_counter()
    warm = run(jax.random.key(1), num_draws=BLOCK, num_warmup=0)
    first, ends, cpu_begin = time.perf_counter() - begin, [time.perf_counter()], time.process_time()
    chains = run(
        jax.random.key(2),
        start=warm.draws[:, -1],
        num_draws=size.num_draws,
        num_warmup=size.num_warmup,
        progress=lambda *_: ends.append(time.perf_counter()),
    )
    block, cores = float(np.median(np.diff(ends))), (time.process_time() - cpu_begin) / (ends[-1] - ends[0])
    parts = [chains.select(np.arange(k * each, (k + 1) * each)) for k in range(len(points))]
    return Exact(parts, max(0.0, first - block), block / (BLOCK * CHAINS), cores)


def run_until(scatter: Scatter, lam: float, q: float, effective: int, n_query: int) -> tuple[float, gibbs.Chains]:
    """Run the exact sampler with its defaults until the worst entry has the wanted number of effective draws.

    Returns
    -------
    seconds
        Of warm-up and sampling; counting effective draws is left out, and nothing is compiled if `run_exact` was called
        for the same data before.
    chains
    """
    run = partial(gibbs.sample, scatter=scatter, lam=lam, q=q, n_query=n_query)
    begin = time.perf_counter()
    chains = run(jax.random.key(3), num_chains=CHAINS, num_draws=2 * BLOCK, num_warmup=WARMUP)
    seconds = time.perf_counter() - begin
    while (ess := float(chains.ess_bulk.min())) < effective:
        kept = chains.draws.shape[1]
        more = min(4 * kept, int(np.ceil(1.1 * kept * (effective / ess - 1) / BLOCK)) * BLOCK)
        begin = time.perf_counter()
        new = run(jax.random.key(3 + kept), start=chains.draws[:, -1], num_draws=more, num_warmup=0)
        seconds += time.perf_counter() - begin
        chains = gibbs.Chains(np.concatenate([chains.draws, new.draws], axis=1), new.lam, new.q, new.temperature)
    return seconds, chains


def seconds_of(call: Callable[[], object]) -> float:
    """Wall time of a call."""
    return timed(call)[1]


def median_seconds(call: Callable[[int], object], repeats: int) -> float:
    """Median over calls with 1, 2, …, after one call with 0 that does not count."""
    call(0)
    return float(np.median([seconds_of(lambda k=k: call(k)) for k in range(1, repeats + 1)]))
