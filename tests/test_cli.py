"""The commands as users type them: exit code, message, files."""

import re

import pytest
from typer.testing import CliRunner

import ggmflow
from ggmflow.cli import app

run = CliRunner().invoke


def test_demo_prints_a_summary_and_writes_figures(tmp_path):
    result = run(app, ["demo", "-o", str(tmp_path / "new" / "demo"), "--n-features", "5", "--draws", "50"])
    assert result.exit_code == 0, result.output
    assert re.search(r"split-R̂ 1\.\d+", result.output)
    assert "90 % interval, q = 0.5" in result.output
    for name in ("intervals.png", "networks.png"):
        assert (tmp_path / "new" / "demo" / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments", [["demo", "--n-features", "1"], ["demo", "--seed", "-1"], ["demo", "--draws", "many"], ["dmeo"]]
)
def test_a_mistake_is_one_message_and_exit_code_2(arguments, tmp_path):
    result = run(app, arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_an_output_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    result = run(app, ["demo", "-o", str(tmp_path / "file" / "demo")])
    assert result.exit_code == 2
    assert "Cannot write to" in result.output
    assert "Traceback" not in result.output


def test_version_and_help():
    assert run(app, ["--version"]).output.strip() == f"ggmflow {ggmflow.__version__}"
    assert "demo" in run(app, ["--help"]).output
    assert "Example" in run(app, ["demo", "--help"]).output
