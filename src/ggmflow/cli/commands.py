"""The commands of the command line: each checks its request without JAX and only then calls its function in `jobs`.

A command that fails a check answers at once, because only `jobs` imports modules that take seconds to load.
"""

from ggmflow.cli import requests
from ggmflow.cli.arguments import (
    check_level,
    check_posterior,
    check_ranges,
    check_writable,
    command_of_fit,
    locked_for,
    range_of,
    read_table,
)
from ggmflow.cli.run_record import RunError, check_free, describe_file
from ggmflow.cli.terminal import mistakes, notes, stop


def fit(request: requests.FitRequest) -> None:
    """Fit a model to a file in a run directory, and show the result."""
    if request.resume and request.force:
        stop("--resume continues a fit and --force begins again: give only one of them")
    ranges = {name: range_of(name, getattr(request, name)) for name in ("lam", "q", "temperature")}
    with notes() as found, mistakes(ValueError, TypeError, OSError, then=command_of_fit(request)):
        check_ranges(**ranges)
        if not request.resume and not request.force:
            check_free(request.output)
        table = read_table(request.table)
        source = describe_file(request.table.data) | table.reading
    from ggmflow.cli import jobs

    training = {"pretrained": request.pretrained, "steps": request.steps, "random_state": request.seed}
    jobs.fit(request, requests.FitInput(ranges, table.parameters | training, source, table, found))


def summary(request: requests.SummaryRequest) -> None:
    """Show the result of a fit."""
    check_level(request.edges.level)
    check_posterior(request.posterior)
    from ggmflow.cli import jobs

    jobs.summary(request)


def report(request: requests.ReportRequest) -> None:
    """Write the report of a run."""
    with mistakes(RunError, OSError), locked_for(request):
        check_posterior(request.posterior)
    from ggmflow.cli import jobs

    jobs.report(request)


def explore(request: requests.ExploreRequest) -> None:
    """Serve the explorer of a run, or of a table, until Ctrl-C."""
    if not request.source.exists():
        stop(f"{request.source} does not exist: give the directory of a run, or a CSV file")
    if request.source.is_dir():
        if request.typed:
            stop(f"{request.typed[0]} is for a table, but {request.source} is a directory")
        check_posterior(requests.PosteriorRequest(request.source, None, None))
        from ggmflow.cli import jobs

        jobs.explore(request)
    else:
        with notes() as found, mistakes(ValueError, TypeError, OSError):
            table = read_table(request.table)
        from ggmflow.cli import jobs

        jobs.explore_table(request, table, found)


def export(request: requests.ExportRequest) -> None:
    """Write one file for other programs."""
    check_level(request.edges.level)
    with mistakes(RunError, OSError), locked_for(request):
        check_posterior(request.posterior)
    from ggmflow.cli import jobs

    jobs.export(request)


def demo(request: requests.DemoRequest) -> None:
    """Fit simulated data, and show the result."""
    with mistakes(OSError):
        check_writable(request.output)  # before the fit, not after it
    from ggmflow.cli import jobs

    jobs.demo(request)
