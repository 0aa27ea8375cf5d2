"""What shipped weights give at one condition, by a program that training and draws share.

One program for one condition: inside the loop over the steps of training a large network would be compiled again, and
such programs deadlocked on CPUs for some sizes.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ggmflow.flow.base import MatrixFlow
from ggmflow.storage.compiling import COMPILER_OPTIONS, compiles_quickly


def _prepare(flow: MatrixFlow, condition: Float[Array, " 3"]) -> Any:
    return flow.prepare(condition)


_PROGRAMS = {quick: eqx.filter_jit(_prepare, **options) for quick, options in COMPILER_OPTIONS.items()}


def prepare(flow: MatrixFlow, condition: Float[ArrayLike, " 3"]) -> Any:
    """`flow.prepare(condition)`, compiled; None without shipped weights."""
    if not flow.has_shipped:
        return None
    return _PROGRAMS[compiles_quickly(flow.n_entries, jax.default_backend())](flow, jnp.asarray(condition))


def prepare_many(flow: MatrixFlow, conditions: Float[np.ndarray, "*c 3"]) -> Any:
    """The same at many conditions, with their axes first: NumPy arrays, or None."""
    if not flow.has_shipped:
        return None
    found = [jax.tree.map(np.asarray, prepare(flow, condition)) for condition in conditions.reshape(-1, 3)]
    shape = conditions.shape[:-1]
    return jax.tree.map(lambda *leaves: np.stack(leaves).reshape(*shape, *leaves[0].shape), *found)
