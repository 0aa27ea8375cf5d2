"""The command line: `ggmflow demo` simulates the paper's toy problem, solves it exactly, and draws what it found."""

from pathlib import Path
from typing import Annotated

import jax
import matplotlib
import numpy as np
import typer
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ggmflow import __version__, gibbs, plot
from ggmflow.baselines import edge_metrics, graphical_lasso
from ggmflow.data import Scatter
from ggmflow.precision import partial_correlation
from ggmflow.simulate import toy_problem

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
console = Console()

CHAINS = 8  # per (λ, q)


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
    """Bayesian sparse precision matrices."""


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for the figures.")] = Path("demo"),
    n_features: Annotated[int, typer.Option(min=2, help="Number of variables d.")] = 15,
    n_samples: Annotated[int, typer.Option(min=2, help="Number of rows n.")] = 15,
    draws: Annotated[int, typer.Option(min=10, help="Draws per chain.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed.")] = 1,
) -> None:
    """Simulate a sparse graph, sample its posterior along λ for q = 1 and q = 0.5, and write figures.

    Example: ggmflow demo --n-samples 40 -o figures/
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        (output / "intervals.png").touch()  # fail before the work, not after it
    except OSError as error:
        console.print(f"[red]Cannot write to {output}:[/red] {error.strerror}. Choose another with --output.")
        raise typer.Exit(2) from None

    X, truth = toy_problem(n_features, n_samples, random_state=seed)
    scatter = Scatter.from_data(X)
    lam, q = np.geomspace(1, 10, 9), np.array([1.0, 0.5])
    num_edges = int(np.sum(np.triu(truth, 1) != 0))
    console.print(
        f"\n[bold]ggmflow {__version__}[/bold]  {n_samples} rows of {n_features} variables, simulated from a graph "
        f"with {num_edges} of {n_features * (n_features - 1) // 2} possible edges.\n"
        f"Sampling the exact posterior of the precision matrix at {lam.size} values of λ for q = 1 and q = 0.5."
    )
    chains = _sample_grid(scatter, lam, q, draws, seed)
    _print_convergence(chains, lam.size * q.size)
    # (q, λ, draws, d, d)
    precision = chains.draws.reshape(q.size, lam.size, -1, n_features, n_features)
    lasso = np.stack([graphical_lasso(scatter.emp_cov, scatter.n, value).precision for value in lam])

    _print_edges_along_lam(truth, lam, q, precision, lasso)
    shown = lam.size // 4  # where shrinkage is light enough for a few intervals to leave zero
    _print_strongest_edges(scatter.names, truth, lam[shown], precision[:, shown])
    _draw_figures(output, scatter.names, truth, lam, q, precision, lasso, shown)
    if n_samples < 3 * n_features:
        console.print(
            "So few rows say little: honest intervals are wide, and most edges cannot be told from zero.\n"
            f"See what more rows do: [bold]ggmflow demo --n-samples {10 * n_features}[/bold]"
        )
    console.print(f"Figures: {', '.join(str(output / name) for name in ('intervals.png', 'networks.png'))}\n")


def _sample_grid(scatter, lam, q, draws, seed):
    """All (q, λ) in one call, each with its own chains."""
    columns = (
        TextColumn("  [progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("sweeps"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("compiling", total=None)

        def report(done, total):
            progress.update(task, description="sampling", completed=done, total=total)

        return gibbs.sample(
            jax.random.key(seed),
            scatter,
            np.tile(np.repeat(lam, CHAINS), q.size),
            np.repeat(q, lam.size * CHAINS),
            num_draws=draws,
            num_warmup=300,
            progress=report,
        )


def _print_convergence(chains, num_conditions):
    """Worst R̂ and effective sample size over all conditions, and whether that is good enough."""
    parts = [chains.select(np.arange(k * CHAINS, (k + 1) * CHAINS)) for k in range(num_conditions)]
    rhat = max(part.rhat.max() for part in parts)
    ess = min(part.ess_bulk.min() for part in parts)
    verdict = (
        "[green]converged[/green]" if rhat < 1.05 else "[yellow]not converged everywhere: try more --draws[/yellow]"
    )
    console.print(f"Worst of all entries and all (λ, q): split-R̂ {rhat:.3f}, {ess:.0f} effective draws; {verdict}.\n")


def _intervals(draws, level=0.9):
    """Lower and upper end of the central credible interval of every entry."""
    return np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)


def _edges(draws):
    """Pairs whose 90 % credible interval excludes zero."""
    low, high = _intervals(draws)
    return (low > 0) | (high < 0)


def _print_edges_along_lam(truth, lam, q, precision, lasso):
    table = Table(title="Edges found (F1 against the truth; only off-diagonal pairs count)", title_justify="left")
    table.add_column("λ", justify="right")
    for value in q:
        table.add_column(f"90 % interval, q = {value:g}", justify="right")
    table.add_column("graphical lasso", justify="right")
    for k, value in enumerate(lam):
        found = [_edges(precision[i, k]) for i in range(q.size)] + [lasso[k] != 0]
        cells = [f"{np.sum(np.triu(edges, 1))}  (F1 {edge_metrics(truth, edges).f1:.2f})" for edges in found]
        table.add_row(f"{value:.2f}", *cells)
    console.print(table)


def _print_strongest_edges(names, truth, lam, precision):
    """The eight largest posterior means of partial correlations at q = 1, with their intervals for both q."""
    partial = partial_correlation(precision)
    mean = partial.mean(axis=1)
    i, j = np.triu_indices(len(names), 1)
    strongest = np.argsort(-np.abs(mean[0, i, j]))[:8]
    table = Table(
        title=f"\nStrongest partial correlations at λ = {lam:.2f}: mean [90 % interval]", title_justify="left"
    )
    for header in ("pair", "q = 1", "q = 0.5", "truth"):
        table.add_column(header, justify="left" if header == "pair" else "right")
    true_partial = partial_correlation(truth)
    for a, b in zip(i[strongest], j[strongest], strict=True):
        cells = []
        for draws, centre in zip(partial, mean, strict=True):
            low, high = _intervals(draws[:, a, b])
            cells.append(f"{centre[a, b]:+.2f} [{low:+.2f}, {high:+.2f}]")
        table.add_row(f"{names[a]} – {names[b]}", *cells, f"{true_partial[a, b]:+.2f}" if truth[a, b] else "no edge")
    console.print(table)


def _draw_figures(output, names, truth, lam, q, precision, lasso, shown):
    """intervals.png: partial correlations along λ. networks.png: truth and what is found."""
    partial, path = partial_correlation(precision), partial_correlation(lasso)
    i, j = np.triu_indices(len(names), 1)
    pick = np.argsort(-np.abs(partial[0, shown].mean(0)[i, j]))[:4]
    i, j = i[pick], j[pick]
    labels = [f"{names[a]} – {names[b]}{'' if truth[a, b] else ' (no edge)'}" for a, b in zip(i, j, strict=True)]
    # Figures are made without pyplot's state, and without looking for a screen.
    with matplotlib.rc_context({"font.size": 9, "savefig.dpi": 130}):
        figure = Figure(figsize=(10, 3.8), layout="constrained")
        axes = figure.subplots(1, len(q), sharey=True)
        for k, ax in enumerate(axes):
            quantiles = np.quantile(partial[k][..., i, j], [0.05, 0.5, 0.95], axis=1)
            texts = {"title": f"90 % credible intervals, q = {q[k]:g}", "ylabel": "partial correlation"}
            plot.intervals_along_lam(lam, quantiles, labels, path=path[:, i, j], ax=ax, **texts)
        axes[0].set_ylim(top=axes[0].get_ylim()[1] + 0.25)  # room for the legend
        axes[1].set_ylabel("")
        axes[1].get_legend().remove()
        figure.savefig(output / "intervals.png")

        figure = Figure(figsize=(10, 3.9), layout="constrained")
        figure.suptitle(
            f"Edges whose 90 % interval excludes zero at λ = {lam[shown]:.2f}. Width: partial correlation; "
            "blue positive, orange negative; dotted: not in the truth",
            fontsize=9,
        )
        axes = figure.subplots(1, 3)
        true_edges = truth != 0
        positions = plot.layout(true_edges)
        plot.network(truth, true_edges, names, positions=positions, title="truth", ax=axes[0])
        for k, ax in enumerate(axes[1:]):
            draws, texts = precision[k, shown], {"title": f"found, q = {q[k]:g}"}
            plot.network(draws.mean(0), _edges(draws), names, highlight=true_edges, positions=positions, ax=ax, **texts)
        figure.savefig(output / "networks.png")
