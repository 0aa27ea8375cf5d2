"""Live lines on standard error: step, ELBO, effective sample size, time left of a training; and a plain count."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ggmflow.train import Report


@contextmanager
def training_bar(
    show: bool, console: Console | None = None, name: str = "training"
) -> Iterator[Callable[[Report], None] | None]:
    """A function to call with every report, or None if nothing is to be shown.

    Parameters
    ----------
    show
        Whether to show anything.
    console
        Where; default standard error, so that piped output stays clean.
    name
        What to call it.
    """
    if not show:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),  # while it compiles nobody knows
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    with Progress(*columns, console=console or Console(stderr=True)) as progress:
        task = progress.add_task("compiling", total=None, numbers="", left="")

        def show_report(report: Report) -> None:
            numbers = f"ELBO {report.elbo:.2f}  ESS {report.ess:.0%}"
            if report.skipped:
                numbers += f"  skipped {report.skipped}"
            progress.update(
                task, description=name.ljust(9), completed=report.step, total=report.steps, numbers=numbers, left="left"
            )

        yield show_report


@contextmanager
def counting_bar(show: bool, name: str, total: int) -> Iterator[Callable[[], None]]:
    """A function to call after each of `total` parts of some work.

    Parameters
    ----------
    show
        Whether to show anything.
    name
        What to call the work.
    total
        Number of parts.
    """
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not show, transient=True) as progress:
        task = progress.add_task(name, total=total)
        yield lambda: progress.advance(task)
