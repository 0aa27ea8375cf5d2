"""Items of `benchmarks.continuum`: what they compare, and that they run."""

import io

import numpy as np
import pytest
from rich.console import Console

from benchmarks import continuum
from benchmarks.accuracy import Fit, QuantileErrors
from benchmarks.problems import PLAIN, SETTINGS, TABLES
from benchmarks.report import Report


def run(item, quick=True):
    text = io.StringIO()
    report = Report(Console(file=text, width=160), None)
    getattr(continuum.Benchmark(report, quick), f"run_{item}")()
    return report.lines, text.getvalue()


@pytest.mark.parametrize("problem", TABLES, ids=lambda problem: problem.name)
def test_real_tables_have_the_stated_size(problem):
    assert problem.X.shape == (problem.n, problem.d) and np.isfinite(problem.X).all()
    low, high = problem.lam_range
    assert all(low <= lam <= high for lam, _ in problem.points)


def test_marginals_may_be_no_worse_than_without_shipped_weights(monkeypatch):
    """The bar of default settings is what the fit without shipped weights reaches in the same run."""
    error = {"steps=0": 0.3, "default": 0.2, PLAIN: 0.1}
    options = {str(sorted(({"steps": 50} | each).items())): name for name, each in SETTINGS.items()}
    monkeypatch.setattr(
        continuum, "timed_fit", lambda problem, **given: Fit(options[str(sorted(given.items()))], 1.0, 1.0)
    )
    monkeypatch.setattr(continuum, "quantile_errors", lambda name, _: [QuantileErrors(error[name], 0.05, 0.01)] * 3)
    lines, text = run("marginals")
    found = {line["setting"]: line for line in lines if line["what"] == "diabetes: plain draws"}
    assert {name: line["value"] for name, line in found.items()} == error | {"exact sampler": 0.01}
    assert found["default"]["bar"] == "≤ 0.100" and not found["default"]["passed"]
    assert "0.200  ≤ 0.100 ✗" in text
    weighted = [line for line in lines if line["what"] == "diabetes: weighted draws" and line["setting"] == "default"]
    assert weighted[0]["passed"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fit_of_every_setting_is_measured():
    lines, _ = run("d30")
    for what in ("seconds to fit", "mean gap", "median ESS"):
        assert [line["setting"] for line in lines if line["what"] == what] == list(SETTINGS), what
    steps = {line["setting"]: line["value"] for line in lines if line["what"] == "steps"}
    assert steps == {"steps=0": 0, "default": 50, PLAIN: 50}


def test_an_unknown_item_is_an_error(capsys):
    with pytest.raises(SystemExit):
        continuum.main(["--only", "toys"])
    assert "unknown item toys" in capsys.readouterr().err
