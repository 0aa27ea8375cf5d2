"""Run directories: the files of a finished run, and errors for directories that cannot be used."""

import json
import pickle

import filelock
import numpy as np
import pandas as pd
import pytest

import ggmflow as gf
from ggmflow.cli.run import load_run
from ggmflow.cli.run_record import (
    EDGES,
    MODEL,
    README,
    RECORD,
    RunError,
    read_record,
)
from ggmflow.errors.advice import Advice, Surface, message_of
from ggmflow.estimator import graphical_flow as estimator
from ggmflow.views.export import export_table
from tests.support.models import TABLE
from tests.support.runs import COMMAND, FINISHED, files_of, fit


# ------------------------------------------------------------------------------------------------------------- contents
def test_finished_run_has_a_record_and_loads(untrained, data_file, tmp_path):
    run = tmp_path / "new" / "run"
    model = fit(run, data_file)
    assert files_of(run) == FINISHED
    record = json.loads((run / RECORD).read_text(encoding="utf-8"))
    assert record["status"] == "finished" and record["command"] == COMMAND
    assert record["data"] | {"sha256": 64} == {
        "file": "table.csv",
        "sha256": 64,
        "delimiter": ",",
        "decimal": ".",
        "drop": [],
        "rows": 20,
        "columns": list("abcd"),
        "check": model.scatter_.check.to_dict(),
    }
    assert record["parameters"]["lam"] == 2.0 and record["parameters"]["random_state"] == 0
    assert record["versions"]["ggmflow"] == gf.__version__
    assert record["chosen"] == {"lam": 2.0, "q": 1.0, "at_boundary": []}
    assert record["started"] <= record["updated"] and record["seconds"] >= 0
    loaded = gf.load_run(run)
    draws = [each.posterior().sample(5, random_state=0) for each in (model, loaded)]
    np.testing.assert_array_equal(*draws)
    edges, expected = pd.read_csv(run / EDGES), export_table(loaded.posterior())
    assert len(edges) == expected["edge"].sum()
    assert edges["association"].abs().is_monotonic_decreasing
    assert "ggmflow explore" in (run / README).read_text(encoding="utf-8")


def test_equal_fits_write_equal_files(untrained, data_file, tmp_path):
    for name in ("one", "two"):
        fit(tmp_path / name, data_file)
    for name in (MODEL, EDGES):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_record_holds_the_seconds_of_each_part(untrained, monkeypatch, data_file, tmp_path):
    real = estimator.fit_flow

    def fit_flow(*args, clock, **more):
        clock.compiling, clock.training = 11.04, 24.0
        return real(*args, **more)

    monkeypatch.setattr(estimator, "fit_flow", fit_flow)
    model = fit(tmp_path / "run", data_file)
    assert model.timings_[:2] == (11.04, 24.0) and 0 <= model.timings_.choosing < 1
    assert read_record(tmp_path / "run")["timings"] == {"compiling": 11.0, "training": 24.0, "choosing": 0.0}
    assert not hasattr(load_run(tmp_path / "run"), "timings_")


# --------------------------------------------------------------------------------------------------------------- errors
def test_finished_run_is_replaced_only_with_force(untrained, data_file, tmp_path):
    run = tmp_path / "run"
    fit(run, data_file)
    (run / "report.html").write_text("of the old fit")
    (run / "notes.txt").write_text("the user's own")
    before = (run / RECORD).read_bytes()
    with pytest.raises(RunError, match="holds a finished fit: choose another directory, or replace it with force=True"):
        fit(run, data_file, random_state=1)
    assert (run / RECORD).read_bytes() == before
    assert fit(run, data_file, resume=True).lam == 2.0  # nothing to do
    assert (run / RECORD).read_bytes() == before
    fit(run, data_file, force=True, lam=3.0)
    assert load_run(run).lam == 3.0
    assert files_of(run) == FINISHED | {"notes.txt"}  # files about the old fit are removed, other files stay


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"random_state": 1}, "--seed was 0 and is 1"),
        ({"lam": (1.0, 2.0)}, r"--lam was 2\.0 and is 1\.0,2\.0"),
        ({"steps": None}, "--steps was 25 and is the default"),
        ({"query": ["a"]}, "--query was the default and is a"),
        ({"drop": ["c"]}, "--drop was the default and is c"),
    ],
)
def test_error_for_resuming_with_other_parameters(untrained, data_file, tmp_path, change, message):
    fit(tmp_path / "run", data_file)
    with pytest.raises(RunError, match=f"holds another fit, {message}: use the same, or begin again with force=True"):
        fit(tmp_path / "run", data_file, resume=True, **change)


def test_error_for_resuming_with_other_data_or_versions(untrained, data_file, tmp_path):
    run = tmp_path / "run"
    fit(run, data_file)
    record = read_record(run)
    (run / RECORD).write_text(json.dumps(record | {"versions": record["versions"] | {"jax": "0.1"}}))
    with pytest.raises(RunError, match=r"jax was 0\.1 and is"):
        fit(run, data_file, resume=True)
    (TABLE + np.eye(20, 4)).to_csv(data_file, index=False)
    with pytest.raises(RunError, match=r"its data differ \(SHA-256 \w{8}… then, \w{8}… now\)"):
        fit(run, data_file, resume=True)


def test_directory_with_other_files_is_not_used(untrained, data_file, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("years of work")
    for options in ({}, {"force": True}, {"resume": True}):
        with pytest.raises(RunError, match="holds other files and no run: choose a new directory"):
            fit(home, data_file, **options)
    assert files_of(home) == {"thesis.tex"}


DAMAGE = {
    "no record": (RECORD, None, "is not a ggmflow run: it has no run.json"),
    "half a record": (RECORD, b'{"kind": "ggm', "run.json cannot be read"),
    "not text": (RECORD, b"\xff\xfe\x00", "run.json cannot be read"),
    "another record": (RECORD, b'{"name": "app", "version": "1"}', "another program wrote its run.json"),
    "list": (RECORD, b"[1]", "another program wrote its run.json"),
    "newer": (RECORD, b'{"kind": "ggmflow run", "format": 9}', "newer ggmflow: update"),
    "no status": (RECORD, b'{"kind": "ggmflow run", "format": 1}', "run.json has no valid 'status'"),
    "no model": (MODEL, None, "model.ggmflow is missing"),
    "no bytes": (MODEL, b"", "is empty"),
    "another model": (MODEL, b"hello", "is not a ggmflow model"),
}


@pytest.mark.parametrize(("name", "content", "message"), DAMAGE.values(), ids=DAMAGE.keys())
def test_error_for_a_damaged_run(untrained, data_file, tmp_path, name, content, message):
    run = tmp_path / "run"
    fit(run, data_file)
    (run / name).unlink()
    if content is not None:
        (run / name).write_bytes(content)
    with pytest.raises(RunError, match=message):
        load_run(run)
    if "another program" in message:  # the directory stays as it is
        before = files_of(run)
        with pytest.raises(RunError, match="choose a new directory"):
            fit(run, data_file, force=True)
        assert files_of(run) == before
    elif (run / RECORD).exists():
        fit(run, data_file, force=True)  # the remedy in the messages
        assert load_run(run).lam == 2.0


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("data", {"rows": "abc"}),
        ("ranges", {"lam": 3}),
        ("ranges", None),
        ("chosen", {"lam": None, "q": 1.0, "at_boundary": []}),
        ("chosen", {"lam": 2.0, "q": 1.0}),
        ("chosen", {"lam": 2.0, "q": 1.0, "at_boundary": [3]}),
        ("chosen", {"lam": 2.0, "q": 1.0, "at_ends": ["the end of q"]}),
        ("seconds", np.nan),
        ("seconds", 10**400),
        ("timings", None),
        ("timings", {"compiling": 1.0}),
        ("timings", {"compiling": 1.0, "training": "2", "choosing": 1.0}),
        ("timings", {"compiling": 1.0, "training": 2.0, "choosing": "3"}),
    ],
)
def test_error_names_the_damaged_part_of_a_record(untrained, data_file, tmp_path, part, value):
    run = tmp_path / "run"
    fit(run, data_file)
    record = json.loads((run / RECORD).read_text(encoding="utf-8"))
    (run / RECORD).write_text(json.dumps(record | {part: value}), encoding="utf-8")
    with pytest.raises(RunError, match=f"has no valid '{part}'"):
        read_record(run)


def test_error_for_a_path_that_is_not_a_directory(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="file is a file: give the directory"):
        load_run(tmp_path / "file")
    with pytest.raises(RunError, match="nowhere does not exist"):
        load_run(tmp_path / "nowhere")


def test_error_if_another_fit_uses_the_directory(untrained, data_file, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    with (
        filelock.FileLock(run / ".lock"),
        pytest.raises(RunError, match=r"another ggmflow process uses .*run: wait for it"),
    ):
        fit(run, data_file)
    assert files_of(run) <= {".lock"}
    fit(run, data_file)


def test_run_errors_have_fields_and_a_text_for_each_surface(tmp_path):
    error = RunError(tmp_path, "it is in use", Advice("wait"), Advice("begin again with", {"force": True}))
    assert (error.path, error.reason, error.advice[1].options) == (tmp_path, "it is in use", {"force": True})
    assert str(error) == "it is in use: wait, or begin again with force=True"
    assert message_of(error, Surface.COMMAND_LINE) == "it is in use: wait, or begin again with --force"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
