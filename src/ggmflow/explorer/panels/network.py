"""The network: variables at fixed positions, joined by the edges of a view."""

# Bokeh's and pandas' own annotations are narrower than the values they accept.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

from typing import Any

import numpy as np
from bokeh.model import Model
from bokeh.models import ColumnDataSource, CustomJS, HoverTool, Range1d, TapTool
from bokeh.plotting import figure
from jaxtyping import Float, Int

from ggmflow.explorer.changes import Changes
from ggmflow.explorer.geometry import label_sides, shorten, shorten_all
from ggmflow.explorer.panels.style import ACCENT, FONT, INK, QUERY, make_figure, sign_colours
from ggmflow.explorer.state import State
from ggmflow.storage.package_files import package_text
from ggmflow.views.pairs import View

_MANY = 60  # nodes; with more, only those with edges are labelled
_FEW = 15  # nodes; with more, labels are shortened as far as they stay different
_PIXELS = np.array([560.0, 500.0])  # width and height of the network on a usual screen
_ENDS = ("x0", "y0", "x1", "y1")


class Network:
    """Nodes at fixed positions; an edge's width is its association's size, colour and dashes show its sign.

    Parameters
    ----------
    names
        Names of all variables.
    query : (s,) array of int
        Positions of the query variables.
    positions : (d, 2) array
        Positions of the nodes.
    """

    def __init__(self, names: tuple[str, ...], query: Int[np.ndarray, " s"], positions: Float[np.ndarray, "d 2"]):
        self.names, self.positions, self.short_names = names, positions, shorten_all(names)
        self.shows_all = len(query) == len(names)
        # Query variables stand out only if there are others.
        self.query = np.isin(np.arange(len(names)), query) & (not self.shows_all)
        self.nodes, self.edges, self.marked = (ColumnDataSource() for _ in range(3))
        self.picks = ColumnDataSource({"kind": [], "which": [], "count": []})
        low, high = positions.min(axis=0), positions.max(axis=0)
        # Horizontally, half of the longest label.
        margin = np.array([max(0.14, 0.0125 * max(len(shorten(name)) for name in names)), 0.14])
        (x_low, y_low), (x_high, y_high) = (low - margin).tolist(), (high + margin).tolist()
        self.pixels = _PIXELS / (high - low + 2 * margin)  # per unit of the axes
        self.figure = plot = make_figure(
            x_range=Range1d(x_low, x_high, bounds=None),
            y_range=Range1d(y_low, y_high, bounds=None),
            tools="pan,wheel_zoom,reset",
            active_drag="pan",
            toolbar_location="right",
            sizing_mode="stretch_both",
            min_height=440,
            name="network",
        )
        plot.axis.visible = False
        plot.grid.visible = False
        plot.toolbar.update(logo=None, autohide=True)
        edges = _add_lines(plot, self.marked, self.edges)
        nodes = _add_nodes(plot, self.nodes)
        _add_tools(
            plot,
            nodes,
            edges,
            CustomJS(args={"nodes": self.nodes, "picks": self.picks}, code=package_text("explorer/pick.js")),
        )

    @property
    def models(self) -> list[Model]:
        """The models whose properties `update` sets."""
        return [self.nodes, self.edges, self.marked]

    def update(self, changes: Changes, view: View, state: State) -> None:
        """Draw the edges of a view, the nodes they join, and a halo around the selected pair."""
        edges = view.pairs[view.pairs["edge"]]
        x, y = self.positions.T
        i, j, association = edges["i"].to_numpy(), edges["j"].to_numpy(), edges["association"].to_numpy()
        lines = {
            **dict(zip(_ENDS, (x[i], y[i], x[j], y[j]), strict=True)),
            "pair": edges.index.to_numpy(),
            "width": 1.2 + 11 * np.minimum(np.abs(association), 1),
            "colour": sign_colours(association),
            "dash": ["solid" if value > 0 else "6 4" for value in association],
            "association": association,
            **{label: edges[label].to_numpy() for label in ("row", "column", "lower", "upper")},
        }
        degree = np.bincount(np.concatenate([i, j]), minlength=len(self.names))
        changes.set(self.edges, data=lines)
        changes.set(self.nodes, data=self._nodes(degree, state))
        changes.set(self.marked, data=self._halo(view, state.pair))

    def _nodes(self, degree: Int[np.ndarray, " d"], state: State) -> dict[str, Any]:
        """Columns of the data source of the nodes."""
        found = np.isin(np.arange(len(self.names)), list(state.pinned))
        strong = (degree > 0) | self.query | found
        shown = np.flatnonzero(strong | self.shows_all)
        many = len(shown) > _MANY
        of_query = self.query[shown]
        marked = shown == (-1 if state.node is None else state.node)
        size = np.where(of_query, 22, 10 if many else 15)
        names = [self.short_names[k] if len(shown) > _FEW else shorten(self.names[k]) for k in shown]
        labels = [name if strong[k] or not many else "" for name, k in zip(names, shown, strict=True)]
        kept = of_query | found[shown] | marked
        order = np.lexsort((-degree[shown], ~kept)).tolist()
        side = label_sides(*(self.pixels[:, None] * self.positions[shown].T), labels, order, kept)
        x, y = self.positions[shown].T
        return {
            "node": shown,
            "x": x,
            "y": y,
            "name": [self.names[k] for k in shown],
            "label": [label if s else "" for label, s in zip(labels, side.tolist(), strict=True)],
            "degree": degree[shown],
            "size": size,
            "offset": side * (size / 2 + 9),
            "fill": np.where(of_query, QUERY, "#ffffff").tolist(),
            "line": np.where(marked, ACCENT, INK).tolist(),
            "line_width": np.where(marked, 3.0, 1.4),
            "style": np.where(of_query, "bold", "normal").tolist(),
            "alpha": np.where(strong[shown], 1.0, 0.35),
        }

    def _halo(self, view: View, pair: int | None) -> dict[str, list[float]]:
        """A wide line below a pair, whether it is an edge or not."""
        if pair is None:
            return {label: [] for label in (*_ENDS, "width")}
        row = view.pairs.iloc[pair]
        (x0, y0), (x1, y1) = self.positions[[int(row["i"]), int(row["j"])]].tolist()
        width = 9 + 11 * min(abs(float(row["association"])), 1)
        return {"x0": [x0], "y0": [y0], "x1": [x1], "y1": [y1], "width": [width]}


def _add_lines(plot: figure, marked: ColumnDataSource, edges: ColumnDataSource) -> Any:
    """Draw the halo and, above it, the edges; returns the renderer of the edges."""
    ends = {name: name for name in _ENDS}
    plot.segment(**ends, source=marked, line_width="width", line_color=ACCENT, line_alpha=0.3, line_cap="round")
    return plot.segment(
        **ends,
        source=edges,
        line_width="width",
        line_color="colour",
        line_dash="dash",
        line_alpha=0.85,
        nonselection_alpha=0.85,
    )


def _add_nodes(plot: figure, source: ColumnDataSource) -> Any:
    """Draw nodes and their labels; returns the renderer of the nodes."""
    nodes = plot.scatter(
        "x",
        "y",
        source=source,
        size="size",
        fill_color="fill",
        line_color="line",
        line_width="line_width",
        alpha="alpha",
        nonselection_alpha="alpha",
    )
    options = {
        "text": "label",
        "text_align": "center",
        "text_baseline": "middle",
        "y_offset": "offset",
        "text_font": {"value": FONT},
        "text_font_size": "12px",
        "text_font_style": "style",
        "text_alpha": "alpha",
        "nonselection_text_alpha": "alpha",
    }
    # White text with an outline below the dark text: an outline of the dark text itself would cover it.
    for colour, outline in (("white", "white"), (INK, None)):
        plot.text("x", "y", source=source, text_color=colour, text_outline_color=outline, **options)
    return nodes


def _add_tools(plot: figure, nodes: Any, edges: Any, on_tap: CustomJS) -> None:
    """Add tooltips, and a tool that selects a clicked node or edge."""
    tap = TapTool(
        renderers=[nodes, edges],
        mode="replace",  # so that a click does not depend on whether the server has cleared the previous selection
        callback=on_tap,
    )
    plot.add_tools(
        HoverTool(renderers=[nodes], tooltips=[("variable", "@name"), ("edges", "@degree")]),
        HoverTool(
            renderers=[edges],
            line_policy="interp",
            limit=1,  # one tooltip where several edges meet
            tooltips=[
                ("pair", "@row – @column"),
                ("association", "@association{+0.000}"),
                ("lower … upper", "@lower{+0.000} … @upper{+0.000}"),
            ],
        ),
        tap,
    )
    plot.toolbar.active_tap = tap
