"""The program `ggmflow`, or `python -m ggmflow`, which Ctrl-C or SIGTERM ends at any moment with one line of text.

    exit code = 128 + number of the signal:  130 after Ctrl-C,  143 after SIGTERM

No file is damaged if the process is killed; at most a temporary file stays. A command that computes is ended
by KeyboardInterrupt instead, so that it can remove temporary files and save a checkpoint.
"""

import os
import signal
import sys
import time
from types import FrameType
from typing import Any, NoReturn

import ggmflow

_received: list[tuple[int, float]] = []  # signals and the times of their arrival


def main() -> None:
    """Run the command line; ends the process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup, or in the background of a script
            signal.signal(number, _end)
    sys.unraisablehook = _unraisable
    from ggmflow.cli.app import app

    try:
        app(prog_name="python -m ggmflow" if sys.argv[0].endswith("__main__.py") else None)
    except SystemExit as end:
        if not _received:
            _restore_handlers()
            raise
        # Exit code 0 stays: a signal is the usual end of a server, or came after the end of a command.
        _leave(silent=True, code=0 if end.code in (0, None) else None)
    except BaseException:  # libraries turn an interrupt into various exceptions
        if not _received:
            raise
        _leave()


def _end(number: int, frame: FrameType | None) -> None:
    now = time.monotonic()
    again = bool(_received) and now - _received[0][1] > 1  # a shell may send one signal twice, to process and group
    first = not _received
    _received.append((number, now))
    if again or not _is_computing():
        _leave()
    if first:
        raise KeyboardInterrupt


def _is_computing() -> bool:
    """Whether `ggmflow.cli.jobs` is loaded, which makes it an attribute of `ggmflow.cli`."""
    return "jobs" in vars(sys.modules.get("ggmflow.cli", ggmflow))


def _unraisable(unraisable: Any) -> None:
    """Leave after an interrupt during garbage collection, which Python would only print."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        _leave()
    sys.__unraisablehook__(unraisable)


def _leave(silent: bool = False, code: int | None = None) -> NoReturn:
    """End the process at once: JAX may crash in its own clean-up after an interrupt, or while a thread computes.

    Parameters
    ----------
    silent
        Whether to print nothing.
    code
        Exit code; default that of the signal.
    """
    _restore_handlers()
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress line hides it
    os.write(2, (show_cursor + ("" if silent else "Interrupted.\n")).encode())
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, RuntimeError):  # full, closed, or interrupted during a write
            pass
    os._exit(128 + _received[0][0] if code is None else code)


def _restore_handlers() -> None:
    """Let signals end the process without a message: everything is written."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    main()
