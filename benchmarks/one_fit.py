"""One fit in a fresh process, from `import ggmflow` to the posterior's mean: where its seconds go, as JSON.

    python -m benchmarks.one_fit '{"table": [15, 15, 0], "point": [2.0, 0.5], "fit": {"steps": 0}}'

wall = import + trace + lower + compile + run, and the same for CPU seconds. JAX reports how long each tracing, lowering
and compilation took when it ends; traces nest. A thread reads the CPU clock all the time, so that its value when
something began is known as well. Only the standard library is imported before the clocks start.
"""

import json
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

PHASES = ("import", "trace", "lower", "compile", "run")
# Events of JAX, the innermost first: where they overlap the earlier one counts.
_EVENTS = {
    "/jax/core/compile/backend_compile_duration": "compile",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/jaxpr_trace_duration": "trace",
}
_READ_EVERY = 0.005  # seconds


class Span(NamedTuple):
    """What happened from one wall time to another."""

    phase: str
    begin: float
    end: float


class CpuReader:
    """Reads the CPU clock of this process again and again; all threads count."""

    def __init__(self):
        self.readings: list[tuple[float, float]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._add()
        self._thread.start()

    def stop(self) -> list[tuple[float, float]]:
        """Wall and CPU times, in order."""
        self._done.set()
        self._thread.join()
        self._add()
        return self.readings

    def _read(self) -> None:
        while not self._done.wait(_READ_EVERY):
            self._add()

    def _add(self) -> None:
        self.readings.append((time.perf_counter(), time.process_time()))


def split_seconds(spans: Iterable[Span], readings: list[tuple[float, float]]) -> dict[str, dict[str, float]]:
    """Wall and CPU seconds of every phase; what no span covers is `run`.

    Parameters
    ----------
    spans
        May overlap: compilation counts before lowering, lowering before tracing, tracing before the import.
    readings
        Wall and CPU times from the begin to the end.
    """
    import numpy as np

    wall, cpu = np.array(readings).T
    spans = list(spans)
    cuts = np.unique(np.clip([wall[0], wall[-1], *(time for span in spans for time in span[1:])], wall[0], wall[-1]))
    phase = np.full(len(cuts) - 1, "run", dtype=object)
    for name in ("import", *reversed(_EVENTS.values())):
        for span in (span for span in spans if span.phase == name):
            phase[(cuts[:-1] >= span.begin) & (cuts[1:] <= span.end)] = name
    lengths = {"wall": np.diff(cuts), "cpu": np.diff(np.interp(cuts, wall, cpu))}
    return {kind: {name: float(each[phase == name].sum()) for name in PHASES} for kind, each in lengths.items()}


def measure(table: tuple[int, int, int], point: tuple[float, float], fit: dict[str, Any]) -> dict[str, Any]:
    """Import the package, fit the toy problem (d, n, seed), and take the posterior's mean at a point (λ, q)."""
    reader, begin = CpuReader(), time.perf_counter()
    import ggmflow as gf

    GraphicalFlow, toy_problem = gf.GraphicalFlow, gf.simulate.toy_problem  # loaded when first used
    spans = [Span("import", begin, time.perf_counter())]
    import jax

    def listen(event: str, duration_secs: float, **more: Any) -> None:
        if event in _EVENTS:
            now = time.perf_counter()
            spans.append(Span(_EVENTS[event], now - duration_secs, now))

    jax.monitoring.register_event_duration_secs_listener(listen)
    X, _ = toy_problem(table[0], table[1], random_state=table[2])
    model = GraphicalFlow(mean="known", random_state=0, progress=False, **fit).fit(X)
    model.posterior(*point).mean()
    readings = reader.stop()
    programs = sum(span.phase == "compile" for span in spans)
    return split_seconds(spans, readings) | {"programs": programs, "steps": model.n_iter_}


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
