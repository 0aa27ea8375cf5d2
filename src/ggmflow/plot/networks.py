"""Networks: an edge is as wide as its association is strong, solid and blue if positive, dashed and orange if negative.

Positions come from `network_layout`, once, so that graphs at different λ and q can be laid side by side.
"""

from collections.abc import Sequence

import networkx as nx
import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path

from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.model.precision import partial_correlation
from ggmflow.plot.pairs import ask, joined_pairs, scale_name
from ggmflow.plot.style import NEGATIVE, NEUTRAL, POSITIVE, SMALL, inches, legend_below, new_axes, overlaps, set_title
from ggmflow.posterior.edges import EdgeSelection
from ggmflow.posterior.posterior import Posterior
from ggmflow.views import pairs as views

_QUERY = "#fff3bf"  # behind the names of query variables, whose frame is thicker too
_FEW = 40  # up to so many variables, those without an edge are drawn
_CIRCLE = 12  # up to so many variables, a circle is clearer than anything else
_STRETCH = 1.8  # at most, of the shorter side of a graph
_FAR = 2.0  # length of a link that is no edge, beside 1 for an edge


def network(
    precision: Posterior | Float[np.ndarray, "d d"],
    edges: EdgeSelection | Bool[np.ndarray, "s d"] | None = None,
    names: Sequence[str] | None = None,
    *,
    rule: str = "f1",
    highlight: Bool[np.ndarray, "s d"] | None = None,
    positions: Float[np.ndarray, "d 2"] | None = None,
    isolated: bool | None = None,
    width: float = 10.0,
    key: bool | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Graph of a posterior, or of one precision matrix: width is the size of an association, colour its sign.

    Parameters
    ----------
    precision
        A posterior, or Ω.
    edges
        Which pairs to join: what `select_edges` gave, or an array of bool whose diagonal does not count. Default: by
        `rule`, if there is a posterior.
    names
        Node labels; default those of the posterior.
    rule
        One of those of `Posterior.select_edges`.
    highlight
        Pairs to draw as usual; the other edges are dotted. Default: all.
    positions
        Node positions, from `network_layout` or `layout`, so that several graphs can be compared.
    isolated
        Whether to draw variables without an edge; default up to 40 of them. Query variables always are; of the
        others next to a query only those with an edge.
    width
        Points of an association of 1; others in proportion.
    key
        Whether to explain widths and signs below; default for a posterior.
    title
        Default: the condition, how many edges there are, and by which rule.
    ax
        Axes to draw on.

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
    positions = layout(joined) if positions is None else positions
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
        words = "partial correlation" if post is None else scale_name("association", post)
        _explain(ax, strength[pairs[:, 0], pairs[:, 1]], width, words)
    hidden = int(len(names) - shown.sum())
    set_title(ax, title or ("" if post is None else _describe(post, chosen, len(pairs), hidden)))
    return ax


def network_layout(
    source: Posterior | GraphicalFlow, edges: EdgeSelection | Bool[np.ndarray, "s d"] | str = "f1"
) -> Float[np.ndarray, "d 2"]:
    """Positions of all variables, to be used for every λ and q: the same for the same posterior.

    Variables with an edge are placed so that distances on paper are like those in the graph (Kamada and Kawai); the
    strongest associations hold its parts together. Those without one stand on a ring around, near the variable that
    they are most associated with: at another λ they may have an edge.

    Parameters
    ----------
    source
        A posterior at a condition of reference; of a model, that in the middle of its ranges.
    edges
        Of the reference: a rule of `Posterior.select_edges`, what that gave, or an array of bool.

    Returns
    -------
    (d, 2) array
        Within the unit disc.
    """

    def place(post: Posterior) -> Float[np.ndarray, "d 2"]:
        chosen = post.select_edges(edges) if isinstance(edges, str) else edges
        joined = np.asarray(chosen.edges if isinstance(chosen, EdgeSelection) else chosen, bool)
        return _place(_square(joined, post.query) > 0, _square(np.abs(post.association()), post.query))

    if isinstance(source, GraphicalFlow):
        return ask(source, [views.middle(source)], place, 1000)[0]
    return place(source)


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
    return _circle(order)


def _circle(order: Int[np.ndarray, " d"]) -> Float[np.ndarray, "d 2"]:
    """Position of each, if they stand on the unit circle in this order."""
    angle = np.empty(len(order))
    angle[order] = np.linspace(0, 2 * np.pi, len(order), endpoint=False)
    return np.column_stack([np.sin(angle), np.cos(angle)])


def _square(values: np.ndarray, query: Int[np.ndarray, " s"]) -> Float[np.ndarray, "d d"]:
    """A query's rows as a symmetric matrix with zeros elsewhere and on the diagonal."""
    out = np.zeros((values.shape[1],) * 2)
    out[query] = values
    np.fill_diagonal(out, 0)
    return np.maximum(out, out.T)


def _place(joined: Bool[np.ndarray, "d d"], strength: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d 2"]:
    core = np.flatnonzero(joined.any(axis=0))
    if len(joined) <= _CIRCLE or len(core) < 3:  # little to arrange: a circle, associated variables side by side
        tree = minimum_spanning_tree(_far_if_weak(strength)).toarray()
        return layout((tree + tree.T) > 0)
    out = np.empty((len(joined), 2))
    inner = joined[np.ix_(core, core)]
    tree = minimum_spanning_tree(_far_if_weak(strength[np.ix_(core, core)])).toarray()
    length = np.where(inner, 1.0, np.where((tree + tree.T) > 0, _FAR, np.inf))
    distance = shortest_path(length, directed=False)
    start = _scaling(distance)
    graph = nx.from_numpy_array(inner.astype(int))
    table = {i: dict(enumerate(row)) for i, row in enumerate(distance.tolist())}
    found = nx.kamada_kawai_layout(graph, dist=table, pos=dict(enumerate(start)))
    place = np.array([found[k] for k in range(len(core))])
    place -= (place.max(axis=0) + place.min(axis=0)) / 2
    spread = np.ptp(place, axis=0)
    # Else a long graph leaves most of the page empty.
    place *= np.minimum(spread.max() / np.maximum(spread, 1e-9), _STRETCH)
    rest = np.setdiff1d(np.arange(len(joined)), core)
    reach = np.linalg.norm(place, axis=1).max() * (1.2 if rest.size else 1.0)
    out[core] = place / reach
    if rest.size:
        friend = core[np.argmax(strength[np.ix_(rest, core)], axis=1)]
        wish = np.arctan2(out[friend, 0], out[friend, 1])
        order = np.argsort(wish, kind="stable")
        # As even as a circle, turned to where most are near the variable they belong to.
        even = np.linspace(0, 2 * np.pi, rest.size, endpoint=False)
        turn = np.angle(np.mean(np.exp(1j * (wish[order] - even))))
        angle = np.empty(rest.size)
        angle[order] = even + turn
        out[rest] = np.column_stack([np.sin(angle), np.cos(angle)])
    return out


def _far_if_weak(strength: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d d"]:
    """Lengths for a spanning tree of the strongest links; never 0, which would be no link."""
    return 1 + strength.max(initial=0.0) - strength + 1e-9


def _scaling(distance: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "m 2"]:
    """Classical scaling: a start that leaves few knots. Signs are fixed, so that it is the same everywhere."""
    centred = -0.5 * distance**2
    centred = centred - centred.mean(axis=0) - centred.mean(axis=1)[:, None] + centred.mean()
    values, vectors = np.linalg.eigh(centred)
    place = vectors[:, -2:][:, ::-1] * np.sqrt(np.maximum(values[-2:][::-1], 1e-9))
    place *= np.sign(place[np.abs(place).argmax(axis=0), [0, 1]])
    # Leaves of the same node coincide otherwise, and could never be told apart.
    return place + 1e-3 * _circle(np.arange(len(place)))


def _dashes(lw: float) -> tuple[float, tuple[float, float]]:
    """Dashes, in units of the width as matplotlib wants them: thin lines need longer ones to be seen."""
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
    """Names in boxes where they fit, beside a dot where they do not, a dot alone where there is no room at all.

    Query variables come first, then those with the strongest associations.
    """
    asked = set(query.tolist())
    order = sorted(shown.tolist(), key=lambda k: (k not in asked, -touched[k]))
    taken = np.empty((0, 4))  # boxes in points: left, bottom, right, top
    # Layout engines shrink axes later: reckon with a little less than there is.
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
            # A box may not hide another node; a name beside its dot may not touch one.
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


# Where a name may stand: on its node, then around it.
_SHIFTS = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1))


def _dot(ax: Axes, position: Float[np.ndarray, " 2"], asked: bool) -> None:
    face = _QUERY if asked else "white"
    ax.plot(*position, "o", ms=5, mfc=face, mec=NEUTRAL, mew=1.5 if asked else 0.8, zorder=2)


def _explain(ax: Axes, weights: Float[np.ndarray, " m"], width: float, words: str) -> None:
    """A scale of widths and what dashes mean."""
    largest = float(np.abs(weights).max(initial=0.0))
    nice = [0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0]
    values = [value for value in nice if value <= largest * 1.05][-3:]
    handles = [Line2D([], [], color=NEUTRAL, lw=width * value, label=f"{value:g}") for value in values]
    if (weights > 0).any():
        handles.append(Line2D([], [], color=POSITIVE, lw=2, label="positive"))
    if (weights < 0).any():
        handles.append(Line2D([], [], color=NEGATIVE, lw=2, ls=_dashes(2), label="negative"))
    legend_below(ax, handles, label=False, handlelength=2.2, ncols=len(handles), title=words, title_fontsize=SMALL)


def _describe(post: Posterior, chosen: EdgeSelection | np.ndarray, count: int, hidden: int) -> str:
    condition = {"λ": post.lam, "q": post.q, "T": None if post.temperature == 1 else post.temperature}
    known = ", ".join(f"{symbol} = {value:.3g}" for symbol, value in condition.items() if value is not None)
    text = f"{known or 'average over λ and q'}: {count} edge{'s' * (count != 1)}"
    if hidden:
        text += f"; {hidden} variables without one are not shown"
    return f"{text}\n{chosen.rule}" if isinstance(chosen, EdgeSelection) else text
