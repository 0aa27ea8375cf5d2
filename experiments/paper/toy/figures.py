"""Figures of the toy problem, drawn from its tables."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from experiments.paper import published
from experiments.paper.choice import FOLDS
from experiments.paper.reference import LIMIT
from experiments.paper.statistics import Frame, Tables
from experiments.paper.toy.estimates import at_point, compared_points, of_architecture, of_seed
from experiments.paper.toy.settings import BAND, SHOWN, WIDE
from ggmflow.plot import intervals_along_lam, solution_path
from ggmflow.plot.style import (
    DASHED,
    LINES,
    MARKERS,
    NEUTRAL,
    SMALL,
    dashed_handle,
    lam_axis,
    legend_below,
    open_frame,
    set_title,
)


def figures(tables: Tables) -> dict[str, Figure]:
    """Draw all figures; entries, modes and curves are those of the first data set.

    Parameters
    ----------
    tables
        As the jobs made them; those of the published architecture may still be missing.

    Returns
    -------
    dict of Figure
        intervals, modes, across_q, evidence, recovery, agreement.
    """
    # Without pyplot, which keeps global state and needs a display.
    with matplotlib.rc_context({"font.size": 9}):
        return {
            "intervals": _draw_intervals(tables["intervals"]),
            "modes": _draw_modes(tables["modes"], tables["paths"], tables["intervals"]),
            "across_q": _draw_across_q(tables["across_q"]),
            "evidence": _draw_evidence(tables),
            "recovery": _draw_recovery(tables["recovery"]),
            "agreement": _draw_agreement(tables["agreement"]),
        }


def _draw_intervals(table: Frame) -> Figure:
    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    temperatures = sorted(table["temperature"].unique(), reverse=True)
    axes = figure.subplots(1, len(temperatures))  # each with its own scale: at the lowest temperature bands are narrow
    for ax, temperature in zip(axes, temperatures, strict=True):
        part = table[table["temperature"] == temperature]
        named = part[["row", "column", "true_edge"]].drop_duplicates()
        labels = [_label(*entry) for entry in named.itertuples(index=False)]
        quantiles, lasso = (
            np.stack([_along_lam(part, entry[:2], each) for entry in named.itertuples(index=False)], axis=-1)
            for each in (["lower", "median", "upper"], "lasso")
        )
        title = f"{BAND:.0%} credible intervals, q = 1, T = {temperature:g}"
        intervals_along_lam(np.unique(part["lam"]), quantiles, labels, path=lasso, title=title, ax=ax)
    for line in axes[-1].get_lines():
        if line.get_linestyle() == "--":  # otherwise hidden by the median, which nearly equals it
            line.set(color=NEUTRAL, zorder=3)
    _share_legend(figure, axes)
    return figure


def _along_lam(table: Frame, entry: tuple[int, int], columns: Any) -> np.ndarray:
    """Columns of one entry in the order of λ, (k,) or (columns, k)."""
    here = table[(table["row"] == entry[0]) & (table["column"] == entry[1])].sort_values("lam")
    return here[columns].to_numpy().T


def _label(row: int, column: int, true_edge: bool) -> str:
    return f"x{row} – x{column}{'' if true_edge else ' (no edge)'}"


def _share_legend(figure: Figure, axes: Sequence[Any]) -> None:
    """One legend below panels that share their colours."""
    handles = _take_legends(axes)
    columns = min(4, len(handles))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=SMALL)


def _take_legends(axes: Sequence[Any]) -> list[Any]:
    """Remove the legends of panels that share their colours, and return the handles of one."""
    handles = axes[0].get_legend().legend_handles
    for ax in axes:
        ax.get_legend().remove()
    return handles


def _draw_modes(modes: Frame, paths: Frame, intervals: Frame) -> Figure:
    """A panel for each q, and the number of edges of all data sets."""
    qs, lams = paths["q"].unique()[:4], np.unique(paths["lam"])
    named = intervals[["row", "column", "true_edge"]].drop_duplicates().itertuples(index=False)
    labels = {(each[0], each[1]): _label(*each) for each in named}
    others = modes.loc[:, ["row", "column"]].drop_duplicates().itertuples(index=False, name=None)
    entries = [*labels, *(each for each in others if each not in labels)]
    figure = Figure(figsize=(9.0, 5.4), layout="constrained")
    grid = figure.subplots(2, 3)
    axes = [grid[0, 0], grid[0, 1], grid[1, 0], grid[1, 1]][: len(qs)]
    for ax, q in zip(axes, qs, strict=True):
        values = modes[modes["q"] == q].pivot_table(index="lam", columns=["row", "column"], values="value")
        path = values.reindex(index=lams, columns=pd.MultiIndex.from_tuples(entries)).fillna(0.0).to_numpy()
        solution_path(lams, path, dict(enumerate(labels.values())), title=f"modes, q = {q:g}", ax=ax)
    handles, limits = _take_legends(axes), [ax.get_ylim() for ax in axes]
    for ax in axes:
        ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        ax.label_outer()
    for ax in {*grid[:, :2].flat} - {*axes}:
        ax.set_axis_off()
    for k, q in enumerate(qs):
        counts = paths[paths["q"] == q].groupby("lam")["n_edges"].agg(["mean", "min", "max"])
        grid[0, 2].fill_between(lams, counts["min"], counts["max"], color=LINES[k], alpha=0.12, lw=0)
        style = {"color": LINES[k], "marker": MARKERS[k], "ms": 4, "lw": 1.5, "label": f"q = {q:g}"}
        grid[0, 2].plot(lams, counts["mean"], **style)
    lam_axis(grid[0, 2], lams)
    open_frame(grid[0, 2])
    grid[0, 2].set_ylabel("number of edges")
    grid[0, 2].legend(frameon=False, fontsize=SMALL)
    set_title(grid[0, 2], f"edges, {paths['seed'].nunique()} data sets")
    grid[1, 2].set_axis_off()
    grid[1, 2].legend(handles=handles, loc="center", frameon=False, fontsize=SMALL, title="modes")
    return figure


def _draw_across_q(table: Frame) -> Figure:
    """Intervals of all methods, beside each other where they share a q."""
    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    ax, handles = figure.subplots(), []
    step = 0.016 * max(float(np.ptp(table["q"])), 0.1)
    for k, (method, part) in enumerate(table.groupby("method", sort=False)):
        error = np.abs(part[["lower", "upper"]].to_numpy().T - part["median"].to_numpy())
        bar = None if np.all(error == 0) else error
        style = {"fmt": MARKERS[k], "color": LINES[k], "ms": 4.5, "capsize": 2.5, "lw": 1.4, "label": str(method)}
        handles.append(ax.errorbar(part["q"] + step * k, part["median"], yerr=bar, **style))
    ax.axhline(0, color=NEUTRAL, lw=0.6)
    ax.set(xlabel="exponent q", ylabel="entry of the precision matrix")
    open_frame(ax)
    first = table.iloc[0]
    set_title(
        ax,
        f"{_label(first['row'], first['column'], first['true_edge'])}: median and {WIDE:.0%} interval, "
        f"λ = {first['lam']:.2f}",
    )
    legend_below(ax, handles)
    return figure


def _draw_evidence(tables: Tables) -> Figure:
    """Evidence and cross-validation along λ for the first data set, and the chosen λ of all."""
    selection, fits = tables["selection"], of_architecture(tables["fits"], "structured")
    seed = selection["seed"].min()
    evidence, scores = (of_seed(tables[name], seed) for name in ("evidence", "cross_validation"))
    chosen, lam_published = of_seed(selection, seed).iloc[0], of_seed(fits, seed)["lam_published"].iloc[0]
    figure = Figure(figsize=(9.0, 4.4), layout="constrained")
    axes = figure.subplot_mosaic([["evidence", "chosen"], ["folds", "chosen"]], width_ratios=(1.2, 1.0))
    curves = (
        ("log_evidence", "evidence", chosen["lam_evidence"]),
        ("published", "published quantity (ELBO)", lam_published),
    )
    for k, (column, label, at) in enumerate(curves):
        below = evidence[column] - evidence[column].max()
        style = {"color": LINES[k], "marker": MARKERS[k], "ms": 4, "lw": 1.5, "label": f"{label}: λ = {at:.2f}"}
        axes["evidence"].plot(evidence["lam"], below, **style)
        axes["evidence"].axvline(at, color=LINES[k], lw=1.0, ls=DASHED)
    label = f"{FOLDS} folds: λ = {chosen['lam_cv']:.2f}"
    axes["folds"].plot(scores["lam"], scores["score"], color=LINES[2], lw=1.5, label=label)
    axes["folds"].axvline(chosen["lam_cv"], color=LINES[2], lw=1.0, ls=DASHED)
    for name, text in (("evidence", "nats below the top"), ("folds", "log-likelihood\nof a left-out row")):
        lam_axis(axes[name], evidence["lam"].to_numpy())
        axes[name].set_ylabel(text)
        axes[name].legend(edgecolor="none", framealpha=1.0, fontsize=SMALL, loc="lower center")
        open_frame(axes[name])
    axes["evidence"].label_outer()
    axes["evidence"].set_xlabel("")
    set_title(axes["evidence"], f"choice of λ at q = 1, data set {seed}")
    _draw_chosen(axes["chosen"], selection)
    return figure


def _draw_chosen(ax: Axes, selection: Frame) -> None:
    ours, folds = selection["lam_evidence"], selection["lam_cv"]
    star = {"ls": "", "marker": "*", "ms": 13, "mfc": "white", "mec": "black"}
    ax.plot(ours, folds, ls="", marker="o", color=LINES[0], ms=6, alpha=0.8, label="our data sets")
    ax.plot(published.LAM["evidence"], published.LAM["cross-validation"], label="published", **star)
    ends = 0.85 * min(ours.min(), folds.min(), 3.3), 1.15 * max(ours.max(), folds.max(), 3.6)
    ax.plot(ends, ends, color=NEUTRAL, lw=0.8, ls=DASHED)
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    ticks = [tick for tick in (0.3, 0.5, 1, 2, 3, 4, 5, 6, 8, 10) if ends[0] <= tick <= ends[1]]
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_minor_formatter(NullFormatter())
    ax.set(xlabel="λ of highest evidence", ylabel="λ by cross-validation")
    ax.legend(frameon=False, fontsize=SMALL)
    open_frame(ax)
    set_title(ax, "all data sets")


def _draw_recovery(table: Frame) -> Figure:
    """RMSE to the graphical lasso along λ: mean and range over data sets."""
    figure = Figure(figsize=(6.2, 3.8), layout="constrained")
    ax, handles = figure.subplots(), []
    for k, name in enumerate(name for name in SHOWN if len(of_architecture(table, name))):
        values = of_architecture(table, name).groupby("lam")["rmse"].agg(["mean", "min", "max"])
        ax.fill_between(values.index, values["min"], values["max"], color=LINES[k], alpha=0.15, lw=0)
        style = {"color": LINES[k], "marker": MARKERS[k], "ms": 4, "lw": 1.5, "label": SHOWN[name]}
        handles += ax.plot(values.index, values["mean"], **style)
    ax.axhline(published.RMSE, color=NEUTRAL, lw=1.2, ls=DASHED)
    handles.append(dashed_handle(f"published, {published.RMSE:g}"))
    _log_axis(ax)
    lam_axis(ax, np.unique(table["lam"]))
    ax.set_ylabel("RMSE")
    open_frame(ax)
    set_title(ax, "cold means and the graphical lasso, q = 1")
    legend_below(ax, handles)
    return figure


def _log_axis(ax: Axes) -> None:
    """A logarithmic vertical axis with plain numbers."""
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())


def _draw_agreement(table: Frame) -> Figure:
    """Quantile errors at every point, a dot for each data set."""
    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    ax, handles = figure.subplots(), []
    points = compared_points(of_architecture(table, "structured"))
    series = [(SHOWN[name], part, "flow") for name, part in table.groupby("architecture", sort=False)]
    series.append((SHOWN["exact"], of_architecture(table, "structured"), "exact"))
    for k, (label, part, column) in enumerate(series):
        for x, point in enumerate(points.itertuples(index=False)):
            y = at_point(part, point)[column]
            style = {"ls": "", "marker": MARKERS[k], "ms": 4.5, "color": LINES[k], "alpha": 0.7, "mew": 0}
            ax.plot(np.full(len(y), x + 0.22 * (k - (len(series) - 1) / 2)), y, **style)
        handles.append(Line2D([], [], ls="", marker=MARKERS[k], color=LINES[k], ms=5, label=label))
    ax.axhline(LIMIT, color=NEUTRAL, lw=1.2, ls=DASHED)
    handles.append(dashed_handle(f"{LIMIT:g} sd: beyond it draws are refined"))
    _log_axis(ax)
    names = [f"λ = {point.lam:.2g}\nq = {point.q:g}\nT = {point.temperature:g}" for point in points.itertuples()]
    ax.set_xticks(range(len(names)), names, fontsize=SMALL)
    ax.set_ylabel("mean quantile error (posterior sd)")
    open_frame(ax)
    set_title(ax, "flow against the exact sampler, a mark for each data set")
    legend_below(ax, handles, bbox_to_anchor=(0.5, -0.08))
    return figure
