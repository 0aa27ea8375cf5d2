"""One open page of the explorer: its controls, what they change, and when it is redrawn.

While something moves, views rest on few draws; a moment after the last move they are redrawn with more, and edges along
λ are counted, one λ at a time so that the next move need not wait. λ, q and T are rounded to the digits of the line of
Python on the page, so what is shown is exactly ``model.posterior(lam, q, temperature, num_draws=...)`` of that line.

Only at T = 1 is it a posterior. Elsewhere the page gives no probabilities, and calls intervals what they are.
"""

# Bokeh's and pandas' own annotations are narrower than what both accept.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

import html
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from bokeh.document import Document
from bokeh.events import Pan, PanStart, Tap
from bokeh.models import (
    AutocompleteInput,
    Button,
    Column,
    ColumnDataSource,
    CustomJS,
    CustomJSTickFormatter,
    Div,
    Row,
    Select,
    Slider,
)
from jaxtyping import Float

from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.explorer.changes import Changes
from ggmflow.explorer.panels import (
    ACCENT,
    COLUMNS,
    FONT,
    INK,
    LISTEN_TO_TABLE,
    AlongLam,
    Forest,
    Network,
    PairPosterior,
    Pairs,
    Plane,
)
from ggmflow.posterior.edge_rules import EDGE_RULES, menu_entries
from ggmflow.views import pairs as views
from ggmflow.views.export import csv_text, entry_table, graphml
from ggmflow.views.pairs import Surface, View

# The menu of edge rules: label → key of the rule, level of the intervals.
RULES = {label: (rule.key, values.get("level", 0.9)) for label, (rule, values) in menu_entries().items()}
_THROTTLE, _REST = 12, 300  # ms: moves that arrive together are one; after so long without any, the page is at rest
_COUNTED = 9  # values of λ at which edges are counted

_SAVE = """
const {name, type, text} = Object.fromEntries(Object.entries(source.data).map(([key, values]) => [key, values[0]]))
if (text == null) return
const link = document.createElement("a")
link.href = URL.createObjectURL(new Blob([text], {type}))
link.download = name
link.click()
URL.revokeObjectURL(link.href)
"""
_EMPTY = """
const input = cb_context.index.find_one_by_id(search.id)?.input_el
if (input != null) input.value = ""
"""
_SAVE_FIGURE = """
cb_context.index.find_one_by_id(plot.id).export("svg").to_blob().then((blob) => {
  const link = document.createElement("a")
  link.href = URL.createObjectURL(blob)
  link.download = "network.svg"
  link.click()
  URL.revokeObjectURL(link.href)
})
"""
_CARD = {"background": "#ffffff", "border": "1px solid #e1e6eb", "border-radius": "8px", "padding": "10px 12px"}
_TEXT = f"""
    :host {{ font: 13px/1.45 {FONT}; color: {INK}; }}
    h1 {{ font-size: 17px; font-weight: 650; margin: 0; display: inline; }}
    h2 {{ font-size: 13px; font-weight: 650; margin: 0; display: inline; }}
    .faint {{ color: #5d6b78; }}
    .poor {{ color: #a33b00; font-weight: 600; }}
    .fair {{ color: #7a5a00; font-weight: 600; }}
    .good {{ color: #1a6b3c; font-weight: 600; }}
    .note {{ background: #fff3c4; border-radius: 6px; padding: 4px 8px; margin-top: 4px; }}
    code {{ background: #eef1f4; border-radius: 4px; padding: 1px 5px; font-size: 12px; user-select: all; }}
    b {{ font-variant-numeric: tabular-nums; }}
    .key {{ display: inline-block; width: 26px; border-top: 4px solid; vertical-align: middle; margin: 0 4px 0 12px; }}
    """
_NOT_A_POSTERIOR = (
    "<div class=note>Not the posterior but a sharper one, at T&nbsp;=&nbsp;{0.temperature:g}: too narrow for intervals "
    "and probabilities. Edges are those of the rule on the left, applied to these draws.</div>"
)
_WIDGET = f":host {{ font: 13px {FONT}; color: {INK}; }} label, .bk-slider-title {{ font-size: 13px; }}"


class Prepared(NamedTuple):
    """A model with what all pages share.

    Attributes
    ----------
    model
        Fitted.
    positions : (d, 2) array
        Of the nodes.
    surface
        Evidence over (λ, q), if it is known.
    start : (λ, q, T)
        Where a page opens: at the highest evidence, else in the middle.
    data_name : str or None
        What the data are called, usually the name of their file; None if that is not known.
    """

    model: GraphicalFlow
    positions: Float[np.ndarray, "d 2"]
    surface: Surface | None
    start: tuple[float, float, float]
    data_name: str | None = None


def prepare(model: GraphicalFlow, *, evidence: bool = True, data_name: str | None = None) -> Prepared:
    """Compute what all pages share, and have compiled what they run.

    Parameters
    ----------
    model
        Fitted.
    evidence
        Whether to compute the evidence surface; the first time for a number of variables that takes a while.
    data_name
        What the page calls the data, for example the name of their file.
    """
    # Cold posteriors need double precision, which is another program: the first move there would wait for its compiler.
    for temperature in {*model.temperature_range_}:
        for quick in (True, False):
            views.view(model, temperature=temperature, num_draws=views.num_draws_of(model, quick))
    surface = views.evidence_surface(model) if evidence else None
    lam, q, temperature = views.middle(model)
    if surface is not None:
        lam, q, _ = surface.best
    return Prepared(model, views.layout(model), surface, (lam, q, temperature), data_name)


def make_document(doc: Document, prepared: Prepared) -> None:
    """Fill a new document of a Bokeh server with the explorer."""
    Session(doc, prepared)


class Session:
    """Controls and panels of one page."""

    def __init__(self, doc: Document, prepared: Prepared):
        self.doc, self.prepared, self.model = doc, prepared, prepared.model
        scatter = self.model.scatter_
        self.names, self.query = scatter.names, self.model.query_
        self.node: int | None = None  # what was clicked last: a variable, or a pair
        self.pair: int | None = None
        self.pinned: set[int] = set()
        self.edges_at: dict[tuple, dict[float, int]] = {}
        self.scheduled = self.resting = self.counting = None
        self.took = 0.0  # seconds of the last redraw of a move
        self.quiet = False  # while the page itself moves a control

        ranges = (self.model.lam_range_, self.model.q_range_, self.model.temperature_range_)
        self.lam, self.q, self.temperature = map(_slider, _TITLES, ranges, prepared.start, (True, False, True))
        if self.model._snapshots and not self.temperature.disabled:
            self.temperature.step = self.temperature.end - self.temperature.start
        self.rule = Select(
            options=list(RULES),
            value=next(iter(RULES)),
            title="What makes an edge",
            name="rule",
            sizing_mode="stretch_width",
        )
        self.best = Button(
            label="Go to the highest evidence",
            visible=prepared.surface is not None,
            name="best",
            sizing_mode="stretch_width",
        )
        self.search = AutocompleteInput(
            completions=list(self.names),
            placeholder="Find a variable …",
            case_sensitive=False,
            search_strategy="includes",
            min_characters=1,
            width=180,
            name="search",
        )
        self.clear = Button(label="Clear", width=70, name="clear")
        self.texts = {name: _text(name) for name in ("head", "state", "trust", "clicked", "listed", "chosen")}
        self.network = Network(self.names, self.query, prepared.positions)
        self.plane = Plane(*ranges[:2], prepared.surface)
        self.along_lam, self.forest, self.posterior, self.pairs = (
            AlongLam(ranges[0]),
            Forest(),
            PairPosterior(),
            Pairs(),
        )
        self.file = ColumnDataSource({"name": [""], "type": [""], "text": [None]})
        self.file.js_on_change("data", CustomJS(args={"source": self.file}, code=_SAVE))
        panels = (self.network, self.along_lam, self.forest, self.posterior)
        models = [model for panel in panels for model in panel.models]
        self.changes = Changes(doc, [*models, self.plane.cursor, self.pairs.table, *self.texts.values()])
        table = {"table": self.pairs.table, "clicks": self.pairs.clicks}
        doc.js_on_event("document_ready", CustomJS(args=table, code=LISTEN_TO_TABLE))
        self._listen()
        doc.add_root(self._page())
        name = prepared.data_name
        doc.title = "ggmflow explorer" if name is None else f"{name} – ggmflow explorer"
        # A page that finds its server again would go back to how it began, and hear no clicks: it says that it is lost.
        doc.config.update(reconnect_session=False)
        self.redraw(at_rest=True)

    # ------------------------------------------------------------------------------------------------------- the page
    def _page(self) -> Column:
        scatter, d = self.model.scatter_, len(self.names)
        size = f"{scatter.n:g} rows × {d} variables"
        if len(self.query) < d:
            size += f", {len(self.query)} of them in the query"
        # The name of a file is HTML here, and whoever made the file chose it.
        name = "" if self.prepared.data_name is None else f"<b>{html.escape(self.prepared.data_name)}</b>, "
        self.texts["head"].text = f"<h1>ggmflow explorer</h1> &nbsp; {name}<span class=faint>{size}</span>"
        why = (
            "drag the ring; ★ is the best"
            if self.prepared.surface is not None
            else "drag the ring; no evidence computed"
        )
        downloads = {"graph": "Graph (GraphML)", "table": "Table (CSV)", "figure": "Figure (SVG)"}
        buttons = [Button(label=label, name=name, sizing_mode="stretch_width") for name, label in downloads.items()]
        buttons[0].on_click(self._save_graph)
        buttons[1].on_click(self._save_table)
        buttons[2].js_on_event("button_click", CustomJS(args={"plot": self.network.figure}, code=_SAVE_FIGURE))
        for widget in (self.rule, self.best, self.search, self.clear, *buttons, *self.sliders):
            widget.stylesheets = [_WIDGET]
        left = Column(
            _card(*self.sliders, self.rule, self.best),
            _card(_title("Evidence" if self.prepared.surface else "Where we are", why), self.plane.figure),
            _card(_title("Edges along λ", "at this q and T"), self.along_lam.figure),
            styles={"flex": "0 0 300px", "gap": "10px"},
        )
        legend = (
            "<span class=key style='border-color:#2166ac;margin-left:0'></span>positive"
            "<span class=key style='border-color:#d95f02;border-top-style:dashed'></span>negative"
            "<span class=faint style='margin-left:14px'>width: size of the association. Click a node or an edge.</span>"
        )
        self.texts["state"].styles = {"flex": "1 1 260px"}
        centre = Column(
            Row(
                self.texts["state"], self.search, self.clear, styles={"flex-wrap": "wrap"}, sizing_mode="stretch_width"
            ),
            self.network.figure,
            _text("legend", legend),
            self.texts["trust"],
            styles=_CARD | {"flex": "1 1 520px", "min-height": "560px"},
            sizing_mode="stretch_height",
        )
        right = Row(
            _card(self.texts["listed"], self.pairs.table, Row(*buttons, sizing_mode="stretch_width", spacing=6)),
            _card(self.texts["chosen"], self.forest.figure),
            _card(self.texts["clicked"], self.posterior.figure),
            styles={"flex": "1 1 400px", "flex-wrap": "wrap", "gap": "10px", "align-content": "flex-start"},
        )
        for card in right.children:
            card.styles = card.styles | {"flex": "1 1 380px"}  # pyright: ignore
        main = Row(left, centre, right, sizing_mode="stretch_width", styles={"flex-wrap": "wrap", "gap": "10px"})
        styles = {
            "background": "#f4f6f8",
            "padding": "10px 12px 14px",
            "min-height": "100vh",
            "box-sizing": "border-box",
        }
        options = {"sizing_mode": "stretch_width", "styles": styles | {"gap": "8px"}}
        # A source that nothing draws belongs to the page only if something refers to it.
        unseen = [self.file, self.changes.mail, self.pairs.clicks, self.network.picks]
        return Column(self.texts["head"], main, tags=unseen, **options)

    @property
    def sliders(self) -> list[Slider]:
        """λ, q and temperature."""
        return [self.lam, self.q, self.temperature]

    def _listen(self) -> None:
        for slider in self.sliders:
            slider.on_change("value", self._changed)
        self.rule.on_change("value", self._changed)
        self.best.on_click(self._go_to_best)
        self.search.on_change("value", lambda attr, old, new: self._find(new))
        self.clear.on_click(self._clear)
        # What was typed but is no variable the server does not know of.
        self.clear.js_on_click(CustomJS(args={"search": self.search}, code=_EMPTY))
        for event in (PanStart, Pan, Tap):
            self.plane.figure.on_event(event, self._drag)
        self.network.picks.on_change("data", lambda attr, old, new: self._click(new["kind"][0], new["which"][0]))
        self.pairs.clicks.on_change("data", lambda attr, old, new: self._click_table(new["pair"][0], new["column"][0]))

    # ---------------------------------------------------------------------------------------------------------- moves
    @property
    def condition(self) -> tuple[float, float, float]:
        """λ, q and T of the sliders, as the line of Python on the page has them."""
        lam = _rounded(10.0 ** float(self.lam.value), 4, "g", self.model.lam_range_)
        q = _rounded(float(self.q.value), 3, "f", self.model.q_range_)
        T = _rounded(10.0 ** float(self.temperature.value), 3, "g", self.model.temperature_range_)
        if known := self.model._snapshots:  # the published architecture knows two temperatures
            T = min(known, key=lambda each: abs(np.log(each / T)))
        return lam, q, T

    def moved(self) -> None:
        """Something has changed: redraw at once if the page was at rest, else soon; and again when nothing moves."""
        if self.quiet:
            return
        at_rest = self.resting is None
        for waiting in (self.resting, self.counting):
            if waiting is not None:
                self.doc.remove_timeout_callback(waiting)
        self.counting = None
        if self.scheduled is None and at_rest:
            self.redraw()
        elif self.scheduled is None:
            # Where drawing takes long, moves pile up meanwhile: wait for them, so that only the last one is drawn.
            self.scheduled = self.doc.add_timeout_callback(self._move, max(_THROTTLE, round(200 * self.took)))
        self.resting = self.doc.add_timeout_callback(self._rest, max(_REST, round(1500 * self.took)))

    def _changed(self, attr: str, old: Any, new: Any) -> None:
        self.moved()

    def _move(self) -> None:
        self.scheduled = None
        self.redraw()

    def _rest(self) -> None:
        self.resting = None
        self.redraw(at_rest=True)

    def _set(self, lam: float, q: float, temperature: float | None = None) -> None:
        """Move the sliders: one redraw, however many change."""
        self.quiet = True
        low, high = self.model.q_range_
        self.lam.value = float(np.log10(np.clip(lam, *self.model.lam_range_)))
        self.q.value = float(np.clip(q, low, high))
        if temperature is not None:
            self.temperature.value = float(np.log10(temperature))
        self.quiet = False
        self.moved()

    def _go_to_best(self) -> None:
        lam, q, temperature = self.prepared.start
        self._set(lam, q, temperature)

    def _drag(self, event: Any) -> None:
        if event.x is not None and event.y is not None and event.x > 0:
            self._set(event.x, event.y)

    def _click(self, kind: str, which: int) -> None:
        if kind == "node" and 0 <= which < len(self.names):
            self.node, self.pair = int(which), None
        elif kind == "pair" and 0 <= which < len(self.seen.pairs):
            self.node, self.pair = None, int(which)
        self._draw(self.seen)

    def _click_table(self, pair: int, column: str) -> None:
        if column in COLUMNS:
            self.pairs.sort(column)
        elif 0 <= pair < len(self.seen.pairs):
            self.node, self.pair = None, int(pair)
        self._draw(self.seen)

    def _find(self, name: str) -> None:
        if name in self.names:
            self.node, self.pair = self.names.index(name), None
            self.pinned.add(self.node)
            self._draw(self.seen)

    def _clear(self) -> None:
        self.node = self.pair = None
        self.pinned.clear()
        self.search.value = ""
        self._draw(self.seen)

    # -------------------------------------------------------------------------------------------------------- drawing
    def redraw(self, at_rest: bool = False) -> None:
        """Draw the present condition; at rest with more draws."""
        start = perf_counter()
        rule, level = RULES[str(self.rule.value)]
        num_draws = views.num_draws_of(self.model, quick=not at_rest)
        self.seen = views.view(self.model, *self.condition, rule=rule, level=level, num_draws=num_draws)
        self._draw(self.seen, start)
        if at_rest:
            self._count()
        else:
            self.took = perf_counter() - start

    def _draw(self, seen: View, start: float | None = None) -> None:
        """Fill all panels from a view; one that is new was begun at a time that is told."""
        association = seen.pairs["association"].abs().to_numpy()
        if self.node is not None:
            touching = ((seen.pairs["i"] == self.node) | (seen.pairs["j"] == self.node)).to_numpy()
            shown = np.flatnonzero(touching)
        elif seen.n_edges:
            shown = np.flatnonzero(seen.pairs["edge"].to_numpy())
        else:
            shown = np.arange(len(seen.pairs))
        shown = shown[np.argsort(-association[shown], kind="stable")]
        first = int(shown[0]) if self.pair is None and shown.size else self.pair
        if self.pair is not None and self.pair not in shown[: Forest.rows]:
            shown = np.append(self.pair, shown)
        changes = self.changes
        self.network.update(changes, seen, self.pinned, self.node, self.pair)
        changes.set(self.plane.cursor, data={"lam": [seen.lam], "q": [seen.q]})
        changes.set(self.along_lam.cursor, location=seen.lam)
        self.pairs.update(changes, seen, self.pair)
        self.forest.update(changes, seen, shown.tolist())
        self.posterior.update(changes, None if first is None else views.density(seen, first))
        self._name(seen, first)
        if start is not None:
            self._describe(seen, perf_counter() - start)
        changes.send()
        self._unselect()

    def _unselect(self) -> None:
        """What is clicked is marked by us: positions in the sources change with every view."""
        for source in (self.network.nodes, self.network.edges):
            source.selected.indices = []

    def _name(self, seen: View, pair: int | None) -> None:
        """Headings of the panels. Names are escaped: this is HTML."""
        of = "edges"
        if self.node is not None:
            of = f"pairs of {html.escape(self.names[self.node])}"
        elif not seen.n_edges:
            of = "pairs; none is an edge"
        intervals = f"{100 * seen.level:g} % intervals" if seen.temperature == 1 else _spread(seen).replace("s", "S", 1)
        self._say("chosen", f"<h2>{intervals}</h2> <span class=faint>strongest {of}</span>")
        if pair is not None:
            row = seen.pairs.iloc[pair]
            names = " – ".join(html.escape(str(row[side])) for side in ("row", "column"))
            inside = int(row["j"]) in self.query
            scale = "partial correlation" if inside else "regression weight"
            more = f"P(positive) = {row['p_positive']:.2f}" if seen.temperature == 1 else _spread(seen)
            self._say(
                "clicked",
                f"<h2>{names}</h2> <span class=faint>{scale}</span><br><b>{row['association']:+.3f}</b> "
                f"<span class=faint>[{row['lower']:+.3f}, {row['upper']:+.3f}], {more}</span>",
            )

    def _describe(self, seen: View, seconds: float) -> None:
        """What is shown, and how far to trust it, in words."""
        shown = "no edges" if not seen.n_edges else "1 edge" if seen.n_edges == 1 else f"{seen.n_edges} edges"
        posterior = seen.temperature == 1
        said = not seen.n_edges or EDGE_RULES[seen.selection.key].states_fdr
        false = "" if said or not posterior else f", {seen.expected_fdr:.0%} of them false by expectation"
        # What a rule says in numbers rests on probabilities, which only a posterior has.
        rule = f"<br><span class=faint>{html.escape(seen.rule)}</span>" if posterior else _NOT_A_POSTERIOR.format(seen)
        self._say("state", f"<h2>{shown}</h2> of {len(seen.pairs)} pairs ({seen.density:.1%}){false}{rule}")
        if not seen.n_edges:
            listed = "none qualifies: less shrinkage, or another rule"
        elif not posterior:
            listed = _spread(seen)
        elif seen.pairs["probability"].notna().any():
            listed = "P(edge): by the rule's model of all pairs"
        else:
            listed = "P(edge): |association| > 0.1"
        self._say("listed", f"<h2>Edges</h2> <span class=faint>{listed}</span>")
        at = f"{seen.lam!r}, {seen.q!r}" + ("" if posterior else f", {seen.temperature!r}")
        known = seen.posterior.diagnostics()
        verdict, detail = f"<span class={known.verdict}>{known.headline}</span>", known.detail
        if seen.posterior.num_draws < views.num_draws_of(self.model):  # too few for a verdict
            verdict, detail = "<span class=faint>In motion:</span>", f"{seen.posterior.num_draws} draws."
        self._say(
            "trust",
            f"{verdict} <span class=faint>{html.escape(detail)} Drawn in {1000 * seconds:.0f} ms.</span>"
            "<br><span class=faint>The same in Python:</span> "
            f"<code>model.posterior({at}, num_draws={seen.posterior.num_draws})</code>",
        )

    def _say(self, name: str, text: str) -> None:
        """Set a text, which is HTML."""
        self.changes.set(self.texts[name], text=text)

    def _count(self) -> None:
        """Count edges at one λ more, if any is left, and come back."""
        self.counting = None
        _, q, T = self.condition
        rule, level = RULES[str(self.rule.value)]
        found = self.edges_at.setdefault((q, T, rule, level), {})
        left = [lam for lam in np.geomspace(*self.model.lam_range_, _COUNTED).tolist() if lam not in found]
        if left:
            few = min(4 * views.num_draws_of(self.model, quick=True), views.num_draws_of(self.model))
            found[left[0]] = views.view(self.model, left[0], q, T, rule=rule, level=level, num_draws=few).n_edges
        self.along_lam.update(self.changes, found)
        self.changes.send()
        if len(left) > 1:
            self.counting = self.doc.add_timeout_callback(self._count, _THROTTLE)

    # ------------------------------------------------------------------------------------------------------ downloads
    def _save_graph(self) -> None:
        rule, level = RULES[str(self.rule.value)]
        try:
            content = graphml(self.seen.posterior, level, rule)
        except ValueError as error:
            self._say("listed", f"<h2>Edges</h2> <span class=poor>{html.escape(str(error))}</span>")
            self.changes.send()
        else:
            self._save("graph.graphml", "application/xml", content.decode())

    def _save_table(self) -> None:
        rule, level = RULES[str(self.rule.value)]
        table = entry_table(self.seen.posterior, level, rule)
        table["num_draws"] = self.seen.posterior.num_draws  # a page in motion has fewer than one at rest
        self._save("summary.csv", "text/csv", csv_text(table))

    def _save(self, name: str, kind: str, text: str) -> None:
        self.file.data = {"name": [name], "type": [kind], "text": [text]}


_TITLES = ("Shrinkage λ", "Exponent q", "Temperature T")


def _slider(title: str, ends: tuple[float, float], start: float, log: bool) -> Slider:
    """A slider over a range, in log10 where it says so; a range that is a point has one that cannot be moved."""
    digits = 4 if title == _TITLES[0] else 3
    low, high = (float(np.log10(end)) for end in ends) if log else ends
    fixed = low == high
    code = (
        f"return String(Number((10 ** tick).toPrecision({digits})))"
        if log
        else "return String(Number(tick.toFixed(3)))"
    )
    return Slider(
        title=title,
        start=low,
        end=high if not fixed else low + 1e-6,
        value=float(np.clip(np.log10(start) if log else start, low, high)),
        step=max((high - low) / 400, 1e-7) if log else 0.005,
        format=CustomJSTickFormatter(code=code),
        bar_color=ACCENT,
        disabled=fixed,
        visible=not (fixed and title == _TITLES[2]),
        sizing_mode="stretch_width",
        name=title.split()[0].lower(),
    )


def _rounded(value: float, digits: int, kind: str, ends: tuple[float, float]) -> float:
    """The number with so many digits (kind "g") or decimals ("f"), or with as many more as keep it in the range."""
    value = float(np.clip(value, *ends))
    found = (float(f"{value:.{more}{kind}}") for more in range(digits, 18))
    return next((each for each in found if ends[0] <= each <= ends[1]), value)


def _spread(seen: View) -> str:
    """What to call an interval where it is not that of a posterior."""
    return f"spread at T = {seen.temperature:g}, not a credible interval"


def _card(*children: Any) -> Column:
    return Column(*children, sizing_mode="stretch_width", styles=_CARD)


def _text(name: str, text: str = "") -> Div:
    return Div(text=text, name=name, stylesheets=[_TEXT], disable_math=True, sizing_mode="stretch_width")


def _title(title: str, more: str) -> Div:
    return _text(title, f"<h2>{title}</h2> <span class=faint>{more}</span>")
