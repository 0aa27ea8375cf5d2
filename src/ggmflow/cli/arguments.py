"""Checks of arguments and of run directories, made without JAX so that a mistake is reported at once."""

import csv
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from ggmflow.cli.requests import ExportRequest, FitRequest, PosteriorRequest, ReportRequest, TableInput, TableRequest
from ggmflow.cli.run_record import RunError, finished_record, locked, read_record
from ggmflow.cli.terminal import mistakes, stop
from ggmflow.data.scatter import TREATMENTS, Scatter
from ggmflow.errors.argument import ArgumentError, check_share
from ggmflow.model.conditions import Ranges, given_ranges


def names_of(text: str | None) -> list[str]:
    """Names separated by commas; a name with a comma is in double quotes."""
    try:
        return [name.strip() for name in next(csv.reader([text or ""], skipinitialspace=True, strict=True), [])]
    except csv.Error:  # an unmatched quote, or a line break outside quotes
        stop(f"names are separated by commas, in one line; one with a comma is in double quotes; got {text!r}")


def range_of(name: str, text: str) -> Any:
    """A number, a pair of numbers, or "auto" for `lam`."""
    if text == "auto" and name == "lam":
        return text
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in (1, 2):
        stop(f"--{name} takes one number or two, low,high, such as 0.5,2; got {text!r}")
    return numbers[0] if len(numbers) == 1 else numbers


def read_table(request: TableRequest) -> TableInput:
    """Read the file of a request; raises ValueError, TypeError or OSError if it cannot be used."""
    delimiter = {"tab": "\t", "\\t": "\t"}.get(request.delimiter, request.delimiter)
    reading = {"delimiter": delimiter, "decimal": request.decimal, "drop": names_of(request.drop)}
    names = None if request.query is None else names_of(request.query)
    options = {name: getattr(request, name) for name in TREATMENTS}
    scatter = Scatter.from_data(request.data, **options, **reading)
    query = np.arange(scatter.n_features) if names is None else scatter.index(names)
    return TableInput(scatter, query, options | {"query": names}, reading)


def check_ranges(lam: Any, q: Any, temperature: Any) -> None:
    """Raise if a range is not valid, or leaves out the temperature of the posterior."""
    if given_ranges(lam, q, temperature).temperature[1] < 1:
        raise ArgumentError("temperature", temperature, "reach 1, the temperature of the posterior, such as 0.01,1")


def check_level(level: float) -> None:
    """Stop if a level is not between 0 and 1."""
    with mistakes(ValueError):
        check_share("level", level, 0.9)


def check_posterior(request: PosteriorRequest) -> None:
    """Stop if a run is not finished, or a condition is outside its ranges, according to run.json."""
    with mistakes(RunError, OSError):
        record = finished_record(request.run)
    ranges = Ranges(**{name: record["ranges"][name] for name in Ranges._fields})
    with mistakes(ValueError):
        for name, value in (("lam", request.lam), ("q", request.q)):
            if value is not None:
                ranges.inside(name, value)


def locked_for(request: ReportRequest | ExportRequest) -> AbstractContextManager[None]:
    """Lock the run if a file is written into it, so that no other fit begins there meanwhile."""
    run = request.posterior.run
    read_record(run)  # raises before a lock file is left in a directory that is not a run
    return locked(run, writes=(request.path.name,)) if request.output is None else nullcontext()


def command_of_fit(request: FitRequest) -> str:
    """If a fit is resumed, a sentence with the command that began it: some of its options may be missing now."""
    if not request.resume:
        return ""
    try:
        return f". The fit in {request.output} was begun with: {read_record(request.output)['command']}"
    except (RunError, OSError):
        return ""


def data_name(record: dict[str, Any]) -> str:
    """Name of the data file of a run."""
    return str(record["data"].get("file", "data"))


def reading_in(record: dict[str, Any]) -> dict[str, Any]:
    """Options that the data file of a run was read with, without those that had their default value."""
    default = {"delimiter": ",", "decimal": ".", "drop": []}
    return {name: found for name, value in default.items() if (found := record["data"].get(name, value)) != value}


def check_writable(directory: Path) -> None:
    """Make a directory; raise OSError if no file can be written in it."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory):
        pass
