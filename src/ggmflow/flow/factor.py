"""The factorization Ψ = UUᵀ and A = U⁻ᵀ, with a derivative made of products alone.

Triangular solves of 32 rows and more go to a threaded BLAS, once for every condition, and wait for its threads: on a
busy machine for milliseconds each. Here they are split into smaller ones and products.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_LARGEST_SOLVE = 24


@jax.custom_vjp
def factorize(P: Float[Array, "d d"]) -> tuple[Float[Array, "d d"], Float[Array, "d d"]]:
    """U, upper triangular, and A, lower triangular, of a positive definite matrix: P = UUᵀ, AAᵀ = P⁻¹."""
    # P = UUᵀ with U upper triangular is the Cholesky factorization with both axes reversed.
    lower = jnp.linalg.cholesky(P[::-1, ::-1])
    return lower[::-1, ::-1], invert_triangular(lower)[::-1, ::-1].T


def invert_triangular(L: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The inverse of a lower triangular matrix, by halves."""
    d = len(L)
    if d <= _LARGEST_SOLVE:
        return jax.scipy.linalg.solve_triangular(L, jnp.eye(d, dtype=L.dtype), lower=True)
    half = d // 2
    first, last = invert_triangular(L[:half, :half]), invert_triangular(L[half:, half:])
    corner = -last @ L[half:, :half] @ first
    zeros = jnp.zeros((half, d - half), L.dtype)
    return jnp.block([[first, zeros], [corner, last]])


def _forward(P):
    U, A = factorize(P)
    return (U, A), (U, A)


def _backward(factors, changes):
    U, A = factors
    dU, dA = changes
    # A = U⁻ᵀ moves by −A dUᵀ A; U by U·Φ(Aᵀ dP A), where Φ takes the upper triangle with half the diagonal.
    inner = U.T @ (dU - A @ dA.T @ A)
    inner = jnp.triu(inner) - 0.5 * jnp.diag(jnp.diagonal(inner))
    whole = A @ inner @ A.T
    return (0.5 * (whole + whole.T),)


factorize.defvjp(_forward, _backward)
