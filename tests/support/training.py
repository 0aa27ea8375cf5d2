"""A training in one or more new processes, with given cores and devices: losses, seconds per step, peak memory.

    train(d, n, steps=…) starts `python -m tests.support.training JSON` and reads what it wrote

A process of its own is the only way to another number of devices, and to a peak of memory that is of one training.
"""

import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ggmflow.data.scatter import Scatter
from ggmflow.data.simulate import toy_problem
from ggmflow.flow.base import untrained_flow
from ggmflow.flow.structured import StructuredFlow
from ggmflow.model.conditions import Ranges
from ggmflow.storage.cache import compilation_cache_enabled
from ggmflow.train import loop as training
from ggmflow.train import settings as defaults


class Outcome(NamedTuple):
    """Measurements of one process.

    Attributes
    ----------
    elbo
        Held-out, after each chunk.
    seconds, cpu_seconds
        Of a step, compilation left out, by the clock and of all threads; the shortest chunk counts.
    megabytes
        Largest resident size of the process, compilation and Python included.
    entries
        D.
    """

    elbo: list[float]
    seconds: float
    cpu_seconds: float
    megabytes: float
    entries: int


def train(
    d: int,
    n: int,
    *,
    n_query: int | None = None,
    steps: int = 100,
    chunk: int = training.CHUNK,
    devices: int = 1,
    processes: int = 1,
    cores: list[int] | None = None,
    double: bool = False,
    mistake: bool = False,
) -> list[Outcome]:
    """Train on simulated data at T = 1.

    Parameters
    ----------
    d, n, n_query
        Variables, rows, and size of the query; default all variables.
    steps, chunk
        Steps in total, and steps per compiled chunk.
    devices
        Virtual ones in each process.
    processes
        Joined over loopback.
    cores
        To which all processes are bound; default none.
    double
        Train in double precision.
    mistake
        Give the second half of the conditions the noise of the first, as two devices would that share a key.

    Returns
    -------
    list of Outcome
        One for each process.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {"d": d, "n": n, "s": n_query or d, "steps": steps, "chunk": chunk, "cores": cores}
    job |= {"double": double, "mistake": mistake}
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    with tempfile.TemporaryDirectory() as directory:
        files, started = [Path(directory) / f"{k}.json" for k in range(processes)], []
        for k, file in enumerate(files):
            own = {"file": str(file), "joined": [f"127.0.0.1:{port}", processes, k]}
            command = [sys.executable, "-m", "tests.support.training", json.dumps(job | own)]
            started.append(subprocess.Popen(command, env=environment))
        if any([process.wait() for process in started]):
            raise RuntimeError(f"training failed: {job}, {devices} devices, {processes} processes")
        return [Outcome(*json.loads(file.read_text())) for file in files]


def main(job: dict[str, Any]) -> None:
    """Train in the new process, and write the outcome."""
    if job["cores"] is not None:
        os.sched_setaffinity(0, job["cores"])  # before JAX counts them
    address, processes, k = job["joined"]
    if processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(address, num_processes=processes, process_id=k)
    training.CHUNK = defaults.CHUNK = job["chunk"]
    scatter, query = Scatter.from_data(toy_problem(job["d"], job["n"], random_state=0)[0]), np.arange(job["s"])
    ranges = Ranges((1.0, 100.0), (0.25, 1.25), (1.0, 1.0))
    flow = untrained_flow(jax.random.key(0), "structured", scatter, query, ranges)
    settings = defaults.default_settings(flow.n_entries, False, job["steps"])
    ends: list[tuple[float, float]] = []

    def report(_: training.Report) -> None:
        ends.append((time.perf_counter(), time.process_time()))

    if job["mistake"]:
        StructuredFlow.draw_noise = repeat_noise(StructuredFlow.draw_noise)
    with compilation_cache_enabled(), jax.enable_x64(job["double"]):
        if job["double"]:
            flow = jax.tree.map(lambda leaf: leaf.astype(float) if eqx.is_inexact_array(leaf) else leaf, flow)
        trained = training.train(flow, jax.random.key(1), ranges.low, ranges.high, settings, report=report)
    # Every chunk ends with an evaluation, which costs a step.
    seconds, cpu_seconds = (np.diff(ends, axis=0).min(axis=0) / (job["chunk"] + 1)).tolist()
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    outcome = Outcome([each.elbo for each in trained.history], seconds, cpu_seconds, megabytes, flow.n_entries)
    Path(job["file"]).write_text(json.dumps(outcome))


def repeat_noise(draw_noise: Callable[..., Any]) -> Callable[..., Any]:
    """A method like the given one, but with noise whose second half of conditions is the first."""

    def repeated(*args: Any) -> Any:
        noise = draw_noise(*args)
        return jnp.concatenate([noise[:, : noise.shape[1] // 2]] * 2, axis=1)

    return repeated


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
