"""What the commands of the command line do, and what they say. A mistake of the user is one line and exit code 2."""

import csv
import errno
import json
import re
import shlex
import socket
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ggmflow.conditions import Ranges, find_ranges
from ggmflow.data import Scatter
from ggmflow.estimator import GraphicalFlow, RangeWarning
from ggmflow.export import FORMATS, describe, edge_table, entry_table, records, strongest
from ggmflow.export import export as write_export
from ggmflow.posterior import PoorFitWarning, Posterior
from ggmflow.run import MADE_LATER, REPORT, RunError, describe_file, fit_run, locked, open_run, read_record
from ggmflow.source import DrawsError
from ggmflow.train import require_memory

# What numbers can come to, however right the program is: data and ranges that single precision cannot hold.
_NUMERIC = (FloatingPointError, DrawsError)


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
        _stop("--resume goes on with a fit and --force begins anew: give one of them")
    if seed >= 2**32:
        _stop(f"--seed must be below 2^32, got {seed}")
    names = None if query is None else _names(query)
    asked = {name: _range(name, text) for name, text in ranges.items()}
    model = GraphicalFlow(**asked, **options, query=names, random_state=seed)
    sign = str(reading["delimiter"])
    how: dict[str, Any] = {
        "delimiter": {"tab": "\t", "\\t": "\t"}.get(sign, sign),
        "decimal": reading["decimal"],
        "drop": _names(reading["drop"]),
    }
    kept = {name: options[name] for name in ("standardize", "transform", "missing")}
    earlier = [name for name in MADE_LATER if (output / name).exists()]
    with _notes() as notes:
        with _mistakes(ValueError, TypeError, OSError, then=_begun_with(output) if resume else ""):
            scatter = Scatter.from_data(data, **kept, **how)
            positions = np.arange(scatter.n_features) if names is None else scatter.index(names)
            if not resume:  # what is finished needs none
                require_memory(model.architecture, scatter.n_features, len(positions), model.batch_size)
            _check(find_ranges(**asked, scatter=scatter, query=positions))
            about = describe_file(data) | how
        try:
            with _mistakes(RunError, OSError, *_NUMERIC):
                model = fit_run(model, scatter, output, about, command, resume=resume, force=force)
        except KeyboardInterrupt:
            _line(f"Interrupted. To go on: {command} --resume")
            raise typer.Exit(130) from None
        with _mistakes(*_NUMERIC):
            record, post = read_record(output), model.posterior()
            table = entry_table(post)
    if gone := [name for name in earlier if not (output / name).exists()]:
        notes.append(f"{', '.join(gone)} of the earlier fit {'is' if len(gone) == 1 else 'are'} gone with it")
    _tell(notes)
    if as_json:
        _print_json(output, record, post, table, top=None)
        return
    _print_summary(record, post, table, top=10)
    run = shlex.quote(str(output))
    _print_next(
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
    record, _, post = _open(run, lam, q, level, refine)
    with _notes() as notes, _mistakes(*_NUMERIC):
        table = entry_table(post, level, rule)
    _tell(notes)
    if as_json:
        _print_json(run, record, post, table, top)
    else:
        _print_summary(record, post, table, 10 if top is None else top)


def report(run: Path, output: Path | None, lam: float | None, q: float | None) -> None:
    """Write the page."""
    from ggmflow.report import write_report

    path = run / REPORT if output is None else output
    with _notes() as notes, _mistakes(RunError, OSError, *_NUMERIC), _place(run, output, path):
        record, model, _ = _open(run, lam, q)
        write_report(model, path, data_name=_data_name(record), reading=_reading(record), lam=lam, q=q)
    _tell(notes)
    _print_written(path)


def explore(run: Path, port: int, browser: bool) -> None:
    """Serve the explorer until Ctrl-C."""
    with _mistakes(RunError, OSError):
        record, model = open_run(run)
    from ggmflow.explorer import serve  # only now: Bokeh takes a second to load

    def ready(address: str) -> None:
        Console(highlight=False).print(f"Explorer at {address}   Ctrl-C ends it.", soft_wrap=True)

    def begin() -> None:
        Console(stderr=True, highlight=False).print("Computing the evidence over λ and q …", style="dim")

    with _mistakes(*_NUMERIC):
        try:
            name = _data_name(record)
            serve(model, port=port, open_browser=browser, data_name=name, on_begin=begin, on_ready=ready)
        except KeyboardInterrupt:
            pass  # the way to end it
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                _stop(f"port {port} is in use: try --port {_free_port(port)}")
            if error.filename is None and error.errno == errno.ENOSPC:
                raise  # the address could not be printed
            _stop(f"cannot serve at port {port}: {error.strerror or error}")


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
    path = run / FORMATS[format][0] if output is None else output
    with _notes() as notes, _mistakes(ImportError, ValueError, RunError, OSError, *_NUMERIC), _place(run, output, path):
        _, _, post = _open(run, lam, q, level, refine)
        write_export(post, path, format, level=level, rule=rule)
    _tell(notes)
    _print_written(path)


def demo(output: Path, n_features: int, n_samples: int, steps: int | None, seed: int, program: str) -> None:
    """Show on simulated data what this package does."""
    from ggmflow.demo import run_demo

    with _mistakes(OSError, *_NUMERIC):
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass  # fail before the work, not after it
        run_demo(output, n_features, n_samples, steps, seed, program)


def reproduce(experiment: str, directory: Path, quick: bool, command: str) -> None:
    """Do an experiment of the paper, or what is left of it."""
    from ggmflow.reproduce import reproduce

    console, begun = Console(stderr=True, highlight=False), []

    def tell(name: str, seconds: float | None) -> None:
        if seconds is None:
            begun.append(name)
            console.print(f"  {name} …", end="\r" if console.is_terminal else "\n")
        else:
            console.print(f"[green]✓[/green] {name}  [dim]{_duration(seconds)}[/dim]")

    with _mistakes(ImportError, ValueError, OSError):
        try:
            tables, figures = reproduce(experiment, directory, quick=quick, command=command, tell=tell)
        except KeyboardInterrupt:
            _line("Stopped. What was finished is kept: the same command goes on from there.")
            raise typer.Exit(130) from None
    if not begun:
        _line(f"Nothing was left to do in {directory / experiment}: to make it anew, give another directory with -o.")
    for path in [directory / experiment / f"{name}.csv" for name in tables] + figures:
        _print_written(path)


# ------------------------------------------------------------------------------------------------------------- reading
def _names(text: str | None) -> list[str]:
    """Names separated by commas; one that holds a comma is quoted."""
    try:
        return [name.strip() for name in next(csv.reader([text or ""], skipinitialspace=True, strict=True), [])]
    except csv.Error:  # a quote without its other half, or a line break outside quotes
        _stop(f"names are separated by commas, in one line; one with a comma is in double quotes; got {text!r}")


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


def _begun_with(output: Path) -> str:
    """How the fit was begun that is to go on, if there is one: options that are left out now were given then."""
    try:
        return f". The fit in {output} was begun with: {read_record(output)['command']}"
    except (RunError, OSError):
        return ""


def _check(ranges: Ranges) -> None:
    if ranges.temperature[1] < 1:
        raise ValueError("--temperature must reach 1, where the posterior is: for instance 0.01,1")


def _open(
    run: Path, lam: float | None, q: float | None, level: float = 0.9, refine: bool = False
) -> tuple[dict[str, Any], GraphicalFlow, Posterior]:
    """The record of a run, its model, and the posterior at the condition asked for."""
    if not 0 < level < 1:
        _stop(f"--level must lie between 0 and 1, such as 0.9; got {level:g}")
    with _mistakes(RunError, OSError):
        record, model = open_run(run)
    with _mistakes(ValueError, *_NUMERIC):  # outside the fitted ranges; nothing is drawn yet
        post = model.posterior(lam, q)
    if refine:
        with _mistakes(ValueError, *_NUMERIC), Console(stderr=True).status("Exact chains, 50 sweeps …"):
            post = post.refine()
    return record, model, post


def _place(run: Path, output: Path | None, path: Path) -> AbstractContextManager[None]:
    """What is written into a run must be of the fit in it: no other fit begins there meanwhile."""
    read_record(run)  # nothing is left in a directory that is no run
    return locked(run, writes=(path.name,)) if output is None else nullcontext()


def _data_name(record: dict[str, Any]) -> str:
    return str(record["data"].get("file", "data"))


def _reading(record: dict[str, Any]) -> dict[str, Any]:
    """How the data file was read, where it was not as usual."""
    usual = {"delimiter": ",", "decimal": ".", "drop": []}
    return {name: found for name, value in usual.items() if (found := record["data"].get(name, value)) != value}


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
def _mistakes(*kinds: type[Exception], then: str = "") -> Iterator[None]:
    """Exceptions that come from what the user gave: one line, exit code 2. Others are our mistakes, with traceback.

    `then` is added to what they say.
    """
    try:
        yield
    except MemoryError as error:
        _stop(_as_options(str(error)) or "there is not enough memory")
    except kinds as error:
        if isinstance(error, OSError):
            _stop(f"cannot use {error.filename or 'a file'}: {error.strerror or error}")
        _stop(_as_options(str(error)) + then)


def _as_options(advice: str) -> str:
    """Advice for Python, such as missing='em' or q=(0.1, 2), in terms of the command line."""
    advice = re.sub(r"\b(missing|transform)='(\w+)'", r"--\1 \2", advice)
    advice = re.sub(r"\b(drop|query)=\[\.\.\.\]", r"--\1 ...", advice)
    advice = re.sub(r"\bdrop=\['([^']*)'\]", r"--drop '\1'", advice)
    advice = re.sub(r"did you mean '([^'\"]*,[^'\"]*)'\?", r"""did you mean '"\1"', with double quotes?""", advice)
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
        _line(f"Note: {_as_options(note)}.")


def _stop(message: str) -> NoReturn:
    _line(f"Error: {message}", style="red")
    raise typer.Exit(2) from None


def _line(text: str, style: str = "yellow") -> None:
    Console(stderr=True, soft_wrap=True, highlight=False).print(_text(text), style=style)


def _text(text: str, style: str = "") -> Text:
    """Text of unknown origin: neither markup nor control characters of the terminal do anything."""
    return Text("".join(character if character.isprintable() else "�" for character in text), style=style)


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
    chosen, ranges = record["chosen"], record["ranges"]
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="bold", no_wrap=True)
    lines.add_column(overflow="fold")
    rows = f"{float(record['data'].get('rows', 0)):g} rows of {d} variables"
    blanket = "" if s == d else f"; the Markov blanket of {s} of them"
    lines.add_row("Data", _text(f"{_data_name(record)}: {rows}{blanket}"))
    fitted = ", ".join(
        f"{symbol} from {ranges[name][0]:.3g} to {ranges[name][1]:.3g}"
        for name, symbol in (("lam", "λ"), ("q", "q"), ("temperature", "temperature"))
        if ranges[name][0] < ranges[name][1]
    )
    how = "stopped early after" if record.get("training") == "stopped early" else "trained for"
    lines.add_row("Fit", _text(f"{how} {record.get('steps')} steps, {_duration(record['seconds'])}; {fitted}"))
    choice = [float(chosen[name]) for name in ("lam", "q")]
    best, here = (f"λ = {lam:.3g}, q = {q:.3g}" for lam, q in (choice, (post.lam, post.q)))
    is_best = np.allclose(choice, np.array([post.lam, post.q], float), rtol=1e-6)
    only = all(low == high for low, high in (ranges["lam"], ranges["q"]))
    reason = ", as given" if only else ", the highest evidence" if is_best else f" (evidence prefers {best})"
    where = f"{here}{reason}"
    lines.add_row("Shown at", _text(where))
    for end in chosen["at_ends"] if is_best else []:
        lines.add_row("", _text(f"The evidence is highest at {end}: a wider range may be better still.", "yellow"))
    message = str(attributes["message"])
    lines.add_row("Trust", Text(message, style="green" if message.startswith("Good") else "yellow"))
    if message.startswith("Poor"):
        lines.add_row(
            "", Text("Exact draws: --refine. Or fit with more --steps, or narrower --lam and --q.", style="yellow")
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
