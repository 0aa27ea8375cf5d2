"""Controls and panels of the page, and how they are arranged."""

# Bokeh's own annotations are narrower than the values it accepts.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

from typing import Any

import numpy as np
from bokeh.model import Model
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

from ggmflow.explorer import texts
from ggmflow.explorer.panels.associations import Forest, PairPosterior
from ggmflow.explorer.panels.edge_table import EdgeTable
from ggmflow.explorer.panels.network import Network
from ggmflow.explorer.panels.plane import EdgeCounts, Plane
from ggmflow.explorer.panels.style import ACCENT
from ggmflow.explorer.prepared import Prepared
from ggmflow.explorer.state import RULES
from ggmflow.storage.package_files import package_text

_BOX = {"background": "#ffffff", "border": "1px solid #e1e6eb", "border-radius": "8px", "padding": "10px 12px"}
_PAGE = {"background": "#f4f6f8", "padding": "10px 12px 14px", "min-height": "100vh", "box-sizing": "border-box"}
_WIDE: dict[str, Any] = {"sizing_mode": "stretch_width"}


class Controls:
    """Sliders, menus, buttons and the search field."""

    def __init__(self, prepared: Prepared):
        model, (lam, q, temperature) = prepared.model, prepared.start
        self.lam = _log_slider("Shrinkage λ", model.lam_range_, lam, digits=4)
        self.q = _slider("Exponent q", model.q_range_, q, step=0.005, code="return String(Number(tick.toFixed(3)))")
        self.temperature = _log_slider("Temperature T", model.temperature_range_, temperature, digits=3)
        self.temperature.visible = not self.temperature.disabled
        if model.temperatures_ and not self.temperature.disabled:
            self.temperature.step = self.temperature.end - self.temperature.start
        self.rule = Select(
            options=[(value, entry.label) for value, entry in RULES.items()],
            value=next(iter(RULES)),
            title="Edge rule",
            name="rule",
            **_WIDE,
        )
        self.best = Button(
            label="Go to the highest evidence", visible=prepared.surface is not None, name="best", **_WIDE
        )
        self.search = AutocompleteInput(
            completions=list(model.scatter_.names),
            placeholder="Find a variable …",
            case_sensitive=False,
            search_strategy="includes",
            min_characters=1,
            width=180,
            name="search",
        )
        self.clear = Button(label="Clear", width=70, name="clear")
        self.save_graph = Button(label="Graph (GraphML)", name="graph", **_WIDE)
        self.save_table = Button(label="Table (CSV)", name="table", **_WIDE)
        self.save_figure = Button(label="Figure (SVG)", name="figure", **_WIDE)
        self.clear.js_on_click(CustomJS(args={"search": self.search}, code=package_text("explorer/clear_search.js")))
        self.file = ColumnDataSource({"name": [""], "type": [""], "text": [None]})
        self.file.js_on_change("data", CustomJS(args={"source": self.file}, code=package_text("explorer/save_file.js")))
        for widget in (*self.sliders, self.rule, self.best, self.search, self.clear, *self.downloads):
            widget.update(stylesheets=[package_text("explorer/page.css")], css_classes=["control"])

    @property
    def sliders(self) -> list[Slider]:
        """λ, q and temperature."""
        return [self.lam, self.q, self.temperature]

    @property
    def downloads(self) -> list[Button]:
        """Buttons that save a file."""
        return [self.save_graph, self.save_table, self.save_figure]


class Panels:
    """All panels, and the texts that change."""

    def __init__(self, prepared: Prepared):
        model = prepared.model
        self.network = Network(model.scatter_.names, model.query_, prepared.positions)
        self.plane = Plane(model.lam_range_, model.q_range_, prepared.surface)
        self.counts = EdgeCounts(model.lam_range_)
        self.forest, self.posterior, self.table = Forest(), PairPosterior(), EdgeTable()
        names = ("head", "evidence", "state", "trust", "clicked", "listed", "chosen")
        self.texts = {name: _text(name) for name in names}
        self.texts["head"].text = texts.page_heading(prepared)
        self.texts["evidence"].text = texts.evidence_heading(prepared)

    @property
    def models(self) -> list[Model]:
        """The models whose properties are set while the page is shown."""
        panels = (self.network, self.plane, self.counts, self.forest, self.posterior)
        return [*(model for panel in panels for model in panel.models), self.table.table, *self.texts.values()]


def make_page(prepared: Prepared, controls: Controls, panels: Panels, unseen: list[Model]) -> Column:
    """Arrange controls and panels in three columns that wrap on narrow screens.

    Parameters
    ----------
    prepared, controls, panels
        The contents of the page.
    unseen
        Data sources that nothing draws: they belong to the page only if something refers to them.
    """
    save = CustomJS(args={"plot": panels.network.figure}, code=package_text("explorer/save_network.js"))
    controls.save_figure.js_on_event("button_click", save)
    shown = panels.texts
    shown["state"].styles = {"flex": "1 1 260px"}
    left = Column(
        _box(*controls.sliders, controls.rule, controls.best),
        _box(shown["evidence"], panels.plane.figure),
        _box(_text("along λ", texts.heading("Edges along λ", "at this q and T")), panels.counts.figure),
        styles={"flex": "0 0 300px", "gap": "10px"},
    )
    centre = Column(
        Row(shown["state"], controls.search, controls.clear, styles={"flex-wrap": "wrap"}, **_WIDE),
        panels.network.figure,
        _text("legend", texts.LEGEND),
        shown["trust"],
        styles=_BOX | {"flex": "1 1 520px", "min-height": "560px"},
        sizing_mode="stretch_height",
    )
    wide = {"flex": "1 1 380px"}
    right = Row(
        _box(shown["listed"], panels.table.table, Row(*controls.downloads, spacing=6, **_WIDE), **wide),
        _box(shown["chosen"], panels.forest.figure, **wide),
        _box(shown["clicked"], panels.posterior.figure, **wide),
        styles={"flex": "1 1 400px", "flex-wrap": "wrap", "gap": "10px", "align-content": "flex-start"},
    )
    main = Row(left, centre, right, styles={"flex-wrap": "wrap", "gap": "10px"}, **_WIDE)
    return Column(shown["head"], main, tags=unseen, styles=_PAGE | {"gap": "8px"}, **_WIDE)


def _box(*children: Any, **styles: str) -> Column:
    return Column(*children, styles=_BOX | styles, **_WIDE)


def _text(name: str, text: str = "") -> Div:
    style = {"stylesheets": [package_text("explorer/page.css")], "css_classes": ["text"]}
    return Div(text=text, name=name, disable_math=True, **style, **_WIDE)


def _log_slider(title: str, ends: tuple[float, float], start: float, digits: int) -> Slider:
    """A slider of log10, which shows the number itself with so many digits."""
    low, high = (float(np.log10(end)) for end in ends)
    code = f"return String(Number((10 ** tick).toPrecision({digits})))"
    return _slider(title, (low, high), float(np.log10(start)), step=max((high - low) / 400, 1e-7), code=code)


def _slider(title: str, ends: tuple[float, float], start: float, step: float, code: str) -> Slider:
    """A slider over a range; if the range is a single value it cannot be moved."""
    low, high = ends
    return Slider(
        title=title,
        start=low,
        end=high if high > low else low + 1e-6,
        value=float(np.clip(start, low, high)),
        step=step,
        format=CustomJSTickFormatter(code=code),
        bar_color=ACCENT,
        disabled=low == high,
        **_WIDE,
    )
