"""Costs and growth from the tables of runtimes.

y ∝ xᵉ,   points from which on the flow takes less: k > (fit − compilation) / (sampler's − flow's seconds a point)
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from experiments.paper.runtime.settings import MEASURED
from experiments.paper.statistics import Frame, Tables


class Exponent(NamedTuple):
    """Exponent of y ∝ xᵉ with its standard error; NaN if there are too few points."""

    value: float
    se: float

    def __str__(self) -> str:
        return f"{self.value:.2f}" + ("" if np.isnan(self.se) else f" ± {self.se:.2f}")


def exponent(x: ArrayLike, y: ArrayLike) -> Exponent:
    """Fit y ∝ xᵉ by least squares of log y on log x."""
    log_x, log_y = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    if len(log_x) < 2:
        return Exponent(np.nan, np.nan)
    slope, intercept = np.polyfit(log_x, log_y, 1)
    rest, freedom = log_y - intercept - slope * log_x, len(log_x) - 2
    se = np.sqrt(np.sum(rest**2) / freedom / np.sum((log_x - log_x.mean()) ** 2)) if freedom else np.nan
    return Exponent(float(slope), float(se))


def break_even(flow_once: float, flow_each: float, exact_once: float, exact_each: float) -> float:
    """Smallest number of points from which the flow takes less time in total; infinite if there is none."""
    if exact_each <= flow_each:
        return np.inf
    return float(max(1.0, np.floor((flow_once - exact_once) / (exact_each - flow_each)) + 1))


def costs(tables: Tables) -> Frame:
    """Cost of a point, mean over the four points of each size, and the number of points from which the flow is faster.

    Returns
    -------
    DataFrame
        A row for each size, blanket included: what `fits` has; in seconds flow_once, plain, refined, flow_each (plain,
        or refined where the flow's error asks for it), warmup, sampling, exact_each; in points wins, wins_unwarmed (no
        warm-up counted), wins_refined (refined draws everywhere), refined_points; the largest error and rhat, and
        slowest and fastest effective draws per second.
    """
    points = tables["points"]
    points = points.assign(refined_each=points["flow_seconds"] + points["refined_seconds"])
    points["used"] = points["flow_seconds"].where(~points["refined"].astype(bool), points["refined_each"])
    rows = []
    for fit in tables["fits"].to_dict("records"):
        own = points[(points["d"] == fit["d"]) & (points["s"] == fit["s"])]
        once, exact_once = fit["fit_seconds"] + fit["draw_compile_seconds"], fit["exact_compile_seconds"]
        names = ("flow_seconds", "refined_each", "used", "warmup_seconds", "sampling_seconds")
        plain, refined, each, warmup, sampling = (float(own[name].mean()) for name in names)
        rows.append(
            fit
            | {
                "flow_once": once,
                "plain": plain,
                "refined": refined,
                "flow_each": each,
                "warmup": warmup,
                "sampling": sampling,
                "exact_each": warmup + sampling,
                "wins": break_even(once, each, exact_once, warmup + sampling),
                "wins_unwarmed": break_even(once, each, exact_once, sampling),
                "wins_refined": break_even(once, refined, exact_once, warmup + sampling),
                "refined_points": int(own["refined"].sum()),
                "error": float(own["flow_error"].max()),
                "rhat": float(own["rhat"].max()),
                "slowest": float(own["effective_per_second"].min()),
                "fastest": float(own["effective_per_second"].max()),
            }
        )
    return pd.DataFrame(rows)


def matrices(tables: Tables) -> Frame:
    """Costs of whole matrices, by size."""
    table = costs(tables)
    return table[table["d"] == table["s"]].sort_values("d", ignore_index=True)


def blanket(tables: Tables) -> tuple[Frame, Frame]:
    """Costs of the blanket, and its points."""
    table, points = costs(tables), tables["points"]
    return table[table["d"] != table["s"]].iloc[0], points[points["d"] != points["s"]].sort_values(["q", "lam"])


def measured(table: Frame) -> Frame:
    return table[table["status"] == MEASURED]


def blanket_ratios(tables: Tables) -> tuple[float, float]:
    """Draws per second of the flow over those of the sampler of Kaufmann et al.: all draws, and effective ones."""
    row, kaufmann = blanket(tables)[0], tables["kaufmann"]
    draws, effective = (float(kaufmann[name].median()) for name in ("draws_per_second", "effective_per_second"))
    return row["draws_per_second"] / draws, row["draws_per_second"] / effective


def number(value: float) -> str:
    if value < 100:
        return f"{value:.3g}"
    return f"{value:,.0f}".replace(",", " ") if value >= 10_000 else f"{value:.0f}"


def count(points: float) -> str:
    return number(points) if np.isfinite(points) else "never"
