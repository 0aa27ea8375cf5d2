"""The command line: fit, summary, report, explore, export, demo. A mistake is one line and exit code 2."""

import csv
import errno
import io
import json
import math
import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ggmflow import __version__
from ggmflow.conditions import Ranges, find_ranges
from ggmflow.data import Scatter
from ggmflow.demo import run_demo
from ggmflow.estimator import GraphicalFlow, RangeWarning
from ggmflow.export import FORMATS, describe, edge_table, entry_table, export, records, strongest
from ggmflow.posterior import PoorFitWarning, Posterior
from ggmflow.run import REPORT, RunError, describe_file, fit_run, load_run, read_record

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with [bold]ggmflow fit data.csv -o run[/bold], or [bold]ggmflow demo[/bold] without data.",
)
_FIT, _LOOK, _TRY = "From data to a model", "Look at a model", "Try it"
_DATA, _MODEL, _RUN, _CONDITION = "Data", "Model", "Run", "Condition"

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Directory that ggmflow fit has written.")]
Lam = Annotated[
    float | None,
    typer.Option(help="Shrinkage λ; default: chosen by evidence.", rich_help_panel=_CONDITION, show_default=False),
]
Q = Annotated[
    float | None,
    typer.Option(help="Exponent q; default: chosen by evidence.", rich_help_panel=_CONDITION, show_default=False),
]
Level = Annotated[float, typer.Option(help="Level of the credible intervals.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for programs, nothing else.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ggmflow {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Bayesian sparse precision matrices: from a table of numbers to a graph one can trust."""
    for stream in (sys.stdout, sys.stderr):  # where letters such as λ cannot be shown, a sign stands for them
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _examples(*lines: str) -> str:
    return "[bold]Examples[/bold]\n\n" + "\n".join(lines)


# ------------------------------------------------------------------------------------------------------------ commands
@app.command(
    rich_help_panel=_FIT,
    epilog=_examples(
        "ggmflow fit data.csv -o run",
        "ggmflow fit data.csv -o blanket --query height,weight",
        "ggmflow fit excel.csv --delimiter ';' --decimal ',' --missing em",
        "ggmflow fit data.csv -o run --resume    (goes on after an interruption)",
    ),
)
def fit(
    context: typer.Context,
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="CSV file with a header; rows are observations.", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the run.")] = Path("run"),
    delimiter: Annotated[
        str,
        typer.Option(metavar="SIGN", help="Between fields: one character, or 'tab'.", rich_help_panel=_DATA),
    ] = ",",
    decimal: Annotated[str, typer.Option(metavar="SIGN", help="Before decimals.", rich_help_panel=_DATA)] = ".",
    missing: Annotated[
        Literal["error", "drop", "em"],
        typer.Option(help="Missing values: refuse, drop their rows, or estimate by EM.", rich_help_panel=_DATA),
    ] = "error",
    transform: Annotated[
        Literal["nonparanormal"] | None,
        typer.Option(help="Use normal scores: for skewed or ordinal columns.", rich_help_panel=_DATA),
    ] = None,
    keep_scale: Annotated[
        bool, typer.Option("--no-standardize", help="Keep the units of the data.", rich_help_panel=_DATA)
    ] = False,
    query: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Only the Markov blanket of these columns: a,b,c.",
            rich_help_panel=_MODEL,
            show_default=False,
        ),
    ] = None,
    lam: Annotated[
        str, typer.Option(metavar="LOW,HIGH", help="Range of the shrinkage λ.", rich_help_panel=_MODEL)
    ] = "auto",
    q: Annotated[
        str, typer.Option(metavar="LOW,HIGH", help="Range of the exponent q.", rich_help_panel=_MODEL)
    ] = "0.25,1.25",
    temperature: Annotated[
        str,
        typer.Option(metavar="LOW,1", help="Range of temperatures; 1: faster, no modes.", rich_help_panel=_MODEL),
    ] = "0.01,1",
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, help="Training steps; default: by number of variables.", rich_help_panel=_MODEL, show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.", rich_help_panel=_MODEL)] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted fit.", rich_help_panel=_RUN)
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what RUN holds.", rich_help_panel=_RUN)] = False,
    as_json: AsJson = False,
) -> None:
    """Fit one flow to a table: the posterior for every λ and q of their ranges, in one go."""
    if resume and force:
        _stop("--resume goes on with a fit and --force begins anew: give one of them")
    if seed >= 2**32:
        _stop(f"--seed must be below 2^32, got {seed}")
    names = None if query is None else [name.strip() for name in next(csv.reader([query], skipinitialspace=True), [])]
    ranges = {"lam": _range("lam", lam), "q": _range("q", q), "temperature": _range("temperature", temperature)}
    model = GraphicalFlow(
        **ranges,
        query=names,
        standardize=not keep_scale,
        transform=transform,
        missing=missing,
        steps=steps,
        random_state=seed,
    )
    signs = {"delimiter": {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter), "decimal": decimal}
    with _notes() as notes:
        with _mistakes(ValueError, TypeError, OSError):
            scatter = Scatter.from_data(data, standardize=not keep_scale, transform=transform, missing=missing, **signs)
            asked = np.arange(scatter.n_features) if names is None else scatter.index(names)
            _check(find_ranges(**ranges, scatter=scatter, query=asked))
            about = describe_file(data) | signs
        command = _command(context)
        try:
            with _mistakes(RunError, OSError, FloatingPointError):
                model = fit_run(model, scatter, output, about, command, resume=resume, force=force)
        except KeyboardInterrupt:
            _line(f"Interrupted. To go on: {command} --resume")
            raise typer.Exit(130) from None
        record, post = read_record(output), model.posterior()
        table = entry_table(post)
    _tell(notes)
    if as_json:
        _print_json(output, record, post, table, top=None)
        return
    _print_summary(record, post, table, top=10)
    program, run = _program(), shlex.quote(str(output))
    _print_next(
        {
            f"{program} report {run}": "one page to read and to share",
            f"{program} explore {run}": "sliders for λ and q in the browser",
            f"{program} export {run} --format csv": "or graphml, json, netcdf",
        }
    )


@app.command(
    rich_help_panel=_LOOK,
    epilog=_examples("ggmflow summary run", "ggmflow summary run --q 1 --top 30", "ggmflow summary run --json"),
)
def summary(
    run: RunPath,
    lam: Lam = None,
    q: Q = None,
    level: Level = 0.9,
    top: Annotated[
        int | None, typer.Option(min=1, help="How many edges; default 10, all with --json.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What was found: chosen λ and q, how far to trust it, and the strongest edges."""
    record, _, post = _open(run, lam, q, level)
    with _notes() as notes:
        table = entry_table(post, level)
    _tell(notes)
    if as_json:
        _print_json(run, record, post, table, top)
    else:
        _print_summary(record, post, table, 10 if top is None else top)


@app.command(rich_help_panel=_LOOK, epilog=_examples("ggmflow report run", "ggmflow report run -o report.html --q 1"))
def report(
    run: RunPath,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=f"HTML file; default: RUN/{REPORT}.", show_default=False),
    ] = None,
    lam: Lam = None,
    q: Q = None,
) -> None:
    """Write one HTML page with sliders that needs no network: to read and to share."""
    record, model, _ = _open(run, lam, q)
    path = run / REPORT if output is None else output
    from ggmflow.report import write_report

    with _notes() as notes, _mistakes(OSError):
        write_report(model, path, data_name=_data_name(record), reading=_reading(record), lam=lam, q=q)
    _tell(notes)
    _print_written(path)


@app.command(
    rich_help_panel=_LOOK, epilog=_examples("ggmflow explore run", "ggmflow explore run --port 5010 --no-browser")
)
def explore(
    run: RunPath,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of this computer to serve at.")] = 5006,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser window.")] = True,
) -> None:
    """Explore λ, q and temperature with sliders in the browser; nobody but this computer can see it."""
    with _mistakes(RunError, OSError):
        model = load_run(run)
    from ggmflow.explorer import serve  # only now: Bokeh takes a second to load

    def ready(*_: Any) -> None:
        Console(highlight=False).print(f"Explorer at http://localhost:{port}   Ctrl-C ends it.", soft_wrap=True)

    try:
        serve(model, port=port, open_browser=browser, on_ready=ready)
    except KeyboardInterrupt:
        pass  # the way to end it
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            _stop(f"port {port} is in use: try --port {_free_port(port)}")
        _stop(f"cannot serve at port {port}: {error.strerror or error}")


@app.command(
    "export",
    rich_help_panel=_LOOK,
    epilog=_examples(
        "ggmflow export run --format graphml    (Cytoscape, Gephi, networkx)",
        "ggmflow export run --format csv -o table.csv --lam 2 --q 0.5",
        "ggmflow export run --format netcdf     (draws for ArviZ)",
    ),
)
def export_(
    run: RunPath,
    format: Annotated[
        Literal["graphml", "csv", "json", "netcdf"],
        typer.Option("--format", "-f", help="What to write.", show_default=False),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File; default in RUN: graph.graphml, summary.csv, summary.json or posterior.nc.",
            show_default=False,
        ),
    ] = None,
    lam: Lam = None,
    q: Q = None,
    level: Level = 0.9,
) -> None:
    """Write graph, table or draws for other programs."""
    _, _, post = _open(run, lam, q, level)
    path = run / FORMATS[format][0] if output is None else output
    with _notes() as notes, _mistakes(ImportError, ValueError, OSError):
        export(post, path, format, level=level)
    _tell(notes)
    _print_written(path)


@app.command(rich_help_panel=_TRY, epilog=_examples("ggmflow demo", "ggmflow demo --n-samples 150 -o figures"))
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for the figures.")] = Path("demo"),
    n_features: Annotated[int, typer.Option(min=2, help="Number of variables d.")] = 15,
    n_samples: Annotated[int, typer.Option(min=2, help="Number of rows n.")] = 15,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps; default: from d.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed.")] = 1,
) -> None:
    """Simulate a sparse graph, fit one flow for every λ, q and temperature, and show what it found."""
    with _mistakes(OSError, FloatingPointError):
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass  # fail before the work, not after it
        run_demo(output, n_features, n_samples, steps, seed, _program())


# ------------------------------------------------------------------------------------------------------------- reading
def _range(name: str, text: str) -> Any:
    """A number, a pair, or the word itself, which only `lam` has a use for."""
    if text == "auto" and name == "lam":
        return text
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in (1, 2):
        _stop(f"--{name} takes a number or two of them, low,high, such as 0.5,2; got {text!r}")
    return numbers[0] if len(numbers) == 1 else numbers


def _check(ranges: Ranges) -> None:
    if ranges.temperature[1] < 1:
        raise ValueError("--temperature must reach 1, where the posterior is: for instance 0.01,1")


def _open(
    run: Path, lam: float | None, q: float | None, level: float = 0.9
) -> tuple[dict[str, Any], GraphicalFlow, Posterior]:
    """The record of a run, its model, and the posterior at the condition asked for."""
    if not 0 < level < 1:
        _stop(f"--level must lie between 0 and 1, such as 0.9; got {level:g}")
    with _mistakes(RunError, OSError):
        record, model = read_record(run), load_run(run)
    with _mistakes(ValueError):  # outside the fitted ranges; nothing is drawn yet
        return record, model, model.posterior(lam, q)


def _data_name(record: dict[str, Any]) -> str:
    return str(record["data"].get("file", "data"))


def _reading(record: dict[str, Any]) -> dict[str, str]:
    """How the data file was read, where it was not as usual."""
    usual = {"delimiter": ",", "decimal": "."}
    return {name: found for name, value in usual.items() if (found := record["data"].get(name, value)) != value}


def _command(context: typer.Context) -> str:
    """What was typed, without --resume, --force and --json."""
    words = [_program(), "fit"]
    for parameter in context.command.params:
        name, source = str(parameter.name), context.get_parameter_source(str(parameter.name))
        if source is None or source.name != "COMMANDLINE" or name in ("resume", "force", "as_json"):
            continue
        value = context.params[name]
        if parameter.param_type_name == "argument":
            words.append(shlex.quote(str(value)))
        elif isinstance(value, bool):
            words.append(parameter.opts[0])  # flags have no opposite here
        else:
            words += [parameter.opts[0], shlex.quote(str(value))]
    return " ".join(words)


def _program() -> str:
    """How to call this program again from here."""
    path = Path(sys.argv[0])
    if path.name != "ggmflow":
        return "python -m ggmflow"
    return "ggmflow" if shutil.which("ggmflow") else os.path.relpath(path)


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


# ------------------------------------------------------------------------------------------------------------- telling
@contextmanager
def _mistakes(*kinds: type[Exception]) -> Iterator[None]:
    """Exceptions that come from what the user gave: one line, exit code 2. Others are our mistakes, with traceback."""
    try:
        yield
    except kinds as error:
        if isinstance(error, OSError):
            _stop(f"cannot use {error.filename or 'a file'}: {error.strerror or error}")
        _stop(_as_options(str(error)))


def _as_options(advice: str) -> str:
    """Advice for Python, such as missing='em' or q=(0.1, 2), in terms of the command line."""
    advice = re.sub(r"\b(missing|transform)='(\w+)'", r"--\1 \2", advice)
    return re.sub(r"\bwith (lam|q|temperature)=\((\S+), (\S+)\)", r"with --\1 \2,\3", advice)


@contextmanager
def _notes() -> Iterator[list[str]]:
    """Collect warnings, to be told in plain words; what the summary says anyway is left out."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield notes
        finally:
            for warning in caught:
                told = issubclass(warning.category, UserWarning | RuntimeWarning)
                if told and not issubclass(warning.category, PoorFitWarning | RangeWarning):
                    notes.append(str(warning.message))


def _tell(notes: list[str]) -> None:
    for note in dict.fromkeys(notes):
        _line(f"Note: {note}.")


def _stop(message: str) -> NoReturn:
    _line(f"Error: {message}", style="red")
    raise typer.Exit(2) from None


def _line(text: str, style: str = "yellow") -> None:
    Console(stderr=True, soft_wrap=True, highlight=False).print(_text(text), style=style)


def _text(text: str) -> Text:
    """Text of unknown origin: neither markup nor control characters of the terminal do anything."""
    return Text("".join(character if character.isprintable() else "�" for character in text))


def _print_json(run: Path, record: dict[str, Any], post: Posterior, table: pd.DataFrame, top: int | None) -> None:
    known = ("status", "seconds", "steps", "training", "chosen", "ranges", "data")
    about = {"run": str(run)} | {name: record.get(name) for name in known}
    edges = edge_table(table)
    content = about | describe(post, table) | {"edges": records(edges if top is None else edges.head(top))}
    typer.echo(json.dumps(content, allow_nan=False))


def _print_summary(record: dict[str, Any], post: Posterior, table: pd.DataFrame, top: int) -> None:
    """A screen for people."""
    console = Console(highlight=False)
    edges, attributes = edge_table(table), table.attrs
    s, d = len(post.query), len(post.names)
    pairs = s * (s - 1) // 2 + s * (d - s)
    chosen, ranges = record.get("chosen", {}), record.get("ranges", {})
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="bold", no_wrap=True)
    lines.add_column(overflow="fold")
    rows = f"{float(record['data'].get('rows', 0)):g} rows of {d} variables"
    blanket = "" if s == d else f"; the Markov blanket of {s} of them"
    lines.add_row("Data", _text(f"{_data_name(record)}: {rows}{blanket}"))
    fitted = ", ".join(
        f"{symbol} from {ranges[name][0]:.3g} to {ranges[name][1]:.3g}"
        for name, symbol in (("lam", "λ"), ("q", "q"), ("temperature", "temperature"))
        if name in ranges and ranges[name][0] < ranges[name][1]
    )
    how = "stopped early after" if record.get("training") == "stopped early" else "trained for"
    lines.add_row("Fit", _text(f"{how} {record.get('steps')} steps, {_duration(record['seconds'])}; {fitted}"))
    choice = [float(chosen.get(name, math.nan)) for name in ("lam", "q")]
    best, here = (f"λ = {lam:.3g}, q = {q:.3g}" for lam, q in (choice, (post.lam, post.q)))
    is_best = np.allclose(choice, np.array([post.lam, post.q], float), rtol=1e-6)
    where = f"{here}, the highest evidence" if is_best else f"{here} (evidence prefers {best})"
    lines.add_row("Shown at", _text(where))
    for end in chosen.get("at_ends", []) if is_best else []:
        lines.add_row("", Text(f"The evidence is highest at {end}: a wider range may be better still.", style="yellow"))
    message = str(attributes["message"])
    lines.add_row("Trust", Text(message, style="yellow" if message.startswith("Poor") else "green"))
    if message.startswith("Poor"):
        lines.add_row(
            "", Text("Fit with more --steps or narrower --lam and --q, or refine() in Python.", style="yellow")
        )
    lines.add_row("Edges", _text(f"{len(edges)} of {pairs} pairs, by {attributes['rule']}"))
    console.print(lines)
    if len(edges):
        shown = edges.head(top)
        title = f"Strongest edges ({top} of {len(edges)})" if top < len(edges) else "Edges, strongest first"
    else:
        shown, title = strongest(table).head(top), "No edges; the strongest pairs, which may as well be zero"
    console.print(_edge_table(shown, attributes["level"], title))


def _edge_table(edges: pd.DataFrame, level: float, title: str) -> Table:
    outside = "regression weight" in edges["scale"].to_list()
    table = Table(title=f"\n{title}", title_justify="left", title_style="bold", caption_justify="left")
    table.add_column("pair", overflow="fold")
    table.add_column("association" if outside else "partial correlation", justify="right")
    table.add_column(f"{100 * level:g} % interval", justify="right", no_wrap=True)
    table.add_column("P(size > 0.1)", justify="right", no_wrap=True)
    if outside:
        table.caption = "* the second variable is outside the query: weight in a regression of the first on all others"
    for edge in records(edges):
        value, low, high = edge["association"], edge["association_lower"], edge["association_upper"]
        star = "*" if edge["scale"] == "regression weight" else " " if outside else ""
        table.add_row(
            _text(f"{edge['row']} – {edge['column']}"),
            Text(f"{value:+.2f}{star}", style="blue" if value > 0 else "dark_orange"),
            Text(f"{low:+.2f} … {high:+.2f}"),
            f"{edge['edge_probability']:.2f}",
        )
    return table


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def _print_next(commands: dict[str, str]) -> None:
    console = Console(highlight=False, soft_wrap=True)  # a command is to be copied: never broken
    console.print(Text("\nNext", style="bold"))
    width = max(map(len, commands))
    for command, effect in commands.items():
        console.print(_text(command.ljust(width)).append(f"   {effect}", style="dim"))


def _print_written(path: Path) -> None:
    Console(highlight=False, soft_wrap=True).print(_text(f"Written: {path}"))
