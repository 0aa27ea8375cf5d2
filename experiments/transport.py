"""Train τ, the one-dimensional transport that all entries of all flows share, and report its accuracy.

    python -m experiments.transport            train, write the shipped weights and docs/tables/transport_kl.csv
    python -m experiments.transport --small    the same for the small network, which blankets use; without the table
    python -m experiments.transport --check    only report the accuracy of the shipped weights

    minimize over θ   E_{(δ, κ, q)} [ KL(τ_θ # N(0, 1) ‖ p) + α · regression of quantiles ],
    p(x) = exp(−½(x − δ)² − κ|x|^q) / Z

The divergence alone loses modes: if spike and slab are far apart, it has no gradient towards a mode without draws. The
regression on exact quantiles, in asinh units of the spike's width, distributes the mass, and its weight α decreases
during training. Conditions come from a pool with exact quantiles and log Z; those with the largest divergence are drawn
more often. Every key is fixed.
"""

import argparse
import csv
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, PRNGKeyArray
from rich.console import Console
from rich.table import Table
from scipy import special

from ggmflow.flow.transport import (
    DELTA_RANGE,
    HIDDEN,
    HIDDEN_SMALL,
    LOG_KAPPA_RANGE,
    NUM_FEATURES,
    Network,
    general_transport,
    load_network,
    num_parameters,
)
from ggmflow.model.target import absolute_power

ROOT = Path(__file__).parents[1]
FLOW = ROOT / "src" / "ggmflow" / "flow"
TABLE = ROOT / "docs" / "tables" / "transport_kl.csv"

NUM_PAIRS = 2
STEPS, BLOCK = 18_000, 500  # conditions are reweighted after every block of steps
POOL_SIZE, BATCH_SIZE, NUM_STRATA = 60_000, 1536, 32
LEARNING_RATE = 4e-3
# Noise at which exact quantiles are known: 27 of equal probability and a few in the tails.
KNOTS = np.concatenate([[-4.5, -3.7, -3.0], special.ndtri((np.arange(27) + 0.5) / 27), [3.0, 3.7, 4.5]])

# The grid on which the divergence is reported; negative δ are mirror images.
GRID_DELTA = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0)
GRID_LOG_KAPPA = tuple(np.linspace(-6.0, 4.0, 11))
GRID_Q = (0.1, 0.15, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
LIMIT_MEAN, LIMIT_MAX = 0.01, 0.1
# (δ, log κ) outside the trained range: δ too large, κ too small, κ too large.
OUTSIDE = ((42.0, 0.0), (44.0, 3.0), (60.0, 0.0), (60.0, 5.0), (300.0, 3.0), (300.0, 7.0), (300.0, 10.0))
OUTSIDE += ((2.0, -9.0), (2.0, -12.0), (2.0, 7.0), (2.0, 9.0), (20.0, 9.0))


Values = Any  # arrays of JAX or NumPy


class Conditions(NamedTuple):
    """Arrays of one shape."""

    delta: Float[Values, " c"]
    log_kappa: Float[Values, " c"]
    q: Float[Values, " c"]


class Pool(NamedTuple):
    """Conditions with exact log Z and quantiles."""

    conditions: Conditions
    log_normalizer: Float[Values, " c"]
    quantiles: Float[Values, "c knots"]


def draw_conditions(rng: np.random.Generator, size: int) -> Conditions:
    """Conditions over the whole range, more of them where flows use them most; δ ≥ 0."""
    near, far = rng.uniform(0, 7, size), np.exp(rng.uniform(np.log(3), np.log(DELTA_RANGE), size))
    everywhere, middle = rng.uniform(*LOG_KAPPA_RANGE, size), rng.uniform(-1.0, 3.6, size)
    usual, sharp, smooth = rng.uniform(0.1, 1.3, size), rng.uniform(0.09, 0.29, size), rng.uniform(1.0, 2.05, size)
    return Conditions(
        np.where(rng.uniform(size=size) < 0.35, far, near),
        np.where(rng.uniform(size=size) < 0.4, middle, everywhere),
        np.choose(rng.choice(3, size, p=(0.6, 0.2, 0.2)), (usual, sharp, smooth)),
    )


def integrate(conditions: Conditions, size: int = 900) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log Z of every condition, and its distribution function at the points x; both (c, 4·size − 2)."""
    delta, log_kappa, q = (value[:, None] for value in conditions)
    # Logarithmic steps resolve a spike of any width, linear ones the slab.
    low = np.minimum(-np.logaddexp(0, (log_kappa + np.log(q)) / q) - 12, -8)
    unit = np.linspace(0, 1, size)
    high = np.abs(delta) + 9
    half = np.sort(np.concatenate([np.exp(low + (np.log(high) - low) * unit), high * unit[1:]], 1), 1)
    x = np.concatenate([-half[:, ::-1], half], 1)
    log_density = -0.5 * (x - delta) ** 2 - np.exp(log_kappa) * np.abs(x) ** q
    top = np.max(log_density, 1, keepdims=True)
    density = np.exp(log_density - top)
    mass = np.cumsum(0.5 * (density[:, 1:] + density[:, :-1]) * np.diff(x, axis=1), 1)
    cdf = np.pad(mass / mass[:, -1:], ((0, 0), (1, 0)))
    return top[:, 0] + np.log(mass[:, -1]), x, cdf


def make_pool(size: int, chunk: int = 2000) -> Pool:
    """Conditions with log Z and quantiles by quadrature."""
    conditions = draw_conditions(np.random.default_rng(20231210), size)
    log_normalizer, quantiles, probabilities = [], [], special.ndtr(KNOTS)
    for start in range(0, size, chunk):
        log_Z, x, cdf = integrate(Conditions(*(value[start : start + chunk] for value in conditions)))
        log_normalizer.append(log_Z)
        quantiles += [np.interp(probabilities, cdf[i], x[i]) for i in range(len(x))]
    pool = Pool(conditions, np.concatenate(log_normalizer), np.stack(quantiles))
    return jax.tree.map(lambda value: jnp.asarray(value, jnp.float32), pool)


def initial_network(key: PRNGKeyArray, hidden: int) -> Network:
    """Small random weights; biases start near the Gaussian shift."""
    keys, num_out = jax.random.split(key, 3), num_parameters(NUM_PAIRS)
    weights = [
        scale * jax.random.normal(key, (rows, columns)) / np.sqrt(columns).astype(np.float32)
        for key, rows, columns, scale in zip(
            keys, (hidden, hidden, num_out), (NUM_FEATURES, hidden, hidden), (1.0, 1.0, 0.1), strict=True
        )
    ]
    bias, K = np.zeros(num_out, np.float32), NUM_PAIRS
    bias[:K], bias[2 * K : 3 * K] = np.linspace(0.7, 2.5, K), 1.0  # centres and widths of the sigmoids
    bias[6 * K + 2] = 2.0  # the location's share of x*
    bias[6 * K + 5 : 7 * K + 6], bias[7 * K + 6 :] = -1.0, np.linspace(-4.0, 1.0, K + 1)  # m, log ε
    return Network(weights[0], jnp.zeros(hidden), weights[1], jnp.zeros(hidden), weights[2], jnp.asarray(bias))


def apply_all(network: Network, z: Float[Array, "c m"], conditions: Conditions) -> tuple[Array, Array]:
    """`transport` of m values of noise for each of c conditions; the network runs once per condition."""
    delta, log_kappa, q = (value[:, None] for value in conditions)
    return general_transport(network, z, delta, log_kappa, q)


def log_ratio(z: Array, x: Array, log_dx: Array, conditions: Conditions) -> Float[Array, "c m"]:
    """log q − log p̃ at x = τ(z)."""
    delta, log_kappa, q = (value[:, None] for value in conditions)
    penalty = jnp.exp(log_kappa) * absolute_power(x, q)
    return -0.5 * z**2 - np.log(2 * np.pi).item() / 2 - log_dx + 0.5 * (x - delta) ** 2 + penalty


@partial(jax.jit, static_argnames="num_nodes")
def divergence(network: Network, conditions: Conditions, log_normalizer: Array, num_nodes: int) -> Float[Array, " c"]:
    """KL of τ # N(0, 1) to the family, by the trapezoidal rule in z."""
    z = jnp.linspace(-7.0, 7.0, num_nodes, dtype=conditions.delta.dtype)
    weights = jax.nn.softmax(-0.5 * z**2)
    z = jnp.broadcast_to(z, (len(conditions.delta), num_nodes))
    return log_ratio(z, *apply_all(network, z, conditions), conditions) @ weights + log_normalizer


def pool_divergence(network: Network, pool: Pool, num_chunks: int = 30) -> np.ndarray:
    """KL of every condition of the pool, in chunks that fit in the cache."""
    chunks = zip(*(np.split(value, num_chunks) for value in (*pool.conditions, pool.log_normalizer)), strict=True)
    return np.concatenate([divergence(network, Conditions(*chunk[:3]), chunk[3], 141) for chunk in chunks])


def loss(network: Network, key: PRNGKeyArray, pool: Pool, cumulative: Array, alpha: Array) -> Float[Array, ""]:
    """Divergence on stratified noise plus α times the regression, over a batch of conditions from the pool."""
    key_1, key_2 = jax.random.split(key)
    index = jnp.searchsorted(cumulative, jax.random.uniform(key_1, (BATCH_SIZE,)))
    conditions, log_Z, quantiles = jax.tree.map(lambda value: value[jnp.minimum(index, POOL_SIZE - 1)], pool)
    strata = jnp.arange(NUM_STRATA, dtype=jnp.float32)
    random = jnp.clip(ndtri((strata + jax.random.uniform(key_2, (BATCH_SIZE, NUM_STRATA))) / NUM_STRATA), -6, 6)
    knots = jnp.broadcast_to(jnp.asarray(KNOTS, jnp.float32), quantiles.shape)
    x, log_dx = apply_all(network, jnp.concatenate([random, knots], 1), conditions)
    kl = log_ratio(random, x[:, :NUM_STRATA], log_dx[:, :NUM_STRATA], conditions) + log_Z[:, None]
    inverse_spike = jnp.exp(jax.nn.softplus((conditions.log_kappa + jnp.log(conditions.q)) / conditions.q))[:, None]
    error = jnp.arcsinh(x[:, NUM_STRATA:] * inverse_spike) - jnp.arcsinh(quantiles * inverse_spike)
    # Bounded, so that a few difficult conditions do not dominate the batch.
    return jnp.mean(kl) + alpha * jnp.mean(jnp.minimum(optax.huber_loss(error, delta=0.2), 5.0))


def train(steps: int, hidden: int, console: Console) -> Network:
    """Adam with a cosine schedule; progress is printed after every block."""
    begin = time.perf_counter()
    pool = make_pool(POOL_SIZE)
    console.print(f"pool of {POOL_SIZE} conditions: {time.perf_counter() - begin:.0f} s")
    num_blocks = -(-steps // BLOCK)
    schedule = optax.warmup_cosine_decay_schedule(1e-4, LEARNING_RATE, 200, num_blocks * BLOCK, 1e-5)
    optimizer = optax.chain(optax.zero_nans(), optax.clip_by_global_norm(1.0), optax.adam(schedule, b2=0.99))
    network = initial_network(jax.random.key(0), hidden)
    state = optimizer.init(network)

    @jax.jit
    def run_block(network, state, key, pool, cumulative, alpha):
        def step(carry, key):
            network, state = carry
            value, gradient = jax.value_and_grad(loss)(network, key, pool, cumulative, alpha)
            updates, state = optimizer.update(gradient, state)
            return (optax.apply_updates(network, updates), state), value

        (network, state), values = jax.lax.scan(step, (network, state), jax.random.split(key, BLOCK))
        return network, state, jnp.mean(values)

    weights = np.full(POOL_SIZE, 1 / POOL_SIZE)
    for block in range(num_blocks):
        alpha = jnp.float32(15 * max(0.0, 1 - 2.5 * block / num_blocks) ** 2 + 0.02)
        cumulative = jnp.asarray(np.cumsum(weights), jnp.float32)
        key = jax.random.fold_in(jax.random.key(1), block)
        network, state, value = run_block(network, state, key, pool, cumulative, alpha)
        kl = pool_divergence(network, pool)
        hard = np.clip(np.nan_to_num(kl, nan=1.0), 0, 0.1) + 0.002
        weights = 0.5 / POOL_SIZE + 0.5 * hard / hard.sum()
        console.print(
            f"{(block + 1) * BLOCK:6d} steps {time.perf_counter() - begin:4.0f} s  loss {float(value):.4f}  "
            f"pool KL mean {kl.mean():.4f}  99% {np.quantile(kl, 0.99):.3f}  max {kl.max():.2f}"
        )
    return jax.tree.map(np.asarray, network)


def grid_divergence(network: Network, delta, log_kappa, q) -> np.ndarray:
    """KL on the product of three lists, in float64, shape (δ, log κ, q)."""
    axes = np.meshgrid(*(np.asarray(axis, float) for axis in (delta, log_kappa, q)), indexing="ij")
    conditions = Conditions(*(axis.ravel() for axis in axes))
    log_Z, _, _ = integrate(conditions, 6000)
    with jax.enable_x64(True):
        network, conditions = jax.tree.map(lambda value: jnp.asarray(value, jnp.float64), (network, conditions))
        # An even number of nodes, so that none is on the cusp, which is at z = 0 for δ = 0.
        return np.asarray(divergence(network, conditions, jnp.asarray(log_Z), 2800)).reshape(axes[0].shape)


def report(network: Network, console: Console) -> np.ndarray:
    """Print the KL on the grid and outside the trained range; return that on the grid."""
    kl = grid_divergence(network, GRID_DELTA, GRID_LOG_KAPPA, GRID_Q)
    verdict = "within" if kl.mean() <= LIMIT_MEAN and kl.max() <= LIMIT_MAX else "ABOVE"
    console.print(
        f"KL of τ on {kl.size} conditions, |δ| ≤ {GRID_DELTA[-1]:g}: mean {kl.mean():.5f}, max {kl.max():.4f}; "
        f"{verdict} the limits {LIMIT_MEAN:g} and {LIMIT_MAX:g}"
    )
    table = Table("q \\ log κ", *(f"{value:g}" for value in GRID_LOG_KAPPA), title="mean over δ of KL · 10⁴")
    for q, row in zip(GRID_Q, kl.mean(0).T, strict=True):
        table.add_row(f"{q:g}", *(f"{1e4 * value:.0f}" for value in row))
    console.print(table)
    exponents = (0.25, 0.5, 1.0, 1.5, 2.0)
    table = Table("δ, log κ", *(f"q = {q:g}" for q in exponents), title="outside the trained range: KL")
    for delta, log_kappa in OUTSIDE:
        row = grid_divergence(network, [delta], [log_kappa], exponents)[0, 0]
        table.add_row(f"{delta:g}, {log_kappa:g}", *(f"{value:.2g}" for value in row))
    console.print(table)
    return kl


def write_table(kl: np.ndarray, path: Path) -> None:
    """One row per (q, log κ): mean and largest KL over δ."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["q", "log_kappa", "mean_kl", "max_kl"])
        for k, q in enumerate(GRID_Q):
            for j, log_kappa in enumerate(GRID_LOG_KAPPA):
                writer.writerow([q, f"{log_kappa:g}", f"{kl[:, j, k].mean():.6f}", f"{kl[:, j, k].max():.6f}"])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only report the accuracy of the shipped weights")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"optimization steps, in blocks of {BLOCK}")
    parser.add_argument("--small", action="store_true", help=f"{HIDDEN_SMALL} hidden units instead of {HIDDEN}")
    parser.add_argument("--output", type=Path, help="where to write weights; default: into the package")
    arguments = parser.parse_args()
    console = Console()
    hidden = HIDDEN_SMALL if arguments.small else HIDDEN
    if arguments.check:
        report(load_network(hidden), console)
        return
    network = train(arguments.steps, hidden, console)
    np.savez(arguments.output or FLOW / f"transport_{hidden}.npz", **network._asdict())
    kl = report(network, console)
    if arguments.output is None and not arguments.small:
        write_table(kl, TABLE)


if __name__ == "__main__":
    main()
