"""Killed, out of space, interrupted, two at once: files are old or new, fits continue, and one line says why."""

import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from ggmflow.cli.app import app
from ggmflow.cli.run_record import EDGES, MODEL, RECORD, REPORT, read_record
from ggmflow.storage import archive
from tests.support import faults, processes

resource = pytest.importorskip("resource", reason="POSIX")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks, and looks at /proc")


# ----------------------------------------------------------------------------------------------------------- every step
@pytest.mark.slow
def test_every_step_of_every_write_may_fail():
    """Whoever writes a file, at whatever step it is killed, interrupted or out of space."""
    found = faults.every_step()
    assert not found.lost, "\n".join(found.lost[:5])
    assert found.faults > 700


# Each of these loses something, and the disk must say so.
MISTAKES = """
import json, os, tempfile
from pathlib import Path
from tests.support.disk import Victim, try_all

def in_place(place, new):
    with open(place / "x", "w") as file:
        file.write("new" if new else "old")
        file.flush()
        file.write("end")

def removes_first(place, new):
    (place / "x").unlink(missing_ok=True)
    in_place(place, new)

def leaves_a_temporary(place, new):
    with open(place / ".ggmflow-1.tmp", "w") as file:
        file.write("new" if new else "old")
    os.replace(place / ".ggmflow-1.tmp", place / "x")

found = {}
for mistake in (in_place, removes_first, leaves_a_temporary):
    for kind in ("kill", "full", "interrupt"):
        with tempfile.TemporaryDirectory() as place:
            found[mistake.__name__, kind] = bool(try_all(Victim(mistake, ("x",)), kind, Path(place))[1])
print(sorted(key for key, seen in found.items() if not seen))
"""


def test_known_mistakes_are_seen():
    result = subprocess.run([sys.executable, "-c", MISTAKES], capture_output=True, text=True, timeout=120)
    # Only a killed process may leave a temporary file.
    assert result.stdout == "[('leaves_a_temporary', 'kill')]\n", result.stderr


# ------------------------------------------------------------------------------------------------------- real processes
@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """An earlier fit, and an undisturbed one of what is disturbed below."""
    return processes.set_up(tmp_path_factory.mktemp("faults"))


@pytest.mark.slow
def test_a_killed_refit_keeps_the_earlier_fit_and_while_it_lived_refused_a_second_one(stage):
    run = stage.fresh(stage.old)
    arguments = ["fit", stage.table, "-o", run, *processes.OPTIONS, "--force"]
    first = processes.start(*arguments, code=processes.OFTEN)
    processes.wait_until(first, (run / ".next" / "checkpoint").exists)
    first.send_signal(signal.SIGSTOP)  # so that it does not end before the second one begins
    second = processes.end(processes.start(*arguments))
    assert faults.bad_end(second, (2,), f"another ggmflow process uses {run}: wait for it") == []
    first.kill()
    assert processes.end(first).code == -signal.SIGKILL
    assert faults.bytes_of(run, MODEL, EDGES, RECORD) == faults.bytes_of(stage.old, MODEL, EDGES, RECORD)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "begun"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_a_signal_ends_the_program_in_one_line(stage, number, begun):
    """While it loads, and while it trains."""
    run = stage.fresh()
    process = processes.start("fit", stage.table, "-o", run, *processes.OPTIONS)
    if begun:
        processes.wait_until(process, lambda: (run / RECORD).exists() and read_record(run)["status"] == "running")
        result = processes.end_with(process, number)
        assert "Interrupted. To resume: " in result.errors and read_record(run)["status"] == "interrupted"
    else:
        result = processes.hit(process, 0.2, number)
        assert result.errors == "Interrupted.\n" and not run.exists()
    assert faults.bad_end(result, (128 + number,), "Interrupted") == []


@contextmanager
def small_files():
    """No file of this process may grow beyond 2000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "name"),
    [(["report"], REPORT), (["export", "--format", "netcdf"], "posterior.nc")],
)
def test_a_full_disk_is_one_line_that_names_the_file(stage, arguments, name):
    """HDF5 would take the process down."""
    run = stage.fresh(stage.whole)
    (run / name).write_text("the earlier one")
    before = faults.contents(run)
    with small_files():
        result = CliRunner().invoke(app, [arguments[0], str(run), *arguments[1:]])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.lstrip() == f"Error: cannot use {run / name}: File too large\n"
    assert faults.contents(run) == before


# --------------------------------------------------------------------------------------------------------------- checks
@pytest.mark.slow
def test_the_checks_see_damage(stage):
    run = stage.fresh(stage.whole)
    assert faults.damage(run) == []
    for name in (MODEL, RECORD):
        shutil.copy(stage.whole / name, run / name)
        content = (run / name).read_bytes()
        (run / name).write_bytes(content[:-10])
        assert [line.split(":")[0] for line in faults.damage(run)] == [name]
        (run / name).write_bytes(content)
    (run / REPORT).write_text("<html>")
    assert [line.split(":")[0] for line in faults.damage(run)] == [REPORT]
    traceback = processes.Ended(1, "Traceback (most recent call last):\n", True)
    silent, wrong = processes.Ended(130, "", True), processes.Ended(1, "Interrupted.\n", True)
    assert all(faults.bad_end(each, (130,), "Interrupted") for each in (traceback, silent, wrong))
    assert archive.read(run / MODEL)
