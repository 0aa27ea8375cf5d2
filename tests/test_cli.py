"""The commands as users type them: exit code, message, files."""

import re

import jax
import pytest
from typer.testing import CliRunner

import ggmflow
from ggmflow.cli import app

run = CliRunner().invoke


@pytest.fixture(autouse=True)
def jax_as_users_have_it():
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    yield
    jax.config.update("jax_numpy_dtype_promotion", "strict")


def test_demo_prints_a_summary_and_writes_figures(tmp_path):
    output = tmp_path / "new" / "demo"
    result = run(app, ["demo", "-o", str(output), "--n-features", "5", "--n-samples", "20", "--steps", "25"])
    assert result.exit_code == 0, result.output
    assert re.search(r"Trained after 25 steps and \d+ s", result.output)
    assert re.search(r"Evidence is highest at λ = \d+\.\d\d, q = \d\.\d\d", " ".join(result.output.split()))
    assert "90 % interval, q = 0.5" in result.output
    assert re.search(r"differ from the graphical lasso by \d\.\d\d\d", " ".join(result.output.split()))
    assert "How far to trust this: Pareto k̂ is" in result.output
    assert "No training steps were skipped" in " ".join(result.output.split())
    assert "Warning" not in result.output
    assert sorted(path.name for path in output.iterdir()) == ["intervals.png", "network.png", "path.png"]
    for path in output.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")


MISTAKES = ["demo --n-features 1", "demo --seed -1", "demo --steps 0", "demo --n-samples many", "dmeo"]


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_one_message_and_exit_code_2(arguments):
    result = run(app, arguments.split())
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_an_output_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    result = run(app, ["demo", "-o", str(tmp_path / "file" / "demo")])
    assert result.exit_code == 2
    assert result.output.startswith("Cannot write to") and result.output.count("\n") == 1


def test_a_failed_fit_is_one_line(tmp_path, monkeypatch):
    def fail(*arguments):
        raise FloatingPointError("training failed: no [luck]")

    monkeypatch.setattr("ggmflow.cli._fit", fail)
    result = run(app, ["demo", "-o", str(tmp_path)])
    assert result.exit_code == 2
    assert result.output.endswith("\ntraining failed: no [luck].\n")


def test_version_and_help():
    assert run(app, ["--version"]).output.strip() == f"ggmflow {ggmflow.__version__}"
    assert "demo" in run(app, ["--help"]).output
    assert "Example" in run(app, ["demo", "--help"]).output
