"""Training split over devices and processes: the same losses as on one device, and what a step costs.

    largest |ELBO_N/ELBO_1 − 1| along training ≤ 1e-8 in double precision,      efficiency = t_1 / (N t_N)

Another number of devices is another order of sums, 1e-16 of a gradient. Adam divides gradients by their size, and so
multiplies that by about twenty every two steps, until after a dozen the curves differ by 1e-5, as after any change of a
last bit. Only the first steps can therefore show whether the sums are the same. Devices that share their noise must be
detected. Virtual devices share the cores of one machine: their efficiency shows the cost of splitting, not scaling.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trust import Row
from tests.support.training import Outcome, train

BAR = 1e-8
CASES: dict[str, dict[str, Any]] = {
    "2 virtual devices": {"devices": 2},
    "4 virtual devices": {"devices": 4},
    "2 processes over loopback": {"processes": 2},
}


def measure(quick: bool) -> list[Row]:
    """Rows for losses, for a mistake, and for the efficiency on the cores there are."""
    d, steps = (3 if quick else 15), 8
    sizes: dict[str, Any] = {"steps": steps, "chunk": 2}
    cases = {name: CASES[name] for name in (list(CASES)[:1] if quick else CASES)}
    (alone,) = train(d, d, double=True, **sizes)
    quantity = f"largest relative difference of the held-out ELBO from one device, d = {d}, {steps} steps"
    rows = []
    for name, split in cases.items():
        worst = difference(alone, train(d, d, double=True, **sizes, **split))
        rows.append(Row(f"{name}, double precision: {quantity}", f"{worst:.1e}", f"≤ {BAR:.0e}", worst <= BAR))
    seen = difference(alone, train(d, d, double=True, mistake=True, **sizes))
    rows.append(
        Row(f"a mistake, devices that share their noise: {quantity}", f"{seen:.1e}", f"> {BAR:.0e}", seen > BAR)
    )
    return rows if quick else rows + efficiencies(30)


def efficiencies(d: int) -> list[Row]:
    """Of a step on one core, t_1, against N devices or processes on as many cores as there are, t_N."""
    cores = sorted(os.sched_getaffinity(0))
    (one,) = train(d, d, cores=cores[:1])
    rows = []
    for name, split in CASES.items():
        count = max(split.values())
        used = cores[:count]
        found = max(each.seconds for each in train(d, d, cores=used, **split))
        value = f"{1000 * one.seconds:.1f} and {1000 * found:.1f} ms, efficiency {one.seconds / (count * found):.2f}"
        if len(used) < count:
            value += f" (at most {len(used) / count:.2f}: {count} devices share {len(used)} processors)"
        rows.append(Row(f"a step on one processor, and as {name} on {kind(used)}, d = {d}", value))
    if len(cores) > 1:
        # The upper limit of two processors, whatever topology the host reports.
        with ThreadPoolExecutor(2) as pool:
            both = list(pool.map(lambda core: train(d, d, cores=[core])[0], cores[:2]))
        value = f"{one.seconds / max(each.seconds for each in both):.2f} of the speed of one alone"
        rows.append(Row(f"two trainings that share nothing, side by side on {kind(cores[:2])}, d = {d}", value))
    return rows


def kind(processors: list[int]) -> str:
    """Numbers of processors and cores, as the system reports them; a virtual machine may not know."""
    files = [Path(f"/sys/devices/system/cpu/cpu{k}/topology/thread_siblings_list") for k in processors]
    if not all(file.exists() for file in files):
        return f"{len(processors)} processors"
    cores = len({file.read_text(encoding="ascii") for file in files})
    return f"{len(processors)} processors (of {cores} {'core' if cores == 1 else 'cores'}, as the system tells)"


def difference(alone: Outcome, found: list[Outcome]) -> float:
    """Largest relative difference of all losses in all processes."""
    return max(float(np.max(np.abs(np.divide(each.elbo, alone.elbo) - 1))) for each in found)
