"""Two groups: against all pairs of draws, normal limits in closed form, equal and different populations."""

from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import ggmflow as gf
from ggmflow.model.precision import partial_correlation
from ggmflow.posterior.differences import _adjust, _both, _exact_posterior, _score
from ggmflow.posterior.posterior import PoorFitWarning, Posterior
from ggmflow.posterior.source import ChainSource
from tests.support.models import Exact
from tests.support.wishart import LAM, S3, S4, N, Q, WishartSource, posterior, scatter

COLUMNS = ["row", "column", "first", "second", "difference", "sd", "lower", "upper", "p_positive", "p_different"]
RULE = ["fdr", "found"]
# A chain of five variables; the other group lacks its first link.
CHAIN = np.eye(5) + 0.5 * (np.eye(5, k=1) + np.eye(5, k=-1)) * -0.9
BROKEN = CHAIN.copy()
BROKEN[0, 1] = BROKEN[1, 0] = 0.0


def group(X, lam=1.0, num_draws=1000, seed=0, names=None, query=None):
    """Exact posterior without l_q factors."""
    data = gf.Scatter.from_data(X, names=names)
    d = data.n_features
    rows = np.arange(d) if query is None else np.asarray(query)
    wishart = stats.wishart(df=data.n + d + 1, scale=np.linalg.inv(data.matrix + lam * np.eye(d)))
    Omega = wishart.rvs(num_draws, random_state=np.random.default_rng(seed))
    return Posterior(ChainSource(Omega[:, rows]), data.names, rows, lam, 1.0, 1.0, num_draws=num_draws, scatter=data)


@pytest.fixture(scope="module")
def two():
    draw = gf.simulate.sample_gaussian
    return group(draw(CHAIN, 60, random_state=0)), group(draw(BROKEN, 80, random_state=1), seed=1, num_draws=800)


def test_the_table_is_that_of_all_pairs_of_draws(two):
    """Mean and sd exactly; probabilities and quantiles, from 1000 pairs of 800 000, at 5 se of 1000."""
    first, second = two
    found = gf.compare(first, second, level=0.8, threshold=0.2)
    rho = [partial_correlation(post.source.states) for post in two]
    assert list(found.columns) == [*COLUMNS, *RULE] and len(found) == 10
    for row in found.itertuples():
        i, j = (first.names.index(name) for name in (row.row, row.column))
        assert i < j
        a, b = rho[0][:, i, j], rho[1][:, i, j]
        assert (row.first, row.second) == pytest.approx((a.mean(), b.mean()))
        assert row.difference == pytest.approx(b.mean() - a.mean())
        assert row.sd == pytest.approx(np.sqrt(a.var() + b.var()))
        every = (b[:, None] - a).ravel()
        for value, expected in ((row.p_positive, every > 0), (row.p_different, np.abs(every) > 0.2)):
            assert abs(value - expected.mean()) <= 5 * np.sqrt(expected.var() / 1000) + 1e-3
        assert abs(np.mean(every < row.lower) - 0.1) < 5 * 0.3 / np.sqrt(1000)
        assert abs(np.mean(every < row.upper) - 0.9) < 5 * 0.3 / np.sqrt(1000)
        assert row.found == (row.fdr <= 0.1)
    assert found.attrs["level"] == 0.8 and found.attrs["threshold"] == 0.2 and found.attrs["lam"] == 1.0
    assert found.attrs["q"] == found.attrs["temperature"] == 1.0 and found.attrs["rate"] == 0.1
    assert found.attrs["n_found"] == found["found"].sum() and found.attrs["permutation_p"] is None
    assert set(found.attrs["messages"]) == {"first", "second"}
    pd.testing.assert_frame_equal(found, gf.compare(first, second, level=0.8, threshold=0.2))


def test_exchanged_groups_and_other_orders_of_columns(two):
    """Exchanged: the other sign. Columns of one group in another order, or rows asked in another: the same pairs."""
    first, second = two
    found, back = gf.compare(first, second), gf.compare(second, first)
    np.testing.assert_allclose(back["difference"], -found["difference"])
    np.testing.assert_allclose(back["sd"], found["sd"])
    p = np.array([3, 0, 4, 2, 1])
    names = tuple(second.names[k] for k in p)
    states = second.source.states[:, p][:, :, p]
    options = {"num_draws": 800, "scatter": second.scatter.reorder(p.tolist())}
    permuted = Posterior(ChainSource(states), names, np.arange(5), 1.0, 1.0, 1.0, **options)
    asked = Posterior(ChainSource(states[:, [2, 4, 0, 1, 3]]), names, [2, 4, 0, 1, 3], 1.0, 1.0, 1.0, **options)
    for other in (permuted, asked):
        pd.testing.assert_frame_equal(gf.compare(first, other), found)


def test_a_query(two):
    """Partial correlation between query variables, regression weight to others; rows in any order."""
    first, second = (Posterior(ChainSource(post.source.states[:, rows]), post.names, rows, 1.0, 1.0, 1.0, num_draws=800)
                     for post, rows in zip(two, (np.array([1, 3]), np.array([3, 1])), strict=True))  # fmt: skip
    found = gf.compare(first, second)
    assert list(zip(found["row"], found["column"], strict=True)) == [
        *(("x1", "x0"), ("x1", "x2"), ("x1", "x3"), ("x1", "x4"), ("x3", "x0"), ("x3", "x2"), ("x3", "x4")),
    ]
    a, b = first.association(), second.association()
    for row in found.itertuples():
        j = int(row.column[1])
        k = {"x1": 0, "x3": 1}[row.row]
        assert (row.first, row.second) == pytest.approx((a[k, j], b[1 - k, j]))


def test_the_same_seed_does_not_pair_the_same_noise():
    """Both groups draw from the same noise; kept side by side, the differences of equal groups would be zero."""
    source = WishartSource(S3, N, LAM, Q)
    found = gf.compare(posterior(source), posterior(source))
    np.testing.assert_allclose(found["difference"], 0, atol=1e-12)
    np.testing.assert_allclose((found["upper"] - found["lower"]) / found["sd"], 2 * 1.645, rtol=0.1)
    np.testing.assert_allclose(found["p_positive"], 0.5, atol=4.5 * 0.5 / np.sqrt(4000))


def test_weights_of_both_groups_count():
    """Proposals weighted to an l_q target: means and sd are the weighted ones, quantiles of resampled pairs near."""
    posts = [posterior(WishartSource(S, N, LAM, Q), num_draws=20_000) for S in (S3, scatter(3, 12, seed=8))]
    found = gf.compare(*posts)
    rho = [partial_correlation(post.draws.rows(slice(None)))[:, 0, 2] for post in posts]
    w = [post.draws.weights for post in posts]
    means = [v @ x for v, x in zip(w, rho, strict=True)]
    row = found[(found["row"] == "a") & (found["column"] == "c")].iloc[0]
    assert row["difference"] == pytest.approx(means[1] - means[0])
    assert abs(row["difference"] - (rho[1].mean() - rho[0].mean())) > 0.01  # else nothing was tested
    expected = np.sqrt(sum(v @ (x - m) ** 2 for v, x, m in zip(w, rho, means, strict=True)))
    assert row["sd"] == pytest.approx(expected)
    pairs = [np.random.default_rng(k).choice(x, 200_000, p=v) for k, (x, v) in enumerate(zip(rho, w, strict=True))]
    difference = pairs[1] - pairs[0]
    ess = min(1 / np.sum(v**2) for v in w)
    assert abs(np.mean(difference < row["lower"]) - 0.05) < 5 * np.sqrt(0.05 / ess)
    assert abs(row["p_positive"] - np.mean(difference > 0)) < 5 * 0.5 / np.sqrt(ess)


def test_equal_populations_rarely_differ_and_a_planted_difference_is_found():
    """20 pairs of samples of n = 200: intervals of equal pairs exclude zero in about 10 %, false alarms 1e-3.

    Pairs of one table depend on each other, so the bound is that of 60 independent ones. Differences are found in at
    most 7 of 20 equal populations: at a rate of 0.1 false alarms are 1e-3. The link that one population lacks (partial
    correlation 0.45 against 0) is 5 sd: found in all.
    """
    draw, outside, wrong, found = gf.simulate.sample_gaussian, [], [], []
    for seed in range(20):
        chain = group(draw(CHAIN, 200, random_state=seed))
        same = group(draw(CHAIN, 200, random_state=100 + seed), seed=1)
        other = group(draw(BROKEN, 200, random_state=200 + seed), seed=2)
        equal = gf.compare(chain, same)
        outside.append(np.mean((equal["lower"] > 0) | (equal["upper"] < 0)))
        wrong.append(equal["found"].any())
        table = gf.compare(chain, other, names=("chain", "broken"))
        link = table[(table["row"] == "x0") & (table["column"] == "x1")].iloc[0]
        found.append(link["found"] and link["p_positive"] < 0.01 and link["p_different"] > 0.95)
    assert all(found) and sum(wrong) <= 7
    assert stats.binom(60, 0.1).ppf(5e-4) / 60 <= np.mean(outside) <= stats.binom(60, 0.1).ppf(1 - 5e-4) / 60


def exact_group(X, lam, q, seed, **options):
    """Posterior by exact chains, of a penalty that shrinks."""
    data = gf.Scatter.from_data(X)
    settings = {"num_chains": 16, "num_draws": 60, "num_warmup": 100, "thin": 2}
    states = gf.gibbs.sample(jax.random.key(seed), data, lam, q, **settings).pooled
    condition = (np.arange(data.n_features), lam, q, 1.0)
    return Posterior(ChainSource(states), data.names, *condition, num_draws=len(states), scatter=data)


@pytest.mark.slow
def test_the_false_discovery_rate_holds_for_groups_of_different_sizes():
    """80 and 320 rows of one population with edges, shrunk: 30 comparisons of 28 pairs, λ = 4, q = 0.5.

    Scores must not spread by more than 1: their mean square is below 1.3, which 250 independent ones exceed with
    probability 1e-3. Without the division by σ² the smaller group's edges are weaker, and that is a difference.
    """
    truth = np.eye(8) - 0.35 * (np.eye(8, k=1) + np.eye(8, k=-1))
    draw, squares, any_found = gf.simulate.sample_gaussian, [], []
    for seed in range(30):
        small, large = draw(truth, 80, random_state=seed), draw(truth, 320, random_state=1000 + seed)
        first, second = exact_group(small, 4.0, 0.5, seed), exact_group(large, 4.0, 0.5, seed)
        squares.append(np.mean(_score(*_both(first, second)[0]) ** 2))
        any_found.append(gf.compare(first, second).attrs["n_found"] > 0)
    assert np.mean(squares) < 1.3
    assert sum(any_found) <= stats.binom(30, 0.1).ppf(1 - 1e-3)


def test_found_is_the_rule_of_benjamini_and_hochberg(rng):
    """Against a loop over all cuts, and the smallest rate is the p-value of Simes."""
    p = np.r_[rng.uniform(size=40), rng.uniform(0, 1e-3, size=5)]
    adjusted = _adjust(p)
    for rate in (0.01, 0.1, 0.5):
        ordered = np.sort(p)
        kept = [k for k in range(1, p.size + 1) if ordered[k - 1] <= rate * k / p.size]
        np.testing.assert_array_equal(adjusted <= rate, p <= (ordered[max(kept) - 1] if kept else -1))
    assert adjusted.min() == pytest.approx(np.min(np.sort(p) * p.size / np.arange(1, p.size + 1)))
    assert _adjust(np.zeros(0)).shape == (0,)


def test_the_conclusion_agrees_with_the_table(two):
    first, second = two
    table = gf.compare(first, second, rate=0.3)
    assert table.attrs["n_found"] > 0 and table.attrs["p_any"] == table["fdr"].min()
    assert table.attrs["conclusion"].endswith("found among 10 pairs at a false discovery rate of 30 %.")
    nothing = gf.compare(first, first)
    assert nothing.attrs["n_found"] == 0 and not nothing["found"].any()
    assert nothing.attrs["conclusion"].startswith("No evidence of any difference: none of 10 pairs is found at a false")


@pytest.mark.slow
def test_permutations_see_a_difference_and_none_where_there_is_none():
    """19 divisions. A lost link of 0.45 at n = 400 is 6 sd: p = 1/20. Of equal groups p is that by chance in 5 %."""
    draw = gf.simulate.sample_gaussian
    data = draw(CHAIN, 400, random_state=0), draw(BROKEN, 400, random_state=1)
    posts = [exact_group(X, 2.0, 1.0, 0) for X in data]
    options = {"permutations": 19, "progress": False}
    table = gf.compare(*posts, data=data, **options)
    assert table.attrs["permutation_p"] == 1 / 20
    assert table.attrs["conclusion"].endswith("reached in 0 of 19 random divisions of the rows (p = 0.05).")
    halves = data[0][:200], data[0][200:]
    same = gf.compare(*(exact_group(X, 2.0, 1.0, 0) for X in halves), data=halves, **options)
    assert same.attrs["permutation_p"] > 0.05


@pytest.mark.slow
def test_at_low_temperature_equal_groups_do_not_differ():
    """Draws at T are √T times as wide; taken at face value, noise of 40 rows would be 4 sd at T = 0.05."""
    X = gf.simulate.sample_gaussian(np.eye(5), 80, random_state=5)
    cold = []
    for k, half in enumerate((X[:40], X[40:])):
        data = gf.Scatter.from_data(half)
        settings = {"num_chains": 16, "num_draws": 60, "num_warmup": 100, "thin": 2}
        states = gf.gibbs.sample(jax.random.key(k), data, 2.0, 1.0, 0.05, **settings).pooled
        cold.append(Posterior(ChainSource(states), data.names, np.arange(5), 2.0, 1.0, 0.05, num_draws=len(states)))
    assert gf.compare(*cold).attrs["p_any"] > 0.05


@pytest.mark.slow
def test_a_value_that_a_division_lacks_does_not_end_permutations():
    rare = np.random.default_rng(0).normal(size=(40, 3))
    rare[:, 2] = np.arange(40) % 20 == 0  # one in each group of 20
    groups = rare[:20], rare[20:]
    posts = [exact_group(X, 2.0, 1.0, 0) for X in groups]
    assert 0 < gf.compare(*posts, data=groups, permutations=6, progress=False).attrs["permutation_p"] <= 1


@pytest.mark.slow
def test_permutations_of_a_query_keep_its_order():
    """Columns and rows of the chains are put back: a query has the means that the whole matrix gives it."""
    X = gf.simulate.sample_gaussian(CHAIN, 400, random_state=3)
    whole = exact_group(X, 0.01, 1.0, 0)
    like = Posterior(whole.source, whole.names, np.arange(5), 0.01, 1.0, 1.0, scatter=whole.scatter)
    query = np.array([3, 1])
    rows = Posterior(
        ChainSource(whole.source.states[:, query]), whole.names, query, 0.01, 1.0, 1.0, scatter=whole.scatter
    )
    made = _exact_posterior(jax.random.key(1), X, rows)
    np.testing.assert_allclose(made.mean(), like.mean()[query], atol=0.15)
    assert made.mean()[0, 3] > 0.5 and made.mean()[1, 1] > 0.5  # the diagonal is where it belongs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0}, "rate must be a number between 0 and 1"),
        ({"rate": True}, "rate must be"),
        ({"permutations": -1}, "permutations must be a whole number"),
        ({"permutations": 9}, r"9 permutations need the rows of both groups: give data=\(X_first, X_second\)"),
        ({"permutations": 9, "data": (np.zeros((3, 5)), np.zeros((80, 5)))}, "data has 3 rows for a posterior of 60"),
    ],
)
def test_wrong_rates_and_permutations_are_named(two, options, message):
    with pytest.raises(ValueError, match=message):
        gf.compare(*two, **options)


def test_many_rows_give_the_textbook_test():
    """n = 5000: sd of the difference is √2(1 − ρ²)/√n, the normal limit of partial correlations, to 5 %."""
    draw = gf.simulate.sample_gaussian
    posts = [group(draw(CHAIN, 5000, random_state=k), lam=1e-6, seed=k, num_draws=4000) for k in (0, 1)]
    table = gf.compare(*posts)
    rho = table[["first", "second"]].to_numpy()
    np.testing.assert_allclose(table["sd"], np.sqrt(np.sum((1 - rho**2) ** 2, axis=1) / 5000), rtol=0.05)


def test_fitted_models_against_weighted_wishart_draws(model):
    """Two conditions of one model may not be compared; the same model with itself gives twice the variance of one."""
    full = model("full")
    first, second = full.posterior(0.6, 1.0), full.posterior(0.6, 1.0, random_state=5)
    table = gf.compare(first, second)
    exact = Exact(full, 0.6, 1.0, 1.0)
    rho = partial_correlation(exact.rows)
    mean = np.tensordot(exact.weights, rho, 1)
    sd = np.sqrt(2 * np.tensordot(exact.weights, (rho - mean) ** 2, 1))
    upper = np.triu_indices(4, 1)
    np.testing.assert_allclose(table["sd"], sd[upper], rtol=0.08)
    np.testing.assert_allclose(table["difference"], 0, atol=0.03)
    assert not table["found"].any()
    with pytest.raises(ValueError, match=r"λ is 0.6 in one and 2 in the other.*model.posterior\(lam, q\)"):
        gf.compare(first, full.posterior(2.0, 1.0))


def test_posteriors_that_cannot_be_compared(two):
    first, second = two

    def like(post, names=None, query=None, condition=(1.0, 1.0, 1.0), scatter=None):
        query = post.query if query is None else np.array(query)
        source = ChainSource(post.source.states[:, query])
        return Posterior(source, names or post.names, query, *condition, scatter=scatter)

    for other, message in (
        (like(second, names=("x0", "x1", "x2", "x3", "y")), "different variables: 'x4' is in one only"),
        (like(second, query=[0, 1]), "different queries"),
        (like(second, scatter=replace(second.scatter, n_estimated=0)), "the mean is estimated in one and known in"),
        (like(second, condition=(1.0, 0.5, 1.0)), "q is 1 in one and 0.5 in the other"),
        (like(second, condition=(1.0, 1.0, 0.5)), "T is 1 in one and 0.5 in the other"),
        (like(second, condition=(None, 1.0, 1.0)), "λ is 1 in one and an average in the other"),
    ):
        with pytest.raises(ValueError, match=message):
            gf.compare(first, other)
    average = (None, None, 1.0)
    assert gf.compare(like(first, condition=average), like(second, condition=average)).attrs["lam"] is None
    assert len(gf.compare(first, like(second, condition=(1 + 1e-7, 1.0, 1.0)))) == 10  # rounding of the condition
    with pytest.raises(TypeError, match="takes two posteriors, got ndarray"):
        gf.compare(first, np.eye(3))
    for names in ("ab", ("a",), ("a", "a"), ("a", 1), ("a", "b", "c")):
        with pytest.raises(ValueError, match="two different names"):
            gf.compare(first, second, names=names)
    with pytest.raises(ValueError, match="'row' is a column of the result"):
        gf.compare(first, second, names=("row", "b"))
    with pytest.raises(ValueError, match="level"):
        gf.compare(first, second, level=95)
    with pytest.raises(ValueError, match="threshold"):
        gf.compare(first, second, threshold=-1)


def test_the_warning_of_a_poor_fit_points_at_the_caller():
    bad = posterior(WishartSource(S4, N, LAM, Q, proposal=(20 * N, 20 * N * np.eye(4))))
    with pytest.warns(PoorFitWarning) as caught:
        gf.compare(bad, posterior(WishartSource(S4, N, LAM, Q)))
    assert [warning.filename for warning in caught] == [__file__]
