"""Calibration of the exact sampler, the flow and the weighted flow (`tests.support.calibration`).

    python -m benchmarks.trust.calibration [--quick]

The full run keeps every replication in results/calibration.csv, with versions and settings. An interrupted run
continues, a complete one is only summed up again, and one of other versions or settings is an error: remove the file to
measure again. It writes docs/tables/calibration.csv, with every p-value and every coverage, and
docs/assets/calibration.png.
"""

import argparse
import csv
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from jaxtyping import Float
from rich.console import Console
from rich.table import Table

from benchmarks.trust import Row
from ggmflow.posterior.weights import khat_limit
from tests.support.calibration import (
    CENTRED,
    FLOW,
    LESS_MEAN,
    MISTAKES,
    ROWS,
    SAMPLERS,
    SHAPE,
    WARM,
    check_truths,
    make_jobs,
    problems,
    run,
)
from tests.support.ranks import (
    BAR,
    FUNCTIONS,
    L,
    Line,
    Outcome,
    coverage_band,
    coverage_lines,
    draw,
    p_values,
    pick,
    rank_lines,
    values,
)

DONE, TABLE = Path("results/calibration.csv"), Path("docs/tables/calibration.csv")
FIGURE = Path("docs/assets/calibration.png")
REPLICATIONS, NUM_CENTRED, NUM_WARM = 210, 600, 102
SEEN = 1e-4  # a mistake is seen if a p-value is below


def as_rows(found: list[Outcome]) -> list[Row]:
    """Rows of the table: requirements, and numbers without one."""
    ranks = [line for line in rank_lines(found) if line.low is not None]
    coverage = [line for line in coverage_lines(found) if line.low is not None]
    out = []
    for sampler, d in product(SAMPLERS, values(found, "d")):
        part = [line for line in ranks if (line.sampler, line.d) == (sampler, f"{d}")]
        least = min(part, key=lambda line: line.value)
        what = f"ranks, {sampler}, d = {d}, {least.replications} replications: smallest of {len(part)} p-values"
        value = f"{least.value:.2g} ({least.function}, {least.statistic})"
        out.append(Row(what, value, f"≥ {BAR:g}", least.holds))
    ours = [line.value for line in ranks if line.sampler in SAMPLERS]
    value = f"{min(ours):.2g}; {BAR:g}/{len(ours)} is {BAR / len(ours):.2g}"
    out.append(Row(f"smallest of all {len(ours)} p-values, beside Bonferroni's bound", value))
    for mistake, d in product(MISTAKES, values(found, "d")):
        least = min(line.value for line in ranks if (line.sampler, line.d) == (mistake, f"{d}"))
        out.append(Row(f"a mistake, {mistake}, d = {d}: smallest p-value", f"{least:.1g}", f"< {SEEN:g}", least < SEEN))
    for sampler, q in product(SAMPLERS, values(found, "q")):
        part = [line for line in coverage if (line.sampler, line.q) == (sampler, f"{q:g}")]
        low, high = (100 * (end or 0.0) for end in part[0][-2:])
        value = in_percent([line.value for line in part])
        what = f"90 % intervals, {sampler}, q = {q:g}, {part[0].replications} data sets"
        out.append(Row(what, value, f"{low:.1f} to {high:.1f} %", all(line.holds for line in part)))
    for name in WARM:
        if some := pick(found, sampler=name):
            shares, (low, high) = np.mean([one.covered for one in some], axis=0), coverage_band(len(some))
            what = f"90 % intervals, {name} of 0.01 to 1, d = 3, all q, {len(some)} data sets"
            holds = bool(np.all((low - 1e-9 <= shares) & (shares <= high + 1e-9)))
            out.append(Row(what, in_percent(shares), f"{100 * low:.1f} to {100 * high:.1f} %", holds))
    for name in CENTRED:
        if some := pick(found, sampler=name):
            ranks = np.array([one.ranks for one in some])
            p = {f: min(p_values(ranks[:, k], seed=k).values()) for k, f in enumerate(FUNCTIONS)}
            least = min(p, key=p.__getitem__)
            value = in_percent(np.mean([one.covered for one in some], axis=0))
            # A shifted interval loses coverage at one end and gains it at the other, so ranks show more.
            value += f"; mean rank of log det {np.mean(ranks[:, 2]) / L:.2f}; smallest p-value {p[least]:.1g} ({least})"
            out.append(Row(f"90 % intervals, exact sampler, {name}, d = 3, all q, {len(some)} data sets", value))
    fits = pick(found, sampler=FLOW)
    forbidden = sum(one.khat >= khat_limit(4000) for one in fits)
    value = f"{forbidden} of {len(fits)}; median ESS {100 * np.median([one.ess for one in fits]):.0f} %"
    out.append(Row("fits whose k̂ forbids weights, where the weighted flow is plain", value))
    return out


def in_percent(shares: Sequence[float] | Float[np.ndarray, " f"]) -> str:
    """Coverage of the three functions."""
    return ", ".join(f"{name} {100 * share:.1f}" for name, share in zip(FUNCTIONS, shares, strict=True)) + " %"


def truth_row(d: int, num: int) -> Row:
    """Whether the truths follow the prior."""
    z, p = check_truths(problems(d, num))
    what = f"truths, d = {d}: z of a mean and p-value of a distribution known in closed form"
    return Row(what, f"{z:.2f}, {p:.2g}", f"|z| ≤ 2.58, p ≥ {BAR:g}", abs(z) <= 2.58 and p >= BAR)


def measure(quick: bool) -> list[Row]:
    """Calibration of three samplers; the full run also writes table and figure."""
    if quick:
        return [truth_row(3, 204), *as_rows(run(make_jobs((3,), 204, 24), None, Console()))]
    DONE.parent.mkdir(exist_ok=True)
    todo = make_jobs(tuple(ROWS), REPLICATIONS, REPLICATIONS)
    todo += [(LESS_MEAN, problems(3, NUM_CENTRED)), (WARM[0], problems(3, REPLICATIONS)[:NUM_WARM])]
    found = run(todo, DONE, Console())
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        rows = []
        for line in (*rank_lines(found), *coverage_lines(found)):
            if line.sampler not in SAMPLERS + MISTAKES:  # judged over all q, or without a requirement
                line = line._replace(low=None, high=None)
            rows.append([f"{x:.4g}" if isinstance(x, float) else x for x in line])
        csv.writer(file, lineterminator="\n").writerows([Line._fields, *rows])
    draw(found, {name: name for name in SAMPLERS} | {SHAPE: f"a mistake: {SHAPE}"}, FIGURE)
    return [*(truth_row(d, REPLICATIONS) for d in ROWS), *as_rows(found)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three variables and few fits; writes nothing")
    table = Table("measured", "result", "must be", "")
    for row in measure(parser.parse_args().quick):
        table.add_row(*row[:3], "" if row.holds is None else "holds" if row.holds else "does not hold")
    Console().print(table)


if __name__ == "__main__":
    main()
