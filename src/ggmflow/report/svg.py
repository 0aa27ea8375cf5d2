"""The pictures of a report as SVG text, at the point where it starts; the page's script moves what is in them.

Names of variables are escaped by `escape` wherever they enter.
"""

import html
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
from jaxtyping import Float

from ggmflow.report import text as words
from ggmflow.report.content import Numbers

_WIDTH, _HEIGHT = 720, 700  # of the network
_CELL = (46, 34)  # of a map over (λ, q)
_CURVE = {"left": 58, "right": 504, "top": 14, "bottom": 204}
_LONGEST, _SHORT = 22, 12  # letters of a name in the network, and of one where there is little room
_TICK = 13  # pixels: size of the font of ticks


def escape(text: str) -> str:
    """Text for HTML, in content or in a quoted attribute; control characters that a page cannot show become �."""
    return html.escape(re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", text))


# -------------------------------------------------------------------------------------------------------------- network
def drawn(numbers: Numbers) -> list[int]:
    """Positions among the kept pairs of those that are an edge somewhere on the grid, by any of the rules."""
    ever = np.any([point.edges.any(axis=0) for point in numbers.points], axis=0)[numbers.kept]
    return np.flatnonzero(ever).tolist()


def widest(numbers: Numbers) -> float:
    """Association that has the widest line."""
    sizes = np.abs(numbers.field("association"))[:, drawn(numbers)]
    return float(sizes.max()) if sizes.size else 1.0


def network(numbers: Numbers, names: Sequence[str], query: Sequence[int], layout: Float[np.ndarray, "d 2"]) -> str:
    """Graph at the start; pairs that are edges elsewhere are there too, switched off.

    Parameters
    ----------
    numbers
        Of the report.
    names
        Of all d variables.
    query
        Positions of the query variables; all of them for a full matrix.
    layout
        Positions of all nodes.
    """
    point, blanket, pairs = numbers.selected, len(query) < len(names), drawn(numbers)
    ends = {k: (int(numbers.first[numbers.kept[k]]), int(numbers.second[numbers.kept[k]])) for k in pairs}
    shown = sorted({*query, *(node for pair in ends.values() for node in pair)} if blanket else range(len(names)))
    joined = {node for k in pairs if point.edges[0, numbers.kept[k]] for node in ends[k]}
    x, y = _place(layout, shown)
    size = 17 if len(shown) <= 16 else 14 if len(shown) <= 45 else 12.5
    top = widest(numbers)
    lines = []
    for k in sorted(pairs, key=lambda k: abs(point.values[0, numbers.kept[k]])):
        value, on = point.values[0, numbers.kept[k]], point.edges[0, numbers.kept[k]]
        a, b = ends[k]
        kind = f"edge {'negative' if value < 0 else 'positive'}{'' if on else ' off'}"
        lines.append(
            f'<line class="{kind}" data-pair="{k}" x1="{x[a]:.1f}" y1="{y[a]:.1f}" x2="{x[b]:.1f}" y2="{y[b]:.1f}" '
            f'stroke-width="{1.2 + 8.8 * min(1.0, abs(value) / top):.2f}">'
            f"<title>{escape(names[a])} – {escape(names[b])}</title></line>"
        )
    order = sorted(shown, key=lambda node: (node not in query or not blanket, node not in joined))
    labels = _labels(x, y, {node: names[node] for node in order}, size)
    dots = []
    for node in shown:
        alone, inside = node not in joined, blanket and node in query
        kind = "node" + " query" * inside + " alone" * alone + " off" * (alone and blanket and not inside)
        name, anchor, dx, dy = labels[node]
        dots.append(
            f'<g class="{kind}" data-node="{node}"><title>{escape(names[node])}</title>'
            f'<circle cx="{x[node]:.1f}" cy="{y[node]:.1f}" r="{8 if inside or size > 14 else 6}"/>'
            f'<text x="{x[node] + dx:.1f}" y="{y[node] + dy:.1f}" text-anchor="{anchor}" font-size="{size}">'
            f"{escape(name)}</text></g>"
        )
    label = f"Network of {words.count(len(shown), 'variable')} at {words.condition(numbers, *numbers.start)}"
    return (
        f'<svg id="graph" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}; the table of edges below '
        f'says the same in words">{"".join(lines)}{"".join(dots)}</svg>'
    )


def _labels(
    x: np.ndarray, y: np.ndarray, names: Mapping[int, str], size: float
) -> dict[int, tuple[str, str, float, float]]:
    """Text, anchor and shift of the name of each node, where it overlaps no other name and no node.

    Beside the node and away from the middle if there is room, else on another side or shortened, else no text at all:
    the page names a node that is pointed at. The first nodes choose first.
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
    """A name for where there is room, and for where there is little: beginning and end tell names apart."""
    long = name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
    half = _SHORT // 2
    return long, name if len(name) <= _SHORT else f"{name[: half - 1]}…{name[-half:]}"


def label_box(x: float, y: float, text: str, anchor: str, size: float) -> Float[np.ndarray, " 4"]:
    """Left, top, right and bottom of a text in pixels, by the usual width of letters.

    Parameters
    ----------
    x, y
        Where it stands: its base line, and its start, middle or end.
    text, anchor, size
        What is written; "start", "middle" or "end"; pixels of the font.
    """
    width = 0.58 * size * len(text)
    left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
    return np.array([left, y - 0.8 * size, left + width, y + 0.25 * size])


def _place(layout: Float[np.ndarray, "d 2"], shown: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Pixels of all nodes such that those shown fill the frame."""
    low, high = layout[shown].min(axis=0), layout[shown].max(axis=0)
    size = np.where(high - low > 1e-9, high - low, 1.0)
    unit = np.where(high - low > 1e-9, (layout - low) / size, 0.5)
    margin = np.array([112, 34])
    x, y = (margin + unit * (np.array([_WIDTH, _HEIGHT]) - 2 * margin)).T
    y = _HEIGHT - y
    # Labels are wide and low: nodes side by side that are nearer than a label move up and down.
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
def grid_map(numbers: Numbers, cell: Callable[[int, int], tuple[str, str, str]], label: str) -> str:
    """A rectangle for each point, λ to the right and q upwards.

    Parameters
    ----------
    numbers
        Of the report.
    cell
        Class, text and description of the point of the i-th λ and the j-th q.
    label
        What a screen reader says.
    """
    k, m, (w, h), left = len(numbers.lam), len(numbers.q), _CELL, 68  # room for "0.447" beside q
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
    x, y = left + numbers.start[0] * w, (m - 1 - numbers.start[1]) * h + 4
    out.append(f'<rect class="cursor" x="{x}" y="{y}" width="{w}" height="{h}"/>')
    out += _ticks_below([left + (i + 0.5) * w for i in range(k)], m * h + 19, numbers.lam)
    for j, value in enumerate(numbers.q):
        out.append(_tick(left - 6, (m - 0.5 - j) * h + 8, words.number(value), "end"))
    width, height = left + k * w + 4, m * h + 42
    out.append(_title(left + k * w / 2, height - 4, "shrinkage λ"))
    out.append(_title(12, m * h / 2 + 4, "q"))
    return (
        f'<svg viewBox="0 0 {width} {height}" style="max-width:{int(1.15 * width)}px" role="img" '
        f'aria-label="{escape(label)}">{"".join(out)}</svg>'
    )


def _ticks_below(positions: Sequence[float], y: float, values: Float[np.ndarray, " k"]) -> list[str]:
    """Numbers below an axis, without those that would run into the one before."""
    out, end = [], -np.inf
    for x, value in zip(positions, values, strict=True):
        left, _, right, _ = label_box(x, y, words.number(value), "middle", _TICK)
        if left >= end + 5:
            out.append(_tick(x, y, words.number(value), "middle"))
            end = right
    return out


def _tick(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _title(x: float, y: float, text: str) -> str:
    return f'<text class="axis-title" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{text}</text>'


# --------------------------------------------------------------------------------------------------------------- curves
def frame(axis: Float[np.ndarray, " k"], low: float, high: float, logarithmic: bool) -> dict:
    """Where a curve along an axis is drawn: pixels of the points, range of the values."""
    at = np.log(axis) if logarithmic else axis
    share = (at - at[0]) / (at[-1] - at[0])
    x = _CURVE["left"] + share * (_CURVE["right"] - _CURVE["left"])
    return {"x": x.round(1).tolist(), "low": low, "high": high, "top": _CURVE["top"], "bottom": _CURVE["bottom"]}


def curve(
    name: str,
    box: dict,
    numbers: Numbers,
    line: Float[np.ndarray, " k"],
    band: tuple[np.ndarray, np.ndarray] | None = None,
    *,
    ylabel: str,
    label: str,
) -> str:
    """A line along λ (along q where λ is one number) with, perhaps, a band around it, and a mark at the start.

    The page's script moves all of them.

    Parameters
    ----------
    name
        Of the element.
    box
        From `frame`.
    numbers
        Of the report.
    line, band
        Values; lower and upper ones.
    ylabel, label
        Text beside the axis; what a screen reader says.
    """
    low, high, top, bottom = (box[key] for key in ("low", "high", "top", "bottom"))
    x, along_lam = box["x"], len(numbers.lam) > 1
    axis, at = (numbers.lam, numbers.start[0]) if along_lam else (numbers.q, numbers.start[1])

    def y(values: np.ndarray) -> np.ndarray:
        return bottom + (np.clip(values, low, high) - low) / (high - low) * (top - bottom)

    def path(xs: Sequence[float], ys: np.ndarray) -> str:
        return "M" + "L".join(f"{a} {b:.1f}" for a, b in zip(xs, ys, strict=True))

    out = [f'<line class="axis" x1="{x[0]}" y1="{bottom}" x2="{x[-1]}" y2="{bottom}"/>']
    out.append(f'<line class="axis" x1="{x[0]}" y1="{top}" x2="{x[0]}" y2="{bottom}"/>')
    for value in np.linspace(low, high, 5):
        text = f"{value:.2g}".replace("-", "−") if abs(value) > 1e-9 else "0"
        out.append(_tick(x[0] - 7, float(y(value)) + 4, text, "end"))
    out += _ticks_below(x, bottom + 18, axis)
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
    out.append(_title((x[0] + x[-1]) / 2, bottom + 37, "shrinkage λ" if along_lam else "exponent q"))
    middle = (top + bottom) / 2
    out.append(
        f'<text class="axis-title" x="13" y="{middle}" text-anchor="middle" '
        f'transform="rotate(-90 13 {middle})">{ylabel}</text>'
    )
    return (
        f'<svg id="{name}" viewBox="0 0 520 246" style="max-width:620px" role="img" aria-label="{escape(label)}">'
        f"{''.join(out)}</svg>"
    )
