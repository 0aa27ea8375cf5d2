"""`ggmflow`, or `python -m ggmflow`: the command line, which Ctrl-C or SIGTERM ends at any moment in one line.

    exit code = 128 + number of the signal:  130 after Ctrl-C,  143 after SIGTERM

Every file is safe against a kill, so leaving at once costs at most a temporary file that stays. What has begun is left
the orderly way, by KeyboardInterrupt: it removes such files, and keeps what a fit has learned.
"""

import os
import signal
import sys
import time
from types import FrameType
from typing import Any, NoReturn

import ggmflow

_received: list[tuple[int, float]] = []  # signals and when they came


def main() -> None:
    """What a shell calls; ends the process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or the background of a script
            signal.signal(number, _end)
    sys.unraisablehook = _unraisable
    from ggmflow.cli.app import app

    try:
        app(prog_name="python -m ggmflow" if sys.argv[0].endswith("__main__.py") else None)
    except SystemExit as end:
        # An orderly end is an end: that of a server, or of a command that was done already.
        if not _received or end.code in (0, None):
            _quietly()
            raise
        _leave(told=True)
    except BaseException:  # what libraries make of an interrupt has many names
        if not _received:
            raise
        _leave()


def _end(number: int, frame: FrameType | None) -> None:
    now = time.monotonic()
    again = bool(_received) and now - _received[0][1] > 1  # shells send one signal to a process and to its group
    first = not _received
    _received.append((number, now))
    if again or not _at_work():
        _leave()
    if first:
        raise KeyboardInterrupt


def _at_work() -> bool:
    """Whether `ggmflow.cli.jobs` is loaded, which makes it an attribute; before, nothing has begun."""
    return "jobs" in vars(sys.modules.get("ggmflow.cli", ggmflow))


def _unraisable(unraisable: Any) -> None:
    """Python would show, and forget, an interrupt that came while it collected garbage."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        _leave()
    sys.__unraisablehook__(unraisable)


def _leave(told: bool = False) -> NoReturn:
    """End now: JAX may crash when it is taken down after an interrupt in its compiler."""
    _quietly()
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # which a live line hides
    os.write(2, (show_cursor + ("" if told else "Interrupted.\n")).encode())
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, RuntimeError):  # full, closed, or interrupted while it was written to
            pass
    os._exit(128 + _received[0][0])


def _quietly() -> None:
    """All is written: from here on a signal just ends the process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    main()
