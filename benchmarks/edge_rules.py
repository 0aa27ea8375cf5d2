"""Edge rules on simulated graphs beside scikit-learn's graphical lasso: F1, false edges, the effect of duplicates.

    .venv/bin/python -m benchmarks.edge_rules

Draws are those of the exact sampler at the λ that `lam="auto"` starts from and q = 0.5, so that the rules are measured
and not a flow. The best cut of the same ranking is chosen with the truth at hand, another one for each data set.
"""

import warnings
from collections.abc import Iterator

import jax
import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.covariance import GraphicalLassoCV
from sklearn.exceptions import ConvergenceWarning

import ggmflow as gf
from ggmflow.data.simulate import sample_gaussian, sparse_precision
from ggmflow.model.conditions import likely_lam
from ggmflow.posterior.edges import EdgeSelection
from ggmflow.posterior.posterior import Posterior
from ggmflow.posterior.source import ChainSource

_Q, _SEEDS = 0.5, 10


def exact_posterior(X: np.ndarray, key: int) -> Posterior:
    """Posterior of a table from 2000 states of exact chains."""
    scatter = gf.Scatter.from_data(X, mean="known")
    d = scatter.n_features
    lam = likely_lam(scatter, np.arange(d))
    chains = gf.gibbs.sample(
        jax.random.key(key), scatter, lam, _Q, num_chains=16, num_draws=125, num_warmup=150, thin=3
    )
    return Posterior(ChainSource(chains.pooled), scatter.names, np.arange(d), lam, _Q, 1.0, num_draws=2000)


def f1(found: np.ndarray, actual: np.ndarray) -> float:
    """F1 over pairs."""
    return float(2 * np.sum(found & actual) / max(np.sum(found) + np.sum(actual), 1))


def false_share(found: np.ndarray, actual: np.ndarray) -> float:
    """Share of false ones among the edges that were found; 0 without any."""
    return float(np.sum(found & ~actual) / max(np.sum(found), 1))


def graphs(n: int) -> Iterator[tuple[float, ...]]:
    """Scores of each rule on ten graphs of 30 variables with n rows."""
    upper = np.triu_indices(30, 1)
    for seed in range(_SEEDS):
        truth = sparse_precision(30, graph=("hub", "band", "random")[seed % 3], random_state=seed)
        X = sample_gaussian(truth, n, random_state=np.random.default_rng([seed, n]))
        post, actual = exact_posterior(X, seed), truth[upper] != 0
        selections: list[EdgeSelection] = [post.select_edges(), post.select_edges("fdr"), post.select_edges("interval")]
        default, fdr, interval = (each.edges[upper] for each in selections)
        score = np.abs(post.mean() / post.sd())[upper]
        best = max(f1(score >= cut, actual) for cut in score)
        with warnings.catch_warnings():
            for kind in (ConvergenceWarning, RuntimeWarning):
                warnings.simplefilter("ignore", kind)
            peer = np.abs(GraphicalLassoCV().fit((X - X.mean(0)) / X.std(0)).precision_[upper]) > 1e-8
        yield (
            f1(default, actual),
            best,
            f1(interval, actual),
            f1(peer, actual),
            np.sum(default),
            false_share(default, actual),
            selections[0].expected_fdr,
            np.sum(fdr),
            false_share(fdr, actual),
        )


def duplicates(copies: int) -> Iterator[tuple[float, ...]]:
    """Twenty tables of six columns of noise and copies of the first ones, n = 60."""
    upper = np.triu_indices(6 + copies, 1)
    truth = np.zeros((6 + copies, 6 + copies), bool)
    truth[np.arange(copies), 6 + np.arange(copies)] = True
    for seed in range(2 * _SEEDS):
        X = np.random.default_rng(seed).normal(size=(60, 6))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            post = exact_posterior(np.column_stack([X, X[:, :copies]]), seed)
        for_rule = [post.edges(rule=rule)[upper] for rule in ("f1", "fdr")]
        yield tuple(float(np.sum(found & kind)) for found in for_rule for kind in (truth[upper], ~truth[upper]))


def main() -> None:
    """Print two tables."""
    console = Console(width=130)
    table = Table(title="d = 30, hub, band and random graphs in turn, means of 10 data sets")
    heads = ("rows", "F1 default", "best cut", "90 % interval", "GraphicalLassoCV", "edges", "false", "as expected")
    for head in (*heads, "edges, fdr 0.1", "false"):
        table.add_column(head, justify="right")
    for n in (15, 25, 45, 100, 400):
        mean = np.mean(list(graphs(n)), axis=0)
        digits = ("{:.2f}", "{:.2f}", "{:.2f}", "{:.2f}", "{:.0f}", "{:.0%}", "{:.0%}", "{:.0f}", "{:.0%}")
        table.add_row(str(n), *(form.format(value) for form, value in zip(digits, mean, strict=True)))
    console.print(table)
    table = Table(title="Six columns of noise and copies of them, n = 60, means of 20 tables")
    for head in ("copies", "default: true", "false", "fdr 0.1: true", "false"):
        table.add_column(head, justify="right")
    for copies in (0, 1, 3):
        table.add_row(str(copies), *(f"{value:.2f}" for value in np.mean(list(duplicates(copies)), axis=0)))
    console.print(table)


if __name__ == "__main__":
    main()
