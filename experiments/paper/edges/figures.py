"""Figures of the comparison of edges, drawn from its tables."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.paper.edges.summary import (
    BGL,
    EVIDENCE,
    agreement_labelled,
    labelled,
    methods,
    other_kinds,
    published_values,
    spread,
)
from experiments.paper.reference import LIMIT
from experiments.paper.statistics import Frame, Tables, mean_se
from ggmflow.plot.style import DASHED, FAINT, LINES, MARKERS, NEUTRAL, SMALL, open_frame
from ggmflow.plot.ticks import set_names


def figures(tables: Tables) -> dict[str, Figure]:
    """Draw all figures.

    f1
        F1 over pairs of every method for each n, the default edge rule beside intervals.
    ranking
        Average precision.
    published
        F1 with the diagonal counted, beside the published values.
    agreement
        Quantile errors of the flow beside the exact sampler's own.
    other_graphs
        F1 and average precision on other graphs and on known networks, if there are any.
    """
    frame = labelled(tables)
    drawn = {"f1": _draw_f1(frame), "ranking": _draw_ranking(frame), "published": _draw_published(frame)}
    drawn["agreement"] = _draw_agreement(agreement_labelled(tables), methods(frame).posteriors)
    if others := other_kinds(frame):
        drawn["other_graphs"] = _draw_others(frame, others)
    return drawn


def _draw_f1(frame: Frame) -> Figure:
    figure, axes = _rows_by_n(frame, "F1 over pairs")
    seen = methods(frame)
    _draw_dots(axes, frame, "f1", seen.posteriors, 0, "posterior: 90 % interval excludes zero", shift=-0.14)
    _draw_dots(axes, frame, "f1_default", seen.posteriors, 2, "posterior: default edge rule", shift=0.14, mfc="white")
    _draw_dots(axes, frame, "f1", seen.penalties, 1, "penalized likelihood: support")
    _legend_below(figure, axes[0])
    return figure


def _draw_ranking(frame: Frame) -> Figure:
    figure, axes = _rows_by_n(frame, "average precision")
    seen = methods(frame)
    _draw_dots(axes, frame, "average_precision", seen.posteriors, 0, "posterior: |mean|/sd")
    _draw_dots(axes, frame, "average_precision", seen.penalties, 1, "penalized likelihood: |estimate|")
    _legend_below(figure, axes[0])
    return figure


def _rows_by_n(frame: Frame, name: str) -> tuple[Figure, list[Any]]:
    """Axes for each n of the main comparison, with a row for each method."""
    seen = methods(frame)
    figure = Figure(figsize=(10, 1.4 + 0.22 * len(seen.all)), layout="constrained")
    counts = spread(frame, "f1").index.unique("n")
    axes = list(figure.subplots(1, len(counts), sharex=True, sharey=True, squeeze=False)[0])
    for ax, n in zip(axes, counts, strict=True):
        ax.axhline(len(seen.posteriors) - 0.5, color=FAINT, lw=0.8)
        ax.set_title(f"n = {n}", fontsize=9)
        ax.grid(axis="x", color=FAINT, lw=0.4)
        _plain(ax, name)
    set_names(axes[0].yaxis, seen.all, most=len(seen.all))
    axes[0].set_ylim(len(seen.all) - 0.4, -0.6)
    return figure, axes


def _draw_dots(
    axes: Sequence[Any],
    frame: Frame,
    measure: str,
    labels: Sequence[str],
    style: int,
    name: str,
    shift: float = 0.0,
    **options: Any,
) -> None:
    """Mean and standard error of some methods, in their rows."""
    wide, rows = spread(frame, measure), methods(frame).all
    for ax, n in zip(axes, wide.index.unique("n"), strict=True):
        mean, se = np.array([mean_se(wide.loc[n, label]) for label in labels]).T
        y = [rows.index(label) + shift for label in labels]
        options = {"fmt": MARKERS[style], "color": LINES[style], "ms": 4.5, "lw": 1.2} | options
        ax.errorbar(mean, y, xerr=se, label=name, **options)


def _draw_published(frame: Frame) -> Figure:
    figure = Figure(figsize=(7.4, 3.4), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    sources = {"published": "ours, the published matrix", "sparse": "ours, different matrices"}
    for ax, (label, values) in zip(axes, published_values(frame).items(), strict=True):
        for k, (kind, source) in enumerate(sources.items()):
            column = spread(frame, "f1_published", kind)[label]
            counts = column.index.unique("n")
            mean, se = np.array([mean_se(column.loc[n]) for n in counts]).T
            ax.errorbar(counts, mean, se, color=LINES[k], marker=MARKERS[k], ms=5, capsize=2, label=source)
            ax.set_xticks(counts)
        ax.plot(list(values), list(values.values()), color=NEUTRAL, ls=DASHED, marker="x", label="published")
        ax.set_title(label if label == BGL else f"flow, {label}", fontsize=9)
        _plain(ax, "rows n")
    axes[0].set_ylabel("F1, the diagonal counted", fontsize=SMALL)
    _legend_below(figure, axes[0])
    return figure


def _draw_agreement(table: Frame, labels: Sequence[str]) -> Figure:
    rows = [label for label in labels if label in set(table["label"])]
    figure = Figure(figsize=(7.4, 1.2 + 0.34 * len(rows)), layout="constrained")
    ax = figure.subplots()
    place = np.array([rows.index(label) for label in table["label"]])
    options: dict[str, Any] = {"ls": "", "alpha": 0.6}
    ax.plot(table["exact_error"], place - 0.25, "|", color=NEUTRAL, ms=6, label="exact sampler's own", **options)
    ax.plot(table["flow_error"], place, "o", color=LINES[0], ms=3.5, label="flow", **options)
    ax.plot(table["refined_error"], place + 0.25, "D", color=LINES[1], ms=3.5, label="flow, refined", **options)
    ax.axvline(LIMIT, color=NEUTRAL, ls=DASHED, lw=1)
    set_names(ax.yaxis, rows, most=len(rows))
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xscale("log")  # one poor network would squeeze all the others
    ax.xaxis.set_major_formatter("{x:g}")
    _plain(ax, "mean quantile error, in posterior standard deviations")
    _legend_below(figure, ax)
    return figure


def _draw_others(frame: Frame, others: list[tuple[str, int]]) -> Figure:
    seen = methods(frame)
    figure = Figure(figsize=(10, 1.4 + 0.42 * len(others)), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    shown = [("q = 1", "f1"), (seen.smallest, "f1"), (EVIDENCE, "f1_default"), (BGL, "f1")]
    for ax, name in zip(axes, ("F1 over pairs", "average precision"), strict=True):
        for k, (label, measure) in enumerate([*shown, *((label, "f1") for label in seen.penalties)]):
            column = measure if name == "F1 over pairs" else "average_precision"
            values = [spread(frame, column, kind).loc[n, label].mean() for kind, n in others]
            style, rule = min(k, len(shown)), ", default rule" if measure == "f1_default" else ""
            options: dict[str, Any] = {"color": LINES[style], "ms": 4.5, "alpha": 1.0 if k < len(shown) else 0.5}
            named = f"{label}{rule}" if k < len(shown) else "each penalized likelihood" if k == len(shown) else None
            ax.plot(values, np.arange(len(others)) - 0.28 + 0.14 * style, MARKERS[style], label=named, **options)
        for y in range(1, len(others)):
            ax.axhline(y - 0.5, color=FAINT, lw=0.6)
        _plain(ax, name)
    set_names(axes[0].yaxis, [f"{kind}, n = {n}" for kind, n in others], most=len(others))
    axes[0].set_ylim(len(others) - 0.5, -0.5)
    _legend_below(figure, axes[0])
    return figure


def _plain(ax: Any, name: str) -> None:
    ax.set_xlabel(name, fontsize=SMALL)
    ax.tick_params(labelsize=SMALL)
    open_frame(ax)


def _legend_below(figure: Figure, ax: Any) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=SMALL, frameon=False)
