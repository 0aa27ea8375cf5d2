"""Training: one flow for a continuum of conditions (λ, q, T), by stochastic gradients of the reverse KL divergence.

Steps run in compiled chunks (see `chunk`), within which nothing is transferred to the host. After each chunk the
averaged weights are evaluated on a fixed grid of conditions with fixed noise. The best weights and early stopping
follow from these evaluations.
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray
from paramax import NonTrainable

from ggmflow.flow.base import MatrixFlow
from ggmflow.flow.preparing import prepare_many
from ggmflow.storage.compiling import compiles_quickly
from ggmflow.train.checkpoint import Checkpointer, Progress, identify_run, read_checkpoint
from ggmflow.train.chunk import Fixed, Inputs, Shape, State, initial_state, run_chunk
from ggmflow.train.clock import Clock
from ggmflow.train.devices import check_agreement, make_mesh, replicate, to_local_device
from ggmflow.train.interrupt import defer_interrupts
from ggmflow.train.report import Report, summarize
from ggmflow.train.schedule import condition_grid, cooled_temperature, draw_conditions, is_reached
from ggmflow.train.settings import CHUNK, Settings
from ggmflow.train.status import Status

# If a flow prepares something for its conditions: at most so many sets, for so many chunks, of so many numbers.
_MAX_SETS, _MAX_CHUNKS, _MAX_PREPARED = 8, 4, 2**26
_SHORT = 400  # steps of a training for which optimized programs do not pay


class Trained(NamedTuple):
    """A trained flow and its training.

    Attributes
    ----------
    flow
        The flow with the best held-out ELBO.
    snapshots
        With cooling: temperature → flow at the end of that stage.
    history
        A report per chunk.
    status
        How training ended.
    """

    flow: MatrixFlow
    snapshots: dict[float, MatrixFlow]
    history: list[Report]
    status: Status


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
        The flow to start from.
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
        resumes as well, up to the rounding of sums in another order.
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
    clock, mesh = clock or Clock(), make_mesh(settings.num_conditions, settings.num_draws, devices)
    weights, frozen = eqx.partition(flow, eqx.is_inexact_array, is_leaf=lambda leaf: isinstance(leaf, NonTrainable))
    snapshots = snapshot_at if settings.cooling else ()
    identity = identify_run(key, low, high, settings, flow)
    progress = _start_or_resume(weights, snapshots, checkpoint, identity, clock)
    check_agreement(hashlib.sha256(repr((identity, progress.history)).encode()).digest(), mesh)
    quick = settings.steps <= _SHORT and compiles_quickly(flow.n_entries, mesh.devices.flat[0].platform)
    fixed = replicate(Fixed(frozen, key, jnp.float32(_num_chunks(settings) * CHUNK)), mesh)
    sharing = plan_sharing(flow, settings.num_conditions) if flow.has_shipped else Sharing(CHUNK, 1)
    if settings.cooling is not None:
        sharing = sharing._replace(num_chunks=1)  # every chunk has a temperature of its own
    run = _Run(flow, key, low, high, settings, snapshots, mesh, fixed, sharing, quick)
    writer = Checkpointer(checkpoint if jax.process_index() == 0 else None, identity)
    progress = _replicate_progress(progress, mesh)
    status, inputs = Status.FINISHED, None
    clock.start()
    try:
        for chunk in range(int(progress.state.step) // CHUNK, run.num_chunks):
            if run.is_patience_exhausted(progress, chunk):
                status = Status.STOPPED_EARLY
                break
            with ExitStack() as stack:
                if inputs is None:
                    # The first chunk, also of a resumed run, compiles, and JAX does not survive an interrupt there.
                    stack.enter_context(defer_interrupts())
                    stack.enter_context(clock.count_compiling())
                if inputs is None or chunk % run.sharing.num_chunks == 0:
                    inputs = run.inputs(chunk)
                state, log_ratio = run.one_chunk(progress.state, inputs)
            log_ratio = np.asarray(log_ratio, float)  # waits for the chunk
            clock.count_training()
            progress = run.advance(progress, chunk, state, log_ratio)
            writer.update(progress._replace(seconds=(clock.compiling, clock.training)))
            if report is not None:
                report(progress.history[-1])
    except KeyboardInterrupt:
        writer.flush()
        if not progress.history or (snapshots and not run.reached(progress.history)):
            raise  # nothing useful is learned yet: there is no model to keep
        status = Status.INTERRUPTED
    else:
        writer.flush()
    return run.result(progress, frozen, status)


class Sharing(NamedTuple):
    """How many sets of conditions the steps take in turn, and how many chunks share them."""

    num_sets: int
    num_chunks: int


def plan_sharing(flow: MatrixFlow, num_conditions: int) -> Sharing:
    """The sharing for a flow that prepares something for its conditions.

    Preparing a set takes about as long as a step, so steps use the same sets again. Where memory allows few sets, they
    are drawn anew more often.
    """
    d, s = len(flow.scatter_matrix), flow.n_query
    prepared = num_conditions * d * (8 * s + (2 * d if s == d else 0))  # corrections and couplings, factors
    num_sets = int(np.clip(_MAX_PREPARED // prepared - 1, 1, _MAX_SETS))
    return Sharing(num_sets, -(-_MAX_CHUNKS * num_sets // _MAX_SETS))


class _Run(NamedTuple):
    """The constants of one training run."""

    flow: MatrixFlow  # before training
    key: PRNGKeyArray
    low: Float[np.ndarray, " 3"]
    high: Float[np.ndarray, " 3"]
    settings: Settings
    snapshot_at: tuple[float, ...]
    mesh: Mesh
    fixed: Fixed
    sharing: Sharing
    quick: bool

    @property
    def num_chunks(self) -> int:
        return _num_chunks(self.settings)

    def temperature(self, chunk: int) -> float | None:
        """Temperature of a chunk while the flow cools; else None."""
        return cooled_temperature(self.settings.cooling, chunk, self.num_chunks, self.snapshot_at)

    def is_patience_exhausted(self, progress: Progress, chunk: int) -> bool:
        """Whether the ELBO has not risen for too long; while the temperature falls, ELBOs are not comparable."""
        waited = chunk - progress.best_chunk
        return self.settings.cooling is None and waited > self.settings.patience * self.num_chunks

    @property
    def shape(self) -> Shape:
        """Numbers that are compiled in."""
        settings = self.settings
        sizes = (CHUNK, self.sharing.num_sets, settings.num_conditions, settings.num_draws)
        return Shape(*sizes, settings.learning_rate, settings.averaging)

    def inputs(self, chunk: int) -> Inputs:
        """Inputs of a chunk and of those that share them; the same in a resumed run."""
        temperature = self.temperature(chunk)
        log_temperature = None if temperature is None else float(np.log(temperature))
        ends = (self.settings.num_conditions, self.low, self.high, log_temperature)
        rng = np.random.default_rng([*np.asarray(jax.random.key_data(self.key)), chunk // self.sharing.num_chunks])
        sets = [draw_conditions(rng, *ends) for _ in range(self.sharing.num_sets)]
        conditions = np.stack([*sets, condition_grid(*ends)]).astype(self.flow.scatter_matrix.dtype)
        return replicate(Inputs(conditions, prepare_many(self.flow, conditions)), self.mesh)

    def one_chunk(self, state: State, inputs: Inputs) -> tuple[State, Float[Array, "c m"]]:
        """The state after a chunk, and held-out log q − log p̃."""
        return run_chunk(self.fixed, inputs, state, self.shape, self.mesh, self.quick)

    def advance(self, progress: Progress, chunk: int, state: State, log_ratio: Float[np.ndarray, "c m"]) -> Progress:
        """The progress after a chunk."""
        temperature = self.temperature(chunk)
        report = summarize((chunk + 1) * CHUNK, self.num_chunks * CHUNK, log_ratio, int(state.skipped))
        progress = progress._replace(state=state, history=[*progress.history, report])
        # While the temperature falls, ELBOs are not comparable: the last finite one counts.
        if report.elbo > progress.best_elbo or (temperature is not None and np.isfinite(report.elbo)):
            best = jax.tree.map(jnp.copy, state.average)
            progress = progress._replace(best=best, best_elbo=report.elbo, best_chunk=chunk + 1)
        if temperature is not None:
            current = {each: progress.best for each in self.snapshot_at if temperature >= each * (1 - 1e-6)}
            progress = progress._replace(snapshots=progress.snapshots | current)
        return progress

    def reached(self, history: list[Report]) -> list[float]:
        """Temperatures of snapshots that the cooling has come down to."""
        last = self.temperature(len(history) - 1) if history else None
        return [temperature for temperature in self.snapshot_at if is_reached(temperature, last)]

    def result(self, progress: Progress, frozen: Any, status: Status) -> Trained:
        """The flow on the default device of this process, and its snapshots."""

        def complete(weights: Any) -> MatrixFlow:
            return eqx.combine(to_local_device(weights), frozen)

        kept = {each: complete(progress.snapshots[each]) for each in self.reached(progress.history)}
        status = Status.FAILED if progress.best_chunk == 0 else status
        return Trained(complete(progress.best), kept, progress.history, status)


def _num_chunks(settings: Settings) -> int:
    return -(-settings.steps // CHUNK)


def _start_or_resume(
    weights: Any, snapshot_at: tuple[float, ...], checkpoint: Path | None, identity: dict[str, Any], clock: Clock
) -> Progress:
    """The progress before the first chunk, or that of the checkpoint, whose seconds are added to the clock."""
    state = initial_state(weights)
    best = jax.tree.map(jnp.copy, state.average)
    progress = Progress(state, best, dict.fromkeys(snapshot_at, best), [])
    if checkpoint is None or not checkpoint.exists():
        return progress
    progress = read_checkpoint(checkpoint, identity, progress)
    compiling, training = progress.seconds
    clock.compiling, clock.training = clock.compiling + compiling, clock.training + training
    return progress


def _replicate_progress(progress: Progress, mesh: Mesh) -> Progress:
    """The same on every device of the mesh."""
    state, best = replicate((progress.state, progress.best), mesh)
    # One after the other: as a tree, a dictionary would come back in the order of its keys.
    snapshots = {temperature: replicate(weights, mesh) for temperature, weights in progress.snapshots.items()}
    return progress._replace(state=state, best=best, snapshots=snapshots)
