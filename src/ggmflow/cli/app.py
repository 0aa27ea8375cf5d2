"""The command line: fit, summary, report, explore, export, demo. Each command makes a request and calls `commands`.

`options` declares the options. Imports inside the functions keep the answer to --help quick.
"""

import errno
import io
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ggmflow import __version__
from ggmflow.cli import options
from ggmflow.posterior.edge_rules import DEFAULT as DEFAULT_RULE

_UsageError: Any = typer.BadParameter.__bases__[0]  # of click, which newer versions of typer contain
# A disk, a quota or a file is full, or a disk fails.
_FULL = {getattr(errno, name, None) for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO")}


class _Group(TyperGroup):
    """Commands whose wrong use is reported in one line, as other mistakes are."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _one_line():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with _one_line():
            return super().invoke(ctx)


@contextmanager
def _one_line() -> Iterator[None]:
    """Report wrong use, an interrupt, or a full disk in one line; other exceptions keep their traceback."""
    try:
        yield
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        message, context = " ".join(error.format_message().split()), error.ctx
        hint = f" (see {context.command_path} --help)" if context else ""
        typer.secho(f"Error: {message.rstrip('.')}{hint}", err=True, fg="red")
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.secho("Interrupted.", err=True, fg="yellow")
        raise typer.Exit(130) from None
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:
            raise
        typer.secho(f"Error: cannot write the output: {error.strerror or error}", err=True, fg="red")
        raise typer.Exit(2) from None


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with [bold]ggmflow fit data.csv -o run[/bold], or [bold]ggmflow demo[/bold] without data.",
)
_FIT, _RESULTS, _TRY = "From data to a model", "Results of a model", "Try it"


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
    """Bayesian sparse precision matrices: from a table of numbers to a graph with its uncertainty."""
    for stream in (
        sys.stdout,
        sys.stderr,
    ):  # if a stream cannot encode letters such as λ, a question mark replaces them
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # Before JAX is loaded: XLA otherwise asks for a bug report if a compilation takes minutes on a busy machine.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _examples(*lines: str) -> str:
    return "[bold]Examples[/bold]\n\n" + "\n".join(lines)


# ------------------------------------------------------------------------------------------------------------- commands
@app.command(
    rich_help_panel=_FIT,
    epilog=_examples(
        "ggmflow fit data.csv -o run",
        "ggmflow fit data.csv -o blanket --query height,weight",
        "ggmflow fit excel.csv --delimiter ';' --decimal ',' --missing em",
        "ggmflow fit data.csv -o run --resume    (after an interruption)",
    ),
)
def fit(
    context: typer.Context,
    data: options.Data,
    output: options.NewRun = Path("run"),
    delimiter: options.Delimiter = ",",
    decimal: options.Decimal = ".",
    drop: options.Drop = None,
    mean: options.Mean = "estimated",
    missing: options.Missing = "error",
    transform: options.Transform = None,
    keep_scale: options.KeepScale = False,
    query: options.Query = None,
    lam: options.LamRange = "auto",
    q: options.QRange = "0.25,1.25",
    temperature: options.TemperatureRange = "0.01,1",
    pretrained: options.Pretrained = True,
    steps: options.Steps = None,
    seed: options.Seed = 0,
    resume: options.Resume = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Fit one flow to a table: the posterior for every λ and q of their ranges, in one fit."""
    from ggmflow.cli import commands, requests

    commands.fit(
        requests.FitRequest(
            table=requests.TableRequest(
                data, delimiter, decimal, drop, query, mean, missing, transform, standardize=not keep_scale
            ),
            output=output,
            lam=lam,
            q=q,
            temperature=temperature,
            pretrained=pretrained,
            steps=steps,
            seed=seed,
            resume=resume,
            force=force,
            as_json=as_json,
            command=_command(context),
            program=_program(),
        )
    )


@app.command(
    rich_help_panel=_RESULTS,
    epilog=_examples("ggmflow summary run", "ggmflow summary run --q 1 --top 30", "ggmflow summary run --json"),
)
def summary(
    run: options.RunPath,
    lam: options.Lam = None,
    q: options.Q = None,
    level: options.Level = 0.9,
    rule: options.Rule = DEFAULT_RULE,
    refine: options.Refine = False,
    top: options.Top = None,
    as_json: options.AsJson = False,
) -> None:
    """Show the chosen λ and q, how far to trust the result, and the strongest edges."""
    from ggmflow.cli import commands, requests

    posterior, edges = requests.PosteriorRequest(run, lam, q, refine), requests.EdgeRequest(level, rule)
    commands.summary(requests.SummaryRequest(posterior, edges, top, as_json))


@app.command(
    rich_help_panel=_RESULTS, epilog=_examples("ggmflow report run", "ggmflow report run -o report.html --q 1")
)
def report(
    run: options.RunPath, output: options.ReportFile = None, lam: options.Lam = None, q: options.Q = None
) -> None:
    """Write one HTML page with sliders that needs no network: to read and to share."""
    from ggmflow.cli import commands, requests

    commands.report(requests.ReportRequest(requests.PosteriorRequest(run, lam, q), output))


@app.command(
    rich_help_panel=_RESULTS,
    epilog=_examples(
        "ggmflow explore run",
        "ggmflow explore data.csv --drop id    (at once, without training)",
        "ggmflow explore run --port 5010 --no-browser",
    ),
)
def explore(
    context: typer.Context,
    source: options.RunOrData,
    delimiter: options.Delimiter = ",",
    decimal: options.Decimal = ".",
    drop: options.Drop = None,
    mean: options.Mean = "estimated",
    missing: options.Missing = "error",
    transform: options.Transform = None,
    keep_scale: options.KeepScale = False,
    query: options.Query = None,
    port: options.Port = 5006,
    browser: options.Browser = True,
) -> None:
    """Explore λ, q and temperature with sliders in the browser, on this computer only.

    A table instead of a run is fitted at once by the shipped network, without training; nothing is written.
    """
    from ggmflow.cli import commands, requests

    table = requests.TableRequest(source, delimiter, decimal, drop, query, mean, missing, transform, not keep_scale)
    typed = [each.opts[0] for each in _typed(context) if each.name not in ("source", "port", "browser")]
    commands.explore(requests.ExploreRequest(source, table, typed, port, browser))


@app.command(
    rich_help_panel=_RESULTS,
    epilog=_examples(
        "ggmflow export run --format graphml    (Cytoscape, Gephi, networkx)",
        "ggmflow export run --format csv -o table.csv --lam 2 --q 0.5",
        "ggmflow export run --format netcdf     (draws for ArviZ)",
    ),
)
def export(
    run: options.RunPath,
    format: options.Format,
    output: options.ExportFile = None,
    lam: options.Lam = None,
    q: options.Q = None,
    level: options.Level = 0.9,
    rule: options.Rule = DEFAULT_RULE,
    refine: options.Refine = False,
) -> None:
    """Write graph, table or draws for other programs."""
    from ggmflow.cli import commands, requests

    posterior, edges = requests.PosteriorRequest(run, lam, q, refine), requests.EdgeRequest(level, rule)
    commands.export(requests.ExportRequest(posterior, edges, format, output))


@app.command(rich_help_panel=_TRY, epilog=_examples("ggmflow demo", "ggmflow demo --n-samples 150 -o figures"))
def demo(
    output: options.Figures = Path("demo"),
    n_features: options.NumFeatures = 15,
    n_samples: options.NumSamples = 15,
    steps: options.DemoSteps = 0,
    seed: options.DemoSeed = 1,
) -> None:
    """Find a simulated sparse graph again, then the network of a real table: figures and a report."""
    from ggmflow.cli import commands, requests

    commands.demo(requests.DemoRequest(output, n_features, n_samples, steps, seed, _program()))


# ---------------------------------------------------------------------------------------------------- the command typed
def _typed(context: typer.Context) -> list[Any]:
    """Arguments and options that the user has typed."""
    sources = {each.name: context.get_parameter_source(str(each.name)) for each in context.command.params}
    return [each for each in context.command.params if getattr(sources[each.name], "name", "") == "COMMANDLINE"]


def _command(context: typer.Context) -> str:
    """The command as it was typed, without --resume, --force and --json."""
    parts = [_program(), str(context.command.name)]
    for parameter in _typed(context):
        if (name := str(parameter.name)) in ("resume", "force", "as_json"):
            continue
        value = context.params[name]
        if parameter.param_type_name == "argument":
            parts.append(shlex.quote(str(value)))
        elif isinstance(value, bool):
            parts.append((parameter.opts if value else parameter.secondary_opts)[0])
        else:
            parts += [parameter.opts[0], shlex.quote(str(value))]
    return " ".join(parts)


def _program() -> str:
    """The name by which this program can be called again."""
    path = Path(sys.argv[0])
    if path.name != "ggmflow":
        return "python -m ggmflow"
    return "ggmflow" if shutil.which("ggmflow") else os.path.relpath(path)
