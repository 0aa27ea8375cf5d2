"""Progress of long tasks on standard error: a live line on a terminal and in notebooks, plain lines in a file.

    terminal   training  ━━━━━━━━━━━━  400/1500 ELBO -123.40  ESS 31%  0:00:21  0:00:58 left
    file       training: step 400 of 1500, ELBO -123.40, ESS 31%, 58 s left

In a file there is a line at the start, after the first part of the task, then at most one every
`SECONDS_BETWEEN_LINES`, and one at the end.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from ggmflow.train.clock import Clock
from ggmflow.train.report import Report

SECONDS_BETWEEN_LINES = 30.0


@contextmanager
def training_bar(
    show: bool, clock: Clock | None = None, console: Console | None = None, name: str = "training"
) -> Iterator[Callable[[Report], None] | None]:
    """Yield a function to call with every report, or None if nothing is shown.

    Parameters
    ----------
    show
        Whether to show anything.
    clock
        Clock of the training, for the time left, which is not shown without it.
    console
        Default standard error, so that piped output stays clean.
    name
        Label.
    """
    if not show:
        yield None
        return
    console = console or Console(stderr=True)
    with (_live_training if _is_live(console) else _training_lines)(console, clock, name) as report:
        yield report


@contextmanager
def counting_bar(show: bool, name: str, total: int, console: Console | None = None) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each of `total` parts of a task.

    Parameters
    ----------
    show
        Whether to show anything.
    name
        Label of the task.
    total
        Number of parts.
    console
        Default standard error.
    """
    console = console or Console(stderr=True)
    if not show:
        yield lambda: None
        return
    with (_live_count if _is_live(console) else _count_lines)(console, name, total) as report:
        yield report


def seconds_left(seconds: float, done: int, total: int) -> float | None:
    """Seconds that the rest of a task takes at the speed so far; None before its first part is done."""
    return (total - done) * seconds / done if done > 0 and seconds > 0 else None


def _is_live(console: Console) -> bool:
    """Whether a line can be overwritten, which files and terminals that cannot move the cursor do not allow."""
    return console.is_jupyter or (console.is_terminal and not console.is_dumb_terminal)


# ----------------------------------------------------------------------------------------------------------- live lines
class _TimeLeft(ProgressColumn):
    """Counts down to the expected end of the task, a time of `time.monotonic`."""

    def render(self, task: Task) -> Text:
        end = task.fields["end"]
        return Text("" if end is None else f"{timedelta(seconds=max(0, round(end - time.monotonic())))} left", "cyan")


def _end(left: float | None) -> float | None:
    return None if left is None else time.monotonic() + left


@contextmanager
def _live_training(console: Console, clock: Clock | None, name: str) -> Iterator[Callable[[Report], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}"),
        TimeElapsedColumn(),
        _TimeLeft(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("compiling", total=None, numbers="", end=None)

        def show_report(report: Report) -> None:
            if report.step == 0:
                ready = {"numbers": f"ESS {report.ess:.0%}", "completed": 1, "total": 1}
                progress.update(task, description="ready".ljust(9), **ready)
                return
            numbers = f"ELBO {report.elbo:.2f}  ESS {report.ess:.0%}"
            if report.skipped:
                numbers += f"  skipped {report.skipped}"
            end = _end(_left_of_training(report, clock))
            known = {"completed": report.step, "total": report.steps, "numbers": numbers, "end": end}
            progress.update(task, description=name.ljust(9), **known)

        yield show_report


@contextmanager
def _live_count(console: Console, name: str, total: int) -> Iterator[Callable[[], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), _TimeLeft())
    start, done = time.monotonic(), 0
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(name, total=total, end=None)

        def advance() -> None:
            nonlocal done
            done += 1
            progress.update(task, completed=done, end=_end(seconds_left(time.monotonic() - start, done, total)))

        yield advance


# ---------------------------------------------------------------------------------------------------------- plain lines
@contextmanager
def _lines(console: Console) -> Iterator[Callable[[str], None]]:
    """Yield a function that prints a line if the last one is long enough ago; the last line is printed at the end."""
    printed, waiting = float("-inf"), None

    def print_line(text: str) -> None:
        nonlocal printed, waiting
        waiting = text
        if time.monotonic() - printed >= SECONDS_BETWEEN_LINES:
            _print(console, text)
            printed, waiting = time.monotonic(), None

    try:
        yield print_line
    finally:
        if waiting is not None:
            _print(console, waiting)


def _print(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False, markup=False)


@contextmanager
def _training_lines(console: Console, clock: Clock | None, name: str) -> Iterator[Callable[[Report], None]]:
    _print(console, f"{name}: compiling")
    with _lines(console) as print_line:

        def print_report(report: Report) -> None:
            if report.step == 0:
                print_line(f"{name}: ready, ESS {report.ess:.0%}")
                return
            skipped = f", skipped {report.skipped}" if report.skipped else ""
            numbers = f"step {report.step} of {report.steps}, ELBO {report.elbo:.2f}, ESS {report.ess:.0%}{skipped}"
            print_line(f"{name}: {numbers}{_time_left(_left_of_training(report, clock))}")

        yield print_report


@contextmanager
def _count_lines(console: Console, name: str, total: int) -> Iterator[Callable[[], None]]:
    start, done = time.monotonic(), 0
    with _lines(console) as print_line:

        def advance() -> None:
            nonlocal done
            done += 1
            if total > 1:  # a single part is complete when it is reported
                left = seconds_left(time.monotonic() - start, done, total)
                print_line(f"{name}: {done} of {total}{_time_left(left)}")

        yield advance


def _left_of_training(report: Report, clock: Clock | None) -> float | None:
    return None if clock is None else seconds_left(clock.training, report.step, report.steps)


def _time_left(left: float | None) -> str:
    """Time left as the end of a line; empty if it is zero or unknown."""
    if not left:
        return ""
    if left < 100:
        return f", {left:.0f} s left"
    return f", {left / 60:.0f} min left" if left < 100 * 60 else f", {left / 3600:.1f} h left"
