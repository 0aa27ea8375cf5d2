"""Answers of a trained flow: both architectures against exact answers at d = 4, queries, ranges, estimates."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_iris

import ggmflow as gf
from ggmflow.errors.advice import Surface, message_of
from ggmflow.estimator import fitted_flow
from ggmflow.estimator import graphical_flow as module
from ggmflow.model.conditions import Boundary, Choice
from ggmflow.train.loop import CHUNK
from tests.support.models import NAMES, TABLE, Exact, quick

STRUCTURED = [(0.5, 1.0, 1.0), (2.0, 0.25, 1.0), (3.0, 0.5, 1.0), (2.0, 1.25, 0.3)]


PAPER = [(0.5, 1.0, 1.0), (3.0, 0.5, 1.0), (2.0, 1.0, 0.3)]


CASES = [(kind, *condition) for kind in ("full", "blanket") for condition in STRUCTURED]
CASES += [
    pytest.param((kind, *condition), marks=pytest.mark.slow)
    for kind in ("paper", "paper blanket")
    for condition in PAPER
]
NUM_DRAWS = 20_000


@pytest.fixture(params=CASES, ids=lambda case: "-".join(map(str, case)), scope="module")
def answer(request, model):
    kind, *condition = request.param
    fitted = model(kind)
    post = fitted.posterior(*condition, num_draws=NUM_DRAWS, random_state=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gf.PoorFitWarning)  # judged below, with a limit of its own
        post.mean()
    return kind, post, Exact(fitted, *condition)


def test_the_elbo_comes_near_the_exact_normalizer(answer):
    """Gap and effective size after a short training; and log Z = log E_q[p̃/q], which holds only if q is normalized.

    |z| < 5 for log Z: false alarms 6e-7 each, 1e-5 for all. The limits of gap and effective size are about twice what
    two seeds reached (0.05 and 0.9 `structured`, 0.28 and 0.69 `paper`).
    """
    kind, post, exact = answer
    found = post.diagnostics()
    gap, least = (0.1, 0.8) if kind in ("full", "blanket") else (0.6, 0.45)
    assert exact.ess > 500  # the oracle must be able to judge
    se = np.hypot(found["log_normalizer_se"], exact.log_Z_se)
    assert se < 0.05
    assert abs(found["log_normalizer"] - exact.log_Z) < 5 * se
    assert exact.log_Z - found["elbo"] < gap
    assert exact.log_Z - found["elbo"] > -5 * se
    assert found["ess"] > least
    assert found["khat"] < 0.7
    assert found["weighted"]


def test_means_and_quantiles_are_exact_when_weighted(answer):
    """40 z-scores at most, in units of mean and of probability, |z| < 5: false alarms 2e-5 a case, 3e-4 in all."""
    _, post, exact = answer
    effective = 1 / (1 / (NUM_DRAWS * post.diagnostics()["ess"]) + 1 / exact.ess)
    assert np.all(np.abs(post.mean() - exact.mean) < 5 * exact.sd / np.sqrt(effective))
    for p in (0.05, 0.5, 0.95):
        assert np.all(np.abs(exact.cdf(post.quantile(p)) - p) < 5 * np.sqrt(p * (1 - p) / effective))


def test_means_and_quantiles_without_weights_are_close(answer):
    """Accuracy after a short training, in sd and in probability; plus five standard errors of the comparison.

    The largest of the entries; two seeds had 0.19 and 0.07 (`structured`), 0.17 and 0.08 (`paper`). The published
    architecture is far from done after so few steps, and where it is then depends on a processor's rounding: 0.35 on
    another one, where weights made it right all the same.
    """
    kind, post, exact = answer
    bias, shift = (0.3, 0.12) if kind in ("full", "blanket") else (0.6, 0.24)
    error = np.sqrt(1 / NUM_DRAWS + 1 / exact.ess)
    assert np.all(np.abs(post.mean(weighted=False) - exact.mean) / exact.sd < bias + 5 * error)
    for p in (0.05, 0.5, 0.95):
        found = exact.cdf(post.quantile(p, weighted=False))
        assert np.all(np.abs(found - p) < shift + 5 * np.sqrt(p * (1 - p)) * error)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "blanket", "paper"])
def test_log_prob_integrates_to_one(model, kind):
    """∫ q dΩ = E_W[q/W] with Wishart draws, q evaluated through the inverse: |z| < 5, false alarms 6e-7 each."""
    exact = Exact(model(kind), 0.6, 1.0, 1.0, num_draws=6000)
    ratio = np.exp(model(kind).posterior(0.6, 1.0).log_prob(exact.rows) - exact.log_proposal(exact.rows))
    se = ratio.std() / np.sqrt(len(ratio))
    assert se < 0.05
    assert abs(ratio.mean() - 1) < 5 * se


@pytest.mark.slow
def test_paper_knows_two_temperatures(model):
    paper = model("paper")
    a, b = (paper.posterior(2.0, 1.0, T, num_draws=500).sd(weighted=False) for T in (1.0, 0.3))
    assert np.all(b < 0.8 * a)
    with pytest.raises(ValueError, match=r"has flows at the temperatures 1 and 0\.3 only, got 0\.5"):
        paper.posterior(2.0, 1.0, 0.5)


def test_command_line_names_a_temperature_without_a_flow_as_an_option(untrained):
    fitted = quick(temperature=(0.1, 1.0), lam=2.0, q=1.0).fit(TABLE)
    fitted._snapshots = {1.0: fitted.flow_, 0.1: fitted.flow_}
    with pytest.raises(ValueError, match=r"flows at the temperatures 1 and 0\.1 only, got 0\.5") as caught:
        fitted.posterior(2.0, 1.0, 0.5)
    assert message_of(caught.value, Surface.COMMAND_LINE).startswith("--temperature must be one that was kept: ")


def test_draws_at_low_temperature_are_near_the_graphical_lasso(model):
    """At T = 0.01 and q = 1; the exact tempered mean is itself about 0.01 away."""
    full, lam = model("full"), 2.0
    mode = gf.baselines.graphical_lasso(full.scatter_.emp_cov, full.scatter_.n, lam).precision
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gf.PoorFitWarning)
        cold = full.posterior(lam, 1.0, 0.01).mean()
        warm = full.posterior(lam, 1.0, 1.0).mean()
    assert np.sqrt(np.mean((cold - mode) ** 2)) < 0.03
    assert np.sqrt(np.mean((warm - mode) ** 2)) > 0.06


@pytest.mark.slow
def test_rows_follow_the_query_and_columns_the_data(model, untrained):
    blanket = model("blanket")
    np.testing.assert_array_equal(blanket.query_, [2, 0])
    post = blanket.posterior(2.0, 1.0)
    assert post.mean().shape == (2, 4)
    assert post.names == tuple(NAMES)
    assert list(post.summary()["row"].unique()) == ["c", "a"]
    draws = post.sample(50, random_state=0)
    assert np.all(draws[:, 0, 2] > 0)  # ω_cc
    np.testing.assert_array_equal(draws[:, 0, 0], draws[:, 1, 2])  # ω_ca
    assert blanket.precision_.shape == (2, 4)


def test_a_query_has_no_covariance_and_no_score(model):
    blanket = model("blanket")
    assert not hasattr(blanket, "covariance_")
    with pytest.raises(AttributeError, match="with a query only rows"):
        _ = blanket.covariance_
    with pytest.raises(ValueError, match="fit without a query"):
        blanket.score(TABLE)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "kind"), [(20, "sparse"), (2000, "sparse"), (40, "independent"), (150, "iris")])
def test_lam_auto_holds_the_highest_evidence(n, kind):
    """Few rows or many, strong correlations or none. All have four columns, so little is compiled."""
    rng = np.random.default_rng(0)
    X = {
        "sparse": gf.simulate.toy_problem(4, n, random_state=1)[0],
        "independent": rng.normal(size=(n, 4)),
        "iris": load_iris().data,  # strongly correlated
    }[kind]
    model = gf.GraphicalFlow(temperature=1.0, steps=4 * CHUNK, random_state=0, progress=False).fit(X)
    for q in (0.25, 1.0):
        best = model.select(q=q)
        assert best.at_boundary == () and 1.5 * model.lam_range_[0] < best.lam < model.lam_range_[1] / 1.5


@pytest.mark.parametrize(
    "name, value, text",
    [
        ("lam", 9.0, r"lam=9 is outside the fitted range 0\.5 … 8"),
        ("lam", 0.1, r"lam=0\.1 is outside the fitted range 0\.5 … 8"),
        ("q", 1.5, r"q=1\.5 is outside the fitted range 0\.25 … 1\.25"),
        ("temperature", 2.0, r"temperature=2 is outside the fitted range 0\.01 … 1"),
        ("lam", np.nan, "lam must be a number"),
        ("q", "1", "q must be a number"),
        ("temperature", True, "temperature must be a number"),
    ],
)
def test_posterior_outside_of_the_range(model, name, value, text):
    with pytest.raises(ValueError, match=text):
        model("full").posterior(**{name: value})


def test_posterior_accepts_the_ends_of_the_ranges(model):
    full = model("full")
    for lam in full.lam_range_:
        for q in full.q_range_:
            assert full.posterior(lam, q, 1.0).lam == pytest.approx(lam)
    assert full.posterior(np.float32(0.5), 1, 1).q == 1.0


def test_without_temperature_one_estimates_use_the_nearest_temperature(untrained):
    fitted = quick(temperature=(0.1, 0.5), lam=2.0, q=1.0).fit(TABLE)
    with pytest.raises(ValueError, match=r"temperature=1 is outside the fitted range 0\.1 … 0\.5"):
        fitted.posterior()
    nothing_to_choose_by = quick(temperature=(0.1, 0.5)).fit(TABLE)
    for name in ("lam_", "q_", "precision_", "covariance_"):
        assert not hasattr(nothing_to_choose_by, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gf.PoorFitWarning)
        expected = fitted.posterior(temperature=0.5).mean()
        scale = fitted.scatter_.scale
        np.testing.assert_allclose(fitted.precision_, expected / scale / scale[:, None])


@pytest.mark.slow
def test_a_query_of_all_columns_in_another_order(untrained):
    """Rows are in the order of the query; covariance_ and score are in the order of the columns."""
    order = ["c", "a", "d", "b"]
    asked, plain = (quick(query=query, lam=2.0, q=1.0, temperature=1.0).fit(TABLE) for query in (order, None))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gf.PoorFitWarning)
        post = asked.posterior(2.0, 1.0)
        draws = post.sample(300, random_state=0)
        square = draws[:, :, asked.query_]
        np.testing.assert_array_equal(square, np.swapaxes(square, 1, 2))
        assert np.linalg.eigvalsh(square).min() > 0
        assert np.all(np.isfinite(post.log_prob(draws)))
        np.testing.assert_array_equal(np.diag(post.partial_correlation()), 1)
        variance = np.diag(asked.covariance_)
        # An untrained flow depends a little on the order of columns. False alarms: none, draws are fixed.
        np.testing.assert_allclose(variance, np.diag(plain.covariance_), rtol=0.2)
        np.testing.assert_allclose(asked.covariance_, asked.covariance_.T, rtol=1e-9)
        assert asked.score(TABLE) == pytest.approx(plain.score(TABLE), abs=0.3)


def test_timings_include_choosing_once_it_is_done(untrained, monkeypatch):
    now = [0.0]
    fitted = quick().fit(TABLE)
    assert fitted.timings_.choosing is None

    def select(self):
        now[0] += 19.0
        return Choice(2.0, 1.0, ())

    monkeypatch.setattr(module.GraphicalFlow, "select", select)
    monkeypatch.setattr(fitted_flow, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert fitted.lam_ == 2.0 and fitted.q_ == 1.0
    assert fitted.timings_.choosing == 19.0


def test_precision_covariance_location_and_score_are_in_the_scale_of_the_data(model):
    full = model("full")
    X = TABLE.to_numpy()
    np.testing.assert_allclose(full.location_, X.mean(0))
    np.testing.assert_allclose(full.covariance_ @ full.precision_, np.eye(4), atol=1e-8)
    scale = X.std(0)
    np.testing.assert_allclose(full.precision_ * scale * scale[:, None], full.posterior().mean(), rtol=1e-6)
    new = TABLE.sample(7, random_state=0) + 0.3
    expected = stats.multivariate_normal(full.location_, full.covariance_).logpdf(new).mean()
    assert full.score(new) == pytest.approx(expected, abs=1e-8)
    assert full.score(new.iloc[:1]) == pytest.approx(
        stats.multivariate_normal(full.location_, full.covariance_).logpdf(new.iloc[0]), abs=1e-8
    )


def test_a_choice_at_a_boundary_warns_once_and_names_it(untrained, monkeypatch):
    choice = Choice(8.0, 0.25, (Boundary("lam", "high"), Boundary("q", "low")))
    monkeypatch.setattr(gf.GraphicalFlow, "select", lambda self: choice)
    fitted = quick().fit(TABLE)
    with pytest.warns(gf.RangeWarning) as caught:
        assert fitted.choice_ == choice
    assert [str(each.message).split(":")[0] for each in caught] == [
        "the evidence is highest at the upper end of lam",
        "the evidence is highest at the lower end of q",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (fitted.lam_, fitted.q_) == (8.0, 0.25)


def test_ranges_and_temperatures(untrained):
    fitted = quick(lam=2.0).fit(TABLE)
    assert fitted.ranges_ == (fitted.lam_range_, fitted.q_range_, fitted.temperature_range_)
    assert fitted.temperatures_ is None
    assert quick(lam=2.0, architecture="paper", temperature=(0.3, 1.0)).fit(TABLE).temperatures_ == (1.0, 0.3)
