"""Training split over devices and processes: the same losses as on one device, and what a step costs.

    largest |ELBO_N/ELBO_1 − 1| along training ≤ 10 times that of a change in the last bit of the initial weights

Another number of devices is another order of sums. The steps of Adam make more of that, as of any change in the last
bit, which is the scale to measure it by. Virtual devices share the cores of one machine: their times tell what the
splitting costs more than how far it scales.
"""

import os

import numpy as np

from benchmarks.training import Outcome, train
from benchmarks.trust import Row

BAR = 10


def measure(quick: bool) -> list[Row]:
    """Rows for losses on 2 and 4 devices and in 2 processes, and for seconds per step on 1 and 2 cores."""
    d, steps = (5, 50) if quick else (15, 100)
    (alone,) = train(d, d, steps=steps)
    rounding = difference(alone, train(d, d, steps=steps, last_bit=True))
    cases = {
        "2 virtual devices": train(d, d, steps=steps, devices=2),
        "4 virtual devices": train(d, d, steps=steps, devices=4),
        "2 processes over loopback": train(d, d, steps=steps, processes=2),
    }
    rows = []
    for name, found in cases.items():
        what = f"{name}: largest relative difference of the held-out ELBO from one device, d = {d}, {steps} steps"
        bar = f"≤ {BAR} × {rounding:.1e}, what a change in the last bit does on one device"
        worst = difference(alone, found)
        rows.append(Row(what, f"{worst:.1e}", bar, worst <= BAR * rounding))
    cores = sorted(os.sched_getaffinity(0))
    for d in (5,) if quick else (15, 30):
        (one,), (two,) = train(d, d, cores=cores[:1]), train(d, d, devices=2, cores=cores[:2])
        value = f"{1000 * one.seconds:.1f} and {1000 * two.seconds:.1f} ms, a factor of {one.seconds / two.seconds:.2f}"
        rows.append(Row(f"a step on one core, and on two cores as two virtual devices, d = {d}", value))
    return rows


def difference(alone: Outcome, found: list[Outcome]) -> float:
    """Largest, relative, of all losses in all processes."""
    return max(float(np.max(np.abs(np.divide(each.elbo, alone.elbo) - 1))) for each in found)
