"""Posteriors of sources whose truth is known: exact Wishart, Wishart proposals of an l_q target, bad ones."""

import html
import io
import re
import warnings

import jax
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import multigammaln

from ggmflow.errors.advice import Surface, message_of
from ggmflow.errors.argument import ArgumentError
from ggmflow.model.precision import partial_correlation
from ggmflow.posterior.diagnostics import PoorFitWarning
from ggmflow.posterior.edges import edge_probability, score_pairs
from ggmflow.posterior.posterior import Draws, Posterior
from ggmflow.posterior.source import ChainSource
from ggmflow.posterior.two_groups import best_f1, two_groups
from ggmflow.posterior.weights import Verdict
from tests.support.oracles import log_factor, weighted_moments


def log_wishart_constant(n, Psi):
    """log ∫ det(Ω)^{n/2} exp(−½ tr ΩΨ) dΩ: Wishart with n + d + 1 degrees of freedom."""
    d = len(Psi)
    dof = n + d + 1
    return 0.5 * dof * (d * np.log(2) - np.linalg.slogdet(Psi)[1]) + multigammaln(dof / 2, d) if d else 0.0


def log_kernel(rows, query, n, Psi):
    """The target without its l_q factors, by the blanket's formula, and its normalizer."""
    rest = np.setdiff1d(np.arange(len(Psi)), query)
    Omega_11, Omega_12 = rows[:, :, query], rows[:, :, rest]
    trace = np.einsum("kij,ij->k", rows, Psi[query]) + np.einsum("kij,ij->k", Omega_12, Psi[np.ix_(query, rest)])
    trace += np.einsum("kij,kij->k", Omega_12 @ Psi[np.ix_(rest, rest)], np.linalg.solve(Omega_11, Omega_12))
    log_Z = log_wishart_constant(n, Psi) - log_wishart_constant(n, Psi[np.ix_(rest, rest)])
    return 0.5 * n * np.linalg.slogdet(Omega_11)[1] - 0.5 * trace, log_Z


class WishartSource:
    """Proposals from the rows of a Wishart; the target has the l_q factors (unless q is None) and may be another's."""

    def __init__(self, S, n, lam, q=None, query=None, proposal=None, exact=False):
        self.n, self.Psi, self.lam, self.q, self.exact = n, S + lam * np.eye(len(S)), lam, q, exact
        self.query = np.arange(len(S)) if query is None else np.asarray(query)
        self.proposal = proposal or (n, self.Psi)
        self.calls = []

    def sample(self, key, num_draws):
        self.calls.append(num_draws)
        n, Psi = self.proposal
        seed = np.asarray(jax.random.key_data(key))
        wishart = stats.wishart(df=n + len(Psi) + 1, scale=np.linalg.inv(Psi))
        Omega = wishart.rvs(num_draws, random_state=np.random.default_rng(seed)).reshape(-1, *Psi.shape)
        rows = Omega[:, self.query]
        if self.exact:
            return Draws(rows, None, None)
        log_target = log_kernel(rows, self.query, self.n, self.Psi)[0]
        if self.q is not None:
            order = np.r_[self.query, np.setdiff1d(np.arange(len(Psi)), self.query)]
            log_target += log_factor(Omega[:, order][:, :, order], self.lam, self.q, len(self.query))
        return Draws(rows, self.log_prob(rows), log_target)

    def log_prob(self, precision):
        log_p, log_Z = log_kernel(precision, self.query, *self.proposal)
        return log_p - log_Z


def scatter(d, n, seed=3):
    """Correlated data, standardized: S = XᵀX with diagonal n."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    X[:, 1] += X[:, 0]
    X[:, -1] -= 0.8 * X[:, 1]
    return n * np.corrcoef(X.T)


def posterior(source, names=None, **options):
    names = names or tuple("abcdefgh"[: len(source.Psi)])
    return Posterior(source, names, source.query, source.lam, source.q, 1.0, **options)


S3, S4, N = scatter(3, 12), scatter(4, 12), 12
LAM, Q = 2.0, 0.5  # the weights exp(−λΣ|ω|^q) are at most one, but differ enough to matter


@pytest.fixture(scope="module")
def full():
    return posterior(WishartSource(S3, N, LAM, Q), num_draws=20_000)


@pytest.fixture(scope="module")
def blanket():
    """Rows of variables d and b, in this order, among a, b, c, d."""
    return posterior(WishartSource(S4, N, LAM, Q, query=[3, 1]), num_draws=20_000)


# ------------------------------------------------------------------------------------------------------- closed form
def test_an_exact_proposal_has_equal_weights_and_the_right_normalizer():
    post = posterior(WishartSource(S3, N, LAM))
    found = post.diagnostics()
    log_Z = log_wishart_constant(N, S3 + LAM * np.eye(3))
    assert found["khat"] < 0.1 and found["ess"] == pytest.approx(1) and not found["weighted"]  # nothing to correct
    assert found["elbo"] == pytest.approx(log_Z) and found["log_normalizer"] == pytest.approx(log_Z)
    assert found["log_normalizer_se"] < 1e-6 and found["num_draws"] == 4000
    np.testing.assert_allclose(post.mean(), post.mean(weighted=False), rtol=1e-9)
    np.testing.assert_allclose(post.median(), post.median(weighted=False), rtol=1e-6)


def test_moments_of_a_wishart():
    """Mean νV and variance ν(V_ij² + V_ii V_jj), 6 entries each at 4.5 standard errors: false alarms 1e-4."""
    post = posterior(WishartSource(S3, N, LAM), num_draws=40_000)
    V, dof = np.linalg.inv(S3 + LAM * np.eye(3)), N + 4
    sd = np.sqrt(dof * (V**2 + np.outer(np.diag(V), np.diag(V))))
    assert np.all(np.abs(post.mean() - dof * V) < 4.5 * sd / np.sqrt(40_000))
    assert np.all(np.abs(post.sd() / sd - 1) < 4.5 * np.sqrt(2 / 40_000))  # excess kurtosis below 6: se ≤ √2/√N
    diagonal = np.diag(V)[:, None] * stats.chi2(dof).ppf([0.05, 0.5, 0.95])  # ω_ii ~ V_ii χ²
    density = stats.chi2(dof).pdf(diagonal / np.diag(V)[:, None]) / np.diag(V)[:, None]
    error = np.sqrt([0.0475, 0.25, 0.0475]) / np.sqrt(40_000) / density
    found = post.quantile([0.05, 0.5, 0.95])[:, range(3), range(3)].T
    assert np.all(np.abs(found - diagonal) < 4.5 * error)


def test_log_prob_is_the_wishart_density():
    """With respect to Lebesgue measure on the free entries, as SciPy's Wishart density is."""
    post = posterior(WishartSource(S3, N, LAM))
    draws = post.sample(5, random_state=1)
    wishart = stats.wishart(df=N + 4, scale=np.linalg.inv(S3 + LAM * np.eye(3)))
    np.testing.assert_allclose(post.log_prob(draws), wishart.logpdf(np.moveaxis(draws, 0, -1)))
    one = post.log_prob(draws[0])
    assert isinstance(one, float) and one == pytest.approx(wishart.logpdf(draws[0]))
    with pytest.raises(ValueError, match=r"shape \(3, 3\)"):
        post.log_prob(np.eye(4))
    with pytest.raises(ValueError, match="positive definite"):
        post.log_prob(np.ones((3, 3)))
    with pytest.raises(ValueError, match="symmetric"):
        post.log_prob(np.eye(3) + np.eye(3, k=1) / 2)


def test_partial_correlations_are_averaged_per_draw():
    post = posterior(WishartSource(S3, N, LAM, exact=True), num_draws=500)
    draws = post.draws.rows(slice(None))
    np.testing.assert_allclose(post.partial_correlation(), partial_correlation(draws).mean(axis=0))
    np.testing.assert_allclose(post.association(), post.partial_correlation())
    off = ~np.eye(3, dtype=bool)
    large = np.abs(partial_correlation(draws)) > 0.3
    np.testing.assert_allclose(post.edge_probability(0.3), large.mean(axis=0) * off)
    np.testing.assert_allclose(post.sign_probability()[off], (draws < 0).mean(axis=0)[off])
    np.testing.assert_array_equal(np.diag(post.sign_probability()), np.ones(3))


# ------------------------------------------------------------------------------------------- weights against an oracle
@pytest.mark.parametrize("query", [None, [3, 1]])
def test_weighted_mean_and_sd_are_those_of_the_target(query, full, blanket):
    """At 4.5 combined standard errors, at most 7 free entries, mean and sd: false alarms 1e-4."""
    post, S = (full, S3) if query is None else (blanket, S4)
    order = np.arange(3) if query is None else np.array([3, 1, 0, 2])
    mean, sd, _ = weighted_moments(S[np.ix_(order, order)], N, LAM, Q, s=len(post.query), num_draws=400_000)
    mean, sd = mean[:, np.argsort(order)], sd[:, np.argsort(order)]
    w, values = post.draws.weights, post.draws.rows(slice(None))
    deviation = values - post.mean()
    both = np.sqrt(1 + len(w) / 400_000)  # the oracle has an error of its own
    error = both * np.sqrt(np.tensordot(w**2, deviation**2, 1))
    assert post.weighted and post.diagnostics()["ess"] < 0.9  # else nothing was tested
    assert np.all(np.abs(post.mean() - mean) < 4.5 * error)
    error = np.sqrt(np.tensordot(w**2, (deviation**2 - post.sd() ** 2) ** 2, 1)) / (2 * sd)
    assert np.all(np.abs(post.sd() - sd) < 4.5 * both * error)
    # And the weights matter: without them the mean is that of the Wishart, far away.
    assert np.max(np.abs(post.mean(weighted=False) - mean) / error) > 10


def test_weighted_quantiles_have_their_coverage(full):
    """The target's mass below each quantile, by 400 000 other draws: 18 numbers at 4.5 se, false alarms 1e-4."""
    wishart = stats.wishart(df=N + 4, scale=np.linalg.inv(S3 + LAM * np.eye(3)))
    Omega = wishart.rvs(400_000, random_state=8)
    weights = np.exp(log_factor(Omega, LAM, Q, 3))
    weights /= weights.sum()
    probs = np.array([0.05, 0.5, 0.95])
    quantiles = full.quantile(probs)
    below = np.stack([weights @ (Omega < edge).reshape(len(Omega), -1) for edge in quantiles])
    draws, w = full.draws.rows(slice(None)), full.draws.weights
    event = draws < quantiles[:, None]
    error = np.sqrt(np.einsum("n,pnij->pij", w**2, (event - probs[:, None, None, None]) ** 2)).reshape(3, -1)
    assert np.all(np.abs(below - probs[:, None]) < 4.5 * np.sqrt(1 + len(w) / 400_000) * error)
    assert 4.5 * error.max() < 0.03  # else nothing was tested


def test_normalizer_of_the_penalized_target(full):
    """log Z = Wishart's + log E exp(−λΣ|ω|^q), at 4.5 standard errors: false alarms 1e-5."""
    found = full.diagnostics()
    wishart = stats.wishart(df=N + 4, scale=np.linalg.inv(S3 + LAM * np.eye(3)))
    ratio = np.exp(log_factor(wishart.rvs(400_000, random_state=9), LAM, Q, 3))
    log_Z = log_wishart_constant(N, S3 + LAM * np.eye(3)) + np.log(ratio.mean())
    error = np.hypot(found["log_normalizer_se"], ratio.std() / ratio.mean() / np.sqrt(400_000))
    assert abs(found["log_normalizer"] - log_Z) < 4.5 * error
    assert 0.001 < found["log_normalizer_se"] < 0.02
    assert found["elbo"] < found["log_normalizer"]


def test_weighted_draws_follow_the_target_and_plain_ones_the_proposal(full):
    """Means within 6 standard errors of independent draws, as repeated ones have a larger error."""
    resampled, plain = (full.sample(20_000, random_state=4, weighted=weighted) for weighted in (True, False))
    assert resampled.shape == plain.shape == (20_000, 3, 3)
    for draws, weighted in ((resampled, True), (plain, False)):
        error = full.sd(weighted=weighted) / np.sqrt(20_000)
        assert np.all(np.abs(draws.mean(axis=0) - full.mean(weighted=weighted)) < 6 * np.sqrt(2) * error)
        assert np.all(np.linalg.eigvalsh(draws) > 0)
    assert len(np.unique(plain[:, 0, 0])) == 20_000
    assert 10_000 < len(np.unique(resampled[:, 0, 0])) < 20_000


# ------------------------------------------------------------------------------------------------------- poor proposals
@pytest.fixture
def terrible():
    """Far too narrow, and beside the target."""
    proposal = (20 * N, 20 * N * np.eye(3))
    return posterior(WishartSource(S3, N, LAM, Q, proposal=proposal))


def test_a_poor_fit_warns_once_with_advice_and_uses_plain_draws(terrible):
    assert terrible.weighted is False  # reading the property is not an estimate
    with pytest.warns(PoorFitWarning) as caught:
        mean = terrible.mean()
        terrible.interval(), terrible.summary(), terrible.to_networkx(), terrible.mean(weighted=True)
    assert len(caught) == 1
    assert caught[0].filename == __file__  # it points at the line that asked
    message = str(caught[0].message)
    for part in ("λ = 2, q = 0.5", "k̂ = ", "effective of 4000", "plain draws", "steps", "refine()"):
        assert part in message
    np.testing.assert_array_equal(mean, terrible.mean(weighted=False))
    assert not np.allclose(mean, terrible.mean(weighted=True))
    found = terrible.diagnostics()
    assert found.khat > 0.7 and found.weighted is False and found.verdict is Verdict.POOR
    assert "plain draws" in repr(terrible) and "Poor fit" in repr(terrible)
    assert terrible.summary().attrs["weighted"] is False and "plain draws" in terrible.summary().attrs["message"]


@pytest.mark.parametrize("first", ["summary", "to_networkx", "edges"])
def test_the_warning_points_at_the_caller(terrible, first):
    with pytest.warns(PoorFitWarning) as caught:
        getattr(terrible, first)()
    assert [warning.filename for warning in caught] == [__file__]


def test_weighted_draws_of_a_poor_fit_warn_plain_draws_do_not(terrible):
    terrible.sample(10, random_state=0)
    with pytest.warns(PoorFitWarning, match="repeat") as caught:
        terrible.sample(10, random_state=0, weighted=True)
    assert caught[0].filename == __file__
    terrible.mean()  # it warns only once


class Stub:
    """Identity matrices with given densities."""

    def __init__(self, log_target, precision=None):
        self.log_target, self.precision = log_target, precision

    def sample(self, key, num_draws):
        precision = np.tile(np.eye(2), (num_draws, 1, 1)) if self.precision is None else self.precision
        return Draws(precision, np.zeros(num_draws), np.resize(self.log_target, num_draws))

    def log_prob(self, precision):
        return np.zeros(len(precision))


@pytest.mark.parametrize(
    ("log_target", "message"),
    [(np.r_[np.nan, np.zeros(99)], "without a finite density"), (np.r_[0.0, np.full(3999, -1e5)], "k̂ = inf")],
)
def test_degenerate_weights_fall_back_to_plain_draws(log_target, message):
    post = Posterior(Stub(log_target), ("a", "b"), np.arange(2), 1.0, 1.0, 1.0)
    with pytest.warns(PoorFitWarning, match=message):
        np.testing.assert_allclose(post.mean(), np.eye(2))
    assert post.weighted is False


def test_few_effective_draws_cost_accuracy_not_correctness():
    """Some draws with equal weight, the others, elsewhere, with none: k̂ is 0, so the weights are used."""
    counts = np.arange(1000) < 96
    source = Stub(np.where(counts, 0.0, -1e5), np.where(counts, 2.0, 1.0)[:, None, None] * np.eye(2))
    post = Posterior(source, ("a", "b"), np.arange(2), 1.0, 1.0, 1.0, num_draws=1000)
    assert post.weighted and post.diagnostics()["ess"] == pytest.approx(0.096)
    with pytest.warns(
        PoorFitWarning, match="^Few draws are effective at λ = 1.*importance weights.*num_draws"
    ) as caught:
        post.mean()
    assert "poorly" not in str(caught[0].message)
    found = post.diagnostics()
    assert found.verdict is Verdict.FAIR and found.headline == "Fair fit"
    assert found.message.endswith("that costs accuracy, not correctness.")
    assert "#e69f00" in post._repr_html_()  # the colour of caution


def test_sources_that_break_are_named():
    def stub(log_target, precision=None):
        return Posterior(Stub(log_target, precision), ("a", "b"), np.arange(2), 1.0, 1.0, 1.0, num_draws=100)

    with pytest.raises(ValueError, match="None of the 100 draws"):
        stub(np.full(100, np.nan)).mean()
    with pytest.raises(ValueError, match="3 of 100 draws hold NaN"):
        stub(np.zeros(100), np.where(np.arange(100) < 3, np.nan, 1.0)[:, None, None] * np.eye(2)).mean()
    with pytest.raises(ValueError, match=r"shape \(100, 3, 3\) instead of \(100, 2, 2\)"):
        stub(np.zeros(100), np.ones((100, 3, 3))).mean()


def test_exact_draws_have_equal_weights():
    post = posterior(WishartSource(S3, N, LAM, Q, exact=True), num_draws=10)  # too few for k̂, which is not needed
    assert post.weighted is False
    np.testing.assert_allclose(post.mean(), post.draws.rows(slice(None)).mean(axis=0))
    np.testing.assert_array_equal(post.mean(weighted=True), post.mean(weighted=False))
    found = post.diagnostics()
    assert found["elbo"] is None and found["khat"] is None and found["ess"] == 1
    assert found.verdict is Verdict.GOOD and found.headline == "Exact draws"
    assert post.sample(7, random_state=0, weighted=True).shape == (7, 3, 3)


# ----------------------------------------------------------------------------------------------------- blanket, shapes
def test_shapes_and_symmetry(full, blanket):
    for post, shape in ((full, (3, 3)), (blanket, (2, 4))):
        every = [
            *(post.mean(), post.median(), post.sd(), post.quantile(0.3), post.edges(), post.association()),
            *(post.edge_probability(), post.sign_probability(), *post.interval(), *post.quantile([0.1, 0.2, 0.3])),
        ]
        for matrix in every:
            assert isinstance(matrix, np.ndarray) and matrix.shape == shape
            assert matrix.dtype == (bool if matrix is every[4] else np.float64)
            block = matrix[:, post.query]
            np.testing.assert_array_equal(block, block.T)
        assert post.interval(0.5).shape == (2, *shape) and post.quantile([0.5]).shape == (1, *shape)
        np.testing.assert_allclose(post.quantile([0.05, 0.95]), post.interval(0.9), rtol=1e-12)
        np.testing.assert_array_equal(post.quantile(0.5), post.median())
        assert post.sample(3, 0).shape == (3, *shape)
    assert blanket.partial_correlation().shape == (2, 2)
    assert blanket.log_prob(blanket.sample(3, 0)).shape == (3,)


def test_association_interval_is_that_of_its_draws(full, blanket):
    for post in (full, blanket):
        lower, upper = post.association_interval(0.8, weighted=False)
        rows, query = post.draws.rows(slice(None)), post.query  # the draws behind the estimates
        own = rows[:, np.arange(len(query)), query]
        other = own[:, :, None].repeat(len(post.names), axis=2)  # ω_ii where ω_jj is not known
        other[:, :, query] = own[:, None, :]
        draws = -rows / np.sqrt(own[:, :, None] * other)
        expected = np.quantile(draws, [0.1, 0.9], axis=0, method="hazen")
        off = np.arange(len(post.names)) != query[:, None]
        np.testing.assert_allclose(np.stack([lower, upper])[:, off], expected[:, off])
        assert np.all(lower[~off] == 1) and np.all(upper[~off] == 1)


def test_association_in_a_blanket(blanket):
    """Partial correlation between query variables, regression weight −ω_ij/ω_ii on the other columns."""
    draws, w = blanket.draws.rows(slice(None)), blanket.draws.weights
    d_b = -draws[:, 0, 1] / np.sqrt(draws[:, 0, 3] * draws[:, 1, 1])
    b_on_c = -draws[:, 1, 2] / draws[:, 1, 1]
    found = blanket.association()
    assert found[0, 1] == found[1, 3] == pytest.approx(w @ d_b)
    assert found[1, 2] == pytest.approx(w @ b_on_c)
    assert found[0, 3] == found[1, 1] == 1
    np.testing.assert_array_equal(blanket.partial_correlation(), found[:, [3, 1]])
    probability = blanket.edge_probability(0.2)
    assert probability[1, 2] == pytest.approx(w @ (np.abs(b_on_c) > 0.2))
    assert probability[0, 1] == pytest.approx(w @ (np.abs(d_b) > 0.2))
    assert probability[0, 3] == probability[1, 1] == 0
    np.testing.assert_allclose(blanket.edge_probability(0)[[0, 1], [1, 2]], 1)


def test_edges_are_intervals_without_zero(blanket):
    for level in (0.5, 0.9, 0.99):
        lower, upper = blanket.interval(level)
        edges = blanket.edges(level)
        own = np.array([3, 1])[:, None] == np.arange(4)
        np.testing.assert_array_equal(edges, ((lower > 0) | (upper < 0)) & ~own)
        # An interval without zero has its sign nearly surely.
        p = blanket.sign_probability()
        np.testing.assert_array_equal(edges, ~own & (np.maximum(p, 1 - p) > (1 + level) / 2))
    assert blanket.edges(0.5).any() and not blanket.edges(0.5).all()


def test_names_follow_the_columns():
    """Renamed columns change names, not numbers; rows of a full matrix can be asked in any order."""
    plain = posterior(WishartSource(S4, N, LAM, Q))
    permuted = posterior(WishartSource(S4, N, LAM, Q, query=[2, 0, 3, 1]), names=("w", "x", "y", "z"))
    np.testing.assert_allclose(permuted.mean(), plain.mean()[[2, 0, 3, 1]])
    square = np.ix_([2, 0, 3, 1], [2, 0, 3, 1])
    np.testing.assert_allclose(permuted.partial_correlation(), plain.partial_correlation()[square])
    np.testing.assert_array_equal(permuted.edges(), plain.edges()[[2, 0, 3, 1]])
    table = permuted.summary()
    assert len(table) == 10 and table["row"].iloc[0] == "y"
    for row in table.itertuples():
        i, j = "wxyz".index(row.row), "wxyz".index(row.column)
        assert row.mean == pytest.approx(plain.mean()[i, j])
    assert list(permuted.to_networkx().nodes) == ["y", "w", "z", "x"]


# ----------------------------------------------------------------------------------------------------------- edge rules
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
        if rule != "interval":
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


# ------------------------------------------------------------------------------------------------------ table and graph
def test_summary_has_a_row_for_each_free_entry(full, blanket):
    table = full.summary()
    assert isinstance(table, pd.DataFrame)
    assert list(zip(table["row"], table["column"], strict=True)) == [
        *(("a", "a"), ("a", "b"), ("a", "c"), ("b", "b"), ("b", "c"), ("c", "c")),
    ]
    assert table.attrs["level"] == 0.9 and table.attrs["weighted"] is True and "k̂" in table.attrs["message"]
    assert table.attrs["rule"] == full.select_edges().rule
    table = blanket.summary(level=0.8, threshold=0.2, rule="interval")
    assert table.attrs["rule"] == "80 % credible interval excludes zero"
    assert list(zip(table["row"], table["column"], strict=True)) == [
        *(("d", "a"), ("d", "b"), ("d", "c"), ("d", "d"), ("b", "a"), ("b", "b"), ("b", "c")),
    ]
    i, j = np.array([0, 0, 0, 0, 1, 1, 1]), np.array([0, 1, 2, 3, 0, 1, 2])
    lower, upper = blanket.interval(0.8)
    matrices = {"mean": blanket.mean(), "sd": blanket.sd(), "median": blanket.median(), "lower": lower, "upper": upper}
    matrices |= {"edge": blanket.edges(0.8)}
    for label, matrix in matrices.items():
        np.testing.assert_array_equal(table[label], matrix[i, j], err_msg=label)
    diagonal = table["row"] == table["column"]
    pairs = {
        "p_positive": blanket.sign_probability(),
        "edge_probability": blanket.edge_probability(0.2),
        "association": blanket.association(),
        "association_lower": blanket.association_interval(0.8)[0],
        "association_upper": blanket.association_interval(0.8)[1],
    }
    for label, matrix in pairs.items():
        np.testing.assert_array_equal(table[label].isna(), diagonal)
        np.testing.assert_array_equal(table[label][~diagonal], matrix[i, j][~diagonal], err_msg=label)
    assert table["edge"].dtype == bool and not table["edge"][diagonal].any()
    assert blanket.summary(weighted=False).attrs["weighted"] is False


ONE_MATRIX = {
    "mean": {},
    "sd": {},
    "median": {},
    "edges": {"level": 0.8},
    "association": {},
    "edge_probability": {"threshold": 0.2},
    "sign_probability": {},
    "local_false_sign_rate": {},
    "quantile": {"probs": 0.3},
}


@pytest.mark.parametrize("name", ONE_MATRIX)
def test_a_matrix_as_a_frame(blanket, name):
    """Rows are the query in the order asked, d and b of a, b, c, d; without the argument it is an array."""
    array = getattr(blanket, name)(**ONE_MATRIX[name])
    frame = getattr(blanket, name)(**ONE_MATRIX[name], as_frame=True)
    assert type(array) is np.ndarray
    expected = pd.DataFrame(array, pd.Index(["d", "b"], name="row"), pd.Index(list("abcd"), name="column"))
    pd.testing.assert_frame_equal(frame, expected)


def test_matrices_of_the_query_and_several_matrices_as_a_frame(blanket):
    frame = blanket.partial_correlation(as_frame=True)
    assert list(frame.index) == list(frame.columns) == ["d", "b"]
    assert frame.loc["d", "b"] == blanket.partial_correlation()[0, 1]
    for name in ("interval", "association_interval"):
        ends, frame = getattr(blanket, name)(0.8), getattr(blanket, name)(0.8, as_frame=True)
        assert frame.index.names == ["part", "row"] and frame.shape == (4, 4)
        for k, part in enumerate(("lower", "upper")):
            np.testing.assert_array_equal(frame.loc[part], ends[k])
            assert list(frame.loc[part].index) == ["d", "b"]
    frame = blanket.quantile([0.75, 0.25], as_frame=True)
    for k, prob in enumerate((0.75, 0.25)):
        np.testing.assert_array_equal(frame.loc[prob], blanket.quantile([0.75, 0.25])[k])
    assert frame.loc[(0.25, "b"), "c"] == blanket.quantile(0.25)[1, 2]


def test_graph_of_a_full_matrix(full):
    graph = full.to_networkx(level=0.9)
    assert set(graph.nodes) == {"a", "b", "c"} and all(node["query"] for node in graph.nodes.values())
    edges, mean, (lower, upper) = full.edges(0.9), full.mean(), full.interval(0.9)
    names = "abc"
    assert (
        {frozenset(edge) for edge in graph.edges}
        == {frozenset((names[i], names[j])) for i, j in np.argwhere(edges)}
        != set()
    )
    for one, other, data in graph.edges(data=True):
        i, j = names.index(one), names.index(other)
        assert data["scale"] == "partial correlation"
        assert data["weight"] == full.partial_correlation()[i, j]
        assert (data["mean"], data["lower"], data["upper"]) == (mean[i, j], lower[i, j], upper[i, j])
        assert data["p_positive"] == full.sign_probability()[i, j]
        assert data["edge_probability"] == full.edge_probability()[i, j]
        ends = [data["weight_lower"], data["weight_upper"]]
        np.testing.assert_allclose(ends, full.association_interval(graph.graph["level"])[:, i, j])
    assert full.to_networkx(level=1 - 1e-9).number_of_nodes() == 3  # isolated nodes stay
    text = io.BytesIO()
    nx.write_graphml(graph, text)  # takes plain values only
    assert b"partial correlation" in text.getvalue()


def test_graph_of_a_blanket_is_the_query_and_its_blanket(blanket):
    graph = blanket.to_networkx(level=0.9)
    edges = blanket.edges(0.9)
    joined = {"abcd"[j] for j in np.flatnonzero(edges.any(axis=0))}
    assert set(graph.nodes) == {"d", "b"} | joined
    assert {name for name, node in graph.nodes.items() if node["query"]} == {"d", "b"}
    assert all("abcd"[node["column"]] == name for name, node in graph.nodes.items())
    inside = {name: graph.edges[name]["scale"] == "partial correlation" for name in graph.edges}
    assert inside == {edge: set(edge) == {"b", "d"} for edge in graph.edges} != {}
    assert set(blanket.to_networkx(level=1 - 1e-9).nodes) == {"d", "b"}


# ----------------------------------------------------------------------------------------------- randomness, arguments
def test_random_state_decides_everything():
    source = WishartSource(S3, N, LAM, Q)
    first, second = posterior(source), posterior(source)
    np.testing.assert_array_equal(first.mean(), second.mean())
    assert not np.array_equal(first.mean(), posterior(source, random_state=1).mean())
    for weighted in (False, True):
        draws = [first.sample(20, random_state=seed, weighted=weighted) for seed in (5, 5, 6)]
        np.testing.assert_array_equal(draws[0], draws[1])
        assert not np.array_equal(draws[0], draws[2])
    for make in (np.random.default_rng, np.random.RandomState):
        state, same = make(3), make(3)
        np.testing.assert_array_equal(first.sample(4, state), first.sample(4, same))
        assert not np.array_equal(first.sample(4, state), first.sample(4, make(3)))  # the state moved on
    assert not np.array_equal(first.sample(4), first.sample(4))


def test_draws_are_made_once_and_not_by_showing_the_object():
    source = WishartSource(S3, N, LAM, Q)
    post = posterior(source, num_draws=300)
    repr(post), post._repr_html_()
    assert source.calls == []
    post.mean(), post.interval(), post.summary(), post.diagnostics(), repr(post)
    assert source.calls == [300]


def test_large_requests_come_in_chunks_of_one_size(monkeypatch):
    monkeypatch.setattr("ggmflow.posterior.source._CHUNK", 9 * 40)
    source = WishartSource(S3, N, LAM, Q)
    draws = posterior(source).sample(100, random_state=0)
    assert draws.shape == (100, 3, 3) and source.calls == [34, 34, 34]
    assert len(np.unique(draws[:, 0, 0])) == 100  # each chunk has a key of its own


def test_arrays_that_come_back_are_the_callers_own(full):
    mean = full.mean()
    mean[:] = 0
    assert np.all(np.diag(full.mean()) > 0)


def test_repr_is_short_and_html_is_escaped():
    post = posterior(WishartSource(S3, N, LAM, Q), names=("<b>", "x&y", "z"), num_draws=1000)
    assert repr(post) == "Posterior(3 variables (<b>, x&y, z) at λ = 2, q = 0.5, T = 1. 1000 draws at first use.)"
    assert "&lt;b&gt;, x&amp;y" in post._repr_html_() and "<b>," not in post._repr_html_()
    post.mean()
    assert "Good fit: Pareto k̂" in repr(post) and "use importance weights" in repr(post)
    some = Posterior(WishartSource(S4, N, LAM, query=[2]), tuple("abcd"), np.array([2]), None, None, None)
    assert repr(some).startswith("Posterior(the Markov blanket of 1 among 4 variables (c). 4000 draws")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda post: post.interval(90), "level must be a number between 0 and 1"),
        (lambda post: post.edges(level=0), "level"),
        (lambda post: post.summary(level="0.9"), "level"),
        (lambda post: post.to_networkx(level=1.0), "level"),
        (lambda post: post.edges(rule="best"), "unknown rule 'best'"),
        (lambda post: post.edges(level=0.9, rule="fdr"), "'fdr' takes rate, but level was given"),
        (lambda post: post.select_edges("f1", cut=0.5), "'f1' takes no numbers"),
        (lambda post: post.select_edges("fdr", rate=10), "rate must be a number between 0 and 1"),
        (lambda post: post.summary(rule="best"), "unknown rule"),
        (lambda post: post.summary(rule=post.edges()), "unknown rule of type ndarray"),
        (lambda post: post.summary(rule=post.select_edges()._replace(edges=np.eye(4) > 0)), r"shape \(4, 4\), not"),
        (lambda post: post.quantile(1.5), "probs"),
        (lambda post: post.quantile([0.1, np.nan]), "probs"),
        (lambda post: post.quantile([[0.1]]), "probs"),
        (lambda post: post.quantile("half"), "probs"),
        (lambda post: post.quantile([[0.1], [0.1, 0.2]]), "probs"),
        (lambda post: post.log_prob([[1.0], [1.0, 2.0]]), "precision must be an array of real numbers"),
        (lambda post: post.sample(10**30), "num_draws must be a whole number from 1 to"),
        (lambda post: post.sample(5, random_state=-1), "random_state must be a whole number, zero or more.*got -1"),
        (lambda post: post.sample(5, random_state="a"), "random_state"),
        (lambda post: post.edge_probability(-0.1), "threshold"),
        (lambda post: post.summary(threshold=np.nan), "threshold"),
        (lambda post: post.sample(0), "num_draws"),
        (lambda post: post.sample(2.5), "num_draws"),
        (lambda post: posterior(post.source, num_draws=0), "num_draws"),
        (lambda post: posterior(post.source, num_draws=True), "num_draws"),
        (lambda post: posterior(post.source, names=("a", "a", "b")), "names must differ"),
        (lambda post: Posterior(post.source, tuple("abc"), np.array([0, 0]), 1, 1, 1), "different positions"),
        (lambda post: Posterior(post.source, tuple("abc"), np.array([3]), 1, 1, 1), "from 0 to 2"),
        (lambda post: Posterior(post.source, tuple("abc"), np.array(["a"]), 1, 1, 1), "vector of column positions"),
        (lambda post: Posterior(post.source, tuple("abc"), np.array([], int), 1, 1, 1), "vector of column positions"),
    ],
)
def test_wrong_arguments_are_named(call, message, full):
    with pytest.raises(ValueError, match=message):
        call(full)


def test_command_line_names_wrong_arguments_as_options(full):
    with pytest.raises(ArgumentError) as caught:
        Posterior(full.source, tuple("abc"), np.array([0, 3]), 1, 1, 1)
    assert (
        message_of(caught.value, Surface.COMMAND_LINE) == "--query must hold different positions from 0 to 2, got 0,3"
    )
    with pytest.raises(ArgumentError) as caught:
        full.quantile([0.5, 2])
    # There is no option for it.
    message = "probs must be one or more probabilities from 0 to 1, got 0.5,2"
    assert message_of(caught.value, Surface.COMMAND_LINE) == message


def test_a_good_fit_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior(WishartSource(S3, N, LAM, Q), num_draws=200).summary()


def test_html_of_a_posterior_in_a_notebook():
    evil = "<script>alert(1)</script>"
    post = posterior(WishartSource(S3, N, LAM, Q), names=(evil, "$y$", "z"), num_draws=1000)
    shown = post._repr_html_()
    assert "<script" not in shown and "&lt;script&gt;alert(1)&lt;/script&gt;, $y$, z" in shown
    assert "Nothing is drawn yet" in shown and "Edges" not in shown and "λ = 2, q = 0.5, T = 1" in shown
    selection = post.select_edges()
    shown = html.unescape(post._repr_html_())
    assert f"{selection.n_edges} of 3 pairs ({selection.rule})" in shown and "● Good fit: Pareto k̂" in strip(shown)


def test_showing_a_poor_fit_leaves_the_warning_for_the_first_estimate(terrible):
    terrible.diagnostics()
    assert "● Poor fit" in strip(terrible._repr_html_())
    with pytest.warns(PoorFitWarning):
        terrible.mean()


def strip(text):
    return re.sub("<[^>]*>", "", text)
