"""The measurements behind docs/trust.md: their rows say what does not hold, and the table of calibration holds."""

import csv
import sys
from itertools import product

import pytest

from benchmarks.trust import hostile, sharding
from benchmarks.trust.calibration import FIGURE, TABLE, as_rows
from tests.support.calibration import CENTRED, CONDITIONS, MISTAKES, SAMPLERS, WARM
from tests.support.ranks import FUNCTIONS, Line, Outcome, coverage_band
from tests.support.training import Outcome as Training


# --------------------------------------------------------------------------------------------------------- calibration
def test_rows_say_what_does_not_hold():
    """Ranks that are all the same and intervals that always cover."""
    same = [
        Outcome(name, 3, k, *CONDITIONS[k % 6], (50,) * 3, (1,) * 3, (2.0,) * 3, 1.0, 0.5, 0.9)
        for name, k in product((*SAMPLERS, *MISTAKES, *WARM, *CENTRED), range(240))
    ]
    rows = as_rows(same)
    judged = [row for row in rows if row.holds is not None]
    assert [row.holds for row in judged] == [False] * 3 + [True] * 2 + [False] * 9 + [False] * 2
    centred = [row.value for row in rows if "less their mean" in row.what]
    assert len(centred) == 4
    assert set(centred) == {
        "diagonal 100.0, off-diagonal 100.0, log det 100.0 %; mean rank of log det 0.51; smallest p-value 0 (diagonal)"
    }
    assert rows[-1].value == "0 of 240; median ESS 90 %"


def test_the_table_of_the_page_holds():
    """Every p-value and coverage that has a bar meets it, from enough replications; the picture is small."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        names, *rows = csv.reader(file)
    assert tuple(names) == Line._fields
    lines = [Line(*row[:5], int(row[5]), row[6], *(float(x) if x else None for x in row[7:])) for row in rows]
    ours = [line for line in lines if line.sampler in SAMPLERS and line.low is not None]
    ranks, coverage = ([line for line in ours if line.what == what] for what in ("ranks", "coverage"))
    assert len(ranks) == len(SAMPLERS) * 2 * len(FUNCTIONS) * 2
    assert len(coverage) == len(SAMPLERS) * 3 * len(FUNCTIONS)
    assert min(line.replications for line in ranks) >= 200
    assert min(line.replications for line in coverage) >= 50
    assert all(line.holds for line in ours)
    for name, function in product(WARM, FUNCTIONS):
        part = [line for line in lines if (line.what, line.sampler, line.d) == ("coverage", name, "3")]
        part = [line for line in part if line.function == function]
        num = sum(line.replications for line in part)
        assert num >= 50
        low, high = coverage_band(num)
        # Shares have four digits in the file.
        assert low - 1e-4 < sum(line.value * line.replications for line in part) / num < high + 1e-4
    for mistake, d in product(MISTAKES, ("3", "6")):
        assert min(line.value for line in lines if (line.sampler, line.d, line.q) == (mistake, d, "all")) < 1e-4
    assert FIGURE.stat().st_size < 200_000


# ------------------------------------------------------------------------------------------------------- hostile input
@pytest.mark.skipif(sys.platform == "win32", reason="a case is stopped by an alarm, which POSIX has")
@pytest.mark.slow
def test_no_hostile_input_fails(capsys):
    rows = hostile.measure(quick=True)
    assert all(row.holds in (True, None) for row in rows), capsys.readouterr().err
    assert int(rows[-1].value) > 900


# ------------------------------------------------------------------------------------------------------------ sharding
@pytest.mark.parametrize(
    ("split", "mistake", "holds"), [(1e-12, 1e-3, [True, True]), (1e-6, 1e-3, [False, True]), (0, 0, [True, False])]
)
def test_the_limits_of_sharding_can_fail(split, mistake, holds, monkeypatch):
    """With invented losses, because a real run takes minutes."""

    def made_up(d, n, devices=1, **more):
        factor = 1 + split * (devices > 1) + mistake * more.get("mistake", False)
        return [Training([-3.0, -2.0 * factor], 0.1, 0.1, 1.0, 6)]

    monkeypatch.setattr(sharding, "train", made_up)
    assert [row.holds for row in sharding.measure(quick=True)] == holds
