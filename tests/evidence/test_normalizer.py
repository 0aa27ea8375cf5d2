"""Normalizers of the posterior and the prior against exact values."""

import numpy as np
import pytest
from scipy import stats

from ggmflow.evidence.normalizer import cumulant_estimate, log_normalizer
from ggmflow.posterior.flow_source import FlowSource
from ggmflow.posterior.source import as_key
from ggmflow.posterior.weights import ImportanceWeights
from tests.support import models
from tests.support.models import Exact, pushed
from tests.support.oracles import log_factor
from tests.support.wishart import log_wishart


@pytest.mark.slow
@pytest.mark.parametrize("exact", [True, False])
def test_bridge_and_cumulants_agree_with_the_exact_value(model, monkeypatch, exact):
    """Bridge and cumulants give the same log Z; five standard errors (bridge), 0.05 nats (cumulants)."""
    source = model("full").posterior(2.0, 0.25).source
    truth = Exact(model("full"), 2.0, 0.25, 1.0)
    monkeypatch.setattr(ImportanceWeights, "poor", True)
    found = log_normalizer(source, as_key(0), 4000, exact=exact)
    assert found.method == ("bridge" if exact else "cumulant")
    assert abs(found.value - truth.log_Z) < (5 * np.hypot(found.se, truth.log_Z_se) if exact else 0.05)
    assert found.se < 0.03


@pytest.mark.slow
def test_a_bridge_is_right_where_weights_fail(model):
    """A flow pushed away from its target: k̂ is poor, the bridge right to 5 of its standard errors, 6e-7."""
    truth = Exact(model("full"), 2.0, 0.5, 1.0)
    found = log_normalizer(pushed(model("full").posterior(2.0, 0.5).source), as_key(0), 4000)
    assert found.method == "bridge"
    assert truth.log_Z - found.elbo > 1  # far from it
    assert abs(found.value - truth.log_Z) < 5 * np.hypot(found.se, truth.log_Z_se)
    assert found.se < 0.5  # of some 30 nats; 0.1 to 0.3 by processor, whose rounding makes training another


@pytest.fixture(scope="module")
def exact_prior():
    """log Z of `models.prior_source` and its standard error: Wishart draws with weights exp(−λΣ|ω|^q) ≤ 1."""
    wishart = stats.wishart(df=5, scale=np.eye(4) / 2.0)
    factor = np.exp(log_factor(wishart.rvs(400_000, random_state=np.random.default_rng(0)), 2.0, 0.5, 4))
    se = np.std(factor) / factor.mean() / np.sqrt(factor.size)
    return log_wishart(0, 2.0 * np.eye(4)) + np.log(factor.mean()), se


@pytest.mark.slow
def test_a_bridge_from_draws_that_rounding_made_indefinite(monkeypatch, exact_prior):
    """One of the first draws, from which chains start, is indefinite in float32; five standard errors, 6e-7."""
    source, num_draws = models.prior_source(), 1000
    monkeypatch.setattr(ImportanceWeights, "poor", True)
    key = models.key_with_indefinite_draws(lambda key: source.to_rows(source.entries(key, num_draws)[0][:256]))
    found = log_normalizer(source, key, num_draws)
    assert found.method == "bridge" and found.num_invalid == 0
    assert abs(found.value - exact_prior[0]) < 5 * np.hypot(found.se, exact_prior[1])
    assert found.se < 0.1


class SpoiltSource(FlowSource):
    """A flow whose first 20 draws are NaN and have no density."""

    def entries(self, key, num_draws):
        entries, log_q, log_p = (value.copy() for value in super().entries(key, num_draws))
        entries[:20], log_p[:20] = np.nan, np.nan
        return entries, log_q, log_p


@pytest.mark.slow
@pytest.mark.parametrize("exact", [True, False])
def test_draws_without_a_density_are_counted_and_have_weight_zero(monkeypatch, exact_prior, exact):
    """Twenty of 4000 draws, a share of 0.005, change log Z by that much; plus five standard errors (bridge), 6e-7."""
    monkeypatch.setattr(ImportanceWeights, "poor", True)
    found = log_normalizer(SpoiltSource(*models.prior_source()), as_key(0), 4000, exact=exact)
    assert found.num_invalid == 20
    error = 0.02 + 5 * np.hypot(found.se, exact_prior[1]) if exact else 0.5
    assert abs(found.value - exact_prior[0]) < error


def test_cumulants_of_normal_log_weights_and_of_outliers(rng):
    """log E exp = μ + σ²/2; if the target is zero at a twentieth of the draws, this subtracts log 0.95, no more."""
    normal = rng.normal(-3.0, 2.0, size=100_000)
    value, se = cumulant_estimate(normal)
    assert value == pytest.approx(-3 + 2, abs=4 * se + 0.01) and se < 0.02
    far_out = np.where(rng.random(100_000) < 0.05, -500.0, normal)
    assert cumulant_estimate(far_out)[0] == pytest.approx(-1 + np.log(0.95), abs=1.0)
    assert np.mean(far_out) + 0.5 * np.var(far_out) > 1000  # the cumulants without the cut
