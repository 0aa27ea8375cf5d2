"""Posteriors of sources whose truth is known: exact Wishart, Wishart proposals of an l_q target, bad ones."""

import numpy as np
import pytest
from scipy import stats

from ggmflow.model.precision import partial_correlation
from ggmflow.posterior.diagnostics import PoorFitWarning
from ggmflow.posterior.posterior import Draws, Posterior
from ggmflow.posterior.weights import Verdict
from tests.support.oracles import log_factor, weighted_moments
from tests.support.wishart import LAM, S3, S4, N, Q, WishartSource, log_wishart, posterior


# ------------------------------------------------------------------------------------------------------- closed form
def test_an_exact_proposal_has_equal_weights_and_the_right_normalizer():
    post = posterior(WishartSource(S3, N, LAM))
    found = post.diagnostics()
    log_Z = log_wishart(N, S3 + LAM * np.eye(3))
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
    log_Z = log_wishart(N, S3 + LAM * np.eye(3)) + np.log(ratio.mean())
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
