"""What the network reaches on simulated tables without training on them, beside the flow without a network.

    gap = log Z̃ − ELBO,      ELBO = mean of log w,   log Z̃ = log mean w,   w = p̃/q

log Z̃ is that of the flow for which it is higher: its mean is at most log Z, so gaps are lower bounds, too low where the
ESS is small. Conditions are drawn as in training, but at T = 1. Tables are those of `tables`, from another seed.
"""

import csv
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from paramax import unwrap
from rich.console import Console
from rich.table import Table

from experiments.pretrain.tables import FAMILIES, HELD_OUT, draw_conditions, draw_table
from experiments.pretrain.training import SEED, shell
from ggmflow.flow.structured_gradient import sample_columns
from ggmflow.flow.structured_network import CorrectionNetwork

SIZES = [(7, 7), (15, 15), (30, 30), (60, 5)]  # d, s
ROWS_PER_VARIABLE = (0.5, 2.0, 10.0)
GROUPS = {"trained on": FAMILIES, "held out": HELD_OUT}
NUM_TABLES, NUM_DRAWS = 24, 1000
QUICK_SIZES, QUICK_TABLES, QUICK_DRAWS = [(3, 3), (4, 2)], 2, 50


class Row(NamedTuple):
    """Medians over the tables of one kind."""

    families: str
    d: int
    s: int
    rows_per_variable: float
    tables: int
    gap: float
    gap_plain: float
    ess: float
    ess_plain: float


class Quality(NamedTuple):
    """Of one flow on one table."""

    elbo: float
    log_z: float
    ess: float


def measure(network: CorrectionNetwork, *, quick: bool = False) -> list[Row]:
    """A row for every group of families, size and number of rows per variable."""
    networks = [jax.tree.map(jnp.asarray, network), None]
    num_tables, num_draws = (QUICK_TABLES, QUICK_DRAWS) if quick else (NUM_TABLES, NUM_DRAWS)
    rows = []
    for (d, s), ratio, group in product(QUICK_SIZES if quick else SIZES, ROWS_PER_VARIABLE, GROUPS):
        n = max(2, round(ratio * d))
        rng = np.random.default_rng([SEED, 1, d, s, n, list(GROUPS).index(group)])
        found = []
        for S, condition in _tables(rng, group, d, n, num_tables):
            key = jax.random.key(rng.integers(2**32))
            found.append([quality_of(_log_weights(each, S, n, condition, key, s, num_draws)) for each in networks])
        log_z = [max(one.log_z, plain.log_z) for one, plain in found]
        gaps = np.array([[value - flow.elbo for flow in flows] for value, flows in zip(log_z, found, strict=True)])
        ess = np.array([[flow.ess for flow in flows] for flows in found])
        rows.append(Row(group, d, s, ratio, num_tables, *np.median(gaps, 0).tolist(), *np.median(ess, 0).tolist()))
    return rows


def _tables(rng: np.random.Generator, group: str, d: int, n: int, num: int):
    """Scatter matrices, families in turn, and a condition for each."""
    families = list(GROUPS[group].values())
    for k in range(num):
        order = rng.permutation(d)
        S, _ = draw_table(rng, families[k % len(families)](rng, d)[np.ix_(order, order)], n)
        condition = draw_conditions(rng, np.full((), n, float))
        condition[2] = 0.0
        yield S.astype(np.float32), condition


@partial(jax.jit, static_argnames=("s", "num_draws"))
def _sample(
    network: CorrectionNetwork | None, S: Array, n: Array, condition: Array, key: Array, s: int, num_draws: int
):
    parts = (S, n, network)
    flow = eqx.tree_at(
        lambda each: (each.scatter, each.n_samples, each.pretrained),
        shell(len(S), s),
        parts,
        is_leaf=lambda leaf: leaf is None,
    )
    _, log_q, log_p = sample_columns(flow, key, unwrap(flow).geometry(condition), num_draws)
    return log_p - log_q


def _log_weights(network, S, n: int, condition, key: Array, s: int, num_draws: int) -> Float[np.ndarray, " m"]:
    arrays = (jnp.asarray(S), jnp.float32(n), jnp.asarray(condition))
    return np.asarray(_sample(network, *arrays, key, s=s, num_draws=num_draws), float)


def quality_of(log_w: Float[np.ndarray, " m"]) -> Quality:
    """ELBO, log Z̃ and ESS of log weights; useless if one of them is not finite."""
    if not np.isfinite(log_w).all():
        return Quality(-np.inf, -np.inf, 0.0)
    m, total, square = len(log_w), float(np.logaddexp.reduce(log_w)), float(np.logaddexp.reduce(2 * log_w))
    return Quality(float(log_w.mean()), total - float(np.log(m)), float(np.exp(2 * total - square) / m))


def show(rows: list[Row], console: Console) -> None:
    """Print the table."""
    table = Table(title="medians, T = 1, no training on the tables")
    for column in ("families", "d", "s", "n/d", "gap", "without network", "ESS", "without network"):
        table.add_column(column, justify="left" if column == "families" else "right")
    for row in rows:
        numbers = (f"{row.gap:.2f}", f"{row.gap_plain:.2f}", f"{row.ess:.3f}", f"{row.ess_plain:.3f}")
        table.add_row(row.families, str(row.d), str(row.s), f"{row.rows_per_variable:g}", *numbers)
    console.print(table)


def write_table(rows: list[Row], path: Path) -> None:
    """Write the rows to a CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows([f"{value:.4g}" if isinstance(value, float) else value for value in row] for row in rows)
