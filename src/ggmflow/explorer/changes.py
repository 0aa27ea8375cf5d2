"""Changes of the page, collected and sent to the browser as one message.

Bokeh sends a message for every property that changes, 122 frames of the websocket for a move at 30 variables, and lays
out the whole page again for every text. Here panels set the properties that should be shown. Those that differ from the
properties shown before go to the browser as one JSON text, and `set_properties.js` sets them without sending them back.
Properties that the user changes on the page (sliders, selections) are left to Bokeh.
"""

# Bokeh's own annotations are narrower than the values it accepts.
# pyright: reportArgumentType=false

import json
from math import isfinite
from typing import Any

import numpy as np
from bokeh.document import Document
from bokeh.model import Model
from bokeh.models import ColumnDataSource, CustomJS

from ggmflow.storage.package_files import package_text


class Changes:
    """The properties that the page shows, and those that the browser does not have yet.

    Parameters
    ----------
    doc
        The page's document.
    models
        All models whose properties will be set here.
    """

    def __init__(self, doc: Document, models: list[Model]):
        self.models: dict[str, Model] = {model.id: model for model in models}
        self.shown: dict[str, dict[str, Any]] = {model.id: {} for model in models}
        self.new: dict[str, dict[str, Any]] = {}
        self.live = False  # until the page is loaded, properties are set on the models that Bokeh sends to it
        self.message = ColumnDataSource({"text": ["{}"]})
        script = CustomJS(
            args={"message": self.message, "models": self.models}, code=package_text("explorer/set_properties.js")
        )
        self.message.js_on_change("data", script)
        doc.on_event("document_ready", lambda event: self.begin())

    def set(self, model: Model, **properties: Any) -> None:
        """Set properties of a model; columns of data may be arrays."""
        for name, value in properties.items():
            if name == "data":
                value = {key: _plain(column) for key, column in value.items()}
            if self.shown[model.id].get(name) != value:
                self.shown[model.id][name] = value
                self.new.setdefault(model.id, {})[name] = value

    def get(self, model: Model, name: str) -> Any:
        """The value of a property that is shown."""
        return self.shown[model.id][name]

    def send(self) -> None:
        """Show the properties that were set since the last time."""
        if self.live and self.new:
            self.message.data = {"text": [json.dumps(self.new, ensure_ascii=False, allow_nan=False)]}
        elif not self.live:
            for key, properties in self.new.items():
                self.models[key].update(**properties)
        self.new = {}

    def begin(self) -> None:
        """Send all properties when the page is loaded: those that it was loaded with may be outdated."""
        self.live, self.new = True, {key: dict(properties) for key, properties in self.shown.items() if properties}
        self.send()


def _plain(column: Any) -> list[Any]:
    """The column as a list for JSON: NaN and infinity become null, which Bokeh does not draw."""
    values = np.asarray(column).tolist()
    return [None if isinstance(each, float) and not isfinite(each) else each for each in values]
