"""Run directories: a fit that is interrupted at any moment can be resumed, and no file is half written."""

import contextlib
import json
import os
import time
from datetime import datetime
from pathlib import Path

import filelock
import pytest
from typer.testing import CliRunner

import ggmflow as gf
from ggmflow.cli import run as run_module
from ggmflow.cli.app import app
from ggmflow.cli.run import load_run, open_run
from ggmflow.cli.run_record import (
    CHECKPOINT,
    EDGES,
    MODEL,
    README,
    RECORD,
    RunError,
    read_record,
    settle,
)
from ggmflow.estimator import graphical_flow as estimator
from ggmflow.storage import archive
from ggmflow.storage.replace import TEMPORARY
from tests.support.models import without_training
from tests.support.runs import COMMAND, FINISHED, files_of, fit


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
def test_fit_can_be_resumed_after_a_crash_at_any_file_operation(untrained, monkeypatch, data_file, tmp_path, before):
    whole, train = tmp_path / "whole", estimator.fit_flow

    def train_without_checkpoint(*args, checkpoint, **kwargs):
        assert not checkpoint.exists()  # one of the old fit must be gone by now
        return train(*args, **kwargs)

    monkeypatch.setattr(estimator, "fit_flow", train_without_checkpoint)
    fit(whole, data_file)
    for count in range(100):
        run = tmp_path / f"run{count}"
        options = {}
        if before == "a finished run":
            fit(run, data_file, lam=3.0)
            archive.write(run / CHECKPOINT, {"of": "the old fit"}, {})
            options = {"force": True}
        with monkeypatch.context() as patch:
            calls = crash_at(patch, count)
            with contextlib.suppress(Killed):
                fit(run, data_file, **options)
        check_consistent(run)
        if before == "a finished run":  # the old fit or the new one
            assert read_record(run)["status"] == "finished"
        if len(calls) <= count:
            break
        if before == "nothing" or count:  # at count 0 the old run, of other parameters, is unchanged
            fit(run, data_file, resume=True)
            assert files_of(run) == FINISHED
            for name in (MODEL, EDGES):
                assert (run / name).read_bytes() == (whole / name).read_bytes()
    assert count > 5


def test_full_disk_leaves_no_files(untrained, monkeypatch, data_file, tmp_path):
    run, real = tmp_path / "run", os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        fit(run, data_file)
    assert files_of(run) <= {".lock"}
    monkeypatch.setattr(os, "fsync", real)
    fit(run, data_file)


def test_error_if_the_directory_holds_an_unfinished_fit(untrained, monkeypatch, data_file, tmp_path):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("ggmflow.cli.run.edge_table", lambda data_file: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fit(run, data_file)
    assert read_record(run)["status"] == "interrupted"
    with pytest.raises(RunError, match="not finished: resume it with resume=True, or begin again with force=True"):
        fit(run, data_file)
    fit(run, data_file, resume=True)
    assert read_record(run)["status"] == "finished"


@pytest.mark.parametrize(("before", "expected"), [("starting", "starting"), ("running", "interrupted")])
def test_interrupt_just_after_the_record_was_written(untrained, monkeypatch, data_file, tmp_path, before, expected):
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
            fit(run, data_file)
    assert read_record(run)["status"] == expected
    fit(run, data_file, resume=True)
    assert read_record(run)["status"] == "finished"


def test_finished_fit_stays_until_the_new_one_is_finished(untrained, monkeypatch, data_file, tmp_path):
    run = tmp_path / "run"
    fit(run, data_file, lam=3.0)
    before = {name: (run / name).read_bytes() for name in (RECORD, MODEL, EDGES, README)}
    with monkeypatch.context() as patch:
        patch.setattr("ggmflow.cli.run.edge_table", lambda data_file: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fit(run, data_file, force=True)
    assert files_of(run) == FINISHED | {".next"} and load_run(run).lam == 3.0
    assert {name: (run / name).read_bytes() for name in before} == before
    with pytest.raises(RunError, match="not finished: resume it with resume=True, or begin again with force=True"):
        fit(run, data_file)
    with pytest.raises(RunError, match=r"holds another fit, --lam was 2\.0 and is 5\.0"):
        fit(run, data_file, lam=5.0, resume=True)
    assert fit(run, data_file, lam=3.0, resume=True).lam == 3.0  # that one is finished
    (run / ".next" / RECORD).write_bytes(b"noise")
    assert load_run(run).lam == 3.0
    fit(run, data_file, force=True)
    assert load_run(run).lam == 2.0 and files_of(run) == FINISHED


def test_failed_replacement_does_not_allow_the_next_fit_to_replace(untrained, monkeypatch, data_file, tmp_path):
    run = tmp_path / "run"
    fit(run, data_file, lam=3.0)
    with monkeypatch.context() as patch:
        patch.setattr("ggmflow.storage.memory.available", lambda: 10_000)
        with pytest.raises(MemoryError):
            fit(run, data_file, force=True)
    with pytest.raises(RunError, match="holds a finished fit: choose another directory, or replace it with force=True"):
        fit(run, data_file, lam=5.0)
    assert load_run(run).lam == 3.0 and files_of(run) == FINISHED


@pytest.mark.parametrize("record", [b"noise", b'{"kind": "ggmflow run", "format": 99}'], ids=["damaged", "newer"])
def test_model_with_an_unreadable_record_stays_until_the_new_fit_is_finished(
    untrained, monkeypatch, data_file, tmp_path, record
):
    run = tmp_path / "run"
    fit(run, data_file, lam=3.0)
    before = (run / MODEL).read_bytes()
    (run / RECORD).write_bytes(record)
    with monkeypatch.context() as patch:
        patch.setattr("ggmflow.storage.memory.available", lambda: 10_000)
        with pytest.raises(MemoryError):
            fit(run, data_file, force=True)
    assert (run / MODEL).read_bytes() == before
    fit(run, data_file, force=True)
    assert load_run(run).lam == 2.0 and files_of(run) == FINISHED


@pytest.mark.parametrize("name", [MODEL, EDGES, README, RECORD])
def test_reading_during_a_replacement_never_mixes_two_fits(untrained, monkeypatch, data_file, tmp_path, name):
    """The old fit is read just before and after this file of the new one is moved."""
    run, real, seen = tmp_path / "run", os.replace, []
    killed_before_replacement(run, data_file, monkeypatch)

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


def test_error_for_the_model_of_another_run(untrained, monkeypatch, data_file, tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    fit(run, data_file)
    fit(other, data_file, lam=3.0)
    (run / MODEL).write_bytes((other / MODEL).read_bytes())
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with pytest.raises(RunError, match=r"model\.ggmflow and run\.json are of different fits"):
        load_run(run)


def killed_before_replacement(run, data_file, monkeypatch):
    """A finished fit, and in .next another finished one whose process was killed before the replacement."""
    fit(run, data_file, lam=3.0)
    with monkeypatch.context() as patch:
        patch.setattr("ggmflow.cli.run.settle", lambda path: None)
        fit(run, data_file, force=True)


def test_next_reader_completes_the_replacement_after_a_kill(untrained, monkeypatch, data_file, tmp_path):
    run = tmp_path / "run"
    killed_before_replacement(run, data_file, monkeypatch)
    assert files_of(run) == FINISHED | {".next"}
    assert load_run(run).lam == 2.0 and files_of(run) == FINISHED


def test_no_file_is_moved_while_another_process_has_the_lock(untrained, monkeypatch, data_file, tmp_path):
    run = tmp_path / "run"
    killed_before_replacement(run, data_file, monkeypatch)
    with filelock.FileLock(run / ".lock"):
        assert load_run(run).lam == 3.0 and files_of(run) == FINISHED | {".next"}
    assert load_run(run).lam == 2.0


def test_link_in_a_foreign_run_moves_no_files(untrained, data_file, tmp_path):
    mine, received = tmp_path / "mine", tmp_path / "received"
    fit(mine, data_file)
    fit(received, data_file, lam=3.0)
    (received / ".next").symlink_to(mine, target_is_directory=True)
    assert load_run(received).lam == 3.0 and files_of(mine) == FINISHED
    fit(received, data_file, lam=4.0, force=True)
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
def test_no_file_is_written_through_a_link_in_a_foreign_run(untrained, data_file, tmp_path, name, refused):
    """Such a link may point to any file of the user, and names of columns may be shell commands.

    Files that are only read may be links, which programs for large files make.
    """
    run, precious = tmp_path / "run", tmp_path / "precious"
    fit(run, data_file)
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
        fit(run, data_file, lam=4.0, force=True)
    assert precious.read_bytes() == before


@pytest.mark.slow
def test_smaller_fit_begins_after_one_without_enough_memory(untrained, monkeypatch, data_file, tmp_path):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("ggmflow.storage.memory.available", lambda: 10_000)
        with pytest.raises(MemoryError, match="query"):
            fit(run, data_file)
    assert read_record(run)["status"] == "failed"
    fit(run, data_file, query=["a"])
    assert read_record(run)["status"] == "finished"


def test_error_for_a_damaged_checkpoint(data_file, tmp_path):
    run = tmp_path / "run"
    with without_training():
        fit(run, data_file)
    record = read_record(run)
    (run / RECORD).write_text(json.dumps(record | {"status": "running"}))
    (run / CHECKPOINT).write_bytes(b"noise")
    # Now with training, which reads the checkpoint.
    with pytest.raises(RunError, match=r"cannot be resumed, .*checkpoint.*begin again with force=True"):
        fit(run, data_file, resume=True)


def test_seconds_before_a_kill_are_counted(untrained, data_file, tmp_path):
    run = tmp_path / "run"
    fit(run, data_file)
    record = read_record(run) | {"status": "running", "seconds": 100.0}
    del record["chosen"], record["ranges"]
    (run / RECORD).write_text(json.dumps(record))
    (run / CHECKPOINT).write_bytes(b"")
    moment = datetime.fromisoformat(record["updated"]).timestamp() + 1000
    os.utime(run / CHECKPOINT, (moment, moment))  # the last file that the killed fit wrote
    fit(run, data_file, resume=True)
    assert 1100 <= read_record(run)["seconds"] < 1200


def test_failed_fit_has_the_status_failed(monkeypatch, data_file, tmp_path):
    def fail(*args, **kwargs):
        raise FloatingPointError("training failed")

    monkeypatch.setattr(gf.GraphicalFlow, "fit", fail)
    with pytest.raises(FloatingPointError):
        fit(tmp_path / "run", data_file)
    assert read_record(tmp_path / "run")["status"] == "failed"
