"""Evidence: curves, bars and star are at the values of the table."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from ggmflow import plot
from tests.plot.conftest import legend_texts


@pytest.fixture
def table():
    rows = [
        (lam, q, -100 - 5 * np.log(lam / 3) ** 2 - 2 * (q - 0.5) ** 2, 0.1 * q, "cumulant" if lam > 8 else "bridge")
        for lam, q in product([1.0, 3.0, 9.0], [0.25, 0.5, 1.0])
    ]
    return pd.DataFrame(rows, columns=["lam", "q", "log_evidence", "se", "method"], index=range(50, 59))


def star(ax):
    (found,) = [line for line in ax.lines if line.get_marker() == "*"]
    return found.get_xydata()[0]


def test_evidence_curve(table, ax):
    assert plot.evidence_curve(table, ax=ax) is ax
    for q, bars in zip((0.25, 0.5, 1.0), ax.containers, strict=True):
        part = table[table["q"] == q]
        np.testing.assert_allclose(bars.lines[0].get_xydata(), part[["lam", "log_evidence"]])
        ends = np.array([segment[:, 1] for segment in bars.lines[2][0].get_segments()])
        np.testing.assert_allclose(np.diff(ends)[:, 0], 4 * part["se"])
    np.testing.assert_allclose(star(ax), [3, -100])
    assert legend_texts(ax) == ["q = 0.25", "q = 0.5", "q = 1", "highest: λ = 3, q = 0.5", "rough"]
    hollow = [line for line in ax.lines if line.get_markerfacecolor() == "white" and line.get_marker() != "*"]
    assert {x for line in hollow for x in line.get_xdata()} == {9.0}


def test_evidence_curve_of_one_q_and_without_errors(table, ax):
    plot.evidence_curve(table.assign(se=np.nan, method="published"), q=1.0, ax=ax)
    assert len(ax.containers) == 1 and star(ax)[1] == pytest.approx(-100.5)
    with pytest.raises(ValueError, match=r"only 0\.25, 0\.5, 1"):
        plot.evidence_curve(table, q=0.7, ax=ax)


def test_evidence_surface(table, ax):
    assert plot.evidence_surface(table.sample(frac=1, random_state=0), ax=ax) is ax
    np.testing.assert_allclose(star(ax), [3, 0.5])
    assert ax.get_xscale() == "log" and legend_texts(ax) == ["highest: λ = 3, q = 0.5"]
    assert np.isclose(ax.collections[0].get_clim()[0], 0)
    with pytest.raises(ValueError, match="at least two"):
        plot.evidence_surface(table[table["q"] == 1], ax=ax)
    with pytest.raises(ValueError, match="every pair"):
        plot.evidence_surface(table.iloc[1:], ax=ax)
    with pytest.raises(ValueError, match="not a table of evidence"):
        plot.evidence_surface(table.drop(columns="q"), ax=ax)
    with pytest.raises(ValueError, match="no finite"):
        plot.evidence_curve(table.assign(log_evidence=np.nan), ax=ax)
