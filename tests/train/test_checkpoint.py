"""Checkpoints: interrupted runs resume exactly, and files of other runs or damaged files raise."""

from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from ggmflow.storage import archive
from ggmflow.train import checkpoint, loop
from ggmflow.train.clock import Clock
from ggmflow.train.settings import CHUNK
from tests.support.toy import COOLING, HIGH, Toy, assert_same, interrupt_at, run


@pytest.mark.parametrize("prepares", [False, True], ids=["", "prepared"])
@pytest.mark.parametrize("cooling", [None, COOLING], ids=["range", "cooling"])
@pytest.mark.parametrize("chunk", [1, 4, 10])
def test_resumes_bit_by_bit_after_an_interrupt(tmp_path, chunk, cooling, prepares):
    """Also if a flow prepares something for conditions, which four chunks share without cooling."""
    path, more = tmp_path / "run.checkpoint", {"cooling": cooling, "snapshot_at": (1.0, 0.01) if cooling else ()}
    more["flow"] = Toy(prepares=prepares)
    if cooling and chunk == 1:  # no temperature of a snapshot was reached: no flow to keep, but a checkpoint
        with pytest.raises(KeyboardInterrupt):
            run(checkpoint=path, report=interrupt_at(chunk * CHUNK), **more)
    else:
        stopped = run(checkpoint=path, report=interrupt_at(chunk * CHUNK), **more)
        assert stopped.status == "interrupted"
        assert len(stopped.history) == chunk
        assert list(stopped.snapshots) == ([] if not cooling else [1.0, 0.01] if chunk == 10 else [1.0])
    seen = []
    resumed = run(checkpoint=path, report=seen.append, **more)
    assert [report.step for report in seen] == [CHUNK * k for k in range(chunk + 1, 11)]  # nothing is done twice
    assert resumed.status == "finished"
    assert_same(resumed, run(**more))


def test_resumes_after_an_interrupt_within_a_chunk(tmp_path, monkeypatch):
    """The interrupted chunk has reused the buffers of the state: the checkpoint is that of the chunk before."""
    path, whole, real, calls = tmp_path / "run.checkpoint", run(), loop.run_chunk, []

    def interrupted(*args):
        calls.append(real(*args))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return calls[-1]

    monkeypatch.setattr(loop, "run_chunk", interrupted)
    stopped = run(checkpoint=path)
    assert (stopped.status, len(stopped.history)) == ("interrupted", 3)
    monkeypatch.setattr(loop, "run_chunk", real)
    assert_same(run(checkpoint=path), whole)


def test_checkpoints_are_written_while_it_runs(tmp_path, monkeypatch):
    path, written = tmp_path / "run.checkpoint", []
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    whole = run(checkpoint=path, report=lambda report: written.append(path.read_bytes()))
    assert len(set(written)) == len(written) == 10
    for k, content in enumerate(written):  # as if the machine had been switched off
        path.write_bytes(content)
        assert_same(run(checkpoint=path), whole)
        assert path.exists(), k


@pytest.mark.parametrize("seconds", [None, "abc", [1.0], [1.0, "2"], [-1.0, 2.0], [10**400, 1.0]], ids=str)
def test_a_checkpoint_without_valid_seconds_is_resumed(tmp_path, seconds):
    path, clock = tmp_path / "run.checkpoint", Clock()
    run(checkpoint=path, report=interrupt_at(CHUNK))
    header, arrays = archive.read(path)
    assert header["seconds"][1] > 0
    archive.write(path, header | {"seconds": seconds}, arrays)
    assert_same(run(checkpoint=path, clock=clock), run())
    assert 0 < clock.training < 600


def test_a_resumed_run_stops_early_at_the_same_chunk(tmp_path):
    path, flow = tmp_path / "run.checkpoint", Toy(step_size=0.0)
    whole = run(flow, patience=0.3)
    assert run(flow, patience=0.3, checkpoint=path, report=interrupt_at(4 * CHUNK)).status == "interrupted"
    again = run(flow, patience=0.3, checkpoint=path)
    assert again.status == whole.status == "stopped early"
    assert_same(again, whole)


def test_resumes_with_an_elbo_that_is_not_finite(tmp_path):
    path, flow = tmp_path / "run.checkpoint", Toy()
    flow = eqx.tree_at(lambda flow: flow.mean, flow, jnp.array([jnp.inf, 0.0]))
    assert run(flow, checkpoint=path, report=interrupt_at(CHUNK)).status == "failed"
    resumed = run(flow, checkpoint=path)
    assert resumed.status == "failed"
    assert len(resumed.history) == 10


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 8},
        {"steps": 20 * CHUNK},
        {"num_conditions": 16},
        {"high": HIGH + 0.1},
        {"flow": Toy(poison=3.0)},
        {"cooling": COOLING},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_checkpoint_of_another_run_raises(tmp_path, change):
    path = tmp_path / "run.checkpoint"
    run(checkpoint=path, report=interrupt_at(CHUNK))
    with pytest.raises(ValueError, match=r"run\.checkpoint is no checkpoint of this fit.*Delete it"):
        run(checkpoint=path, **change)


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays | {"leaf0": np.zeros((1, 1), arrays["leaf0"].dtype)},
        lambda arrays: arrays | {"leaf0": arrays["leaf0"].astype(np.float64)},
        lambda arrays: {name: array for name, array in arrays.items() if name != "leaf0"},
        lambda arrays: {name: array for name, array in arrays.items() if name != "history"},
        lambda arrays: arrays | {"history": arrays["history"][:, :3]},
        lambda arrays: arrays | {"history": np.full_like(arrays["history"], np.nan)},
        lambda arrays: arrays | {"history": np.array(1.0)},
        lambda arrays: arrays | {"best": np.array([0.0, np.inf])},
        lambda arrays: arrays | {"more": np.zeros(1)},
    ],
    ids=["shape", "type", "leaf", "history", "columns", "nan", "number", "chunk", "more"],
)
def test_a_damaged_checkpoint_raises_and_is_named(tmp_path, change):
    path = tmp_path / "run.checkpoint"
    run(checkpoint=path, report=interrupt_at(CHUNK))
    header, arrays = archive.read(path)
    archive.write(path, {"kind": header["kind"], "identity": header["identity"]}, change(arrays))
    with pytest.raises(ValueError, match=r"run\.checkpoint is no checkpoint of this fit: it is damaged"):
        run(checkpoint=path)


def test_a_file_that_is_no_checkpoint_raises(tmp_path):
    path = tmp_path / "run.checkpoint"
    path.write_text("something else")
    with pytest.raises(archive.ModelFileError, match="not a ggmflow model"):
        run(checkpoint=path)
    archive.write(path, {"kind": "model"}, {})
    with pytest.raises(ValueError, match="no checkpoint of this fit"):
        run(checkpoint=path)


def test_an_interrupt_in_the_first_chunk_writes_no_file(tmp_path, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "run_chunk", interrupted)
    path = Path(tmp_path / "run.checkpoint")
    with pytest.raises(KeyboardInterrupt):
        run(checkpoint=path)
    assert not path.exists()


def test_a_checkpoint_in_a_directory_that_does_not_exist_raises(tmp_path):
    with pytest.raises(FileNotFoundError, match="no directory"):
        run(checkpoint=tmp_path / "nowhere" / "c.ckpt")


def test_a_checkpoint_that_cannot_be_written_does_not_end_training(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(archive, "write", full)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        assert run(checkpoint=tmp_path / "c.ckpt").status == "finished"


def test_a_finished_run_keeps_its_checkpoint(tmp_path):
    path = tmp_path / "c.ckpt"
    first = run(checkpoint=path)
    assert path.exists()
    assert_same(run(checkpoint=path), first)
