"""The program: demo, help, completion, exit codes, and what is loaded."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ggmflow
from ggmflow.cli.app import app
from tests.support import models
from tests.support.command_line import refused, run

pytestmark = pytest.mark.usefixtures("jax_as_users_have_it")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
@pytest.mark.parametrize("command", ["--version", "summary", "summary --json", "export --format csv"])
def test_full_standard_output_gives_a_one_line_error(fitted, command):
    words = command.split()
    run = [] if command == "--version" else [str(fitted[0])]
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "ggmflow", *words[:1], *run, *words[1:]],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert process.returncode == 2
    assert process.stderr.strip().splitlines()[-1] == "Error: cannot write the output: No space left on device"
    assert "Traceback" not in process.stderr


# ----------------------------------------------------------------------------------------------------------------- demo
@pytest.mark.slow
def test_demo_prints_a_summary_and_writes_figures(tmp_path):
    output = tmp_path / "new" / "demo"
    with models.untrained_priors():
        result = run(app, ["demo", "-o", str(output), "--n-features", "5", "--n-samples", "20", "--steps", "25"])
    assert result.exit_code == 0, result.output
    assert re.search(r"Trained after 25 steps and \d+ s", result.output)
    printed = " ".join(result.output.split())
    assert re.search(r"Evidence is highest at λ = [\d.]+ for q = 1 and λ = [\d.]+ for q = 0\.5", printed)
    assert re.search(r"\(not trained: the flow answers as shipped\)\. Evidence is highest at λ = [\d.]+, q =", printed)
    assert "90 % interval, q = 0.5" in result.output
    assert re.search(r"differ from the graphical lasso by \d\.\d\d\d", " ".join(result.output.split()))
    assert "How far to trust this: Pareto k̂ is" in result.output
    assert "A real table 442 patients, 10 measurements" in " ".join(result.output.split())
    assert re.search(r"Strongest edges \(8 of \d+\)", result.output)
    assert "Warning" not in result.output
    assert sorted(path.name for path in output.iterdir()) == [
        "diabetes.csv",
        "intervals.png",
        "network.png",
        "path.png",
        "report.html",
    ]
    for path in output.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_failed_demo_gives_a_one_line_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    refused(["demo", "-o", tmp_path / "file" / "demo"], "cannot use .*demo: Not a directory")

    def fail(*arguments):
        raise FloatingPointError("training failed: no [luck]")

    monkeypatch.setattr("ggmflow.cli.demo._fit", fail)
    result = run(app, ["demo", "-o", str(tmp_path)])
    assert result.exit_code == 2
    assert result.stderr == "Error: training failed: no [luck]\n"


# ---------------------------------------------------------------------------------------------------------- the program
MISTAKES = ["demo --n-features 1", "demo --seed -1", "demo --steps -1", "demo --n-samples many", "dmeo", "fit"]


MISTAKES += ["export run --format xml", "explore run --port 0", "summary run --top 0", "fit x.csv --missing guess"]


@pytest.mark.parametrize("arguments", MISTAKES)
def test_mistyped_command_gives_a_one_line_error(arguments):
    refused(arguments.split(), r"\(see \S+( \w+)? --help\)$")


def test_version_and_help_with_examples():
    assert run(app, ["--version"]).output.strip() == f"ggmflow {ggmflow.__version__}"
    help = run(app, ["--help"]).output
    for command in ("fit", "summary", "report", "explore", "export", "demo"):
        assert re.search(rf"│ {command} ", help)
        assert re.search(rf"Examples\s+ggmflow {command}", run(app, [command, "--help"]).output)
    assert "--install-completion" in help


def test_help_and_completion_load_no_slow_packages():
    code = "import sys, ggmflow.cli.app; print([m for m in ('jax', 'pandas', 'matplotlib') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout == "[]\n", result.stderr
    environment = {"_GGMFLOW_COMPLETE": "complete_bash", "COMP_WORDS": "ggmflow re", "COMP_CWORD": "1"}
    program_file = Path(sys.executable).with_name("ggmflow")
    result = subprocess.run([program_file], capture_output=True, text=True, timeout=60, env=os.environ | environment)
    assert result.stdout.split() == ["report"]


# Arguments of commands that print or fail, and the exit code: {d} is a directory with the files that they name.
ANSWERED_AT_ONCE = {
    "version": ("--version", 0),
    "help": ("--help", 0),
    "help of fit": ("fit --help", 0),
    "no file": ("fit {d}/nowhere.csv -o {d}/new", 2),
    "range of words": ("fit {d}/table.csv --lam abc -o {d}/new", 2),
    "negative": ("fit {d}/table.csv --lam -1,2 -o {d}/new", 2),
    "q": ("fit {d}/table.csv --q 5 -o {d}/new", 2),
    "cold": ("fit {d}/table.csv --temperature 0.01,0.5 -o {d}/new", 2),
    "resume and force": ("fit {d}/table.csv --resume --force -o {d}/new", 2),
    "query": ("fit {d}/table.csv --query nobody -o {d}/new", 2),
    "drop": ("fit {d}/table.csv --drop nobody -o {d}/new", 2),
    "text": ("fit {d}/text.csv -o {d}/new", 2),
    "missing value": ("fit {d}/missing.csv -o {d}/new", 2),
    "nonparanormal": ("fit {d}/text.csv --transform nonparanormal -o {d}/new", 2),
    "fit over a fit": ("fit {d}/table.csv -o {d}/run", 2),
    "other files": ("fit {d}/table.csv -o {d}", 2),
    "summary of nothing": ("summary {d}/nowhere", 2),
    "summary of no run": ("summary {d}", 2),
    "summary of half a run": ("summary {d}/run", 2),
    "level": ("summary {d}/finished --level 2", 2),
    "lam outside": ("summary {d}/finished --lam 99", 2),
    "report of nothing": ("report {d}/nowhere", 2),
    "report of half a run": ("report {d}/run", 2),
    "report outside": ("report {d}/finished --q 1.5", 2),
    "export of nothing": ("export {d}/nowhere --format csv", 2),
    "explorer of nothing": ("explore {d}/nowhere", 2),
    "explorer of text": ("explore {d}/text.csv", 2),
    "explorer of no run": ("explore {d}", 2),
}


SLOW_TO_LOAD = ["jax", "pandas", "sklearn", "scipy", "matplotlib", "bokeh"]


def test_commands_that_only_print_or_fail_load_no_slow_packages(table, tmp_path):
    """All in one process: the test names the first command that loads a slow package, and those after it."""
    (tmp_path / "text.csv").write_text("a,b\n1,2\n3,high\n2,1\n")
    (tmp_path / "missing.csv").write_text("a,b\n1,2\n3,\n2,4\n")
    record = {"kind": "ggmflow run", "format": 1, "command": "ggmflow fit table.csv", "seconds": 1.0}
    record |= {"versions": {}, "parameters": {}, "data": {"rows": 50, "columns": list("abcd"), "file": "table.csv"}}
    finished = {"chosen": {"lam": 2.0, "q": 1.0, "at_boundary": []}}
    finished |= {"ranges": {"lam": [0.5, 8.0], "q": [0.25, 1.25], "temperature": [1.0, 1.0]}}
    for name, more in {"run": {"status": "interrupted"}, "finished": {"status": "finished", **finished}}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps(record | more))
    code = """
import json, sys
from typer.testing import CliRunner
from ggmflow.cli.app import app
for name, words in json.loads(sys.argv[1]).items():
    result = CliRunner().invoke(app, words)
    loaded = [module for module in json.loads(sys.argv[2]) if module in sys.modules]
    print(json.dumps([name, result.exit_code, result.output.count(chr(10)), loaded]))
"""
    given = {name: [word.format(d=tmp_path) for word in words.split()] for name, (words, _) in ANSWERED_AT_ONCE.items()}
    command = [sys.executable, "-c", code, json.dumps(given), json.dumps(SLOW_TO_LOAD)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    found = {name: more for name, *more in map(json.loads, result.stdout.splitlines())}
    assert set(found) == set(given), result.stderr
    assert {name: loaded for name, (_, _, loaded) in found.items() if loaded} == {}
    assert {name: code for name, (code, *_) in found.items()} == {n: code for n, (_, code) in ANSWERED_AT_ONCE.items()}
    assert all(lines == 1 for code, lines, _ in found.values() if code == 2), found


def program(*arguments, **environment):
    command = [sys.executable, "-m", "ggmflow", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | environment)


@pytest.mark.slow
def test_exit_codes_and_streams_of_the_program(fitted, tmp_path):
    """Exit codes and streams of the process itself."""
    result = program("fit", tmp_path / "nowhere.csv")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1
    result = program("summary", fitted[0], "--json")
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout)["status"] == "finished"


def test_shell_completion_lists_the_commands():
    environment = {"_PYTHON _M GGMFLOW_COMPLETE": "", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    result = program("--show-completion", "bash", **environment)
    assert result.returncode == 0 and "COMPREPLY" in result.stdout and "ggmflow" in result.stdout
