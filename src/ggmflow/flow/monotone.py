"""Inverses of elementwise increasing functions, with exact derivatives.

    x = f⁻¹(y; θ),        dx = (dy − ∂f/∂θ dθ) / f′(x).

The root is found by bisection in a known bracket and a few Newton steps, without recording derivatives. The second
equation, the implicit function theorem, gives derivatives of any order, forward or reverse.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# x ↦ (f(x), log f′(x)), elementwise
Increasing = Callable[[Float[Array, "..."]], tuple[Float[Array, "..."], Float[Array, "..."]]]


def invert_increasing(
    function: Increasing,
    y: Float[Array, "..."],
    lower: Float[Array, "..."],
    upper: Float[Array, "..."],
    *,
    num_bisections: int = 24,
    num_newton: int = 3,
) -> Float[Array, "..."]:
    """Solve f(x) = y elementwise for an increasing f.

    The number of evaluations is fixed, so the function can be jitted, vmapped and used inside loops. Bisection
    leaves an error of 6e-8 of the bracket; each Newton step then squares it, so the same counts serve both precisions.

    Parameters
    ----------
    function
        x ↦ (f(x), log f′(x)), elementwise. It may close over parameters: derivatives reach them.
    y
        Values to invert.
    lower, upper
        A bracket: f(lower) ≤ y ≤ f(upper). Broadcast against y.
    num_bisections, num_newton
        Numbers of steps.

    Examples
    --------
    >>> root = invert_increasing(lambda x: (x**3 + x, jnp.log(3 * x**2 + 1)), jnp.array(10.0), 0.0, 10.0)
    >>> round(float(root), 5)
    2.0
    """
    y, lower, upper = jnp.broadcast_arrays(*(jnp.asarray(value, y.dtype) for value in (y, lower, upper)))

    def bisect(_, bracket):
        lower, upper = bracket
        middle = lower + 0.5 * (upper - lower)
        below = function(middle)[0] < y
        return jnp.where(below, middle, lower), jnp.where(below, upper, middle)

    lower, upper = jax.lax.fori_loop(0, num_bisections, bisect, (lower, upper))

    def polish(_, x):
        value, log_derivative = function(x)
        # Where f is flat, rounding in f(x) − y is amplified without bound: stay in the bracket.
        return jnp.clip(x + (y - value) * jnp.exp(-log_derivative), lower, upper)

    root = jax.lax.fori_loop(0, num_newton, polish, lower + 0.5 * (upper - lower))
    return implicit_root(function, y, root)


def implicit_root(function: Increasing, y: Float[Array, "..."], root: Float[Array, "..."]) -> Float[Array, "..."]:
    """Make a known solution of f(x) = y differentiable in y and in the variables that f closes over.

    Parameters
    ----------
    function
        x ↦ (f(x), log f′(x)), elementwise.
    y
        The values inverted.
    root
        f⁻¹(y); its own derivatives are ignored.
    """

    def residual(x):
        return function(x)[0] - y

    def tangent_solve(linear, rhs):  # elementwise, so the Jacobian is diagonal and one product reads it
        return rhs / linear(jnp.ones_like(rhs))

    return jax.lax.custom_root(residual, jax.lax.stop_gradient(root), lambda _, x: x, tangent_solve)
