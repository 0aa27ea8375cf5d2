"""Posteriors with importance weights (of a whole matrix, of a blanket, of a poor proposal), and exact ones."""

import numpy as np
import pytest

from tests.support.predictions import correlated, exact
from tests.support.wishart import LAM, S3, S4, N, Q, WishartSource, posterior


@pytest.fixture(scope="module")
def full():
    return posterior(WishartSource(S3, N, LAM, Q), num_draws=20_000)


@pytest.fixture(scope="module")
def blanket():
    """Rows of variables d and b, in this order, among a, b, c, d."""
    return posterior(WishartSource(S4, N, LAM, Q, query=[3, 1]), num_draws=20_000)


@pytest.fixture
def terrible():
    """Far too narrow, and beside the target."""
    proposal = (20 * N, 20 * N * np.eye(3))
    return posterior(WishartSource(S3, N, LAM, Q, proposal=proposal))


@pytest.fixture(scope="module")
def few():
    return exact(correlated(30, 0), lam=1.0)


@pytest.fixture(scope="module")
def many():
    table = correlated(5000, 1)
    return exact(table, num_draws=2000)[0], table
