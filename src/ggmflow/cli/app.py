"""The command line: fit, summary, report, explore, export, demo. Nothing is loaded before it is needed.

What the commands do stands in `commands`, which checks what was typed before it loads what takes seconds.
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
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from ggmflow import __version__
from ggmflow.posterior.edge_rules import EDGE_RULES

if TYPE_CHECKING:
    RuleKey = str
else:
    RuleKey = Literal[tuple(EDGE_RULES)]

_UsageError: Any = typer.BadParameter.__bases__[0]  # of click, which newer versions of typer bring along


# A disk, a quota or a file that is full, or a disk that fails.
_FULL = {getattr(errno, name, None) for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO")}


class _Group(TyperGroup):
    """Commands whose wrong use is told in one line, as other mistakes are."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _one_line():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with _one_line():
            return super().invoke(ctx)


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        message, context = error.format_message().replace("Value error, ", ""), error.ctx
        told = f" (see {context.command_path} --help)" if context else ""
        typer.secho(f"Error: {' '.join(message.split()).rstrip('.')}{told}", err=True, fg="red")
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
_FIT, _LOOK, _TRY = "From data to a model", "Look at a model", "Try it"
_DATA, _MODEL, _RUN, _CONDITION = "Data", "Model", "Run", "Condition"

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Directory that ggmflow fit has written.")]
Lam = Annotated[
    float | None,
    typer.Option(
        help="Shrinkage λ; default: that of highest evidence.", rich_help_panel=_CONDITION, show_default=False
    ),
]
Q = Annotated[
    float | None,
    typer.Option(help="Exponent q; default: that of highest evidence.", rich_help_panel=_CONDITION, show_default=False),
]
Level = Annotated[float, typer.Option(help="Level of the credible intervals.")]
Rule = Annotated[
    RuleKey,
    typer.Option(
        help="What makes an edge. " + "; ".join(f"{rule.key}: {rule.help}" for rule in EDGE_RULES.values()) + "."
    ),
]
Refine = Annotated[
    bool,
    typer.Option(
        "--refine", help="Exact draws, by chains that start at the flow's; also tells how far off the flow was."
    ),
]
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
    # Before JAX is loaded: a compilation that takes minutes on a busy machine is no error to report to XLA's authors.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


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
    drop: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Columns to leave out: id,date.", rich_help_panel=_DATA, show_default=False),
    ] = None,
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
            min=1,
            max=10**8,
            help="Training steps, rounded up to 25s; default: by number of variables.",
            rich_help_panel=_MODEL,
            show_default=False,
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
    from ggmflow.cli import commands

    commands.fit(
        data,
        output,
        ranges={"lam": lam, "q": q, "temperature": temperature},
        reading={"delimiter": delimiter, "decimal": decimal, "drop": drop},
        options={"standardize": not keep_scale, "transform": transform, "missing": missing, "steps": steps},
        query=query,
        seed=seed,
        resume=resume,
        force=force,
        as_json=as_json,
        command=_command(context),
        program=_program(),
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
    rule: Rule = "f1",
    refine: Refine = False,
    top: Annotated[
        int | None, typer.Option(min=1, help="How many edges; default 10, all with --json.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What was found: chosen λ and q, how far to trust it, and the strongest edges."""
    from ggmflow.cli import commands

    commands.summary(run, lam, q, level, rule, refine, top, as_json)


@app.command(rich_help_panel=_LOOK, epilog=_examples("ggmflow report run", "ggmflow report run -o report.html --q 1"))
def report(
    run: RunPath,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="HTML file; default: RUN/report.html.", show_default=False),
    ] = None,
    lam: Lam = None,
    q: Q = None,
) -> None:
    """Write one HTML page with sliders that needs no network: to read and to share."""
    from ggmflow.cli import commands

    commands.report(run, output, lam, q)


@app.command(
    rich_help_panel=_LOOK, epilog=_examples("ggmflow explore run", "ggmflow explore run --port 5010 --no-browser")
)
def explore(
    run: RunPath,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of this computer to serve at.")] = 5006,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser window.")] = True,
) -> None:
    """Explore λ, q and temperature with sliders in the browser; nobody but this computer can see it."""
    from ggmflow.cli import commands

    commands.explore(run, port, browser)


@app.command(
    rich_help_panel=_LOOK,
    epilog=_examples(
        "ggmflow export run --format graphml    (Cytoscape, Gephi, networkx)",
        "ggmflow export run --format csv -o table.csv --lam 2 --q 0.5",
        "ggmflow export run --format netcdf     (draws for ArviZ)",
    ),
)
def export(
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
    rule: Rule = "f1",
    refine: Refine = False,
) -> None:
    """Write graph, table or draws for other programs."""
    from ggmflow.cli import commands

    commands.export(run, format, output, lam, q, level, rule, refine)


@app.command(rich_help_panel=_TRY, epilog=_examples("ggmflow demo", "ggmflow demo --n-samples 150 -o figures"))
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for the figures.")] = Path("demo"),
    n_features: Annotated[int, typer.Option(min=2, help="Number of variables d.")] = 15,
    n_samples: Annotated[int, typer.Option(min=2, help="Number of rows n.")] = 15,
    steps: Annotated[
        int | None, typer.Option(min=1, max=10**8, help="Training steps; default: from d.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed.")] = 1,
) -> None:
    """Simulate a sparse graph, fit one flow for every λ, q and temperature, and show what it found."""
    from ggmflow.cli import commands

    commands.demo(output, n_features, n_samples, steps, seed, _program())


# ------------------------------------------------------------------------------------------------- what was typed
def _command(context: typer.Context) -> str:
    """What was typed, without --resume, --force and --json."""
    words = [_program(), str(context.command.name)]
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
