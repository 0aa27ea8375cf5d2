"""Memory: peak resident size of fit and posterior as the number of free entries D grows, and refusals before too much.

    peak − size after import ∝ D^a,   D = d (d + 1)/2, or s d − s (s − 1)/2 with a query

Every size is measured in a process of its own, which finds its programs compiled. To compile them takes memory too,
whatever D is, and happens once; that peak is told beside.

    python -m benchmarks.trust.memory d n s      prints D and the sizes in bytes after import, fit, posterior, evidence
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.trust import Row
from ggmflow import memory

N_QUERY = 6
FULL = [(d, 60, d) for d in (25, 50, 100)]
BLANKET = [(t + N_QUERY, 200, N_QUERY) for t in (500, 1000, 2000)]
QUICK = [(6, 20, 6), (12, 20, 12)]
LARGEST_EXPONENT = 1.1


def child(d: int, n: int, s: int) -> dict[str, int]:
    """Peak resident sizes of this process, in bytes, as it goes on."""
    import jax

    import ggmflow as gf

    estimator = gf.GraphicalFlow  # loaded by its first use
    jax.block_until_ready(jax.numpy.zeros(1))
    sizes = {"import": peak()}
    X = np.random.default_rng(0).normal(size=(n, d))
    query = None if s == d else list(range(s))
    model = estimator(temperature=1.0, steps=25, query=query, random_state=0, progress=False).fit(X)
    sizes["fit"] = peak()
    lam, q = (float(np.sqrt(np.prod(ends))) for ends in (model.lam_range_, model.q_range_))
    model.posterior(lam, q).summary()
    sizes["posterior"] = peak()
    model.evidence(lam, q, exact=False, normalizer="published")
    sizes["evidence"] = peak()
    return {"D": model.flow_.n_entries} | sizes


def peak() -> int:
    """Largest resident size so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measured(d: int, n: int, s: int) -> tuple[int, dict[str, int]]:
    """Peak of a first process, which compiles, and the sizes of a second one."""
    with tempfile.TemporaryDirectory() as directory:
        environment = os.environ | {"GGMFLOW_CACHE": directory}
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.trust.memory", *map(str, (d, n, s))]
        first, second = (
            json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)
            for _ in range(2)
        )
    return first["evidence"], second


def exponent(D: list[int], above: list[int]) -> float:
    """a in above ∝ D^a, by least squares of logarithms."""
    return float(np.polyfit(np.log(D), np.log(above), 1)[0])


def rows_of(kind: str, sizes: list[tuple[int, int, int]]) -> list[Row]:
    """Peaks at some sizes, and how they grow in D."""
    rows, D, above = [], [], []
    for d, n, s in sizes:
        compiling, found = measured(d, n, s)
        D.append(found["D"])
        above.append(found["evidence"] - found["import"])
        fit, all_done, first = (f"{size / 2**20:.0f}" for size in (found["fit"], found["evidence"], compiling))
        name = f"{kind}: d = {d}, n = {n}" + ("" if s == d else f", s = {s}")
        value = f"{fit} MiB after fit, {all_done} after posterior and evidence ({first} where it compiles)"
        rows.append(Row(f"peak, {name}, D = {found['D']}", value))
    grows, limit = exponent(D, above), f"exponent at most {LARGEST_EXPONENT}"
    return [*rows, Row(f"growth of the peak above import, {kind}", f"D^{grows:.2f}", limit, grows <= LARGEST_EXPONENT)]


def refusals() -> Row:
    """Requests that a machine with 16 GB cannot meet: each must end in a MemoryError with its size and a way out."""
    import jax

    import ggmflow as gf

    rng, many = np.random.default_rng(0), 10**9
    model = gf.GraphicalFlow(lam=2.0, q=1.0, temperature=1.0, steps=25, random_state=0, progress=False)
    post = model.fit(rng.normal(size=(20, 4))).posterior()
    asked: list[Callable[[], Any]] = [
        lambda: model.posterior(num_draws=many),
        lambda: post.sample(many),
        lambda: post.predictive(many),
        lambda: model.evidence(2.0, 1.0, normalizer="published", num_draws=many),
        lambda: gf.gibbs.sample(jax.random.key(0), model.scatter_, 1.0, num_draws=many),
        lambda: gf.gibbs.sample(jax.random.key(0), model.scatter_, 1.0, num_chains=many),
        lambda: gf.GraphicalFlow(progress=False).fit(rng.normal(size=(3, 20_000))),
        lambda: gf.GraphicalFlow(query=[0], progress=False).fit(rng.normal(size=(2, 1_000_000))),
    ]
    before, refused = peak(), 0
    with mock.patch.object(memory, "available", lambda: 16 * 10**9):
        for ask in asked:
            try:
                ask()
            except MemoryError as error:
                refused += all(word in str(error) for word in ("need at least", "are available", "B of memory", ": "))
    value = f"{refused} of {len(asked)} refused, for {(peak() - before) / 2**20:.0f} MiB more"
    return Row("draws, chains and columns that 16 GB cannot hold", value, "all", refused == len(asked))


def measure(quick: bool) -> list[Row]:
    """Peaks, their growth, and refusals; quick: two tiny sizes, whose growth means nothing."""
    if quick:
        return [*rows_of("whole matrix", QUICK), refusals()]
    return [*rows_of("whole matrix", FULL), *rows_of("blanket", BLANKET), refusals()]


if __name__ == "__main__":
    print(json.dumps(child(*map(int, sys.argv[1:]))))
