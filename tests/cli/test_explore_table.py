"""`ggmflow explore` with a table in place of a run: nothing is trained or written, errors are those of `fit`."""

import socket

import pytest

from ggmflow.cli.app import app
from tests.support.command_line import TABLE, refused, run

pytestmark = pytest.mark.usefixtures("jax_as_users_have_it")


@pytest.fixture
def served(stand_in):
    """Models and options with which the explorer was served."""
    calls = []
    stand_in("explorer", serve=lambda model, **options: calls.append((model, options)))
    return calls


def test_a_table_is_explored_without_training_and_without_files(served, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ggmflow.posterior.start.train", lambda *_, **__: pytest.fail("trained"))
    text = TABLE.assign(id="p").to_csv(index=False).replace(",", ";").replace(".", ",")
    (tmp_path / "table.csv").write_text(text)
    reading = ["--delimiter", ";", "--decimal", ",", "--drop", "id", "--query", "c,a", "--transform", "nonparanormal"]
    result = run(app, ["explore", "table.csv", *reading, "--no-standardize", "--port", "5010", "--no-browser"])
    assert result.exit_code == 0, result.output
    ((model, options),) = served
    assert model.n_iter_ == 0 and model.scatter_.names == tuple("abcd") and model.query_.tolist() == [2, 0]
    assert {"transform": "nonparanormal", "standardize": False}.items() <= model.get_params().items()
    assert (options["port"], options["open_browser"], options["data_name"]) == (5010, False, "table.csv")
    assert options["in_background"]  # the page opens before the evidence is known
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


BAD = {
    "nowhere": (["nowhere.csv"], r"nowhere\.csv does not exist: give the directory of a run, or a CSV file"),
    "no run": (["."], r"is not a ggmflow run: it has no run\.json"),
    "semicolons": (["semicolons.csv"], "separated by semicolons, not commas: .*--delimiter ';'"),
    "text": (["text.csv"], "column 'b', line 3: could not convert string to float: 'high'.*--drop 'b'"),
    "missing": (["missing.csv"], "column 'b', line 3 is missing.*--missing em"),
    "query": (["table.csv", "--query", "a,bb"], "no column is named 'bb'"),
    "options of a run": ([".", "--drop", "a"], "--drop is for a table, but .* is a directory"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD.keys())
def test_errors_are_one_line(served, table, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "semicolons.csv").write_text("a;b\n1;2\n3;5\n")
    (tmp_path / "text.csv").write_text("a,b,c\n1,2,1\n3,high,4\n2,1,6\n")
    (tmp_path / "missing.csv").write_text("a,b\n1,2\n3,\n2,4\n")
    refused(["explore", *arguments], message)
    assert not served


def test_a_port_in_use_is_reported_before_the_fit(table, monkeypatch):
    monkeypatch.setattr("ggmflow.GraphicalFlow.fit", lambda *_: pytest.fail("fitted"))
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        refused(["explore", table, "--port", port], rf"port {port} is in use: try --port \d+")
