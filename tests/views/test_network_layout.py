"""Positions of variables: reproducible, apart from each other, near the variables they are joined to."""

import numpy as np
import pytest

from ggmflow.views import layout
from ggmflow.views.layout import circle_layout, network_layout


def distances(positions):
    """Distance of each pair; infinite on the diagonal."""
    out = np.linalg.norm(positions[:, None] - positions, axis=-1)
    np.fill_diagonal(out, np.inf)
    return out


def random_graph(rng, d):
    """Strengths of all pairs, and edges between the 2d strongest."""
    strength = np.triu(rng.exponential(size=(d, d)), 1)
    strength += strength.T
    return strength >= np.sort(strength.ravel())[-4 * d], strength


@pytest.mark.parametrize("kind", ["full", "blanket", pytest.param("paper", marks=pytest.mark.slow)])
def test_layout_of_a_model_is_reproducible_and_variables_are_apart(model, kind):
    positions = network_layout(model(kind))
    np.testing.assert_array_equal(positions, network_layout(model(kind)))
    assert positions.shape == (4, 2) and np.linalg.norm(positions, axis=1).max() <= 1 + 1e-9
    assert distances(positions).min() > 0.2


@pytest.mark.parametrize("d", [13, 60, 310])
def test_joined_variables_are_near_each_other(rng, d):
    """310 variables are more than Kamada–Kawai is used for."""
    joined, strength = random_graph(rng, d)
    positions = layout._around_edges(joined, strength)
    assert np.linalg.norm(positions, axis=1).max() <= 1 + 1e-9
    distance, core = distances(positions), joined.any(axis=0)
    assert distance.min() > 1e-3
    others = ~joined & core[:, None] & core & ~np.eye(d, dtype=bool)
    assert distance[joined].mean() < 0.7 * distance[others].mean()


def test_variables_without_an_edge_are_on_a_ring(rng):
    joined, strength = random_graph(rng, 30)
    joined[:, 20:] = joined[20:] = False
    positions = layout._around_edges(joined, strength)
    radius, core = np.linalg.norm(positions, axis=1), joined.any(axis=0)
    np.testing.assert_allclose(radius[~core], 1)
    assert radius[core].max() < 0.9 and distances(positions[~core]).min() > 0.3


def test_strongest_partners_of_each_query_variable_are_apart(rng):
    s, d = 3, 200
    strength = rng.exponential(size=(s, d))
    positions = layout._around_query(strength, np.arange(s))
    partner = np.argmax(strength, axis=0)
    for row in range(s):
        mine = np.flatnonzero(partner[s:] == row) + s
        strongest = mine[np.argsort(-strength[row, mine])][:4]
        assert distances(positions[strongest]).min() > 0.15
    assert np.linalg.norm(positions[:s], axis=1).max() < np.linalg.norm(positions[s:], axis=1).min()


def test_a_circle_has_every_variable_once():
    edges = np.zeros((12, 12), bool)
    edges[0, 5] = edges[5, 0] = edges[3, 4] = edges[4, 3] = True
    positions = circle_layout(edges)
    np.testing.assert_allclose(np.linalg.norm(positions, axis=1), 1)
    np.testing.assert_array_equal(positions, circle_layout(edges))
    assert distances(positions).min() == pytest.approx(2 * np.sin(np.pi / 12))
    assert distances(positions)[[0, 3], [5, 4]] == pytest.approx(2 * np.sin(np.pi / 12))
