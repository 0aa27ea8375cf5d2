"""Conditions of a large blanket in groups: the real flow has the losses that it has with all of them at once."""

import equinox as eqx
import jax
import numpy as np

from ggmflow.data.scatter import Scatter
from ggmflow.flow.base import untrained_flow
from ggmflow.model.conditions import Ranges
from ggmflow.train import loop as train


def test_a_blanket_in_groups_is_the_same(x64, monkeypatch, rng):
    """In double precision, over few steps, before Adam makes more of a last bit."""
    ranges, curves = Ranges((1.0, 20.0), (0.25, 1.25), (1.0, 1.0)), []
    scatter = Scatter.from_data(rng.normal(size=(20, 6)))
    flow = untrained_flow(jax.random.key(0), "structured", scatter, np.arange(2), ranges)
    flow = jax.tree.map(lambda leaf: leaf.astype(float) if eqx.is_inexact_array(leaf) else leaf, flow)
    monkeypatch.setattr(train, "CHUNK", 2)
    for most, at_once in ((2**23, 4), (2 * 6**2, 2)):
        monkeypatch.setattr(train, "_MOST_MATRIX_ENTRIES", most)
        assert train.conditions_at_once(4, 6) == at_once
        jax.clear_caches()  # or what is compiled would be found by the structure of the flow
        with jax.numpy_dtype_promotion("standard"):  # conditions are drawn in single precision
            trained = train.train(flow, jax.random.key(1), ranges.low, ranges.high, train.Settings(6, 4, 4))
        curves.append([each.elbo for each in trained.history])
    np.testing.assert_allclose(*curves, rtol=1e-12)
    assert curves[0][0] != curves[0][-1]
