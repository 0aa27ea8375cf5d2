"""The training loop on a one-parameter toy flow: what it repeats, resumes, skips, keeps and refuses."""

import signal
from pathlib import Path
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ggmflow.storage import archive
from ggmflow.train import clock as clock_module
from ggmflow.train import loop as train
from ggmflow.train.clock import Clock
from ggmflow.train.loop import (
    CHUNK,
    Report,
    Settings,
    condition_grid,
    cooled_temperature,
    default_settings,
    draw_conditions,
)
from tests.support.toy import Toy, toy_loss, toy_noise

KEY = jax.random.key(7)
LOW, HIGH = np.array([-1.0, 0.25, np.log(0.01)]), np.array([2.0, 1.25, 0.0])
COOLING = (5.0, 0.01, 100)


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    # The compiled chunk is kept by the structure of the flow, so it never meets the real loss.
    monkeypatch.setattr(train, "draw_noise", toy_noise)
    monkeypatch.setattr(train, "flow_loss", toy_loss)


def run(flow=None, key=KEY, steps=10 * CHUNK, low=LOW, high=HIGH, num_conditions=8, cooling=None, patience=2.0, **more):
    settings = Settings(steps, num_conditions, 4, 0.1, cooling, patience=patience)
    return train.train(flow or Toy(), key, low, high, settings, **more)


def interrupt_at(step):
    """A report function, called at the end of every chunk, during which Ctrl-C is pressed."""

    def report(report):
        if report.step == step:
            raise KeyboardInterrupt

    return report


def assert_same(a, b):
    assert a.history == b.history
    assert a.snapshots.keys() == b.snapshots.keys()
    for x, y in zip(jax.tree.leaves((a.flow, a.snapshots)), jax.tree.leaves((b.flow, b.snapshots)), strict=True):
        np.testing.assert_array_equal(x, y)


# ------------------------------------------------------------------------------------------------------ an ordinary run
def test_learns_and_repeats_itself():
    flow, seen = Toy(), []
    first = run(flow, steps=10 * CHUNK - 3, report=seen.append)
    assert first.status == "finished"
    assert first.history == seen
    assert [report.step for report in seen] == list(range(CHUNK, 10 * CHUNK + 1, CHUNK))  # whole chunks
    assert {report.steps for report in seen} == {10 * CHUNK}
    assert all(type(value) in (int, float) for report in seen for value in report)
    # Of the temperatures ½ are 1, ⅛ are 0.01, the others log-uniform: E log T = (⅛ + ½·⅜) log 0.01.
    assert float(first.flow.mean.sum()) == pytest.approx(3 + 0.3125 * np.log(0.01), abs=0.15)
    assert seen[-1].elbo > seen[0].elbo
    np.testing.assert_array_equal(flow.mean, 0)  # buffers are donated, but not those of the caller
    assert_same(first, run(flow, steps=10 * CHUNK - 3))
    other = run(key=jax.random.key(8))
    assert other.history != first.history


class OfManyVariables(Toy):
    n_query: ClassVar = 0  # of one variable: a query


def test_conditions_in_groups_give_the_same_gradients(monkeypatch):
    """Steps of a large blanket take a few conditions after the other, which changes the order of sums only."""
    whole, seen = run(), []

    def loss(flow, noise, conditions):
        seen.append((noise.shape, conditions.shape))
        return toy_loss(flow, noise, conditions)

    monkeypatch.setattr(train, "_MOST_MATRIX_ENTRIES", 2)
    monkeypatch.setattr(train, "flow_loss", loss)
    grouped = run(OfManyVariables())
    assert set(seen) == {((1, 2, 4), (2, 3))}
    assert [each.step for each in grouped.history] == [each.step for each in whole.history]
    np.testing.assert_allclose(
        [each[2:4] for each in grouped.history], [each[2:4] for each in whole.history], rtol=1e-5
    )
    np.testing.assert_allclose(grouped.flow.mean, whole.flow.mean, rtol=1e-5)


@pytest.mark.parametrize(
    ("num", "d", "expected"), [(8, 318, 8), (8, 1024, 8), (8, 1025, 4), (8, 2006, 2), (8, 5000, 1)]
)
def test_fewer_conditions_at_once_the_more_variables(num, d, expected):
    assert train.conditions_at_once(num, d) == expected


def test_a_number_of_conditions_that_is_prime_goes_at_once_or_one_by_one():
    assert train.conditions_at_once(7, 1000) == 7 and train.conditions_at_once(7, 1200) == 1


def test_keeps_the_weights_with_the_best_elbo():
    """Held-out ELBOs of the toy fluctuate around their limit: the flow returned is that of the highest."""
    full = run(steps=20 * CHUNK)
    best = int(np.argmax([report.elbo for report in full.history]))
    assert best < 19  # or the last one would do
    until = run(steps=20 * CHUNK, report=interrupt_at((best + 1) * CHUNK))
    np.testing.assert_array_equal(full.flow.mean, until.flow.mean)


def test_expected_ess_is_that_of_the_held_out_ratios():
    """With nothing to learn log q − log p̃ = ½(z − c)² − ½z² has variance c² = (3 + log T)² over z, given T.

    64 conditions of 4 draws: the mean of 64 variances of 3 degrees of freedom has an sd of 0.25·√(2/192) = 0.026, and
    the ELBO one of 0.5/√256 = 0.03. False alarms: none, the noise is fixed.
    """
    low, high = np.array([0.0, 1.0, -2.5]), np.array([0.0, 1.0, -2.5])
    report = run(Toy(step_size=0.0), low=low, high=high, num_conditions=64, steps=CHUNK).history[0]
    assert np.log(report.ess) == pytest.approx(-0.25, abs=0.1)
    assert report.elbo == pytest.approx(-0.125, abs=0.15)


# ---------------------------------------------------------------------------------------------- interrupts, checkpoints
@pytest.mark.parametrize("cooling", [None, COOLING], ids=["range", "cooling"])
@pytest.mark.parametrize("chunk", [1, 4, 10])
def test_resumes_bit_by_bit_after_an_interrupt(tmp_path, chunk, cooling):
    path, more = tmp_path / "run.checkpoint", {"cooling": cooling, "snapshot_at": (1.0, 0.01) if cooling else ()}
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
    """The interrupted chunk has taken the buffers of the state: the checkpoint is that of the chunk before."""
    path, whole, real, calls = tmp_path / "run.checkpoint", run(), train._run_chunk, []

    def interrupted(*args):
        calls.append(real(*args))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return calls[-1]

    monkeypatch.setattr(train, "_run_chunk", interrupted)
    stopped = run(checkpoint=path)
    assert (stopped.status, len(stopped.history)) == ("interrupted", 3)
    monkeypatch.setattr(train, "_run_chunk", real)
    assert_same(run(checkpoint=path), whole)


def test_checkpoints_are_written_while_it_runs(tmp_path, monkeypatch):
    path, written = tmp_path / "run.checkpoint", []
    monkeypatch.setattr(train, "_SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    whole = run(checkpoint=path, report=lambda report: written.append(path.read_bytes()))
    assert len(set(written)) == len(written) == 10
    for k, content in enumerate(written):  # as if the machine had been switched off
        path.write_bytes(content)
        assert_same(run(checkpoint=path), whole)
        assert path.exists(), k


class SlowChunks:
    """Chunks that take 3 s by a clock that is set by hand, the first one after 60 s of what JAX says is compiling."""

    def __init__(self):
        self.now, self.real, self.compiled = 0.0, train._run_chunk, False

    def monotonic(self):
        return self.now

    def __call__(self, *args):
        if not self.compiled:
            self.now += 60
            jax.monitoring.record_event_duration_secs("/jax/core/compile/backend_compile_duration", 60.0)
            self.compiled = True
        self.now += 3
        return self.real(*args)


def test_seconds_of_compiling_and_of_steps_are_counted_apart_and_add_up_when_resumed(tmp_path, monkeypatch):
    path, seen = tmp_path / "run.checkpoint", []
    run()  # so that nothing is really compiled below

    def slowly(clock, report):
        with monkeypatch.context() as patch:
            slow = SlowChunks()
            patch.setattr(train, "_run_chunk", slow)
            patch.setattr(clock_module, "time", slow)
            run(checkpoint=path, report=report, clock=clock)
        return clock.compiling, clock.training

    assert slowly(Clock(), interrupt_at(4 * CHUNK)) == (60.0, 12.0)
    resumed = Clock()
    assert slowly(resumed, lambda _: seen.append(resumed.training)) == (120.0, 30.0)
    assert seen == [15.0, 18.0, 21.0, 24.0, 27.0, 30.0]  # known at each report, so that time left can be told


def test_a_real_compilation_is_counted_once():
    first, second = Clock(), Clock()
    run(num_conditions=5, clock=first)
    run(num_conditions=5, clock=second)
    assert first.compiling > 0 and second.compiling == 0
    assert first.training > 0 and second.training > 0


@pytest.mark.parametrize("seconds", [None, "abc", [1.0], [1.0, "2"], [-1.0, 2.0], [10**400, 1.0]], ids=str)
def test_a_checkpoint_that_does_not_tell_its_seconds_is_resumed(tmp_path, seconds):
    path, clock = tmp_path / "run.checkpoint", Clock()
    run(checkpoint=path, report=interrupt_at(CHUNK))
    header, arrays = archive.read(path)
    assert header["seconds"][1] > 0
    archive.write(path, header | {"seconds": seconds}, arrays)
    assert_same(run(checkpoint=path, clock=clock), run())
    assert 0 < clock.training < 600


def test_resuming_stops_early_where_it_would_have(tmp_path):
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
        {"key": jax.random.key(8)},
        {"steps": 20 * CHUNK},
        {"num_conditions": 16},
        {"high": HIGH + 0.1},
        {"flow": Toy(poison=3.0)},
        {"cooling": COOLING},
    ],
    ids=lambda change: next(iter(change)),
)
def test_refuses_the_checkpoint_of_another_run(tmp_path, change):
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
def test_a_checkpoint_with_other_arrays_is_named(tmp_path, change):
    path = tmp_path / "run.checkpoint"
    run(checkpoint=path, report=interrupt_at(CHUNK))
    header, arrays = archive.read(path)
    archive.write(path, {"kind": header["kind"], "identity": header["identity"]}, change(arrays))
    with pytest.raises(ValueError, match=r"run\.checkpoint is no checkpoint of this fit: it is damaged"):
        run(checkpoint=path)


def test_refuses_files_that_are_no_checkpoint(tmp_path):
    path = tmp_path / "run.checkpoint"
    path.write_text("something else")
    with pytest.raises(archive.ModelFileError, match="not a ggmflow model"):
        run(checkpoint=path)
    archive.write(path, {"kind": "model"}, {})
    with pytest.raises(ValueError, match="no checkpoint of this fit"):
        run(checkpoint=path)


def test_an_interrupt_before_the_first_chunk_ends_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "_run_chunk", interrupted)
    path = Path(tmp_path / "run.checkpoint")
    with pytest.raises(KeyboardInterrupt):
        run(checkpoint=path)
    assert not path.exists()


def test_other_errors_are_not_swallowed():
    def report(report):
        raise OSError("the terminal has gone")

    with pytest.raises(OSError, match="terminal"):
        run(report=report)


# ------------------------------------------------------------------------------------------------- what may go wrong
def test_steps_that_are_not_finite_are_skipped_and_counted():
    """A step is poisoned if any of its q exceeds 1.2; which those are follows from the key."""
    limit = 1.2
    trained = run(Toy(poison=limit), steps=4 * CHUNK)

    def poisoned(step):
        condition_key = jax.random.split(jax.random.fold_in(KEY, step))[0]
        return jnp.max(draw_conditions(condition_key, 8, *ends())[:, 1]) > limit

    bad = np.asarray(jax.vmap(poisoned)(jnp.arange(1, 4 * CHUNK + 1)))
    assert 10 < bad.sum() < 90
    assert [report.skipped for report in trained.history] == np.cumsum(bad)[CHUNK - 1 :: CHUNK].tolist()
    assert np.all(np.isfinite(trained.flow.mean))
    assert trained.status == "finished"
    assert trained.history[-1].elbo > trained.history[0].elbo


def test_fails_if_nothing_is_finite():
    flow = eqx.tree_at(lambda flow: flow.mean, Toy(), jnp.array([jnp.nan, 0.0]))
    assert run(flow, steps=3 * CHUNK).status == "failed"
    assert run(flow, steps=3 * CHUNK, cooling=COOLING, snapshot_at=(1.0,)).status == "failed"


def test_stops_early_when_the_elbo_no_longer_rises():
    """Nothing to learn: the first chunk stays the best, and patience of 0.3·10 chunks ends with the fifth."""
    trained = run(Toy(step_size=0.0), patience=0.3)
    assert trained.status == "stopped early"
    assert len(trained.history) == 5
    assert run(Toy(step_size=0.0), patience=0.3, cooling=COOLING).status == "finished"  # not while it cools


# ----------------------------------------------------------------------------------------------------------- cooling
def test_cooling_is_geometric_in_a_hundred_steps():
    """T_i = 5·(0.01/5)^{i/100}, i = 0 … 100, each for the same number of chunks; the one nearest to 1 is 1."""
    temperatures = [cooled_temperature(COOLING, k, 404) for k in range(404)]
    stages, counts = np.unique(temperatures, return_counts=True)
    np.testing.assert_allclose(stages[::-1], 5 * 0.002 ** (np.arange(101) / 100), rtol=1e-12)
    assert set(counts) == {4}
    assert temperatures == sorted(temperatures, reverse=True)
    snapped = [cooled_temperature(COOLING, k, 404, (1.0, 0.01)) for k in range(404)]
    assert snapped.count(1.0) == 4
    assert snapped.count(0.01) == 4
    assert snapped == sorted(snapped, reverse=True)
    assert sum(a != b for a, b in zip(snapped, temperatures, strict=True)) <= 8
    np.testing.assert_allclose(snapped, temperatures, rtol=0.04)
    assert cooled_temperature(None, 3, 10) is None


@pytest.mark.parametrize("num_chunks", [2, 3, 12, 100, 150])
def test_cooling_reaches_its_end_in_any_number_of_chunks(num_chunks):
    temperatures = [cooled_temperature(COOLING, k, num_chunks, (0.01,)) for k in range(num_chunks)]
    assert temperatures[0] == 5
    assert temperatures[-1] == 0.01
    assert np.all(np.diff(temperatures) <= 0)


def test_snapshots_are_the_weights_at_the_end_of_their_stage():
    more = {"cooling": COOLING, "snapshot_at": (1.0, 0.01), "steps": 12 * CHUNK}
    trained = run(**more)
    temperatures = [cooled_temperature(COOLING, k, 12, (1.0, 0.01)) for k in range(12)]
    until = run(**more, report=interrupt_at((temperatures.index(1.0) + 1) * CHUNK))
    np.testing.assert_array_equal(trained.snapshots[1.0].mean, until.flow.mean)
    np.testing.assert_array_equal(trained.snapshots[0.01].mean, trained.flow.mean)
    # The target moves with log T, and the weights follow.
    assert float(trained.snapshots[0.01].mean.sum()) < float(trained.snapshots[1.0].mean.sum())


# --------------------------------------------------------------------------------------------------------- conditions
def ends(low=LOW, high=HIGH):
    return jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32)


draw = jax.jit(draw_conditions, static_argnums=1)


def assert_spread(conditions, num):
    conditions = np.asarray(conditions)
    assert conditions.shape == (num, 3)
    assert conditions.dtype == np.float32
    assert np.all(conditions >= LOW.astype(np.float32) - 1e-6)
    assert np.all(conditions <= HIGH.astype(np.float32) + 1e-6)
    for end, share in ((HIGH[2], 0.5), (LOW[2], 0.125)):
        assert abs(np.isclose(conditions[:, 2], end, atol=1e-6).mean() - share) <= 2.5 / num
    for k in range(2):  # every quarter of the range has its quarter of conditions
        quarter = np.floor(4 * (conditions[:, k] - LOW[k]) / (HIGH[k] - LOW[k]) * (1 - 1e-6))
        assert np.all(np.abs(np.bincount(quarter.astype(int), minlength=4) / num - 0.25) <= 2 / num + 1e-9)


@pytest.mark.parametrize("num", [8, 32])
def test_conditions_fill_the_range_with_most_at_the_end_temperatures(num):
    assert_spread(condition_grid(num, LOW, HIGH), num)
    for seed in range(5):
        assert_spread(draw(jax.random.key(seed), num, *ends()), num)
    a, b = (draw(jax.random.key(seed), num, *ends()) for seed in (0, 1))
    assert not np.allclose(a, b)
    # λ and q are paired at random: they do not go together. Correlation of 32 pairs, 3 sd = 0.53; fixed key.
    assert abs(np.corrcoef(condition_grid(32, LOW, HIGH)[:, :2].T)[0, 1]) < 0.53


def test_conditions_of_a_degenerate_range_are_that_point():
    low = high = np.array([0.7, 1.0, 0.0])
    np.testing.assert_array_equal(condition_grid(3, low, high), np.tile(low.astype(np.float32), (3, 1)))
    np.testing.assert_array_equal(draw(KEY, 3, *ends(low, high)), np.tile(low.astype(np.float32), (3, 1)))
    assert condition_grid(1, LOW, HIGH).shape == (1, 3)


def test_conditions_while_cooling_share_the_temperature():
    conditions = np.asarray(draw(KEY, 16, *ends(), jnp.float32(0.4)))
    np.testing.assert_array_equal(conditions[:, 2], np.float32(0.4))
    assert len(np.unique(conditions[:, 0])) == 16


def test_reports_survive_an_array():
    history = [Report(25, 50, np.nan, 0.0, 3), Report(50, 50, -1.5, 0.25, 3)]
    again = train.reports_from_array(np.array(history, float))
    assert again[1] == history[1]
    assert all(type(report.step) is type(report.skipped) is int for report in again)
    assert np.isnan(again[0].elbo)


def test_default_settings_are_those_of_the_page():
    """The table of docs/training.md: D up to, steps, steps with a range of temperatures, batch size."""
    page = Path(__file__).parents[2].joinpath("docs", "training.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    table = [row for row in rows if row[0].startswith("up to ") or row[0] == "more"]
    assert len(table) == 4
    start = 1
    for name, *numbers in table:
        end = 10_000 if name == "more" else int(name.removeprefix("up to "))
        for entries in (start, end):
            one, many = (default_settings(entries, cold) for cold in (False, True))
            batch = one.num_conditions * one.num_draws
            assert [one.steps, many.steps, batch] == [int(number) for number in numbers]
        start = end + 1


def test_given_settings_are_used():
    settings = default_settings(10, False, steps=26, batch_size=18)
    assert (settings.steps, settings.num_conditions, settings.num_draws) == (2 * CHUNK, 4, 4)
    assert default_settings(10, False, batch_size=8).num_draws == 2


def test_a_checkpoint_without_a_directory_is_refused_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match="no directory"):
        run(checkpoint=tmp_path / "nowhere" / "c.ckpt")


def test_a_checkpoint_that_cannot_be_written_does_not_end_training(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(train, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(archive, "write", full)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        assert run(checkpoint=tmp_path / "c.ckpt").status == "finished"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_compiling_waits(number):
    """JAX crashes if a signal handler raises inside its compiler; SIGTERM has one in the command line."""
    before, reached = signal.getsignal(signal.SIGINT), []
    default = signal.getsignal(signal.SIGTERM)
    own = signal.signal(number, signal.default_int_handler)  # a program in the background may ignore SIGINT
    try:
        with pytest.raises(KeyboardInterrupt), train._interrupt_later():
            signal.raise_signal(number)
            reached.append(True)
        assert reached and signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, own)
    with train._interrupt_later():
        assert signal.getsignal(signal.SIGTERM) is default  # what ends the process at once still does
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(ValueError), train._interrupt_later():
        raise ValueError
    assert signal.getsignal(signal.SIGINT) is before


def test_a_finished_run_leaves_its_checkpoint(tmp_path):
    path = tmp_path / "c.ckpt"
    first = run(checkpoint=path)
    assert path.exists()
    assert_same(run(checkpoint=path), first)
