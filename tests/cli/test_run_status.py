"""The tables of `ggmflow.cli.run_status`: fits make every transition, and every start is the one of the table."""

import contextlib
import json

import pytest

import ggmflow as gf
from ggmflow.cli.run import fit_run
from ggmflow.cli.run_record import CHECKPOINT, EDGES, MODEL, README, RECORD, describe_file, read_record
from ggmflow.cli.run_status import TRANSITIONS, Action, Start, Status, how_to_start
from ggmflow.data.scatter import Scatter
from ggmflow.storage import archive
from tests.support.models import TABLE

RESULTS = {MODEL, EDGES, README}


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


@pytest.fixture
def made(monkeypatch):
    """The transitions that are looked up in the table while a test runs."""
    found = set()

    class Recorded(dict):
        def __getitem__(self, key):
            found.add(key)
            return super().__getitem__(key)

    monkeypatch.setattr("ggmflow.cli.run.TRANSITIONS", Recorded(TRANSITIONS))
    return found


@pytest.fixture
def fit(untrained, tmp_path):
    """A function that fits without training in the directory `run`, and returns the status and the files then."""
    table, run = tmp_path / "table.csv", tmp_path / "run"
    TABLE.to_csv(table, index=False)
    source = describe_file(table) | {"delimiter": ",", "decimal": ".", "drop": []}

    def fit(**how):
        model = gf.GraphicalFlow(lam=2.0, q=1.0, random_state=0, progress=False)
        with contextlib.suppress(Killed, KeyboardInterrupt, FloatingPointError):
            fit_run(model, Scatter.from_data(table), run, source, "ggmflow fit", **how)
        return read_record(run)["status"], {entry.name for entry in run.iterdir()} - {".lock", RECORD}

    return fit


@contextlib.contextmanager
def training_raises(error, *, leaves_checkpoint=True):
    def train(self, scatter, *, checkpoint):
        if leaves_checkpoint:
            archive.write(checkpoint, {"kind": "checkpoint"}, {})
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gf.GraphicalFlow, "fit", train)
        yield


def test_fits_make_every_transition(fit, made, tmp_path):
    with training_raises(Killed()):
        assert fit() == (Status.RUNNING, {CHECKPOINT})
    with training_raises(KeyboardInterrupt()):
        assert fit(resume=True) == (Status.INTERRUPTED, {CHECKPOINT})
    with training_raises(FloatingPointError()):
        assert fit(resume=True) == (Status.FAILED, {CHECKPOINT})
    assert fit(resume=True) == (Status.FINISHED, RESULTS)
    assert made == {(before, action) for (before, action), after in TRANSITIONS.items() if after is not before} | {
        (Status.RUNNING, Action.TRAIN)
    }
    with training_raises(FloatingPointError(), leaves_checkpoint=False):
        assert fit(force=True) == (Status.FINISHED, RESULTS | {".next"})  # stays until the new fit is finished
    assert read_record(tmp_path / "run" / ".next")["status"] is Status.FAILED
    assert fit(resume=True) == (Status.FINISHED, RESULTS)


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.RUNNING])
@pytest.mark.parametrize(
    ("error", "action"), [(KeyboardInterrupt, Action.INTERRUPT), (FloatingPointError, Action.FAIL)]
)
def test_error_before_training_leaves_the_status(fit, made, tmp_path, monkeypatch, status, error, action):
    fit()
    record = read_record(tmp_path / "run") | {"status": status}
    (tmp_path / "run" / RECORD).write_text(json.dumps(record), encoding="utf-8")

    def fail(*args):
        raise error

    monkeypatch.setattr("ggmflow.cli.run.start_in", fail)
    made.clear()
    assert fit(resume=True) == (status, RESULTS)
    assert made == {(status, action)}


# Status, whether there is a checkpoint; how `fit`, `fit --resume` and `fit --force` start.
STARTS = [
    (None, False, Start.BEGIN, Start.BEGIN, Start.BEGIN),
    (Status.STARTING, False, Start.REFUSE, Start.BEGIN, Start.BEGIN),
    (Status.STARTING, True, Start.REFUSE, Start.BEGIN, Start.BEGIN),
    (Status.RUNNING, False, Start.REFUSE, Start.TRAIN, Start.BEGIN),
    (Status.RUNNING, True, Start.REFUSE, Start.TRAIN, Start.BEGIN),
    (Status.INTERRUPTED, False, Start.REFUSE, Start.TRAIN, Start.BEGIN),
    (Status.INTERRUPTED, True, Start.REFUSE, Start.TRAIN, Start.BEGIN),
    (Status.FAILED, False, Start.BEGIN, Start.BEGIN, Start.BEGIN),
    (Status.FAILED, True, Start.REFUSE, Start.TRAIN, Start.BEGIN),
    (Status.FINISHED, False, Start.REFUSE, Start.LOAD, Start.BEGIN),
    (Status.FINISHED, True, Start.REFUSE, Start.LOAD, Start.BEGIN),
]


@pytest.mark.parametrize(("status", "has_checkpoint", "plain", "resume", "force"), STARTS)
def test_start_of_a_fit(status, has_checkpoint, plain, resume, force):
    for expected, how in ((plain, (False, False)), (resume, (True, False)), (force, (False, True))):
        given = dict(zip(("resume", "force"), how, strict=True))
        assert how_to_start(status, has_checkpoint=has_checkpoint, **given) is expected
