"""Predictions against direct inversion of each draw, least squares with many rows, and simulated data."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression

import ggmflow as gf
from ggmflow.posterior.posterior import PoorFitWarning, Posterior
from ggmflow.posterior.predictive import mixture_quantile, regression_draws
from ggmflow.posterior.source import ChainSource
from tests.support.models import TABLE
from tests.support.wishart import LAM, S3, S4, N, Q, WishartSource, posterior

NAMES = ("a", "b", "c", "d", "e")
COLUMNS = ["mean", "sd", "sd_mean", "lower", "upper"]


def correlated(n, seed, d=5):
    """Rows of five variables of different scales and means."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X[:, 1] += X[:, 0]
    X[:, 2] -= 0.8 * X[:, 1]
    X[:, 4] += 0.5 * X[:, 3] - 0.3 * X[:, 2]
    return pd.DataFrame(X * [1, 20, 0.5, 3, 1] + [5, 0, -1, 40, 2], columns=list(NAMES))


def exact(table, lam=1e-6, num_draws=4000, query=None, seed=0, **options):
    """Without l_q factors the posterior is Wishart(n + d + 1, (S + λI)⁻¹), of which rows are drawn exactly."""
    scatter = gf.Scatter.from_data(table, **options)
    S, d = scatter.matrix, scatter.n_features
    wishart = stats.wishart(df=scatter.n + d + 1, scale=np.linalg.inv(S + lam * np.eye(d)))
    Omega = wishart.rvs(num_draws, random_state=np.random.default_rng(seed))
    rows = np.arange(d) if query is None else scatter.index(query)
    source = ChainSource(Omega[:, rows])
    return Posterior(source, scatter.names, rows, lam, 1.0, 1.0, num_draws=num_draws, scatter=scatter), Omega


@pytest.fixture(scope="module")
def few():
    return exact(correlated(30, 0), lam=1.0)


@pytest.fixture(scope="module")
def many():
    table = correlated(5000, 1)
    return exact(table, num_draws=2000)[0], table


# -------------------------------------------------------------------------------------------------------- conditional
def test_conditional_is_the_partitioned_covariance_of_every_draw(few):
    """Σ_ab Σ_bb⁻¹ and Σ_aa − Σ_ab Σ_bb⁻¹ Σ_ba, in the units of the data, averaged by the law of total variance."""
    post, Omega = few
    scale, mu = post.scatter.scale, post.scatter.mean
    Sigma = np.linalg.inv(Omega) * np.outer(scale, scale)
    given = pd.DataFrame({"e": [2.0, -1.0, 3.0], "b": [5.0, 30.0, 0.0]}, index=["u", "v", "w"])
    found = post.conditional(given, level=0.8)
    a, b = np.array([0, 2, 3]), np.array([4, 1])
    B = Sigma[:, a][:, :, b] @ np.linalg.inv(Sigma[:, b][:, :, b])
    V = np.diagonal(Sigma[:, a][:, :, a] - B @ Sigma[:, b][:, :, a], axis1=1, axis2=2)
    for label, x in zip(given.index, given.to_numpy(), strict=True):
        mean = mu[a] + B @ (x - mu[b])
        mine = found[found["case"] == label]
        assert list(mine["variable"]) == ["a", "c", "d"]
        np.testing.assert_allclose(mine["mean"], mean.mean(axis=0))
        np.testing.assert_allclose(mine["sd_mean"], mean.std(axis=0))
        np.testing.assert_allclose(mine["sd"], np.sqrt(V.mean(axis=0) + mean.var(axis=0)))
        for column, prob in (("lower", 0.1), ("upper", 0.9)):
            share = stats.norm.cdf(mine[column].to_numpy(), mean, np.sqrt(V)).mean(axis=0)
            np.testing.assert_allclose(share, prob, atol=1e-7)
    assert list(found.columns) == ["case", "variable", *COLUMNS]
    assert found.attrs == {"level": 0.8, "weighted": False, "message": "Exact draws: all have equal weight."}


def test_conditional_is_least_squares_with_many_rows(many):
    """n = 5000: prediction within 1e-3 sd of the fit, sd of the residuals, sd_mean that of the textbook."""
    post, table = many
    new = correlated(200, 2)
    for target in ("b", "c"):
        known = [name for name in NAMES if name != target]
        fit = LinearRegression().fit(table[known].to_numpy(), table[target])
        found = post.conditional(new[known])
        residual = table[target] - fit.predict(table[known].to_numpy())
        sigma = residual.std()
        assert np.max(np.abs(found["mean"] - fit.predict(new[known].to_numpy()))) < 0.01 * sigma
        np.testing.assert_allclose(found["sd"], sigma, rtol=0.02)
        # σ²(x − x̄)ᵀ(XᵀX)⁻¹(x − x̄): without the term 1/n of the mean, which counts as known
        centred = table[known] - table[known].mean()
        x = (new[known] - table[known].mean()).to_numpy()
        textbook = sigma * np.sqrt(np.sum(x @ np.linalg.inv(centred.T @ centred) * x, axis=1))
        np.testing.assert_allclose(
            found["sd_mean"], textbook, rtol=0.08
        )  # sd of 2000 draws: 1.6 %; 400 of them at 5 se


@pytest.mark.slow
def test_predictive_intervals_cover():
    """90 % intervals for a new value, over 300 data sets of 20 rows from the prior's own model; false alarms 1e-4.

    μ counts as known, so data sets are centred at the truth. Under Ω ~ W(d + 1, I/λ) coverage is exact.
    """
    rng, d, n, inside, total = np.random.default_rng(5), 3, 20, 0, 300
    for _ in range(total):
        Omega = stats.wishart(df=d + 1, scale=np.eye(d)).rvs(random_state=rng)
        X = rng.multivariate_normal(np.zeros(d), np.linalg.inv(Omega), size=n + 1)
        draws = stats.wishart(df=n + d + 1, scale=np.linalg.inv(X[:n].T @ X[:n] + np.eye(d)))
        source = ChainSource(draws.rvs(400, random_state=rng))
        post = Posterior(source, ("a", "b", "c"), np.arange(d), 1.0, 1.0, 1.0, num_draws=400)
        found = post.conditional({"a": X[n, 0], "c": X[n, 2]}).iloc[0]
        inside += found["lower"] < X[n, 1] < found["upper"]
    assert stats.binomtest(int(inside), total, 0.9).pvalue > 1e-4


def test_nothing_given_is_the_marginal(few):
    post, Omega = few
    found = post.conditional({})
    assert list(found["variable"]) == list(NAMES) and set(found["case"]) == {0}
    np.testing.assert_allclose(found["mean"], post.scatter.mean)
    variance = np.diagonal(np.linalg.inv(Omega), axis1=1, axis2=2).mean(axis=0)
    np.testing.assert_allclose(found["sd"], post.scatter.scale * np.sqrt(variance))
    assert np.all(found["sd_mean"] < 1e-10)
    pd.testing.assert_frame_equal(post.conditional(pd.DataFrame(index=[0])), found)


def test_a_hole_in_a_table_is_predicted(few):
    post, _ = few
    table = correlated(3, 8)
    table.iloc[0, 1] = table.iloc[2, [1, 3]] = np.nan
    found = post.conditional(table)  # the second case is complete: nothing to say
    assert list(zip(found["case"], found["variable"], strict=True)) == [(0, "b"), (2, "b"), (2, "d")]
    for k in (0, 2):
        alone = post.conditional(table.iloc[k].dropna())
        np.testing.assert_allclose(found.loc[found["case"] == k, COLUMNS], alone[COLUMNS])


def test_every_kind_of_given_is_the_same(few):
    post, _ = few
    expected = post.conditional({"a": [1.0, 2.0], "c": [0.5, 0.5]})
    table = pd.DataFrame({"c": [0.5, 0.5], "a": [1, 2]})
    for given in (table, pl.from_pandas(table), {"c": 0.5, "a": np.array([1, 2])}, {"c": [0.5], "a": (1, 2)}):
        pd.testing.assert_frame_equal(post.conditional(given), expected)
    one = expected[expected["case"] == 0]
    for given in (pd.Series({"a": 1.0, "c": 0.5}), {"a": 1, "c": 0.5, "b": None}, {"a": True, "c": 0.5, "d": np.nan}):
        pd.testing.assert_frame_equal(post.conditional(given), one)


def test_many_cases_need_little_memory(few):
    """10 000 cases × 400 draws; each block of cases gives the same as one case alone."""
    post = exact(correlated(30, 0), num_draws=400)[0]
    cases = correlated(10_000, 3).drop(columns="c")
    found = post.conditional(cases)
    assert len(found) == 10_000
    for k in (0, 4321, 9999):
        alone = post.conditional(cases.iloc[[k]])
        np.testing.assert_allclose(found.loc[found["case"] == k, COLUMNS], alone[COLUMNS], rtol=1e-6)


def test_without_the_data_the_working_scale_is_used(few):
    post, _ = few
    bare = Posterior(post.source, post.names, post.query, 1.0, 1.0, 1.0)
    scale, mu = post.scatter.scale, post.scatter.mean
    a = post.conditional({"a": 7.0, "b": 3.0})
    b = bare.conditional({"a": (7.0 - mu[0]) / scale[0], "b": (3.0 - mu[1]) / scale[1]})
    np.testing.assert_allclose(a["mean"], b["mean"] * scale[2:] + mu[2:])
    np.testing.assert_allclose(a["sd"], b["sd"] * scale[2:])
    x, y = post.predictive(20, 0), bare.predictive(20, 0)
    np.testing.assert_allclose(x, y * scale + mu)
    pd.testing.assert_frame_equal(post.r_squared(), bare.r_squared())
    with pytest.raises(ValueError, match="other names"):
        Posterior(post.source, tuple("vwxyz"), post.query, 1.0, 1.0, 1.0, scatter=post.scatter)


def test_weights_are_used_as_in_other_estimates():
    """Draws of a Wishart that are weighted to an l_q target: the answer is the weighted average."""
    post = posterior(WishartSource(S3, N, LAM, Q), num_draws=5000)
    draws, w = post.draws.rows(slice(None)), post.draws.weights
    slope = -draws[:, 1, [0, 2]] / draws[:, 1, [1]]
    mean = slope @ [0.7, -1.0]
    found = post.conditional({"a": 0.7, "c": -1.0}).iloc[0]
    assert found["mean"] == pytest.approx(w @ mean)
    assert found["sd_mean"] == pytest.approx(np.sqrt(w @ (mean - w @ mean) ** 2))
    assert found["sd"] == pytest.approx(np.sqrt(w @ (1 / draws[:, 1, 1]) + found["sd_mean"] ** 2))
    plain = post.conditional({"a": 0.7, "c": -1.0}, weighted=False)
    assert plain["mean"][0] == pytest.approx(mean.mean()) != found["mean"] and not plain.attrs["weighted"]
    R2 = 1 - 1 / (draws[:, 1, 1] * np.linalg.inv(draws)[:, 1, 1])
    assert post.r_squared().loc["b", "mean"] == pytest.approx(w @ R2)
    # Rows of the weighted posterior: variance of x_b against E Σ_bb, both ways, at 4.5 se of 40 000 rows.
    variance = np.linalg.inv(draws)[:, 1, 1]
    for weighted, expected in ((None, w @ variance), (False, variance.mean())):
        squares = post.predictive(40_000, 1, weighted=weighted)[:, 1] ** 2
        assert abs(squares.mean() - expected) < 4.5 * squares.std() / 200


def test_mixture_quantiles_of_hard_mixtures():
    """Far apart, of very different widths, one draw of all the weight: the share below is the requested one."""
    rng = np.random.default_rng(0)
    mean = np.stack([np.r_[-50.0, 50.0, 0.0], np.r_[0.0, 0.0, 0.0], np.r_[1e6, 1e6 + 1, 1e6 + 2]], axis=1)[:, None]
    sd = np.array([[1e-3, 1.0, 30.0], [1.0, 100.0, 1e-2], [1.0, 1.0, 1.0]]).T[:, None]
    for w in (np.r_[0.2, 0.3, 0.5], np.r_[1.0, 0.0, 0.0], rng.dirichlet([1, 1, 1])):
        for prob in (1e-3, 0.05, 0.21, 0.5, 0.95, 0.999):
            x = mixture_quantile(mean, sd, w, prob)
            share = np.tensordot(w, stats.norm.cdf(x, mean, sd), 1)
            np.testing.assert_allclose(share, prob, atol=1e-4)


# --------------------------------------------------------------------------------------------------------- predictive
def test_new_rows_have_the_posterior_mean_of_the_covariance(few):
    """E xxᵀ = E Ω⁻¹ over the draws, 15 entries and 5 means at 4.5 se of 100 000 rows: false alarms 2e-4."""
    post, Omega = few
    x = (post.predictive(100_000, random_state=0) - post.scatter.mean) / post.scatter.scale
    products = np.einsum("ni,nj->nij", x, x)
    error = products.std(axis=0) / np.sqrt(len(x))
    assert np.all(np.abs(products.mean(axis=0) - np.linalg.inv(Omega).mean(axis=0)) < 4.5 * error)
    assert np.all(np.abs(x.mean(axis=0)) < 4.5 * x.std(axis=0) / np.sqrt(len(x)))


def test_new_rows_are_the_multivariate_t_of_the_wishart():
    """∫ N(0, Ω⁻¹) Wishart(ν, Ψ⁻¹) dΩ is t with ν − d + 1 degrees: its margins by Kolmogorov's test, p > 1e-4 each."""
    rng, d, n = np.random.default_rng(2), 3, 4
    Psi = np.array([[2.0, 0.5, 0], [0.5, 1.0, 0.3], [0, 0.3, 3.0]])
    source = ChainSource(stats.wishart(df=n + d + 1, scale=np.linalg.inv(Psi)).rvs(20_000, random_state=rng))
    x = Posterior(source, ("a", "b", "c"), np.arange(3), 1.0, 1.0, 1.0, num_draws=20_000).predictive(20_000, 3)
    for j in range(d):
        assert stats.kstest(x[:, j], stats.t(n + 2, scale=np.sqrt(Psi[j, j] / (n + 2))).cdf).pvalue > 1e-4


@pytest.mark.slow
def test_new_rows_of_a_fitted_model_resemble_the_data(model):
    """Through the estimator: 90 % predictive intervals of the columns hold about 90 % of the values fitted."""
    post = model("full").posterior(0.6, 1.0)
    x = post.predictive(4000, random_state=1)
    assert x.shape == (4000, 4)
    low, high = np.quantile(x, [0.05, 0.95], axis=0)
    assert 0.75 < np.mean((TABLE > low) & (TABLE < high)) < 1
    refined = post.refine(sweeps=10, num_chains=100)
    assert refined.scatter is post.scatter is model("full").scatter_
    np.testing.assert_allclose(refined.predictive(4000, 0).mean(axis=0), TABLE.mean(), atol=0.5)


def test_random_state_of_new_rows(few):
    post, _ = few
    np.testing.assert_array_equal(post.predictive(5, 1), post.predictive(5, 1))
    assert not np.array_equal(post.predictive(5, 1), post.predictive(5, 2))
    assert not np.array_equal(post.predictive(5), post.predictive(5))
    assert post.predictive(1).shape == (1, 5)


# ----------------------------------------------------------------------------------------------------------- R squared
def test_r_squared_is_that_of_least_squares_with_many_rows(many):
    """n = 5000: mean within 0.003 of 1 − RSS/TSS, whose own sd is about 0.01; the sd by 2(1 − R²)√(R²/n)."""
    post, table = many
    found = post.r_squared(level=0.95)
    assert list(found.index) == list(NAMES) and found.index.name == "variable" and found.attrs["level"] == 0.95
    for name in NAMES:
        others = table.drop(columns=name).to_numpy()
        R2 = LinearRegression().fit(others, table[name]).score(others, table[name])
        assert abs(found.loc[name, "mean"] - R2) < 0.003
        assert found.loc[name, "lower"] < R2 < found.loc[name, "upper"]
        asymptotic = 2 * (1 - R2) * np.sqrt(R2 / len(table))
        assert found.loc[name, "sd"] == pytest.approx(asymptotic, rel=0.1)


def test_r_squared_of_one_draw(few):
    post, Omega = few
    R2 = 1 - 1 / np.diagonal(Omega, axis1=1, axis2=2) / np.diagonal(np.linalg.inv(Omega), axis1=1, axis2=2)
    found = post.r_squared(0.8)
    np.testing.assert_allclose(found["mean"], R2.mean(axis=0))
    np.testing.assert_allclose(found["sd"], R2.std(axis=0))
    np.testing.assert_allclose(found[["lower", "upper"]].T, np.quantile(R2, [0.1, 0.9], axis=0, method="hazen"))


# --------------------------------------------------------------------------------------------------------------- query
@pytest.fixture(scope="module")
def block():
    """Rows of d and b among five variables, with the results of the whole matrix."""
    return exact(correlated(30, 0), lam=1.0, num_draws=20_000, query=["d", "b"])


def test_a_query_is_predicted_from_all_others(block, few):
    post, Omega = block
    whole = Posterior(ChainSource(Omega), NAMES, np.arange(5), 1.0, 1.0, 1.0, num_draws=20_000, scatter=post.scatter)
    given = {"a": [5.5, 4.0], "c": [-1.0, 0.0], "e": [2.0, 1.0]}
    pd.testing.assert_frame_equal(post.conditional(given), whole.conditional(given))
    given["d"] = [41.0, np.nan]  # a query variable, too, may be known
    found = post.conditional(given)
    assert list(zip(found["case"], found["variable"], strict=True)) == [(0, "b"), (1, "b"), (1, "d")]
    pd.testing.assert_frame_equal(found, whole.conditional(given))
    with pytest.raises(ValueError, match="give values for 'a', 'e', or fit without a query"):
        post.conditional({"c": 1.0, "b": 2.0})


def test_new_rows_and_r_squared_of_a_query_are_those_of_the_whole(block):
    """Without l_q factors blanket and full model agree, so the t and χ² that stand for Σ₂₂ must give the same.

    R²: mean and sd of 2 variables at 4.5 se; covariance of new rows: 15 entries at 4.5 se of both; false alarms 3e-4.
    """
    post, Omega = block
    whole = Posterior(ChainSource(Omega), NAMES, np.arange(5), 1.0, 1.0, 1.0, num_draws=20_000, scatter=post.scatter)
    found, expected = post.r_squared(), whole.r_squared().loc[["d", "b"]]
    assert list(found.index) == ["d", "b"]
    error = expected["sd"] / np.sqrt(20_000)
    assert np.all(np.abs(found["mean"] - expected["mean"]) < 4.5 * np.sqrt(2) * error)
    assert np.all(np.abs(found["sd"] / expected["sd"] - 1) < 4.5 * np.sqrt(2 / 20_000) * np.sqrt(2))
    np.testing.assert_allclose(found[["lower", "upper"]], expected[["lower", "upper"]], atol=0.02)
    scale, mu = post.scatter.scale, post.scatter.mean
    x, y = ((each.predictive(100_000, 5) - mu) / scale for each in (post, whole))
    xx, yy = (np.einsum("ni,nj->nij", z, z) for z in (x, y))
    error = np.sqrt((xx.var(axis=0) + yy.var(axis=0)) / 100_000)
    assert np.all(np.abs(xx.mean(axis=0) - yy.mean(axis=0)) < 4.5 * error)
    for j in range(5):
        assert stats.ks_2samp(x[:, j], y[:, j]).pvalue > 1e-5


def test_a_tempered_query():
    """At T the whole matrix is Wishart(n/T + d + 1, T(S + λI)⁻¹); R² as above, at 4.5 se."""
    T, rows, d = 0.5, np.array([1, 3]), 4
    scatter = gf.Scatter.from_covariance(S4 / N, N, names=list("abcd"))
    wishart = stats.wishart(df=N / T + d + 1, scale=T * np.linalg.inv(S4 + LAM * np.eye(d)))
    Omega = wishart.rvs(20_000, random_state=np.random.default_rng(4))
    options = {"num_draws": 20_000, "scatter": scatter}
    post = Posterior(ChainSource(Omega[:, rows]), tuple("abcd"), rows, LAM, 1.0, T, **options)
    whole = Posterior(ChainSource(Omega), tuple("abcd"), np.arange(d), LAM, 1.0, T, **options)
    found, expected = post.r_squared(), whole.r_squared().loc[["b", "d"]]
    assert np.all(np.abs(found["mean"] - expected["mean"]) < 4.5 * np.sqrt(2 / 20_000) * expected["sd"])
    x, y = (each.predictive(20_000, 6) for each in (post, whole))
    for j in range(d):
        assert stats.ks_2samp(x[:, j], y[:, j]).pvalue > 1e-5


def test_a_query_without_data_or_with_an_average(block):
    post, _ = block
    bare = Posterior(post.source, NAMES, post.query, 1.0, 1.0, 1.0)
    average = Posterior(post.source, NAMES, post.query, None, None, 1.0, scatter=post.scatter)
    for call in (lambda each: each.predictive(3), lambda each: each.r_squared()):
        with pytest.raises(ValueError, match=r"needs the data \(`scatter`\)"):
            call(bare)
        with pytest.raises(ValueError, match=r"one λ, not an average: `posterior\(lam, q\)`"):
            call(average)
    assert len(bare.conditional({"a": 0.0, "c": 1.0, "e": 0.0})) == 2


@pytest.mark.slow
def test_a_fitted_query_predicts(model):
    post = model("blanket").posterior(0.6, 1.0)
    found = post.conditional(TABLE[["b", "d"]])
    assert list(found["variable"].unique()) == ["a", "c"] and len(found) == 2 * len(TABLE)
    assert list(post.r_squared().index) == ["c", "a"] and post.r_squared()["mean"].between(0, 1).all()
    assert post.predictive(7, 0).shape == (7, 4)


# ------------------------------------------------------------------------------------------------------- nonparanormal
def test_scores_go_back_to_values():
    """Values between observed ones by lines, beyond them the last; columns with ties take observed values only."""
    table = pd.DataFrame({"x": [3.0, 1.0, 2.0, 10.0, 7.0], "grade": [1, 1, 2, 3, 3]})
    scatter = gf.Scatter.from_data(table, transform="nonparanormal")
    np.testing.assert_allclose(scatter.to_original(scatter.working(table)), table, rtol=1e-12)
    new = scatter.to_original(np.random.default_rng(0).normal(size=(500, 2)))
    assert set(new[:, 1]) == {1, 2, 3} and new[:, 0].min() == 1 and new[:, 0].max() == 10 and len(set(new[:, 0])) > 300
    w = np.linspace(-1, 1, 7)[:, None]
    there = scatter.to_original(w, np.array([0]))
    again = scatter.to_working(np.column_stack([there, np.full(7, np.nan)]))
    np.testing.assert_allclose(again[:, [0]], w, atol=1e-12)
    assert np.isnan(again[:, 1]).all()
    plain = gf.Scatter.from_data(table)
    np.testing.assert_allclose(plain.to_original(plain.working(table)), table)


def test_nonparanormal_predictions_are_invariant_and_in_the_data_scale():
    """exp of a column: quantiles follow exactly; new values have the margins of the data; mean is by quadrature."""
    table = correlated(200, 4)
    curved = table.assign(b=np.exp(table["b"] / 20))
    plain, _ = exact(table, transform="nonparanormal", num_draws=500)
    post, _ = exact(curved, transform="nonparanormal", num_draws=500)
    given = table.loc[:20, ["a", "c", "d", "e"]]
    a, b = plain.conditional(given), post.conditional(given)
    for column in ("lower", "upper"):
        tables = [pd.DataFrame({"b": each[column]}).reindex(columns=list(NAMES)).to_numpy(float) for each in (a, b)]
        scores = [each.scatter.to_working(values)[:, 1] for each, values in zip((plain, post), tables, strict=True)]
        np.testing.assert_allclose(*scores, atol=1e-6)
    assert np.all((b["lower"] < b["mean"]) & (b["mean"] < b["upper"]))
    # Against brute force: 400 normals for each draw.
    slope, variance = regression_draws(post.draws, np.array([1]))
    w = post.scatter.to_working(given.reindex(columns=list(NAMES)).to_numpy())[0, [0, 2, 3, 4]]
    z = (slope[:, 0] @ w)[:, None] + np.sqrt(variance) * np.random.default_rng(0).normal(size=(500, 400))
    x = post.scatter.to_original(z[..., None], np.array([1]))[..., 0]
    assert b["mean"][0] == pytest.approx(x.mean(), abs=4.5 * x.std() / np.sqrt(x.size))
    square = (x - x.mean()) ** 2
    assert b["sd"][0] ** 2 == pytest.approx(square.mean(), abs=4.5 * square.std() / np.sqrt(x.size))
    # What the noise within a draw leaves of the means of 400: its variance/400.
    between = x.mean(axis=1).var() - x.var(axis=1, ddof=1).mean() / 400
    assert b["sd_mean"][0] == pytest.approx(np.sqrt(between), rel=0.1)
    new = post.predictive(5000, 0)
    for j in range(
        5
    ):  # 5000 rows against 200: distance of the distribution functions, bounded by interpolation and noise
        assert stats.ks_2samp(new[:, j], curved.iloc[:, j]).statistic < 0.05


def test_an_ordinal_column_is_predicted_by_its_probabilities():
    """Of x_b in {1, 2, 3}: mean and sd by Φ at the cuts, exactly known in each draw; new values are grades.

    Quadrature places a cut to within one point of probability ≤ 0.1: an error of sd ≤ 0.03 in each of 2000 draws and
    for each of two cuts, so 1e-3 in the mean, which is tested at 4 of that.
    """
    table = correlated(300, 9)
    table["b"] = np.digitize(table["b"], [-10, 20]) + 1
    post, _ = exact(table, transform="nonparanormal", num_draws=2000)
    given = table.loc[:5, ["a", "c", "d", "e"]]
    slope, variance = regression_draws(post.draws, np.array([1]))
    w = post.scatter.to_working(given.reindex(columns=list(NAMES)).to_numpy())[:, [0, 2, 3, 4]]
    fine = np.linspace(-6, 6, 200_001)
    grades = post.scatter.to_original(fine[:, None], np.array([1]))[:, 0]
    cuts = fine[np.searchsorted(grades, [2, 3])]
    below = stats.norm.cdf(cuts[:, None, None], slope[:, 0] @ w.T, np.sqrt(variance))  # (cut, draw, case)
    mean = 3 - below.sum(axis=0)
    square = 9 - 5 * below[1] - 3 * below[0]
    found = post.conditional(given)
    np.testing.assert_allclose(found["mean"], mean.mean(axis=0), atol=4e-3)
    np.testing.assert_allclose(found["sd"], np.sqrt(square.mean(axis=0) - mean.mean(axis=0) ** 2), atol=8e-3)
    np.testing.assert_allclose(found["sd_mean"], mean.std(axis=0), atol=0.03)
    new = post.predictive(20_000, 0)[:, 1]
    shares = [np.mean(table["b"] == grade) for grade in (1, 2, 3)]
    np.testing.assert_allclose([np.mean(new == grade) for grade in (1, 2, 3)], shares, atol=0.02)


# ------------------------------------------------------------------------------------------------------------ mistakes
@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"aa": 1.0}, ValueError, "no column is named 'aa': did you mean 'a'"),
        ({0: 1.0}, ValueError, "no column is named '0'"),
        (dict.fromkeys("abcde", 1.0), ValueError, "nothing is left to predict"),
        ({"a": "tall"}, ValueError, "column 'a', row 0: could not convert"),
        ({"a": {}}, TypeError, "column 'a', row 0"),
        ({"a": np.inf}, ValueError, "column 'a', row 0 is inf: give finite values"),
        ({"a": 1e300}, ValueError, r"'a' = 1e\+300 is \S+ standard deviations from its mean, too far"),
        ({"a": [1.0, 2.0], "b": [1.0, 2.0, 3.0]}, ValueError, "'a' has 2 values, another variable 3"),
        ({"a": [[1.0, 2.0]]}, TypeError, "column 'a', row 0"),
        ({"a": 1j}, ValueError, "Complex"),
        (pd.Series([1.0, 2.0], index=["a", "a"]), ValueError, "names must differ, but these repeat: 'a'"),
        (pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), ValueError, "these repeat: 'a'"),
        (pd.DataFrame({"a": []}), ValueError, "no cases"),
        ([1.0, 2.0], TypeError, "must name the variables that are known, got list"),
        (np.ones((2, 5)), TypeError, "got ndarray"),
        (None, TypeError, "got NoneType"),
        ("a", TypeError, "got str"),
    ],
)
def test_wrong_given(few, given, kind, message):
    with pytest.raises(kind, match=message):
        few[0].conditional(given)


def test_other_wrong_arguments(few):
    post, _ = few
    for call in (lambda: post.conditional({}, level=90), lambda: post.r_squared(level=0)):
        with pytest.raises(ValueError, match="level must be"):
            call()
    with pytest.raises(ValueError, match="num_draws"):
        post.predictive(0)
    repeated = pd.DataFrame({1: [0.0], "1": [0.0]})
    with pytest.raises(ValueError, match="no column is named '1'"):
        post.conditional(repeated)
    with pytest.raises(ValueError, match="twice"):
        post.conditional({1: 0.0, "1": 0.0})


def test_draws_that_rounding_has_spoilt():
    source = ChainSource(np.tile(np.array([[1.0, 1.0 + 1e-9], [1.0 + 1e-9, 1.0]]), (10, 1, 1)))
    post = Posterior(source, ("a", "b"), np.arange(2), 1.0, 1.0, 1.0, num_draws=10)
    for call in (lambda: post.predictive(3), lambda: post.conditional({}), lambda: post.r_squared()):
        with pytest.raises(ValueError, match="not positive definite in double precision"):
            call()


@pytest.mark.parametrize("call", [("predictive", 5), ("conditional", {"a": 1.0}), ("r_squared",)])
def test_the_warning_of_a_poor_fit_points_at_the_caller(call):
    bad = posterior(WishartSource(S3, N, LAM, Q, proposal=(20 * N, 20 * N * np.eye(3))))
    with pytest.warns(PoorFitWarning) as caught:
        getattr(bad, call[0])(*call[1:])
    assert [warning.filename for warning in caught] == [__file__]
