"""Shared set-up: strict dtypes, so that a float32 never slips into a float64 computation unseen."""

import jax
import numpy as np
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture
def x64():
    """Double precision for one test; the global setting stays as users have it."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(20231210)
