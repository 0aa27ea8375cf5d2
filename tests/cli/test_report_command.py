"""`ggmflow report` and `ggmflow explore`."""

import errno
import html
import re
import shutil
import socket
from pathlib import Path

import filelock
import numpy as np
import pandas as pd
import pytest

import ggmflow
from ggmflow.cli.app import app
from tests.support.command_line import NOISE, refused, run

pytestmark = pytest.mark.usefixtures("jax_as_users_have_it")


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


def test_no_report_is_written_into_a_locked_run(fitted, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(fitted[0], directory)
    with filelock.FileLock(directory / ".lock"):
        refused(["report", directory], "another ggmflow process uses")
        refused(["export", directory, "--format", "csv"], "another ggmflow process uses")
        assert run(app, ["export", str(directory), "--format", "csv", "-o", str(tmp_path / "t.csv")]).exit_code == 0
    assert not (directory / "report.html").exists()
