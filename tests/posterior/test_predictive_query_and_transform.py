"""Predictions of a query, and in the scale of the data after a transform to normal scores."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import ggmflow as gf
from ggmflow.posterior.posterior import Posterior
from ggmflow.posterior.predictive import regression_draws
from ggmflow.posterior.source import ChainSource
from tests.support.models import TABLE
from tests.support.predictions import NAMES, correlated, exact
from tests.support.wishart import LAM, S4, N


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
    scatter = gf.Scatter.from_covariance(S4 / N, N, names=list("abcd"), mean="known")
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
