"""Pictures of precision matrices: credible intervals and solution paths along λ, networks, heat maps.

Every function draws on the matplotlib axes it is given, or on new ones, and returns them. Colours are blue for
positive and orange for negative partial correlations (told apart by colour-blind eyes and in grey print).
"""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from ggmflow.precision import partial_correlation

POSITIVE, NEGATIVE, NEUTRAL = "#2166ac", "#d95f02", "#4d4d4d"
_LINES = ("#2166ac", "#d95f02", "#1b9e77", "#7570b3", "#a6761d", "#4d4d4d")
_FAINT, _DASHED = "#c4c4c4", (0, (4, 2))
_SIGNED = LinearSegmentedColormap.from_list("signed", [NEGATIVE, "#ffffff", POSITIVE])


def intervals_along_lam(
    lam: Float[np.ndarray, " k"],
    quantiles: Float[np.ndarray, "3 k m"],
    labels: Sequence[str],
    *,
    path: Float[np.ndarray, "k m"] | None = None,
    path_label: str = "graphical lasso",
    ylabel: str = "entry of the precision matrix",
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Credible bands and medians of a few entries of Ω, or of functions of it, along λ.

    Parameters
    ----------
    lam
        Values of λ, ascending.
    quantiles
        Lower, middle and upper quantile of each of m entries at each λ.
    labels
        Names of the entries.
    path
        A point estimate to draw dashed, for example the graphical lasso.
    path_label, ylabel, title
        Texts.
    ax
        Axes to draw on.
    """
    ax = ax or plt.subplots(figsize=(5, 3.6), layout="constrained")[1]
    for k, label in enumerate(labels):
        colour = _LINES[k % len(_LINES)]
        ax.fill_between(lam, quantiles[0, :, k], quantiles[2, :, k], color=colour, alpha=0.18, lw=0)
        ax.plot(lam, quantiles[1, :, k], color=colour, lw=1.8, label=label)
        if path is not None:
            ax.plot(lam, path[:, k], color=colour, lw=1.2, ls=_DASHED)
    _finish_along_lam(ax, lam, ylabel, title, [] if path is None else [_dashed_handle(path_label)])
    return ax


def solution_path(
    lam: Float[np.ndarray, " k"],
    path: Float[np.ndarray, "k m"],
    labels: Mapping[int, str],
    *,
    reference: Float[np.ndarray, "k m"] | None = None,
    reference_label: str = "graphical lasso",
    ylabel: str = "entry of the precision matrix",
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Point estimates of many entries of Ω, or of functions of it, along λ: a line each.

    Parameters
    ----------
    lam
        Values of λ, ascending.
    path
        Each of m entries at each λ.
    labels
        Which entries to draw in colour, and their names; the others are grey and appear as "other pairs".
    reference
        The same entries by another method, drawn dashed, for example the graphical lasso.
    reference_label, ylabel, title
        Texts.
    ax
        Axes to draw on.
    """
    ax = ax or plt.subplots(figsize=(5, 3.6), layout="constrained")[1]
    # The named entries come last, on top of the others and in the order of their labels.
    for k in [k for k in range(path.shape[1]) if k not in labels]:
        ax.plot(lam, path[:, k], color=_FAINT, lw=0.9)
        if reference is not None:
            ax.plot(lam, reference[:, k], color=NEUTRAL, lw=0.5, ls=_DASHED, alpha=0.6)
    for i, (k, label) in enumerate(labels.items()):
        colour = _LINES[i % len(_LINES)]
        ax.plot(lam, path[:, k], color=colour, lw=1.8, label=label)
        if reference is not None:
            ax.plot(lam, reference[:, k], color=colour, lw=1.2, ls=_DASHED)
    extra = [Line2D([], [], color=_FAINT, lw=0.9, label="other pairs")] if path.shape[1] > len(labels) else []
    _finish_along_lam(ax, lam, ylabel, title, extra if reference is None else [*extra, _dashed_handle(reference_label)])
    return ax


def network(
    precision: Float[np.ndarray, "d d"],
    edges: Bool[np.ndarray, "d d"],
    names: Sequence[str],
    *,
    highlight: Bool[np.ndarray, "d d"] | None = None,
    positions: Float[np.ndarray, "d 2"] | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Graph of a precision matrix: width is the size of a partial correlation, colour its sign.

    Parameters
    ----------
    precision
        Ω.
    edges
        Which pairs to join; the diagonal does not count.
    names
        Node labels.
    highlight
        Pairs to draw solid; the other edges are dotted. Default: all.
    positions
        Node positions, for example from `layout`, so that several graphs can be compared.
    title, ax
        Text; axes to draw on.
    """
    ax = ax or plt.subplots(figsize=(4.5, 4.5), layout="constrained")[1]
    positions = layout(edges) if positions is None else positions
    weight = partial_correlation(precision)
    for i, j in np.argwhere(np.triu(edges, 1)):
        solid = highlight is None or highlight[i, j]
        ax.plot(
            *positions[[i, j]].T,
            color=POSITIVE if weight[i, j] > 0 else NEGATIVE,
            lw=0.8 + 6 * abs(weight[i, j]),
            ls="-" if solid else ":",
            solid_capstyle="round",
            alpha=0.85,
            zorder=1,
        )
    ax.scatter(*positions.T, s=260, color="white", edgecolors=NEUTRAL, linewidths=1.2, zorder=2)
    for position, name in zip(positions, names, strict=True):
        ax.annotate(name, position, ha="center", va="center", fontsize=8, zorder=3, parse_math=False)
    ax.set(aspect="equal", xticks=[], yticks=[])
    middle, reach = (positions.max(0) + positions.min(0)) / 2, 0.6 * np.ptp(positions, axis=0).max()
    ax.set(xlim=middle[0] + reach * np.array([-1, 1]), ylim=middle[1] + reach * np.array([-1, 1]))
    ax.spines[:].set_visible(False)
    if title:
        ax.set_title(title, fontsize=10)
    return ax


def layout(edges: Bool[np.ndarray, "d d"]) -> Float[np.ndarray, "d 2"]:
    """Node positions on a circle, ordered so that joined nodes are near each other: the same for the same edges."""
    graph = nx.from_numpy_array(np.triu(edges, 1).astype(int))
    order: Int[np.ndarray, " d"] = np.array(
        [
            node
            for part in sorted(nx.connected_components(graph), key=min)
            for node in nx.dfs_preorder_nodes(graph, min(part))
        ]
    )
    angle = np.empty(len(edges))
    angle[order] = np.linspace(0, 2 * np.pi, len(edges), endpoint=False)
    return np.column_stack([np.sin(angle), np.cos(angle)])


def heat_map(
    matrix: Float[np.ndarray, "s d"],
    names: Sequence[str],
    *,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Partial correlations (or any signed matrix with entries in [−1, 1]) as colours; the diagonal is left blank."""
    ax = ax or plt.subplots(figsize=(4.5, 4), layout="constrained")[1]
    shown = np.array(matrix, dtype=float)
    np.fill_diagonal(shown, np.nan)
    limit = np.nanmax(np.abs(shown), initial=1e-3)
    # A query block of six rows and hundreds of columns would be a sliver with square cells.
    aspect = "equal" if shown.shape[0] == shown.shape[1] else "auto"
    image = ax.imshow(shown, cmap=_SIGNED, vmin=-limit, vmax=limit, aspect=aspect, interpolation="nearest")
    for axis, size, turn in ((ax.xaxis, len(names), 90), (ax.yaxis, len(matrix), 0)):
        ticks = range(0, size, max(1, size // 25))  # with hundreds of variables only some labels can be read
        axis.set_ticks(ticks, [names[k] for k in ticks], rotation=turn, fontsize=7, parse_math=False)
    ax.figure.colorbar(image, ax=ax, shrink=0.85, label="partial correlation")
    if title:
        ax.set_title(title, fontsize=10)
    return ax


def _dashed_handle(label: str) -> Line2D:
    return Line2D([], [], color=NEUTRAL, lw=1.2, ls=_DASHED, label=label)


def _finish_along_lam(
    ax: Axes, lam: Float[np.ndarray, " k"], ylabel: str, title: str | None, extra: list[Line2D]
) -> None:
    """Axis of λ, line at zero, legend with what is labelled and what is added."""
    ax.axhline(0, color=NEUTRAL, lw=0.6)
    ax.set(xscale="log", xlabel="shrinkage λ", ylabel=ylabel, xlim=(lam[0], lam[-1]))
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.legend(handles=[*ax.get_legend_handles_labels()[0], *extra], frameon=False, fontsize=8, ncols=2)
    ax.spines[["top", "right"]].set_visible(False)
    if title:
        ax.set_title(title, fontsize=10)
