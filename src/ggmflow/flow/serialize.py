"""The numbers of a flow as named arrays, and back."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ggmflow.flow.base import MatrixFlow


def arrays_of_flow(flow: MatrixFlow, prefix: str) -> dict[str, np.ndarray]:
    """The numbers of a flow, by name."""
    leaves = jax.tree.leaves(eqx.filter(flow, eqx.is_array))
    return {f"{prefix}{k}": np.asarray(leaf) for k, leaf in enumerate(leaves)}


def fill_flow(start: Callable[[Any], MatrixFlow], arrays: dict[str, np.ndarray], prefix: str) -> MatrixFlow:
    """A flow from its numbers. `start` makes one of the same shape from a key; it is never made, only looked at.

    So the shapes of a new flow show which arrays to expect, and nothing is allocated that is not there already.
    """
    skeleton = eqx.filter_eval_shape(start, jax.random.key(0))
    shapes, static = eqx.partition(skeleton, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    leaves, structure = jax.tree.flatten(shapes)
    stored = [arrays[f"{prefix}{k}"] for k in range(len(leaves))]
    for leaf, array in zip(leaves, stored, strict=True):
        if leaf.shape != array.shape or leaf.dtype != array.dtype:
            found, expected = f"{array.dtype}{array.shape}", f"{leaf.dtype}{leaf.shape}"
            raise ValueError(f"an array is {found} where {expected} is expected")
    with jax.enable_x64(False):
        return eqx.combine(jax.tree.unflatten(structure, [jnp.asarray(array) for array in stored]), static)
