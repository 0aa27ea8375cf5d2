"""Peak resident size of fit, posterior and evidence, measured in new processes.

    peak − peak of a flow of 4 variables ∝ D^a,   D = d (d + 1)/2, or s d − s (s − 1)/2 with a query

a is the exponent between the two largest sizes, where faster growth would show; the constant part is subtracted first.
Every size runs in its own process, which finds its programs compiled. Training takes two steps, because its memory does
not depend on their number.

    python -m tests.support.memory d n s            prints D and bytes after import, fit, posterior, evidence
    python -m tests.support.memory d n s command    the same of `ggmflow fit`, temperatures and checkpoints included
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np

LARGEST_EXPONENT = 1.1


def child(d: int, n: int, s: int) -> dict[str, int]:
    """Peak resident sizes of this process after each stage, in bytes."""
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
        arguments = ["fit", str(table), "-o", str(Path(directory) / "run"), "--steps", "2", "--lam", "20", "--q", "1"]
        arguments += [] if s == d else ["--query", ",".join(names[:s])]
        with mock.patch("sys.stdout", sys.stderr):
            app(arguments, standalone_mode=False)
    return {"peak": peak()}


def peak() -> int:
    """Largest resident size so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measured(d: int, n: int, s: int, *more: str) -> list[dict[str, int]]:
    """Peaks of a first process, which compiles, and of a second one, which loads compiled programs."""
    with tempfile.TemporaryDirectory() as directory:
        environment = os.environ | {"GGMFLOW_CACHE": directory}
        arguments = [sys.executable, "-W", "ignore", "-m", "tests.support.memory", *map(str, (d, n, s)), *more]
        ended = [subprocess.run(arguments, capture_output=True, text=True, env=environment) for _ in range(2)]
    for each in ended:
        if each.returncode:
            raise RuntimeError(each.stderr)
    return [json.loads(each.stdout) for each in ended]


def exponent(D: list[int], peaks: list[int], constant: int) -> float:
    """a in peak − constant ∝ D^a, of the last two sizes."""
    return float(np.diff(np.log(np.subtract(peaks[-2:], constant)))[0] / np.diff(np.log(D[-2:]))[0])


if __name__ == "__main__":
    d, n, s = map(int, sys.argv[1:4])
    print(json.dumps((command if sys.argv[4:] else child)(d, n, s)))
