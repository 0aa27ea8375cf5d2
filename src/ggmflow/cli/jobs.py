"""What the commands do once their arguments are checked. This module, and no other of the package, loads JAX.

The program counts as at work from the moment that it is loaded: see `ggmflow.__main__`.
"""

import errno
import shlex
import socket
from pathlib import Path
from typing import Any

import numpy as np
import typer
from jaxtyping import Int
from rich.console import Console

from ggmflow.cli.arguments import FitRequest, begun_with, data_name, place, reading_in
from ggmflow.cli.run import fit_run, open_run
from ggmflow.cli.run_record import MADE_LATER, RunError, read_record
from ggmflow.cli.screen import check_in_short, print_json, print_summary, tell_check
from ggmflow.cli.terminal import line, mistakes, notes, print_next, print_written, stop, tell
from ggmflow.data.check import DataWarning
from ggmflow.data.findings import sentences
from ggmflow.data.scatter import Scatter
from ggmflow.errors.advice import Surface
from ggmflow.estimator.graphical_flow import GraphicalFlow, RangeWarning
from ggmflow.model.conditions import find_ranges
from ggmflow.posterior.posterior import PoorFitWarning, Posterior
from ggmflow.posterior.source import DrawsError
from ggmflow.train.memory import require_memory
from ggmflow.views.export import entry_table
from ggmflow.views.export import export as write_export

# What numbers can come to, however right the program is: data and ranges that single precision cannot hold.
NUMERIC = (FloatingPointError, DrawsError)
_TOLD_ANYWAY = (PoorFitWarning, RangeWarning, DataWarning)  # the summary says so
_CHECK_LINES = 4  # about the data, in a summary


def fit(request: FitRequest, scatter: Scatter, query: Int[np.ndarray, " s"], told: list[str]) -> None:
    """Fit a model in a directory of its own, and show what was found.

    Parameters
    ----------
    request
        What was asked for.
    scatter
        The data.
    query : (s,) array of int
        Positions of the columns whose blanket is wanted.
    told
        Notes on the data.
    """
    output, resume = request.output, request.resume
    model = GraphicalFlow(**request.ranges, **request.options)
    earlier = [name for name in MADE_LATER if (output / name).exists()]
    with notes(*_TOLD_ANYWAY) as more:
        with mistakes(ValueError, TypeError, OSError, then=begun_with(output) if resume else ""):
            if not resume:  # what is finished needs none
                require_memory(model.architecture, scatter.n_features, len(query), model.batch_size)
            find_ranges(**request.ranges, scatter=scatter, query=query)
        tell_check(scatter.check)  # before training, so that one can stop and mend the table
        try:
            with mistakes(RunError, OSError, *NUMERIC):
                model = fit_run(
                    model, scatter, output, request.about, request.command, resume=resume, force=request.force
                )
        except KeyboardInterrupt:
            line(f"Interrupted. To go on: {request.command} --resume")
            raise typer.Exit(130) from None
        with mistakes(*NUMERIC):
            record, post = read_record(output), model.posterior()
            table = entry_table(post)
    if gone := [name for name in earlier if not (output / name).exists()]:
        more.append(f"{', '.join(gone)} of the earlier fit {'is' if len(gone) == 1 else 'are'} gone with it")
    tell(told + more)
    if request.as_json:
        print_json(output, record, post, table, top=None)
        return
    print_summary(record, post, table, 10, check_in_short(model.scatter_.check))
    program, run = request.program, shlex.quote(str(output))
    print_next(
        {
            f"{program} report {run}": "one page to read and to share",
            f"{program} explore {run}": "sliders for λ and q in the browser",
            f"{program} export {run} --format csv": "or graphml, json, netcdf",
        }
    )


def summary(
    run: Path,
    lam: float | None,
    q: float | None,
    level: float,
    rule: str,
    refine: bool,
    top: int | None,
    as_json: bool,
) -> None:
    """Show what was found."""
    record, model, post = _open(run, lam, q, refine)
    with notes(*_TOLD_ANYWAY) as found, mistakes(*NUMERIC):
        table = entry_table(post, level, rule)
    tell(found)
    if as_json:
        print_json(run, record, post, table, top)
    else:
        check = model.scatter_.check
        lines = [] if check is None else sentences(check, Surface.COMMAND_LINE, _CHECK_LINES)
        print_summary(record, post, table, 10 if top is None else top, lines or check_in_short(check))


def report(run: Path, output: Path | None, path: Path, lam: float | None, q: float | None) -> None:
    """Write the page."""
    from ggmflow.report import write_report

    with notes(*_TOLD_ANYWAY) as found, mistakes(RunError, OSError, *NUMERIC), place(run, output, path):
        record, model, _ = _open(run, lam, q)
        write_report(model, path, data_name=data_name(record), reading=reading_in(record), lam=lam, q=q)
    tell(found)
    print_written(path)


def explore(run: Path, port: int, browser: bool) -> None:
    """Serve the explorer until Ctrl-C."""
    with mistakes(RunError, OSError):
        record, model = open_run(run)
    from ggmflow.explorer import serve  # only now: Bokeh takes a second to load

    def ready(address: str) -> None:
        Console(highlight=False).print(f"Explorer at {address}   Ctrl-C ends it.", soft_wrap=True)

    def begin() -> None:
        Console(stderr=True, highlight=False).print("Computing the evidence over λ and q …", style="dim")

    with mistakes(*NUMERIC):
        try:
            serve(model, port=port, open_browser=browser, data_name=data_name(record), on_begin=begin, on_ready=ready)
        except KeyboardInterrupt:
            pass  # the way to end it
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                stop(f"port {port} is in use: try --port {_free_port(port)}")
            if error.filename is None and error.errno == errno.ENOSPC:
                raise  # the address could not be printed
            stop(f"cannot serve at port {port}: {error.strerror or error}")


def export(
    run: Path,
    format: str,
    output: Path | None,
    path: Path,
    lam: float | None,
    q: float | None,
    level: float,
    rule: str,
    refine: bool,
) -> None:
    """Write one file for other programs."""
    kinds = (ImportError, ValueError, RunError, OSError, *NUMERIC)
    with notes(*_TOLD_ANYWAY) as found, mistakes(*kinds), place(run, output, path):
        _, _, post = _open(run, lam, q, refine)
        write_export(post, path, format, level=level, rule=rule)
    tell(found)
    print_written(path)


def demo(output: Path, n_features: int, n_samples: int, steps: int | None, seed: int, program: str) -> None:
    """Show on simulated data what this package does."""
    from ggmflow.cli.demo import run_demo

    with mistakes(OSError, *NUMERIC):
        run_demo(output, n_features, n_samples, steps, seed, program)


def _open(
    run: Path, lam: float | None, q: float | None, refine: bool = False
) -> tuple[dict[str, Any], GraphicalFlow, Posterior]:
    """The record of a run, its model, and the posterior at the condition asked for."""
    with mistakes(RunError, OSError):
        record, model = open_run(run)
    with mistakes(ValueError, *NUMERIC):  # outside the fitted ranges; nothing is drawn yet
        post = model.posterior(lam, q)
    if refine:
        with mistakes(ValueError, *NUMERIC), Console(stderr=True).status("Exact chains, 50 sweeps …"):
            post = post.refine()
    return record, model, post


def _free_port(taken: int) -> int:
    """A port after this one that nobody listens at."""
    for port in range(taken + 1, min(taken + 50, 65536)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    return taken + 1 if taken < 65535 else 5006
