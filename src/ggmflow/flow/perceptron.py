"""A layer with silu and a linear layer, on the last axis of an array.

x  ↦  W₂ silu(W₁x + b₁) + b₂
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Perceptron(NamedTuple):
    """Weights of a layer with silu and a linear layer."""

    weight_1: Float[Array, "hidden in"]
    bias_1: Float[Array, " hidden"]
    weight_2: Float[Array, "out hidden"]
    bias_2: Float[Array, " out"]

    def __call__(self, x: Float[Array, "... in"]) -> Float[Array, "... out"]:
        """Apply both layers to the last axis."""
        hidden = jax.nn.silu(x @ self.weight_1.T + self.bias_1)
        return hidden @ self.weight_2.T + self.bias_2


def initial_perceptron(key: Array, sizes: tuple[int, int, int], scale: float) -> Perceptron:
    """Random weights, those of the second layer times a scale, and no biases; sizes of input, hidden layer, output."""
    num_in, hidden, num_out = sizes
    key_1, key_2 = jax.random.split(key)
    return Perceptron(
        jax.random.normal(key_1, (hidden, num_in)) / num_in**0.5,
        jnp.zeros(hidden),
        scale * jax.random.normal(key_2, (num_out, hidden)) / hidden**0.5,
        jnp.zeros(num_out),
    )
