"""Edge rules against sums over every outcome, loops over every cut, and data made by the two-group model itself."""

from itertools import product

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import ggmflow as gf
from ggmflow.posterior.edge_rules import find_rule
from ggmflow.posterior.edges import (
    EdgeSelection,
    Penalty,
    edge_probability,
    kept_share,
    overconfidence,
    score_pairs,
    select,
)
from ggmflow.posterior.posterior import Posterior
from ggmflow.posterior.source import ChainSource
from ggmflow.posterior.two_groups import best_f1, expected_f1, largest_set, two_groups
from ggmflow.posterior.weighted_draws import WeightedDraws
from ggmflow.posterior.weights import importance_weights

D = 30
M = D * (D - 1) // 2
SPREAD, RANGE = 0.85, (0.75, 1.0)  # of the scores of pairs without an edge, and what the model allows


def simulate(rng, size=None, share=None):
    """Scores of M pairs and which are edges; π and a from their priors unless given."""
    pi = rng.beta(8, 4 * D - 8) if share is None else share
    a = np.exp(rng.uniform(*np.log([0.75, 12]))) if size is None else size
    edge = rng.random(M) < pi
    return SPREAD * rng.normal(size=M) * np.where(edge, np.sqrt(1 + a**2), 1), edge


# ----------------------------------------------------------------------------------------------------- the two groups
@pytest.mark.parametrize("d", [3, 4, 5, 12])
def test_probabilities_are_those_of_the_mixture_averaged_over_its_parameters(d):
    """One density at a time, by SciPy."""
    z = np.random.default_rng(d).normal(size=d * (d - 1) // 2) * 2
    z[0] = 30.0  # counts as 8
    bounded = np.clip(z, -8, 8)
    beta = stats.beta(8, max(8, 4 * d - 8))
    log_two, log_one, p, log_prior = [], [], [], []
    for c in np.linspace(0.8, 1.1, 8):
        log_one.append(stats.norm.logpdf(bounded, 0, c).sum())
        for a, times in product(np.geomspace(0.75, 12, 9), np.geomspace(0.3, 8, 12)):
            pi = times * beta.mean()
            if pi < 1:
                null, edge = (
                    (1 - pi) * stats.norm.pdf(bounded, 0, c),
                    pi * stats.norm.pdf(bounded, 0, c * np.hypot(1, a)),
                )
                log_prior.append(beta.logpdf(pi) + np.log(pi))  # points even in log π
                log_two.append(log_prior[-1] + np.log(null + edge).sum())
                p.append(edge / (null + edge))
    found = two_groups(z, d, (0.8, 1.1))
    np.testing.assert_allclose(found.probability, np.exp(log_two - logsumexp(log_two)) @ np.array(p), rtol=1e-6)
    expected = logsumexp(log_two) - logsumexp(log_prior) - (logsumexp(log_one) - np.log(8))
    assert found.log_bayes_factor == pytest.approx(expected) and found.share == pytest.approx(beta.mean())


def test_signs_and_order_do_not_matter_and_larger_scores_are_likelier(rng):
    z, _ = simulate(rng)
    found, order = two_groups(z, D).probability, rng.permutation(M)
    np.testing.assert_allclose(two_groups(-z[order], D).probability, found[order])
    assert np.all(np.diff(found[np.argsort(np.abs(z))]) >= -1e-12) and np.all((found >= 0) & (found <= 1))


def test_probabilities_are_calibrated():
    """Data of the model's own prior: among pairs near each p, that share are edges.

    300 data sets, 8 bins at 4.5 standard errors and 0.02 for the spread that the bulk is only an estimate of: false
    alarms below 1e-4. Data sets differ in π and a, so the standard error is that of their sums.
    """
    rng = np.random.default_rng(5)
    bins = np.array([0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 0.95, 1.01])
    difference, count = np.zeros((300, 8)), np.zeros((300, 8))
    for k in range(300):
        z, edge = simulate(rng)
        p = two_groups(z, D, RANGE).probability
        at = np.digitize(p, bins) - 1
        difference[k] = np.bincount(at, edge - p, minlength=8)
        count[k] = np.bincount(at, minlength=8)
    error = np.sqrt(np.sum(difference**2, axis=0)) / count.sum(axis=0)
    off = difference.sum(axis=0) / count.sum(axis=0)
    assert np.all(count.sum(axis=0) > 300) and np.all(np.abs(off) < 4.5 * error + 0.02), (off, error)


def test_the_false_discovery_rate_is_the_requested_one():
    """Edges five times the bulk, 200 data sets: the rate 0.1 within 0.03, four times the standard error of the mean."""
    rng = np.random.default_rng(6)
    rates, found = [], []
    for _ in range(200):
        z, edge = simulate(rng, size=5.0, share=0.07)
        chosen = largest_set(1 - two_groups(z, D, RANGE).probability, 0.1)
        rates.append(np.mean(~edge[chosen]) if chosen.any() else 0.0)
        found.append(np.mean(chosen[edge]))
    assert abs(np.mean(rates) - 0.1) < 0.03 and 4 * np.std(rates) / np.sqrt(200) < 0.03
    assert np.mean(found) > 0.4


def test_expected_f1_is_reached_and_near_that_of_known_parameters():
    """200 data sets: mean F1 within 0.03 of the expected one, and at least 97 % of that with π, σ and a known."""
    rng = np.random.default_rng(7)
    lines = []
    for _ in range(200):
        z, edge = simulate(rng, size=5.0, share=0.07)
        p = two_groups(z, D, RANGE).probability
        odds = 0.07 / 0.93 * np.exp(0.5 * (z / SPREAD) ** 2 * 25 / 26) / np.sqrt(26)
        for_known, chosen = best_f1(odds / (1 + odds)), best_f1(p, 8 / (4 * D))
        lines.append(
            [2 * np.sum(edge & x) / (edge.sum() + x.sum()) for x in (chosen, for_known)] + [expected_f1(p, chosen)]
        )
    own, known, expected = np.mean(lines, axis=0)
    assert abs(own - expected) < 0.03 and own > 0.97 * known


def test_without_edges_the_false_discovery_rule_chooses_almost_no_pairs():
    """100 data sets of pure noise: fewer than 0.2 edges on average; those of the F1 rule have a high error."""
    rng = np.random.default_rng(8)
    groups = [two_groups(rng.normal(size=M), D) for _ in range(100)]
    assert np.mean([largest_set(1 - found.probability, 0.1).sum() for found in groups]) < 0.2
    assert np.mean([found.log_bayes_factor < 0 for found in groups]) > 0.8
    for found in groups:
        assert np.mean(found.probability[best_f1(found.probability, found.share)]) < 0.5


# ------------------------------------------------------------------------------------------------------------ scores
GRID = np.linspace(-12, 12, 40_001)


def one_pair(x, strength, q, temperature=1.0):
    """Posterior of a single entry with likelihood N(x | ω, 1): points of a grid, weighted by their densities."""
    log_density = -(0.5 * (x - GRID) ** 2 + strength * np.abs(GRID) ** q) / temperature
    w = np.exp(log_density - logsumexp(log_density))
    weights = importance_weights(np.zeros(w.size))._replace(values=w)
    entries = np.stack([np.ones_like(GRID), GRID, np.ones_like(GRID)])
    return WeightedDraws(entries, ("a", "b"), np.arange(2), weights, use_weights=True)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
@pytest.mark.parametrize("x", [-0.3, 1.0, 4.0])
def test_a_ridge_does_not_change_the_score(x, temperature):
    """q = 2 in closed form: the score is the likelihood's own x/s, the posterior's mean/sd is not."""
    draws = one_pair(x, 1.5, 2.0, temperature)
    u, z, spread = score_pairs(draws, [Penalty(1.5 / temperature, 2.0)], temperature)
    np.testing.assert_allclose([u, z], [[abs(x)], [abs(x) / 2]], rtol=1e-6)
    assert spread == pytest.approx((0.625, 1.0))


@pytest.mark.parametrize("q", [0.25, 0.5, 1.0, 1.25])
@pytest.mark.parametrize("strength", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("x", [0.3, 1.0])
def test_other_penalties_change_the_score_little(x, strength, q):
    """By quadrature: where pairs without an edge are, the score is at most 20 % below x and 2 % above."""
    (u,), (z,), spread = score_pairs(one_pair(x, strength, q), [Penalty(strength, q)])
    assert 0.8 * x <= u <= 1.02 * x and z < u and 0.5 < spread[0] < spread[1] == 1


def test_mixtures_and_unknown_penalties():
    draws = one_pair(1.0, 1.0, 1.0)
    whole = kept_share(draws, [Penalty(1.0, 1.0)])
    np.testing.assert_allclose(kept_share(draws, [Penalty(1.0, 1.0, 0.4), Penalty(1.0, 1.0, 0.6)]), whole)
    u, z, spread = score_pairs(draws, [])
    np.testing.assert_array_equal(u, z)
    assert spread == (1, 1)


@pytest.mark.parametrize(("d", "n"), [(10, 200), (40, 120), (60, 100)])
def test_many_variables_make_a_posterior_too_narrow(d, n):
    """No penalty, no edges: the scores of a Wishart posterior's mean spread by `overconfidence`, within 4 se.

    The standard error of a spread of 45 pairs is 11 %, of 780 and 1770 at most 3 %: false alarms below 1e-3. At d = 60
    and n = 100, where it is 2.0, a null distribution of spread 1 finds hundreds of edges.
    """
    X = np.random.default_rng(d).normal(size=(n, d))
    mean = (n + d + 1) * np.linalg.inv(n * np.corrcoef(X.T))
    sd = np.sqrt((np.outer(np.diag(mean), np.diag(mean)) + mean**2) / (n + d + 1))
    z = (mean / sd)[np.triu_indices(d, 1)]
    expected = overconfidence(n, d, 1.0)
    assert np.sqrt(np.mean(z**2)) == pytest.approx(expected, rel=0.12 if d > 10 else 0.45)
    assert largest_set(1 - edge_probability(two_groups(z, d, (1.0, expected)), np.abs(z), expected), 0.1).sum() <= 2
    if d == 60:
        assert largest_set(1 - edge_probability(two_groups(z, d), np.abs(z)), 0.1).sum() > 100


@pytest.mark.slow
@pytest.mark.parametrize("copies", [0, 1, 3])
def test_duplicated_columns_do_not_break_the_false_discovery_rate(copies):
    """Six columns of noise, n = 60, and copies of the first ones, 20 tables: mean share of false edges at most 0.25.

    The copies themselves are found. If a table's share were ½ with probability 0.2, a mean rate of 0.1, the bound would
    be exceeded with probability 6e-4. With a null distribution taken from the bulk of the scores it was 0.30 and 0.35.
    """
    false, found = [], []
    for seed in range(20):
        X = np.random.default_rng(seed).normal(size=(60, 6))
        data = gf.Scatter.from_data(np.column_stack([X, X[:, :copies]]))
        d = data.n_features
        options = {"num_chains": 16, "num_draws": 100, "num_warmup": 100, "thin": 2}
        chains = gf.gibbs.sample(jax.random.key(seed), data, 3.0, 0.5, **options)
        post = Posterior(ChainSource(chains.pooled), data.names, np.arange(d), 3.0, 0.5, 1.0, num_draws=1600)
        truth = np.zeros((d, d), bool)
        truth[np.arange(copies), 6 + np.arange(copies)] = True
        chosen = post.edges(rule="fdr", rate=0.1)[np.triu_indices(d, 1)]
        truth = truth[np.triu_indices(d, 1)]
        false.append(np.sum(chosen & ~truth) / max(chosen.sum(), 1))
        found.append(np.sum(chosen & truth) == copies)
    assert all(found) and np.mean(false) <= 0.25


def test_in_a_dense_network_clear_pairs_are_edges(rng):
    """Half of all pairs far from zero, up to 40 sd: a pair at 5.3 sd once had the probability 0.34."""
    z = np.r_[5.3, np.abs(rng.normal(size=M // 2)), rng.uniform(3, 40, size=M - M // 2 - 1)]
    found = edge_probability(two_groups(z, D), z)
    assert found[0] > 0.99 and best_f1(found)[0] and largest_set(1 - found, 0.1)[0]


def test_probabilities_never_fall_below_that_of_the_sign(rng):
    for spread in (0.3, 1.0, 5.0):
        z = np.abs(rng.standard_t(3, size=M)) * spread
        found = edge_probability(two_groups(z, D), z)
        assert np.all(found >= 1 - M * 2 * stats.norm.sf(z)) and np.all(found <= 1)


# -------------------------------------------------------------------------------------------------------------- cuts
@pytest.mark.parametrize("seed", range(5))
def test_no_set_of_pairs_has_a_higher_expected_f1(seed):
    p = np.random.default_rng(seed).beta(0.5, 1, size=8)
    subsets = np.array(list(product([False, True], repeat=8)))
    best = max(expected_f1(p, subset) for subset in subsets)
    assert expected_f1(p, best_f1(p)) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(5))
def test_the_ratio_approximates_the_expectation(seed):
    """E F1 over all 2⁸ outcomes: the chosen set is within 3 % of the best one."""
    p = np.random.default_rng(seed).beta(0.5, 1, size=8)
    sets = np.array(list(product([False, True], repeat=8)))
    chance = np.prod(np.where(sets, p, 1 - p), axis=1)
    both = sets.astype(int) @ sets.T.astype(int)
    size = sets.sum(axis=1)
    total = size[:, None] + size
    f1 = np.where(total > 0, 2 * both / np.maximum(total, 1), 1.0)  # nothing chosen where nothing is: right
    exact = f1 @ chance
    own = np.flatnonzero(np.all(sets == best_f1(p), axis=1))[0]
    assert exact[own] > 0.97 * exact.max()


def test_ties_are_in_or_out_together():
    p = np.array([0.5, 0.9, 0.5, 0.5, 0.01])
    np.testing.assert_array_equal(best_f1(p), [True, True, True, True, False])
    np.testing.assert_array_equal(best_f1(p, at_least=0.6), [False, True, False, False, False])
    error = np.array([0.2, 0.2, 0.0, 0.2])
    np.testing.assert_array_equal(largest_set(error, 0.1), [False, False, True, False])  # not one of three alike
    np.testing.assert_array_equal(largest_set(error, 0.16), [True] * 4)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.3, 0.99])
def test_the_largest_set_by_trying_all(rate, rng):
    error = rng.beta(0.5, 0.5, size=10)
    chosen = largest_set(error, rate)
    sizes = [sum(subset) for subset in product([0, 1], repeat=10) if any(subset)
             and np.dot(subset, error) <= rate * sum(subset)]  # fmt: skip
    assert chosen.sum() == max(sizes, default=0)
    assert not chosen.any() or error[chosen].mean() <= rate


# -------------------------------------------------------------------------------------------------------- edge cases
def test_one_pair():
    """Beta(8, 8): a sure pair is an edge, one near zero is none. Nothing to compare it with: N(0, 1) is the bulk."""
    near, far = (two_groups(np.array([z]), 2) for z in (0.2, 6.0))
    assert not best_f1(near.probability, near.share).any() and best_f1(far.probability, far.share).all()
    assert near.probability[0] < 0.5 < 0.9 < far.probability[0] and near.share == 0.5


def test_all_pairs_are_edges():
    found = two_groups(np.array([9.0, -10.0, 12.0]), 3)
    assert best_f1(found.probability, found.share).all()


@pytest.mark.parametrize(("value", "edge"), [(0.0, False), (1e-300, False), (0.7, False), (5.0, True), (1e6, True)])
def test_equal_scores_are_all_edges_or_none(value, edge):
    """A network in which every pair is an edge has no bulk of other pairs to be compared with."""
    found = two_groups(np.full(M, value), D)
    assert np.ptp(found.probability) == 0 and np.all(best_f1(found.probability, found.share) == edge)
    assert np.all(largest_set(1 - found.probability, 0.1) == edge)


def test_mostly_zeros_and_huge_scores_are_finite():
    found = two_groups(np.r_[np.zeros(M - 1), 1e8], D)
    assert np.all(np.isfinite(found.probability)) and found.probability[-1] == pytest.approx(1)
    np.testing.assert_array_equal(np.flatnonzero(best_f1(found.probability, found.share)), [M - 1])


def test_no_pairs():
    found = two_groups(np.zeros(0), 1)
    assert found.probability.shape == (0,) and found.log_bayes_factor == pytest.approx(0)
    assert best_f1(found.probability).shape == largest_set(found.probability, 0.1).shape == (0,)
    assert expected_f1(found.probability, np.zeros(0, bool)) == 1


def test_a_single_draw_gives_no_edges():
    draws = WeightedDraws(np.random.default_rng(0).normal(size=(10, 1)) + 5, tuple("abcd"), np.arange(4))
    for rule in ("f1", "fdr"):
        chosen = select(draws, *find_rule(rule))
        assert not chosen.edges.any() and chosen.n_edges == 0 and chosen.expected_fdr == 0
        assert chosen.key == rule and not chosen.could_be_empty
        assert chosen.rule.endswith("no pair qualifies")


def test_a_selection_is_shown_in_one_line():
    found = EdgeSelection(np.eye(3, k=1, dtype=bool), "the 90 % interval without zero", None, 0.0, 0.5, 1)
    assert repr(found).startswith("<EdgeSelection: 1 edge by the 90 % interval without zero; fields edges, rule")
