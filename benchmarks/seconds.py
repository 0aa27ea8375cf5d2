"""Where the seconds of a first answer go: import, trace, lower, compile, run, with and without the shipped weights.

    python -m benchmarks.continuum --only seconds

Every fit runs in a fresh process (`benchmarks.one_fit`) with an empty cache of compiled programs. The settings take
turns; of their repetitions the one with the fewest CPU seconds counts. On a shared machine CPU seconds are steadier
than wall seconds.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.one_fit import PHASES
from benchmarks.problems import COLD, PLAIN, Q_RANGE, SETTINGS, TOY
from benchmarks.report import Report

ROOT = Path(__file__).parents[1]
POINT = (2.0, 0.5)  # λ, q
BARS = {"steps=0": "≤ 0.2", "default": "≤ 0.4"}  # of the seconds of PLAIN
NUM_REPETITIONS = 2
QUICK_STEPS = 25
CLOCKS = {"wall": "wall", "cpu": "CPU"}


def fresh_fit(table: tuple[int, int, int], fit: dict[str, Any]) -> dict[str, Any]:
    """Seconds of one fit in a new process with nothing compiled, as `one_fit` gives them."""
    asked = json.dumps({"table": table, "point": POINT, "fit": fit})
    with tempfile.TemporaryDirectory() as cache:
        environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
        command = [sys.executable, "-m", "benchmarks.one_fit", asked]
        made = subprocess.run(
            command, cwd=ROOT, env=environment | {"GGMFLOW_CACHE": cache}, stdout=subprocess.PIPE, check=True
        )
    return json.loads(made.stdout)


def measure_seconds(quick: bool) -> dict[str, dict[str, Any]]:
    """The fit with the fewest CPU seconds, for every setting."""
    ranges = {"lam": TOY.lam_range, "q": Q_RANGE, "temperature": (COLD, 1.0)}
    table = (4, 8, TOY.seed) if quick else (TOY.d, TOY.n, TOY.seed)
    found: dict[str, list[dict[str, Any]]] = {setting: [] for setting in SETTINGS}
    for _ in range(1 if quick else NUM_REPETITIONS):
        for setting, options in SETTINGS.items():
            fit = ranges | ({"steps": QUICK_STEPS} if quick else {}) | options
            found[setting].append(fresh_fit(table, fit))
    return {setting: min(fits, key=lambda fit: sum(fit["cpu"].values())) for setting, fits in found.items()}


def run_seconds(report: Report, quick: bool) -> None:
    """Print the seconds of every phase, and the ratios to the fit without shipped weights."""
    fits = measure_seconds(quick)
    columns = [f"{setting}, {label}" for setting in fits for label in CLOCKS.values()]
    table = Table("seconds", *columns)
    totals = {kind: {setting: sum(fit[kind].values()) for setting, fit in fits.items()} for kind in CLOCKS}
    for phase in PHASES:
        table.add_row(phase, *(f"{fit[kind][phase]:.1f}" for fit in fits.values() for kind in CLOCKS))
        for setting, fit in fits.items():
            for kind, label in CLOCKS.items():
                report.add("seconds", f"{phase}, {label}", fit[kind][phase], setting=setting, shown=False)
    table.add_row("sum", *(f"{totals[kind][setting]:.1f}" for setting in fits for kind in CLOCKS))
    report.console.print(table)
    for setting, fit in fits.items():
        for kind, label in CLOCKS.items():
            report.add("seconds", f"{label} seconds", totals[kind][setting], digits=".1f", setting=setting)
        for kind, label in CLOCKS.items():
            ratio, bar = totals[kind][setting] / totals[kind][PLAIN], BARS.get(setting, "")
            report.add("seconds", f"{label} seconds, ratio to {PLAIN}", ratio, bar=bar, setting=setting)
        report.add("seconds", "programs compiled", fit["programs"], digits=".0f", setting=setting)
        report.add("seconds", "steps trained", fit["steps"], digits=".0f", setting=setting)
    lam, q = POINT
    title = f"0. From import to the posterior's mean at λ = {lam:g}, q = {q:g}: d = n = 15, T ∈ [0.01, 1]"
    report.finish("seconds", title, "Fresh processes, nothing compiled.")
