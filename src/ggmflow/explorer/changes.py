"""What a move changes on the page: collected, sent as one message, and set there at once.

Bokeh alone sends a message for every property that changes, 122 frames of the websocket for a move at 30 variables, and
lays out the whole page anew for every text. Here panels say what should be shown; what is new of it goes to the browser
as one JSON text, and a short script sets it without telling the server, which knows already. Properties that a person
changes on the page (sliders, selections) are none of these: they stay Bokeh's.
"""

# Bokeh's own annotations are narrower than what it accepts.
# pyright: reportArgumentType=false

import json
from math import isfinite
from typing import Any

import numpy as np
from bokeh.document import Document
from bokeh.model import Model
from bokeh.models import ColumnDataSource, CustomJS

# Texts are put into the page by hand: for Bokeh they are a reason to lay everything out again.
_SET = """
for (const [id, properties] of Object.entries(JSON.parse(mail.data.text[0]))) {
  const model = models[id]
  const text = properties.text == null ? null : cb_context.index.find_one_by_id(id)?.markup_el
  if (text == null) {
    model.setv(properties, {sync: false, check_eq: false})
  } else {
    model.setv(properties, {silent: true})
    text.innerHTML = properties.text
    const [host, row] = [text.getRootNode().host, text.querySelector("tr.on")]
    if (row != null) {  // a chosen row is to be seen
      const [top, bottom] = [row.offsetTop - row.offsetHeight, row.offsetTop + row.offsetHeight]
      if (top < host.scrollTop) host.scrollTop = top
      else if (bottom > host.scrollTop + host.clientHeight) host.scrollTop = bottom - host.clientHeight
    }
  }
}
"""


class Changes:
    """What the page shows, and what of it the browser does not have yet.

    Parameters
    ----------
    doc
        Of the page.
    models
        All whose properties will be set here.
    """

    def __init__(self, doc: Document, models: list[Model]):
        self.known: dict[str, Model] = {model.id: model for model in models}
        self.shown: dict[str, dict[str, Any]] = {model.id: {} for model in models}
        self.new: dict[str, dict[str, Any]] = {}
        self.live = False  # before the page is there, models are as they are sent to it
        self.mail = ColumnDataSource({"text": ["{}"]})
        self.mail.js_on_change("data", CustomJS(args={"mail": self.mail, "models": self.known}, code=_SET))
        doc.on_event("document_ready", lambda event: self.begin())

    def set(self, model: Model, **properties: Any) -> None:
        """Have these properties shown; columns of data may be arrays."""
        for name, value in properties.items():
            if name == "data":
                value = {key: _plain(column) for key, column in value.items()}
            if self.shown[model.id].get(name) != value:
                self.shown[model.id][name] = value
                self.new.setdefault(model.id, {})[name] = value

    def get(self, model: Model, name: str) -> Any:
        """What is shown."""
        return self.shown[model.id][name]

    def send(self) -> None:
        """Show what was set since the last time."""
        if self.live and self.new:
            self.mail.data = {"text": [json.dumps(self.new, ensure_ascii=False, allow_nan=False)]}
        elif not self.live:
            for key, properties in self.new.items():
                self.known[key].update(**properties)
        self.new = {}

    def begin(self) -> None:
        """The page is there: what it was sent while it loaded may be old."""
        self.live, self.new = True, {key: dict(properties) for key, properties in self.shown.items() if properties}
        self.send()


def _plain(column: Any) -> list[Any]:
    """A list that JSON can hold: what is not a number becomes null, which Bokeh draws as nothing."""
    values = np.asarray(column).tolist()
    return [None if isinstance(each, float) and not isfinite(each) else each for each in values]
