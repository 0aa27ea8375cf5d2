"""GraphicalFlow: both architectures against exact answers at d = 4, and everything a user may ask of the estimator."""

import pickle
import warnings
from contextlib import contextmanager
from types import SimpleNamespace

import equinox as eqx
import jax
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import ggmflow as gf
from ggmflow.estimator import graphical_flow as module
from ggmflow.model.conditions import Choice
from ggmflow.posterior.flow_source import FlowSource
from ggmflow.storage import archive
from ggmflow.storage.cache import cache_directory
from ggmflow.train.loop import CHUNK, Report, Trained
from tests.support.models import KINDS, NAMES, TABLE, Exact, no_training, quick

STRUCTURED = [(0.5, 1.0, 1.0), (2.0, 0.25, 1.0), (3.0, 0.5, 1.0), (2.0, 1.25, 0.3)]
PAPER = [(0.5, 1.0, 1.0), (3.0, 0.5, 1.0), (2.0, 1.0, 0.3)]
CASES = [(kind, *condition) for kind in ("full", "blanket") for condition in STRUCTURED]
CASES += [(kind, *condition) for kind in ("paper", "paper blanket") for condition in PAPER]
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


def test_means_and_quantiles_are_near_when_plain(answer):
    """What a short training reaches by itself, in sd and in probability; plus five standard errors of the comparison.

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


@pytest.mark.parametrize("kind", ["full", "blanket", "paper"])
def test_log_prob_integrates_to_one(model, kind):
    """∫ q dΩ = E_W[q/W] with Wishart draws, q evaluated through the inverse: |z| < 5, false alarms 6e-7 each."""
    exact = Exact(model(kind), 0.6, 1.0, 1.0, num_draws=6000)
    ratio = np.exp(model(kind).posterior(0.6, 1.0).log_prob(exact.rows) - exact.log_proposal(exact.rows))
    se = ratio.std() / np.sqrt(len(ratio))
    assert se < 0.05
    assert abs(ratio.mean() - 1) < 5 * se


def test_paper_knows_two_temperatures(model):
    paper = model("paper")
    a, b = (paper.posterior(2.0, 1.0, T, num_draws=500).sd(weighted=False) for T in (1.0, 0.3))
    assert np.all(b < 0.8 * a)
    with pytest.raises(ValueError, match=r"has flows at the temperatures 1 and 0\.3 only, got 0\.5"):
        paper.posterior(2.0, 1.0, 0.5)


def test_cold_draws_gather_at_the_graphical_lasso(model):
    """At T = 0.01 and q = 1; the exact tempered mean is itself about 0.01 away."""
    full, lam = model("full"), 2.0
    mode = gf.baselines.graphical_lasso(full.scatter_.emp_cov, full.scatter_.n, lam).precision
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gf.PoorFitWarning)
        cold = full.posterior(lam, 1.0, 0.01).mean()
        warm = full.posterior(lam, 1.0, 1.0).mean()
    assert np.sqrt(np.mean((cold - mode) ** 2)) < 0.03
    assert np.sqrt(np.mean((warm - mode) ** 2)) > 0.06


# --------------------------------------------------------------------------------------------------------------- query
def test_rows_follow_the_query_and_columns_the_data(model):
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


def test_names_and_positions_ask_the_same(untrained):
    by_name, by_position = (quick(query=query).fit(TABLE) for query in (["c", "a"], (2, np.int64(0))))
    np.testing.assert_array_equal(by_name.query_, by_position.query_)
    draws = [fitted.posterior(2.0, 1.0).sample(5, random_state=0) for fitted in (by_name, by_position)]
    np.testing.assert_array_equal(*draws)
    assert quick(query="b", lam=1.0).fit(TABLE).query_.tolist() == [1]


def test_a_query_has_no_covariance_and_no_score(model):
    blanket = model("blanket")
    assert not hasattr(blanket, "covariance_")
    with pytest.raises(AttributeError, match="with a query only rows"):
        _ = blanket.covariance_
    with pytest.raises(ValueError, match="fit without a query"):
        blanket.score(TABLE)


# ---------------------------------------------------------------------------------------------------------- parameters
WRONG = [
    *({"lam": value} for value in ("big", "1", 0, -1.0, np.nan, np.inf, True, None, (8, 0.5), (1, 2, 3), (0, 1))),
    *({"q": value} for value in (0, 0.01, 5.0, (0.01, 1), (0.5, 9), "1", (1.25, 0.25), np.nan)),
    *({"temperature": value} for value in (0, -1, (0, 1), "cold", (1, 0.1), np.nan)),
    *({"lam": value} for value in (1e-300, 1e300, (1e-300, 1e300), np.array(2.0), np.ones((2, 2)))),
    *({"temperature": value} for value in (1e-300, (1e-20, 1.0))),
    *({"steps": value} for value in (0, -5, 2.5, True, "many", 10**30)),
    *({"batch_size": value} for value in (0, 1, 2.5, True, "big", 10**30)),
    *({"random_state": value} for value in (-1, 1.5, True, "seed", np.nan, [1, 2])),
    {"standardize": "no"},
    {"architecture": "transformer"},
    {"architecture": np.eye(2)},
    {"missing": "ignore"},
    {"transform": "log"},
    {"architecture": "paper", "temperature": (2.0, 3.0)},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_parameters_are_named(wrong, untrained):
    fitted = gf.GraphicalFlow(**wrong)  # says nothing yet
    with pytest.raises(ValueError, match=rf"\b{next(iter(wrong)) if len(wrong) == 1 else 'temperature'}\b"):
        fitted.fit(TABLE)
    with pytest.raises(NotFittedError):
        fitted.posterior()


@pytest.mark.parametrize("query", ["nope", [0, 0], ["a", "a"], 7, [], [1.5], [True]])
def test_wrong_queries_are_refused(query, untrained):
    with pytest.raises(ValueError, match=r"column|query|position"):
        quick(query=query).fit(TABLE)


def test_ranges(untrained):
    def ranges(**parameters):
        fitted = gf.GraphicalFlow(**parameters).fit(TABLE)
        return fitted.lam_range_, fitted.q_range_, fitted.temperature_range_

    lam, q, temperature = ranges()
    assert lam[1] == pytest.approx(50 * lam[0])
    assert (q, temperature) == ((0.25, 1.25), (0.01, 1.0))
    assert ranges(lam=2, q=1, temperature=1) == ((2.0, 2.0), (1.0, 1.0), (1.0, 1.0))
    assert ranges(lam=[1, 2], q=np.array([0.5, 2.0]), temperature=(0.1, 0.1))[0] == (1.0, 2.0)
    wide = ranges(lam=(1e-3, 1e3), q=(0.1, 2.0), temperature=(0.001, 1.0))
    assert wide == ((1e-3, 1e3), (0.1, 2.0), (0.001, 1.0))


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
        assert best.at_ends == () and 1.5 * model.lam_range_[0] < best.lam < model.lam_range_[1] / 1.5


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


def test_the_ends_of_the_range_can_be_asked_for(model):
    full = model("full")
    for lam in full.lam_range_:
        for q in full.q_range_:
            assert full.posterior(lam, q, 1.0).lam == pytest.approx(lam)
    assert full.posterior(np.float32(0.5), 1, 1).q == 1.0


def test_without_temperature_one_estimates_are_those_next_to_it(untrained):
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


def test_a_query_of_all_columns_in_another_order(untrained):
    """Rows are in the order asked; covariance_ and score are those of the data's columns all the same."""
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


@pytest.mark.parametrize("architecture", ["structured", "paper"])
def test_double_precision_makes_no_difference(untrained, x64, architecture, tmp_path):
    """With `jax_enable_x64` the flow is still one of float32, and a model saved without it can be loaded."""
    fitted = quick(lam=2.0, architecture=architecture, temperature=(0.01, 1.0)).fit(TABLE)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(eqx.filter(fitted.flow_, eqx.is_inexact_array))} == {"float32"}
    fitted.save(tmp_path / "m.ggmflow")
    with jax.enable_x64(False):
        again = gf.GraphicalFlow.load(tmp_path / "m.ggmflow")
        draws = again.posterior(2.0, 1.0).sample(5, random_state=0)
    np.testing.assert_array_equal(fitted.posterior(2.0, 1.0).sample(5, random_state=0), draws)


# --------------------------------------------------------------------------------------------------- training as a user
def test_a_second_fit_of_the_same_shape_compiles_nothing(compilations):
    """Other data, other ranges, another n, another seed: the program is the same."""
    quick().fit(TABLE).posterior(2.0, 1.0).sample(10, random_state=0)
    del compilations[:]
    quick().fit(TABLE)
    X = np.random.default_rng(0).normal(size=(35, 4))
    other = quick(lam=(1.0, 20.0), q=(0.5, 1.0), random_state=5, steps=2 * CHUNK).fit(X)
    other.posterior(3.0, 0.7).sample(20, random_state=1)
    assert compilations == []


def test_a_fit_leaves_jax_as_it_was(capfd):
    before = dict(jax.config.values)
    quick(progress=False).fit(TABLE)
    assert dict(jax.config.values) == before
    assert capfd.readouterr() == ("", "")


def test_a_fit_keeps_what_it_compiled(model):
    model("full")
    found = [path.name for path in cache_directory().iterdir()]
    assert any(name.startswith("jit__run_chunk") for name in found)


def test_progress_shows_a_line(capfd):
    quick(progress=True).fit(TABLE)
    out, err = capfd.readouterr()
    assert out == ""
    assert f"step {CHUNK} of {CHUNK}" in err
    assert "ELBO" in err


def test_random_state():
    """Int and generators of the same seed repeat; a generator moves on; None is new every time."""

    def elbo(random_state):
        return quick(random_state=random_state).fit(TABLE).history_["elbo"].iloc[0]

    assert elbo(0) == elbo(0) != elbo(1)
    generator = np.random.default_rng(0)
    first = elbo(generator)
    assert elbo(generator) != first == elbo(np.random.default_rng(0))
    assert elbo(np.random.RandomState(0)) == elbo(np.random.RandomState(0))
    assert elbo(None) != elbo(None)
    assert isinstance(clone(quick(random_state=generator)).random_state, np.random.Generator)


def test_history(model):
    full = model("full")
    assert list(full.history_.columns) == list(Report._fields)
    assert full.history_["step"].tolist() == list(range(CHUNK, full.n_iter_ + 1, CHUNK))  # it may stop early
    assert full.n_iter_ <= 800
    assert full.status_ == ("finished" if full.n_iter_ == 800 else "stopped early")
    assert full.history_["elbo"].iloc[-1] > full.history_["elbo"].iloc[0]


def interrupting(monkeypatch, chunk):
    """Ctrl-C is pressed after this many chunks."""

    @contextmanager
    def bar(show, clock):
        def report(report):
            if report.step == chunk * CHUNK:
                raise KeyboardInterrupt

        yield report

    monkeypatch.setattr(module, "training_bar", bar)


def test_an_interrupted_fit_keeps_the_best_model_and_can_be_resumed(tmp_path, monkeypatch, compilations):
    path, steps = tmp_path / "run.checkpoint", 3 * CHUNK
    whole = quick(steps=steps).fit(TABLE)
    with monkeypatch.context() as patch:
        interrupting(patch, 2)
        with pytest.warns(
            ConvergenceWarning, match=rf"interrupted after {2 * CHUNK} of {steps} steps.*best model so far"
        ):
            stopped = quick(steps=steps).fit(TABLE, checkpoint=path)
    assert stopped.status_ == "interrupted"
    assert stopped.n_iter_ == 2 * CHUNK
    assert stopped.posterior(2.0, 1.0).sample(3, random_state=0).shape == (3, 4, 4)
    del compilations[:]
    resumed = quick(steps=steps).fit(TABLE, checkpoint=str(path))
    assert not any("_run_chunk" in name for name in compilations)
    assert resumed.status_ == "finished"
    pd.testing.assert_frame_equal(resumed.history_, whole.history_)
    assert resumed.lam_ == whole.lam_
    draws = [fitted.posterior(2.0, 0.5).sample(20, random_state=0) for fitted in (resumed, whole)]
    np.testing.assert_array_equal(*draws)
    with pytest.raises(ValueError, match="no checkpoint of this fit: data, settings or random_state differ"):
        quick(steps=steps).fit(TABLE * [1, 1, 1, -1] + np.arange(20)[:, None] % 3, checkpoint=path)


def test_seconds_of_choosing_are_told_once_it_is_done(untrained, monkeypatch):
    now = [0.0]
    fitted = quick().fit(TABLE)
    assert fitted.timings_.choosing is None

    def select(self):
        now[0] += 19.0
        return Choice(2.0, 1.0, ())

    monkeypatch.setattr(module.GraphicalFlow, "select", select)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert fitted.lam_ == 2.0 and fitted.q_ == 1.0
    assert fitted.timings_.choosing == 19.0


def test_an_interrupt_before_anything_is_learned_leaves_no_model(monkeypatch):
    fitted = quick().fit(TABLE)

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(TABLE)
    with pytest.raises(NotFittedError):  # not the model of the fit before
        fitted.posterior()


def test_a_failed_or_poor_training_is_told(monkeypatch, untrained):
    fake = module.train

    def train_with(status, skipped):
        def train(*args, **kwargs):
            history = [Report(CHUNK, CHUNK, 0.0, 1.0, skipped)]
            return fake(*args, **kwargs)._replace(status=status, history=history)

        monkeypatch.setattr(module, "train", train)
        return quick(lam=2.0).fit(TABLE)

    with pytest.raises(FloatingPointError, match="ELBO was never finite"):
        train_with("failed", CHUNK)
    with pytest.warns(ConvergenceWarning, match=f"3 of {CHUNK} steps were skipped"):
        train_with("finished", 3)
    train_with("finished", 1)  # one step is nothing to worry about


# --------------------------------------------------------------------------------------------------------------- scores
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


def test_score_checks_its_columns(model, untrained, tmp_path):
    full = model("full")
    for wrong in (TABLE[["b", "a", "c", "d"]], TABLE[NAMES[:3]], TABLE.rename(columns={"a": "z"})):
        with pytest.raises(ValueError, match="feature names should match"):
            full.score(wrong)
    with pytest.raises(ValueError, match="missing"):
        full.score(TABLE.mask(TABLE > 1))
    unnamed = quick(lam=2.0).fit(TABLE.to_numpy())
    with pytest.raises(ValueError, match="X has 3 features, but GraphicalFlow is expecting 4 features"):
        unnamed.score(TABLE.to_numpy()[:, :3])
    with pytest.raises(TypeError, match="not dict"):
        full.score({"a": [1.0]})
    path = tmp_path / "new.csv"
    TABLE[["d", "c", "b", "a"]].to_csv(path, index=False)
    assert full.score(path) == pytest.approx(full.score(TABLE))  # a file's columns are found by name


def test_names_and_numbers_of_features(untrained, tmp_path):
    fitted = quick(lam=2.0).fit(TABLE)
    np.testing.assert_array_equal(fitted.feature_names_in_, NAMES)
    assert fitted.n_features_in_ == 4
    path = tmp_path / "table.csv"
    TABLE.to_csv(path, index=False)
    for X in (TABLE.to_numpy(), gf.Scatter.from_data(TABLE), path, str(path)):
        fitted.fit(X)
        assert fitted.n_features_in_ == 4
        assert not hasattr(fitted, "feature_names_in_")  # of a fit before
    assert fitted.scatter_.names == tuple(NAMES)


def test_standardize_transform_and_missing_reach_the_data(untrained):
    def scatter(X=TABLE, **parameters):
        return quick(lam=2.0, **parameters).fit(X).scatter_

    np.testing.assert_array_equal(scatter(standardize=False).scale, 1)
    assert scatter(transform="nonparanormal").transform == "nonparanormal"
    holes = TABLE.mask(np.arange(80).reshape(20, 4) % 23 == 5)
    with pytest.raises(ValueError, match="missing"):
        scatter(holes)
    assert scatter(holes, missing="drop").n == 20 - holes.isna().any(axis=1).sum()
    assert scatter(holes, missing="em").n == 20


# ---------------------------------------------------------------------------------------------------------------- files
@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_is_the_saved_one(kind, tmp_path):
    """Fitted here: what the fixture gives may have been through a file already."""
    fitted, path = quick(**(KINDS[kind] | {"steps": 4 * CHUNK})).fit(TABLE), tmp_path / "m.ggmflow"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gf.RangeWarning)
        assert 0.5 <= fitted.lam_ <= 8  # chosen before it is saved
    fitted.save(path)
    loaded = gf.GraphicalFlow.load(path)
    for temperature in (1.0, 0.3):
        a, b = (each.posterior(2.0, 0.5, temperature).sample(20, random_state=1) for each in (fitted, loaded))
        np.testing.assert_array_equal(a, b)
    assert str(loaded) == str(fitted)
    assert loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(loaded.feature_names_in_, NAMES)
    assert loaded.n_features_in_ == 4
    pd.testing.assert_frame_equal(loaded.history_, fitted.history_)
    for name in ("lam_", "q_", "lam_range_", "q_range_", "temperature_range_", "n_iter_", "status_"):
        assert getattr(loaded, name) == getattr(fitted, name)
    if "query" not in KINDS[kind]:
        assert loaded.score(TABLE) == fitted.score(TABLE)
    loaded.save(tmp_path / "again.ggmflow")
    assert (tmp_path / "again.ggmflow").read_bytes() == path.read_bytes()


def test_any_parameters_can_be_saved(untrained, tmp_path):
    path, generator = tmp_path / "m.ggmflow", np.random.default_rng(0)
    changes = {"lam": np.array([1.0, 2.0]), "q": [0.5, 1], "query": np.array([2, 0]), "random_state": generator}
    quick(**changes, temperature=np.float32(1.0), transform="nonparanormal").fit(TABLE).save(path)
    loaded = gf.GraphicalFlow.load(path)
    parameters = loaded.get_params()
    assert (parameters["lam"], parameters["q"], parameters["query"]) == ((1.0, 2.0), (0.5, 1), [2, 0])
    assert parameters["random_state"] is None  # the generator has moved on
    assert parameters["transform"] == "nonparanormal"
    quick(lam=2.0, query=(name for name in ["b", "a"])).fit(TABLE).save(path)
    assert gf.GraphicalFlow.load(path).query_.tolist() == [1, 0]


def test_files_that_are_no_model_are_refused(model, tmp_path):
    path = tmp_path / "m.ggmflow"
    model("full").save(path)
    content = path.read_bytes()
    for wrong in (b"", b"hello", content[:-100], content[: len(content) // 2], content + b"x", content[100:]):
        path.write_bytes(wrong)
        with pytest.raises(archive.ModelFileError, match=r"m\.ggmflow"):
            gf.GraphicalFlow.load(path)
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    with pytest.raises(archive.ModelFileError, match="damaged"):
        gf.GraphicalFlow.load(path)
    with pytest.raises(FileNotFoundError):
        gf.GraphicalFlow.load(tmp_path / "nowhere.ggmflow")


def change_header(**changes):
    return lambda header, arrays: header.update(changes)


def change_array(name, change):
    return lambda header, arrays: arrays.update({name: change(arrays[name])})


@pytest.mark.parametrize(
    "change",
    [
        change_header(kind="checkpoint"),
        change_header(ranges={"lam": [0.5, 8.0], "q": [0.25, 1.25]}),
        change_header(ranges={"lam": [0.5, 8.0], "q": [1.25, 0.25], "temperature": [0.01, 1.0]}),
        change_header(ranges={"lam": [0.5, 1e300], "q": [0.25, 1.25], "temperature": [0.01, 1.0]}),
        change_header(ranges={"lam": [-1.0, 8.0], "q": [0.25, 1.25], "temperature": [0.01, 1.0]}),
        change_header(query=[0, 9]),
        change_header(query=[0, 1]),  # arrays are those of the whole matrix
        change_header(parameters={"lam": 1.0, "colour": "red"}),
        change_header(parameters=[]),
        change_header(snapshots=[1.0]),
        change_header(snapshots=7),
        change_header(chosen=[1.0]),
        change_header(chosen=[1.0, "q", []]),
        change_header(scatter={}),
        lambda header, arrays: header.pop("status"),
        lambda header, arrays: arrays.pop("flow0/0"),
        lambda header, arrays: arrays.pop("history"),
        change_array("history", lambda array: array[:0]),
        change_array("history", lambda array: array[:, :2]),
        change_array("history", lambda array: array * np.nan),
        change_array("flow0/0", lambda array: array[..., None]),
        change_array("flow0/1", lambda array: array.astype(np.float64)),
        change_array("scatter/matrix", lambda array: array[:3, :3]),
    ],
)
def test_files_with_other_contents_are_refused(model, tmp_path, change):
    """Whole by their checksums, but not what `save` writes: nothing is built from them."""
    path = tmp_path / "m.ggmflow"
    model("full").save(path)
    header, arrays = archive.read(path)
    change(header, arrays)
    archive.write(path, header, arrays)
    with pytest.raises(archive.ModelFileError, match=r"m\.ggmflow is no ggmflow model, or was changed"):
        gf.GraphicalFlow.load(path)


def test_a_changed_parameter_does_not_change_a_fitted_model(model, tmp_path):
    fitted = pickle.loads(pickle.dumps(model("full"))).set_params(architecture="paper")
    before = model("full").posterior(2.0, 0.5).sample(5, random_state=1)
    np.testing.assert_array_equal(fitted.posterior(2.0, 0.5).sample(5, random_state=1), before)
    fitted.save(tmp_path / "m.ggmflow")
    loaded = gf.GraphicalFlow.load(tmp_path / "m.ggmflow")
    np.testing.assert_array_equal(loaded.posterior(2.0, 0.5).sample(5, random_state=1), before)


def test_a_refused_fit_leaves_the_earlier_model_whole(untrained):
    fitted = quick().fit(TABLE)
    with pytest.raises(ValueError, match="lam"):
        fitted.set_params(lam=-1.0).fit(TABLE[["a", "b", "c"]])
    assert fitted.n_features_in_ == 4
    assert list(fitted.feature_names_in_) == NAMES
    assert np.isfinite(fitted.score(TABLE))


def test_looking_at_a_model_draws_nothing(model, monkeypatch):
    def fail(*args):
        raise AssertionError("drawn")

    monkeypatch.setattr(FlowSource, "sample", fail)
    fitted = gf.GraphicalFlow(query="<b>x</b>")
    assert "&lt;b&gt;x" in fitted._repr_html_() and "Fitted" not in fitted._repr_html_()
    shown = pickle.loads(pickle.dumps(model("full")))._repr_mimebundle_()
    assert "Fitted to 20 rows of 4 variables" in shown["text/html"]
    assert shown["text/plain"].startswith("GraphicalFlow(")


def test_paper_at_one_temperature_is_not_cooled(monkeypatch):
    seen = []

    def train(flow, *args, snapshot_at=(), **kwargs):
        seen.append((args[3], snapshot_at))
        return Trained(flow, {}, [Report(CHUNK, CHUNK, 0.0, 1.0, 0)], "finished")

    monkeypatch.setattr(module, "train", train)
    fitted = quick(architecture="paper", temperature=1.0, lam=2.0).fit(TABLE)
    ((settings, snapshot_at),) = seen
    assert settings.cooling is None and snapshot_at == ()
    assert fitted.posterior().sample(3, random_state=0).shape == (3, 4, 4)


def test_pickle_and_clone(model):
    full = model("full")
    again = pickle.loads(pickle.dumps(full))
    a, b = (each.posterior(2.0, 0.5).sample(5, random_state=1) for each in (full, again))
    np.testing.assert_array_equal(a, b)
    fresh = clone(full)
    assert fresh.get_params() == full.get_params()
    with pytest.raises(NotFittedError):
        fresh.score(TABLE)


def test_asking_before_fitting():
    fresh = gf.GraphicalFlow()
    for ask in (fresh.posterior, lambda: fresh.score(TABLE), lambda: fresh.save("nowhere")):
        with pytest.raises(NotFittedError):
            ask()
    for name in ("precision_", "covariance_", "location_", "lam_range_", "q_range_", "temperature_range_"):
        assert not hasattr(fresh, name)


# --------------------------------------------------------------------------------------------------------- scikit-learn
def test_transform_is_a_parameter_and_no_method():
    """scikit-learn would take an estimator with an attribute `transform` for a transformer."""
    fitted = gf.GraphicalFlow(transform="nonparanormal")
    assert not hasattr(fitted, "transform")
    assert fitted.get_params()["transform"] == "nonparanormal"
    assert fitted.set_params(transform=None).get_params()["transform"] is None
    assert clone(gf.GraphicalFlow(transform="nonparanormal")).get_params()["transform"] == "nonparanormal"
    assert "nonparanormal" in repr(gf.GraphicalFlow(transform="nonparanormal"))


# The checks fit tables of 2, 3, 4, 5 and 10 columns, and compiling for each takes its time: one of them trains.
@parametrize_with_checks([gf.GraphicalFlow(lam=(1.0, 2.0), temperature=1.0, steps=25, batch_size=8, progress=False)])
def test_scikit_learn_checks(estimator, check, monkeypatch):
    if check.func.__name__ != "check_n_features_in":
        monkeypatch.setattr(module, "train", no_training)
    check(estimator)


def test_what_a_notebook_shows_of_a_model(untrained):
    evil = "<script>alert(1)</script>"
    fitted = quick().fit(TABLE.rename(columns={"a": evil, "b": "$x$"}))
    for some in (fitted, quick(query=[evil]).fit(TABLE.rename(columns={"a": evil})), quick(query=evil)):
        shown = some._repr_html_()
        assert "<script" not in shown and "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
        assert "http" not in shown and "mathjax_ignore" in shown  # nothing to load, no name typeset
    shown = fitted._repr_html_()
    assert "λ 0.5 … 8" in shown and "select() finds it" in shown
    assert "Good: 100 % of draws" in shown
    fitted._choice = Choice(2.0, 0.5, ("the upper end of q",))
    assert "λ = 2, q = 0.5, at the upper end of q" in fitted._repr_html_()


@pytest.mark.parametrize(
    ("status", "ess", "skipped", "verdict"),
    [
        ("finished", 0.4, 0, "Good: 40 %"),
        ("finished", 0.05, 0, "Fair: 5 %"),
        ("finished", 0.001, 0, "Poor: 0.1 %"),
        ("finished", np.nan, 0, "Poor: nan %"),
        ("interrupted", 0.4, 0, "Caution: training was interrupted; 40 %"),
        ("finished", 0.4, 20, "Caution: 20 steps were skipped"),
    ],
)
def test_a_notebook_says_how_training_went(untrained, status, ess, skipped, verdict):
    fitted = quick().fit(TABLE)
    fitted._keep(Trained(fitted.flow_, {}, [Report(100, 100, -1.0, ess, skipped)], status))
    assert verdict in fitted._repr_html_()
