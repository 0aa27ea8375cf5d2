"""Masked autoregressive sum of sigmoids: each entry is mapped by a φ whose parameters depend on the entries before it.

    y_i = φ(z_i; θ_i(z_{<i}, c)) − s₀,        log det = Σ_i log φ′(z_i)

θ comes from a residual network whose weights are masked (MADE): a hidden unit of degree m depends on z_0 … z_{m−1}, and
θ_i on units of degree at most i. With the constant s₀ the initial map is near the identity. The transform is one pass
of the network; the inverse finds one entry after the other.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ggmflow.flow.sum_of_sigmoids import inverse_sum_of_sigmoids, near_identity, sum_of_sigmoids

INITIAL_S = 3.0  # initially sigmoids shape the map on [−3, 3], which holds nearly all the noise


class _Block(eqx.Module):
    """h + W₂ silu(W₁ silu(h) + Cc + b₁) + b₂, with masked W₁, W₂."""

    first: Float[Array, "width width"]
    second: Float[Array, "width width"]
    condition: Float[Array, "width c"]
    first_bias: Float[Array, " width"]
    second_bias: Float[Array, " width"]

    def __call__(self, h, condition, mask):
        inner = jnp.where(mask, self.first, 0.0) @ jax.nn.silu(h) + self.condition @ condition + self.first_bias
        return h + jnp.where(mask, self.second, 0.0) @ jax.nn.silu(inner) + self.second_bias


class AutoregressiveSumOfSigmoids(AbstractBijection):
    """One masked autoregressive layer.

    Parameters
    ----------
    key
        For the initial weights.
    size
        D, the number of entries.
    cond_size
        Length of the condition vector, an input of every unit of the network.
    num_blocks, width
        Residual blocks of the network and units in each layer.
    num_sigmoids
        K; the network gives 3K + 2 numbers per entry.
    """

    inner: Float[Array, "width D"]
    inner_condition: Float[Array, "width c"]
    inner_bias: Float[Array, " width"]
    blocks: tuple[_Block, ...]
    head: Float[Array, "D P width"]
    head_condition: Float[Array, "D P c"]
    head_bias: Float[Array, "D P"]
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, key: PRNGKeyArray, size: int, cond_size: int, *, num_blocks: int, width: int, num_sigmoids: int):
        start = near_identity(num_sigmoids, INITIAL_S)
        degrees = _degrees(size, width)
        from_entries, between = degrees[:, None] > np.arange(size), degrees[:, None] >= degrees
        shapes = [(width, size), (width, cond_size), (size, len(start), width), (size, len(start), cond_size)]
        shapes += num_blocks * [(width, width), (width, width), (width, cond_size)]
        inner, inner_condition, head, head_condition, *rest = _normals(key, shapes)
        by_condition = 1 / np.sqrt(cond_size).item()
        self.inner = inner * _fan_in(from_entries)
        self.inner_condition = inner_condition * by_condition
        self.inner_bias = jnp.zeros(width)
        self.blocks = tuple(
            _Block(
                first=rest[3 * i] * _fan_in(between),
                second=0.1 * rest[3 * i + 1] * _fan_in(between),
                condition=rest[3 * i + 2] * by_condition,
                first_bias=jnp.zeros(width),
                second_bias=jnp.zeros(width),
            )
            for i in range(num_blocks)
        )
        # Small but not zero: the map starts near the identity, and every weight has a gradient.
        self.head = 0.01 / np.sqrt(width).item() * head
        self.head_condition = 0.01 * by_condition * head_condition
        self.head_bias = jnp.tile(start, (size, 1))
        self.shape = (size,)
        self.cond_shape = (cond_size,)

    def _hidden(self, z: Float[Array, " D"], condition: Float[Array, " c"]) -> Float[Array, " width"]:
        degrees = _degrees(*self.inner.shape[::-1])
        inner = jnp.where(degrees[:, None] > np.arange(len(z)), self.inner, 0.0)
        h = inner @ z + self.inner_condition @ condition + self.inner_bias
        for block in self.blocks:
            h = block(h, condition, degrees[:, None] >= degrees)
        return jax.nn.silu(h)

    def _visible(self) -> Bool[np.ndarray, "D width"]:
        """Mask of the hidden units on which the parameters of each entry depend."""
        size, width = self.inner.shape[::-1]
        return np.arange(size)[:, None] >= _degrees(size, width)

    def transform_and_log_det(self, x: Array, condition: Array) -> tuple[Array, Array]:
        """All entries at once."""
        head = jnp.where(self._visible()[:, None, :], self.head, 0.0)
        # The condition is an input here too: entry 0 has no other, and few hidden units have degree 0.
        raw = head @ self._hidden(x, condition) + self.head_condition @ condition + self.head_bias
        y, log_derivative = sum_of_sigmoids(x, raw)
        return y - INITIAL_S, jnp.sum(log_derivative)

    def inverse_and_log_det(self, y: Array, condition: Array) -> tuple[Array, Array]:
        """One entry after the other, in D passes of the hidden layers and one row of the head each."""
        offset = self.head_condition @ condition + self.head_bias

        def invert_entry(x, entry):
            i, y_i, head, visible, offset = entry
            raw = head @ jnp.where(visible, self._hidden(x, condition), 0.0) + offset
            x_i, log_derivative = inverse_sum_of_sigmoids(y_i + INITIAL_S, raw)
            return x.at[i].set(x_i), log_derivative

        entries = (jnp.arange(len(y)), y, self.head, jnp.asarray(self._visible()), offset)
        x, log_derivative = jax.lax.scan(invert_entry, jnp.zeros_like(y), entries)
        return x, jnp.sum(log_derivative)


def _degrees(size: int, width: int) -> Int[np.ndarray, " width"]:
    """Degrees 0 … D−1 spread evenly over the hidden units; a unit of degree m depends on the first m entries."""
    return np.arange(width) * size // width


def _fan_in(mask: Bool[np.ndarray, "out in"]) -> Float[Array, "out 1"]:
    """One over the root of the number of unmasked inputs of a unit."""
    return jnp.asarray(1 / np.sqrt(np.maximum(mask.sum(1, keepdims=True), 1)), float)


def _normals(key: PRNGKeyArray, shapes: list[tuple[int, ...]]) -> list[Float[Array, "..."]]:
    """Standard normal arrays cut from one draw, because compiling a generator per array takes seconds."""
    ends = np.cumsum([np.prod(shape) for shape in shapes])
    draws = jax.random.normal(key, (int(ends[-1]),))
    return [part.reshape(shape) for part, shape in zip(jnp.split(draws, ends[:-1]), shapes, strict=True)]
