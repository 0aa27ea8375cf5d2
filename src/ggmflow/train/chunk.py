"""A compiled chunk of training: gradient steps on sets of random conditions in turn, then one evaluation on fixed ones.

    θ ← θ − η_i Adam(clip ∇ mean_c E_z[log q_θ − log p̃]),      η_i = η₀ (0.01 + 0.99 (1 + cos πi/N)/2)

The draws of a step are split over all devices; weights are the same everywhere, and gradients are averaged. Noise
depends on the key alone, so the number of devices changes only the order of sums.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ggmflow.flow.base import MatrixFlow
from ggmflow.storage.compiling import COMPILER_OPTIONS
from ggmflow.train.devices import CONDITIONS, DRAWS, everywhere
from ggmflow.train.schedule import learning_rate

_MAX_MATRIX_ENTRIES = 2**23  # of one kind, in a step for a blanket; there are a dozen kinds
_MAX_NORM = 10.0  # of the gradient, in nats


class State(NamedTuple):
    """Everything that changes from step to step; a resumed run continues from it exactly."""

    weights: Any
    average: Any
    optimizer: Any
    step: Array
    skipped: Array


class Fixed(NamedTuple):
    """Arrays that are the same in all steps of a chunk."""

    frozen: Any  # the flow without its weights
    key: PRNGKeyArray  # of the noise
    steps: Float[Array, ""]  # N; an array, so that the length of training is not compiled in


class Inputs(NamedTuple):
    """Sets of conditions, which steps take in turn, the held-out ones last; and what the flow prepares for them."""

    conditions: Float[ArrayLike, "k c 3"]
    prepared: Any


class Shape(NamedTuple):
    """Numbers that are compiled in."""

    num_steps: int
    num_sets: int  # of conditions
    num_conditions: int
    num_draws: int
    learning_rate: float
    averaging: float


def initial_state(weights: Any) -> State:
    """The state before the first step, in buffers of its own: each chunk takes over those of the state before it."""
    zero = jnp.zeros((), jnp.int32)  # strongly typed, so that resuming from a checkpoint does not recompile
    state = State(weights, weights, _optimizer(0.0).init(weights), zero, zero)
    return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), state)


def _optimizer(rate: Float[Array, ""] | float) -> optax.GradientTransformation:
    # Clipping and scaling have no state, so checkpoints hold the moments of Adam only. `optax.scale_by_schedule` would
    # add its own count of steps.
    return optax.chain(optax.clip_by_global_norm(_MAX_NORM), optax.scale_by_adam(b2=0.99), optax.scale(-rate))


def run_chunk(
    fixed: Fixed, inputs: Inputs, state: State, shape: Shape, mesh: Mesh, quick: bool = False
) -> tuple[State, Float[Array, "c m"]]:
    """Take some steps and evaluate the averaged weights.

    Parameters
    ----------
    fixed, inputs, shape
        See there.
    state
        Before the chunk; its buffers are reused.
    mesh
        Devices.
    quick
        Whether to compile quickly, for a training so short that compiling takes longer than running.

    Returns
    -------
    state
        After the chunk.
    log_ratio : (c, m)
        log q − log p̃ of the averaged weights on the held-out conditions, with noise that is the same in all chunks.
    """
    return _PROGRAMS[quick]((fixed, inputs), state, shape, mesh)


def _take_steps(
    given: tuple[Fixed, Inputs], state: State, shape: Shape, mesh: Mesh
) -> tuple[State, Float[Array, "c m"]]:
    fixed, inputs = given  # one argument, because the others are donated
    gradient_of = _sharded_gradient(fixed.frozen, mesh)

    def step(state: State, number: Array) -> tuple[State, Float[Array, "c m"]]:
        # One body for training and evaluation, so that drawing and differentiating are compiled once.
        evaluate = number == shape.num_steps
        chosen = jnp.where(evaluate, shape.num_sets, state.step % shape.num_sets)
        conditions, prepared = jax.tree.map(lambda leaf: leaf[chosen], inputs)
        weights = jax.tree.map(lambda a, b: jnp.where(evaluate, a, b), state.average, state.weights)
        # Evaluations have noise of their own, the same in all chunks.
        noise_key = jax.random.fold_in(fixed.key, jnp.where(evaluate, 0, state.step + 1))
        flow: MatrixFlow = eqx.combine(weights, fixed.frozen)
        noise = flow.draw_noise(noise_key, shape.num_conditions, shape.num_draws)
        gradient, log_ratio = gradient_of(weights, noise, conditions, prepared)
        rate = learning_rate(shape.learning_rate, state.step, fixed.steps)
        after, usable = _update(state, gradient, rate, shape.averaging)
        kept = jax.tree.map(lambda a, b: jnp.where(usable & ~evaluate, a, b), after, state)
        trained = jnp.where(evaluate, 0, 1)
        kept = kept._replace(step=state.step + trained, skipped=state.skipped + trained * jnp.where(usable, 0, 1))
        return kept, jnp.where(evaluate, log_ratio, 0.0)

    state, log_ratios = jax.lax.scan(step, state, jnp.arange(shape.num_steps + 1))
    return jax.lax.with_sharding_constraint((state, log_ratios[-1]), everywhere(mesh))


_PROGRAMS = {
    quick: eqx.filter_jit(_take_steps, donate="all-except-first", **options)
    for quick, options in COMPILER_OPTIONS.items()
}


def _update(state: State, gradient: Any, rate: Float[Array, ""], averaging: float) -> tuple[State, Array]:
    """The state after a step, and whether its gradient is finite; if not, the step must leave the state unchanged.

    `optax.apply_if_finite` would do the latter, but it adds counters to the state, which would change checkpoints,
    accepts a finite gradient whose norm overflows, and gives up after a number of skipped steps.
    """
    usable = jnp.isfinite(jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient))))
    with jax.numpy_dtype_promotion("standard"):  # Optax mixes integers and floats
        updates, optimizer = _optimizer(rate).update(gradient, state.optimizer)
        weights = optax.apply_updates(state.weights, updates)
        average = optax.incremental_update(weights, state.average, 1 - averaging)
    return State(weights, average, optimizer, state.step, state.skipped), usable


def _sharded_gradient(frozen: Any, mesh: Mesh):
    """A function of weights, noise and inputs: the gradient, averaged over devices, and log q − log p̃, (c, m)."""
    arrays, static = eqx.partition(frozen, eqx.is_array)
    same, split = PartitionSpec(), PartitionSpec(CONDITIONS, DRAWS)

    def loss(weights, arrays, noise, conditions, prepared):
        flow: MatrixFlow = eqx.combine(weights, arrays, static)
        return flow.loss(noise, conditions, prepared)

    gradient_of_loss = jax.grad(loss, has_aux=True)

    # Split by hand, because the compiler would not split loops and factorizations on its own.
    def gradient_of_part(weights, arrays, noise, conditions, prepared):
        d, num = len(frozen.scatter_matrix), len(conditions)
        groups = num // conditions_at_once(num, d) if frozen.n_query < d else 1
        gradient, log_ratio = _in_groups(gradient_of_loss, groups, weights, arrays, noise, (conditions, prepared))
        # On one device a mean over it would only prevent fusion of the operations before and after.
        return gradient if mesh.size == 1 else jax.lax.pmean(gradient, (CONDITIONS, DRAWS)), log_ratio

    # Variation between devices is not checked: loops start from constants, each of which would have to be marked.
    of_condition = PartitionSpec(CONDITIONS)
    in_specs = (same, same, PartitionSpec(None, CONDITIONS, DRAWS), of_condition, of_condition)
    sharded = jax.shard_map(gradient_of_part, mesh=mesh, in_specs=in_specs, out_specs=(same, split), check_vma=False)
    return lambda weights, noise, conditions, prepared: sharded(weights, arrays, noise, conditions, prepared)


def _in_groups(gradient_of_loss, groups: int, weights, arrays, noise, of_conditions):
    """The mean gradient over groups of conditions that are differentiated one after the other."""
    if groups == 1:
        return gradient_of_loss(weights, arrays, noise, *of_conditions)

    def add(total, given):
        noise, of_conditions = given
        gradient, log_ratio = gradient_of_loss(weights, arrays, noise, *of_conditions)
        return jax.tree.map(jnp.add, total, gradient), log_ratio

    grouped_noise = jnp.moveaxis(noise.reshape(len(noise), groups, -1, noise.shape[2]), 1, 0)
    grouped = jax.tree.map(lambda leaf: leaf.reshape(groups, -1, *leaf.shape[1:]), of_conditions)
    zero = jax.tree.map(jnp.zeros_like, weights)
    total, log_ratio = jax.lax.scan(add, zero, (grouped_noise, grouped))
    return jax.tree.map(lambda leaf: leaf / groups, total), log_ratio.reshape(noise.shape[1], -1)


def conditions_at_once(num: int, n_features: int) -> int:
    """How many of `num` conditions of a blanket are differentiated together: a divisor of their number.

    Each has matrices of d × d. Up to d = 1000 all of 8 are done at once, which is faster; beyond, fewer, so that memory
    does not outgrow the d × s entries.
    """
    largest = max(1, _MAX_MATRIX_ENTRIES // n_features**2)
    return max(k for k in range(1, num + 1) if num % k == 0 and k <= largest)
