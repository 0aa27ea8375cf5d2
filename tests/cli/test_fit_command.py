"""`ggmflow fit`: options, data check, errors, notes."""

import errno
import html
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import ggmflow
from ggmflow.cli.app import app
from ggmflow.estimator import graphical_flow as estimator
from tests.support.command_line import TABLE, refused, run

pytestmark = pytest.mark.usefixtures("jax_as_users_have_it")


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
    arguments += [
        "--mean",
        "known",
        "--missing",
        "em",
        "--transform",
        "nonparanormal",
        "--no-standardize",
        "--query",
        "c, a",
    ]
    arguments += ["--lam", "2", "--q", "0.5", "--temperature", "1", "--steps", "50", "--seed", "7", "--json"]
    arguments += ["--no-pretrained"]
    result = run(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    model = ggmflow.load_run(tmp_path / "run")
    expected = {"lam": 2.0, "q": 0.5, "temperature": 1.0, "query": ["c", "a"], "steps": 50, "random_state": 7}
    expected |= {
        "mean": "known",
        "missing": "em",
        "transform": "nonparanormal",
        "standardize": False,
        "pretrained": False,
    }
    assert expected.items() <= model.get_params().items()
    assert model.scatter_.n == 51
    answer = json.loads(result.stdout)
    assert answer["query"] == ["c", "a"] and answer["condition"]["lam"] == pytest.approx(2.0)
    assert answer["data"]["delimiter"] == ";"
    command = json.loads((tmp_path / "run" / "run.json").read_text())["command"]
    assert "--delimiter ';' --decimal , --mean known --missing em" in command and "--no-standardize" in command
    assert "--no-pretrained" in command and "--json" not in command


def test_fit_without_training(table, tmp_path, monkeypatch):
    """Nothing is trained, the summary says so, and another number of steps is another fit."""
    monkeypatch.setattr("ggmflow.posterior.start.train", lambda *_, **__: pytest.fail("trained"))
    options = ["fit", str(table), "-o", str(tmp_path / "run"), "--lam", "2", "--q", "1", "--steps", "0"]
    result = run(app, options)
    assert result.exit_code == 0, result.output
    assert "Fit not trained: the flow answers as shipped" in " ".join(result.stdout.split())
    parameters = json.loads((tmp_path / "run" / "run.json").read_text())["parameters"]
    assert (parameters["pretrained"], parameters["steps"]) == (True, 0)
    refused([*options[:-2], "--resume"], "--steps was 0 and is the default")
    refused([*options, "--no-pretrained", "--resume"], "--pretrained was True and is False")


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

    monkeypatch.setattr(estimator, "fit_flow", never_ends)
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


def test_error_if_the_output_is_a_file(table):
    before = table.read_bytes()
    refused(["fit", table, "-o", table], "table.csv is a file: name a directory")
    assert table.read_bytes() == before
