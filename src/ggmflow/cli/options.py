"""Arguments and options of the commands: type, name on the command line, and help, each declared once."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ggmflow.posterior.edge_rules import EDGE_RULES
from ggmflow.views.formats import EXPORTS

_DATA, _MODEL, _RUN, _CONDITION = "Data", "Model", "Run", "Condition"
MOST_STEPS, MOST_SEED = 10**8, 2**32 - 1

# ------------------------------------------------------------------------------------------------------------------ fit
Data = Annotated[
    Path, typer.Argument(metavar="DATA", help="CSV file with a header; rows are observations.", show_default=False)
]
NewRun = Annotated[Path, typer.Option("--output", "-o", help="Directory of the run.")]
Delimiter = Annotated[
    str, typer.Option(metavar="SIGN", help="Between fields: one character, or 'tab'.", rich_help_panel=_DATA)
]
Decimal = Annotated[str, typer.Option(metavar="SIGN", help="Before decimals.", rich_help_panel=_DATA)]
Drop = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="Columns to leave out: id,date.", rich_help_panel=_DATA, show_default=False),
]
Mean = Annotated[
    Literal["estimated", "known"],
    typer.Option(help="Column means: estimated from the rows, or known (as in the paper).", rich_help_panel=_DATA),
]
Missing = Annotated[
    Literal["error", "drop", "em"],
    typer.Option(help="Missing values: stop, drop their rows, or estimate by EM.", rich_help_panel=_DATA),
]
Transform = Annotated[
    Literal["nonparanormal"] | None,
    typer.Option(help="Use normal scores: for skewed or ordinal columns.", rich_help_panel=_DATA),
]
KeepScale = Annotated[bool, typer.Option("--no-standardize", help="Keep the units of the data.", rich_help_panel=_DATA)]
Query = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Only the Markov blanket of these columns: a,b,c.",
        rich_help_panel=_MODEL,
        show_default=False,
    ),
]
LamRange = Annotated[str, typer.Option(metavar="LOW,HIGH", help="Range of the shrinkage λ.", rich_help_panel=_MODEL)]
QRange = Annotated[str, typer.Option(metavar="LOW,HIGH", help="Range of the exponent q.", rich_help_panel=_MODEL)]
TemperatureRange = Annotated[
    str, typer.Option(metavar="LOW,1", help="Range of temperatures; 1: faster, no modes.", rich_help_panel=_MODEL)
]
Pretrained = Annotated[
    bool,
    typer.Option(
        "--pretrained/--no-pretrained",
        help="Start from the shipped network, which often needs no training.",
        rich_help_panel=_MODEL,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=MOST_STEPS,
        help="Training steps, rounded up to 25s; 0: none; default: as many as pay.",
        rich_help_panel=_MODEL,
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Random seed.", rich_help_panel=_MODEL)]
Resume = Annotated[bool, typer.Option("--resume", help="Resume an interrupted fit.", rich_help_panel=_RUN)]
Force = Annotated[bool, typer.Option("--force", help="Replace the fit in the directory.", rich_help_panel=_RUN)]

# -------------------------------------------------------------------------------------------------------- fitted models
RunOrData = Annotated[
    Path, typer.Argument(metavar="RUN|DATA", help="Directory that ggmflow fit has written, or a CSV file.")
]
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
if TYPE_CHECKING:
    RuleKey = FormatName = str
else:
    RuleKey, FormatName = Literal[tuple(EDGE_RULES)], Literal[tuple(EXPORTS)]
_RULES = "; ".join(f"{rule.key}: {rule.help}" for rule in EDGE_RULES.values())
Rule = Annotated[RuleKey, typer.Option(help=f"Rule that selects edges. {_RULES}.")]
Refine = Annotated[
    bool,
    typer.Option("--refine", help="Exact draws, by chains that start at the flow's; also measures the flow's error."),
]
Top = Annotated[
    int | None, typer.Option(min=1, help="Number of edges; default 10, all with --json.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for programs, nothing else.")]
ReportFile = Annotated[
    Path | None, typer.Option("--output", "-o", help="HTML file; default: RUN/report.html.", show_default=False)
]
Port = Annotated[int, typer.Option(min=1, max=65535, help="Port of this computer to serve at.")]
Browser = Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser window.")]
Format = Annotated[
    FormatName,
    typer.Option("--format", "-f", help="Format of the file.", show_default=False),
]
ExportFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="File; default in RUN: graph.graphml, summary.csv, summary.json or posterior.nc.",
        show_default=False,
    ),
]

# ----------------------------------------------------------------------------------------------------------------- demo
Figures = Annotated[Path, typer.Option("--output", "-o", help="Directory for figures and report.")]
NumFeatures = Annotated[int, typer.Option(min=2, help="Number of simulated variables d.")]
NumSamples = Annotated[int, typer.Option(min=2, help="Number of simulated rows n.")]
DemoSteps = Annotated[
    int, typer.Option(min=0, max=MOST_STEPS, help="Training steps for simulated rows; 0: the shipped network alone.")
]
DemoSeed = Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Random seed.")]
