"""Fixtures of the tests of the command line."""

import jax
import pytest


@pytest.fixture
def jax_as_users_have_it():
    """JAX with its default promotion of dtypes, which other tests forbid."""
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    yield
    jax.config.update("jax_numpy_dtype_promotion", "strict")
