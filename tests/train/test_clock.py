"""The clock of a training run counts compiling and training separately."""

import jax

from ggmflow.train import clock, loop
from ggmflow.train.clock import Clock
from ggmflow.train.settings import CHUNK
from tests.support.toy import interrupt_at, run


class SlowChunks:
    """Chunks that take 3 s of a simulated clock; the first one compiles for 60 s before."""

    def __init__(self):
        self.now, self.real, self.compiled = 0.0, loop.run_chunk, False

    def monotonic(self):
        return self.now

    def __call__(self, *args):
        if not self.compiled:
            self.now += 60
            jax.monitoring.record_event_duration_secs("/jax/core/compile/backend_compile_duration", 60.0)
            self.compiled = True
        self.now += 3
        return self.real(*args)


def test_compiling_and_training_are_counted_separately_and_continue_in_a_resumed_run(tmp_path, monkeypatch):
    path, seen = tmp_path / "run.checkpoint", []
    run()  # so that nothing is really compiled below

    def run_slowly(counted, report):
        with monkeypatch.context() as patch:
            slow = SlowChunks()
            patch.setattr(loop, "run_chunk", slow)
            patch.setattr(clock, "time", slow)
            run(checkpoint=path, report=report, clock=counted)
        return counted.compiling, counted.training

    assert run_slowly(Clock(), interrupt_at(4 * CHUNK)) == (60.0, 12.0)
    resumed = Clock()
    assert run_slowly(resumed, lambda _: seen.append(resumed.training)) == (120.0, 30.0)
    assert seen == [15.0, 18.0, 21.0, 24.0, 27.0, 30.0]  # known at each report, for the time left


def test_a_real_compilation_is_counted_once():
    first, second = Clock(), Clock()
    run(num_conditions=5, clock=first)
    run(num_conditions=5, clock=second)
    assert first.compiling > 0 and second.compiling == 0
    assert first.training > 0 and second.training > 0
