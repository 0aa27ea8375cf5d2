"""Checkpoints: the whole progress of a training run in one file, written every few seconds and read to resume it.

The arrays of the file are the leaves of (state, best, snapshots), the history, and the best ELBO with its chunk.
"""

import hashlib
import json
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ggmflow.errors.checkpoint import CheckpointError
from ggmflow.flow.base import MatrixFlow
from ggmflow.storage import archive
from ggmflow.train.chunk import State
from ggmflow.train.report import Report, reports_from_array
from ggmflow.train.settings import Settings

SECONDS_BETWEEN_CHECKPOINTS = 10.0


class Progress(NamedTuple):
    """How far a training run has come.

    Attributes
    ----------
    state
        After the last chunk.
    best
        The averaged weights that are kept: those with the highest held-out ELBO; while the flow cools, the last ones.
    snapshots
        Temperature → averaged weights, best so far.
    history
        A report per chunk.
    best_elbo, best_chunk
        ELBO and chunk of `best`; chunks are counted from 1, and 0 means that no chunk ended with a finite ELBO.
    seconds
        Seconds of compiling and of training.
    """

    state: State
    best: Any
    snapshots: dict[float, Any]
    history: list[Report]
    best_elbo: float = float("-inf")
    best_chunk: int = 0
    seconds: tuple[float, float] = (0.0, 0.0)

    @property
    def arrays(self) -> tuple[State, Any, dict[float, Any]]:
        """The parts that are trees of arrays."""
        return self.state, self.best, self.snapshots


def identify_run(
    key: PRNGKeyArray, low: np.ndarray, high: np.ndarray, settings: Settings, flow: MatrixFlow
) -> dict[str, Any]:
    """Version, key, ranges, settings and initial flow: equal in a checkpoint and in the run that resumes it.

    Versions differ in how they draw conditions.
    """
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(eqx.filter((flow, jax.random.key_data(key)), eqx.is_array)):
        digest.update(np.asarray(leaf).tobytes())
    own = {"version": archive.versions()["ggmflow"], "run": digest.hexdigest()}
    return own | {"low": list(low), "high": list(high), "settings": list(settings)}


class Checkpointer:
    """Writes the progress of a run to a file every few seconds, and once more at the end.

    Parameters
    ----------
    path
        The file; None writes nothing.
    identity
        Identity of the run.
    """

    def __init__(self, path: Path | None, identity: dict[str, Any]):
        self._path, self._identity = path, identity
        self._written, self._unwritten = time.monotonic(), None

    def update(self, progress: Progress) -> None:
        """Take the progress after a chunk, and write it if the last time is long enough ago."""
        if self._path is None:
            return
        # A copy, because the next chunk takes over the buffers of the state, and may be interrupted.
        state, best, snapshots = jax.tree.map(np.array, progress.arrays)
        history = list(progress.history)
        self._unwritten = progress._replace(state=state, best=best, snapshots=snapshots, history=history)
        if time.monotonic() - self._written > SECONDS_BETWEEN_CHECKPOINTS:
            self.flush()

    def flush(self) -> None:
        """Write the progress that is not in the file yet."""
        if self._path is not None and self._unwritten is not None:
            write_checkpoint(self._path, self._identity, self._unwritten)
            self._written, self._unwritten = time.monotonic(), None


def write_checkpoint(path: Path, identity: dict[str, Any], progress: Progress) -> None:
    """Write a checkpoint; warn if that fails, because a full disk is no reason to lose a training run."""
    arrays = {f"leaf{k}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(progress.arrays))}
    # As arrays, because an ELBO may be infinite or NaN, which the header cannot hold.
    best = np.array((progress.best_elbo, progress.best_chunk), float)
    arrays |= {"history": np.array(progress.history, float), "best": best}
    try:
        archive.write(path, {"kind": "checkpoint", "identity": identity, "seconds": progress.seconds}, arrays)
    except OSError as error:
        message = (
            f"the checkpoint {path} could not be written ({error.strerror or error}); training continues without it"
        )
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def read_checkpoint(path: Path, identity: dict[str, Any], start: Progress) -> Progress:
    """The progress from a checkpoint of the same run.

    Parameters
    ----------
    path
        The file.
    identity
        Identity of the run that resumes.
    start
        The progress with which that run starts: its arrays have the shapes to expect.

    Raises
    ------
    ValueError
        If the file is of another run, or damaged.
    """
    header, arrays = archive.read(path)
    # Tuples come back from JSON as lists.
    if header.get("kind") != "checkpoint" or header.get("identity") != json.loads(json.dumps(identity)):
        reason = "data, settings, random_state or the version of ggmflow differ. "
        raise CheckpointError(path, reason + "Delete it to start again, or fit with those of the checkpoint")
    leaves, structure = jax.tree.flatten(start.arrays)
    expected = {f"leaf{k}": (leaf.shape, np.dtype(leaf.dtype)) for k, leaf in enumerate(leaves)}
    number, rows = np.dtype(float), np.shape(arrays.get("history", ()))[:1]
    expected |= {"history": ((*rows, len(Report._fields)), number), "best": ((2,), number)}
    damaged = CheckpointError(path, "it is damaged")
    if {name: (array.shape, array.dtype) for name, array in arrays.items()} != expected:
        raise damaged
    state, best, snapshots = jax.tree.unflatten(structure, [jnp.array(arrays[f"leaf{k}"]) for k in range(len(leaves))])
    elbo, chunk = arrays["best"].tolist()
    try:
        history, best_chunk = reports_from_array(arrays["history"]), int(chunk)
    except (ValueError, OverflowError):  # a count that is not finite
        raise damaged from None
    return Progress(state, best, snapshots, history, elbo, best_chunk, _seconds_of(header))


def _seconds_of(header: dict[str, Any]) -> tuple[float, float]:
    """Seconds of compiling and of training; zeros if the header, of an earlier version or damaged, has none."""
    found = header.get("seconds")
    if not isinstance(found, list) or len(found) != 2:
        return 0.0, 0.0
    valid = all(isinstance(value, int | float) and 0 <= value < 1e12 for value in found)
    return (float(found[0]), float(found[1])) if valid else (0.0, 0.0)
