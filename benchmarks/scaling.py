"""Growth of time and memory of a training with the number of variables, extrapolated to larger sizes.

    python -m benchmarks.scaling [--quick]

CPU seconds per step ∝ d^a, peak memory ∝ d^b, by least squares through the logarithms. Each line is a process
of its own; memory is its largest resident size less that of a training of 4 variables. The last lines are
extrapolated, not measured.
"""

import argparse

import numpy as np
from rich.console import Console
from rich.table import Table

from ggmflow.train.settings import default_settings
from tests.support.training import Outcome, train

WHOLE = (170, 240, 340)  # one kind of flow: up to 160 variables entries have couplings
BLANKET, QUERY = (300, 600, 1200), 6
BEYOND = (1000, 5000)


def power_law(sizes: tuple[int, ...], values: list[float]) -> tuple[float, float]:
    """(exponent, logarithm of the factor) of values ≈ factor · sizes^exponent."""
    exponent, intercept = np.polyfit(np.log(sizes), np.log(values), 1)
    return float(exponent), float(intercept)


def entries(d: int, s: int) -> int:
    """D."""
    return s * (s + 1) // 2 + s * (d - s)


def main() -> None:
    """Print a table for the whole matrix and one for a blanket."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny: checks that it runs, the numbers mean nothing")
    quick = parser.parse_args().quick
    console = Console(width=120)
    steps, chunk = (2, 1) if quick else (6, 3)
    (empty,) = train(4, 10, steps=steps, chunk=chunk)
    for query, measured in ((None, WHOLE), (QUERY, BLANKET)):
        sizes = tuple(size // 10 for size in measured) if quick else measured
        found: list[Outcome] = []
        for d in sizes:
            found += train(d, d // 2, n_query=query, steps=steps, chunk=chunk)
            console.print(f"{d}: {found[-1]}", style="dim")
        memory = [max(each.megabytes - empty.megabytes, 1.0) for each in found]
        laws = [power_law(sizes, [each.cpu_seconds for each in found]), power_law(sizes, memory)]
        title = "whole matrix" if query is None else f"blanket of {query}"
        table = Table("d", "entries", "CPU seconds per step", "peak GB", "hours for a fit", title=title)
        rows = [(d, each.cpu_seconds, megabytes) for d, each, megabytes in zip(sizes, found, memory, strict=True)]
        rows += [(d, *(np.exp(intercept + a * np.log(d)) for a, intercept in laws)) for d in BEYOND if d > sizes[-1]]
        for d, seconds, megabytes in rows:
            planned = default_settings(size := entries(d, query or d), False).steps
            style = None if d in sizes else "italic"
            cells = f"{d}", f"{size:,}", f"{seconds:.3g}", f"{megabytes / 1000:.3g}", f"{seconds * planned / 3600:.2g}"
            table.add_row(*cells, style=style)
        console.print(table, f"exponents: time {laws[0][0]:.2f}, memory {laws[1][0]:.2f}\n")


if __name__ == "__main__":
    main()
