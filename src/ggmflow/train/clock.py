"""A clock that counts the seconds of compiling and of training steps separately."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

_COMPILING = "/jax/core/compile/"  # prefix of the events that JAX reports of tracing, lowering and compiling


class Clock:
    """Counts the seconds of a training run.

    A program is compiled and started by the same call. So the time until the last event of JAX about compiling counts
    as compiling, and the rest as training.

    Attributes
    ----------
    compiling
        Seconds in which programs were traced and compiled, or loaded from the cache.
    training
        Seconds in which steps ran, evaluations and checkpoints included.
    """

    def __init__(self, compiling: float = 0.0, training: float = 0.0):
        self.compiling, self.training = compiling, training
        self._last = time.monotonic()

    def start(self) -> None:
        """Count from now on."""
        self._last = time.monotonic()

    def count_training(self) -> None:
        """Count the time since the last count as training."""
        self.training += self._since_last()

    @contextmanager
    def count_compiling(self) -> Iterator[None]:
        """Count the time until the last compilation in the block, if any, as compiling."""
        own = threading.get_ident()

        def listen(event: str, duration_secs: float, **more: Any) -> None:
            if event.startswith(_COMPILING) and threading.get_ident() == own:
                self.compiling += self._since_last()

        jax.monitoring.register_event_duration_secs_listener(listen)
        try:
            yield
        finally:
            jax.monitoring.unregister_event_duration_listener(listen)

    def _since_last(self) -> float:
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        return seconds
