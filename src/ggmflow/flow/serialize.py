"""The arrays of a flow by name, for files, and a flow from such arrays."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ggmflow.flow.base import MatrixFlow


def arrays_of_flow(flow: MatrixFlow, prefix: str) -> dict[str, np.ndarray]:
    """The arrays of a flow, named by the prefix and their position among its leaves."""
    leaves = jax.tree.leaves(eqx.filter(flow, eqx.is_array))
    return {f"{prefix}{k}": np.asarray(leaf) for k, leaf in enumerate(leaves)}


def fill_flow(start: Callable[[Any], MatrixFlow], arrays: dict[str, np.ndarray], prefix: str) -> MatrixFlow:
    """A flow from the arrays of `arrays_of_flow`.

    Parameters
    ----------
    start
        Builds a flow of the same structure from a key. It is traced for the shapes of its arrays and not run, so that
        nothing is allocated.
    arrays, prefix
        The arrays; each must have the expected shape and type.
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
