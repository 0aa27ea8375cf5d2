"""The commands of the command line: each checks what was typed, without JAX, and only then hands over to `jobs`.

A command that only fails answers at once, because what takes seconds to load is loaded by `jobs`.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ggmflow.cli.arguments import (
    FitRequest,
    begun_with,
    check_level,
    check_ranges,
    check_run,
    names_of,
    place,
    range_of,
    reading_of,
)
from ggmflow.cli.run_record import EXPORTS, REPORT, RunError, check_free, describe_file
from ggmflow.cli.terminal import mistakes, notes, stop
from ggmflow.data.scatter import Scatter


def fit(
    data: Path,
    output: Path,
    *,
    ranges: Mapping[str, str],
    reading: Mapping[str, str | None],
    options: Mapping[str, Any],
    query: str | None,
    seed: int,
    resume: bool,
    force: bool,
    as_json: bool,
    command: str,
    program: str,
) -> None:
    """Fit a model to a file, in a directory of its own, and show what was found.

    Parameters
    ----------
    data, output
        File and directory.
    ranges
        Of lam, q and temperature, as typed.
    reading
        Of the file: delimiter, decimal and drop, as typed.
    options
        Others of `GraphicalFlow`.
    query
        Names, separated by commas.
    seed, resume, force, as_json
        As typed.
    command, program
        The whole command, and how to call the program.
    """
    if resume and force:
        stop("--resume goes on with a fit and --force begins anew: give one of them")
    if seed >= 2**32:
        stop(f"--seed must be below 2^32, got {seed}")
    names = None if query is None else names_of(query)
    asked = {name: range_of(name, text) for name, text in ranges.items()}
    how = reading_of(reading)
    kept = {name: options[name] for name in ("standardize", "transform", "missing")}
    with notes() as told, mistakes(ValueError, TypeError, OSError, then=begun_with(output) if resume else ""):
        check_ranges(**asked)
        if not resume and not force:
            check_free(output)
        scatter = Scatter.from_data(data, **kept, **how)
        positions = np.arange(scatter.n_features) if names is None else scatter.index(names)
        about = describe_file(data) | how
    request = FitRequest(
        output=output,
        ranges=asked,
        options={**options, "query": names, "random_state": seed},
        about=about,
        resume=resume,
        force=force,
        as_json=as_json,
        command=command,
        program=program,
    )
    from ggmflow.cli import jobs

    jobs.fit(request, scatter, positions, told)


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
    check_level(level)
    check_run(run, lam, q)
    from ggmflow.cli import jobs

    jobs.summary(run, lam, q, level, rule, refine, top, as_json)


def report(run: Path, output: Path | None, lam: float | None, q: float | None) -> None:
    """Write the page."""
    path = run / REPORT if output is None else output
    with mistakes(RunError, OSError), place(run, output, path):
        check_run(run, lam, q)
    from ggmflow.cli import jobs

    jobs.report(run, output, path, lam, q)


def explore(run: Path, port: int, browser: bool) -> None:
    """Serve the explorer until Ctrl-C."""
    check_run(run, None, None)
    from ggmflow.cli import jobs

    jobs.explore(run, port, browser)


def export(
    run: Path,
    format: str,
    output: Path | None,
    lam: float | None,
    q: float | None,
    level: float,
    rule: str,
    refine: bool,
) -> None:
    """Write one file for other programs."""
    path = run / EXPORTS[format] if output is None else output
    check_level(level)
    with mistakes(RunError, OSError), place(run, output, path):
        check_run(run, lam, q)
    from ggmflow.cli import jobs

    jobs.export(run, format, output, path, lam, q, level, rule, refine)


def demo(output: Path, n_features: int, n_samples: int, steps: int | None, seed: int, program: str) -> None:
    """Show on simulated data what this package does."""
    with mistakes(OSError):
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass  # fail before the work, not after it
    from ggmflow.cli import jobs

    jobs.demo(output, n_features, n_samples, steps, seed, program)
