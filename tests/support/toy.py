"""A flow of two numbers with a loss of its own, which compiles in a second; nothing is computed when it is imported."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from paramax import NonTrainable


class Toy(eqx.Module):
    """q = N(mean, 1) for the target N(3 + log T, 1); q above `poison` makes a step's gradient NaN."""

    mean: jax.Array
    poison: NonTrainable
    step_size: NonTrainable  # 0: nothing to learn
    scatter_matrix: ClassVar = np.ones((1, 1))
    n_query: ClassVar = 1

    def __init__(self, poison=np.inf, step_size=1.0):
        self.mean = jnp.zeros(2)
        self.poison, self.step_size = NonTrainable(jnp.float32(poison)), NonTrainable(jnp.float32(step_size))


def toy_noise(flow, key, num_conditions, num_draws):
    return jax.random.normal(key, (1, num_conditions, num_draws))


def toy_loss(flow, noise, conditions):
    mean = flow.mean * flow.step_size.tree
    z = noise[0]
    x = z + mean.sum()
    log_ratio = 0.5 * (x - 3 - conditions[:, 2:]) ** 2 - 0.5 * z**2
    factor = jnp.where(jnp.max(conditions[:, 1]) > flow.poison.tree, jnp.nan, 1.0)
    return factor * jnp.mean(log_ratio), jax.lax.stop_gradient(log_ratio)
