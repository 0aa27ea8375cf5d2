"""Drawings of a report as SVG text, at the point that the page shows first; the script of the page updates them.

Names of variables are escaped by `escape` wherever they are inserted.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ggmflow.report.content import Content
from ggmflow.report.text import SYMBOLS, VERDICTS, condition, count, evidence, number, printable, step, trust

_WIDTH, _HEIGHT = 720, 700  # of the network
_CELL = (46, 34)  # of a map over (λ, q)
_CURVE = {"left": 58, "right": 504, "top": 14, "bottom": 204}
_LONGEST, _SHORT = 22, 12  # letters of a name in the network, and of a shortened name
_TICK = 13  # pixels: font size of ticks


def escape(text: str) -> str:
    """Escape text for HTML, in content or in a quoted attribute; control characters become �."""
    return html.escape(printable(text))


# -------------------------------------------------------------------------------------------------------------- network
def network(content: Content, layout: Float[np.ndarray, "d 2"]) -> str:
    """Return the graph at the start; pairs that are edges only elsewhere are included but hidden.

    Parameters
    ----------
    content
        Content of the report.
    layout
        Positions of all variables.
    """
    ends = {k: (int(content.first[content.kept[k]]), int(content.second[content.kept[k]])) for k in content.drawn}
    nodes = range(len(content.names))
    if content.is_blanket:
        nodes = sorted({*content.query.tolist(), *(node for pair in ends.values() for node in pair)})
    x, y = _place(layout, list(nodes))
    label = f"Network of {count(len(nodes), 'variable')} at {condition(content, *content.start)}"
    return (
        f'<svg id="graph" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}; the table of edges below '
        f'says the same in words">{_lines(content, ends, x, y)}{_nodes(content, ends, nodes, x, y)}</svg>'
    )


def _lines(content: Content, ends: Mapping[int, tuple[int, int]], x: np.ndarray, y: np.ndarray) -> str:
    """Lines between the two ends of each drawn pair, the strongest on top."""
    values, edges = (each[0, content.kept] for each in (content.selected.values, content.selected.edges))
    widest, out = content.widest, []
    for k in sorted(ends, key=lambda k: abs(values[k])):
        a, b = ends[k]
        kind = f"edge {'negative' if values[k] < 0 else 'positive'}{'' if edges[k] else ' off'}"
        out.append(
            f'<line class="{kind}" data-pair="{k}" x1="{x[a]:.1f}" y1="{y[a]:.1f}" x2="{x[b]:.1f}" y2="{y[b]:.1f}" '
            f'stroke-width="{1.2 + 8.8 * min(1.0, abs(values[k]) / widest):.2f}">'
            f"<title>{escape(content.names[a])} – {escape(content.names[b])}</title></line>"
        )
    return "".join(out)


def _nodes(
    content: Content, ends: Mapping[int, tuple[int, int]], nodes: Sequence[int], x: np.ndarray, y: np.ndarray
) -> str:
    """Circles with names; a node outside the query that has no edge is hidden."""
    joined = {node for k, pair in ends.items() if content.selected.edges[0, content.kept[k]] for node in pair}
    in_query = {node for node in content.query.tolist() if content.is_blanket}
    size = 17 if len(nodes) <= 16 else 14 if len(nodes) <= 45 else 12.5
    order = sorted(nodes, key=lambda node: (node not in in_query, node not in joined))
    labels = _labels(x, y, {node: content.names[node] for node in order}, size)
    out = []
    for node in nodes:
        alone, inside = node not in joined, node in in_query
        kind = "node" + " query" * inside + " alone" * alone + " off" * (alone and content.is_blanket and not inside)
        name, anchor, dx, dy = labels[node]
        out.append(
            f'<g class="{kind}" data-node="{node}"><title>{escape(content.names[node])}</title>'
            f'<circle cx="{x[node]:.1f}" cy="{y[node]:.1f}" r="{8 if inside or size > 14 else 6}"/>'
            f'<text x="{x[node] + dx:.1f}" y="{y[node] + dy:.1f}" text-anchor="{anchor}" font-size="{size}">'
            f"{escape(name)}</text></g>"
        )
    return "".join(out)


def _labels(
    x: np.ndarray, y: np.ndarray, names: Mapping[int, str], size: float
) -> dict[int, tuple[str, str, float, float]]:
    """Text, anchor and shift of the name of each node, such that it overlaps no other name and no node.

    A name is beside its node and away from the middle if it fits there, else on another side or shortened. If it fits
    nowhere, the text is empty: the page shows the name when the pointer is over the node. Nodes are processed in order.
    """
    nodes = np.array([[x[k] - 8, y[k] - 8, x[k] + 8, y[k] + 8] for k in names])
    taken, out = np.empty((0, 4)), {}
    for rank, (node, name) in enumerate(names.items()):
        others = np.vstack([taken, np.delete(nodes, rank, axis=0)])
        out[node] = "", "start", 11.0, 5.0
        sides = [("start", 11.0, 5.0), ("end", -11.0, 5.0)]
        sides = sides if x[node] > _WIDTH / 2 else sides[::-1]
        sides += [("middle", 0.0, -13.0), ("middle", 0.0, 10 + size)]
        if abs(x[node] - _WIDTH / 2) < 0.04 * _WIDTH:
            sides = [sides[2], *sides[:2], sides[3]]
        for text, (anchor, dx, dy) in product(dict.fromkeys(_shortened(name)), sides):
            box = label_box(x[node] + dx, y[node] + dy, text, anchor, size)
            inside = box[0] >= 0 and box[1] >= 0 and box[2] <= _WIDTH and box[3] <= _HEIGHT
            if inside and not np.any(np.all(box[:2] < others[:, 2:], axis=1) & np.all(others[:, :2] < box[2:], axis=1)):
                taken, out[node] = np.vstack([taken, box]), (text, anchor, dx, dy)
                break
    return out


def _shortened(name: str) -> tuple[str, str]:
    """A long and a short form of a name; the short form keeps beginning and end, which distinguish names."""
    long = name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
    half = _SHORT // 2
    return long, name if len(name) <= _SHORT else f"{name[: half - 1]}…{name[-half:]}"


def label_box(x: float, y: float, text: str, anchor: str, size: float) -> Float[np.ndarray, " 4"]:
    """Return left, top, right and bottom of a text in pixels, estimated from the average width of letters.

    Parameters
    ----------
    x, y
        Position of its start, middle or end, and of its base line.
    text
        The text.
    anchor : {"start", "middle", "end"}
        The part of the text that is at `x`.
    size
        Font size in pixels.
    """
    width = 0.58 * size * len(text)
    left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
    return np.array([left, y - 0.8 * size, left + width, y + 0.25 * size])


def _place(layout: Float[np.ndarray, "d 2"], shown: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Positions of all nodes in pixels, such that the shown nodes fill the drawing."""
    low, high = layout[shown].min(axis=0), layout[shown].max(axis=0)
    size = np.where(high - low > 1e-9, high - low, 1.0)
    unit = np.where(high - low > 1e-9, (layout - low) / size, 0.5)
    margin = np.array([112, 34])
    x, y = (margin + unit * (np.array([_WIDTH, _HEIGHT]) - 2 * margin)).T
    y = _HEIGHT - y
    # Labels are wide and low: of two nodes that are closer than a label, one moves up and the other down.
    for _ in range(50):
        across, down = x[shown][:, None] - x[shown], y[shown][:, None] - y[shown]
        down = np.where(down == 0, np.sign(np.subtract.outer(shown, shown)) * 1e-3, down)
        near = (np.abs(across) < 90) & (np.abs(down) < 24) & (down != 0)
        if not near.any():
            break
        y[shown] += np.sum(np.where(near, np.sign(down) * (24 - np.abs(down)) / 4, 0.0), axis=1).clip(-6, 6)
        y = y.clip(20, _HEIGHT - 14)
    return x, y


# ------------------------------------------------------------------------------------------------- maps over (λ, q)
def grid_map(content: Content, cell: Callable[[int, int], tuple[str, str, str]], label: str) -> str:
    """Return a map with a rectangle for each point: λ increases to the right, q upwards.

    Parameters
    ----------
    content
        Content of the report.
    cell
        Class, text and description of the point of the i-th λ and the j-th q.
    label
        Description for screen readers.
    """
    k, m, (w, h), left = len(content.lam), len(content.q), _CELL, 68  # wide enough for "0.447" beside q
    out = []
    for i in range(k):
        for j in range(m):
            kind, text, description = cell(i, j)
            x, y = left + i * w, (m - 1 - j) * h + 4
            out.append(
                f'<g class="cell {kind}" data-i="{i}" data-j="{j}"><title>{escape(description)}</title>'
                f'<rect x="{x}" y="{y}" width="{w}" height="{h}"/>'
                f'<text x="{x + w / 2}" y="{y + h / 2 + 4}">{escape(text)}</text></g>'
            )
    x, y = left + content.start[0] * w, (m - 1 - content.start[1]) * h + 4
    out.append(f'<rect class="cursor" x="{x}" y="{y}" width="{w}" height="{h}"/>')
    out += _ticks_below([left + (i + 0.5) * w for i in range(k)], m * h + 19, content.lam)
    for j, value in enumerate(content.q):
        out.append(_tick(left - 6, (m - 0.5 - j) * h + 8, number(value), "end"))
    width, height = left + k * w + 4, m * h + 42
    out.append(_title(left + k * w / 2, height - 4, "shrinkage λ"))
    out.append(_title(12, m * h / 2 + 4, "q"))
    return (
        f'<svg viewBox="0 0 {width} {height}" style="max-width:{int(1.15 * width)}px" role="img" '
        f'aria-label="{escape(label)}">{"".join(out)}</svg>'
    )


def evidence_map(content: Content) -> str:
    """Return the map of log evidence below the best; empty if it is unknown or the grid is a line."""
    below = content.below_best()
    if below is None or min(below.shape) < 2:
        return ""

    def cell(i: int, j: int) -> tuple[str, str, str]:
        value = float(below[i, j])
        if not np.isfinite(value):
            text = "?"
        elif value > -0.005:
            text = "★"
        else:
            text = f"−{-value:.{int(value > -9.95)}f}" if value > -999.5 else "≪"
        kind = f"e{step(value)}{' best' if value > -0.005 else ''}"
        return kind, text, f"{condition(content, i, j)}: {evidence(value)}"

    return grid_map(content, cell, "Evidence of every λ and q of the grid, below the best")


def trust_map(content: Content) -> str:
    """Return the map of effective draws; empty for a single point."""
    if len(content.points) == 1:
        return ""

    def cell(i: int, j: int) -> tuple[str, str, str]:
        point = content.at(i, j)
        description = f"{condition(content, i, j)}: {VERDICTS[point.verdict]}. {trust(point, content)}"
        return point.verdict, f"{point.ess * content.num_draws:.0f}", description

    return grid_map(content, cell, "Effective draws at every point of the grid")


def _ticks_below(positions: Sequence[float], y: float, values: Float[np.ndarray, " k"]) -> list[str]:
    """Numbers below an axis, without those that would overlap the one before."""
    out, end = [], -np.inf
    for x, value in zip(positions, values, strict=True):
        left, _, right, _ = label_box(x, y, number(value), "middle", _TICK)
        if left >= end + 5:
            out.append(_tick(x, y, number(value), "middle"))
            end = right
    return out


def _tick(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _title(x: float, y: float, text: str) -> str:
    return f'<text class="axis-title" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{text}</text>'


# --------------------------------------------------------------------------------------------------------------- curves
class Frame(NamedTuple):
    """Coordinates of a curve: pixels of its points, range of its values, pixels of that range.

    Attributes
    ----------
    x : list of float
        Pixels of the values of the axis.
    low, high : float
        Range of the values.
    top, bottom : float
        Pixels of `high` and `low`.
    """

    x: list[float]
    low: float
    high: float
    top: float = _CURVE["top"]
    bottom: float = _CURVE["bottom"]


def frames(content: Content) -> dict[str, Frame]:
    """Return the frame of each curve that can be drawn, by the name of its element."""
    if len(content.axis) == 1:
        return {}
    at = np.log(content.axis) if content.along == "lam" else content.axis
    share = (at - at[0]) / (at[-1] - at[0])
    x = (_CURVE["left"] + share * (_CURVE["right"] - _CURVE["left"])).round(1).tolist()
    out, below = {"pair-curve": Frame(x, -content.limit, content.limit)}, content.below_best()
    if below is not None:
        deepest = -float(below[np.isfinite(below)].min())
        out["evidence-curve"] = Frame(x, -float(np.clip(np.ceil(deepest), 2, 20)), 0.0)
    return out


def pair_curve(content: Content) -> str:
    """Return the association of one pair along the axis with its interval; empty if there is nothing to draw."""
    frame, k = frames(content).get("pair-curve"), content.first_curve
    if frame is None or k is None:
        return ""
    line, low, high = (content.through_start(content.field(name)[:, k]) for name in ("association", "lower", "upper"))
    label = f"Association of the chosen pair and its 90 % interval along {SYMBOLS[content.along]}"
    return curve("pair-curve", frame, content, line, (low, high), ylabel="association", label=label)


def evidence_curve(content: Content) -> str:
    """Return log evidence below the best along the axis; empty if there is nothing to draw."""
    frame, below = frames(content).get("evidence-curve"), content.below_best()
    if frame is None or below is None:
        return ""
    line = content.through_start(np.where(np.isfinite(below), below, frame.low))
    label = f"Evidence along {SYMBOLS[content.along]}"
    return curve("evidence-curve", frame, content, line, ylabel="log evidence below the best", label=label)


def curve(
    name: str,
    frame: Frame,
    content: Content,
    line: Float[np.ndarray, " n"],
    band: tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]] | None = None,
    *,
    ylabel: str,
    label: str,
) -> str:
    """Return a line along λ (along q if λ has a single value), an optional band, and a mark at the start.

    The script of the page moves all of them.

    Parameters
    ----------
    name
        Identifier of the element.
    frame
        Coordinates.
    content
        Content of the report.
    line, band
        Values of the line; lower and upper values of the band.
    ylabel
        Text beside the vertical axis.
    label
        Description for screen readers.
    """
    x, low, high, top, bottom = frame
    at = content.start[0 if content.along == "lam" else 1]

    def y(values: np.ndarray) -> np.ndarray:
        return bottom + (np.clip(values, low, high) - low) / (high - low) * (top - bottom)

    def path(xs: Sequence[float], ys: np.ndarray) -> str:
        return "M" + "L".join(f"{a} {b:.1f}" for a, b in zip(xs, ys, strict=True))

    out = [f'<line class="axis" x1="{x[0]}" y1="{bottom}" x2="{x[-1]}" y2="{bottom}"/>']
    out.append(f'<line class="axis" x1="{x[0]}" y1="{top}" x2="{x[0]}" y2="{bottom}"/>')
    for value in np.linspace(low, high, 5):
        text = f"{value:.2g}".replace("-", "−") if abs(value) > 1e-9 else "0"
        out.append(_tick(x[0] - 7, float(y(value)) + 4, text, "end"))
    out += _ticks_below(x, bottom + 18, content.axis)
    if low < 0 < high:
        zero = float(y(np.array(0.0)))
        out.append(f'<line class="zero" x1="{x[0]}" y1="{zero:.1f}" x2="{x[-1]}" y2="{zero:.1f}"/>')
    if band is not None:
        lower, upper = y(band[0]), y(band[1])
        out.append(f'<path class="band" d="{path([*x, *x[::-1]], np.concatenate([lower, upper[::-1]]))}Z"/>')
    ys = y(line)
    out.append(f'<path class="line {"mean" if band is not None else "curve"}" d="{path(x, ys)}"/>')
    out.append(f'<line class="now" x1="{x[at]}" y1="{top}" x2="{x[at]}" y2="{bottom}"/>')
    out.append(f'<circle class="now" cx="{x[at]}" cy="{ys[at]:.1f}" r="5"/>')
    out.append(_title((x[0] + x[-1]) / 2, bottom + 37, "shrinkage λ" if content.along == "lam" else "exponent q"))
    middle = (top + bottom) / 2
    out.append(
        f'<text class="axis-title" x="13" y="{middle}" text-anchor="middle" '
        f'transform="rotate(-90 13 {middle})">{ylabel}</text>'
    )
    return (
        f'<svg id="{name}" viewBox="0 0 520 246" style="max-width:620px" role="img" aria-label="{escape(label)}">'
        f"{''.join(out)}</svg>"
    )
