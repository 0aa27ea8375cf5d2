"""Diagnostics as values, as a mapping and as a message."""

import json

import numpy as np
import pytest

from ggmflow.posterior.diagnostics import Diagnostics, diagnose, diagnose_chains
from ggmflow.posterior.refinement import Refinement
from ggmflow.posterior.weighted_draws import WeightedDraws
from ggmflow.posterior.weights import Verdict, importance_weights
from ggmflow.storage.json_values import plain


def draws_with(log_ratio):
    entries = np.random.default_rng(0).normal(size=(1, len(log_ratio)))
    return WeightedDraws(entries, ("a",), np.array([0]), importance_weights(log_ratio))


def chains(rhat):
    return diagnose_chains(Refinement(sweeps=50, num_chains=100, rhat=rhat, ess=400.0, drift=0.02), 500)


def heavy():
    """One draw outweighs all others."""
    return diagnose(draws_with(np.r_[0.0, np.full(999, -1e5)]))


CASES = {
    Verdict.GOOD: (diagnose(draws_with(np.linspace(0, 1, 1000))), "Good fit: Pareto k̂"),
    Verdict.FAIR: (diagnose(draws_with(np.where(np.arange(1000) < 96, 0.0, -1e5))), "Fair fit: Pareto k̂ = 0.00"),
    Verdict.POOR: (heavy(), "Poor fit: Pareto k̂ = inf"),
    Verdict.MOVING: (chains(1.2), "Still moving, use more sweeps: 100 exact chains of 50 sweeps, R̂ = 1.200"),
}


@pytest.mark.parametrize("verdict", CASES)
def test_the_message_follows_from_the_verdict(verdict):
    found, beginning = CASES[verdict]
    assert found.verdict is verdict and found.verdict == verdict.value
    assert found.message.startswith(beginning) and found.message == f"{found.headline}: {found.detail}"


def test_exact_draws_are_good():
    found = diagnose(WeightedDraws(np.ones((1, 10)), ("a",), np.array([0])))
    assert found.verdict is Verdict.GOOD and found.khat is None and found.elbo is None and found.ess == 1
    assert found.message == "Exact draws: all have equal weight."
    assert chains(1.005).verdict is Verdict.GOOD and chains(1.005).headline == "Good"


def test_it_reads_like_a_dict():
    found = CASES[Verdict.GOOD][0]
    first = ["elbo", "log_normalizer", "log_normalizer_se", "ess", "khat"]
    assert list(found) == [*first, "num_draws", "weighted", "verdict", "message"]
    assert found["khat"] == found.khat and found["message"] == found.message and found["num_draws"] == 1000
    assert dict(found) == {name: getattr(found, name) for name in found} == found
    assert (found | {"more": 1})["more"] == 1 and found.get("rhat") is None and "khat" in found
    with pytest.raises(KeyError):
        found["refinement"]
    refined = chains(1.005)
    assert (refined["rhat"], refined["ess_chains"], refined["drift"]) == (1.005, 400.0, 0.02)
    assert len(refined) == 12


def test_it_can_be_written_as_json():
    told = json.loads(json.dumps(plain(dict(heavy())), allow_nan=False))
    assert told["verdict"] == "poor" and told["khat"] is None  # infinite


def test_it_cannot_be_changed():
    with pytest.raises(AttributeError):
        Diagnostics(Verdict.GOOD, 10, weighted=False).verdict = Verdict.POOR
