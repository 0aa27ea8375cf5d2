"""The edges of a view as a table."""

# Bokeh's own annotations are narrower than the values it accepts.
# pyright: reportArgumentType=false

import html

import numpy as np
from bokeh.models import ColumnDataSource, Div

from ggmflow.explorer.changes import Changes
from ggmflow.explorer.state import COLUMNS, State
from ggmflow.storage.package_files import package_text
from ggmflow.views.pairs import View


class EdgeTable:
    """A table of edges; a click on a heading sorts by that column, a click on a row selects the pair.

    It is plain HTML, because a table widget of Bokeh measures itself after every change, which takes longer than all
    other work of a move.
    """

    most = 200  # rows

    def __init__(self):
        self.table = Div(
            name="pairs",
            disable_math=True,
            stylesheets=[package_text("explorer/page.css")],
            css_classes=["edges"],
            height=208,
            sizing_mode="stretch_width",
            styles={"overflow-y": "auto"},
        )
        # The last click: the number of a pair or the name of a column, and the number of clicks so far.
        self.clicks = ColumnDataSource({"pair": [], "column": [], "count": []})

    def update(self, changes: Changes, view: View, state: State) -> None:
        """List the edges in the order that the state asks for, with their probabilities if T = 1."""
        columns = {name: title for name, title in COLUMNS.items() if name != "shown" or view.temperature == 1}
        edges = np.flatnonzero(view.pairs["edge"].to_numpy())
        values = {name: view.pairs[name].to_numpy()[edges] for name in (*list(COLUMNS)[:-1], "probability")}
        small = view.pairs["edge_probability"].to_numpy()[edges]
        values["shown"] = np.where(np.isnan(values["probability"]), small, values["probability"])
        by = state.sorted_by if state.sorted_by in columns else "association"
        order = np.argsort(np.abs(values[by]) if by == "association" else values[by], kind="stable")
        order = (order[::-1] if state.descending else order)[: self.most].tolist()
        arrow = {by: " ▾" if state.descending else " ▴"}
        head = "".join(f"<th data-column={name}>{title}{arrow.get(name, '')}" for name, title in columns.items())
        rows = []
        for k in order:
            names = (html.escape(str(values[side][k])) for side in ("row", "column"))
            cells = "".join(f'<td title="{name}">{name}' for name in names)
            # Adding zero: a bound just below zero reads +0.00, not −0.00.
            numbers = (round(float(values[name][k]), 2) + 0.0 for name in ("association", "lower", "upper"))
            cells += "".join(f"<td>{number:+.2f}" for number in numbers)
            cells += f"<td>{values['shown'][k]:.2f}" if "shown" in columns else ""
            rows.append(f"<tr data-pair={edges[k]}{' class=on' if edges[k] == state.pair else ''}>{cells}")
        more = edges.size - self.most
        if more > 0:
            rows.append(f"<tr><td colspan={len(columns)}>and {more} more, in the file that Table (CSV) saves")
        changes.set(self.table, text=f"<table><thead><tr>{head}<tbody>{''.join(rows)}</table>")
