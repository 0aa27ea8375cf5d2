"""Where the seconds of a fit go."""

import io

import pytest
from rich.console import Console

from benchmarks import seconds
from benchmarks.one_fit import PHASES, Span, split_seconds
from benchmarks.problems import PLAIN, SETTINGS
from benchmarks.report import Report

READINGS = [(0.0, 0.0), (10.0, 20.0)]  # two cores busy


def test_every_second_counts_once():
    """A trace within a trace counts once, and a compilation within it as compiling."""
    spans = [
        Span("import", 0.0, 2.0),
        Span("trace", 4.0, 4.5),
        Span("compile", 5.0, 6.0),
        Span("trace", 3.0, 7.0),
        Span("lower", 7.0, 7.5),
    ]
    found = split_seconds(spans, READINGS)
    assert found["wall"] == pytest.approx({"import": 2, "trace": 3, "lower": 0.5, "compile": 1, "run": 3.5})
    assert found["cpu"] == pytest.approx({name: 2 * value for name, value in found["wall"].items()})


def test_spans_are_cut_at_the_ends():
    """A duration that JAX rounds up cannot make the sum longer than the process."""
    found = split_seconds([Span("compile", -1.0, 1.0), Span("trace", 9.0, 11.0)], READINGS)
    assert found["wall"] == pytest.approx({"import": 0, "trace": 1, "lower": 0, "compile": 1, "run": 8})


def fake_fit(table, fit):
    part = {0: 1.0, None: 3.0}[fit.get("steps")] if fit.get("pretrained", True) else 10.0
    spent = dict.fromkeys(PHASES, part / len(PHASES))
    return {"wall": spent, "cpu": spent, "programs": 2, "steps": 0}


def test_ratios_are_those_to_the_fit_without_shipped_weights(monkeypatch):
    monkeypatch.setattr(seconds, "fresh_fit", fake_fit)
    text = io.StringIO()
    report = Report(Console(file=text, width=160), None)
    seconds.run_seconds(report, quick=False)
    ratios = {line["setting"]: line for line in report.lines if line["what"].startswith("CPU seconds, ratio")}
    assert {name: line["value"] for name, line in ratios.items()} == pytest.approx(
        {"steps=0": 0.1, "default": 0.3, PLAIN: 1.0}
    )
    assert ratios["steps=0"]["passed"] and ratios["default"]["passed"] and not ratios[PLAIN]["bar"]
    assert "0.300  ≤ 0.4 ✓" in text.getvalue()


@pytest.mark.slow
def test_fresh_processes_are_measured():
    found = seconds.measure_seconds(quick=True)
    assert list(found) == list(SETTINGS)
    for setting, fit in found.items():
        for kind in ("wall", "cpu"):
            assert list(fit[kind]) == list(PHASES) and all(value > 0 for value in fit[kind].values()), (setting, kind)
        assert fit["programs"] > 0 and fit["steps"] == (0 if setting == "steps=0" else seconds.QUICK_STEPS)
