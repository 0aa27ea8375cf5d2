"""One open page of the explorer: its events, and when it is redrawn.

While something moves, views rest on few draws. A moment after the last move they are redrawn with more, and edges along
λ are counted, one λ at a time, so that the next move need not wait.
"""

# Bokeh's own annotations are narrower than the values it accepts.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

import html
from time import perf_counter
from typing import Any

import numpy as np
from bokeh.document import Document
from bokeh.events import Pan, PanStart, Tap
from bokeh.models import CustomJS

from ggmflow.explorer import texts
from ggmflow.explorer.changes import Changes
from ggmflow.explorer.layout import Controls, Panels, make_page
from ggmflow.explorer.panels.associations import Forest
from ggmflow.explorer.prepared import Prepared
from ggmflow.explorer.state import COLUMNS, RULES, State, rounded_condition
from ggmflow.storage.package_files import package_text
from ggmflow.views import pairs
from ggmflow.views.export import csv_text, export_table, graphml

_THROTTLE = 12  # ms: moves that arrive within this time are drawn once
_REST = 300  # ms without a move, after which the page is at rest
_COUNTED = 9  # values of λ at which edges are counted


def make_document(doc: Document, prepared: Prepared) -> None:
    """Fill a new document of a Bokeh server with the explorer."""
    Session(doc, prepared.completed())


class Session:
    """Controls, panels and state of one page, joined by events.

    Parameters
    ----------
    doc
        A new document of a Bokeh server.
    prepared
        As `prepare` returns it.
    """

    def __init__(self, doc: Document, prepared: Prepared):
        self.doc, self.prepared, self.model = doc, prepared, prepared.model
        self.names = self.model.scatter_.names
        self.state = State(prepared.start)
        self.controls, self.panels = Controls(prepared), Panels(prepared)
        self.changes = Changes(doc, self.panels.models)
        self.edge_counts: dict[tuple, dict[float, int]] = {}
        self.scheduled = self.resting = self.counting = None  # callbacks that are waiting
        self.took = 0.0  # seconds of the last redraw of a move
        self.quiet = False  # while the page itself moves a control
        self._connect()
        unseen = [self.controls.file, self.changes.message, self.panels.table.clicks, self.panels.network.picks]
        doc.add_root(make_page(prepared, self.controls, self.panels, unseen))
        name = prepared.data_name
        doc.title = "ggmflow explorer" if name is None else f"{name} – ggmflow explorer"
        # A page that reconnects would return to its first state and ignore clicks. Without reconnecting it tells the
        # user that the connection is lost.
        doc.config.update(reconnect_session=False)
        self.redraw(at_rest=True)
        self.first = self.state.condition
        self._await_evidence()

    def _await_evidence(self) -> None:
        """Compute the evidence, if that is left for later, and show it as soon as it is known."""
        late = self.prepared.late
        if late is None or self.prepared.surface is not None:
            return

        def tell() -> None:  # from another thread, in which a page must not be changed
            self.doc.add_next_tick_callback(self.show_evidence)

        self.doc.on_session_destroyed(lambda session_context: late.forget(tell))
        late.when_ended(tell)
        late.start()

    def show_evidence(self) -> None:
        """Show the evidence that has become known; a page that nobody has moved goes to its maximum."""
        self.prepared = self.prepared.completed()
        self._show("evidence", texts.evidence_heading(self.prepared))
        self.changes.send()
        if self.prepared.surface is not None:
            self.panels.plane.show(self.prepared.surface)
            self.controls.best.visible = True
            if self.state.condition == self.first:
                self._go_to_start()

    def _connect(self) -> None:
        """Call the methods below when the user does something."""
        controls, panels = self.controls, self.panels
        for control in (*controls.sliders, controls.rule):
            control.on_change("value", lambda attr, old, new: self.moved())
        controls.best.on_click(self._go_to_start)
        controls.search.on_change("value", lambda attr, old, new: self._find(new))
        controls.clear.on_click(self._clear)
        controls.save_graph.on_click(self._save_graph)
        controls.save_table.on_click(self._save_table)
        for event in (PanStart, Pan, Tap):
            panels.plane.figure.on_event(event, self._drag)
        panels.network.picks.on_change("data", lambda attr, old, new: self._click(new["kind"][0], new["which"][0]))
        clicks = panels.table.clicks
        clicks.on_change("data", lambda attr, old, new: self._click_table(new["pair"][0], new["column"][0]))
        listen = CustomJS(
            args={"table": panels.table.table, "clicks": clicks}, code=package_text("explorer/listen_to_table.js")
        )
        self.doc.js_on_event("document_ready", listen)

    # ---------------------------------------------------------------------------------------------------------- moves
    def moved(self) -> None:
        """Redraw after a move: at once if the page was at rest, else soon; and again when nothing moves."""
        if self.quiet:
            return
        was_at_rest = self.resting is None
        for waiting in (self.resting, self.counting):
            if waiting is not None:
                self.doc.remove_timeout_callback(waiting)
        self.counting = None
        if self.scheduled is None and was_at_rest:
            self.redraw()
        elif self.scheduled is None:
            # Where drawing takes long, moves accumulate meanwhile: wait for them, so that only the last one is drawn.
            self.scheduled = self.doc.add_timeout_callback(self._move, max(_THROTTLE, round(200 * self.took)))
        self.resting = self.doc.add_timeout_callback(self._rest, max(_REST, round(1500 * self.took)))

    def _move(self) -> None:
        self.scheduled = None
        self.redraw()

    def _rest(self) -> None:
        self.resting = None
        self.redraw(at_rest=True)

    def _set(self, lam: float, q: float, temperature: float | None = None) -> None:
        """Move the sliders, with one redraw for all of them."""
        self.quiet = True
        self.controls.lam.value = float(np.log10(np.clip(lam, *self.model.lam_range_)))
        self.controls.q.value = float(np.clip(q, *self.model.q_range_))
        if temperature is not None:
            self.controls.temperature.value = float(np.log10(temperature))
        self.quiet = False
        self.moved()

    def _go_to_start(self) -> None:
        self._set(*self.prepared.start)

    def _drag(self, event: Any) -> None:
        if event.x is not None and event.y is not None and event.x > 0:
            self._set(event.x, event.y)

    # ------------------------------------------------------------------------------------------------------ selection
    def _click(self, kind: str, which: int) -> None:
        if kind == "node" and 0 <= which < len(self.names):
            self.state.select(node=int(which))
        elif kind == "pair" and 0 <= which < len(self.view.pairs):
            self.state.select(pair=int(which))
        self._draw()

    def _click_table(self, pair: int, column: str) -> None:
        if column in COLUMNS:
            self.state.sort(column)
        elif 0 <= pair < len(self.view.pairs):
            self.state.select(pair=int(pair))
        self._draw()

    def _find(self, name: str) -> None:
        if name in self.names:
            node = self.names.index(name)
            self.state.select(node=node)
            self.state.pinned.add(node)
            self._draw()

    def _clear(self) -> None:
        self.state.select()
        self.state.pinned.clear()
        self.controls.search.value = ""
        self._draw()

    # -------------------------------------------------------------------------------------------------------- drawing
    def redraw(self, at_rest: bool = False) -> None:
        """Compute and draw the view that the controls ask for; at rest with more draws."""
        start = perf_counter()
        self._read_controls()
        num_draws = pairs.num_draws_of(self.model, quick=not at_rest)
        self.view = self._view(*self.state.condition, num_draws)
        self._draw(start)
        if at_rest:
            self._count()
        else:
            self.took = perf_counter() - start

    def _read_controls(self) -> None:
        values = (float(slider.value) for slider in self.controls.sliders)
        self.state.condition = rounded_condition(self.model, *values)
        self.state.rule = RULES[self.controls.rule.value]

    def _view(self, lam: float, q: float, temperature: float, num_draws: int) -> pairs.View:
        (rule, parameters), level = self.state.rule, self.state.level
        return pairs.view(
            self.model, lam, q, temperature, rule=rule, parameters=parameters, level=level, num_draws=num_draws
        )

    def _draw(self, start: float | None = None) -> None:
        """Fill all panels from the present view.

        Parameters
        ----------
        start
            When computing this view began; None if it was drawn before.
        """
        view, state, changes, panels = self.view, self.state, self.changes, self.panels
        shown = state.strongest(view, Forest.rows).tolist()
        pair = shown[0] if state.pair is None and shown else state.pair
        panels.network.update(changes, view, state)
        panels.plane.update(changes, view.lam, view.q)
        panels.counts.move_to(changes, view.lam)
        panels.table.update(changes, view, state)
        panels.forest.update(changes, view, shown)
        panels.posterior.update(changes, None if pair is None else pairs.density(view, pair))
        self._show("chosen", texts.interval_heading(view, None if state.node is None else self.names[state.node]))
        if pair is not None:
            inside = int(view.pairs["j"].iloc[pair]) in self.model.query_
            self._show("clicked", texts.pair_heading(view, pair, is_partial_correlation=inside))
        if start is not None:
            self._show("state", texts.edge_summary(view))
            self._show("listed", texts.table_heading(view))
            at_rest = view.posterior.num_draws >= pairs.num_draws_of(self.model)
            self._show("trust", texts.quality(view, perf_counter() - start, at_rest))
        changes.send()
        # The selection is drawn by us: positions in the sources change with every view.
        for source in (panels.network.nodes, panels.network.edges):
            source.selected.indices = []

    def _show(self, name: str, text: str) -> None:
        """Set a text, which is HTML."""
        self.changes.set(self.panels.texts[name], text=text)

    def _count(self) -> None:
        """Count the edges at one more λ, if any is left, and schedule the next one."""
        self.counting = None
        _, q, T = self.state.condition
        counts = self.edge_counts.setdefault((q, T, self.state.rule.value), {})
        left = [lam for lam in np.geomspace(*self.model.lam_range_, _COUNTED).tolist() if lam not in counts]
        if left:
            few = min(4 * pairs.num_draws_of(self.model, quick=True), pairs.num_draws_of(self.model))
            counts[left[0]] = self._view(left[0], q, T, few).n_edges
        self.panels.counts.update(self.changes, counts)
        self.changes.send()
        if len(left) > 1:
            self.counting = self.doc.add_timeout_callback(self._count, _THROTTLE)

    # ------------------------------------------------------------------------------------------------------ downloads
    def _save_graph(self) -> None:
        try:
            content = graphml(self.view.posterior, self.view.level, self.view.selection)
        except ValueError as error:
            self._show("listed", texts.heading("Edges", html.escape(str(error)), style="poor"))
            self.changes.send()
        else:
            self._save("graph.graphml", "application/xml", content.decode())

    def _save_table(self) -> None:
        table = export_table(self.view.posterior, self.view.level, self.view.selection)
        table["num_draws"] = self.view.posterior.num_draws  # a page in motion has fewer than one at rest
        self._save("summary.csv", "text/csv", csv_text(table))

    def _save(self, name: str, kind: str, text: str) -> None:
        self.controls.file.data = {"name": [name], "type": [kind], "text": [text]}
