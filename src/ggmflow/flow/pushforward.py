"""Densities of standard normal noise that a bijection maps to the free entries of Ω.

Ω = f(z; c),   log q(Ω | c) = log N(z; 0, I) − log |dΩ/dz|

The entries are those of `target.entry_indices`, in that order; densities are with respect to Lebesgue measure on them.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Float
from paramax import unwrap


def push_forward(
    bijection: AbstractBijection, z: Float[Array, "m D"], condition: Float[Array, " 3"]
) -> tuple[Float[Array, "m D"], Float[Array, " m"]]:
    """Entries f(z) and their log density."""
    entries, log_det = jax.vmap(unwrap(bijection).transform_and_log_det, (0, None))(z, condition)
    return entries, log_normal(z) - log_det


def density_through_inverse(
    bijection: AbstractBijection, entries: Float[Array, "m D"], condition: Float[Array, " 3"]
) -> Float[Array, " m"]:
    """Log density of given entries, through f⁻¹."""
    z, log_det = jax.vmap(unwrap(bijection).inverse_and_log_det, (0, None))(entries, condition)
    return log_normal(z) + log_det


def log_normal(z: Float[Array, "m D"]) -> Float[Array, " m"]:
    """Log density of the standard normal distribution."""
    return -0.5 * jnp.sum(z**2, axis=-1) - 0.5 * z.shape[-1] * np.log(2 * np.pi).astype(z.dtype)
