"""What the explorer draws: network, plane of (λ, q), edges along λ, intervals, the posterior of one pair, a table.

Each panel is a Bokeh figure or table with data sources, and a method that says what they show of a view. Names of
variables are untrusted: they are drawn as glyphs of text and plain tooltips, none of which Bokeh reads as HTML or TeX,
escaped in cells of the table, and nowhere else.
"""

# Bokeh's and pandas' own annotations are narrower than what both accept.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import html
from collections.abc import Sequence

import numpy as np
from bokeh.model import Model
from bokeh.models import (
    BasicTickFormatter,
    ColumnDataSource,
    CustomJS,
    CustomJSTickFormatter,
    Div,
    FixedTicker,
    HoverTool,
    Range1d,
    Span,
    TapTool,
)
from bokeh.plotting import figure
from jaxtyping import Float, Int
from scipy.interpolate import pchip_interpolate

from ggmflow.explorer.changes import Changes
from ggmflow.explorer.geometry import brief, histogram_ends, lam_ticks, short, sides
from ggmflow.views.pairs import Density, View
from ggmflow.views.surface import Surface

COLUMNS = {"row": "variable", "column": "variable", "association": "assoc.", "lower": "lower", "upper": "upper"}
COLUMNS |= {"shown": "P(edge)"}
POSITIVE, NEGATIVE, INK, FAINT, QUERY, ACCENT = "#2166ac", "#d95f02", "#22303c", "#8a97a3", "#fff3c4", "#b5179e"
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
MANY = 60  # nodes whose names fit beside each other
_FEW = 15  # nodes that leave room for long names
_PIXELS = np.array([560.0, 500.0])  # of the network on a usual screen, across and up
_DROPS = [0, 0.5, 1, 2, 5, 10, 20, 50, 100, 1e6]  # of log evidence below its top
_BLUES = ["#08306b", "#08519c", "#2171b5", "#4292c6", "#6baed6", "#9ecae1", "#c6dbef", "#deebf7", "#f7fbff"]

_TABLE = f"""
    :host {{ font: 12.5px {FONT}; color: {INK}; }}
    :host > div {{ width: 100%; }}
    table {{ border-collapse: collapse; table-layout: fixed; width: 100%; font-variant-numeric: tabular-nums; }}
    th {{ position: sticky; top: 0; background: #ffffff; box-shadow: inset 0 -1px {FAINT}; font-weight: 500; }}
    th {{ cursor: pointer; white-space: nowrap; user-select: none; }}
    th, td {{ padding: 4px 4px; text-align: left; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }}
    th:nth-child(n+3), td:nth-child(n+3) {{ text-align: right; width: 55px; }}
    th:nth-child(3), th:nth-child(6) {{ width: 66px; }}
    tbody tr {{ cursor: pointer; }}
    tbody tr:nth-child(even) {{ background: #f1f3f5; }}
    tbody tr:hover {{ background: #e4eaf1; }}
    tbody tr.on {{ background: {QUERY}; }}
    """
# What is clicked is told to the server as data of a source.
LISTEN_TO_TABLE = """
cb_context.index.find_one_by_id(table.id).shadow_el.addEventListener("click", (event) => {
  const pair = event.target.closest("tr[data-pair]")?.dataset.pair
  const column = event.target.closest("th[data-column]")?.dataset.column
  if (pair == null && column == null) return
  const count = (clicks.data.count[0] ?? 0) + 1
  clicks.data = {pair: [pair == null ? -1 : Number(pair)], column: [column ?? ""], count: [count]}
})
"""

# A click on a node hits the edges that end in it, too. This runs once for each of the two that was hit, after both know
# what of them is selected; only the page can tell that it was one click.
_PICK = """
const kind = cb_data.source === nodes ? "node" : "pair"
if (kind == "pair" && nodes.selected.indices.length > 0) return
const [k] = cb_data.source.selected.indices
if (k == null) return
picks.data = {kind: [kind], which: [cb_data.source.get_column(kind)[k]], count: [(picks.data.count[0] ?? 0) + 1]}
"""


def colours(association: Sequence[float] | np.ndarray) -> list[str]:
    """Blue for positive, orange for negative."""
    return [POSITIVE if value > 0 else NEGATIVE for value in association]


class Network:
    """Nodes that stay where they are; width of an edge is its association, colour and dashes its sign."""

    def __init__(self, names: tuple[str, ...], query: Int[np.ndarray, " s"], positions: Float[np.ndarray, "d 2"]):
        self.names, self.positions, self.brief = names, positions, brief(names)
        self.query = np.isin(np.arange(len(names)), query)
        self.all_shown = len(query) == len(names)
        self.nodes, self.edges, self.marked = (ColumnDataSource() for _ in range(3))
        self.picks = ColumnDataSource({"kind": [], "which": [], "count": []})
        low, high = positions.min(axis=0), positions.max(axis=0)
        # Across, half of the longest label.
        margin = np.array([max(0.14, 0.0125 * max(len(short(name)) for name in names)), 0.14])
        (x_low, y_low), (x_high, y_high) = (low - margin).tolist(), (high + margin).tolist()
        self.pixels = _PIXELS / (high - low + 2 * margin)  # of a unit
        self.figure = plot = figure(
            x_range=Range1d(x_low, x_high, bounds=None),
            y_range=Range1d(y_low, y_high, bounds=None),
            tools="pan,wheel_zoom,reset",
            active_drag="pan",
            toolbar_location="right",
            sizing_mode="stretch_both",
            min_height=440,
            name="network",
        )
        _plain(plot)
        plot.axis.visible = False
        plot.grid.visible = False
        plot.toolbar.update(logo=None, autohide=True)
        ends = {"x0": "x0", "y0": "y0", "x1": "x1", "y1": "y1"}
        plot.segment(
            **ends, source=self.marked, line_width="width", line_color=ACCENT, line_alpha=0.3, line_cap="round"
        )
        edges = plot.segment(
            **ends,
            source=self.edges,
            line_width="width",
            line_color="colour",
            line_dash="dash",
            line_alpha=0.85,
            nonselection_alpha=0.85,
        )
        nodes = plot.scatter(
            "x",
            "y",
            source=self.nodes,
            size="size",
            fill_color="fill",
            line_color="line",
            line_width="line_width",
            alpha="alpha",
            nonselection_alpha="alpha",
        )
        texts = {
            "text_align": "center",
            "text_baseline": "middle",
            "text_font": {"value": FONT},
            "text_font_size": "12px",
        }
        texts |= {"text": "label", "y_offset": "offset", "text_font_style": "style", "text_alpha": "alpha"}
        texts |= {"nonselection_text_alpha": "alpha"}
        # White below black: an outline of the text itself would be painted over it.
        for colour, outline in (("white", "white"), (INK, None)):
            plot.text("x", "y", source=self.nodes, text_color=colour, text_outline_color=outline, **texts)
        plot.add_tools(
            HoverTool(renderers=[nodes], tooltips=[("variable", "@name"), ("edges", "@degree")]),
            HoverTool(
                renderers=[edges],
                line_policy="interp",
                limit=1,  # where edges meet, one of them
                tooltips=[
                    ("pair", "@row – @column"),
                    ("association", "@association{+0.000}"),
                    ("lower … upper", "@lower{+0.000} … @upper{+0.000}"),
                ],
            ),
            tap := TapTool(
                renderers=[nodes, edges],
                mode="replace",  # every click on its own, whatever the server has cleared of the last one
                callback=CustomJS(args={"nodes": self.nodes, "picks": self.picks}, code=_PICK),
            ),
        )
        plot.toolbar.active_tap = tap

    @property
    def models(self) -> list[Model]:
        """Whose properties are set."""
        return [self.nodes, self.edges, self.marked]

    def update(
        self, changes: Changes, seen: View, pinned: set[int], marked_node: int | None, marked_pair: int | None
    ) -> None:
        """Draw the edges of a view, the nodes they join, and what is marked."""
        edges = seen.pairs[seen.pairs["edge"]]
        x, y = self.positions.T
        i, j, association = edges["i"].to_numpy(), edges["j"].to_numpy(), edges["association"].to_numpy()
        degree = np.bincount(np.concatenate([i, j]), minlength=len(self.names))
        width = 1.2 + 11 * np.minimum(np.abs(association), 1)
        lines = {
            **dict(zip(("x0", "y0", "x1", "y1"), (x[i], y[i], x[j], y[j]), strict=True)),
            "pair": edges.index.to_numpy(),
            "width": width,
            "colour": colours(association),
            "dash": ["solid" if value > 0 else "6 4" for value in association],
            "association": association,
            **{label: edges[label].to_numpy() for label in ("row", "column", "lower", "upper")},
        }
        wanted = self.query | (degree > 0) | np.isin(np.arange(len(self.names)), list(pinned))
        shown = np.flatnonzero(wanted | self.all_shown)
        strong = (degree > 0) | (self.query & (not self.all_shown)) | np.isin(np.arange(len(self.names)), list(pinned))
        labelled = strong | (len(shown) <= MANY)
        marked = shown == (-1 if marked_node is None else marked_node)
        of_query = self.query[shown] & (not self.all_shown)
        size = np.where(of_query, 22, 15 if len(shown) <= MANY else 10)
        labels = [
            ("" if not labelled[k] else short(self.names[k]) if len(shown) <= _FEW else self.brief[k]) for k in shown
        ]
        asked = (self.query[shown] & (not self.all_shown)) | np.isin(
            shown, [*pinned, -1 if marked_node is None else marked_node]
        )
        order = np.lexsort((-degree[shown], ~asked)).tolist()
        side = sides(*(self.pixels[:, None] * self.positions[shown].T), labels, order, asked)
        labels = [label if s else "" for label, s in zip(labels, side.tolist(), strict=True)]
        nodes = {
            "node": shown,
            "x": x[shown],
            "y": y[shown],
            "name": [self.names[k] for k in shown],
            "label": labels,
            "degree": degree[shown],
            "size": size,
            "offset": side * (size / 2 + 9),
            "fill": np.where(of_query, QUERY, "#ffffff").tolist(),
            "line": np.where(marked, ACCENT, INK).tolist(),
            "line_width": np.where(marked, 3.0, 1.4),
            "style": np.where(of_query, "bold", "normal").tolist(),
            "alpha": np.where(strong[shown], 1.0, 0.35),
        }
        changes.set(self.edges, data=lines)
        changes.set(self.nodes, data=nodes)
        changes.set(self.marked, data=self._halo(seen, marked_pair))

    def _halo(self, seen: View, pair: int | None) -> dict[str, list[float]]:
        """Around one pair, edge or not."""
        if pair is None:
            return {label: [] for label in ("x0", "y0", "x1", "y1", "width")}
        row = seen.pairs.iloc[pair]
        (x0, y0), (x1, y1) = self.positions[[int(row["i"]), int(row["j"])]].tolist()
        width = 9 + 11 * min(abs(float(row["association"])), 1)
        return {"x0": [x0], "y0": [y0], "x1": [x1], "y1": [y1], "width": [width]}


class Plane:
    """Evidence over (λ, q) and the point where we are, which can be dragged."""

    def __init__(self, lam: tuple[float, float], q: tuple[float, float], surface: Surface | None):
        self.cursor = ColumnDataSource({"lam": [lam[0]], "q": [q[0]]})
        lam_low, lam_high = lam if lam[0] < lam[1] else (lam[0] / 2, lam[0] * 2)
        q_low, q_high = q if q[0] < q[1] else (q[0] - 0.3, q[0] + 0.3)
        self.figure = plot = figure(
            x_axis_type="log",
            # A little more than the ranges, so that the ring is whole at their ends.
            x_range=Range1d(lam_low * (lam_low / lam_high) ** 0.05, lam_high * (lam_high / lam_low) ** 0.05),
            y_range=Range1d(q_low - 0.07 * (q_high - q_low), q_high + 0.07 * (q_high - q_low)),
            x_axis_label="shrinkage λ",
            y_axis_label="exponent q",
            tools="",
            toolbar_location=None,
            height=230,
            sizing_mode="stretch_width",
            name="plane",
        )
        _plain(plot)
        log_ticks(plot, lam_low, lam_high)
        plot.grid.visible = False
        if surface is not None and min(surface.log_evidence.shape) > 3:
            x, y = np.linspace(*np.log([lam_low, lam_high]), 61), np.linspace(q_low, q_high, 41)
            # Interpolation that keeps maxima where they are: the star has to stand at the top.
            values = pchip_interpolate(np.log(surface.lam), surface.log_evidence, x, axis=0)
            values = pchip_interpolate(surface.q, values, y, axis=1)
            below = (values - values.max()).T
            levels = [-drop for drop in reversed(_DROPS)]
            plot.contour(
                np.exp(x), y, below, levels=levels, fill_color=_BLUES[::-1], line_color="#ffffff", line_width=0.6
            )
        if surface is not None:
            best = surface.best
            plot.scatter([best.lam], [best.q], marker="star", size=15, color="#ffd166", line_color=INK)
        plot.scatter("lam", "q", source=self.cursor, size=17, fill_alpha=0, line_color="#ffffff", line_width=5)
        plot.scatter("lam", "q", source=self.cursor, size=17, fill_alpha=0, line_color=ACCENT, line_width=3)


class AlongLam:
    """Number of edges along λ, at the present q and temperature."""

    def __init__(self, lam: tuple[float, float]):
        self.line = ColumnDataSource({"lam": [], "edges": []})
        low, high = lam if lam[0] < lam[1] else (lam[0] / 2, lam[0] * 2)
        self.figure = plot = figure(
            x_axis_type="log",
            x_range=Range1d(low, high),
            y_range=Range1d(0, 1),
            x_axis_label="shrinkage λ",
            y_axis_label="edges",
            tools="",
            toolbar_location=None,
            height=165,
            sizing_mode="stretch_width",
            name="sparsity",
        )
        _plain(plot)
        plot.min_border_right = 20  # half of the label at the end of the axis
        log_ticks(plot, low, high)
        plot.yaxis.ticker.desired_num_ticks = 4
        plot.yaxis.formatter = BasicTickFormatter(use_scientific=False)
        plot.varea("lam", y1="edges", y2=0, source=self.line, fill_color=POSITIVE, fill_alpha=0.12)
        plot.line("lam", "edges", source=self.line, line_color=POSITIVE, line_width=2)
        plot.scatter("lam", "edges", source=self.line, size=5, color=POSITIVE)
        self.cursor = Span(location=low, dimension="height", line_color=ACCENT, line_width=2)
        plot.add_layout(self.cursor)

    @property
    def models(self) -> list[Model]:
        """Whose properties are set."""
        return [self.line, self.figure.y_range, self.cursor]

    def update(self, changes: Changes, found: dict[float, int]) -> None:
        """Draw what is known so far: number of edges by λ."""
        lams = sorted(found)
        changes.set(self.line, data={"lam": lams, "edges": [found[lam] for lam in lams]})
        changes.set(self.figure.y_range, end=1.15 * max(4, *found.values(), 0))


class Forest:
    """Association of some pairs with their intervals, one below the other."""

    rows = 10

    def __init__(self):
        self.source = ColumnDataSource()
        self.figure = plot = figure(
            x_range=Range1d(-1, 1),
            y_range=Range1d(-self.rows + 0.3, 0.7),
            tools="",
            toolbar_location=None,
            height=212,
            sizing_mode="stretch_width",
            name="intervals",
        )
        _plain(plot)
        plot.yaxis.visible = False
        plot.grid.visible = False
        # One ticker whose ticks change: a new one would have Bokeh look through all models of the page.
        self.ticker = plot.xaxis.ticker = FixedTicker(ticks=[0], minor_ticks=[])
        plot.add_layout(Span(location=0, dimension="height", line_color=INK, line_width=1))
        plot.segment("lower", "y", "upper", "y", source=self.source, line_color="colour", line_width=3, line_alpha=0.55)
        plot.scatter("association", "y", source=self.source, size=8, color="colour")
        texts = {"text_font": {"value": FONT}, "text_font_size": "11.5px", "text_baseline": "middle", "text_color": INK}
        plot.text("left", "y", text="label", source=self.source, text_align="left", **texts)

    @property
    def models(self) -> list[Model]:
        """Whose properties are set."""
        return [self.source, self.figure.x_range, self.ticker]

    def update(self, changes: Changes, seen: View, shown: Sequence[int]) -> None:
        """Draw these rows of the table of pairs, at most ten."""
        part = seen.pairs.iloc[list(shown)[: self.rows]]
        low, high = min(float(part["lower"].min()), -0.02), max(float(part["upper"].max()), 0.02)
        margin = 0.04 * (high - low)
        left = low - margin - 1.05 * (high - low)  # names take the left half
        changes.set(self.figure.x_range, start=left, end=high + margin)
        changes.set(self.ticker, ticks=sorted({-_tick(-low), 0.0, _tick(high)}))
        data = {
            "y": -np.arange(len(part)),
            "label": [f"{short(a, 16)} – {short(b, 16)}" for a, b in zip(part["row"], part["column"], strict=True)],
            "left": np.full(len(part), left),
            "colour": colours(part["association"].to_numpy()),
            **{label: part[label].to_numpy() for label in ("association", "lower", "upper")},
        }
        changes.set(self.source, data=data)


class PairPosterior:
    """Histogram of the association of one pair, its mean and interval."""

    def __init__(self):
        self.bars, self.interval = ColumnDataSource(), ColumnDataSource()
        self.figure = plot = figure(
            x_range=Range1d(-1, 1),
            y_range=Range1d(0, 1),
            x_axis_label="association",
            tools="",
            toolbar_location=None,
            height=150,
            sizing_mode="stretch_width",
            name="posterior",
        )
        _plain(plot)
        plot.yaxis.visible = False
        plot.ygrid.visible = False
        ends = {"left": "left", "right": "right", "bottom": 0, "top": "top"}
        plot.quad(**ends, source=self.bars, fill_color="colour", line_color="#ffffff", fill_alpha=0.75)
        plot.add_layout(Span(location=0, dimension="height", line_color=INK, line_width=1))
        plot.segment("lower", "y", "upper", "y", source=self.interval, line_color=INK, line_width=3)
        plot.scatter("mean", "y", source=self.interval, size=9, color=INK)

    @property
    def models(self) -> list[Model]:
        """Whose properties are set."""
        return [self.bars, self.interval, self.figure.x_range, self.figure.y_range]

    def update(self, changes: Changes, found: Density | None) -> None:
        """Draw one pair, or nothing."""
        if found is None:
            changes.set(self.bars, data={label: [] for label in ("left", "right", "top", "colour")})
            changes.set(self.interval, data={label: [] for label in ("lower", "upper", "mean", "y")})
            return
        ends = histogram_ends(found)
        top, _ = np.histogram(found.values, ends, weights=found.weights)
        width = float(ends[1] - ends[0])
        middle = (ends[1:] + ends[:-1]) / 2
        height = float(top.max())
        interval = {"lower": [found.lower], "upper": [found.upper], "mean": [found.mean], "y": [-0.08 * height]}
        changes.set(self.bars, data={"left": ends[:-1], "right": ends[1:], "top": top, "colour": colours(middle)})
        changes.set(self.interval, data=interval)
        changes.set(self.figure.x_range, start=float(ends[0] - width), end=float(ends[-1] + width))
        changes.set(self.figure.y_range, start=-0.18 * height, end=1.08 * height)


class Pairs:
    """The edges of a view as a table; a click on a heading sorts by that column, one on a row chooses the pair.

    Plain HTML: a table widget of Bokeh measures itself at every change, longer than all else that a move does.
    """

    most = 200  # rows

    def __init__(self):
        self.sorted_by, self.descending = "association", True
        self.table = Div(
            name="pairs",
            disable_math=True,
            stylesheets=[_TABLE],
            height=208,
            sizing_mode="stretch_width",
            styles={"overflow-y": "auto"},
        )
        # What was clicked last: the number of a pair or the name of a column, and how often anything was.
        self.clicks = ColumnDataSource({"pair": [], "column": [], "count": []})

    def sort(self, column: str) -> None:
        """By this column, or the other way round if it is so already."""
        numbers = column not in ("row", "column")
        self.descending = not self.descending if column == self.sorted_by else numbers
        self.sorted_by = column

    def update(self, changes: Changes, seen: View, marked: int | None) -> None:
        """List the edges, the strongest first; with their probabilities, if it is a posterior that is seen."""
        edge = np.flatnonzero(seen.pairs["edge"].to_numpy())
        of = {name: seen.pairs[name].to_numpy()[edge] for name in (*list(COLUMNS)[:-1], "probability")}
        small = seen.pairs["edge_probability"].to_numpy()[edge]
        of["shown"] = np.where(np.isnan(of["probability"]), small, of["probability"])
        columns = {name: title for name, title in COLUMNS.items() if name != "shown" or seen.temperature == 1}
        by = self.sorted_by if self.sorted_by in columns else "association"
        key = np.abs(of["association"]) if by == "association" else of[by]
        order = np.argsort(key, kind="stable")
        order = (order[::-1] if self.descending else order)[: self.most].tolist()
        arrow = {by: " ▾" if self.descending else " ▴"}
        head = "".join(f"<th data-column={name}>{title}{arrow.get(name, '')}" for name, title in columns.items())
        rows = []
        for k in order:
            names = (html.escape(str(of[side][k])) for side in ("row", "column"))
            cells = "".join(f'<td title="{name}">{name}' for name in names)
            # Adding zero: an end just below it reads +0.00, not −0.00.
            cells += "".join(f"<td>{round(of[name][k], 2) + 0.0:+.2f}" for name in ("association", "lower", "upper"))
            cells += f"<td>{of['shown'][k]:.2f}" if "shown" in columns else ""
            rows.append(f"<tr data-pair={edge[k]}{' class=on' if edge[k] == marked else ''}>{cells}")
        more = edge.size - self.most
        if more > 0:
            rows.append(f"<tr><td colspan={len(columns)}>and {more} more, in the file that Table (CSV) saves")
        changes.set(self.table, text=f"<table><thead><tr>{head}<tbody>{''.join(rows)}</table>")


def log_ticks(plot: figure, low: float, high: float) -> None:
    """Ticks of λ at round numbers, as plain numbers."""
    plot.xaxis.ticker = FixedTicker(ticks=lam_ticks(low, high), minor_ticks=[])
    plot.xaxis.formatter = CustomJSTickFormatter(code="return String(Number(tick.toPrecision(3)))")


def _plain(plot: figure) -> None:
    """Quiet axes in the page's font."""
    plot.outline_line_color = None
    plot.min_border = 6
    plot.background_fill_alpha = plot.border_fill_alpha = 0
    plot.grid.grid_line_color = "#eceff2"
    for axis in plot.axis:
        axis.update(
            axis_label_text_font=FONT,
            axis_label_text_font_size="12px",
            axis_label_text_font_style="normal",
            axis_label_text_color=INK,
            axis_label_standoff=4,
            major_label_text_font=FONT,
            major_label_text_font_size="11px",
            major_label_text_color=INK,
            axis_line_color=FAINT,
            major_tick_line_color=FAINT,
            major_tick_in=0,
            major_tick_out=4,
            minor_tick_line_color=None,
        )


def _tick(reach: float) -> float:
    """A round number below `reach`; 0 if there is hardly room for one."""
    return max((t for t in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 2.0, 5.0) if t <= reach), default=0.0)
