"""Requests: one record per command, passed from `app` to `commands` to `jobs`."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from ggmflow.cli.run_record import EXPORTS, REPORT
from ggmflow.data.scatter import Scatter


class TableRequest(NamedTuple):
    """A table, and how it is read.

    Attributes
    ----------
    data
        The file.
    delimiter, decimal, drop, query
        As typed; `drop` and `query` are names separated by commas.
    mean, missing, transform, standardize
        As `GraphicalFlow` takes them.
    """

    data: Path
    delimiter: str
    decimal: str
    drop: str | None
    query: str | None
    mean: str
    missing: str
    transform: str | None
    standardize: bool


class TableInput(NamedTuple):
    """A table that was read.

    Attributes
    ----------
    scatter
        The data.
    query : (s,) array of int
        Positions of the query columns; all columns if there is no query.
    parameters
        Parameters of `GraphicalFlow` that belong to the data: query, mean, missing, transform, standardize.
    reading
        Options that the file was read with: delimiter, decimal and drop.
    """

    scatter: Scatter
    query: Int[np.ndarray, " s"]
    parameters: dict[str, Any]
    reading: dict[str, Any]


class FitRequest(NamedTuple):
    """Arguments of `ggmflow fit`.

    Attributes
    ----------
    table, output
        The data, and the directory of the run.
    lam, q, temperature
        Ranges, as typed.
    pretrained, steps
        As `GraphicalFlow` takes them.
    seed, resume, force, as_json
        As typed.
    command, program
        The whole command without --resume, --force and --json; the name by which the program is called.
    """

    table: TableRequest
    output: Path
    lam: str
    q: str
    temperature: str
    pretrained: bool
    steps: int | None
    seed: int
    resume: bool
    force: bool
    as_json: bool
    command: str
    program: str


class FitInput(NamedTuple):
    """Data and parameters of a fit, read and checked.

    Attributes
    ----------
    ranges
        Ranges of lam, q and temperature, as `GraphicalFlow` takes them.
    parameters
        Other parameters of `GraphicalFlow`.
    source
        Name and hash of the data file and the options that it was read with, for run.json.
    table
        The data.
    notes
        Messages of warnings about the data.
    """

    ranges: dict[str, Any]
    parameters: dict[str, Any]
    source: dict[str, Any]
    table: TableInput
    notes: list[str]


class PosteriorRequest(NamedTuple):
    """A posterior of a run: at which λ and q (None: of highest evidence), and whether with exact draws."""

    run: Path
    lam: float | None
    q: float | None
    refine: bool = False


class EdgeRequest(NamedTuple):
    """Level of the credible intervals, and rule that selects edges."""

    level: float
    rule: str


class SummaryRequest(NamedTuple):
    """Arguments of `ggmflow summary`; `top` is the number of edges to show, or None for the default."""

    posterior: PosteriorRequest
    edges: EdgeRequest
    top: int | None
    as_json: bool


class ReportRequest(NamedTuple):
    """Arguments of `ggmflow report`; `output` is None for the default."""

    posterior: PosteriorRequest
    output: Path | None

    @property
    def path(self) -> Path:
        """File to write."""
        return self.posterior.run / REPORT if self.output is None else self.output


class ExploreRequest(NamedTuple):
    """Arguments of `ggmflow explore`: a run directory or a table; `typed` has the options of tables that were typed."""

    source: Path
    table: TableRequest
    typed: list[str]
    port: int
    browser: bool


class ExportRequest(NamedTuple):
    """Arguments of `ggmflow export`; `output` is None for the default."""

    posterior: PosteriorRequest
    edges: EdgeRequest
    format: str
    output: Path | None

    @property
    def path(self) -> Path:
        """File to write."""
        return self.posterior.run / EXPORTS[self.format] if self.output is None else self.output


class DemoRequest(NamedTuple):
    """Arguments of `ggmflow demo`; `program` is the name by which the program is called."""

    output: Path
    n_features: int
    n_samples: int
    steps: int
    seed: int
    program: str
