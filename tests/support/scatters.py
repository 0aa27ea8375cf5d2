"""A table and its scatter, and functions that change and compare them."""

import numpy as np

from ggmflow.data.scatter import Scatter

MIX, WIDE, Z = (np.random.default_rng(0).normal(size=shape) for shape in [(4, 4), (5, 40), (30, 4)])
X = Z @ MIX * np.array([1.0, 10.0, 0.1, 3.0]) + np.array([5.0, -2.0, 0.0, 100.0])
SMALL = np.array([[1.0, 2.0], [3.0, 5.0], [2.0, 1.0]])


def with_entry(value, dtype=float):
    table = SMALL.astype(dtype)
    table[1, 1] = value
    return table


def assert_same(a: Scatter, b: Scatter):
    for field in ("matrix", "mean", "scale"):
        np.testing.assert_array_equal(getattr(a, field), getattr(b, field))
    assert (a.n, a.n_rows, a.names) == (b.n, b.n_rows, b.names)


NAMED = Scatter.from_data(X, names=["age", "weight", "height", "dose"])
