"""Training: one flow for a continuum of conditions (λ, q, T), by stochastic gradients of the reverse KL divergence.

    θ ← θ − η_i Adam(∇ mean_c E_z[log q_θ − log p̃]),      η_i = η₀ (0.01 + 0.99 (1 + cos πi/N)/2)

Steps run in compiled chunks without looking at the host. The last iteration of a chunk trains nothing: it evaluates the
averaged weights on a fixed grid of conditions with fixed noise, which decides about best weights and early stopping.

The draws of a step are split over all devices of all processes, one device being a special case; weights are the same
everywhere, and gradients are averaged. Noise follows from the key alone, so the number of devices changes only the
order of sums.
"""

import hashlib
import json
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, PRNGKeyArray
from paramax import NonTrainable

from ggmflow.errors.advice import Advice
from ggmflow.errors.advised import AdvisedMemoryError
from ggmflow.errors.checkpoint import CheckpointError
from ggmflow.flow.base import Architecture, MatrixFlow, draw_noise, flow_loss
from ggmflow.flow.structured import num_leanings
from ggmflow.storage import archive
from ggmflow.storage.memory import require
from ggmflow.train.clock import Clock
from ggmflow.train.devices import (
    CONDITIONS,
    DRAWS,
    bring_home,
    check_agreement,
    everywhere,
    make_mesh,
    replicate,
    training_devices,
)

CHUNK = 25  # steps between two looks at the host
_SECONDS_BETWEEN_CHECKPOINTS = 10.0
_MOST_MATRIX_ENTRIES = 2**23  # of one kind, in a step for a blanket; there are a dozen kinds
_CLIP = 10.0  # on the norm of the gradient, in nats
_MOST_STEPS, _MOST_DRAWS = 10**8, 10**6  # weeks of training, and gigabytes for each step: more are typing errors


class Settings(NamedTuple):
    """How to train.

    Attributes
    ----------
    steps
        Number of gradient steps, rounded up to whole chunks.
    num_conditions, num_draws
        Conditions per step and draws for each.
    learning_rate
        η₀.
    cooling
        None: temperatures are drawn with the other conditions, most of them at the ends. (T₀, T_n, stages): every
        step of a stage has the same temperature, as published.
    averaging
        Decay of the averaged weights, which are those kept; 0 keeps the weights themselves.
    patience
        Stop when the held-out ELBO has not risen for this share of the steps.
    """

    steps: int
    num_conditions: int = 32
    num_draws: int = 4
    learning_rate: float = 1e-2
    cooling: tuple[float, float, int] | None = None
    averaging: float = 0.98  # a few chunks of memory
    patience: float = 0.7  # long: the ELBO may rest while the rate is high and rise when it falls


def default_settings(
    n_entries: int, many_temperatures: bool, steps: int | None = None, batch_size: int | None = None
) -> Settings:
    """Settings for D free entries: more of them get fewer draws, a range of temperatures more steps.

    Parameters
    ----------
    n_entries
        D.
    many_temperatures
        Whether the flow is trained for a range of temperatures.
    steps, batch_size
        What to use instead of the defaults; steps are rounded up to whole chunks.
    """
    if steps is None:
        steps = 900 if 300 < n_entries <= 1000 else 800 if n_entries <= 3000 else 600
        if many_temperatures:
            steps = 1500 if n_entries <= 1000 else 1000
    elif isinstance(steps, bool) or not isinstance(steps, Integral) or not 1 <= steps <= _MOST_STEPS:
        raise ValueError(f"steps must be a positive integer, at most {_MOST_STEPS}, got {steps!r}")
    if batch_size is None:
        batch_size = 128 if n_entries <= 300 else 64 if n_entries <= 1000 else 32
    elif isinstance(batch_size, bool) or not isinstance(batch_size, Integral) or not 2 <= batch_size <= _MOST_DRAWS:
        raise ValueError(f"batch_size must be an integer from 2 to {_MOST_DRAWS}, got {batch_size!r}")
    num_draws = 2 if batch_size < 16 else 4
    return Settings(
        steps=-(-int(steps) // CHUNK) * CHUNK,
        num_conditions=max(1, int(batch_size) // num_draws),
        num_draws=num_draws,
        # Cold posteriors are narrow: what they need corrected is larger, and a higher rate gets there in time.
        learning_rate=1.5e-2 if many_temperatures else 1e-2,
    )


class State(NamedTuple):
    """Everything a resumed run needs to continue as if it had never stopped."""

    weights: Any
    average: Any
    optimizer: Any
    step: Array
    skipped: Array


class Report(NamedTuple):
    """What progress bars and histories see after each chunk.

    Attributes
    ----------
    step, steps
        Steps done and planned.
    elbo
        Held-out ELBO, mean over the grid of conditions, in nats; unnormalized target.
    ess
        Relative effective sample size to expect, exp(−variance of log p̃ − log q) within conditions.
    skipped
        Steps left out so far because their gradient was not finite.
    """

    step: int
    steps: int
    elbo: float
    ess: float
    skipped: int


class Trained(NamedTuple):
    """A trained flow and how it got there.

    Attributes
    ----------
    flow
        The flow with the best held-out ELBO.
    snapshots
        With cooling: temperature → flow at the end of that stage.
    history
        A report per chunk.
    status
        "finished", "stopped early", "interrupted", or "failed": no chunk ended with a finite ELBO.
    """

    flow: MatrixFlow
    snapshots: dict[float, MatrixFlow]
    history: list[Report]
    status: str


def require_memory(architecture: Architecture, n_features: int, n_query: int, batch_size: int | None = None) -> None:
    """Refuse to train a flow that cannot fit.

    Parameters
    ----------
    architecture
        "structured": an entry may lean on all those above it, in s × d × d weights of two kinds, and has 17 numbers for
        each of 5 corrections; a step keeps arrays of s × d for every draw, and with a query also arrays of d × d for
        every condition that is differentiated at a time.
        "paper": 4 networks from every entry to 128 numbers, and from those to 24.
    n_features, n_query
        d and s.
    batch_size
        Draws of a step, if not the default.

    Raises
    ------
    MemoryError
    """
    if training_devices()[0].platform != "cpu":
        return  # it has a memory of its own, and says so itself
    d, s = n_features, n_query
    batch = int(batch_size) if isinstance(batch_size, Integral) else 32
    if architecture == "structured":
        weights = s * d * (2 * d * num_leanings(d, s) + 85)
        rest = _numbers_of_a_step(d, s, batch) // jax.process_count()
    else:
        weights, rest = 4 * 128 * 25 * _num_entries(d, s), 0
    # Six of each: weight, average, best so far, gradient, its two moments.
    require(4 * (6 * weights + rest), _training_of(d, s), _smaller_problem(d, s))


def _numbers_of_a_step(d: int, s: int, batch: int) -> int:
    """Numbers that a step of the structured flow keeps at least, besides weights.

    XLA's analysis of the compiled step, from d = 200 to 2000, gives 51 arrays of s × d for every draw: the five
    corrections and their gradients, matrix and factor, the transport and its partial derivatives, and what backward
    passes keep of them. For a query it gives also 11 to 17 arrays of d × d for every condition, which its draws share.
    A little less is counted, so that whatever might work is tried.
    """
    per_condition = 2 if batch < 16 else 4  # as in `default_settings`
    num_conditions = max(0, batch) // per_condition
    if s == d or num_conditions == 0:
        return 50 * s * d * batch
    at_once = conditions_at_once(num_conditions, d)
    return at_once * (50 * s * d * per_condition + 10 * d**2)


@contextmanager
def memory_errors(n_features: int, n_query: int) -> Iterator[None]:
    """Raise MemoryError, with the advice of `require_memory`, where JAX could not allocate memory.

    Parameters
    ----------
    n_features, n_query
        d and s of the flow that is built or trained in the block.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        # Older versions of JAX have the code only as the first word of the message.
        if not getattr(error, "error_code_string", str(error)).startswith("RESOURCE_EXHAUSTED"):
            raise
        what, advice = _training_of(n_features, n_query), _smaller_problem(n_features, n_query)
        raise AdvisedMemoryError(f"{what} need more memory than is available", advice) from error


def _num_entries(d: int, s: int) -> int:
    return s * d - s * (s - 1) // 2


def _training_of(d: int, s: int) -> str:
    return f"a flow over {_num_entries(d, s)} entries and its training"


def _smaller_problem(d: int, s: int) -> Advice:
    """Advice for a flow that does not fit into memory."""
    fewer = "some variables" if s == d else "fewer variables"
    return Advice(f"leave columns out, or ask for the Markov blanket of {fewer} with", {"query": ...})


def train(
    flow: MatrixFlow,
    key: PRNGKeyArray,
    low: Float[np.ndarray, " 3"],
    high: Float[np.ndarray, " 3"],
    settings: Settings,
    *,
    report: Callable[[Report], None] | None = None,
    checkpoint: Path | None = None,
    snapshot_at: tuple[float, ...] = (),
    devices: Sequence[Any] | None = None,
    clock: Clock | None = None,
) -> Trained:
    """Train a flow.

    Where `jax.distributed` has joined several processes, all of them call this with the same arguments, and each gets
    the flow. Process 0 alone writes the checkpoint.

    Parameters
    ----------
    flow
        An untrained flow.
    key
        Decides every condition and draw; the same key, the same result.
    low, high
        Range of [log λ, q, log T].
    settings
        How to train.
    report
        Called after each chunk.
    checkpoint
        A file written every few seconds and on a keyboard interrupt. If it exists, training resumes from it, bit by
        bit as if it had never stopped; it must come from the same data and settings. On another number of devices it
        goes on as well, to the precision of sums in another order.
    snapshot_at
        With cooling, temperatures whose flows are kept; the nearest stages have exactly these temperatures.
    devices
        Over which the draws are split; default all of the program, or the one set with `jax.default_device`.
    clock
        Counts the seconds; those of a checkpoint are added.

    Returns
    -------
    Trained
        A keyboard interrupt ends training and keeps the best flow so far, with status "interrupted".
    """
    if checkpoint is not None and not checkpoint.parent.is_dir():
        raise FileNotFoundError(
            f"the checkpoint {checkpoint} cannot be written: there is no directory {checkpoint.parent}"
        )
    mesh = make_mesh(settings.num_conditions, settings.num_draws, devices)
    weights, frozen = eqx.partition(flow, eqx.is_inexact_array, is_leaf=lambda leaf: isinstance(leaf, NonTrainable))
    num_chunks = -(-settings.steps // CHUNK)
    zero = jnp.zeros((), jnp.int32)  # of no weak type: what a checkpoint gives back must not be compiled anew
    state = State(weights, weights, _optimizer().init(weights), zero, zero)
    # Buffers are donated to each chunk: none of them may be shared.
    state = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), state)
    best, best_elbo, best_chunk = jax.tree.map(jnp.copy, state.average), float("-inf"), 0
    history: list[Report] = []
    snapshots = dict.fromkeys(snapshot_at, best) if settings.cooling else {}
    identity, clock = _identity(key, low, high, settings, flow), Clock() if clock is None else clock
    if checkpoint is not None and checkpoint.exists():
        arrays = (state, best, snapshots)
        loaded = _load_checkpoint(checkpoint, identity, arrays)
        (state, best, snapshots), history, (best_elbo, best_chunk), (compiling, training) = loaded
        clock.compiling, clock.training = clock.compiling + compiling, clock.training + training
    check_agreement(hashlib.sha256(repr((identity, history)).encode()).digest(), mesh)
    state, best = replicate((state, best), mesh)
    snapshots = {wanted: replicate(snapshots[wanted], mesh) for wanted in snapshots}  # in their order
    checkpoint = checkpoint if jax.process_index() == 0 else None  # from here on it is only written
    saved, unsaved = time.monotonic(), None
    held_out = jnp.asarray(condition_grid(settings.num_conditions, low, high))
    numbers = (jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32), jnp.float32(num_chunks * CHUNK))
    fixed = replicate((frozen, key, held_out, *numbers), mesh)
    status, compiled = "finished", False
    clock.start()
    try:
        for chunk in range(int(state.step) // CHUNK, num_chunks):
            temperature = cooled_temperature(settings.cooling, chunk, num_chunks, snapshot_at)
            if temperature is None and chunk - best_chunk > settings.patience * num_chunks:
                status = "stopped early"
                break
            log_temperature = None if temperature is None else replicate(jnp.float32(np.log(temperature)), mesh)
            # JAX does not survive an interrupt while it compiles, which the first chunk does, also of a resumed fit.
            with (
                nullcontext() if compiled else _interrupt_later(),
                nullcontext() if compiled else clock.count_compiling(),
            ):
                state, log_ratio = _run_chunk(
                    (*fixed, log_temperature),
                    state,
                    settings.num_conditions,
                    settings.num_draws,
                    settings.learning_rate,
                    settings.averaging,
                    mesh,
                )
            compiled = True
            log_ratio = np.asarray(log_ratio, float)  # waits for the chunk
            clock.count_training()
            with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is told by the status
                elbo, ess = -float(np.mean(log_ratio)), float(np.exp(-np.mean(np.var(log_ratio, axis=1, ddof=1))))
            # While the temperature falls, ELBOs are not comparable: the last weights count.
            if elbo > best_elbo or (temperature is not None and np.isfinite(elbo)):
                best, best_elbo, best_chunk = jax.tree.map(jnp.copy, state.average), elbo, chunk + 1
            if temperature is not None:
                snapshots |= {wanted: best for wanted in snapshot_at if temperature >= wanted * (1 - 1e-6)}
            history.append(Report((chunk + 1) * CHUNK, num_chunks * CHUNK, elbo, ess, int(state.skipped)))
            if checkpoint is not None:
                # A copy, because the next chunk takes the buffers of the state, and may be interrupted.
                arrays = jax.tree.map(np.array, (state, best, snapshots))
                unsaved = arrays, list(history), (best_elbo, best_chunk), (clock.compiling, clock.training)
                if time.monotonic() - saved > _SECONDS_BETWEEN_CHECKPOINTS:
                    _save_checkpoint(checkpoint, identity, *unsaved)
                    saved, unsaved = time.monotonic(), None
            if report is not None:
                report(history[-1])
    except KeyboardInterrupt:
        if checkpoint is not None and unsaved is not None:
            _save_checkpoint(checkpoint, identity, *unsaved)
        if not history or (snapshots and not _reached(snapshots, settings, history, num_chunks)):
            raise  # nothing of use was learned yet: there is no model to keep
        status = "interrupted"
    else:
        if checkpoint is not None and unsaved is not None:
            _save_checkpoint(checkpoint, identity, *unsaved)
    if best_chunk == 0:
        status = "failed"
    reached = _reached(snapshots, settings, history, num_chunks)
    kept = {wanted: eqx.combine(bring_home(snapshots[wanted]), frozen) for wanted in reached}
    return Trained(eqx.combine(bring_home(best), frozen), kept, history, status)


@contextmanager
def _interrupt_later() -> Iterator[None]:
    """Hold Ctrl-C back until the block is done: raised inside the compiler it crashes the process.

    So is SIGTERM where a program has made an exception of it; else it ends the process, as always.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in handlers.items() if callable(handler)}
    came = []
    try:
        for number in before:
            signal.signal(number, lambda number, frame: came.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        before[came[0]](came[0], None)


@eqx.filter_jit(donate="all-except-first")
def _run_chunk(
    fixed, state: State, num_conditions: int, num_draws: int, learning_rate: float, averaging: float, mesh: Mesh
):
    """CHUNK steps and one evaluation; returns the new state and log q − log p̃ of the evaluation, (c, m)."""
    frozen, key, held_out, low, high, steps, log_temperature = fixed
    arrays, static = eqx.partition(frozen, eqx.is_array)
    optimizer, same, split = _optimizer(), PartitionSpec(), PartitionSpec(CONDITIONS, DRAWS)

    def loss(weights, arrays, noise, conditions):
        return flow_loss(eqx.combine(weights, arrays, static), noise, conditions)

    gradient_of_loss = jax.grad(loss, has_aux=True)

    def gradient_in_groups(weights, arrays, noise, conditions):
        d, num = len(frozen.scatter_matrix), len(conditions)
        groups = num // conditions_at_once(num, d) if frozen.n_query < d else 1
        if groups == 1:
            return gradient_of_loss(weights, arrays, noise, conditions)

        def add(total, given):
            gradient, log_ratio = gradient_of_loss(weights, arrays, *given)
            return jax.tree.map(jnp.add, total, gradient), log_ratio

        noise = jnp.moveaxis(noise.reshape(len(noise), groups, -1, noise.shape[2]), 1, 0)
        nothing = jax.tree.map(jnp.zeros_like, weights)
        total, log_ratio = jax.lax.scan(add, nothing, (noise, conditions.reshape(groups, -1, 3)))
        return jax.tree.map(lambda leaf: leaf / groups, total), log_ratio.reshape(num, -1)

    # By hand, because the compiler would not split loops and factorizations on its own.
    def gradient_of_part(weights, arrays, noise, conditions):
        gradient, log_ratio = gradient_in_groups(weights, arrays, noise, conditions)
        # On one device a mean over it would only keep the compiler from joining what is before with what is after.
        return gradient if mesh.size == 1 else jax.lax.pmean(gradient, (CONDITIONS, DRAWS)), log_ratio

    # What varies between devices is not checked: loops start from constants, each of which would have to be marked.
    in_specs = (same, same, PartitionSpec(None, CONDITIONS, DRAWS), PartitionSpec(CONDITIONS))
    gradient_of = jax.shard_map(
        gradient_of_part, mesh=mesh, in_specs=in_specs, out_specs=(same, split), check_vma=False
    )

    def step(state: State, evaluate):
        # One body for both, so that drawing and differentiating are compiled once.
        step_key = jax.random.fold_in(key, jnp.where(evaluate, 0, state.step + 1))
        condition_key, noise_key = jax.random.split(step_key)
        conditions = draw_conditions(condition_key, num_conditions, low, high, log_temperature)
        grid = held_out if log_temperature is None else held_out.at[:, 2].set(log_temperature)
        conditions = jnp.where(evaluate, grid, conditions)
        weights = jax.tree.map(lambda a, b: jnp.where(evaluate, a, b), state.average, state.weights)
        noise = draw_noise(eqx.combine(weights, frozen), noise_key, num_conditions, num_draws)
        gradient, log_ratio = gradient_of(weights, arrays, noise, conditions)
        norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
        usable = jnp.isfinite(norm)
        gradient = jax.tree.map(lambda leaf: leaf * jnp.minimum(1.0, _CLIP / (norm + 1e-6)), gradient)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes integers and floats, whatever the user has set
            updates, optimizer_state = optimizer.update(gradient, state.optimizer)
        rate = learning_rate * (0.01 + 0.495 * (1 + jnp.cos(jnp.pi * state.step.astype(jnp.float32) / steps)))
        moved = jax.tree.map(lambda leaf, update: leaf - rate * update, state.weights, updates)
        average = jax.tree.map(lambda a, b: averaging * a + (1 - averaging) * b, state.average, moved)
        after = State(moved, average, optimizer_state, state.step, state.skipped)
        # A step whose gradient is not finite changes nothing but is counted.
        kept = jax.tree.map(lambda a, b: jnp.where(usable & ~evaluate, a, b), after, state)
        trained = jnp.where(evaluate, 0, 1)
        kept = kept._replace(step=state.step + trained, skipped=state.skipped + trained * jnp.where(usable, 0, 1))
        return kept, jnp.where(evaluate, log_ratio, 0.0)

    evaluate = jnp.arange(CHUNK + 1) == CHUNK
    state, log_ratios = jax.lax.scan(step, state, evaluate)
    return jax.lax.with_sharding_constraint((state, log_ratios[-1]), everywhere(mesh))


def conditions_at_once(num: int, n_features: int) -> int:
    """How many of `num` conditions of a blanket are differentiated together: a divisor of their number.

    Each has matrices of d × d. Up to d = 1000 all of 8 are done at once, which is faster; beyond, fewer, so that memory
    does not outgrow the d × s entries.
    """
    most = max(1, _MOST_MATRIX_ENTRIES // n_features**2)
    return max(k for k in range(1, num + 1) if num % k == 0 and k <= most)


def _optimizer() -> optax.GradientTransformation:
    return optax.scale_by_adam(b2=0.99)


def draw_conditions(
    key: PRNGKeyArray,
    num: int,
    low: Float[Array, " 3"],
    high: Float[Array, " 3"],
    log_temperature: Float[Array, ""] | None = None,
) -> Float[Array, "c 3"]:
    """Random [log λ, q, log T]: one in each of `num` equal strata of log λ and of q, in random pairs.

    Half of the temperatures are the highest, where the posterior is, an eighth the lowest; the others uniform in log T.
    """
    key_order, key_shift = jax.random.split(key)
    order = jax.vmap(lambda key: jax.random.permutation(key, num), out_axes=1)(jax.random.split(key_order, 3))
    uniform = (order.astype(jnp.float32) + jax.random.uniform(key_shift, (num, 3))) / num
    if log_temperature is not None:
        return (low + uniform * (high - low)).at[:, 2].set(log_temperature)
    return low + uniform.at[:, 2].set(_to_ends(uniform[:, 2])) * (high - low)


def condition_grid(num: int, low: Float[np.ndarray, " 3"], high: Float[np.ndarray, " 3"]) -> np.ndarray:
    """`num` fixed, evenly spread [log λ, q, log T], temperatures as in training."""
    # Multiples of the powers of 1/ρ, ρ³ = ρ + 1, modulo 1, fill the cube evenly.
    root = 1.3247179572447460
    unit = (0.5 + np.arange(1, num + 1)[:, None] / root ** np.arange(1, 4)) % 1
    unit[:, 2] = _to_ends(unit[:, 2])
    return (np.asarray(low) + unit * (np.asarray(high) - np.asarray(low))).astype(np.float32)


def _reached(snapshots: dict[float, Any], settings: Settings, history: list[Report], num_chunks: int) -> list[float]:
    """Temperatures of snapshots that the cooling has come down to."""
    wanted = tuple(snapshots)
    last = cooled_temperature(settings.cooling, len(history) - 1, num_chunks, wanted) if history else None
    return [] if last is None else [temperature for temperature in wanted if last <= temperature * (1 + 1e-6)]


def _to_ends(unit: Any) -> Any:
    """Numbers uniform in [0, 1] to numbers that are 1 in half of all cases, 0 in an eighth, and uniform otherwise."""
    return ((8 * unit - 1) / 3).clip(0.0, 1.0)


def cooled_temperature(
    cooling: tuple[float, float, int] | None, chunk: int, num_chunks: int, exact: tuple[float, ...] = ()
) -> float | None:
    """T_i = T₀ (T_n/T₀)^{i/n}, constant within a stage; a stage nearest to one of `exact` has just that temperature."""
    if cooling is None:
        return None
    start, end, stages = cooling
    stages = min(stages, num_chunks - 1) or 1
    stage = min(chunk * (stages + 1) // num_chunks, stages)
    for wanted in exact:
        if start != end and stage == round(stages * float(np.log(wanted / start) / np.log(end / start))):
            return wanted
    return float(start * (end / start) ** (stage / stages))


def _identity(
    key: PRNGKeyArray, low: np.ndarray, high: np.ndarray, settings: Settings, flow: MatrixFlow
) -> dict[str, Any]:
    """What must agree between a checkpoint and the run that resumes it."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(eqx.filter((flow, jax.random.key_data(key)), eqx.is_array)):
        digest.update(np.asarray(leaf).tobytes())
    return {"run": digest.hexdigest(), "low": list(low), "high": list(high), "settings": list(settings)}


def _save_checkpoint(
    path: Path,
    identity: dict[str, Any],
    progress: Any,
    history: list[Report],
    best: tuple[float, int],
    seconds: tuple[float, float] = (0.0, 0.0),
) -> None:
    """Write everything `train` carries from chunk to chunk. A full disk is no reason to lose a training run."""
    arrays = {f"leaf{k}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(progress))}
    # As arrays, because an ELBO may be infinite or NaN, which the header cannot hold.
    arrays |= {"history": np.array(history, float), "best": np.array(best, float)}
    try:
        archive.write(path, {"kind": "checkpoint", "identity": identity, "seconds": seconds}, arrays)
    except OSError as error:
        message = f"the checkpoint {path} could not be written ({error.strerror or error}); training goes on without it"
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def _load_checkpoint(path: Path, identity: dict[str, Any], progress: Any):
    """Read what `_save_checkpoint` wrote; refuses a checkpoint of another run."""
    header, arrays = archive.read(path)
    # Tuples come back from JSON as lists.
    if header.get("kind") != "checkpoint" or header.get("identity") != json.loads(json.dumps(identity)):
        raise CheckpointError(
            path,
            "data, settings or random_state differ. Delete it to start anew, or fit with those it was written with",
        )
    leaves, structure = jax.tree.flatten(progress)
    expected = {f"leaf{k}": (leaf.shape, np.dtype(leaf.dtype)) for k, leaf in enumerate(leaves)}
    number, rows = np.dtype(float), np.shape(arrays.get("history", ()))[:1]
    expected |= {"history": ((*rows, len(Report._fields)), number), "best": ((2,), number)}
    damaged = CheckpointError(path, "it is damaged")
    if {name: (array.shape, array.dtype) for name, array in arrays.items()} != expected:
        raise damaged
    new = [jnp.array(arrays[f"leaf{k}"]) for k in range(len(leaves))]
    elbo, chunk = arrays["best"].tolist()
    try:
        history, best = reports_from_array(arrays["history"]), (elbo, int(chunk))
    except (ValueError, OverflowError):  # counts that are no numbers
        raise damaged from None
    return jax.tree.unflatten(structure, new), history, best, _seconds_of(header)


def _seconds_of(header: dict[str, Any]) -> tuple[float, float]:
    """Of compiling and of steps; zeros where a checkpoint of an earlier version, or a damaged one, does not say."""
    found = header.get("seconds")
    if not isinstance(found, list) or len(found) != 2:
        return 0.0, 0.0
    valid = all(isinstance(value, int | float) and 0 <= value < 1e12 for value in found)
    return (float(found[0]), float(found[1])) if valid else (0.0, 0.0)


def reports_from_array(rows: Float[np.ndarray, "k 5"]) -> list[Report]:
    """The history of a training run from its numbers."""
    return [Report(int(step), int(steps), elbo, ess, int(skipped)) for step, steps, elbo, ess, skipped in rows.tolist()]
