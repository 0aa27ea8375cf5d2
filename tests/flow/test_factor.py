"""The factorization of the structured flow's matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ggmflow.flow.factor import factorize

pytestmark = pytest.mark.usefixtures("x64")


def direct(P):
    lower = jnp.linalg.cholesky(P[::-1, ::-1])
    U = lower[::-1, ::-1]
    return U, jnp.linalg.inv(U).T


@pytest.mark.parametrize("d", [1, 7, 24, 61])
def test_factors_and_their_derivative(d):
    """As by a Cholesky factorization and a general inverse, which JAX differentiates by itself."""
    rng = np.random.default_rng(d)
    X = rng.normal(size=(d + 5, d))
    P, (dU, dA) = jnp.asarray(X.T @ X), (jnp.asarray(rng.normal(size=(d, d))) for _ in range(2))
    (U, A), backward = jax.vjp(factorize, P)
    (U_direct, A_direct), backward_direct = jax.vjp(direct, P)
    np.testing.assert_allclose(U, U_direct, rtol=1e-10)
    np.testing.assert_allclose(A, A_direct, rtol=1e-8, atol=1e-12)
    # Both derivatives are symmetric parts: only symmetric changes of P count.
    change, direct_change = (jnp.asarray(each((dU, dA))[0]) for each in (backward, backward_direct))
    np.testing.assert_allclose(change, (direct_change + direct_change.T) / 2, rtol=1e-7, atol=1e-9)
