"""The training of the network: resumable, over tables of several sizes.

    minimize  E[ log(1 + gap) ]  over tables, conditions and noise,      gap ≈ ½ Var(log q − log p̃)

The gaps of cold conditions and large matrices are hundreds of nats; their logarithm lets all conditions count. Its
gradient is the path derivative of the gap, weighted by 1/(1 + gap).

What a chunk trains on, and its learning rate, follow from its number alone: a training that is interrupted and resumed
gives the same weights bit by bit.
"""

import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from paramax import unwrap

from experiments.pretrain.tables import Tables, draw_conditions, draw_tables
from ggmflow.flow.structured_columns import StructuredColumns
from ggmflow.flow.structured_geometry import geometry_at
from ggmflow.flow.structured_gradient import path_derivative
from ggmflow.flow.structured_network import CorrectionNetwork, initial_network

SEED = 20231210
CHUNK = 20  # steps of one size
NUM_DRAWS = 4
NUM_TABLES = 600  # of a size
RENEW_AFTER = 100  # chunks, those of all sizes
WRITE_AFTER = 60.0  # seconds
AVERAGING = 0.998


class Size(NamedTuple):
    """d, s, the number of tables in a step, and the share of chunks."""

    d: int
    s: int
    tables: int
    share: float


SIZES = [
    Size(3, 3, 48, 0.05),
    Size(7, 7, 40, 0.12),
    Size(11, 11, 28, 0.15),
    Size(15, 15, 24, 0.22),
    Size(21, 21, 14, 0.14),
    Size(32, 32, 6, 0.13),
    Size(60, 60, 2, 0.06),
    Size(100, 100, 1, 0.02),
    Size(24, 4, 24, 0.06),
    Size(96, 5, 6, 0.05),
]


class State(NamedTuple):
    """Everything that a resumed training needs."""

    network: CorrectionNetwork
    average: CorrectionNetwork
    optimizer: Any
    chunk: Array


def optimizer(rate: Float[Array, ""] | float) -> optax.GradientTransformation:
    """Adam with clipped gradients."""
    return optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam(b2=0.99), optax.scale(-rate))


def initial_state() -> State:
    """The state before the first chunk."""
    network = initial_network(jax.random.key(SEED))
    return State(network, network, optimizer(0.0).init(network), jnp.zeros((), jnp.int32))


def shell(d: int, s: int) -> StructuredColumns:
    """A flow of a size whose own weights are zero and without couplings; data and network are put in later."""
    low, high = np.array([-1.0, 0.25, 0.0]), np.array([2.0, 1.25, 0.0])
    flow = StructuredColumns(jax.random.key(0), np.eye(d), 10.0, s, low, high)
    empty = jnp.zeros((s, d, 0, d))
    learned = unwrap(flow).learned
    learned = eqx.tree_at(lambda each: (each.from_fill, each.from_above), learned, (empty, empty))
    return eqx.tree_at(lambda each: each.learned, unwrap(flow), learned)


def geometries(flow: StructuredColumns, network: CorrectionNetwork, S: Array, n: Array, conditions: Array, draws: int):
    """Geometries of several tables, each under one condition, repeated for its draws."""

    def one(S, n, condition):
        parts = (S, n, network)
        filled = eqx.tree_at(
            lambda each: (each.scatter, each.n_samples, each.pretrained), flow, parts, is_leaf=lambda leaf: leaf is None
        )
        return geometry_at(filled, condition)

    stacked = jax.vmap(one, out_axes=-1)(S, n, conditions)
    return jax.tree.map(lambda leaf: jnp.repeat(leaf, draws, axis=-1), stacked)


def _loss(network: CorrectionNetwork, flow: StructuredColumns, S, n, conditions, z):
    def weigh(log_ratio):
        gap = 0.5 * jnp.var(log_ratio.reshape(-1, NUM_DRAWS), axis=1, ddof=1)
        return jnp.repeat(1 / (1 + gap), NUM_DRAWS)

    return path_derivative(flow, geometries(flow, network, S, n, conditions, NUM_DRAWS), z, weigh)


@partial(jax.jit, static_argnames="size")
def run_chunk(state: State, S: Array, n: Array, conditions: Array, key: Array, rate: Array, *, size: Size):
    """Some steps on tables of one size; also the median of the variance of log q − log p̃ for each step."""
    flow = shell(size.d, size.s)

    def step(state: State, given):
        S, n, conditions, key = given
        z = jax.random.normal(key, (flow.shape[0], len(n) * NUM_DRAWS))
        gradient, log_ratio = jax.grad(_loss, has_aux=True)(state.network, flow, S, n, conditions, z)
        usable = jnp.isfinite(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
        with jax.numpy_dtype_promotion("standard"):  # Optax mixes integers and floats
            updates, moments = optimizer(rate).update(gradient, state.optimizer)
            network: Any = optax.apply_updates(state.network, updates)
            average: Any = optax.incremental_update(network, state.average, 1 - AVERAGING)
        after = State(network, average, moments, state.chunk)
        kept = jax.tree.map(lambda a, b: jnp.where(usable, a, b), after, state)
        variance = jnp.var(log_ratio.reshape(-1, NUM_DRAWS), axis=1, ddof=1)
        return kept, (jnp.nanmedian(variance), usable)

    state, (variance, usable) = jax.lax.scan(step, state, (S, n, conditions, jax.random.split(key, len(n))))
    return state._replace(chunk=state.chunk + 1), jnp.mean(variance), jnp.sum(usable)


def learning_rate(initial: float, chunk: int, first: int, last: int) -> float:
    """The rate of a chunk: it falls along a cosine from the chunk `first` to a fiftieth at `last`."""
    done = np.clip((chunk - first) / max(last - first, 1), 0, 1)
    return float(initial * (0.02 + 0.98 * 0.5 * (1 + np.cos(np.pi * done))))


def draw_pool(chunk: int, size: Size) -> Tables:
    """The tables of a size from which a chunk, and others near it, draw theirs."""
    rng = np.random.default_rng([SEED, 0, chunk // RENEW_AFTER, size.d, size.s])
    return draw_tables(rng, size.d, max(NUM_TABLES // (1 + size.d // 30), min(NUM_TABLES, 60)))


def train(path: Path, chunks: int, rate: float, *, first: int = 0) -> State:
    """Continue the training stored in a file, or begin it.

    Parameters
    ----------
    path
        The state is stored there every minute, at the end, and when training is interrupted.
    chunks
        Number of chunks in all, those stored included.
    rate
        Learning rate of the chunk `first`; it falls to a fiftieth at the last chunk.
    first
        The chunk at which the rate begins to fall: to train on after the end, give the number of chunks done so far.
    """
    state = read_state(path) if path.exists() else initial_state()
    begin = last_write = time.monotonic()
    pools: dict[Size, tuple[int, Tables]] = {}
    shares = np.cumsum([size.share for size in SIZES]) / sum(size.share for size in SIZES)
    seen: dict[Size, list[float]] = {size: [] for size in SIZES}
    try:
        for chunk in range(int(state.chunk), chunks):
            rng = np.random.default_rng([SEED, chunk])
            size = SIZES[int(np.searchsorted(shares, rng.random()))]
            drawn, pool = pools.get(size, (-1, None))
            if pool is None or drawn != chunk // RENEW_AFTER:
                pool = draw_pool(chunk, size)
                pools[size] = (chunk // RENEW_AFTER, pool)
            index = rng.integers(0, len(pool.n), (CHUNK, size.tables))
            conditions = draw_conditions(rng, pool.n[index])
            now = learning_rate(rate, chunk, first, chunks)
            arrays = (jnp.asarray(each) for each in (pool.scatter[index], pool.n[index], conditions))
            key = jax.random.fold_in(jax.random.key(SEED), chunk)
            state, variance, usable = run_chunk(state, *arrays, key, jnp.float32(now), size=size)
            seen[size].append(float(variance))
            if chunk % 20 == 0:
                recent = [f"{size.d}/{size.s}: {np.mean(values[-10:]):.2f}" for size, values in seen.items() if values]
                line = f"{(time.monotonic() - begin) / 60:.1f} min, chunk {chunk}, rate {now:.1e}, "
                print(f"{line}{int(usable)}/{CHUNK} usable, Var log w of", *recent, flush=True)
            if time.monotonic() - last_write > WRITE_AFTER:
                write_state(path, state)
                last_write = time.monotonic()
    finally:
        write_state(path, state)
    return state


def write_state(path: Path, state: State) -> None:
    """Store a state; an existing file is replaced when the new one is complete."""
    temporary = path.with_suffix(".part.npz")
    arrays: dict[str, Any] = {f"{k:03d}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(state))}
    np.savez(temporary, **arrays)
    temporary.replace(path)


def read_state(path: Path) -> State:
    """A state that `write_state` stored."""
    leaves, structure = jax.tree.flatten(initial_state())
    with np.load(path, allow_pickle=False) as arrays:
        stored = [jnp.asarray(arrays[f"{k:03d}"]) for k in range(len(leaves))]
    if [leaf.shape for leaf in leaves] != [leaf.shape for leaf in stored]:
        raise ValueError(f"{path} is the state of another network")
    return jax.tree.unflatten(structure, stored)
