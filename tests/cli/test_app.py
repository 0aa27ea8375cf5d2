"""The commands as users type them: exit code, message, files."""

import errno
import html
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import types
import warnings
from pathlib import Path

import filelock
import jax
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import ggmflow
from ggmflow.cli.app import app
from ggmflow.estimator import graphical_flow as estimator
from ggmflow.model.conditions import Boundary, Choice
from ggmflow.storage import archive
from tests.support import models

pytestmark = pytest.mark.usefixtures("jax_as_users_have_it")
run = CliRunner().invoke
# a → b → c, and d by itself: edges that any rule finds.
NOISE = np.random.default_rng(0).standard_normal((50, 4))
TABLE = pd.DataFrame(np.c_[NOISE[:, 0], NOISE[:, :2].sum(1), NOISE[:, :3].sum(1), NOISE[:, 3]], columns=list("abcd"))


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    TABLE.to_csv(path, index=False)
    return path


FIT = ["--lam", "0.5,8", "--steps", "100"]


@pytest.fixture(scope="module")
def fitted(shared_directory):
    """A run directory, and what the command that made it printed."""
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    path, printed = shared_directory / "cli-run", shared_directory / "cli-run.txt"
    with filelock.FileLock(f"{path}.lock"):
        if not printed.exists():
            TABLE.to_csv(shared_directory / "table.csv", index=False)
            with models.untrained_priors():
                result = run(app, ["fit", str(shared_directory / "table.csv"), "-o", str(path), *FIT])
            assert result.exit_code == 0, result.output
            printed.write_text(result.stdout, encoding="utf-8")
    return path, " ".join(printed.read_text(encoding="utf-8").split())


def refused(arguments, message, code=2):
    """One line on standard error, nothing on standard output."""
    result = run(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    assert not result.stdout
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1, result.stderr
    assert re.search(message, result.stderr), result.stderr


# ------------------------------------------------------------------------------------------------------------------ fit
def test_fit_ends_with_a_summary(fitted):
    path, printed = fitted
    assert re.search(r"Data table\.csv: 50 rows of 4 variables Check nothing unusual in the data", printed)
    time = r"(\d+ s|[\d.]+ min)"
    parts = rf"(, plus|,)( compiling| choosing λ and q| other work) {time}"
    assert re.search(
        rf"Fit trained for 100 steps in {time}({parts})*; λ from 0\.5 to 8, q from 0\.25 to 1\.25", printed
    )
    assert re.search(r"Shown at λ = [\d.]+, q = [\d.]+, the highest evidence", printed)
    assert re.search(r"Trust (Good|Fair|Poor) fit: Pareto k̂", printed)
    assert re.search(r"Edges \d of 6 pairs, by highest expected F1", printed)
    assert re.search(rf"report .*cli-run one page .*explore .*cli-run sliders .*export {path}", printed)
    assert "Warning" not in printed


@pytest.mark.slow
def test_command_line_and_python_fit_the_same_model(fitted):
    given = {"lam": (0.5, 8.0), "steps": 100, "random_state": 0, "progress": False}
    expected = ggmflow.GraphicalFlow(**given).fit(TABLE).posterior(2.0, 0.5).sample(20, random_state=0)
    found = ggmflow.load_run(fitted[0]).posterior(2.0, 0.5).sample(20, random_state=0)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_every_option_reaches_the_model(untrained, table, tmp_path):
    text = table.read_text().replace(",", ";").replace(".", ",")
    text = text.replace("\n", "\n;1,5;2;3\n", 1)  # a missing value
    (tmp_path / "excel.csv").write_text(text)
    arguments = ["fit", tmp_path / "excel.csv", "-o", tmp_path / "run", "--delimiter", ";", "--decimal", ","]
    arguments += ["--missing", "em", "--transform", "nonparanormal", "--no-standardize", "--query", "c, a"]
    arguments += ["--lam", "2", "--q", "0.5", "--temperature", "1", "--steps", "50", "--seed", "7", "--json"]
    result = run(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    model = ggmflow.load_run(tmp_path / "run")
    expected = {"lam": 2.0, "q": 0.5, "temperature": 1.0, "query": ["c", "a"], "steps": 50, "random_state": 7}
    expected |= {"missing": "em", "transform": "nonparanormal", "standardize": False}
    assert expected.items() <= model.get_params().items()
    assert model.scatter_.n == 51
    answer = json.loads(result.stdout)
    assert answer["query"] == ["c", "a"] and answer["condition"]["lam"] == pytest.approx(2.0)
    assert answer["data"]["delimiter"] == ";"
    command = json.loads((tmp_path / "run" / "run.json").read_text())["command"]
    assert "--delimiter ';' --decimal , --missing em" in command and "--no-standardize" in command
    assert "--json" not in command


def test_with_json_nothing_else_is_on_standard_output(untrained, table, tmp_path):
    arguments = ["fit", str(table), "-o", str(tmp_path / "run"), "--lam", "2", "--q", "1", "--json"]
    result = run(app, arguments)
    answer = json.loads(result.stdout)
    assert answer["status"] == "finished" and answer["run"] == str(tmp_path / "run")
    assert answer["schema"] == "ggmflow-posterior/1" and answer["n_edges"] == len(answer["edges"])
    assert run(app, arguments).exit_code == 2  # it is there already
    again = json.loads(run(app, [*arguments, "--resume"]).stdout)
    assert again["edges"] == answer["edges"]
    assert run(app, [*arguments, "--force"]).exit_code == 0


BAD_TABLES = {
    "empty": ("", "is empty"),
    "semicolons": ("a;b\n1;2\n3;5\n", "separated by semicolons, not commas: .*--delimiter ';'"),
    "tabs": ("a\tb\n1\t2\n3\t5\n", "separated by tabs, not commas: .*--delimiter 'tab'"),
    "one column": ("a\n1\n2\n", r"table\.csv' has 1 column, 'a', but at least 2 are needed"),
    "header only": ("a,b,c\n", r"table\.csv' has a header but no rows: it needs at least 2 lines of numbers"),
    "text": ("a,b\n1,2\n3,high\n", "column 'b', line 3: could not convert string to float: 'high'; encode the column"),
    "missing": ("a,b\n1,2\n3,\n2,4\n", "column 'b', line 3 is missing.*em"),
    "constant": ("a,b\n1,2\n3,2\n", "'b'"),
    "control characters": ("a,\x1b[31mb\n1,2\n3,high\n", r"column '\\x1b\[31mb', line 3"),
}


@pytest.mark.parametrize(("text", "message"), BAD_TABLES.values(), ids=BAD_TABLES.keys())
def test_bad_table_gives_a_one_line_error_and_no_files(tmp_path, text, message):
    (tmp_path / "table.csv").write_text(text)
    refused(["fit", tmp_path / "table.csv", "-o", tmp_path / "run"], message)
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_all_problems_of_a_table_are_reported_together(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("diagnosis,a,b,c\nM,1,,7\nB,2,3,7\nM,,4,7\n")
    result = run(app, ["fit", str(path), "-o", str(tmp_path / "run")])
    assert result.exit_code == 2 and not result.stdout and not (tmp_path / "run").exists()
    first, text, missing, constant, way_out = result.stderr.splitlines()
    assert first == "Error: the table cannot be used as it is, for 3 reasons:"
    assert "column 'diagnosis', line 2: could not convert string to float: 'M'" in text
    assert "leave it out with --drop 'diagnosis'" in text
    assert "column 'b', line 2 is missing (NaN; 2 in all, in 2 columns): choose --missing em" in missing
    assert constant == "- column 'c' is constant (always 7): leave it out with --drop 'c'"
    assert way_out == "To use the rest of it: --drop 'diagnosis,c' --missing em"


FAULTY = TABLE.assign(e=TABLE["b"])
FAULTY.loc[5, "d"] = 40.0


def test_data_check_is_printed_before_training(tmp_path, monkeypatch):
    """A user can read it and stop before training ends."""

    def never_ends(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(estimator, "train", never_ends)
    FAULTY.to_csv(tmp_path / "table.csv", index=False)
    result = run(app, ["fit", str(tmp_path / "table.csv"), "-o", str(tmp_path / "run"), "--lam", "2", "--q", "1"])
    assert result.exit_code == 130
    title, *printed, stopped = result.stderr.splitlines()
    assert title == "Data check" and stopped.startswith("Interrupted")
    assert printed[0] == "- columns 'b' and 'e' are identical (r = 1.000): leave out all but one with --drop 'e'"
    assert "'d' in line 7" in printed[1] and any("--transform nonparanormal" in line for line in printed)
    assert len(printed) <= 8 and result.stderr.count("identical") == 1


@pytest.mark.slow
def test_data_check_is_saved_with_the_run(untrained, tmp_path):
    FAULTY.to_csv(tmp_path / "table.csv", index=False)
    place = str(tmp_path / "run")
    result = run(app, ["fit", str(tmp_path / "table.csv"), "-o", place, "--lam", "2", "--q", "1", "--json"])
    assert result.exit_code == 0, result.output
    check = ggmflow.load_run(place).scatter_.check
    assert [finding.kind.value for finding in check.findings][:2] == ["identical", "outliers"]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["data"]["check"] == check.to_dict()
    assert json.loads(result.stdout)["data"]["check"] == check.to_dict()
    assert "Note:" not in result.stderr  # findings are not repeated as notes
    printed = " ".join(run(app, ["summary", place]).stdout.split())
    assert "Check columns 'b' and 'e' are identical (r = 1.000): leave out all but one with --drop 'e'" in printed


BAD_OPTIONS = {
    "query": (["--query", "a,bb"], "no column is named 'bb'"),
    "same query": (["--query", "a,a"], "the query names a column twice: 'a'"),
    "two lines": (["--query", "a\nb"], "names are separated by commas, in one line"),
    "two lines dropped": (["--drop", "a\nb"], "names are separated by commas, in one line"),
    "range of words": (["--lam", "low,high"], "--lam takes one number or two, low,high.*'low,high'"),
    "three numbers": (["--q", "1,2,3"], "--q takes one number or two"),
    "reversed": (["--lam", "8,2"], "the first number must not exceed the second"),
    "negative": (["--lam", "-1,2"], "lam must be a positive number"),
    "not a number": (["--lam", "nan"], "lam must be a positive number"),
    "q": (["--q", "0.01,1"], "q must lie between 0.1 and 2"),
    "hot": (["--temperature", "1,2"], "temperature must not exceed 1"),
    "cold": (["--temperature", "0.01,0.5"], "--temperature must reach 1"),
    "wrong delimiter": (["--delimiter", ";"], "separated by commas, not semicolons: .*--delimiter ','"),
    "long delimiter": (["--delimiter", "::"], "one character"),
    "two meanings": (["--decimal", ","], "--decimal ',' cannot separate both fields and decimals: .*--delimiter ';'"),
    "seed": (["--seed", "4294967296"], "Invalid value for '--seed'"),
    "steps": (["--steps", "99999999999999999999"], "Invalid value for '--steps'"),
    "tiny": (["--lam", "1e-300"], r"lam must lie between 1e-30 and 1e\+30"),
    "too cold": (["--temperature", "1e-300,1"], "temperature must be at least 1e-12"),
    "both": (["--resume", "--force"], "give only one of them"),
}


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS.keys())
def test_bad_option_gives_a_one_line_error_and_no_files(table, tmp_path, options, message):
    refused(["fit", table, "-o", tmp_path / "run", *options], message)
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_error_names_the_file_that_cannot_be_read_or_written(table, tmp_path):
    refused(["fit", tmp_path / "nowhere.csv"], r"nowhere\.csv' does not exist: give the path of a CSV file")
    refused(["fit", tmp_path], "is a directory")
    refused(["fit", table, "-o", table / "run"], r"cannot use .*table\.csv/run: Not a directory")
    refused(["fit", table, "-o", table], r"table\.csv is a file: name a directory")
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission_to_write(table, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    refused(["fit", table, "-o", closed / "run"], "Permission denied")
    assert not list(closed.iterdir())


def test_permission_denied_gives_a_one_line_error(table, tmp_path, monkeypatch):
    def denied(self, *args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", denied)
    refused(["fit", table, "-o", tmp_path / "run"], "cannot use .*run: Permission denied")


def test_failed_fit_gives_a_one_line_error(table, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise FloatingPointError("training failed: no [luck]")

    monkeypatch.setattr(ggmflow.GraphicalFlow, "fit", fail)
    refused(["fit", table, "-o", tmp_path / "run"], r"training failed: no \[luck\]")


def test_unexpected_exception_keeps_its_traceback(table, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise ValueError("a bug")

    monkeypatch.setattr(ggmflow.GraphicalFlow, "fit", fail)
    result = run(app, ["fit", str(table), "-o", str(tmp_path / "run")])
    assert result.exit_code == 1 and isinstance(result.exception, ValueError)


def test_summary_says_if_the_evidence_is_highest_at_a_boundary(untrained, table, tmp_path, monkeypatch):
    end = Choice(8.0, 1.0, (Boundary("lam", "high"),))
    monkeypatch.setattr(ggmflow.GraphicalFlow, "select", lambda self: end)
    result = run(app, ["fit", str(table), "-o", str(tmp_path / "run"), "--lam", "0.5,8"])
    assert result.exit_code == 0, result.output
    assert "Warning" not in result.stderr and "Note" not in result.stderr  # the summary says it once
    assert "The evidence is highest at the upper end of lam" in " ".join(result.stdout.split())


# -------------------------------------------------------------------------------------------------------------- summary
def test_summary_at_another_condition(fitted):
    printed = " ".join(
        run(app, ["summary", str(fitted[0]), "--lam", "3", "--q", "0.5", "--level", "0.5"]).stdout.split()
    )
    assert re.search(r"Shown at λ = 3, q = 0\.5 \(evidence prefers λ = [\d.]+, q = [\d.]+\)", printed)
    assert "50 % interval" in printed and "Edges, strongest first" in printed
    printed = run(app, ["summary", str(fitted[0]), "--top", "1"]).stdout
    assert re.search(r"Strongest edges \(1 of \d\)", printed)


TIMINGS = {
    "all parts": (
        {"compiling": 11.0, "training": 24.0, "choosing": 19.0},
        "100 steps in 24 s, plus compiling 11 s, choosing λ and q 19 s, other work 6 s;",
    ),
    "nothing chosen": (
        {"compiling": 36.0, "training": 24.0, "choosing": None},
        "100 steps in 24 s, plus compiling 36 s;",
    ),
    "training alone": ({"compiling": 0.0, "training": 59.9, "choosing": 0.0}, "100 steps in 60 s; "),
    "an earlier version": (None, "100 steps, 60 s; "),
}


@pytest.mark.parametrize(("timings", "expected"), TIMINGS.values(), ids=TIMINGS.keys())
def test_summary_shows_the_time_of_each_part(fitted, tmp_path, timings, expected):
    shutil.copytree(fitted[0], tmp_path / "run")
    record = json.loads((fitted[0] / "run.json").read_text(encoding="utf-8"))
    assert set(record["timings"]) == {"compiling", "training", "choosing"}
    del record["timings"]
    record |= {"seconds": 60.0} | ({} if timings is None else {"timings": timings})
    (tmp_path / "run" / "run.json").write_text(json.dumps(record), encoding="utf-8")
    assert expected in " ".join(run(app, ["summary", str(tmp_path / "run")]).stdout.split())
    assert json.loads(run(app, ["summary", str(tmp_path / "run"), "--json"]).stdout)["timings"] == timings


def test_summary_without_edges_shows_the_strongest_pairs(untrained, tmp_path):
    models.TABLE.to_csv(tmp_path / "table.csv", index=False)
    result = run(app, ["fit", str(tmp_path / "table.csv"), "-o", str(tmp_path / "run"), "--lam", "3", "--q", "0.5"])
    assert "Edges     0 of 6 pairs" in result.stdout
    assert "No edges; the strongest pairs, which may as well be zero" in result.stdout
    assert result.stdout.count(" – ") == 6


def test_summary_as_json_agrees_with_python(fitted):
    result = run(app, ["summary", str(fitted[0]), "--lam", "0.5", "--q", "1", "--json"])
    answer = json.loads(result.stdout)
    post = ggmflow.load_run(fitted[0]).posterior(0.5, 1.0)
    association, (lower, upper), names = post.association(), post.association_interval(0.9), list("abcd")
    assert answer["n_edges"] == np.triu(post.edges()).sum() > 1
    strengths = [abs(edge["association"]) for edge in answer["edges"]]
    assert strengths == sorted(strengths, reverse=True)
    for edge in answer["edges"]:
        at = names.index(edge["row"]), names.index(edge["column"])
        numbers = [edge[name] for name in ("association", "association_lower", "association_upper")]
        np.testing.assert_allclose(numbers, [association[at], lower[at], upper[at]])
    one = json.loads(run(app, ["summary", str(fitted[0]), "--lam", "0.5", "--q", "1", "--json", "--top", "1"]).stdout)
    assert one["edges"] == answer["edges"][:1]


COMMANDS = (["summary"], ["report"], ["explore"], ["export", "--format", "csv"])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_error_for_a_directory_that_is_not_a_run(command, tmp_path):
    refused([*command, tmp_path / "nowhere"], "nowhere does not exist: give the directory of a run")
    refused([*command, tmp_path], "is not a ggmflow run: it has no run.json")
    (tmp_path / "run.json").write_text("{")
    refused([*command, tmp_path], r"is damaged, run\.json cannot be read")
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize("command", COMMANDS[:2] + COMMANDS[3:], ids=lambda command: command[0])
def test_error_for_a_condition_outside_the_ranges(command, fitted):
    refused(
        [*command, fitted[0], "--lam", "99"],
        r"--lam 99 is outside the fitted range 0\.5 … 8: fit again with --lam 0\.5,99",
    )
    refused([*command, fitted[0], "--q", "nan"], "q must be a number")


def test_error_for_a_level_that_is_not_a_probability(fitted):
    refused(["summary", fitted[0], "--level", "90"], "--level must be a number between 0 and 1, such as 0.9, got 90")


@pytest.mark.parametrize("command", COMMANDS[:2] + COMMANDS[3:], ids=lambda command: command[0])
def test_model_with_nan_weights_gives_a_one_line_error(command, fitted, tmp_path):
    """The file is valid, but every number of the flow is NaN."""
    shutil.copytree(fitted[0], tmp_path / "run")
    header, arrays = archive.read(tmp_path / "run" / "model.ggmflow")
    for name, array in arrays.items():
        if name.startswith("flow") and array.dtype == np.float32:
            arrays[name] = array * np.nan
    archive.write(tmp_path / "run" / "model.ggmflow", header, arrays)
    name, *more = command
    result = run(app, [name, str(tmp_path / "run"), *more])
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit), result.exception
    assert result.stderr.splitlines()[-1].startswith("Error: ")


def test_names_of_columns_are_printed_as_plain_text(untrained, tmp_path):
    names = ["[red]a[/red]", "\x1b[31mb", "<script>", "[/]"]
    TABLE.set_axis(names, axis=1).to_csv(tmp_path / "table.csv", index=False)
    result = run(app, ["fit", str(tmp_path / "table.csv"), "-o", str(tmp_path / "run"), "--lam", "0.5", "--q", "1"])
    assert result.exit_code == 0, result.output
    assert "\x1b[31m" not in result.stdout and "[red]a[/red]" in result.stdout


# --------------------------------------------------------------------------------------------------------------- export
def test_exported_files_agree_with_python(fitted, tmp_path):
    post = ggmflow.load_run(fitted[0]).posterior(0.5, 1.0)
    paths = {}
    for name in ("graphml", "csv", "json"):
        paths[name] = tmp_path / f"out.{name}"
        arguments = ["export", str(fitted[0]), "--format", name, "-o", str(paths[name]), "--lam", "0.5", "--q", "1"]
        result = run(app, arguments)
        assert result.exit_code == 0, result.output
        assert result.stdout == f"Written: {paths[name]}\n"
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in paths.values()}  # nothing temporary
    graph, expected = nx.read_graphml(paths["graphml"]), post.to_networkx()
    assert set(graph.edges) == set(expected.edges) and graph.graph["rule"] == expected.graph["rule"]
    for edge in expected.edges:
        assert graph.edges[edge]["weight"] == pytest.approx(expected.edges[edge]["weight"])
    assert graph.graph["lam"] == pytest.approx(0.5) and graph.graph["q"] == 1.0
    csv, summary = pd.read_csv(paths["csv"]), post.summary()
    for name in ("row", "column", "mean", "lower", "upper", "edge", "association"):
        pd.testing.assert_series_equal(csv[name], summary[name], check_dtype=False)
    assert set(csv["rule"]) == {summary.attrs["rule"]} and set(csv["q"]) == {1.0}
    content = json.loads(paths["json"].read_text(encoding="utf-8"))
    assert content["schema"] == "ggmflow-posterior/1" and content["variables"] == list("abcd")
    assert [entry["mean"] for entry in content["entries"]] == summary["mean"].to_list()
    assert content["entries"][0]["association"] is None  # a diagonal entry has none
    assert content["diagnostics"]["message"] == post.diagnostics()["message"]


def test_export_writes_into_the_run_by_default(fitted):
    assert run(app, ["export", str(fitted[0]), "-f", "csv"]).exit_code == 0
    assert (fitted[0] / "summary.csv").exists()


def test_export_to_netcdf(fitted, tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("arviz")
    path = tmp_path / "draws.nc"
    result = run(app, ["export", str(fitted[0]), "-f", "netcdf", "-o", str(path), "--lam", "2", "--q", "1"])
    assert result.exit_code == 0, result.output
    with xarray.open_dataset(path, group="posterior") as draws:
        assert draws["precision"].dims == ("chain", "draw", "row", "column")
        expected = ggmflow.load_run(fitted[0]).posterior(2.0, 1.0).to_arviz().posterior
        np.testing.assert_array_equal(draws["precision"], expected["precision"])
    assert [path.name for path in tmp_path.iterdir()] == ["draws.nc"]


def test_without_arviz_the_error_says_what_to_install(fitted, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    refused(["export", fitted[0], "-f", "netcdf", "-o", tmp_path / "x.nc"], r"pip install 'arviz<1' h5netcdf")
    assert not list(tmp_path.iterdir())


def test_error_for_an_export_that_cannot_be_written(fitted, tmp_path):
    (tmp_path / "old.csv").write_text("old")
    refused(["export", fitted[0], "-f", "csv", "-o", tmp_path / "nowhere" / "x.csv"], "there is no such directory")
    refused(["export", fitted[0], "-f", "csv", "-o", tmp_path], "a file cannot replace a directory")
    assert [path.name for path in tmp_path.iterdir()] == ["old.csv"]


def test_graphml_export_fails_for_names_that_xml_cannot_hold(untrained, tmp_path):
    TABLE.set_axis(["a", "b\x1b", "c", "d"], axis=1).to_csv(tmp_path / "table.csv", index=False)
    path = tmp_path / "run"
    run(app, ["fit", str(tmp_path / "table.csv"), "-o", str(path), "--lam", "2", "--q", "1"])
    refused(["export", path, "-f", "graphml"], "GraphML cannot hold the name")
    assert not (path / "graph.graphml").exists()


# ----------------------------------------------------------------------------------------------------- report, explorer
@pytest.fixture
def stand_in(monkeypatch):
    """A replacement for a package that draws."""

    def put(name, **functions):
        module = types.ModuleType(f"ggmflow.{name}")
        vars(module).update(functions)
        monkeypatch.setitem(sys.modules, f"ggmflow.{name}", module)

    return put


def test_report_of_a_run(fitted, tmp_path):
    """A real report, and paths that cannot be written."""
    path = tmp_path / "report.html"
    result = run(app, ["report", str(fitted[0]), "-o", str(path), "--lam", "2", "--q", "1"])
    assert result.exit_code == 0, result.output
    assert "table.csv" in path.read_text(encoding="utf-8")
    refused(["report", fitted[0], "-o", tmp_path / "nowhere" / "x.html"], "there is no such directory")
    refused(["report", fitted[0], "-o", tmp_path], "name a file in it")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_code_in_a_report_reads_the_file_with_the_same_options(untrained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(NOISE, columns=list("abcd")).to_csv("semi.csv", sep=";", decimal=",", index=False)
    options = ["--delimiter", ";", "--decimal", ",", "--lam", "2", "--q", "1", "--no-standardize"]
    assert run(app, ["fit", "semi.csv", *options]).exit_code == 0
    assert run(app, ["report", "run", "-o", "report.html"]).exit_code == 0
    page = html.unescape(Path("report.html").read_text(encoding="utf-8"))
    code = re.search(r"fit\((gf\.Scatter\.from_data\(.*\))\)\n", page)[1]
    scatter = eval(code, {"gf": ggmflow})
    np.testing.assert_array_equal(scatter.matrix, ggmflow.load_run("run").scatter_.matrix)


def test_dropped_columns_and_row_labels_are_left_out(untrained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    TABLE.assign(id=[f"p{i}" for i in range(len(TABLE))]).to_csv("table.csv")  # pandas writes a first column of labels
    options = ["--lam", "2", "--q", "1"]
    refused = run(app, ["fit", "table.csv", *options])
    assert refused.exit_code == 2 and "column 'id'" in refused.output and "--drop 'id'" in refused.output
    result = run(app, ["fit", "table.csv", *options, "--drop", "id"])
    assert result.exit_code == 0 and "labels of the rows" in result.output
    assert ggmflow.load_run("run").scatter_.names == tuple("abcd")
    assert run(app, ["report", "run"]).exit_code == 0
    assert "drop=['id']" in html.unescape(Path("run/report.html").read_text(encoding="utf-8"))
    unknown = run(app, ["fit", "table.csv", *options, "--drop", "idd", "-o", "other"])
    assert unknown.exit_code == 2 and "did you mean 'id'" in unknown.output and not Path("other").exists()


@pytest.mark.slow
def test_note_about_a_column_that_counts_the_rows(untrained, tmp_path):
    path = tmp_path / "table.csv"
    TABLE.assign(ID=range(1001, 1001 + len(TABLE)))[["ID", *"abcd"]].to_csv(path, index=False)
    options = ["--lam", "2", "--q", "1", "-o", str(tmp_path / "run")]
    result = run(app, ["fit", str(path), *options])
    assert result.exit_code == 0
    note = "column 'ID' counts the rows, from 1001 to 1050: if these are labels, leave it out with --drop 'ID'"
    assert f"Note: {note}." in " ".join(result.stderr.split())
    again = run(app, ["fit", str(path), *options, "--force", "--drop", "ID"])
    assert again.exit_code == 0 and "counts" not in again.stderr


def test_error_says_that_a_name_with_a_comma_needs_quotes(table, tmp_path):
    path = tmp_path / "names.csv"
    TABLE.rename(columns={"a": "HLA,β"}).to_csv(path, index=False)
    refused(["fit", path, "--query", "HLA,β"], """did you mean '"HLA,β"', with double quotes?""".replace("?", r"\?"))
    refused(["fit", path, "--query", '"HLA,β'], "one with a comma is in double quotes")


def test_resuming_with_other_options_shows_the_first_command(untrained, tmp_path):
    path, place = tmp_path / "table.csv", str(tmp_path / "run")
    TABLE.mask(TABLE == TABLE.iloc[3, 2]).to_csv(path, index=False)
    options = ["-o", place, "--lam", "2", "--q", "1"]
    assert run(app, ["fit", str(path), *options, "--missing", "em"]).exit_code == 0
    refused(["fit", path, *options, "--resume"], r"is missing .* The fit in .* was begun with: .*--missing em")


def test_note_about_files_that_are_removed_with_an_earlier_fit(untrained, table, tmp_path):
    options = ["-o", str(tmp_path / "run"), "--lam", "2", "--q", "1"]
    run(app, ["fit", str(table), *options])
    run(app, ["export", str(tmp_path / "run"), "--format", "csv"])
    result = run(app, ["fit", str(table), *options, "--force"])
    assert result.exit_code == 0 and "Note: summary.csv of the earlier fit was removed." in result.stderr
    assert "removed" not in run(app, ["fit", str(table), *options, "--force"]).stderr


def test_rules_of_summary_and_export(fitted, tmp_path):
    post = ggmflow.load_run(fitted[0]).posterior()
    for rule in ("interval", "fdr"):
        result = run(app, ["summary", str(fitted[0]), "--rule", rule, "--level", "0.5", "--json"])
        found = {frozenset((edge["row"], edge["column"])) for edge in json.loads(result.stdout)["edges"]}
        chosen = post.select_edges(rule, **({"level": 0.5} if rule == "interval" else {}))
        assert found == {frozenset((post.names[i], post.names[j])) for i, j in np.argwhere(chosen.edges) if i < j}
        path = tmp_path / f"{rule}.csv"
        assert (
            run(app, ["export", str(fitted[0]), "-f", "csv", "--rule", rule, "--level", "0.5", "-o", path]).exit_code
            == 0
        )
        assert pd.read_csv(path)["edge"].sum() == len(found)


def test_options_of_report(fitted, tmp_path, stand_in):
    asked = {}

    def write_report(model, path, *, data_name=None, reading=None, lam=None, q=None):
        asked.update(names=model.scatter_.names, data_name=data_name, reading=reading, lam=lam, q=q)
        Path(path).write_text("<html>")

    stand_in("report", write_report=write_report)
    path = tmp_path / "report.html"
    result = run(app, ["report", str(fitted[0]), "-o", str(path), "--lam", "2", "--q", "1"])
    assert result.exit_code == 0, result.output
    assert result.stdout == f"Written: {path}\n" and path.read_text() == "<html>"
    assert asked == {"names": tuple("abcd"), "data_name": "table.csv", "reading": {}, "lam": 2.0, "q": 1.0}

    def full(model, path, **options):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    stand_in("report", write_report=full)
    refused(["report", fitted[0], "-o", path], "No space left on device")


def test_explore_serves_until_ctrl_c(fitted, stand_in):
    asked = {}

    def serve(model, *, port=5006, open_browser=True, data_name=None, on_begin=None, on_ready=None):
        asked.update(port=port, open_browser=open_browser, data_name=data_name)
        on_begin()
        on_ready(f"http://localhost:{port}")
        raise KeyboardInterrupt

    stand_in("explorer", serve=serve)
    result = run(app, ["explore", str(fitted[0]), "--port", "5010", "--no-browser"])
    assert result.exit_code == 0, result.output
    assert "http://localhost:5010" in result.stdout and asked == {
        "port": 5010,
        "open_browser": False,
        "data_name": "table.csv",
    }


def test_error_for_a_port_in_use_suggests_a_free_one(fitted, stand_in):
    with socket.socket() as taken:  # the real server finds out, before anything is computed
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused(["explore", fitted[0], "--port", port], rf"port {port} is in use: try --port \d+")

    def denied(model, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    stand_in("explorer", serve=denied)
    refused(["explore", fitted[0], "--port", "80"], "cannot serve at port 80: Permission denied")


def test_explorer_without_enough_memory_gives_a_one_line_error(fitted, stand_in):
    def too_large(*args, **more):
        raise MemoryError("4000 draws need at least 1 TB of memory, and 1 GB are available: ask for fewer draws")

    stand_in("explorer", serve=too_large)
    refused(["explore", fitted[0]], "4000 draws need at least 1 TB")


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
    assert re.search(r"Evidence is highest at λ = \d+\.\d\d, q = \d\.\d\d", " ".join(result.output.split()))
    assert "90 % interval, q = 0.5" in result.output
    assert re.search(r"differ from the graphical lasso by \d\.\d\d\d", " ".join(result.output.split()))
    assert "How far to trust this: Pareto k̂ is" in result.output
    assert "No training steps were skipped" in " ".join(result.output.split())
    assert "Warning" not in result.output
    assert sorted(path.name for path in output.iterdir()) == ["intervals.png", "network.png", "path.png"]
    for path in output.iterdir():
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
MISTAKES = ["demo --n-features 1", "demo --seed -1", "demo --steps 0", "demo --n-samples many", "dmeo", "fit"]
MISTAKES += ["export run --format xml", "explore run --port 0", "summary run --top 0", "fit x.csv --missing guess"]


@pytest.mark.parametrize("arguments", MISTAKES)
def test_mistyped_command_gives_a_one_line_error(arguments):
    refused(arguments.split(), r"\(see \S+( \w+)? --help\)$")


def test_boundaries_from_a_file_are_values(fitted, tmp_path):
    """A run directory of unknown origin cannot write control characters or markup to the terminal."""
    directory = tmp_path / "run"
    shutil.copytree(fitted[0], directory)
    record = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    record["chosen"]["at_boundary"] = ["\x1b]0;owned\x07 [red]the upper end of q[/red]"]
    (directory / "run.json").write_text(json.dumps(record), encoding="utf-8")
    refused(["summary", directory], "run.json has no valid 'chosen'")


def test_summary_says_if_the_condition_was_given(table, tmp_path, untrained):
    printed = run(
        app, ["fit", str(table), "-o", str(tmp_path / "run"), "--lam", "2", "--q", "1", "--steps", "25"]
    ).stdout
    assert "λ = 2, q = 1, as given" in printed and "evidence" not in printed


@pytest.mark.slow
def test_lam_of_highest_evidence_at_the_given_q(fitted):
    """Summary, export and report must agree about it."""
    model = ggmflow.load_run(fitted[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        best, joint = model.select(q=1.0), model.select()
    printed = json.loads(run(app, ["summary", str(fitted[0]), "--q", "1", "--json"]).stdout)
    assert printed["condition"]["lam"] == pytest.approx(best.lam)
    assert best.lam != pytest.approx(joint.lam, rel=0.01)


@pytest.mark.slow
def test_refine_gives_exact_draws(fitted, tmp_path):
    printed = json.loads(run(app, ["summary", str(fitted[0]), "--refine", "--json"]).stdout)
    model = ggmflow.load_run(fitted[0])
    known = model.posterior().refine().diagnostics()
    assert printed["diagnostics"]["message"] == known["message"] != model.posterior().diagnostics()["message"]
    path = tmp_path / "table.csv"
    assert run(app, ["export", str(fitted[0]), "--format", "csv", "--refine", "-o", str(path)]).exit_code == 0
    expected = model.posterior().refine().summary()
    np.testing.assert_allclose(pd.read_csv(path, comment="#")["mean"], expected["mean"], rtol=1e-6)


def test_error_if_the_output_is_a_file(table):
    before = table.read_bytes()
    refused(["fit", table, "-o", table], "table.csv is a file: name a directory")
    assert table.read_bytes() == before


def test_no_report_is_written_into_a_locked_run(fitted, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(fitted[0], directory)
    with filelock.FileLock(directory / ".lock"):
        refused(["report", directory], "another ggmflow process uses")
        refused(["export", directory, "--format", "csv"], "another ggmflow process uses")
        assert run(app, ["export", str(directory), "--format", "csv", "-o", str(tmp_path / "t.csv")]).exit_code == 0
    assert not (directory / "report.html").exists()


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
