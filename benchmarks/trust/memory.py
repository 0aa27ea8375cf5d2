"""Memory: peak resident size of fit, posterior and evidence as the number of free entries D grows, and refusals.

    peak − peak of a flow of 4 variables ∝ D^a,   D = d (d + 1)/2, or s d − s (s − 1)/2 with a query

a is that of the two largest sizes, where what grows faster would show; what does not grow is taken off first. Every
size is measured in a process of its own, which finds its programs compiled. To compile them takes memory too, and
happens once; that peak is told beside. Training takes two steps, because its memory does not depend on their number.

    python -m benchmarks.trust.memory d n s            prints D and bytes after import, fit, posterior, evidence
    python -m benchmarks.trust.memory d n s command    the same of `ggmflow fit`, temperatures and checkpoints included
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.trust import Row
from ggmflow.storage import memory

N_QUERY, SMALLEST = 6, 4
WHOLE = [(d, 60, d) for d in (50, 100, 150)]
BLANKET = [(t + N_QUERY, 200, N_QUERY) for t in (500, 1000, 2000)]
COMMANDS = [(100, 60, 100), (2000 + N_QUERY, 200, N_QUERY)]
QUICK = [(6, 20, 6), (12, 20, 12)]
LARGEST_EXPONENT = 1.1
_MOST_REFUSED = 100 * 2**20  # bytes that refusals may take


def child(d: int, n: int, s: int) -> dict[str, int]:
    """Peak resident sizes of this process, in bytes, as it goes on."""
    import jax

    import ggmflow as gf
    from ggmflow.train import loop, settings

    loop.CHUNK = settings.CHUNK = 2
    estimator = gf.GraphicalFlow  # loaded by its first use
    jax.block_until_ready(jax.numpy.zeros(1))
    sizes = {"import": peak()}
    X = np.random.default_rng(0).normal(size=(n, d))
    query = None if s == d else list(range(s))
    model = estimator(temperature=1.0, steps=settings.CHUNK, query=query, random_state=0, progress=False).fit(X)
    sizes["fit"] = peak()
    lam, q = (float(np.sqrt(np.prod(ends))) for ends in (model.lam_range_, model.q_range_))
    model.posterior(lam, q).summary()
    sizes["posterior"] = peak()
    model.evidence(lam, q, exact=False, normalizer="published")
    sizes["evidence"] = peak()
    return {"D": model.flow_.n_entries} | sizes


def command(d: int, n: int, s: int) -> dict[str, int]:
    """Peak of this process after `ggmflow fit` at one (λ, q), in bytes."""
    from ggmflow.cli.app import app
    from ggmflow.train import loop, settings

    loop.CHUNK = settings.CHUNK = 2
    with tempfile.TemporaryDirectory() as directory:
        table, names = Path(directory) / "table.csv", [f"x{k}" for k in range(d)]
        rows = np.random.default_rng(0).normal(size=(n, d))
        np.savetxt(table, rows, "%.6g", delimiter=",", header=",".join(names), comments="")
        words = ["fit", str(table), "-o", str(Path(directory) / "run"), "--steps", "2", "--lam", "20", "--q", "1"]
        words += [] if s == d else ["--query", ",".join(names[:s])]
        with mock.patch("sys.stdout", sys.stderr):
            app(words, standalone_mode=False)
    return {"peak": peak()}


def peak() -> int:
    """Largest resident size so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measured(d: int, n: int, s: int, *more: str) -> list[dict[str, int]]:
    """Sizes of a first process, which compiles, and of a second one."""
    with tempfile.TemporaryDirectory() as directory:
        environment = os.environ | {"GGMFLOW_CACHE": directory}
        words = [sys.executable, "-W", "ignore", "-m", "benchmarks.trust.memory", *map(str, (d, n, s)), *more]
        ended = [subprocess.run(words, capture_output=True, text=True, env=environment) for _ in range(2)]
    for each in ended:
        if each.returncode:
            raise RuntimeError(each.stderr)
    return [json.loads(each.stdout) for each in ended]


def exponent(D: list[int], peaks: list[int], constant: int) -> float:
    """a in peak − constant ∝ D^a, of the last two sizes."""
    return float(np.diff(np.log(np.subtract(peaks[-2:], constant)))[0] / np.diff(np.log(D[-2:]))[0])


def rows_of(kind: str, sizes: list[tuple[int, int, int]]) -> list[Row]:
    """Peaks at some sizes, and how they grow in D."""
    rows, D, peaks = [], [], []
    constant = measured(SMALLEST, 20, SMALLEST if kind == "whole matrix" else 2)[1]["evidence"]
    for d, n, s in sizes:
        first, found = measured(d, n, s)
        D.append(found["D"])
        peaks.append(found["evidence"])
        after = [
            f"{size / 2**20:.0f}" for size in (found["import"], found["fit"], found["evidence"], first["evidence"])
        ]
        name = f"{kind}: d = {d}, n = {n}" + ("" if s == d else f", s = {s}")
        value = "{} MiB after import, {} after fit, {} after posterior and evidence ({} where it compiles)".format(
            *after
        )
        rows.append(Row(f"peak, {name}, D = {found['D']}", value))
    grows, limit = exponent(D, peaks, constant), f"exponent at most {LARGEST_EXPONENT}"
    what = f"growth of the peak, {kind}, less the {constant / 2**20:.0f} MiB of {SMALLEST} variables, the two largest"
    return [*rows, Row(what, f"D^{grows:.2f}", limit, grows <= LARGEST_EXPONENT)]


def rows_of_command(sizes: list[tuple[int, int, int]]) -> list[Row]:
    """What users see, all included."""
    rows = []
    for d, n, s in sizes:
        first, found = (f"{each['peak'] / 2**20:.0f}" for each in measured(d, n, s, "command"))
        name = f"d = {d}, n = {n}" + ("" if s == d else f", s = {s}")
        what = f"peak of `ggmflow fit`, one λ and q, temperatures from 0.01 to 1, {name}"
        rows.append(Row(what, f"{found} MiB ({first} where it compiles)"))
    return rows


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
    taken = peak() - before
    value = f"{refused} of {len(asked)} refused, for {taken / 2**20:.0f} MiB more"
    bar = f"all, for at most {_MOST_REFUSED / 2**20:.0f} MiB"
    holds = refused == len(asked) and taken <= _MOST_REFUSED
    return Row("draws, chains and columns that 16 GB cannot hold", value, bar, holds)


def measure(quick: bool) -> list[Row]:
    """Peaks, their growth, and refusals; quick: two tiny sizes, whose growth means nothing."""
    if quick:
        return [*rows_of("whole matrix", QUICK), *rows_of_command(QUICK[:1]), refusals()]
    return [*rows_of("whole matrix", WHOLE), *rows_of("blanket", BLANKET), *rows_of_command(COMMANDS), refusals()]


if __name__ == "__main__":
    d, n, s = map(int, sys.argv[1:4])
    print(json.dumps((command if sys.argv[4:] else child)(d, n, s)))
