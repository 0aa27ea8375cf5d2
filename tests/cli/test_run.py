"""Run directories: a fit killed at any moment can be resumed with the same result, and no file is half written."""

import contextlib
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from datetime import datetime
from functools import partial
from pathlib import Path

import filelock
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import ggmflow as gf
from ggmflow.cli import run as run_module
from ggmflow.cli.app import app
from ggmflow.cli.run import fit_run, load_run, open_run
from ggmflow.cli.run_record import (
    CHECKPOINT,
    EDGES,
    MODEL,
    README,
    RECORD,
    RunError,
    describe_file,
    read_record,
    settle,
)
from ggmflow.data.scatter import Scatter
from ggmflow.errors.advice import Advice, Surface, message_of
from ggmflow.estimator import graphical_flow as estimator
from ggmflow.storage import archive
from ggmflow.storage.replace import TEMPORARY
from ggmflow.train.loop import CHUNK
from ggmflow.views.export import export_table
from tests.support.models import TABLE

FINISHED = {".lock", EDGES, MODEL, README, RECORD}
COMMAND = "ggmflow fit table.csv"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    TABLE.to_csv(path, index=False)
    return path


def fit(path, table, resume=False, force=False, drop=(), **parameters):
    """Fit at one condition: there is no choice of λ and q, so no prior is fitted."""
    given = {"lam": 2.0, "q": 1.0, "steps": CHUNK, "random_state": 0, "progress": False, **parameters}
    about = describe_file(table) | {"delimiter": ",", "decimal": ".", "drop": list(drop)}
    model, scatter = gf.GraphicalFlow(**given), Scatter.from_data(table, drop=drop)
    return fit_run(model, scatter, path, about, COMMAND, resume=resume, force=force)


def files_of(path):
    return {entry.name for entry in path.iterdir()} if path.is_dir() else set()


# ------------------------------------------------------------------------------------------------------------- contents
def test_finished_run_has_a_record_and_loads(untrained, table, tmp_path):
    run = tmp_path / "new" / "run"
    model = fit(run, table)
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


def test_equal_fits_write_equal_files(untrained, table, tmp_path):
    for name in ("one", "two"):
        fit(tmp_path / name, table)
    for name in (MODEL, EDGES):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_record_holds_the_seconds_of_each_part(untrained, monkeypatch, table, tmp_path):
    real = estimator.train

    def train(*args, clock, **more):
        clock.compiling, clock.training = 11.04, 24.0
        return real(*args, **more)

    monkeypatch.setattr(estimator, "train", train)
    model = fit(tmp_path / "run", table)
    assert model.timings_[:2] == (11.04, 24.0) and 0 <= model.timings_.choosing < 1
    assert read_record(tmp_path / "run")["timings"] == {"compiling": 11.0, "training": 24.0, "choosing": 0.0}
    assert not hasattr(load_run(tmp_path / "run"), "timings_")


# --------------------------------------------------------------------------------------------------------------- errors
def test_finished_run_is_replaced_only_with_force(untrained, table, tmp_path):
    run = tmp_path / "run"
    fit(run, table)
    (run / "report.html").write_text("of the old fit")
    (run / "notes.txt").write_text("the user's own")
    before = (run / RECORD).read_bytes()
    with pytest.raises(RunError, match="holds a finished fit: choose another directory, or replace it with force=True"):
        fit(run, table, random_state=1)
    assert (run / RECORD).read_bytes() == before
    assert fit(run, table, resume=True).lam == 2.0  # nothing to do
    assert (run / RECORD).read_bytes() == before
    fit(run, table, force=True, lam=3.0)
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
def test_error_for_resuming_with_other_parameters(untrained, table, tmp_path, change, message):
    fit(tmp_path / "run", table)
    with pytest.raises(RunError, match=f"holds another fit, {message}: use the same, or begin again with force=True"):
        fit(tmp_path / "run", table, resume=True, **change)


def test_error_for_resuming_with_other_data_or_versions(untrained, table, tmp_path):
    run = tmp_path / "run"
    fit(run, table)
    record = read_record(run)
    (run / RECORD).write_text(json.dumps(record | {"versions": record["versions"] | {"jax": "0.1"}}))
    with pytest.raises(RunError, match=r"jax was 0\.1 and is"):
        fit(run, table, resume=True)
    (TABLE + np.eye(20, 4)).to_csv(table, index=False)
    with pytest.raises(RunError, match=r"its data differ \(SHA-256 \w{8}… then, \w{8}… now\)"):
        fit(run, table, resume=True)


def test_directory_with_other_files_is_not_used(untrained, table, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("years of work")
    for options in ({}, {"force": True}, {"resume": True}):
        with pytest.raises(RunError, match="holds other files and no run: choose a new directory"):
            fit(home, table, **options)
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
def test_error_for_a_damaged_run(untrained, table, tmp_path, name, content, message):
    run = tmp_path / "run"
    fit(run, table)
    (run / name).unlink()
    if content is not None:
        (run / name).write_bytes(content)
    with pytest.raises(RunError, match=message):
        load_run(run)
    if "another program" in message:  # the directory stays as it is
        before = files_of(run)
        with pytest.raises(RunError, match="choose a new directory"):
            fit(run, table, force=True)
        assert files_of(run) == before
    elif (run / RECORD).exists():
        fit(run, table, force=True)  # the remedy in the messages
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
def test_error_names_the_damaged_part_of_a_record(untrained, table, tmp_path, part, value):
    run = tmp_path / "run"
    fit(run, table)
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


def test_error_if_another_fit_uses_the_directory(untrained, table, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    with (
        filelock.FileLock(run / ".lock"),
        pytest.raises(RunError, match=r"another ggmflow process uses .*run: wait for it"),
    ):
        fit(run, table)
    assert files_of(run) <= {".lock"}
    fit(run, table)


# -------------------------------------------------------------------------------------------------------- interruptions
class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def crash_at(monkeypatch, count):
    """End the process at the count-th file operation; a half-written file stays."""
    calls, real = [], {name: getattr(os, name) for name in ("replace", "remove", "unlink")}

    def wrapped(name):
        def call(path, *args, **kwargs):
            if len(calls) >= count:
                if name == "replace" and not calls[count:] and Path(path).name.startswith(TEMPORARY):
                    Path(path).write_bytes(Path(path).read_bytes()[:10])
                calls.append(name)
                if name == "remove":  # a dead process removes no files
                    return
                raise Killed
            calls.append(name)
            real[name](path, *args, **kwargs)

        return call

    for name in real:
        monkeypatch.setattr(os, name, wrapped(name))
    return calls


def check_consistent(run):
    """Check that files are complete, and that the record agrees with them."""
    if not (run / RECORD).exists():
        return
    status = read_record(run)["status"]
    for name in (MODEL, CHECKPOINT):
        if (run / name).exists():
            archive.read(run / name)
    if status == "finished":
        assert load_run(run).lam == read_record(run)["parameters"]["lam"]
    else:
        with pytest.raises(RunError, match=rf"is not finished: resume it with `{COMMAND} --resume`"):
            load_run(run)


@pytest.mark.slow
@pytest.mark.parametrize("before", ["nothing", "a finished run"])
def test_fit_can_be_resumed_after_a_crash_at_any_file_operation(untrained, monkeypatch, table, tmp_path, before):
    whole, train = tmp_path / "whole", estimator.train

    def train_without_checkpoint(*args, checkpoint, **kwargs):
        assert not checkpoint.exists()  # one of the old fit must be gone by now
        return train(*args, **kwargs)

    monkeypatch.setattr(estimator, "train", train_without_checkpoint)
    fit(whole, table)
    for count in range(100):
        run = tmp_path / f"run{count}"
        options = {}
        if before == "a finished run":
            fit(run, table, lam=3.0)
            archive.write(run / CHECKPOINT, {"of": "the old fit"}, {})
            options = {"force": True}
        with monkeypatch.context() as patch:
            calls = crash_at(patch, count)
            with contextlib.suppress(Killed):
                fit(run, table, **options)
        check_consistent(run)
        if before == "a finished run":  # the old fit or the new one
            assert read_record(run)["status"] == "finished"
        if len(calls) <= count:
            break
        if before == "nothing" or count:  # at count 0 the old run, of other parameters, is unchanged
            fit(run, table, resume=True)
            assert files_of(run) == FINISHED
            for name in (MODEL, EDGES):
                assert (run / name).read_bytes() == (whole / name).read_bytes()
    assert count > 5


def test_full_disk_leaves_no_files(untrained, monkeypatch, table, tmp_path):
    run, real = tmp_path / "run", os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        fit(run, table)
    assert files_of(run) <= {".lock"}
    monkeypatch.setattr(os, "fsync", real)
    fit(run, table)


def test_error_if_the_directory_holds_an_unfinished_fit(untrained, monkeypatch, table, tmp_path):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("ggmflow.cli.run.edge_table", lambda table: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fit(run, table)
    assert read_record(run)["status"] == "interrupted"
    with pytest.raises(RunError, match="not finished: resume it with resume=True, or begin again with force=True"):
        fit(run, table)
    fit(run, table, resume=True)
    assert read_record(run)["status"] == "finished"


@pytest.mark.parametrize(("before", "expected"), [("starting", "starting"), ("running", "interrupted")])
def test_interrupt_just_after_the_record_was_written(untrained, monkeypatch, table, tmp_path, before, expected):
    """The record says "running" a moment before the fit begins; a signal may arrive in between."""
    run, real = tmp_path / "run", run_module._advance

    def advance(path, record, action, *more, **options):
        written = real(path, record, action, *more, **options)
        if written["status"] == before:
            raise KeyboardInterrupt
        return written

    with monkeypatch.context() as patch:
        patch.setattr("ggmflow.cli.run._advance", advance)
        with pytest.raises(KeyboardInterrupt):
            fit(run, table)
    assert read_record(run)["status"] == expected
    fit(run, table, resume=True)
    assert read_record(run)["status"] == "finished"


def test_finished_fit_stays_until_the_new_one_is_finished(untrained, monkeypatch, table, tmp_path):
    run = tmp_path / "run"
    fit(run, table, lam=3.0)
    before = {name: (run / name).read_bytes() for name in (RECORD, MODEL, EDGES, README)}
    with monkeypatch.context() as patch:
        patch.setattr("ggmflow.cli.run.edge_table", lambda table: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fit(run, table, force=True)
    assert files_of(run) == FINISHED | {".next"} and load_run(run).lam == 3.0
    assert {name: (run / name).read_bytes() for name in before} == before
    with pytest.raises(RunError, match="not finished: resume it with resume=True, or begin again with force=True"):
        fit(run, table)
    with pytest.raises(RunError, match=r"holds another fit, --lam was 2\.0 and is 5\.0"):
        fit(run, table, lam=5.0, resume=True)
    assert fit(run, table, lam=3.0, resume=True).lam == 3.0  # that one is finished
    (run / ".next" / RECORD).write_bytes(b"noise")
    assert load_run(run).lam == 3.0
    fit(run, table, force=True)
    assert load_run(run).lam == 2.0 and files_of(run) == FINISHED


def test_failed_replacement_does_not_allow_the_next_fit_to_replace(untrained, monkeypatch, table, tmp_path):
    run = tmp_path / "run"
    fit(run, table, lam=3.0)
    with monkeypatch.context() as patch:
        patch.setattr("ggmflow.storage.memory.available", lambda: 10_000)
        with pytest.raises(MemoryError):
            fit(run, table, force=True)
    with pytest.raises(RunError, match="holds a finished fit: choose another directory, or replace it with force=True"):
        fit(run, table, lam=5.0)
    assert load_run(run).lam == 3.0 and files_of(run) == FINISHED


@pytest.mark.parametrize("record", [b"noise", b'{"kind": "ggmflow run", "format": 99}'], ids=["damaged", "newer"])
def test_model_with_an_unreadable_record_stays_until_the_new_fit_is_finished(
    untrained, monkeypatch, table, tmp_path, record
):
    run = tmp_path / "run"
    fit(run, table, lam=3.0)
    before = (run / MODEL).read_bytes()
    (run / RECORD).write_bytes(record)
    with monkeypatch.context() as patch:
        patch.setattr("ggmflow.storage.memory.available", lambda: 10_000)
        with pytest.raises(MemoryError):
            fit(run, table, force=True)
    assert (run / MODEL).read_bytes() == before
    fit(run, table, force=True)
    assert load_run(run).lam == 2.0 and files_of(run) == FINISHED


@pytest.mark.parametrize("name", [MODEL, EDGES, README, RECORD])
def test_reading_during_a_replacement_never_mixes_two_fits(untrained, monkeypatch, table, tmp_path, name):
    """The old fit is read just before and after this file of the new one is moved."""
    run, real, seen = tmp_path / "run", os.replace, []
    killed_before_replacement(run, table, monkeypatch)

    def read_around(source, target):
        for moved in (False, True):
            if moved:
                real(source, target)
            if Path(target).name == name:
                with contextlib.suppress(RunError):  # it may fail, because the lock is not free, but not mix
                    record, model = open_run(run)
                    seen.append((record["parameters"]["lam"], model.lam))

    with filelock.FileLock(run / ".lock"), monkeypatch.context() as patch:
        patch.setattr(os, "replace", read_around)
        patch.setattr(time, "sleep", lambda seconds: None)
        settle(run)
    seen.append((read_record(run)["parameters"]["lam"], load_run(run).lam))
    assert set(seen) <= {(3.0, 3.0), (2.0, 2.0)} and (2.0, 2.0) in seen


def test_error_for_the_model_of_another_run(untrained, monkeypatch, table, tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    fit(run, table)
    fit(other, table, lam=3.0)
    (run / MODEL).write_bytes((other / MODEL).read_bytes())
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with pytest.raises(RunError, match=r"model\.ggmflow and run\.json are of different fits"):
        load_run(run)


def killed_before_replacement(run, table, monkeypatch):
    """A finished fit, and in .next another finished one whose process was killed before the replacement."""
    fit(run, table, lam=3.0)
    with monkeypatch.context() as patch:
        patch.setattr("ggmflow.cli.run.settle", lambda path: None)
        fit(run, table, force=True)


def test_next_reader_completes_the_replacement_after_a_kill(untrained, monkeypatch, table, tmp_path):
    run = tmp_path / "run"
    killed_before_replacement(run, table, monkeypatch)
    assert files_of(run) == FINISHED | {".next"}
    assert load_run(run).lam == 2.0 and files_of(run) == FINISHED


def test_no_file_is_moved_while_another_process_has_the_lock(untrained, monkeypatch, table, tmp_path):
    run = tmp_path / "run"
    killed_before_replacement(run, table, monkeypatch)
    with filelock.FileLock(run / ".lock"):
        assert load_run(run).lam == 3.0 and files_of(run) == FINISHED | {".next"}
    assert load_run(run).lam == 2.0


def test_link_in_a_foreign_run_moves_no_files(untrained, table, tmp_path):
    mine, received = tmp_path / "mine", tmp_path / "received"
    fit(mine, table)
    fit(received, table, lam=3.0)
    (received / ".next").symlink_to(mine, target_is_directory=True)
    assert load_run(received).lam == 3.0 and files_of(mine) == FINISHED
    fit(received, table, lam=4.0, force=True)
    assert load_run(received).lam == 4.0 and load_run(mine).lam == 2.0 and files_of(mine) == FINISHED


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        (".lock", {"fit", "report", "export"}),
        *((name, {"fit"}) for name in (RECORD, MODEL, EDGES, README, CHECKPOINT)),
        ("report.html", {"report"}),  # a fit removes the link, and its target stays
        ("summary.csv", {"export"}),
    ],
)
def test_no_file_is_written_through_a_link_in_a_foreign_run(untrained, table, tmp_path, name, refused):
    """Such a link may point to any file of the user, and names of columns may be shell commands.

    Files that are only read may be links, which programs for large files make.
    """
    run, precious = tmp_path / "run", tmp_path / "precious"
    fit(run, table)
    precious.write_bytes((run / name).read_bytes() if (run / name).exists() else b"precious")
    before = precious.read_bytes()
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(precious)
    for command in (["report"], ["export", "--format", "csv"]):
        result = CliRunner().invoke(app, [*command, str(run)])
        assert (result.exit_code, "holds a link" in result.stderr) == (
            (2, True) if command[0] in refused else (0, False)
        )
    with pytest.raises(RunError, match="holds a link") if "fit" in refused else contextlib.nullcontext():
        fit(run, table, lam=4.0, force=True)
    assert precious.read_bytes() == before


@pytest.mark.slow
def test_smaller_fit_begins_after_one_without_enough_memory(untrained, monkeypatch, table, tmp_path):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("ggmflow.storage.memory.available", lambda: 10_000)
        with pytest.raises(MemoryError, match="query"):
            fit(run, table)
    assert read_record(run)["status"] == "failed"
    fit(run, table, query=["a"])
    assert read_record(run)["status"] == "finished"


def test_error_for_a_damaged_checkpoint(untrained, monkeypatch, table, tmp_path):
    run = tmp_path / "run"
    fit(run, table)
    record = read_record(run)
    (run / RECORD).write_text(json.dumps(record | {"status": "running"}))
    (run / CHECKPOINT).write_bytes(b"noise")
    monkeypatch.undo()  # train for real: that reads the checkpoint
    with pytest.raises(RunError, match=r"cannot be resumed, .*checkpoint.*begin again with force=True"):
        fit(run, table, resume=True)


def test_seconds_before_a_kill_are_counted(untrained, table, tmp_path):
    run = tmp_path / "run"
    fit(run, table)
    record = read_record(run) | {"status": "running", "seconds": 100.0}
    del record["chosen"], record["ranges"]
    (run / RECORD).write_text(json.dumps(record))
    (run / CHECKPOINT).write_bytes(b"")
    moment = datetime.fromisoformat(record["updated"]).timestamp() + 1000
    os.utime(run / CHECKPOINT, (moment, moment))  # the last file that the killed fit wrote
    fit(run, table, resume=True)
    assert 1100 <= read_record(run)["seconds"] < 1200


def test_failed_fit_has_the_status_failed(monkeypatch, table, tmp_path):
    def fail(*args, **kwargs):
        raise FloatingPointError("training failed")

    monkeypatch.setattr(gf.GraphicalFlow, "fit", fail)
    with pytest.raises(FloatingPointError):
        fit(tmp_path / "run", table)
    assert read_record(tmp_path / "run")["status"] == "failed"


# A checkpoint after every chunk, so that a fit of seconds can be killed between them.
SCRIPT = """
import sys
from ggmflow.train import checkpoint
from ggmflow.cli.app import app
checkpoint.SECONDS_BETWEEN_CHECKPOINTS = 0.0
app(prog_name="ggmflow")
"""
STEPS = 24 * CHUNK
ARGUMENTS = ["--lam", "2", "--q", "1", "--steps", str(STEPS)]


def start(table, run, *more):
    command = [sys.executable, "-c", SCRIPT, "fit", str(table), "-o", str(run), *ARGUMENTS, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(process, condition, seconds=120):
    end = time.monotonic() + seconds
    while process.poll() is None and not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def written(path):
    return path.stat().st_mtime_ns if path.exists() else 0


def changed(path, before):
    return written(path) != before


@pytest.mark.slow
def test_fit_resumed_after_sigkill_gives_the_same_model(table, tmp_path):
    """The files must agree whenever the process is killed; the moments differ from run to run."""
    whole, run, rng = tmp_path / "whole", tmp_path / "run", random.Random(1)
    same = {"steps": STEPS, "progress": True}
    fit(whole, table, **same)
    kills, seen = 0, []
    for attempt in range(2):
        process = start(table, run, *(["--resume"] if attempt else []))
        if attempt == 0:
            wait_for(process, lambda: (run / RECORD).exists())  # before anything is learned
        else:
            wait_for(process, partial(changed, run / CHECKPOINT, written(run / CHECKPOINT)))
            time.sleep(rng.uniform(0, 0.2))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
        check = read_record(run)["status"]
        seen.append((check, (run / CHECKPOINT).exists()))
        if (run / CHECKPOINT).exists():
            archive.read(run / CHECKPOINT)
    assert kills == 2, seen
    fit(run, table, resume=True, **same)
    assert files_of(run) == FINISHED
    for name in (MODEL, EDGES):
        assert (run / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_prints_the_command_to_resume(table, tmp_path):
    run = tmp_path / "run"
    process = start(table, run)
    wait_for(process, lambda: (run / CHECKPOINT).exists())
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert not output
    last = errors.rstrip().splitlines()[-1]
    assert last.startswith("Interrupted. To resume: ") and last.endswith(f"--steps {STEPS} --resume")
    assert "Traceback" not in errors
    assert read_record(run)["status"] == "interrupted"
    fit(run, table, resume=True, steps=STEPS)
    assert load_run(run).n_iter_ == STEPS


def test_run_errors_have_fields_and_a_text_for_each_surface(tmp_path):
    error = RunError(tmp_path, "it is in use", Advice("wait"), Advice("begin again with", {"force": True}))
    assert (error.path, error.reason, error.advice[1].options) == (tmp_path, "it is in use", {"force": True})
    assert str(error) == "it is in use: wait, or begin again with force=True"
    assert message_of(error, Surface.COMMAND_LINE) == "it is in use: wait, or begin again with --force"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
