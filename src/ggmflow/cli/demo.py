"""The demo: the paper's toy problem from data to figures, and a real table from data to a report."""

import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import matplotlib
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning

from ggmflow import __version__, plot
from ggmflow.baselines import edge_metrics, graphical_lasso
from ggmflow.cli.demo_table import REPORT, TABLE, show_table
from ggmflow.cli.requests import DemoRequest
from ggmflow.data.scatter import Scatter
from ggmflow.data.simulate import toy_problem
from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.model.precision import partial_correlation
from ggmflow.posterior.posterior import PoorFitWarning
from ggmflow.posterior.weighted_draws import WeightedDraws
from ggmflow.posterior.weights import khat_limit
from ggmflow.storage.replace import replacing
from ggmflow.train.status import Status

console = Console(highlight=False)

EXPONENTS = (1.0, 0.5)
COLD = 0.01
FIGURES = ("network.png", "intervals.png", "path.png")
NUM_DRAWS = 4000  # per condition
_NUM_COLD_DRAWS = 1000  # near the mode draws have hardly any spread


class Found:
    """Partial correlations at one condition, as the demo shows them.

    Parameters
    ----------
    draws
        Draws of the posterior.
    """

    def __init__(self, draws: WeightedDraws):
        self.mean = draws.matrix(draws.association())
        self.low, self.median, self.high = draws.matrix(draws.association_quantile([0.05, 0.5, 0.95]))
        self.importance = draws.importance
        self.edges: Bool[np.ndarray, "d d"] = draws.matrix(draws.excludes_zero([0.05, 0.95]))


def run_demo(request: DemoRequest) -> None:
    """Print a summary to standard output and write the figures.

    Parameters
    ----------
    request
        The directory `output` must exist; the seed is that of data and fit.
    """
    output, n_features, n_samples, steps, seed, program = request
    X, truth = toy_problem(n_features, n_samples, random_state=seed)
    pairs = np.triu_indices(n_features, 1)
    console.print(
        f"\n[bold]ggmflow {__version__}[/bold]\n\n[bold]A graph that is known[/bold]  {n_samples} rows of {n_features} "
        f"variables, simulated from {np.count_nonzero(truth[pairs])} of {pairs[0].size} possible edges.\n"
        f"One flow is fitted for every shrinkage λ, every q from 0.25 to 1.25 and every temperature from {COLD} to 1.\n"
    )
    model = _fit(X, steps, seed)
    best = _choose(model)
    lam, lam_path = (np.geomspace(*model.lam_range_, num) for num in (9, 17))
    with console.status(f"Drawing from the posterior at {len(EXPONENTS) * (1 + lam.size + lam_path.size)} conditions"):
        warm = {q: [_find(model, value, q) for value in lam] for q in EXPONENTS}
        chosen = {q: _find(model, best[q], q) for q in EXPONENTS}
        cold = {q: np.stack([_cold_mean(model, value, q) for value in lam_path]) for q in EXPONENTS}
    lasso, lasso_path = _lasso(model.scatter_, lam), _lasso(model.scatter_, lam_path)

    names = model.scatter_.names
    _print_strongest(names, truth, best, chosen)
    _print_edges_along_lam(truth, lam, warm, lasso)
    difference = (cold[1.0] - lasso_path)[:, *pairs]
    console.print(
        f"\nThe path: at temperature {COLD} and q = 1 the means of the same flow differ from the graphical lasso by "
        f"{np.sqrt(np.mean(difference**2)):.3f} (root mean square over off-diagonal entries at {lam_path.size} λ).\n"
    )
    _print_trust(model, [*(found for row in warm.values() for found in row), *chosen.values()])

    strongest = _strongest(chosen[1.0], 4)
    labels = {k: _label(names, truth, pairs[0][k], pairs[1][k]) for k in strongest}
    # Figures are made without pyplot, which has global state and may look for a screen.
    with matplotlib.rc_context({"font.size": 9, "savefig.dpi": 130}):
        _draw_network(output / FIGURES[0], names, truth, best, chosen)
        _draw_intervals(output / FIGURES[1], lam, warm, partial_correlation(lasso), labels)
        _draw_path(output / FIGURES[2], lam_path, cold, lasso_path, labels)
    if n_samples < 3 * n_features:
        console.print(
            "With so few rows, intervals are wide, and most edges cannot be distinguished from zero.\n"
            f"Try more rows: [bold]{program} demo --n-samples {10 * n_features} -o {output}-more[/bold]\n"
        )
    show_table(console, output, seed)
    console.print(
        f"\nFigures of the simulated rows: {', '.join(str(output / name) for name in FIGURES)}\n"
        f"Report of the real table, with sliders, for your browser: [bold]{output / REPORT}[/bold]\n"
        f"The same table with live sliders: [bold]{program} explore {output / TABLE}[/bold]\n",
        soft_wrap=True,
    )


def _fit(X: Float[np.ndarray, "n d"], steps: int, seed: int) -> GraphicalFlow:
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # an interruption is reported below
        model = GraphicalFlow(temperature=(COLD, 1.0), steps=steps, random_state=seed, progress=steps > 0)
        with nullcontext() if steps else console.status("Compiling the flow"):
            model.fit(X)
    ends = {
        Status.FINISHED: "Trained",
        Status.STOPPED_EARLY: "Converged: stopped",
        Status.INTERRUPTED: "Interrupted",
    }
    low, high = model.lam_range_
    how = f"{ends[Status(model.status_)]} after {model.n_iter_} steps and"
    if model.n_iter_ == 0:
        how = "Not trained: the flow answers as shipped after"
    console.print(f"{how} {time.perf_counter() - start:.0f} s, compilation included. λ from {low:.2g} to {high:.2g}.")
    return model


def _choose(model: GraphicalFlow) -> dict[float, float]:
    """λ of highest evidence for each exponent; prints them."""
    best = {q: model.select(q=q).lam for q in EXPONENTS}
    console.print(
        f"Evidence is highest at {' and '.join(f'λ = {lam:.2f} for q = {q:g}' for q, lam in best.items())}.\n"
    )
    return best


def _find(model: GraphicalFlow, lam: float, q: float) -> Found:
    """The posterior at T = 1."""
    return Found(model.posterior(lam, q, num_draws=NUM_DRAWS).draws)


def _cold_mean(model: GraphicalFlow, lam: float, q: float) -> Float[np.ndarray, "d d"]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorFitWarning)  # near the mode draws have hardly any spread
        return model.posterior(lam, q, temperature=COLD, num_draws=_NUM_COLD_DRAWS).mean()


def _lasso(scatter: Scatter, lam: Float[np.ndarray, " k"]) -> Float[np.ndarray, "k d d"]:
    return np.stack([graphical_lasso(scatter.emp_cov, scatter.n, value).precision for value in lam])


def _strongest(found: Found, count: int) -> list[int]:
    """Positions, among the pairs i < j, of the largest mean partial correlations."""
    size = np.abs(found.mean[np.triu_indices(len(found.mean), 1)])
    return np.argsort(-size)[:count].tolist()


def _label(names: tuple[str, ...], truth: Float[np.ndarray, "d d"], i: int, j: int) -> str:
    return f"{names[i]} – {names[j]}{'' if truth[i, j] else ' (no edge)'}"


def _print_strongest(names, truth, lam: dict[float, float], chosen: dict[float, Found]) -> None:
    table = Table(title="Strongest partial correlations: mean [90 % interval]", title_justify="left")
    table.add_column("pair")
    for q in chosen:
        table.add_column(f"q = {q:g}, λ = {lam[q]:.2f}", justify="right")
    table.add_column("truth", justify="right")
    i, j = np.triu_indices(len(names), 1)
    true_partial = partial_correlation(truth)
    for k in _strongest(chosen[1.0], 8):
        a, b = i[k], j[k]
        cells = []
        for found in chosen.values():
            cells.append(rf"{found.mean[a, b]:+.2f} \[{found.low[a, b]:+.2f}, {found.high[a, b]:+.2f}]")
        table.add_row(f"{names[a]} – {names[b]}", *cells, f"{true_partial[a, b]:+.2f}" if truth[a, b] else "no edge")
    console.print(table)


def _print_edges_along_lam(truth, lam, warm: dict[float, list[Found]], lasso) -> None:
    table = Table(title="\nEdges found (F1 against the truth; only off-diagonal pairs count)", title_justify="left")
    table.add_column("λ", justify="right")
    for q in warm:
        table.add_column(f"90 % interval, q = {q:g}", justify="right")
    table.add_column("graphical lasso", justify="right")
    for k, value in enumerate(lam):
        found = [row[k].edges for row in warm.values()] + [lasso[k] != 0]
        cells = [f"{np.sum(np.triu(edges, 1))}  (F1 {edge_metrics(truth, edges).f1:.2f})" for edges in found]
        table.add_row(f"{value:.2f}", *cells)
    console.print(table)


def _print_trust(model: GraphicalFlow, shown: list[Found]) -> None:
    """Print Pareto k̂, effective draws and skipped steps."""
    weights = [found.importance for found in shown if found.importance is not None]
    ess = np.array([each.ess for each in weights])
    limit = khat_limit(NUM_DRAWS)
    poor = sum(not each.reliable for each in weights)
    if poor:
        verdict = f"[yellow]Pareto k̂ is {limit:.2g} or more at {poor} of the {len(shown)} conditions shown"
        verdict += ", where draws of the flow are used without weights. More --steps improve the flow.[/yellow]"
    else:
        verdict = f"[green]Pareto k̂ is below {limit:.2g} at all {len(shown)} conditions shown"
        verdict += ": importance weights correct the errors of the flow.[/green]"
    skipped = int(model.history_["skipped"].iloc[-1])
    steps = f" {skipped} training {'step was' if skipped == 1 else 'steps were'} skipped." if skipped else ""
    console.print(
        f"How far to trust this: {verdict}\nOf {NUM_DRAWS} draws at each, {ess.min() * NUM_DRAWS:.0f} to "
        f"{ess.max() * NUM_DRAWS:.0f} are effective (median {np.median(ess):.0%}).{steps}\n"
    )


def _draw_network(path: Path, names, truth, lam: dict[float, float], chosen: dict[float, Found]) -> None:
    """The true graph, and the edges found at the λ of highest evidence."""
    figure = Figure(figsize=(10, 3.9), layout="constrained")
    figure.suptitle(
        "Edges whose 90 % interval excludes zero, at the λ of highest evidence. Width: partial correlation; "
        "blue positive, orange negative; dotted: not in the truth",
        fontsize=9,
    )
    axes = figure.subplots(1, 1 + len(chosen))
    true_edges = truth != 0
    positions = plot.layout(true_edges)
    plot.network(truth, true_edges, names, positions=positions, title="truth", ax=axes[0])
    for ax, (q, found) in zip(axes[1:], chosen.items(), strict=True):
        # −ρ with ones on the diagonal has the partial correlations ρ.
        precision = 2 * np.eye(len(names)) - found.mean
        texts = {"title": f"found, q = {q:g}, λ = {lam[q]:.2f}", "positions": positions}
        plot.network(precision, found.edges, names, highlight=true_edges, ax=ax, **texts)
    _write(figure, path)


def _draw_intervals(path: Path, lam, warm: dict[float, list[Found]], lasso, labels: dict[int, str]) -> None:
    """Credible intervals of a few partial correlations along λ at T = 1."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    axes = figure.subplots(1, len(warm), sharey=True)
    i, j = (index[list(labels)] for index in np.triu_indices(lasso.shape[-1], 1))
    for ax, (q, row) in zip(axes, warm.items(), strict=True):
        quantiles = np.stack([[x.low[i, j], x.median[i, j], x.high[i, j]] for x in row], axis=1)
        texts = {"title": f"90 % credible intervals, q = {q:g}", "ylabel": "partial correlation"}
        path_at_one = lasso[:, i, j] if q == 1 else None
        plot.intervals_along_lam(lam, quantiles, list(labels.values()), path=path_at_one, ax=ax, **texts)
    _share_legend(figure, axes)
    _write(figure, path)


def _draw_path(path: Path, lam, cold: dict[float, np.ndarray], lasso, labels: dict[int, str]) -> None:
    """Every partial correlation along λ at the lowest temperature."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    axes = figure.subplots(1, len(cold), sharey=True)
    i, j = np.triu_indices(lasso.shape[-1], 1)
    for ax, (q, precision) in zip(axes, cold.items(), strict=True):
        texts = {"title": f"solution path, q = {q:g} (T = {COLD})", "ylabel": "partial correlation"}
        reference = partial_correlation(lasso)[:, i, j] if q == 1 else None
        plot.solution_path(lam, partial_correlation(precision)[:, i, j], labels, reference=reference, ax=ax, **texts)
    _share_legend(figure, axes)
    _write(figure, path)


def _share_legend(figure: Figure, axes) -> None:
    """One legend below panels that share their colours."""
    handles = axes[0].get_legend().legend_handles
    for ax in axes:
        ax.get_legend().remove()
        ax.label_outer()
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)


def _write(figure: Figure, path: Path) -> None:
    """Write a figure completely or not at all."""
    with replacing(path) as temporary:
        figure.savefig(temporary)
