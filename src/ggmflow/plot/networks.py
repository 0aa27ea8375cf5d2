"""Networks: the width of an edge is the strength of its association; positive is solid blue, negative dashed orange.

Positions are computed once by `network_layout`, so that graphs at different λ and q can be compared.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from ggmflow.model.precision import partial_correlation
from ggmflow.plot.pairs import joined_pairs, scale_name
from ggmflow.plot.style import NEGATIVE, NEUTRAL, POSITIVE, SMALL, inches, legend_below, new_axes, overlaps, set_title
from ggmflow.posterior.edge_rules import DEFAULT
from ggmflow.posterior.edges import EdgeSelection
from ggmflow.posterior.posterior import Posterior
from ggmflow.views.layout import circle_layout, network_layout

_QUERY = "#fff3bf"  # behind the names of query variables, whose frame is thicker too
_FEW = 40  # largest number of variables for which those without an edge are drawn


def network(
    precision: Posterior | Float[np.ndarray, "d d"],
    edges: EdgeSelection | Bool[np.ndarray, "s d"] | None = None,
    names: Sequence[str] | None = None,
    *,
    rule: str = DEFAULT,
    highlight: Bool[np.ndarray, "s d"] | None = None,
    positions: Float[np.ndarray, "d 2"] | None = None,
    isolated: bool | None = None,
    width: float = 10.0,
    key: bool | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the graph of a posterior, or of one precision matrix: width is the size of an association, colour its sign.

    Parameters
    ----------
    precision
        A posterior, or Ω.
    edges
        Pairs to join: a result of `select_edges`, or an array of bool whose diagonal is ignored. Default: the edges of
        the posterior by `rule`.
    names
        Node labels; default those of the posterior.
    rule
        Rule of `Posterior.select_edges`.
    highlight
        Edges to draw as usual; the other edges are dotted. Default: all.
    positions
        Node positions, from `network_layout` or `layout`, so that several graphs can be compared.
    isolated
        Whether to draw variables without an edge; default: if there are at most 40 variables and no query. Query
        variables are always drawn.
    width
        Line width in points of an association of 1; other widths are in proportion.
    key
        Whether to draw a legend of widths and signs; default: for a posterior.
    title
        Default: the condition, the number of edges and the rule.
    ax
        Axes to draw on; default new ones.

    Returns
    -------
    Axes
    """
    if isinstance(precision, Posterior):
        post, query, names = precision, precision.query, precision.names if names is None else names
        chosen = post.select_edges(rule) if edges is None else edges
        strength = post.association()
        positions = network_layout(post, chosen) if positions is None else positions
    else:
        post, chosen, strength = None, edges, partial_correlation(precision)
        query = np.arange(len(strength))
    if chosen is None or names is None:
        raise ValueError("a matrix needs edges and names: network(precision, edges, names), or give a posterior")
    joined = np.asarray(chosen.edges if isinstance(chosen, EdgeSelection) else chosen, bool)
    if joined.shape != strength.shape or len(names) != strength.shape[1]:
        raise ValueError(f"edges {joined.shape} and {len(names)} names do not belong to a matrix {strength.shape}")
    positions = circle_layout(joined) if positions is None else positions
    pairs = joined_pairs(joined, query)
    touched = np.zeros(len(names))
    for row, column in pairs.tolist():
        touched[[query[row], column]] += abs(strength[row, column])
    whole = len(query) == len(names)
    keep_isolated = isolated if isolated is not None else whole and len(names) <= _FEW
    shown = (touched > 0) | keep_isolated
    shown[query] |= not whole
    side = 4.5 if shown.sum() <= 15 else 6.5 if shown.sum() <= 60 else 9.0
    ax = new_axes(ax, side, side)
    for row, column in pairs.tolist():
        weight = float(strength[row, column])
        usual = highlight is None or highlight[row, column]
        ax.plot(
            *positions[[query[row], column]].T,
            color=POSITIVE if weight > 0 else NEGATIVE,
            lw=(lw := width * abs(weight)),
            ls=":" if not usual else "-" if weight > 0 else _dashes(lw),
            solid_capstyle="round",
            dash_capstyle="butt",
            alpha=0.85,
            zorder=1,
        )
    _frame(ax, positions[shown] if shown.any() else positions)
    _nodes(ax, positions, names, np.flatnonzero(shown), touched, query if not whole else query[:0])
    if key or (key is None and post is not None):
        scale = "partial correlation" if post is None else scale_name("association", post)
        _draw_key(ax, strength[pairs[:, 0], pairs[:, 1]], width, scale)
    hidden = int(len(names) - shown.sum())
    set_title(ax, title or ("" if post is None else _describe(post, chosen, len(pairs), hidden)))
    return ax


def _dashes(lw: float) -> tuple[float, tuple[float, float]]:
    """Dashes in units of the line width, as matplotlib expects; thin lines need longer ones to be visible."""
    return 0, (max(1.6, 4 / max(lw, 0.1)), max(0.8, 2 / max(lw, 0.1)))


def _frame(ax: Axes, positions: Float[np.ndarray, "m 2"]) -> None:
    ax.set(aspect="equal", xticks=[], yticks=[])
    middle = (positions.max(axis=0) + positions.min(axis=0)) / 2
    reach = 0.6 * max(float(np.ptp(positions, axis=0).max()), 0.1)
    ax.set(xlim=middle[0] + reach * np.array([-1, 1]), ylim=middle[1] + reach * np.array([-1, 1]))
    ax.spines[:].set_visible(False)


def _nodes(
    ax: Axes,
    positions: Float[np.ndarray, "d 2"],
    names: Sequence[str],
    shown: Int[np.ndarray, " m"],
    touched: Float[np.ndarray, " d"],
    query: Int[np.ndarray, " s"],
) -> None:
    """Names in boxes if they fit, else beside a dot, else only a dot.

    Query variables are placed first, then those with the strongest associations.
    """
    asked = set(query.tolist())
    order = sorted(shown.tolist(), key=lambda k: (k not in asked, -touched[k]))
    taken = np.empty((0, 4))  # boxes in points: left, bottom, right, top
    # Layout engines shrink axes later: assume a little less space.
    points = 0.85 * 72 * min(inches(ax)) / np.ptp(ax.get_xlim())
    at = {k: positions[k] * points for k in order}
    dots = np.array([[*(at[k] - 3), *(at[k] + 3)] for k in order]).reshape(-1, 4)
    for rank, k in enumerate(order):
        (x, y), name = positions[k].tolist(), str(names[k])
        half = np.array([0.29 * SMALL * len(name) + 3, 0.62 * SMALL + 1])
        others = np.delete(dots, rank, axis=0)
        for shift in _SHIFTS:
            middle = at[k] + np.array(shift) * (half + 4)
            box = np.array([*(middle - half), *(middle + half)])
            # A box must not hide another node, and a name beside its dot must not touch one.
            if not overlaps(box, taken) and not overlaps(box, others):
                taken = np.vstack([taken, box])
                break
        else:
            _dot(ax, positions[k], k in asked)
            continue
        frame = {"boxstyle": "round,pad=0.25", "fc": _QUERY if k in asked else "white", "ec": NEUTRAL}
        frame |= {"lw": 2.0 if k in asked else 0.8 if touched[k] else 0.4}
        text = {"fontsize": SMALL, "parse_math": False, "zorder": 3, "color": "black" if touched[k] else NEUTRAL}
        text |= {"weight": "bold"} if k in asked else {}
        if shift == (0, 0):
            ax.annotate(name, (x, y), ha="center", va="center", bbox=frame, **text)
        else:
            _dot(ax, positions[k], k in asked)
            offset = 5.0 * shift[0], 5.0 * shift[1]
            align = {"ha": ("right", "center", "left")[shift[0] + 1], "va": ("top", "center", "bottom")[shift[1] + 1]}
            beside = ax.annotate(name, (x, y), offset, textcoords="offset points", **align, **text)
            beside.set_path_effects([withStroke(linewidth=2.5, foreground="white")])


# Positions of a name relative to its node, in order of preference.
_SHIFTS = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1))


def _dot(ax: Axes, position: Float[np.ndarray, " 2"], asked: bool) -> None:
    face = _QUERY if asked else "white"
    ax.plot(*position, "o", ms=5, mfc=face, mec=NEUTRAL, mew=1.5 if asked else 0.8, zorder=2)


def _draw_key(ax: Axes, weights: Float[np.ndarray, " m"], width: float, scale: str) -> None:
    """Draw a legend of widths and signs."""
    largest = float(np.abs(weights).max(initial=0.0))
    nice = [0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0]
    values = [value for value in nice if value <= largest * 1.05][-3:]
    handles = [Line2D([], [], color=NEUTRAL, lw=width * value, label=f"{value:g}") for value in values]
    if (weights > 0).any():
        handles.append(Line2D([], [], color=POSITIVE, lw=2, label="positive"))
    if (weights < 0).any():
        handles.append(Line2D([], [], color=NEGATIVE, lw=2, ls=_dashes(2), label="negative"))
    legend_below(ax, handles, label=False, handlelength=2.2, ncols=len(handles), title=scale, title_fontsize=SMALL)


def _describe(post: Posterior, chosen: EdgeSelection | np.ndarray, count: int, hidden: int) -> str:
    condition = {"λ": post.lam, "q": post.q, "T": None if post.temperature == 1 else post.temperature}
    known = ", ".join(f"{symbol} = {value:.3g}" for symbol, value in condition.items() if value is not None)
    text = f"{known or 'average over λ and q'}: {count} edge{'s' * (count != 1)}"
    if hidden:
        text += f"; {hidden} variables without one are not shown"
    return f"{text}\n{chosen.rule}" if isinstance(chosen, EdgeSelection) else text
