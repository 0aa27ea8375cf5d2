"""`ggmflow export`: files in every format."""

import json
import sys

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import ggmflow
from ggmflow.cli.app import app
from tests.support.command_line import TABLE, refused, run

pytestmark = pytest.mark.usefixtures("jax_as_users_have_it")


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
