"""Predictions against direct inversion of each draw, least squares with many rows, and simulated data."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression

from ggmflow.posterior.posterior import PoorFitWarning, Posterior
from ggmflow.posterior.predictive import mixture_quantile
from ggmflow.posterior.source import ChainSource
from tests.support.models import TABLE
from tests.support.predictions import COLUMNS, NAMES, correlated, exact
from tests.support.wishart import LAM, S3, N, Q, WishartSource, posterior


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


def test_an_estimated_mean_adds_its_uncertainty():
    """Against draws of the mean, μ ~ N(x̄, Ω⁻¹/rows): variances of 20 000 draws, within 5 % (5 sd, 1e-5 in all)."""
    table = correlated(12, seed=4)
    post, Omega = exact(table, num_draws=20_000, mean="estimated")
    assert post.scatter.n == 11
    rng, unknown, known = np.random.default_rng(0), [0, 1], [2, 3, 4]
    covariance = np.linalg.inv(Omega)
    mu = (np.linalg.cholesky(covariance) @ rng.normal(size=(len(Omega), 5, 1)))[:, :, 0] / np.sqrt(12)
    at = post.scatter.to_working(table.to_numpy()[:1])[0, known]
    inverse = np.linalg.inv(Omega[:, unknown][:, :, unknown])
    slope = -inverse @ Omega[:, unknown][:, :, known]
    center = mu[:, unknown] + (slope @ (at - mu[:, known])[:, :, None])[:, :, 0]
    of_mean = center.var(axis=0)
    total = of_mean + np.diagonal(inverse, axis1=1, axis2=2).mean(axis=0)
    found = post.conditional(dict(zip("cde", table.iloc[0, 2:], strict=True)))
    scale = post.scatter.scale[unknown]
    np.testing.assert_allclose((found["sd_mean"] / scale) ** 2, of_mean, rtol=0.05)
    np.testing.assert_allclose((found["sd"] / scale) ** 2, total, rtol=0.05)
    new = post.predictive(20_000, random_state=0)
    expected = (1 + 1 / 12) * covariance.mean(axis=0).diagonal()
    np.testing.assert_allclose((new / post.scatter.scale).var(axis=0), expected, rtol=0.08)


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
