"""What a user typed, and what a run directory says, checked without JAX; what makes no sense is refused at once."""

import csv
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from ggmflow.cli.run_record import RunError, finished_record, locked, read_record
from ggmflow.cli.terminal import mistakes, stop
from ggmflow.model.conditions import Ranges, given_ranges


class FitRequest(NamedTuple):
    """What `ggmflow fit` is asked to do, besides the data.

    Attributes
    ----------
    output
        Directory of the run.
    ranges
        Of lam, q and temperature, as `GraphicalFlow` takes them.
    options
        Other parameters of `GraphicalFlow`.
    about
        Where the data come from and how they were read, for run.json.
    resume, force, as_json
        As typed.
    command, program
        The whole command, and how to call the program.
    """

    output: Path
    ranges: dict[str, Any]
    options: dict[str, Any]
    about: dict[str, Any]
    resume: bool
    force: bool
    as_json: bool
    command: str
    program: str


def names_of(text: str | None) -> list[str]:
    """Names separated by commas; one that holds a comma is quoted."""
    try:
        return [name.strip() for name in next(csv.reader([text or ""], skipinitialspace=True, strict=True), [])]
    except csv.Error:  # a quote without its other half, or a line break outside quotes
        stop(f"names are separated by commas, in one line; one with a comma is in double quotes; got {text!r}")


def range_of(name: str, text: str) -> Any:
    """A number, a pair, or the word itself, which only `lam` has a use for."""
    if text == "auto" and name == "lam":
        return text
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in (1, 2):
        stop(f"--{name} takes a number or two of them, low,high, such as 0.5,2; got {text!r}")
    return numbers[0] if len(numbers) == 1 else numbers


def reading_of(typed: Mapping[str, str | None]) -> dict[str, Any]:
    """How to read the data file: delimiter, decimal and drop, from what was typed."""
    sign = str(typed["delimiter"])
    return {
        "delimiter": {"tab": "\t", "\\t": "\t"}.get(sign, sign),
        "decimal": typed["decimal"],
        "drop": names_of(typed["drop"]),
    }


def check_ranges(lam: Any, q: Any, temperature: Any) -> None:
    """Refuse ranges that no fit has, and those without a posterior."""
    if given_ranges(lam, q, temperature).temperature[1] < 1:
        raise ValueError("--temperature must reach 1, where the posterior is: for instance 0.01,1")


def check_level(level: float) -> None:
    """Refuse a level that is no probability."""
    if not 0 < level < 1:
        stop(f"--level must lie between 0 and 1, such as 0.9; got {level:g}")


def check_run(run: Path, lam: float | None, q: float | None) -> None:
    """Refuse what is no finished run, and a condition outside its ranges, as far as run.json says."""
    with mistakes(RunError, OSError):
        record = finished_record(run)
    ranges = Ranges(**{name: record["ranges"][name] for name in Ranges._fields})
    with mistakes(ValueError):
        for name, value in (("lam", lam), ("q", q)):
            if value is not None:
                ranges.inside(name, value)


def place(run: Path, output: Path | None, path: Path) -> AbstractContextManager[None]:
    """What is written into a run must be of the fit in it: no other fit begins there meanwhile."""
    read_record(run)  # nothing is left in a directory that is no run
    return locked(run, writes=(path.name,)) if output is None else nullcontext()


def begun_with(output: Path) -> str:
    """How the fit was begun that is to go on, if there is one: options that are left out now were given then."""
    try:
        return f". The fit in {output} was begun with: {read_record(output)['command']}"
    except (RunError, OSError):
        return ""


def data_name(record: dict[str, Any]) -> str:
    """Name of the data file of a run."""
    return str(record["data"].get("file", "data"))


def reading_in(record: dict[str, Any]) -> dict[str, Any]:
    """How the data file was read, where it was not as usual."""
    usual = {"delimiter": ",", "decimal": ".", "drop": []}
    return {name: found for name, value in usual.items() if (found := record["data"].get(name, value)) != value}
