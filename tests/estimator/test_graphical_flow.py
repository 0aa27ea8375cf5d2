"""GraphicalFlow as a scikit-learn estimator: parameters, training, data and scores."""

import pickle
from contextlib import contextmanager

import equinox as eqx
import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import ggmflow as gf
from ggmflow.errors.advice import Surface, message_of
from ggmflow.estimator import graphical_flow as module
from ggmflow.storage.cache import cache_directory
from ggmflow.train.loop import CHUNK, Report, Trained
from tests.support.models import NAMES, TABLE, quick, skip_training


@pytest.mark.slow
def test_a_query_by_name_equals_a_query_by_position(untrained):
    by_name, by_position = (quick(query=query).fit(TABLE) for query in (["c", "a"], (2, np.int64(0))))
    np.testing.assert_array_equal(by_name.query_, by_position.query_)
    draws = [fitted.posterior(2.0, 1.0).sample(5, random_state=0) for fitted in (by_name, by_position)]
    np.testing.assert_array_equal(*draws)
    assert quick(query="b", lam=1.0).fit(TABLE).query_.tolist() == [1]


WRONG = [
    *({"lam": value} for value in ("big", "1", 0, -1.0, np.nan, np.inf, True, None, (8, 0.5), (1, 2, 3), (0, 1))),
    *({"q": value} for value in (0, 0.01, 5.0, (0.01, 1), (0.5, 9), "1", (1.25, 0.25), np.nan)),
    *({"temperature": value} for value in (0, -1, (0, 1), "cold", (1, 0.1), np.nan)),
    *({"lam": value} for value in (1e-300, 1e300, (1e-300, 1e300), np.array(2.0), np.ones((2, 2)))),
    *({"temperature": value} for value in (1e-300, (1e-20, 1.0))),
    *({"steps": value} for value in (-1, -5, 2.5, True, "many", 10**30)),
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
def test_wrong_queries_raise(query, untrained):
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_second_fit_of_the_same_shape_compiles_nothing(compilations):
    """Other data, other ranges, another n, another seed: the program is the same."""
    quick().fit(TABLE).posterior(2.0, 1.0).sample(10, random_state=0)
    del compilations[:]
    quick().fit(TABLE)
    X = np.random.default_rng(0).normal(size=(35, 4))
    other = quick(lam=(1.0, 20.0), q=(0.5, 1.0), random_state=5, steps=2 * CHUNK).fit(X)
    other.posterior(3.0, 0.7).sample(20, random_state=1)
    assert compilations == []


@pytest.mark.slow
def test_a_fit_changes_no_setting_of_jax(capfd):
    before = dict(jax.config.values)
    quick(progress=False).fit(TABLE)
    assert dict(jax.config.values) == before
    assert capfd.readouterr() == ("", "")


def test_compiled_programs_of_a_fit_are_cached():
    quick().fit(TABLE)
    found = [path.name for path in cache_directory().iterdir()]
    assert any(name.startswith("jit__take_steps") for name in found)


def test_progress_shows_a_line(capfd):
    quick(progress=True).fit(TABLE)
    out, err = capfd.readouterr()
    assert out == ""
    assert f"step {CHUNK} of {CHUNK}" in err
    assert "ELBO" in err


def test_random_state():
    """Int and generators of the same seed repeat; a generator advances; None is new every time."""

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


@pytest.mark.slow
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
    assert not any("_take_steps" in name for name in compilations)
    assert resumed.status_ == "finished"
    pd.testing.assert_frame_equal(resumed.history_, whole.history_)
    assert resumed.lam_ == whole.lam_
    draws = [fitted.posterior(2.0, 0.5).sample(20, random_state=0) for fitted in (resumed, whole)]
    np.testing.assert_array_equal(*draws)
    with pytest.raises(ValueError, match="no checkpoint of this fit: data, settings, random_state or"):
        quick(steps=steps).fit(TABLE * [1, 1, 1, -1] + np.arange(20)[:, None] % 3, checkpoint=path)


def test_an_interrupt_before_the_first_report_leaves_no_model(monkeypatch):
    fitted = quick().fit(TABLE)

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "fit_flow", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(TABLE)
    with pytest.raises(NotFittedError):  # not the model of the fit before
        fitted.posterior()


def test_failed_training_raises_and_skipped_steps_warn(monkeypatch, untrained):
    fake = module.fit_flow

    def train_with(status, skipped):
        def train(*args, **kwargs):
            history = [Report(CHUNK, CHUNK, 0.0, 1.0, skipped)]
            return fake(*args, **kwargs)._replace(status=status, history=history)

        monkeypatch.setattr(module, "fit_flow", train)
        return quick(lam=2.0).fit(TABLE)

    with pytest.raises(FloatingPointError, match="ELBO was never finite"):
        train_with("failed", CHUNK)
    with pytest.warns(ConvergenceWarning, match=f"3 of {CHUNK} steps were skipped.*diagnostics\\(\\)") as caught:
        train_with("finished", 3)
    message = message_of(caught[0].message, Surface.COMMAND_LINE)
    assert message.endswith('check "Trust" in the summary; narrower --lam, --q and --temperature may help')
    with pytest.warns(ConvergenceWarning, match=r"best model so far: check posterior\(\.\.\.\)\.diagnostics") as caught:
        train_with("interrupted", 0)
    message = message_of(caught[0].message, Surface.COMMAND_LINE)
    assert message.endswith("best model so far: resume it by the same command with --resume")
    train_with("finished", 1)  # one step is nothing to worry about


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


def test_treatments_of_the_table_reach_the_data(untrained):
    def scatter(X=TABLE, **parameters):
        return quick(lam=2.0, **parameters).fit(X).scatter_

    np.testing.assert_array_equal(scatter(standardize=False).scale, 1)
    assert (scatter().n, scatter(mean="known").n) == (19, 20)
    assert scatter(transform="nonparanormal").transform == "nonparanormal"
    holes = TABLE.mask(np.arange(80).reshape(20, 4) % 23 == 5)
    with pytest.raises(ValueError, match="missing"):
        scatter(holes)
    assert scatter(holes, missing="drop").n_rows == 20 - holes.isna().any(axis=1).sum()
    assert scatter(holes, missing="em").n_rows == 20


def test_a_fit_with_wrong_parameters_keeps_the_earlier_model(untrained):
    fitted = quick().fit(TABLE)
    with pytest.raises(ValueError, match="lam"):
        fitted.set_params(lam=-1.0).fit(TABLE[["a", "b", "c"]])
    assert fitted.n_features_in_ == 4
    assert list(fitted.feature_names_in_) == NAMES
    assert np.isfinite(fitted.score(TABLE))


@pytest.mark.slow
def test_paper_at_one_temperature_is_not_cooled(monkeypatch):
    seen = []

    def train(flow, *args, snapshot_at=(), **kwargs):
        seen.append((args[2], snapshot_at))
        return Trained(flow, {}, [Report(CHUNK, CHUNK, 0.0, 1.0, 0)], "finished")

    monkeypatch.setattr(module, "fit_flow", train)
    fitted = quick(architecture="paper", temperature=1.0, lam=2.0).fit(TABLE)
    ((settings, snapshot_at),) = seen
    assert settings.cooling is None and snapshot_at == ()
    assert fitted.posterior().sample(3, random_state=0).shape == (3, 4, 4)


@pytest.mark.slow
def test_pickle_and_clone(model):
    full = model("full")
    again = pickle.loads(pickle.dumps(full))
    a, b = (each.posterior(2.0, 0.5).sample(5, random_state=1) for each in (full, again))
    np.testing.assert_array_equal(a, b)
    fresh = clone(full)
    assert fresh.get_params() == full.get_params()
    with pytest.raises(NotFittedError):
        fresh.score(TABLE)


def test_an_unfitted_model_raises():
    fresh = gf.GraphicalFlow()
    for ask in (fresh.posterior, lambda: fresh.score(TABLE), lambda: fresh.save("nowhere")):
        with pytest.raises(NotFittedError):
            ask()
    for name in ("precision_", "covariance_", "location_", "lam_range_", "q_range_", "temperature_range_"):
        assert not hasattr(fresh, name)


def test_transform_is_a_parameter_but_not_an_attribute():
    """scikit-learn would treat an estimator with an attribute `transform` as a transformer."""
    fitted = gf.GraphicalFlow(transform="nonparanormal")
    assert not hasattr(fitted, "transform")
    assert fitted.get_params()["transform"] == "nonparanormal"
    assert fitted.set_params(transform=None).get_params()["transform"] is None
    assert clone(gf.GraphicalFlow(transform="nonparanormal")).get_params()["transform"] == "nonparanormal"
    assert "nonparanormal" in repr(gf.GraphicalFlow(transform="nonparanormal"))


# The checks fit tables of 2, 3, 4, 5 and 10 columns: trained, each size would be compiled anew.
@parametrize_with_checks([gf.GraphicalFlow(lam=(1.0, 2.0), temperature=1.0, steps=25, batch_size=8, progress=False)])
def test_scikit_learn_checks(estimator, check, monkeypatch):
    """Without training, which no check needs."""
    skip_training(monkeypatch)
    check(estimator)
