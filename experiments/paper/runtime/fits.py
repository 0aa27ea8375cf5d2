"""Timed fits, in a new process without cached programs where compilation must count."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from experiments.paper.runtime.settings import Q_RANGE, Settings, Size
from ggmflow.data.simulate import toy_problem
from ggmflow.estimator.graphical_flow import GraphicalFlow

_COMPILING = ("jaxpr_trace_duration", "jaxpr_to_mlir_module_duration", "backend_compile_duration")
CHILD = "import sys; from experiments.paper.runtime.fits import fit_and_save; fit_and_save(*sys.argv[1:])"


def fit_and_save(folder: str, request: str) -> None:
    """Fit a flow and write the model and its times, compilation included, to a folder; called in a new process.

    Parameters
    ----------
    folder
        Existing; gets model.ggmflow and fit.json with seconds, compile_seconds and cpu_seconds.
    request
        JSON of d, n, s and steps.
    """
    asked = json.loads(request)
    X, _ = toy_problem(asked["d"], asked["n"], random_state=0)
    query = None if asked["s"] == asked["d"] else list(range(asked["s"]))
    options: dict[str, Any] = {
        "q": Q_RANGE,
        "temperature": 1.0,
        "mean": "known",
        "query": query,
        "steps": asked["steps"],
    }
    model, compiling = GraphicalFlow(**options, random_state=0, progress=False), []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event.removeprefix("/jax/core/compile/") in _COMPILING:
            compiling.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    begin, cpu_begin = time.perf_counter(), time.process_time()
    try:
        model.fit(X)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    model.save(Path(folder) / "model.ggmflow")
    report = {"seconds": seconds, "compile_seconds": min(sum(compiling), seconds), "cpu_seconds": cpu_seconds}
    (Path(folder) / "fit.json").write_text(json.dumps(report), encoding="utf-8")


def timed_fit(settings: Settings, size: Size) -> tuple[GraphicalFlow, dict[str, float]]:
    """The fitted model, and the times that `fit_and_save` measured."""
    request = json.dumps({"d": size.d, "n": size.n, "s": size.s, "steps": settings.steps})
    with tempfile.TemporaryDirectory() as folder:
        if settings.fresh:
            subprocess.run([sys.executable, "-c", CHILD, folder, request], check=True)
        else:
            fit_and_save(folder, request)
        report = json.loads((Path(folder) / "fit.json").read_text(encoding="utf-8"))
        return GraphicalFlow.load(Path(folder) / "model.ggmflow"), report


@contextmanager
def cache_off(off: bool) -> Iterator[None]:
    """Use no compiled programs from disk, in this process and in those it starts."""
    before = os.environ.get("GGMFLOW_CACHE")
    if off:
        os.environ["GGMFLOW_CACHE"] = "off"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("GGMFLOW_CACHE", None)
        else:
            os.environ["GGMFLOW_CACHE"] = before
