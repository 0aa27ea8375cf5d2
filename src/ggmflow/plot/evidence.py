"""Evidence: log p(X | λ, q) as curves over λ and as a surface, with its highest point."""

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.lines import Line2D

from ggmflow.evidence.normalizer import Method
from ggmflow.plot.style import (
    LINES,
    MARKERS,
    NEUTRAL,
    SMALL,
    inches,
    lam_axis,
    legend_below,
    new_axes,
    open_frame,
    set_title,
)

_BELOW = (0, 1, 2, 3, 5, 10, 20, 50, 100)  # nats below the top: 3 is 20 times as likely, 5 is 150 times


def evidence_curve(
    table: pd.DataFrame,
    q: float | None = None,
    *,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw evidence over λ, a line for each q, with bars of two standard errors; the highest point is marked.

    Parameters
    ----------
    table
        Result of `GraphicalFlow.evidence`.
    q
        Draw only the line of this q.
    title, ax
        Title of the axes; axes to draw on, default new ones.

    Returns
    -------
    Axes
    """
    table = _checked(table)
    if q is not None:
        known = np.unique(table["q"])
        table = table.loc[np.isclose(table["q"], q)]
        if table.empty:
            raise ValueError(f"the table has no q = {q:g}, only {', '.join(f'{each:g}' for each in known)}")
    ax = new_axes(ax)
    handles = []
    for k, (each, part) in enumerate(table.sort_values("lam").groupby("q")):
        colour, marker = LINES[k % len(LINES)], MARKERS[k % len(MARKERS)]
        error = 2 * part["se"].fillna(0.0)
        ax.errorbar(part["lam"], part["log_evidence"], yerr=error, color=colour, lw=1.6, capsize=2, elinewidth=1)
        # A value from cumulants is rough, because weights failed and no chains were run: its marker is hollow.
        rough = (part["method"] == Method.CUMULANT).to_numpy()
        ax.plot(part["lam"][~rough], part["log_evidence"][~rough], ls="", marker=marker, ms=5, color=colour)
        ax.plot(part["lam"][rough], part["log_evidence"][rough], ls="", marker=marker, ms=5, color=colour, mfc="white")
        handles.append(Line2D([], [], color=colour, marker=marker, ms=5, lw=1.6, label=f"q = {each:g}"))
    handles.append(_mark(ax, table, "log_evidence"))
    if Method.CUMULANT in set(table["method"]):
        handles.append(Line2D([], [], ls="", marker="o", mfc="white", color=NEUTRAL, label="rough"))
    lams = np.unique(table["lam"])
    lam_axis(ax, lams)
    if len(lams) > 1:
        ax.set_xlim(lams[0] / 1.05, lams[-1] * 1.05)
    ax.set_ylabel("log evidence (nats)")
    ax.ticklabel_format(axis="y", useOffset=False)
    # The last label is long: if all columns were as wide, there would be a single one.
    columns: dict[str, Any] = {"ncols": 3} if inches(ax)[0] > 3.3 else {}
    legend_below(ax, handles, **columns)
    open_frame(ax)
    set_title(ax, title)
    return ax


def evidence_surface(table: pd.DataFrame, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw evidence over λ and q, as nats below the highest point, which is marked.

    Parameters
    ----------
    table
        Result of `GraphicalFlow.evidence` for at least two λ and two q.
    title, ax
        Title of the axes; axes to draw on, default new ones.

    Returns
    -------
    Axes
    """
    table = _checked(table)
    grid = table.pivot_table(index="q", columns="lam", values="log_evidence")
    if min(grid.shape) < 2 or grid.isna().to_numpy().any():
        raise ValueError("a surface needs every pair of at least two λ and two q: model.evidence(lam=[…], q=[…])")
    lam, q = grid.columns.to_numpy(float), grid.index.to_numpy(float)
    below: Float[np.ndarray, "q lam"] = grid.to_numpy().max() - grid.to_numpy()
    ax = new_axes(ax, 5.4, 3.8)
    levels = [level for level in _BELOW if level < below.max()]
    levels.append(_BELOW[len(levels)] if len(levels) < len(_BELOW) else int(np.ceil(below.max())) + 1)
    norm = BoundaryNorm(levels, 256)
    image = ax.contourf(lam, q, below, levels=levels, norm=norm, cmap="cividis_r")
    ax.contour(lam, q, below, levels=levels[1:-1], colors="white", linewidths=0.8)
    bar = ax.figure.colorbar(image, ax=ax, ticks=levels, pad=0.02)
    bar.set_label("log evidence below the highest (nats)", fontsize=9)
    bar.ax.invert_yaxis()
    bar.ax.tick_params(labelsize=SMALL)
    lam_axis(ax, lam)
    ax.set_ylabel("exponent q")
    star = _mark(ax, table, "q")
    legend_below(ax, [star])
    set_title(ax, title)
    return ax


def _checked(table: pd.DataFrame) -> pd.DataFrame:
    if absent := {"lam", "q", "log_evidence", "se", "method"} - set(table.columns):
        raise ValueError(f"this is not a table of evidence: {min(absent)!r} is missing; use model.evidence(...)")
    table = table.loc[np.isfinite(table["log_evidence"])]
    if table.empty:
        raise ValueError("the table has no finite evidence")
    return table


def _mark(ax: Axes, table: pd.DataFrame, height: str) -> Line2D:
    """Draw a star at the highest point; the column `height` is the vertical axis."""
    best = table.iloc[int(np.argmax(table["log_evidence"]))]
    lam, q = float(best["lam"]), float(best["q"])
    label = f"highest: λ = {lam:.3g}, q = {q:.3g}"
    style = {"ls": "", "marker": "*", "ms": 13, "mfc": "white", "mec": "black", "label": label, "zorder": 5}
    return ax.plot(lam, float(best[height]), clip_on=False, **style)[0]
