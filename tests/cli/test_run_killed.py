"""Fits in processes of their own that are killed or interrupted by a signal."""

import random
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from ggmflow.cli.run import load_run
from ggmflow.cli.run_record import (
    CHECKPOINT,
    EDGES,
    MODEL,
    RECORD,
    read_record,
)
from ggmflow.storage import archive
from ggmflow.train.loop import CHUNK
from tests.support.runs import FINISHED, files_of, fit

# A checkpoint after every chunk, so that a fit of seconds can be killed between them.
SCRIPT = """
import sys
from ggmflow.train import checkpoint
from ggmflow.cli.app import app
checkpoint.SECONDS_BETWEEN_CHECKPOINTS = 0.0
app(prog_name="ggmflow")
"""


STEPS = 80 * CHUNK  # seconds of training, so that a signal comes before its end
ARGUMENTS = ["--lam", "2", "--q", "1", "--no-pretrained", "--steps", str(STEPS)]


def start(data_file, run, *more):
    command = [sys.executable, "-c", SCRIPT, "fit", str(data_file), "-o", str(run), *ARGUMENTS, *more]
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
def test_fit_resumed_after_sigkill_gives_the_same_model(data_file, tmp_path):
    """The files must agree whenever the process is killed; the moments differ from run to run."""
    whole, run, rng = tmp_path / "whole", tmp_path / "run", random.Random(1)
    same = {"steps": STEPS, "progress": True}
    fit(whole, data_file, **same)
    kills, seen = 0, []
    for attempt in range(2):
        process = start(data_file, run, *(["--resume"] if attempt else []))
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
    fit(run, data_file, resume=True, **same)
    assert files_of(run) == FINISHED
    for name in (MODEL, EDGES):
        assert (run / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_prints_the_command_to_resume(data_file, tmp_path):
    run = tmp_path / "run"
    process = start(data_file, run)
    wait_for(process, lambda: (run / CHECKPOINT).exists())
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert not output
    last = errors.rstrip().splitlines()[-1]
    assert last.startswith("Interrupted. To resume: ") and last.endswith(f"--steps {STEPS} --resume")
    assert "Traceback" not in errors
    assert read_record(run)["status"] == "interrupted"
    fit(run, data_file, resume=True, steps=STEPS)
    assert load_run(run).n_iter_ == STEPS
