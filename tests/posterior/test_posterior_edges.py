"""Edges of a posterior by every rule."""

import re

import numpy as np
import pytest

from ggmflow.posterior.edge_rules import EDGE_RULES
from ggmflow.posterior.edges import edge_probability, score_pairs
from ggmflow.posterior.posterior import Posterior
from ggmflow.posterior.source import ChainSource
from ggmflow.posterior.two_groups import best_f1, two_groups
from tests.support.wishart import LAM, S3, N, WishartSource, posterior

RULES = {
    "f1": {},
    "interval": {"level": 0.6},
    "fdr": {"rate": 0.3},
    "probability": {"threshold": 0.2, "cut": 0.6},
}


@pytest.mark.parametrize("rule", RULES)
def test_a_selection_names_its_rule_and_counts_pairs_once(rule, full, blanket):
    for post, query in ((full, [0, 1, 2]), (blanket, [3, 1])):
        found = post.select_edges(rule, **RULES[rule])
        shape = (len(query), len(post.names))
        own = np.arange(shape[1]) == np.array(query)[:, None]
        assert found.edges.shape == shape and found.edges.dtype == bool and not found.edges[own].any()
        inside = found.edges[:, query]
        np.testing.assert_array_equal(inside, inside.T)
        assert found.n_edges == found.edges.sum() - inside.sum() // 2
        assert 0 <= found.expected_fdr <= 1 and 0 <= found.expected_f1 <= 1
        assert all(f"{number:g}" in found.rule.replace("60 %", "0.6") for number in RULES[rule].values())
        np.testing.assert_array_equal(post.edges(rule=rule, **RULES[rule]), found.edges)
        if EDGE_RULES[rule].has_probability:
            assert found.probability.shape == shape and not found.probability[own].any()
        table, graph = post.summary(rule=found), post.to_networkx(rule=found)
        assert table["edge"].sum() == graph.number_of_edges() == found.n_edges
        assert table.attrs["rule"] == graph.graph["rule"] == found.rule
        assert table.attrs["expected_fdr"] == found.expected_fdr


def test_rules_agree_with_their_definitions(full, blanket):
    """Each is recomputed from estimates that other tests check."""
    for post in (full, blanket):
        own = np.arange(len(post.names)) == post.query[:, None]
        lower, upper = post.interval(0.6)
        np.testing.assert_array_equal(
            post.select_edges("interval", level=0.6).edges, ~own & ((lower > 0) | (upper < 0))
        )
        assert post.select_edges("interval").probability is None
        found = post.select_edges("probability", threshold=0.2, cut=0.6)
        np.testing.assert_array_equal(found.probability, post.edge_probability(0.2))
        np.testing.assert_array_equal(found.edges, found.probability > 0.6)
        free = post.draws.free
        row, column = free.row[~free.diagonal], free.column[~free.diagonal]
        n = None if post.scatter is None else post.scatter.n
        u, z, spread = score_pairs(post.draws, post.penalties, post.temperature, n)
        np.testing.assert_allclose(z, np.abs(post.mean() / post.sd())[row, column])
        assert post.penalties == ((post.lam, post.q, 1.0),) and np.all(u > z)
        p = edge_probability(two_groups(u, len(post.names), spread), z, spread[1])
        for rule in ("f1", "fdr"):
            np.testing.assert_allclose(post.select_edges(rule).probability[row, column], p)
        found = post.select_edges()
        np.testing.assert_array_equal(found.edges[row, column], best_f1(p, 0.5))
        if found.n_edges:
            assert found.expected_fdr == pytest.approx(1 - p[found.edges[row, column]].mean())
            least = float(re.search(r"P\(edge\) ≥ ([\d.]+)", found.rule)[1])
            assert least <= p[found.edges[row, column]].min() < least + 0.01


def test_a_level_without_a_rule_means_intervals(full):
    np.testing.assert_array_equal(full.edges(0.6), full.select_edges("interval", level=0.6).edges)
    np.testing.assert_array_equal(full.edges(), full.select_edges("f1").edges)
    assert full.to_networkx(level=0.9).graph["rule"] == "90 % credible interval excludes zero"
    assert full.to_networkx().graph["rule"].startswith("highest expected F1")
    graph = full.to_networkx(level=0.5, rule="fdr")  # intervals are shown, but do not decide
    assert graph.graph["level"] == 0.5 and graph.graph["rule"].startswith("expected false discovery rate ≤ 0.1")
    assert full.summary(level=0.6, rule="interval").attrs["rule"] == "60 % credible interval excludes zero"
    assert full.summary(threshold=0.3, rule="probability").attrs["rule"] == "P(|association| > 0.3) > 0.5"


def test_local_false_sign_rate_is_the_smaller_tail(blanket):
    p = blanket.sign_probability()
    np.testing.assert_array_equal(blanket.local_false_sign_rate(), np.minimum(p, 1 - p))
    own = np.arange(4) == np.array([3, 1])[:, None]
    assert np.all(blanket.local_false_sign_rate()[own] == 0) and blanket.local_false_sign_rate().max() <= 0.5
    # An interval of level 1 − 2r excludes zero where the rate is below r.
    np.testing.assert_array_equal(blanket.edges(level=0.8), ~own & (blanket.local_false_sign_rate() < 0.1))


def test_edge_rules_use_the_weights_and_exact_draws_need_none(full):
    plain, weighted = (full.select_edges(weighted=use).probability for use in (False, True))
    np.testing.assert_array_equal(weighted, full.select_edges().probability)
    assert not np.allclose(plain, weighted)
    exact = posterior(WishartSource(S3, N, LAM, exact=True), num_draws=500)
    states = ChainSource(exact.sample(500, random_state=0))
    chains = Posterior(states, tuple("abc"), np.arange(3), LAM, None, 1.0, num_draws=500)
    for rule in RULES:
        assert exact.edges(rule=rule).shape == chains.edges(rule=rule).shape == (3, 3)


def test_strong_edges_are_found_among_many_pairs():
    """A chain of 12 variables, 400 rows, almost no shrinkage: every edge, and at most five others.

    Partial correlations of 0.4 have scores near 8. Of 60 seeds none missed an edge, one had more than five others and
    none more than four in the query's rows, so false alarms are about 2 %; the seed is fixed.
    """
    d, n = 12, 400
    truth = np.eye(d) - 0.4 * (np.eye(d, k=1) + np.eye(d, k=-1))
    X = np.linalg.solve(np.linalg.cholesky(truth).T, np.random.default_rng(1).normal(size=(d, n))).T
    source = WishartSource(n * np.corrcoef(X.T), n, 0.01, exact=True)
    post = Posterior(source, tuple(f"x{k}" for k in range(d)), np.arange(d), None, None, None, num_draws=2000)
    edges = post.edges()
    joined = np.eye(d, k=1) + np.eye(d, k=-1) > 0
    assert np.all(edges[joined]) and np.sum(edges & ~joined) // 2 <= 5
    # The same rows alone, as a query has them.
    rows = Posterior(WishartSource(source.Psi - 0.01 * np.eye(d), n, 0.01, query=[5, 6], exact=True),
                     post.names, np.array([5, 6]), None, None, None, num_draws=2000)  # fmt: skip
    assert np.all(rows.edges()[joined[[5, 6]]]) and np.sum(rows.edges() & ~joined[[5, 6]]) <= 4
