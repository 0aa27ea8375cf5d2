"""Interrupts that wait for the end of a block which must not be interrupted."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Handle Ctrl-C at the end of the block: an exception raised inside the compiler crashes the process.

    SIGTERM is deferred as well where the program has a handler for it; otherwise it ends the process as usual. Only the
    main thread receives signals, so that in other threads there is nothing to defer.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    replaced = {number: handler for number, handler in handlers.items() if callable(handler)}
    received = []
    try:
        for number in replaced:
            signal.signal(number, lambda number, frame: received.append(number))
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
    if received:
        replaced[received[0]](received[0], None)
