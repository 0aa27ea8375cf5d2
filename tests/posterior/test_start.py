"""The start of a fit: the better of two flows, training only where it pays, and data far from those of the training."""

import equinox as eqx
import jax
import numpy as np
import pytest

import ggmflow as gf
from ggmflow import gibbs
from ggmflow.estimator.plan import plan_fit
from ggmflow.flow.structured_network import load_correction_network
from ggmflow.posterior import start
from ggmflow.posterior.diagnostics import Verdict
from ggmflow.posterior.start import Problem, best_start, fit_flow, judge
from ggmflow.train.clock import Clock
from ggmflow.train.settings import CHUNK, default_settings
from ggmflow.train.status import Status
from tests.support.models import TABLE

RANGES = {"lam": (0.5, 8.0), "q": (0.25, 1.25), "temperature": 1.0}


def fit(X, **parameters):
    given = {"steps": 0, "random_state": 0, "progress": False, **RANGES, **parameters}
    return gf.GraphicalFlow(**given).fit(X)


@pytest.fixture(scope="module")
def shipped():
    """A fit of six variables without training."""
    return fit(gf.simulate.toy_problem(6, 20, random_state=1)[0])


def problem_of(model):
    return Problem(model.scatter_, model.query_, model.ranges_)


def test_no_steps_leave_the_shipped_network(shipped):
    assert shipped.n_iter_ == 0 and shipped.status_ == "finished"
    assert shipped.history_["step"].tolist() == [0]
    plain = judge(shipped.flow_.without_shipped(), problem_of(shipped))
    assert shipped.history_["elbo"].iloc[0] > plain.report.elbo


def test_the_better_start_is_kept(shipped):
    """Of the shipped network and none: with a network that does harm, the plain flow."""
    problem = problem_of(shipped)
    shifted = jax.tree.map(lambda leaf: leaf, shipped.flow_)
    network = shifted.bijection.pretrained.tree
    worse = network._replace(entry=network.entry._replace(bias_2=network.entry.bias_2 + 1.5))
    harmful = eqx.tree_at(lambda flow: flow.bijection.pretrained.tree, shifted, worse)
    plain = judge(shipped.flow_.without_shipped(), problem)
    assert plain.is_better_than(judge(harmful, problem))
    np.testing.assert_array_equal(best_start(harmful, problem).elbo, plain.elbo)


def test_a_good_start_is_not_trained_unless_steps_are_given(shipped, monkeypatch):
    calls = []

    def train(flow, *args, **options):
        calls.append(flow)
        return start.Trained(flow, {}, [start.Report(CHUNK, CHUNK, 0.0, 1.0, 0)], Status.FINISHED)

    monkeypatch.setattr(start, "train", train)
    settings = default_settings(21, False, CHUNK)
    arguments = (shipped.flow_, jax.random.key(0), problem_of(shipped), settings)
    assert fit_flow(*arguments, may_skip=True, clock=Clock()).history[0].step == 0 and not calls
    fit_flow(*arguments, may_skip=False, clock=Clock())
    assert len(calls) == 1
    monkeypatch.setattr(start, "GOOD", 0.0)
    fit_flow(*arguments, may_skip=True, clock=Clock())
    assert len(calls) == 2


def test_training_that_does_harm_is_undone(shipped, monkeypatch):
    """A flow that is worse than its start after training, or that failed to train, is replaced by the start."""
    plain = shipped.flow_.without_shipped()
    for status, expected in ((Status.FINISHED, Status.FINISHED), (Status.FAILED, Status.FINISHED)):
        trained = start.Trained(plain, {}, [start.Report(CHUNK, CHUNK, 0.0, 1.0, 0)], status)
        monkeypatch.setattr(start, "train", lambda *_, trained=trained, **__: trained)
        settings = default_settings(21, False, CHUNK)
        found = fit_flow(shipped.flow_, jax.random.key(0), problem_of(shipped), settings, may_skip=False, clock=Clock())
        assert found.flow is shipped.flow_ and found.status is expected


def test_a_model_file_holds_the_network(shipped, tmp_path):
    shipped.save(tmp_path / "m.ggmflow")
    again = gf.GraphicalFlow.load(tmp_path / "m.ggmflow")
    a, b = (each.posterior(2.0, 0.5).sample(3, random_state=0) for each in (shipped, again))
    np.testing.assert_array_equal(a, b)
    assert again.pretrained and again.n_iter_ == 0


@pytest.mark.slow
def test_a_published_flow_without_training():
    model = fit(TABLE, architecture="paper", temperature=(0.3, 1.0))
    assert model.n_iter_ == 0 and model.temperatures_ == (1.0, 0.3)
    assert np.isfinite(model.posterior(2.0, 0.5, 0.3).sample(3, random_state=0)).all()


# ---------------------------------------------------------------------------------------- far from the simulated tables
def many_rows(rng):
    return rng.normal(size=(100_000, 6)) @ np.linalg.cholesky(0.4 + 0.6 * np.eye(6)).T


def nearly_collinear(rng):
    X = rng.normal(size=(80, 6))
    X[:, 1] = X[:, 0] + 0.04 * X[:, 1]  # correlation 0.999
    return X


def heavy_tails(rng):
    return rng.standard_t(1.2, size=(60, 6))


def large_unit(rng):
    return rng.normal(size=(60, 6)) * [1e6, 1, 1, 1, 1, 1]


def assert_not_worse_than_plain(model):
    problem = problem_of(model)
    assert not judge(model.flow_.without_shipped(), problem).is_better_than(judge(model.flow_, problem))


FAR = {
    "100 000 rows": (many_rows, {}),
    "correlation of 0.999": (nearly_collinear, {}),
    "heavy tails": (heavy_tails, {}),
    "a column 10⁶ times another": (large_unit, {"standardize": False}),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ggmflow.data.check.DataWarning")
@pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")
@pytest.mark.parametrize("name", list(FAR))
def test_data_far_from_the_simulated_tables(name):
    """No NaN, never below the plain flow, and a verdict that holds: a good fit has the means of exact chains.

    A mean of a good fit may be off by 0.4 sd; its own error is 0.05 sd with 400 effective draws, that of the chains
    0.05: 5.6 standard errors for each of 21 entries, a false alarm below 1e-6.
    """
    make, options = FAR[name]
    X = make(np.random.default_rng(3))
    model = fit(X, **options)
    lam, q = 2.0, 0.75
    post = model.posterior(lam, q)
    mean, found = post.mean(), post.diagnostics()
    assert np.isfinite(mean).all() and np.isfinite(post.quantile([0.05, 0.95])).all()
    assert_not_worse_than_plain(model)
    if found.verdict is not Verdict.POOR:
        chains = gibbs.sample(jax.random.key(0), model.scatter_, lam, q, num_chains=40, num_draws=60, num_warmup=300)
        sd = chains.pooled.std(0)
        assert np.max(np.abs(mean - chains.pooled.mean(0)) / sd) < 0.4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")
def test_two_hundred_variables():
    """More than in training: an answer without NaN, whose ELBO is not below the plain flow's."""
    model = fit(gf.simulate.toy_problem(200, 150, random_state=0)[0], lam=(20.0, 60.0), q=0.8)
    post = model.posterior(40.0, 0.8, num_draws=64)
    assert np.isfinite(post.mean()).all() and np.isfinite(post.diagnostics().elbo)
    assert_not_worse_than_plain(model)


def start_with(elbo, variance):
    """A start with given ELBOs and variances, eight of them at the highest temperature."""
    return start.Start(None, start.Report(0, 0, 0.0, 1.0, 0), np.array(elbo, float), np.array(variance, float))


def test_warm_and_cold_conditions_must_be_good_both():
    elbo, low, high = np.zeros(13), (start.GOOD / 2) ** 2, (2 * start.GOOD_COLD) ** 2
    assert start_with(elbo, [low] * 13).is_good and start_with(elbo[:8], [low] * 8).is_good
    assert not start_with(elbo, [low] * 8 + [high] * 5).is_good
    assert not start_with(elbo, [high] * 8 + [low] * 5).is_good
    assert not start_with(elbo, [np.inf] * 13).is_good


def test_the_plain_flow_is_tried_only_far_from_the_posterior(shipped, monkeypatch):
    """Beyond twice the spread up to which training is omitted."""
    elbo, (warm, cold) = np.zeros(13), ((1.9 * limit) ** 2 for limit in (start.GOOD, start.GOOD_COLD))
    near, far = start_with(elbo, [warm] * 8 + [cold] * 5), start_with(elbo, [warm] * 8 + [1.3 * cold] * 5)
    assert near.is_near and not near.is_good and not far.is_near
    judged = []
    for given, expected in ((near, 1), (far, 2)):
        judged.clear()
        monkeypatch.setattr(start, "judge", lambda *flow, given=given: judged.append(flow) or given)
        best_start(shipped.flow_, problem_of(shipped))
        assert len(judged) == expected


def test_without_shipped_weights_it_is_the_flow_of_pretrained_false(shipped):
    """Leaf by leaf, and so is the flow that training starts from where the shipped weights do harm."""
    expected = plan_fit(gf.GraphicalFlow(pretrained=False, random_state=0, **RANGES).get_params(), shipped.scatter_)
    found = plan_fit(gf.GraphicalFlow(random_state=0, **RANGES).get_params(), shipped.scatter_)
    assert found.flow.has_shipped and not expected.flow.has_shipped
    assert found.from_zero == expected.settings == expected.from_zero
    one, other = found.flow.without_shipped(), expected.flow
    assert jax.tree.structure(one) == jax.tree.structure(other)
    leaves = (jax.tree.leaves(eqx.filter(flow, eqx.is_array)) for flow in (one, other))
    for a, b in zip(*leaves, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_hundreds_of_nats_at_one_condition_do_not_outweigh_many_others():
    base = start_with(np.zeros(13), np.zeros(13))
    warm, cold = np.r_[np.full(8, -2.0), np.zeros(4), 300.0], np.r_[np.full(8, -0.1), np.full(5, 30.0)]
    assert base.is_better_than(start_with(warm, np.zeros(13)))
    assert start_with(cold, np.zeros(13)).is_better_than(base)
    assert not base.is_better_than(base)
    nothing = start_with(np.full(13, -np.inf), np.full(13, np.inf))
    assert base.is_better_than(nothing) and not nothing.is_better_than(nothing) and not nothing.is_usable


def test_training_begins_with_the_network(monkeypatch):
    seen = []

    def train(flow, *args, **options):
        seen.append(flow)
        return start.Trained(flow, {}, [start.Report(CHUNK, CHUNK, 0.0, 1.0, 0)], Status.FINISHED)

    monkeypatch.setattr(start, "train", train)
    model = fit(gf.simulate.toy_problem(6, 20, random_state=1)[0], steps=CHUNK)
    (flow,) = seen
    shipped = load_correction_network().entry.weight_2
    np.testing.assert_array_equal(flow.bijection.pretrained.tree.entry.weight_2, shipped)
    assert model.flow_ is flow
