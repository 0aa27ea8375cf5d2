"""Values of a report: equal to those of the Python API, on a grid that contains the selected point."""

import numpy as np
import pytest

from ggmflow.report.content import RULES, collect, pairs_to_keep
from tests.report.conftest import a_point, posterior_at


def test_values_equal_those_of_the_posterior(small):
    model, content = small
    for i, j in ((0, 0), (2, 1), (1, 0)):
        post = posterior_at(model, content, i, j)
        pairs = (content.first, content.second)
        lower, upper = post.association_interval(0.9)
        expected = [post.association(), lower, upper, post.sign_probability(), post.edge_probability()]
        point = content.at(i, j)
        np.testing.assert_allclose(point.values, [matrix[pairs] for matrix in expected], rtol=1e-12)
        for k, rule in enumerate(RULES):
            np.testing.assert_array_equal(point.edges[k], post.edges(rule=rule)[pairs])
        assert point.ess == post.diagnostics()["ess"]


def test_verdict_of_a_point_is_that_of_the_posterior(small):
    """With the same draws; the grid has points of different quality, so that a constant would fail."""
    model, content = small
    for i, j in np.ndindex(len(content.lam), len(content.q)):
        assert content.at(i, j).verdict is posterior_at(model, content, i, j).diagnostics().verdict
    assert len(content.verdicts) > 1


@pytest.mark.slow
def test_default_grid_contains_the_selected_point(small):
    full, _ = small
    content = collect(full)
    i, j = content.start
    assert content.lam[i] == pytest.approx(full.lam_, rel=1e-12) and content.q[j] == pytest.approx(full.q_, rel=1e-12)
    assert (content.lam[0], content.lam[-1]) == pytest.approx(full.lam_range_)
    assert np.all(np.diff(content.lam) > 0) and np.all(np.diff(content.q) > 0) and len(content.lam) <= 13
    table = full.evidence(content.lam[i], content.q[j], exact=False, num_draws=1000)
    assert content.selected.evidence == pytest.approx(float(table["log_evidence"].iloc[0]))
    assert content.below_best()[i, j] > -1  # the choice was made on another grid


def test_a_given_grid_starts_at_its_best_point(small):
    _, content = small
    assert not content.starts_at_choice and content.below_best()[content.start] == 0


def test_edges_of_the_start_are_kept_first(monkeypatch):
    """Even if edges are stronger elsewhere; then all points take turns."""
    start = a_point([0.2, 0.1, 0.3, 0.0, 0.0, 0.0, 0.4], [1, 1, 0, 0, 0, 0, 0])
    wild = a_point([0.1, 0.1, 0.1, 0.9, 0.8, 0.1, 0.1], [0, 0, 0, 1, 1, 0, 0])
    calm = a_point([0.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.0], [0, 0, 0, 0, 0, 1, 0])
    points, found = [wild, start, calm], []
    for room in range(1, 8):
        monkeypatch.setattr("ggmflow.report.content._CAPACITY", 3 * room)
        found.append(pairs_to_keep(points, start).tolist())
    assert found[:2] == [[0], [0, 1]]  # the strongest of its edges, both of them
    assert found[3] == [0, 1, 3, 5]  # the strongest edge of each of the others
    assert found[4] == [0, 1, 3, 4, 5] and found[6] == list(range(7))


def test_strongest_edge_need_not_be_kept(small):
    """The strongest edge may be absent from the page, and a pair that is not an edge may be stronger."""
    _, content = small
    point = a_point(np.r_[0.9, -0.5, 0.4, np.zeros(7)], np.r_[0, 1, 1, np.zeros(7)])
    points = [point if k == content.start[0] * 2 + content.start[1] else each for k, each in enumerate(content.points)]
    changed = content._replace(points=points, kept=np.array([0, 2, 5]))
    assert changed.strongest_edge == 1 and changed.first_curve == 1 and changed.kept[1] == 2
    alone = content._replace(points=[a_point(np.linspace(0, 1, 10), np.zeros(10))] * 6, kept=np.array([3, 7]))
    assert alone.strongest_edge is None and alone.first_curve == 1
