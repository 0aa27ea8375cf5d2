"""Figures of runtimes, drawn from their tables."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from experiments.paper import published
from experiments.paper.runtime.estimates import blanket, count, exponent, matrices, measured, number
from experiments.paper.statistics import Tables
from ggmflow.plot.style import DASHED, FAINT, LINES, MARKERS, NEUTRAL, SMALL, legend_below, open_frame, set_title

FLOW, EXACT, PUBLISHED, NUTS, DRAWS = 0, 1, 2, 3, 5  # positions among colours and markers


def figures(tables: Tables) -> dict[str, Figure]:
    """Cost against d, cost against the number of points, and the blanket."""
    return {
        "cost_against_d": _draw_sizes(tables),
        "cost_against_points": _draw_points(tables),
        "blanket": _draw_blanket(tables),
    }


def _draw_sizes(tables: Tables) -> Figure:
    figure = Figure(figsize=(9.6, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    table = matrices(tables)
    d, effective = table["d"].to_numpy(float), float(table["effective"].iloc[0])
    paid = {
        "flow: fit, once": (FLOW, table["flow_once"]),
        f"flow: {number(effective)} draws at a point": (DRAWS, table["flow_each"]),
        f"exact sampler: {number(effective)} effective draws at a point": (EXACT, table["exact_each"]),
    }
    parts = {
        "a step of training": (FLOW, table["step_seconds"]),
        "a draw of the flow": (DRAWS, 1 / table["draws_per_second"]),
        "a sweep of one exact chain": (EXACT, table["sweep_seconds"]),
    }
    handles = [_draw_power(left, k, d, y.to_numpy(float), label) for label, (k, y) in paid.items()]
    for k, (q, part) in enumerate(measured(tables["nuts"]).sort_values("d").groupby("q", sort=False)):
        style = {"color": LINES[NUTS + k], "marker": MARKERS[NUTS + k], "ms": 5, "lw": 1.2, "ls": DASHED}
        line = left.plot(part["d"], effective / part["nuts_per_second"], **style)[0]
        line.set(label=f"NUTS, q = {q:g}, the same (warm-up left out)")
        handles.append(line)
    own = [_draw_power(right, k, d, y.to_numpy(float), label) for label, (k, y) in parts.items()]
    for ax, title, found in ((left, "What is paid", handles), (right, "What it consists of", own)):
        ax.set(xscale="log", yscale="log", xlabel="variables d", ylabel="seconds")
        ax.set_xticks(d, [f"{each:g}" for each in d])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.margins(x=0.08)
        open_frame(ax)
        set_title(ax, title)
        legend_below(ax, found)
    return figure


def _draw_power(ax: Axes, k: int, x: Float[np.ndarray, " m"], y: Float[np.ndarray, " m"], label: str) -> Line2D:
    """Numbers, the power of d fitted to them, and its exponent in the legend."""
    power = exponent(x, y)
    if np.isfinite(power.value):
        level = np.exp(np.mean(np.log(y)) - power.value * np.mean(np.log(x)))
        ax.plot(x, level * x**power.value, color=LINES[k], lw=1.6)
        label = f"{label}, ∝ d^({power})"
    ax.plot(x, y, ls="", color=LINES[k], marker=MARKERS[k], ms=5)
    return Line2D([], [], color=LINES[k], marker=MARKERS[k], ms=5, lw=1.6, label=label)


def _draw_points(tables: Tables) -> Figure:
    table, grids = matrices(tables), tables["grids"]
    height = -(-len(table) // 2)
    figure = Figure(figsize=(9.6, 0.5 + 2.9 * height), layout="constrained")
    axes = figure.subplots(height, min(2, len(table)), squeeze=False).ravel()
    k, handles = np.geomspace(1, 1000, 61), {}
    for ax in axes[len(table) :]:
        ax.set_axis_off()

    def draw(ax: Axes, y: Any, colour: int, label: str, style: Any = "-") -> None:
        ax.plot(k, y, color=LINES[colour], lw=1.6, ls=style)
        marker = MARKERS[colour] if colour in (FLOW, EXACT) else ""
        handles.setdefault(label, Line2D([], [], color=LINES[colour], lw=1.6, ls=style, marker=marker, ms=5))

    for ax, row in zip(axes, table.to_dict("records"), strict=False):
        own = grids[grids["d"] == row["d"]]
        sampling = row["exact_compile_seconds"] + k * row["sampling"]
        draw(ax, row["flow_once"] + k * row["flow_each"], FLOW, "flow, fit included")
        draw(ax, sampling + k * row["warmup"], EXACT, "exact sampler (band: less warm-up)")
        ax.fill_between(k, sampling, sampling + k * row["warmup"], color=LINES[EXACT], alpha=0.15, lw=0)
        nuts, torch = (measured(tables[name]) for name in ("nuts", "published"))
        for run in nuts[(nuts["d"] == row["d"]) & (nuts["q"] == 1)].to_dict("records"):
            draw(ax, k * row["effective"] / run["nuts_per_second"], NUTS, "NUTS, q = 1, no warm-up", DASHED)
        for run in torch[torch["d"] == row["d"]].nlargest(1, "layers").to_dict("records"):
            once, each = published.TRAINING_STEPS * run["seconds_per_step"], row["effective"] / run["draws_per_second"]
            draw(ax, once + k * each, PUBLISHED, "published flow, 10 000 steps", DASHED)
        if row["wins"] <= k[-1]:
            ax.axvline(row["wins"], color=NEUTRAL, lw=1, ls=":")
            place = {"xytext": (-4, 0), "ha": "right"} if row["wins"] > 150 else {"xytext": (4, 0), "ha": "left"}
            at = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "fontsize": SMALL}
            points = "point" if row["wins"] == 1 else "points"
            ax.annotate(f"{count(row['wins'])} {points}", (row["wins"], 0.03), **at, **place)
        ax.set(xscale="log", yscale="log", xlim=(0.85, 1000), xlabel="points (λ, q)", ylabel="seconds in all")
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set_ylim(bottom=ax.get_ylim()[0] / (8 if len(own) else 2))  # room for text
        if len(own):
            lines = ["markers: measured"]
            for j, name, who in ((FLOW, "flow_seconds", "flow"), (EXACT, "exact_seconds", "exact sampler")):
                ax.plot(own["points"], own[name], ls="", marker=MARKERS[j], ms=5, color=LINES[j])
                lines.append(f"{who} ∝ k^({exponent(own['points'], own[name])})")
            place = {"transform": ax.transAxes, "ha": "right", "va": "bottom", "fontsize": SMALL}
            ax.text(0.98, 0.1, "\n".join(lines), **place)
        open_frame(ax)
        set_title(ax, f"d = {row['d']:g}, n = {row['n']:g}")
    texts = {"loc": "outside lower center", "ncols": len(handles), "frameon": False, "fontsize": SMALL}
    figure.legend(list(handles.values()), list(handles), **texts)
    return figure


def _draw_blanket(tables: Tables) -> Figure:
    (row, points), kaufmann = blanket(tables), tables["kaufmann"].sort_values("lam")
    effective = [("exact sampler: effective draws", point) for point in points.to_dict("records")]
    effective += [("Kaufmann et al.: effective draws", each) for each in kaufmann.to_dict("records")]
    dots = [
        ("flow: independent draws", row["draws_per_second"], FLOW),
        ("flow, published, on a TITAN X", published.FLOW_RATE, PUBLISHED),
        *((f"{who}, λ = {e['lam']:.3g}, q = {e['q']:g}", e["effective_per_second"], EXACT) for who, e in effective),
        ("Kaufmann et al.: all draws", float(kaufmann["draws_per_second"].median()), EXACT),
        ("Kaufmann et al., published: all draws", published.GIBBS_DRAWS / published.GIBBS_SECONDS, PUBLISHED),
    ]
    labels, rates, whose = (list(values)[::-1] for values in zip(*dots, strict=True))
    figure = Figure(figsize=(9.6, 1.0 + 0.3 * len(dots)), layout="constrained")
    ax = figure.subplots()
    for k, (rate, who) in enumerate(zip(rates, whose, strict=True)):
        face = "white" if who == PUBLISHED else LINES[who]
        ax.axhline(k, color=FAINT, lw=0.6, zorder=0)
        ax.plot(rate, k, marker=MARKERS[who], ms=7, color=LINES[who], mfc=face)
        ax.annotate(number(rate), (rate, k), xytext=(8, 3), textcoords="offset points", fontsize=SMALL)
    ax.set_yticks(range(len(dots)), labels, fontsize=SMALL)
    limits = (min(rates) / 2, max(rates) * 3)
    ax.set(xscale="log", xlim=limits, xlabel="per second, after fit, warm-up and compilation")
    open_frame(ax)
    set_title(ax, f"Markov blanket of {row['s']:g} among {row['d']:g} variables; hollow: as published")
    return figure
