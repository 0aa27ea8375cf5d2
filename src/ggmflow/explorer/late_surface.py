"""The evidence over (λ, q), computed by a thread while pages are open already."""

import threading
from collections.abc import Callable

from ggmflow.posterior.source import DrawsError
from ggmflow.views.surface import Surface


class LateSurface:
    """The evidence surface of a model, which is known some time after `start`.

    Parameters
    ----------
    compute
        Returns the surface, or None if the model has none.

    Attributes
    ----------
    surface : Surface or None
        None until it is known, and if it cannot be computed.
    has_ended : bool
        Whether the computation has ended, with or without a surface.
    """

    def __init__(self, compute: Callable[[], Surface | None]):
        self._compute, self._lock = compute, threading.Lock()
        self._waiting: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self.surface: Surface | None = None
        self.has_ended = False

    def start(self) -> None:
        """Begin to compute, unless that has begun; the thread does not keep the process alive."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call a function at the end of the computation, from its thread; at once if it has ended."""
        with self._lock:
            if not self.has_ended:
                self._waiting.append(call)
                return
        call()

    def forget(self, call: Callable[[], None]) -> None:
        """Do not call this function any more: its page is closed."""
        with self._lock:
            self._waiting = [each for each in self._waiting if each != call]

    def _run(self) -> None:
        found = None
        try:
            found = self._compute()
        except (FloatingPointError, DrawsError, MemoryError):
            pass  # data and ranges can cause these; pages say that there is no evidence
        finally:
            with self._lock:
                self.surface, self.has_ended = found, True
                waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()
