"""Exact chains from draws of a flow: they converge to the exact posterior and measure the flow's error."""

import numpy as np
import pytest

import ggmflow as gf
from ggmflow.posterior.flow_source import FlowSource
from tests.support.models import Exact, key_with_indefinite_draws, prior_source, pushed


@pytest.mark.parametrize("kind", ["full", pytest.param("blanket", marks=pytest.mark.slow)])
def test_refined_draws_are_exact(model, kind):
    """Mean and quantiles of every entry: |z| < 5 for at most 40 numbers, false alarms 2e-5 a case."""
    exact = Exact(model(kind), 2.0, 0.5, 1.0)
    post = model(kind).posterior(2.0, 0.5).refine(50, random_state=1)
    known = post.refinement
    effective = 1 / (1 / min(known.ess, known.num_chains) + 1 / exact.ess)  # at least the last states are independent
    assert np.all(np.abs(post.mean() - exact.mean) < 5 * exact.sd / np.sqrt(effective))
    for p in (0.05, 0.5, 0.95):
        assert np.all(np.abs(exact.cdf(post.quantile(p)) - p) < 5 * np.sqrt(p * (1 - p) / effective))
    assert (known.sweeps, known.num_chains) == (50, 1000)
    assert known.rhat < 1.01
    assert known.drift < 0.15  # a trained flow, and the noise of 5000 draws
    assert "Good: 1000 exact chains of 50 sweeps" in post.diagnostics()["message"]
    assert not post.weighted and post.num_draws == 5000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ggmflow.PoorFitWarning")
def test_a_poor_flow_is_refined_too_and_its_error_is_seen(model):
    """|z| < 5 for ten means: false alarms 6e-6. `drift` is the flow's error in quantiles, known from the oracle."""
    good, exact = model("full").posterior(2.0, 0.5), Exact(model("full"), 2.0, 0.5, 1.0)
    start = gf.Posterior(pushed(good.source), good.names, good.query, 2.0, 0.5, 1.0)
    off = np.max(np.abs(start.mean(weighted=False) - exact.mean) / exact.sd)
    assert off > 0.3  # otherwise the test would be empty
    post = start.refine(100)
    effective = 1 / (1 / min(post.refinement.ess, post.refinement.num_chains) + 1 / exact.ess)
    assert np.all(np.abs(post.mean() - exact.mean) < 5 * exact.sd / np.sqrt(effective))
    assert post.refinement.rhat < 1.01
    assert post.refinement.drift > 2 * good.refine(100).refinement.drift


@pytest.mark.slow
def test_draws_are_states_of_the_chains(model):
    post = model("full").posterior(2.0, 0.5, 0.3).refine(10, num_chains=50, random_state=np.random.default_rng(0))
    first = post.sample(50, random_state=0)
    np.testing.assert_array_equal(first, post.sample(50, random_state=7))  # the last states, as they are
    assert post.sample(300).shape == (300, 4, 4)  # 250 states: some repeat
    assert np.linalg.eigvalsh(post.sample(250)).min() > 0
    assert post.temperature == 0.3
    with pytest.raises(ValueError, match="no known density"):
        post.log_prob(first)
    with pytest.raises(ValueError, match="exact already"):
        post.refine()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_chains(model):
    a, b = (model("full").posterior(2.0, 0.5).refine(5, num_chains=20, random_state=3).sample(20) for _ in range(2))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True])
def test_wrong_counts(model, wrong):
    with pytest.raises(ValueError, match="sweeps must be a whole number"):
        model("full").posterior(2.0, 0.5).refine(wrong)
    with pytest.raises(ValueError, match="num_chains must be a whole number"):
        model("full").posterior(2.0, 0.5).refine(num_chains=wrong)


def test_a_scatter_without_data():
    empty = gf.Scatter.without_data(3)
    assert empty.n == 0 and not empty.matrix.any()
    with pytest.raises(ValueError, match="positive number"):
        gf.Scatter(np.eye(2), 0, np.zeros(2), np.ones(2), ("a", "b"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ggmflow.PoorFitWarning")
def test_every_draw_starts_a_chain_also_where_rounding_made_it_indefinite():
    source = prior_source()
    draws = source.sample(key_with_indefinite_draws(lambda key: source.sample(key, 256).precision), 256)

    class Fixed(FlowSource):
        def sample(self, key, num_draws):
            return draws

    post = gf.Posterior(Fixed(*source), tuple("abcd"), np.arange(4), 2.0, 0.5, 1.0, num_draws=256)
    post.weighted = False  # the draws as they are
    refined = post.refine(4, num_chains=256)
    assert refined.refinement.num_chains == 256
    assert np.linalg.eigvalsh(refined.sample(256)).min() > 0
