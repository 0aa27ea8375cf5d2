"""Evidence against brute force, its pieces against closed forms, and what it chooses."""

from contextlib import nullcontext
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import ggmflow as gf
from ggmflow.estimator.graphical_flow import RangeWarning
from ggmflow.evidence.evidence import (
    Evidence,
    _by_cumulants,
    _read_or_train,
    choose,
    fit_prior,
    log_normalizer,
    midpoints,
    prior_ranges,
)
from ggmflow.model.conditions import Ranges
from ggmflow.posterior.flow_source import FlowSource
from ggmflow.posterior.source import as_key
from ggmflow.posterior.weights import ImportanceWeights
from tests.support import models
from tests.support.models import TABLE, Exact, log_wishart, pushed, quick
from tests.support.oracles import log_factor

LAMS, QS = [0.5, 1.0, 3.0], [0.25, 0.5, 1.0]  # beyond, brute force needs more than 10⁷ draws


def exact_log_evidence(model, lam, q, num_draws=600_000):
    """Wishart draws before and after the data, with weights exp(−λΣ|ω|^q) ≤ 1; the error of the result."""
    order, s = np.r_[model.query_, np.setdiff1d(np.arange(4), model.query_)], len(model.query_)
    S, n = model.scatter_.matrix[np.ix_(order, order)], model.scatter_.n
    parts, variances = [], []
    for seed, (rows, Psi) in enumerate([(n, S + lam * np.eye(4)), (0, lam * np.eye(4))]):
        wishart = stats.wishart(df=rows + 5, scale=np.linalg.inv(Psi))
        factor = np.exp(log_factor(wishart.rvs(num_draws, random_state=np.random.default_rng(seed)), lam, q, s))
        parts.append(log_wishart(rows, Psi) + np.log(factor.mean()))
        variances.append(np.var(factor) / factor.mean() ** 2 / num_draws)
    return parts[0] - parts[1] - 0.5 * n * 4 * np.log(2 * np.pi), np.sqrt(sum(variances))


@pytest.mark.parametrize("kind", ["full", "blanket"])
def test_evidence_is_exact(model, kind):
    """Nine conditions within 0.05 nats and five standard errors: false alarms 6e-7 each, 1e-5 in all."""
    table = model(kind).evidence(lam=LAMS, q=QS)
    assert list(table.columns) == ["lam", "q", "log_evidence", "se", "elbo", "ess", "khat", "method"]
    assert table["lam"].tolist() == np.repeat(LAMS, 3).tolist() and table["q"].tolist() == QS * 3
    assert set(table["method"]) == {"importance"}
    for row in table.itertuples():
        exact, se = exact_log_evidence(model(kind), row.lam, row.q)
        assert se < 0.03
        assert abs(row.log_evidence - exact) < min(0.05, 5 * np.hypot(se, row.se) + 1e-3), (row.lam, row.q)
        assert 0 < row.se < 0.03


def test_the_cone_matters(model):
    """Without the cone, the paper's constants compare q wrongly: by more than a nat between q = 1 and 0.25 here."""
    full = model("full")
    difference = {
        normalizer: np.diff(full.evidence(lam=0.5, q=[1.0, 0.25], normalizer=normalizer)["log_evidence"])[0]
        for normalizer in ("cone", "published")
    }
    exact = exact_log_evidence(full, 0.5, 0.25)[0] - exact_log_evidence(full, 0.5, 1.0)[0]
    assert abs(difference["cone"] - exact) < 0.05
    assert abs(difference["published"] - exact) > 1


def test_published_constants(model):
    """The ELBO plus Σ_{i<j} log(q λ^{1/q}/(2Γ(1/q))); at q = 1 that is 6 log(λ/2)."""
    (row,) = model("full").evidence(lam=3.0, q=1.0, normalizer="published").itertuples()
    assert row.log_evidence == pytest.approx(row.elbo + 6 * np.log(1.5))
    assert row.method == "published"


def prior_source(prior, lam, q):
    return FlowSource(prior.flow, prior.ranges.condition(lam, q, 1.0), np.arange(4), gf.Scatter.without_data(4))


def test_scaling_law_of_the_prior():
    """At q = 1, Z_prior = λ^{−10}·const: three λ, each from its own draws; |z| < 5, false alarms 1e-6 in all."""
    prior = fit_prior(4, 4, Ranges((10**-0.5, 10.0), (0.25, 1.25), (1.0, 1.0)))
    found = [log_normalizer(prior_source(prior, lam, 1.0), as_key(k), 4000) for k, lam in enumerate(LAMS)]
    by_law = [prior.log_normalizer(lam, 1.0, 4000) for lam in LAMS]
    np.testing.assert_allclose(np.diff([each.value for each in by_law]), -10 * np.diff(np.log(LAMS)))
    for one, other in zip(found, by_law, strict=True):
        assert abs(one.value - other.value) < 5 * np.hypot(one.se, other.se)
        assert one.se < 0.02


@pytest.mark.parametrize("exact", [True, False])
def test_other_ways_where_weights_fail(model, monkeypatch, exact):
    """Bridge and cumulants give the same log Z; five standard errors (bridge), 0.05 nats (cumulants)."""
    source = model("full").posterior(2.0, 0.25).source
    truth = Exact(model("full"), 2.0, 0.25, 1.0)
    monkeypatch.setattr(ImportanceWeights, "poor", True)
    found = log_normalizer(source, as_key(0), 4000, exact=exact)
    assert found.method == ("bridge" if exact else "cumulant")
    assert abs(found.value - truth.log_Z) < (5 * np.hypot(found.se, truth.log_Z_se) if exact else 0.05)
    assert found.se < 0.03


def test_a_bridge_carries_where_weights_fail(model):
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
    """A flow whose first 20 draws are not numbers and have no density."""

    def entries(self, key, num_draws):
        entries, log_q, log_p = (value.copy() for value in super().entries(key, num_draws))
        entries[:20], log_p[:20] = np.nan, np.nan
        return entries, log_q, log_p


@pytest.mark.parametrize("exact", [True, False])
def test_draws_without_a_density_are_counted_and_have_no_weight(monkeypatch, exact_prior, exact):
    """Twenty of 4000 draws, a share of 0.005, take that much from log Z; five standard errors beside (bridge), 6e-7."""
    monkeypatch.setattr(ImportanceWeights, "poor", True)
    found = log_normalizer(SpoiltSource(*models.prior_source()), as_key(0), 4000, exact=exact)
    assert found.num_invalid == 20
    error = 0.02 + 5 * np.hypot(found.se, exact_prior[1]) if exact else 0.5
    assert abs(found.value - exact_prior[0]) < error


def test_prior_is_kept_on_disk(tmp_path, monkeypatch):
    ranges = Ranges((1.0, 10**0.5), (0.75, 1.0), (1.0, 1.0))
    monkeypatch.setenv("GGMFLOW_CACHE", str(tmp_path))
    monkeypatch.setattr("ggmflow.evidence.evidence._PRIOR_STEPS", 25)
    first = _read_or_train(4, 4, ranges, False)
    (path,) = (tmp_path / "priors").iterdir()

    def fail(*args, **kwargs):
        raise AssertionError("trained again")

    with monkeypatch.context() as patch:
        patch.setattr("ggmflow.evidence.evidence.train", fail)
        again = _read_or_train(4, 4, ranges, False)
    assert first.log_normalizer(2.0, 0.8, 500) == again.log_normalizer(2.0, 0.8, 500)
    path.write_bytes(path.read_bytes()[:-50])  # damaged: trained anew, to the same numbers
    repaired = _read_or_train(4, 4, ranges, False)
    assert first.log_normalizer(2.0, 0.8, 500) == repaired.log_normalizer(2.0, 0.8, 500)


def test_prior_ranges_are_round_and_wider():
    assert prior_ranges(Ranges((0.5, 8.0), (0.3, 1.25), (0.01, 1.0))) == (
        (pytest.approx(10**-0.5), pytest.approx(10.0)),
        (0.25, 1.25),
        (1.0, 1.0),
    )
    assert prior_ranges(Ranges((1.0, 1.0), (0.12, 0.12), (1.0, 1.0))) == ((1.0, 1.0), (0.1, 0.25), (1.0, 1.0))


# -------------------------------------------------------------------------------------------------------------- choice
def surface(function):
    """Only the value of an evidence counts."""
    return lambda lam, q: Evidence(function(lam, q), 0.0, None, None)


def test_choose_finds_the_top_of_a_smooth_surface():
    ranges = Ranges((0.1, 10.0), (0.25, 1.25), (1.0, 1.0))
    lam, q, ends = choose(surface(lambda lam, q: -((np.log(lam / 1.7)) ** 2) - 8 * (q - 0.61) ** 2), ranges)
    assert lam == pytest.approx(1.7) and q == pytest.approx(0.61) and ends == ()
    lam, q, ends = choose(surface(lambda lam, q: np.log(lam) - q), ranges)
    assert (lam, q) == (10.0, 0.25)
    assert ends == ("the upper end of lam", "the lower end of q")
    assert choose(surface(lambda lam, q: -lam), ranges._replace(lam=(2.0, 2.0), q=(1.0, 1.0))) == (2.0, 1.0, ())
    # A narrow ridge whose best λ moves with q: no point of a grid may be near it.
    for shift in (0.0, 0.1, 0.2, 0.3):
        ridge = surface(
            lambda lam, q, s=shift: 300 * (np.log(lam) - q - s - np.exp(np.log(lam) - q - s)) - (q - 0.7) ** 2
        )
        lam, q, ends = choose(ridge, ranges)
        assert q == pytest.approx(0.7, abs=0.1) and np.log(lam) == pytest.approx(q + shift, abs=0.02) and ends == ()
    # NaN is never the best
    assert choose(surface(lambda lam, q: np.nan if lam > 9 else lam), ranges).lam < 10
    with pytest.raises(FloatingPointError, match="not finite anywhere"):
        choose(surface(lambda lam, q: np.nan), ranges)


def test_the_chosen_condition_has_the_highest_evidence(model):
    full = model("full")
    with pytest.warns(RangeWarning) if full.select().at_ends else nullcontext():
        best = (full.lam_, full.q_)
    post = full.posterior()
    assert (post.lam, post.q, post.temperature) == (pytest.approx(best[0]), pytest.approx(best[1]), 1.0)
    top = full.evidence(*best)["log_evidence"][0]
    others = full.evidence(lam=np.geomspace(*full.lam_range_, 7), q=np.linspace(*full.q_range_, 4))["log_evidence"]
    assert top > others.max() - 0.05
    fixed = full.select(q=0.5)
    assert fixed.q == 0.5
    curve = full.evidence(lam=np.geomspace(*full.lam_range_, 15), q=0.5)["log_evidence"]
    assert full.evidence(fixed.lam, 0.5)["log_evidence"][0] > curve.max() - 0.05


def test_average_is_the_mixture(model):
    """Its mean is that of the posteriors on the grid, weighted by evidence; within 5 standard errors, 1e-5 in all."""
    full = model("full")
    averaged = full.posterior(average=True, num_draws=8000)
    lams, qs = np.exp(midpoints(*np.log(full.lam_range_), 12)), midpoints(*full.q_range_, 6)
    table = full.evidence(lam=lams, q=qs, num_draws=1000)
    share = np.exp(table["log_evidence"] - table["log_evidence"].max())
    means = np.stack([full.posterior(row.lam, row.q, num_draws=1000).mean() for row in table.itertuples()])
    expected = np.tensordot(share / share.sum(), means, 1)
    error = averaged.sd() * np.sqrt(2 / (8000 * averaged.diagnostics()["ess"]))
    assert np.all(np.abs(averaged.mean() - expected) < 5 * error + 0.01)
    assert averaged.weighted and averaged.diagnostics()["khat"] < 0.7
    rows = averaged.sample(3, random_state=0)
    assert np.all(np.isfinite(averaged.log_prob(rows)))
    assert full.posterior(q=0.5, average=True, num_draws=500).mean().shape == (4, 4)


def test_what_is_refused(model, untrained):
    full = model("full")
    with pytest.raises(ValueError, match="normalizer must be"):
        full.evidence(normalizer="none")
    for ask in (lambda: full.evidence(lam=100.0), lambda: full.select(lam=100.0), lambda: full.select(100.0, 1.0)):
        with pytest.raises(ValueError, match="lam=100 is outside the fitted range"):
            ask()
    for temperature in (0.5, np.ones(2), "1"):
        with pytest.raises(ValueError, match="needs temperature=1"):
            full.posterior(average=True, temperature=temperature)
    for name, wrong in product(("lam", "q"), ("x", [], [[1.0], [1.0, 2.0]], np.ones((2, 2)))):
        for ask in (full.evidence, partial(full.posterior, average=True)):
            with pytest.raises(ValueError, match=f"{name} must be a number"):
                ask(**{name: wrong})
    with pytest.raises(ValueError, match="num_draws"):
        full.evidence(2.0, 1.0, num_draws=0)
    cold = quick(temperature=(0.01, 0.1)).fit(TABLE)
    for ask in (
        cold.evidence,
        cold.select,
        lambda: cold.posterior(average=True),
        lambda: cold.posterior(temperature=0.05),
    ):
        with pytest.raises(ValueError, match="temperatures include 1"):
            ask()
    assert isinstance(cold.posterior(2.0, 1.0, 0.05, num_draws=100).sample(2), np.ndarray)


def test_default_grid(model):
    table = model("blanket").evidence(num_draws=500, exact=False)
    assert isinstance(table, pd.DataFrame) and len(table) == 45
    assert np.all(np.isfinite(table["log_evidence"]))


def test_cumulants_of_normal_log_weights_and_of_some_that_fell_far_out(rng):
    """log E exp = μ + σ²/2; a twentieth of the draws where the target is nothing takes log 0.95 away, no more."""
    normal = rng.normal(-3.0, 2.0, size=100_000)
    value, se = _by_cumulants(normal)
    assert value == pytest.approx(-3 + 2, abs=4 * se + 0.01) and se < 0.02
    far_out = np.where(rng.random(100_000) < 0.05, -500.0, normal)
    assert _by_cumulants(far_out)[0] == pytest.approx(-1 + np.log(0.95), abs=1.0)
    assert np.mean(far_out) + 0.5 * np.var(far_out) > 1000  # what the plain cumulants say
