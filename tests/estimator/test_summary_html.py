"""The view of a model in a notebook."""

import pickle

import numpy as np
import pytest

import ggmflow as gf
from ggmflow.model.conditions import Boundary, Choice
from ggmflow.posterior.flow_source import FlowSource
from ggmflow.train.loop import Report, Trained
from tests.support.models import TABLE, quick


def test_showing_a_model_does_not_draw(model, monkeypatch):
    def fail(*args):
        raise AssertionError("drawn")

    monkeypatch.setattr(FlowSource, "sample", fail)
    fitted = gf.GraphicalFlow(query="<b>x</b>")
    assert "&lt;b&gt;x" in fitted._repr_html_() and "Fitted" not in fitted._repr_html_()
    shown = pickle.loads(pickle.dumps(model("full")))._repr_mimebundle_()
    assert "Fitted to 20 rows of 4 variables" in shown["text/html"]
    assert shown["text/plain"].startswith("GraphicalFlow(")


def test_a_notebook_shows_data_ranges_and_choice(untrained):
    evil = "<script>alert(1)</script>"
    fitted = quick().fit(TABLE.rename(columns={"a": evil, "b": "$x$"}))
    for some in (fitted, quick(query=[evil]).fit(TABLE.rename(columns={"a": evil})), quick(query=evil)):
        shown = some._repr_html_()
        assert "<script" not in shown and "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
        assert "http" not in shown and "mathjax_ignore" in shown  # nothing to load, no name typeset
    shown = fitted._repr_html_()
    assert "λ 0.5 … 8" in shown and "select() finds it" in shown
    assert "Good: 100 % of draws" in shown
    fitted._choice = Choice(2.0, 0.5, (Boundary("q", "high"),))
    assert "λ = 2, q = 0.5, at the upper end of q" in fitted._repr_html_()


@pytest.mark.parametrize(
    ("status", "ess", "skipped", "verdict"),
    [
        ("finished", 0.4, 0, "Good: 40 %"),
        ("finished", 0.05, 0, "Fair: 5 %"),
        ("finished", 0.001, 0, "Poor: 0.1 %"),
        ("finished", np.nan, 0, "Poor: nan %"),
        ("interrupted", 0.4, 0, "Caution: training was interrupted; 40 %"),
        ("finished", 0.4, 20, "Caution: 20 steps were skipped"),
    ],
)
def test_a_notebook_shows_a_verdict_on_training(untrained, status, ess, skipped, verdict):
    fitted = quick().fit(TABLE)
    fitted._keep(Trained(fitted.flow_, {}, [Report(100, 100, -1.0, ess, skipped)], status))
    assert verdict in fitted._repr_html_()
