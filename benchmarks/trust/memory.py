"""Memory: peak resident size as the number of free entries D grows, and requests that no machine can meet."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.trust import Row
from ggmflow.errors.advised import AdvisedMemoryError
from ggmflow.storage import memory
from tests.support.memory import LARGEST_EXPONENT, exponent, measured, peak

N_QUERY, SMALLEST = 6, 4
WHOLE = [(d, 60, d) for d in (50, 100, 150)]
BLANKET = [(t + N_QUERY, 200, N_QUERY) for t in (500, 1000, 2000)]
COMMANDS = [(100, 60, 100), (2000 + N_QUERY, 200, N_QUERY)]
QUICK = [(6, 20, 6), (12, 20, 12)]
MOST_REFUSED = 100 * 2**20  # bytes that rejected requests may take


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
    """Peaks of the command, as users see them."""
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
            except AdvisedMemoryError:
                refused += 1
    taken = peak() - before
    value = f"{refused} of {len(asked)} refused, for {taken / 2**20:.0f} MiB more"
    bar = f"all, for at most {MOST_REFUSED / 2**20:.0f} MiB"
    holds = refused == len(asked) and taken <= MOST_REFUSED
    return Row("draws, chains and columns that 16 GB cannot hold", value, bar, holds)


def measure(quick: bool) -> list[Row]:
    """Peaks, their growth, and refusals; quick: two tiny sizes, whose growth means nothing."""
    if quick:
        return [*rows_of("whole matrix", QUICK), *rows_of_command(QUICK[:1]), refusals()]
    return [*rows_of("whole matrix", WHOLE), *rows_of("blanket", BLANKET), *rows_of_command(COMMANDS), refusals()]
