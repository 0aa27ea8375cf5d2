"""The training loop on a flow of two weights: repetition, skipped steps, early stopping, cooling and snapshots."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ggmflow.train import loop
from ggmflow.train.schedule import cooled_temperature, draw_conditions
from ggmflow.train.settings import CHUNK
from tests.support.toy import COOLING, HIGH, LOW, Toy, assert_same, interrupt_at, run


def test_training_learns_and_the_same_key_gives_the_same_result():
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
    np.testing.assert_array_equal(flow.mean, 0)  # training reuses buffers, but not those of the caller
    assert_same(first, run(flow, steps=10 * CHUNK - 3))
    other = run(seed=8)
    assert other.history != first.history


def test_keeps_the_weights_with_the_best_elbo():
    """Held-out ELBOs of the toy fluctuate around their limit: the flow returned is that of the highest."""
    full = run(steps=20 * CHUNK)
    best = int(np.argmax([report.elbo for report in full.history]))
    assert best < 19  # or the last one would do
    until = run(steps=20 * CHUNK, report=interrupt_at((best + 1) * CHUNK))
    np.testing.assert_array_equal(full.flow.mean, until.flow.mean)


def test_expected_ess_and_elbo_are_those_of_the_held_out_ratios():
    """With nothing to learn log q − log p̃ = ½(z − c)² − ½z² has variance c² = (3 + log T)² over z, given T.

    64 conditions of 4 draws: the mean of 64 variances of 3 degrees of freedom has an sd of 0.25·√(2/192) = 0.026, and
    the ELBO one of 0.5/√256 = 0.03. The noise is fixed, so there are no false alarms.
    """
    low, high = np.array([0.0, 1.0, -2.5]), np.array([0.0, 1.0, -2.5])
    report = run(Toy(step_size=0.0), low=low, high=high, num_conditions=64, steps=CHUNK).history[0]
    assert np.log(report.ess) == pytest.approx(-0.25, abs=0.1)
    assert report.elbo == pytest.approx(-0.125, abs=0.15)


def test_other_errors_are_raised():
    def report(report):
        raise OSError("the terminal has gone")

    with pytest.raises(OSError, match="terminal"):
        run(report=report)


def test_steps_that_are_not_finite_are_skipped_and_counted():
    """The gradient of a step is NaN if any of its q exceeds 1.2; the key determines which steps these are."""
    limit, key = 1.2, np.asarray(jax.random.key_data(jax.random.key(7)))
    trained = run(Toy(poison=limit), steps=4 * CHUNK)

    def is_poisoned(rng):
        return draw_conditions(rng, 8, LOW, HIGH)[:, 1].max() > limit

    generators = [np.random.default_rng([*key, chunk]) for chunk in range(4)]
    bad = np.array([is_poisoned(rng) for rng in generators for _ in range(CHUNK)])
    assert 10 < bad.sum() < 90
    assert [report.skipped for report in trained.history] == np.cumsum(bad)[CHUNK - 1 :: CHUNK].tolist()
    assert np.all(np.isfinite(trained.flow.mean))
    assert trained.status == "finished"
    assert trained.history[-1].elbo > trained.history[0].elbo


def test_conditions_are_shared_by_as_many_steps_as_memory_asks_for():
    """Numbers for a condition: d(8s + 2d) of a whole matrix, 8ds of a blanket; at most 2²⁶ in all sets."""

    def flow(d, s):
        return SimpleNamespace(scatter_matrix=np.empty((d, 0)), n_query=s)

    assert loop.plan_sharing(flow(15, 15), 32) == loop.Sharing(8, 4)
    assert loop.plan_sharing(flow(5000, 6), 8) == loop.Sharing(8, 4)
    assert loop.plan_sharing(flow(400, 400), 8) == loop.Sharing(4, 2)
    assert loop.plan_sharing(flow(2000, 2000), 8) == loop.Sharing(1, 1)


@pytest.mark.parametrize(("cooling", "expected"), [(None, 3), (COOLING, 10)])
def test_chunks_share_what_is_prepared_unless_their_temperature_differs(monkeypatch, cooling, expected):
    real, temperatures = loop.prepare_many, []

    def prepare_many(flow, conditions):
        temperatures.append(conditions[..., 2])
        return real(flow, conditions)

    monkeypatch.setattr(loop, "prepare_many", prepare_many)
    run(Toy(prepares=True), cooling=cooling)
    assert len(temperatures) == expected
    if cooling:  # the held-out conditions have that of the stage too
        stages = [cooled_temperature(cooling, chunk, 10) for chunk in range(10)]
        found = np.array(temperatures).reshape(10, -1)
        np.testing.assert_allclose(found, np.broadcast_to(np.log(stages)[:, None], found.shape), rtol=1e-6, atol=1e-6)


def test_training_fails_if_no_elbo_is_finite():
    flow = eqx.tree_at(lambda flow: flow.mean, Toy(), jnp.array([jnp.nan, 0.0]))
    assert run(flow, steps=3 * CHUNK).status == "failed"
    assert run(flow, steps=3 * CHUNK, cooling=COOLING, snapshot_at=(1.0,)).status == "failed"


def test_stops_early_when_the_elbo_no_longer_rises():
    """Nothing to learn: the first chunk stays the best, and patience of 0.3·10 chunks ends with the fifth."""
    trained = run(Toy(step_size=0.0), patience=0.3)
    assert trained.status == "stopped early"
    assert len(trained.history) == 5
    assert run(Toy(step_size=0.0), patience=0.3, cooling=COOLING).status == "finished"  # never while it cools


def test_snapshots_are_the_weights_at_the_end_of_their_stage():
    more = {"cooling": COOLING, "snapshot_at": (1.0, 0.01), "steps": 12 * CHUNK}
    trained = run(**more)
    temperatures = [cooled_temperature(COOLING, k, 12, (1.0, 0.01)) for k in range(12)]
    until = run(**more, report=interrupt_at((temperatures.index(1.0) + 1) * CHUNK))
    np.testing.assert_array_equal(trained.snapshots[1.0].mean, until.flow.mean)
    np.testing.assert_array_equal(trained.snapshots[0.01].mean, trained.flow.mean)
    # The target moves with log T, and the weights follow.
    assert float(trained.snapshots[0.01].mean.sum()) < float(trained.snapshots[1.0].mean.sum())
