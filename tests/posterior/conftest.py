"""Posteriors with importance weights: of a whole matrix, of a blanket, and of a poor proposal."""

import numpy as np
import pytest

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
