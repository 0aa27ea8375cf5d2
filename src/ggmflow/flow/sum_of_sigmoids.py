"""Sum of sigmoids: an increasing map of the line, flexible in the middle, with tails of slope one.

    φ(z) = a Σ_k v_k σ(w_k z + b_k) + softplus(z − s) − softplus(−z − s),      v on the simplex, w, a, s > 0
    φ′(z) = a Σ_k v_k w_k σ(u_k) σ(−u_k) + σ(z − s) + σ(−z − s),               u_k = w_k z + b_k

The softplus terms are flat between −s and s, where the sigmoids shape the map, and have slope one outside.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid, log_softmax, logsumexp, sigmoid, softplus
from jaxtyping import Array, Float

from ggmflow.flow.monotone import invert_increasing

# Keeps log w and log a and their gradients finite, however negative the raw parameter of the network is.
FLOOR = 1e-3


class _Parameters(NamedTuple):
    log_v: Float[Array, "*batch K"]
    w: Float[Array, "*batch K"]
    b: Float[Array, "*batch K"]
    a: Float[Array, "*batch"]
    s: Float[Array, "*batch"]


def _parameters(raw: Float[Array, "*batch P"]) -> _Parameters:
    num_sigmoids, rest = divmod(raw.shape[-1] - 2, 3)
    if num_sigmoids < 1 or rest:
        raise ValueError(f"A sum of K sigmoids has 3K + 2 parameters on the last axis; got {raw.shape[-1]}.")
    v, w, b, scale = (raw[..., i * num_sigmoids : (i + 1) * num_sigmoids] for i in range(4))
    return _Parameters(log_softmax(v), softplus(w) + FLOOR, b, softplus(scale[..., 0]) + FLOOR, softplus(raw[..., -1]))


def sum_of_sigmoids(
    z: Float[Array, "*batch"], raw: Float[Array, "*batch 3K+2"]
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """φ(z) and log φ′(z), elementwise.

    Parameters
    ----------
    z
        Where to evaluate; broadcasts against the leading axes of `raw`.
    raw
        Unconstrained parameters on the last axis: K for v (softmax), K for w (softplus), K for b, then a and s
        (softplus). All zeros is a valid choice; `near_identity` is a good one.

    Examples
    --------
    >>> y, log_derivative = sum_of_sigmoids(jnp.array([-1e4, 0.0, 1e4]), jnp.zeros(8))
    >>> log_derivative[::2].tolist()
    [0.0, 0.0]
    """
    log_v, w, b, a, s = _parameters(raw)
    u = w * z[..., None] + b
    value = a * jnp.sum(jnp.exp(log_v) * sigmoid(u), -1) + softplus(z - s) - softplus(-z - s)
    # log σ(u)σ(−u) = u − 2 softplus(u), which never underflows as σ(u)(1 − σ(u)) does.
    log_sigmoids = log_v + jnp.log(w) + u - 2 * softplus(u)
    log_middle = jnp.log(a) + logsumexp(log_sigmoids, axis=-1)
    log_tails = jnp.logaddexp(log_sigmoid(z - s), log_sigmoid(-z - s))
    return value, jnp.logaddexp(log_middle, log_tails)


def inverse_sum_of_sigmoids(
    y: Float[Array, "*batch"], raw: Float[Array, "*batch 3K+2"]
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """z = φ⁻¹(y) and log dz/dy = −log φ′(z), elementwise; numerical, with exact derivatives.

    Where φ is flat (between sigmoids and tails), rounding errors of y are amplified in z.
    """
    _, _, _, a, s = _parameters(raw)
    # The softplus terms differ from z by at most s, the sigmoids add between 0 and a.
    z = invert_increasing(lambda z: sum_of_sigmoids(z, raw), y, y - s - a, y + s)
    return z, -sum_of_sigmoids(z, raw)[1]


def near_identity(num_sigmoids: int, s: float = 3.0) -> Float[Array, "3K+2"]:
    """Raw parameters with which φ(z) ≈ z + s.

    Exactly, z = ∫_{−s}^{s} σ(z − t) dt − s + softplus(z − s) − softplus(−z − s). The midpoint rule with K nodes is
    a sum of sigmoids with w = 1, v = 1/K, a = 2s. At s = 3 it is off by 6e-3 for K = 8 and by 4e-4 for K = 30.
    """
    nodes = s * (2 * np.arange(num_sigmoids) + 1 - num_sigmoids) / num_sigmoids
    zeros, ones = np.zeros(num_sigmoids), np.ones(num_sigmoids)
    raw = [zeros, np.log(np.expm1(ones - FLOOR)), -nodes, [np.log(np.expm1(2 * s - FLOOR)), np.log(np.expm1(s))]]
    return jnp.asarray(np.concatenate(raw), float)
