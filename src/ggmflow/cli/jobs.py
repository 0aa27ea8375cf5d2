"""The computation of each command, after its request is checked. Only this module imports modules that load JAX.

`ggmflow.__main__` takes a process to be computing as soon as this module is loaded.
"""

import errno
import shlex
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer
from rich.console import Console

from ggmflow.cli import requests
from ggmflow.cli.arguments import command_of_fit, data_name, locked_for, reading_in
from ggmflow.cli.run import fit_run, open_run
from ggmflow.cli.run_record import MADE_LATER, RunError, read_record
from ggmflow.cli.screen import count_findings, print_check, print_json, print_summary
from ggmflow.cli.terminal import mistakes, notes, print_line, print_next, print_notes, print_written, stop
from ggmflow.data.check import DataWarning
from ggmflow.data.findings import sentences
from ggmflow.errors.advice import Surface
from ggmflow.estimator.graphical_flow import GraphicalFlow, RangeWarning
from ggmflow.model.conditions import find_ranges
from ggmflow.posterior.posterior import PoorFitWarning, Posterior
from ggmflow.posterior.source import DrawsError
from ggmflow.train.memory import require_memory
from ggmflow.views.export import export as write_export
from ggmflow.views.export import export_table

# Numbers that single precision cannot hold; data and ranges can cause them.
NUMERIC = (FloatingPointError, DrawsError)
_IN_SUMMARY = (PoorFitWarning, RangeWarning, DataWarning)  # warnings whose content the summary shows
_CHECK_LINES = 4  # about the data, in a summary
_EDGES_SHOWN = 10


def fit(request: requests.FitRequest, given: requests.FitInput) -> None:
    """Fit a model in a run directory, and show the result."""
    output = request.output
    model = GraphicalFlow(**given.ranges, **given.parameters)
    earlier = [name for name in MADE_LATER if (output / name).exists()]
    with notes(*_IN_SUMMARY) as found:
        with mistakes(ValueError, TypeError, OSError, then=command_of_fit(request)):
            # A finished fit, which is loaded, needs less memory.
            _check_fit(model, given.table, memory=not request.resume)
        print_check(given.table.scatter.check)  # before training, so that a user can stop and correct the table
        model = _fit(model, request, given)
        with mistakes(*NUMERIC):
            record, post = read_record(output), model.posterior()
            table = export_table(post)
    if removed := [name for name in earlier if not (output / name).exists()]:
        found.append(f"{', '.join(removed)} of the earlier fit {'was' if len(removed) == 1 else 'were'} removed")
    print_notes(given.notes + found)
    if request.as_json:
        print_json(output, record, post, table, top=None)
        return
    print_summary(record, post, table, _EDGES_SHOWN, count_findings(model.scatter_.check))
    program, run = request.program, shlex.quote(str(output))
    print_next(
        {
            f"{program} report {run}": "one page to read and to share",
            f"{program} explore {run}": "sliders for λ and q in the browser",
            f"{program} export {run} --format csv": "or graphml, json, netcdf",
        }
    )


def _fit(model: GraphicalFlow, request: requests.FitRequest, given: requests.FitInput) -> GraphicalFlow:
    how = {"resume": request.resume, "force": request.force}
    try:
        with mistakes(RunError, OSError, *NUMERIC):
            return fit_run(model, given.table.scatter, request.output, given.source, request.command, **how)
    except KeyboardInterrupt:
        print_line(f"Interrupted. To resume: {request.command} --resume")
        raise typer.Exit(130) from None


def summary(request: requests.SummaryRequest) -> None:
    """Show the result of a fit."""
    record, model, post = _open(request.posterior)
    with notes(*_IN_SUMMARY) as found, mistakes(*NUMERIC):
        table = export_table(post, *request.edges)
    print_notes(found)
    if request.as_json:
        print_json(request.posterior.run, record, post, table, request.top)
    else:
        check = model.scatter_.check
        lines = [] if check is None else sentences(check, Surface.COMMAND_LINE, _CHECK_LINES)
        print_summary(record, post, table, request.top or _EDGES_SHOWN, lines or count_findings(check))


def report(request: requests.ReportRequest) -> None:
    """Write the report of a run."""
    from ggmflow.report import write_report

    with notes(*_IN_SUMMARY) as found, mistakes(RunError, OSError, *NUMERIC), locked_for(request):
        record, model, _ = _open(request.posterior)
        at = {"lam": request.posterior.lam, "q": request.posterior.q}
        write_report(model, request.path, data_name=data_name(record), reading=reading_in(record), **at)
    print_notes(found)
    print_written(request.path)


def explore(request: requests.ExploreRequest) -> None:
    """Serve the explorer of a run until Ctrl-C."""
    with mistakes(RunError, OSError):
        record, model = open_run(request.source)

    def begin() -> None:
        Console(stderr=True, highlight=False).print("Computing the evidence over λ and q …", style="dim")

    _serve(request, model, data_name(record), on_begin=begin)


def explore_table(request: requests.ExploreRequest, table: requests.TableInput, notes_of_table: list[str]) -> None:
    """Serve the explorer of a table until Ctrl-C, without training and without any file."""
    with _port_errors(request.port), socket.create_server(("127.0.0.1", request.port)):
        pass  # it is free, so that the fit is not in vain
    model = GraphicalFlow(**table.parameters, steps=0, random_state=0)
    with notes(*_IN_SUMMARY) as found:
        with mistakes(ValueError, TypeError, OSError):
            _check_fit(model, table)
        print_check(table.scatter.check)
        with mistakes(*NUMERIC):
            model.fit(table.scatter)
    print_notes(notes_of_table + found)
    _serve(request, model, request.source.name, in_background=True)


def _check_fit(model: GraphicalFlow, table: requests.TableInput, memory: bool = True) -> None:
    """Raise if a fit cannot work: too little memory, or no ranges for these data."""
    if memory:
        require_memory(model.architecture, table.scatter.n_features, len(table.query), model.batch_size)
    find_ranges(model.lam, model.q, model.temperature, table.scatter, table.query)


def _serve(request: requests.ExploreRequest, model: GraphicalFlow, name: str, **options: Any) -> None:
    from ggmflow.explorer import serve  # here, because Bokeh takes a second to load

    def ready(address: str) -> None:
        Console(highlight=False).print(f"Explorer at {address}   Ctrl-C ends it.", soft_wrap=True)

    options |= {"open_browser": request.browser, "data_name": name}
    with mistakes(*NUMERIC), _port_errors(request.port), suppress(KeyboardInterrupt):  # Ctrl-C is the usual end
        serve(model, port=request.port, on_ready=ready, **options)


@contextmanager
def _port_errors(port: int) -> Iterator[None]:
    """End with a message if a port cannot be used."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            stop(f"port {port} is in use: try --port {_free_port(port)}")
        if error.filename is None and error.errno == errno.ENOSPC:
            raise  # the address could not be printed
        stop(f"cannot serve at port {port}: {error.strerror or error}")


def export(request: requests.ExportRequest) -> None:
    """Write one file for other programs."""
    kinds = (ImportError, ValueError, RunError, OSError, *NUMERIC)
    with notes(*_IN_SUMMARY) as found, mistakes(*kinds), locked_for(request):
        _, _, post = _open(request.posterior)
        write_export(post, request.path, request.format, level=request.edges.level, rule=request.edges.rule)
    print_notes(found)
    print_written(request.path)


def demo(request: requests.DemoRequest) -> None:
    """Fit simulated data, and show the result."""
    from ggmflow.cli.demo import run_demo

    with mistakes(OSError, *NUMERIC):
        run_demo(request)


def _open(request: requests.PosteriorRequest) -> tuple[dict[str, Any], GraphicalFlow, Posterior]:
    """The record of a run, its model, and the posterior that was asked for."""
    with mistakes(RunError, OSError):
        record, model = open_run(request.run)
    with mistakes(ValueError, *NUMERIC):  # outside the fitted ranges; nothing is drawn yet
        post = model.posterior(request.lam, request.q)
    if request.refine:
        with mistakes(ValueError, *NUMERIC), Console(stderr=True).status("Exact chains, 50 sweeps …"):
            post = post.refine()
    return record, model, post


def _free_port(taken: int) -> int:
    """The next port that is free."""
    for port in range(taken + 1, min(taken + 50, 65536)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    return taken + 1 if taken < 65535 else 5006
