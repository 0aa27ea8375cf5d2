"""Smooth signed power: linear at 0, a power law away from it.

    y = v (ε + v²)^m,        dy/dv = (ε + v²)^{m−1} (ε + (1 + 2m) v²),        ε > 0, m ≥ 0

It maps a smooth density of v to one with a peak at y = 0, which is sharper for smaller ε, and raises the tails to
the power 1 + 2m.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.bijections import AbstractBijection
from jax.nn import softplus
from jaxtyping import Array, Float

from ggmflow.flow.monotone import implicit_root


def signed_power(
    v: Float[Array, "*batch"], m: Float[Array, "*batch"], log_eps: Float[Array, "*batch"]
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """y and log dy/dv, elementwise; arguments broadcast.

    Parameters
    ----------
    v
        Where to evaluate.
    m
        Exponent m ≥ 0; 0 is the identity.
    log_eps
        log ε. In float32 it has to stay above −87, where ε becomes 0.

    Examples
    --------
    >>> y, _ = signed_power(jnp.array([-2.0, 0.0, 2.0]), jnp.array(0.5), jnp.array(-20.0))
    >>> y.round(3).tolist()
    [-4.0, 0.0, 4.0]
    """
    eps, square = jnp.exp(log_eps), v * v
    log_base = jnp.log(eps + square)
    return v * jnp.exp(m * log_base), (m - 1) * log_base + jnp.log(eps + (1 + 2 * m) * square)


def inverse_signed_power(
    y: Float[Array, "*batch"], m: Float[Array, "*batch"], log_eps: Float[Array, "*batch"], *, num_newton: int = 8
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """v and log dv/dy, elementwise; numerical, with exact derivatives.

    In u = log|v| the equation reads u + m log(ε + e^{2u}) = log|y|, increasing and convex with slopes in
    [1, 1 + 2m]. Both its asymptotes lie below it, so the smaller of their roots is right of the solution, and
    Newton's method descends from there without overshooting.
    """
    y, m, log_eps = jnp.broadcast_arrays(y, m, log_eps)
    nonzero = y != 0
    log_y = jnp.log(jnp.abs(jnp.where(nonzero, y, 1.0)))

    def step(_, u):
        log_base = jnp.logaddexp(log_eps, 2 * u)
        return u - (u + m * log_base - log_y) / (1 + 2 * m * jnp.exp(2 * u - log_base))

    u = jax.lax.fori_loop(0, num_newton, step, jnp.minimum(log_y - m * log_eps, log_y / (1 + 2 * m)))
    v = jnp.where(nonzero, jnp.sign(y) * jnp.exp(u), 0.0)
    # One more step in v itself: rounding of a large u is a relative error of v.
    value, log_derivative = signed_power(v, m, log_eps)
    v = v + (y - value) * jnp.exp(-log_derivative)
    v = implicit_root(lambda v: signed_power(v, m, log_eps), y, v)
    return v, -signed_power(v, m, log_eps)[1]


class SignedPower(AbstractBijection):
    """The signed power as a bijection, with its own parameters for each element.

    Parameters
    ----------
    raw_exponent
        m = softplus(raw_exponent); its shape is the bijection's.
    log_eps
        log ε, of the same shape.
    """

    raw_exponent: Float[Array, "*shape"]
    log_eps: Float[Array, "*shape"]
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: ClassVar[None] = None

    def __init__(self, raw_exponent: Float[Array, "*shape"], log_eps: Float[Array, "*shape"]):
        if raw_exponent.shape != log_eps.shape:
            raise ValueError(f"raw_exponent and log_eps differ in shape: {raw_exponent.shape}, {log_eps.shape}.")
        self.raw_exponent = raw_exponent
        self.log_eps = log_eps
        self.shape = raw_exponent.shape

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """The signed power of x and its log determinant."""
        y, log_derivative = signed_power(x, softplus(self.raw_exponent), self.log_eps)
        return y, jnp.sum(log_derivative)

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """The inverse and its log determinant."""
        x, log_derivative = inverse_signed_power(y, softplus(self.raw_exponent), self.log_eps)
        return x, jnp.sum(log_derivative)
