"""Devices of a training step: its c conditions × m draws are split over those of one machine or of many.

    N devices = n_c · n_m,      n_c divides c,  n_m divides m,      ∇ = mean over devices of their own mean

All parts are of one size, so the mean of means is the mean over all draws. One device is the case n_c = n_m = 1.
"""

from collections.abc import Sequence
from itertools import groupby
from math import gcd
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

CONDITIONS, DRAWS, COPIES = "conditions", "draws", "copies"
_DEFAULT = "jax_default_device"


def training_devices() -> list[Any]:
    """All devices of the program, those of other processes too; with `jax.default_device` set, that one alone."""
    return jax.devices() if getattr(jax.config, _DEFAULT) is None else default_device()


def default_device() -> list[Any]:
    """The device of computations that other processes do not take part in."""
    return list(jnp.zeros(()).devices())


def make_mesh(num_conditions: int, num_draws: int, devices: Sequence[Any] | None = None) -> Mesh:
    """Devices in a grid for c conditions × m draws, by default `training_devices`; see `arrange`."""
    grid = arrange(training_devices() if devices is None else devices, num_conditions, num_draws)
    return Mesh(grid, (CONDITIONS, DRAWS, COPIES), axis_types=(AxisType.Auto,) * 3)


def arrange(devices: Sequence[Any], num_conditions: int, num_draws: int) -> np.ndarray:
    """Devices as (n_c, n_m, copies), copies being 1 wherever possible.

    As many devices are used as can have parts of equal size, the same number in each process. Every process must take
    part: where parts cannot be equal, as with 32 conditions for 3 processes of one device each, all compute the same.
    """
    ordered = sorted(devices, key=lambda device: device.process_index)
    processes = [list(group) for _, group in groupby(ordered, key=lambda device: device.process_index)]
    for per_process in range(min(map(len, processes)), 0, -1):
        used = [device for group in processes for device in group[:per_process]]
        n_c = gcd(num_conditions, len(used))
        n_m = gcd(num_draws, len(used) // n_c)
        if n_c * n_m == len(used):
            break
    return np.array(used).reshape(n_c, n_m, -1)


def everywhere(mesh: Mesh) -> NamedSharding:
    """The sharding of arrays that are whole on every device."""
    return NamedSharding(mesh, PartitionSpec())


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Copy arrays, which are equal in all processes, to every device."""
    sharding = everywhere(mesh)

    def place(leaf: Any) -> Any:
        if not eqx.is_array(leaf):
            return leaf
        if not mesh.is_multi_process:
            return jax.device_put(leaf, sharding)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(place(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        own = np.array(leaf)
        return jax.make_array_from_callback(own.shape, sharding, lambda index: own[index])

    return jax.tree.map(place, tree)


def to_local_device(tree: Any) -> Any:
    """Copy replicated arrays to the default device of this process, so that it can use them alone."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), tree)


def check_agreement(digest: bytes, mesh: Mesh) -> None:
    """Raise if the processes of a mesh are about to train different flows.

    Parameters
    ----------
    digest
        Digest of everything that training depends on.
    mesh
        Devices of one process or of several.
    """
    if not mesh.is_multi_process:
        return
    found = np.asarray(multihost_utils.process_allgather(np.frombuffer(digest, np.uint8)))
    if different := np.flatnonzero((found != found[0]).any(axis=1)).tolist():
        raise ValueError(
            f"process {different[0]} would train another flow than process 0: give every process the same data, "
            "parameters and integer random_state, and a checkpoint in a directory that all of them share"
        )
