"""Comparisons of pairs: intervals with other estimates, probabilities of an edge, differences between two groups."""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from numpy.typing import ArrayLike

from ggmflow.model.precision import association
from ggmflow.modes.path import solve_path
from ggmflow.plot.pairs import (
    Entry,
    all_pairs,
    find_pairs,
    pair_names,
    quantiles_of,
    scale_name,
    strongest,
    three_probs,
)
from ggmflow.plot.style import (
    DASHED,
    LINES,
    NEGATIVE,
    NEUTRAL,
    POSITIVE,
    SMALL,
    inches,
    legend_below,
    new_axes,
    open_frame,
    overlaps,
    room_for,
    set_title,
    short,
)
from ggmflow.plot.ticks import set_names
from ggmflow.posterior.edge_rules import DEFAULT, EDGE_RULES
from ggmflow.posterior.edges import EdgeSelection
from ggmflow.posterior.posterior import Posterior

_MOST_BARS = 150


def edge_intervals(
    post: Posterior,
    entries: Entry | Iterable[Entry] | None = None,
    *,
    count: int = 20,
    level: float = 0.9,
    references: Mapping[str, ArrayLike] | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw median and credible interval of the association of some pairs, sorted, with other estimates.

    Parameters
    ----------
    post
        The posterior.
    entries
        Pairs of names or positions; default the `count` of largest |association|.
    count
        Number of pairs.
    level
        Probability of the intervals. A hollow marker means that the interval contains zero.
    references
        Precision matrices (s, d) in the working scale, by name, for example of the graphical lasso.
    title, ax
        Title of the axes; axes to draw on, default new ones.

    Returns
    -------
    Axes
    """
    pairs = strongest(post, count) if entries is None else find_pairs(entries, post.names, post.query)
    numbers = quantiles_of(post, three_probs(level), pairs)
    order = np.argsort(numbers[1], kind="stable")
    pairs, numbers = pairs[order], numbers[:, order]
    names = pair_names(pairs, post.names, post.query)
    ax = new_axes(ax, 3.8 + room_for(names), 1.2 + 0.22 * len(pairs))
    handles = _forest(ax, *numbers, names=names, level=level)
    for k, (label, estimate) in enumerate((references or {}).items()):
        values = _associations(post, estimate, label)[pairs[:, 0], pairs[:, 1]]
        style = {"ls": "", "marker": "x+1|"[k % 4], "ms": 7, "mew": 1.8, "color": LINES[(k + 3) % len(LINES)]}
        handles += ax.plot(values, np.arange(len(pairs)), label=label, zorder=4, **style)
    ax.set_xlabel(scale_name("association", post))
    legend_below(ax, handles)
    set_title(ax, title or post.condition_text)
    return ax


def against_graphical_lasso(
    post: Posterior,
    estimate: ArrayLike | None = None,
    *,
    label: str = "graphical lasso",
    level: float = 0.9,
    count: int = 8,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the posterior against a point estimate, one point for each pair; on the dashed line both agree.

    Pairs that the estimate sets to zero are at 0 on the horizontal axis. A filled point has an interval without zero.

    Parameters
    ----------
    post
        The posterior.
    estimate : (s, d) array
        A precision matrix in the working scale; default the graphical lasso of the same data at the same λ.
    label
        Name of the estimate.
    level
        Probability of the credible intervals.
    count
        Number of pairs to name: those furthest from the line.
    title, ax
        Title of the axes; axes to draw on, default new ones.

    Returns
    -------
    Axes
    """
    rows = _graphical_lasso(post) if estimate is None else estimate
    pairs = all_pairs(post.query, len(post.names))
    x = _associations(post, rows, label)[pairs[:, 0], pairs[:, 1]]
    low, middle, high = quantiles_of(post, three_probs(level), pairs)
    ax = new_axes(ax, 4.8, 4.5)
    sure = (low > 0) | (high < 0)
    # Thousands of bars would hide each other: only the strongest pairs have one.
    barred = np.argsort(-np.abs(middle), kind="stable")[:_MOST_BARS]
    bars = [(middle - low)[barred], (high - middle)[barred]]
    ax.errorbar(x[barred], middle[barred], yerr=bars, fmt="none", ecolor=LINES[0], lw=0.8, alpha=0.4, zorder=1)
    many = len(pairs) > 1000
    for part, face in ((~sure, "white"), (sure, LINES[0])):
        style = {"ls": "", "marker": "o", "ms": 2.5 if many else 4, "mec": LINES[0], "mew": 0.8, "mfc": face}
        ax.plot(x[part], middle[part], rasterized=many, zorder=2, **style)
    ends = np.array([min(x.min(), middle.min()), max(x.max(), middle.max())])
    ax.plot(ends, ends, color=NEUTRAL, lw=1, ls=DASHED, zorder=0)
    ax.axhline(0, color=NEUTRAL, lw=0.6, zorder=0)
    apart = np.argsort(-np.abs(x - middle), kind="stable")[:count]
    names = [pair_names(pairs[apart], post.names, post.query, most) for most in (20, 12)]
    _name_points(ax, x[apart], middle[apart], list(zip(*names, strict=True)))
    scale = scale_name("association", post)
    ax.set_xlabel(f"{label}: {scale}", parse_math=False)
    ax.set_ylabel(f"posterior: median {scale}, {level:.0%} interval")
    handles = [
        Line2D([], [], ls="", marker="o", ms=4, mec=LINES[0], mfc=LINES[0], label="interval without zero"),
        Line2D([], [], ls="", marker="o", ms=4, mec=LINES[0], mfc="white", label="interval holds zero"),
        Line2D([], [], color=NEUTRAL, lw=1, ls=DASHED, label="equal"),
    ]
    legend_below(ax, handles)
    open_frame(ax)
    set_title(ax, title or post.condition_text)
    return ax


def edge_ranking(
    post: Posterior,
    edges: EdgeSelection | str = DEFAULT,
    *,
    count: int = 25,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw pairs by their probability of an edge, highest first; a line separates the edges from the other pairs.

    Parameters
    ----------
    post
        The posterior.
    edges
        A rule of `Posterior.select_edges` that has probabilities (`EdgeRule.has_probability`), or its result.
    count
        Number of pairs to draw.
    title
        Default: the number of edges, and the rule.
    ax
        Axes to draw on; default new ones.

    Returns
    -------
    Axes
    """
    chosen = post.select_edges(edges) if isinstance(edges, str) else edges
    if chosen.probability is None:
        usable = ", ".join(rule.key for rule in EDGE_RULES.values() if rule.has_probability)
        raise ValueError(f"the rule {chosen.key!r} has no probabilities: use one of {usable}")
    if chosen.edges.shape != (len(post.query), len(post.names)):
        raise ValueError(f"these edges have shape {chosen.edges.shape}, not {(len(post.query), len(post.names))}")
    pairs = all_pairs(post.query, len(post.names))
    probability = chosen.probability[pairs[:, 0], pairs[:, 1]]
    size = np.abs(post.association()[pairs[:, 0], pairs[:, 1]])
    order = np.lexsort((-size, -probability))[:count]  # the stronger first if equally probable
    pairs, probability = pairs[order], probability[order]
    inside = chosen.edges[pairs[:, 0], pairs[:, 1]]
    positive = post.association()[pairs[:, 0], pairs[:, 1]] > 0
    names = pair_names(pairs, post.names, post.query)
    ax = new_axes(ax, 3.8 + room_for(names), 1.2 + 0.22 * len(pairs))
    at = np.arange(len(pairs))
    for sign, colour, marker in ((True, POSITIVE, "o"), (False, NEGATIVE, "s")):
        mine = positive == sign
        ax.hlines(at[mine], 0, probability[mine], color=colour, lw=1.2, ls="-" if sign else "--")
        ax.plot(probability[mine & inside], at[mine & inside], marker, color=colour, ms=6)
        ax.plot(probability[mine & ~inside], at[mine & ~inside], marker, color=colour, ms=6, mfc="white")
    if 0 < inside.sum() < len(pairs):
        ax.axhline(inside.sum() - 0.5, color=NEUTRAL, lw=1, ls=DASHED)
    handles = [
        Line2D([], [], color=POSITIVE, marker="o", label="positive"),
        Line2D([], [], color=NEGATIVE, ls="--", marker="s", label="negative"),
        Line2D([], [], color=NEUTRAL, ls="", marker="o", mfc="white", label="not chosen"),
    ]
    _name_rows(ax, names)
    ax.set(xlim=(0, 1.02), xlabel="probability of an edge", ylim=(len(pairs) - 0.5, -0.5))
    legend_below(ax, handles)
    open_frame(ax)
    of = len(all_pairs(post.query, len(post.names)))
    set_title(ax, title or f"{chosen.n_edges} edges of {of} pairs: {chosen.rule}")
    return ax


def differences(table: pd.DataFrame, *, count: int = 25, title: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw differences of associations between two groups, sorted, with credible intervals.

    Parameters
    ----------
    table
        Result of `ggmflow.compare`.
    count
        Number of pairs: those with the smallest false discovery rate.
    title, ax
        Title of the axes; axes to draw on, default new ones.

    Returns
    -------
    Axes
    """
    if absent := {"row", "column", "difference", "sd", "lower", "upper", "fdr", "found"} - set(table.columns):
        raise ValueError(
            f"this is not a comparison: column {min(absent)!r} is missing; use ggmflow.compare(first, second)"
        )
    score = (table["difference"].abs() / table["sd"].where(table["sd"] > 0, np.inf)).to_numpy()
    order = np.lexsort((-score, table["fdr"].to_numpy()))
    part = table.iloc[order[:count]].sort_values("difference", kind="stable")
    names = [f"{short(str(a))} – {short(str(b))}" for a, b in zip(part["row"], part["column"], strict=True)]
    ax = new_axes(ax, 3.8 + room_for(names), 1.2 + 0.22 * len(part))
    level = table.attrs.get("level", 0.9)
    numbers = (part[label].to_numpy() for label in ("lower", "difference", "upper"))
    found = part["found"].to_numpy(bool)
    handles = _forest(ax, *numbers, names=names, level=level, middle_name="mean", sure=found, unsure="not found")
    first, second = table.columns[2:4]
    ax.set_xlabel(f"difference of association: {second} − {first}", parse_math=False)
    legend_below(ax, handles)
    n_found = int(np.sum(table["found"].to_numpy()))
    counted = "1 difference" if n_found == 1 else f"{n_found} differences"
    set_title(ax, title or f"{counted} found among {len(table)} pairs")
    return ax


def _forest(
    ax: Axes,
    low: Float[np.ndarray, " m"],
    middle: Float[np.ndarray, " m"],
    high: Float[np.ndarray, " m"],
    *,
    names: list[str],
    level: float,
    middle_name: str = "median",
    sure: Bool[np.ndarray, " m"] | None = None,
    unsure: str = "interval holds zero",
) -> list[Any]:
    """Draw intervals in rows; markers are filled where `sure`, by default where the interval excludes zero."""
    at, sure = np.arange(len(names)), (low > 0) | (high < 0) if sure is None else sure
    ax.axvline(0, color=NEUTRAL, lw=0.8)
    ax.hlines(at, low, high, color=np.where(middle > 0, POSITIVE, NEGATIVE), lw=1.6)
    for positive, colour, marker in ((True, POSITIVE, "o"), (False, NEGATIVE, "s")):
        mine = (middle > 0) == positive
        ax.plot(middle[mine & sure], at[mine & sure], marker, color=colour, ms=6, zorder=3)
        ax.plot(middle[mine & ~sure], at[mine & ~sure], marker, color=colour, ms=6, mfc="white", zorder=3)
    _name_rows(ax, names)
    ax.set_ylim(-0.7, len(names) - 0.3)
    open_frame(ax)
    bar: dict[str, Any] = {"color": NEUTRAL, "marker": "o", "ms": 6, "lw": 1.6}
    handles = [Line2D([], [], label=f"{middle_name}, {level:.0%} interval", **bar)]
    if not sure.all():
        handles.append(Line2D([], [], mfc="white", label=unsure, **bar))
    return handles


def _name_rows(ax: Axes, names: list[str]) -> None:
    set_names(ax.yaxis, names, most=len(names))
    ax.tick_params(axis="y", length=0)
    # Long names make the axes narrower, and titles and legends must fit them.
    ax.figure.canvas.figure.draw_without_rendering()


def _name_points(
    ax: Axes, x: Float[np.ndarray, " m"], y: Float[np.ndarray, " m"], names: list[tuple[str, ...]]
) -> None:
    """Write names beside points, away from the diagonal if possible; a name that would overlap another is left out.

    Each point has its name at full length and in shorter forms.
    """
    taken = np.empty((0, 4))  # boxes in points: left, bottom, right, top
    # Layout engines shrink axes later: assume a little less space.
    size = 0.85 * 72 * np.array(inches(ax))
    low, high = np.transpose([ax.get_xlim(), ax.get_ylim()])
    for at, texts in zip(np.column_stack([x, y]), names, strict=True):
        middle = size * (at - low) / (high - low)
        for text, left in product(texts, (at[1] > at[0], at[1] <= at[0])):
            half = np.array([0.28 * SMALL * len(text) + 3, 0.6 * SMALL])
            centre = middle + np.array([-half[0] if left else half[0], 0])
            box = np.array([*(centre - half), *(centre + half)])
            if 0 <= box[0] and box[2] <= size[0] and not overlaps(box, taken):
                taken = np.vstack([taken, box])
                place = {"textcoords": "offset points", "ha": "right" if left else "left", "va": "center", "zorder": 5}
                made = ax.annotate(text, at, (-6 if left else 6, 0), fontsize=SMALL, parse_math=False, **place)
                made.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
                made.set_in_layout(False)  # names are inside the axes, and must not make them narrower
                break


def _graphical_lasso(post: Posterior) -> Float[np.ndarray, "s d"]:
    if post.scatter is None or post.lam is None:
        lacking = "the data" if post.scatter is None else "one λ"
        raise ValueError(f"the graphical lasso needs {lacking}, which this posterior lacks: give an estimate")
    return solve_path(post.scatter.matrix, post.scatter.n, [post.lam], 1.0, post.query).precision[0]


def _associations(post: Posterior, estimate: ArrayLike, label: str) -> Float[np.ndarray, "s d"]:
    rows = np.asarray(estimate, float)
    if rows.shape != (shape := (len(post.query), len(post.names))):
        raise ValueError(f"{label!r} must be a matrix of shape {shape}, it has shape {rows.shape}")
    return association(rows, post.query)
