"""The result of a fit: a summary to read, or one JSON object for programs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ggmflow.cli.arguments import data_name
from ggmflow.cli.run_record import chosen_boundaries
from ggmflow.cli.terminal import duration, plain_text, print_line
from ggmflow.data.findings import DataCheck, Kind, Severity, sentences
from ggmflow.errors.advice import Surface
from ggmflow.posterior.posterior import Posterior
from ggmflow.posterior.tables import Scale
from ggmflow.posterior.weights import Verdict
from ggmflow.train.status import Status
from ggmflow.views.export import describe, edge_table, records, strongest


def print_check(check: DataCheck | None) -> None:
    """Print the findings of the data check on standard error."""
    if check is None or not check.findings:
        return
    print_line("Data check", style="bold")
    for sentence in sentences(check, Surface.COMMAND_LINE):
        print_line(f"- {sentence}", style="yellow" if check.findings[0].severity > Severity.NOTE else "none")


def count_findings(check: DataCheck | None) -> list[str]:
    """One line with the number of findings, for use after `print_check`; none if the data were not checked."""
    if check is None:
        return []
    found = len(check.findings)
    return [f"{found} finding{'s' * (found > 1)} about the data, above" if found else "nothing unusual in the data"]


def print_json(run: Path, record: dict[str, Any], post: Posterior, table: pd.DataFrame, top: int | None) -> None:
    """Print the record of a run, the posterior and its edges on standard output.

    Parameters
    ----------
    run, record
        The run directory and its record.
    post, table
        The posterior and its `export_table`.
    top
        Number of edges; None: all.
    """
    names = ("status", "seconds", "timings", "steps", "training", "chosen", "ranges", "data")
    about = {"run": str(run)} | {name: record.get(name) for name in names}
    edges = edge_table(table)
    content = about | describe(post, table) | {"edges": records(edges if top is None else edges.head(top))}
    typer.echo(json.dumps(content, allow_nan=False))


def print_summary(record: dict[str, Any], post: Posterior, table: pd.DataFrame, top: int, check: Sequence[str]) -> None:
    """Print a summary to read.

    Parameters
    ----------
    record
        Record of the run.
    post, table
        The posterior and its `export_table`.
    top
        Number of edges.
    check
        Lines about the data.
    """
    console = Console(highlight=False)
    edges, attributes = edge_table(table), table.attrs
    s, d = len(post.query), len(post.names)
    pairs = s * (s - 1) // 2 + s * (d - s)
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="bold", no_wrap=True)
    lines.add_column(overflow="fold")
    rows = f"{float(record['data'].get('rows', 0)):g} rows of {d} variables"
    blanket = "" if s == d else f"; the Markov blanket of {s} of them"
    lines.add_row("Data", plain_text(f"{data_name(record)}: {rows}{blanket}"))
    for k, sentence in enumerate(check):
        lines.add_row("Check" if k == 0 else "", plain_text(sentence))
    lines.add_row("Fit", plain_text("; ".join([_training(record), *_fitted_ranges(record)])))
    _add_condition(lines, record, post)
    _add_trust(lines, record, post)
    lines.add_row("Edges", plain_text(f"{len(edges)} of {pairs} pairs, by {attributes['rule']}"))
    console.print(lines)
    print_edges(console, table, top)


def print_edges(console: Console, table: pd.DataFrame, top: int) -> None:
    """Print the strongest edges with their intervals; without edges, the strongest pairs.

    Parameters
    ----------
    console
        Where to print.
    table
        The `export_table` of a posterior.
    top
        Number of edges.
    """
    edges = edge_table(table)
    if len(edges):
        shown = edges.head(top)
        title = f"Strongest edges ({top} of {len(edges)})" if top < len(edges) else "Edges, strongest first"
    else:
        shown, title = strongest(table).head(top), "No edges; the strongest pairs, which may as well be zero"
    console.print(_edge_table(shown, table.attrs["level"], title))


def _fitted_ranges(record: dict[str, Any]) -> list[str]:
    """The ranges of a fit in one text; none if it has one condition only."""
    ranges = record["ranges"]
    fitted = [
        f"{symbol} from {ranges[name][0]:.3g} to {ranges[name][1]:.3g}"
        for name, symbol in (("lam", "λ"), ("q", "q"), ("temperature", "temperature"))
        if ranges[name][0] < ranges[name][1]
    ]
    return [", ".join(fitted)] if fitted else []


def _add_condition(lines: Table, record: dict[str, Any], post: Posterior) -> None:
    """λ and q of the posterior, how they were chosen, and a warning if they are at the boundary of the ranges."""
    chosen, ranges = record["chosen"], record["ranges"]
    choice = [float(chosen[name]) for name in ("lam", "q")]
    best, here = (f"λ = {lam:.3g}, q = {q:.3g}" for lam, q in (choice, (post.lam, post.q)))
    is_best = np.allclose(choice, np.array([post.lam, post.q], float), rtol=1e-6)
    only = all(low == high for low, high in (ranges["lam"], ranges["q"]))
    reason = ", as given" if only else ", the highest evidence" if is_best else f" (evidence prefers {best})"
    lines.add_row("Shown at", plain_text(f"{here}{reason}"))
    known = None if post.scatter is None else post.scatter.check
    copies = known is not None and any(each.kind is Kind.IDENTICAL for each in known.findings)
    for boundary in chosen_boundaries(record) if is_best else ():
        why = "identical columns let it rise without limit" if copies else "a wider range may be better still"
        lines.add_row("", plain_text(f"The evidence is highest at {boundary.text()}: {why}.", "yellow"))


def _add_trust(lines: Table, record: dict[str, Any], post: Posterior) -> None:
    """The verdict on the draws, and advice if it is poor."""
    found = post.diagnostics()
    lines.add_row("Trust", Text(found.message, style="green" if found.verdict is Verdict.GOOD else "yellow"))
    if found.verdict is Verdict.POOR:
        other = "" if chosen_boundaries(record) else " Or fit with more --steps, or narrower --lam and --q."
        lines.add_row("", Text(f"Exact draws: ggmflow summary RUN --refine.{other}", style="yellow"))


def _training(record: dict[str, Any]) -> str:
    """Number of training steps, if any, and the time of training and of the other parts of a fit."""
    how = "stopped early after" if record.get("training") == Status.STOPPED_EARLY else "trained for"
    trained = record.get("steps") != 0
    steps = f"{how} {record.get('steps')} steps" if trained else "not trained: the flow answers as shipped"
    if (timings := record.get("timings")) is None:  # a run of an earlier version has only the total
        return f"{steps}, {duration(record['seconds'])}"
    parts = {"compiling": timings["compiling"], "choosing λ and q": timings.get("choosing") or 0.0}
    parts["other work"] = record["seconds"] - timings["training"] - sum(parts.values())
    rest = [f"{name} {duration(seconds)}" for name, seconds in parts.items() if seconds >= 0.5]
    parts_text = ", ".join(rest)
    if not trained:
        return f"{steps} ({parts_text})" if rest else steps
    return f"{steps} in {duration(timings['training'])}{f', plus {parts_text}' if rest else ''}"


def _edge_table(edges: pd.DataFrame, level: float, title: str) -> Table:
    outside = Scale.REGRESSION_WEIGHT in edges["scale"].to_list()
    table = Table(title=f"\n{title}", title_justify="left", title_style="bold", caption_justify="left")
    table.add_column("pair", overflow="fold")
    table.add_column("association" if outside else "partial correlation", justify="right")
    table.add_column(f"{100 * level:g} % interval", justify="right", no_wrap=True)
    by_rule = bool(edges["rule_probability"].notna().all())
    table.add_column("P(edge)" if by_rule else "P(size > 0.1)", justify="right", no_wrap=True)
    if outside:
        table.caption = "* the second variable is outside the query: weight in a regression of the first on all others"
    for edge in records(edges):
        value, low, high = edge["association"], edge["association_lower"], edge["association_upper"]
        star = "*" if edge["scale"] == Scale.REGRESSION_WEIGHT else " " if outside else ""
        table.add_row(
            plain_text(f"{edge['row']} – {edge['column']}"),
            Text(f"{value:+.2f}{star}", style="blue" if value > 0 else "dark_orange"),
            Text(f"{low:+.2f} … {high:+.2f}"),
            f"{edge['rule_probability' if by_rule else 'edge_probability']:.2f}",
        )
    return table
