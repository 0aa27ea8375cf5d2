"""The prior's normalizer: scaling law, cache and ranges."""

import numpy as np
import pytest

import ggmflow as gf
from ggmflow.evidence.normalizer import log_normalizer
from ggmflow.evidence.prior import _read_or_train, fit_prior, prior_ranges
from ggmflow.model.conditions import Ranges
from ggmflow.posterior.flow_source import FlowSource
from ggmflow.posterior.source import as_key

LAMS = [0.5, 1.0, 3.0]


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


@pytest.mark.slow
def test_a_prior_is_stored_on_disk(tmp_path, monkeypatch):
    ranges = Ranges((1.0, 10**0.5), (0.75, 1.0), (1.0, 1.0))
    monkeypatch.setattr("ggmflow.evidence.prior.safe_directory", lambda: tmp_path)  # not that of compiled programs
    monkeypatch.setattr("ggmflow.evidence.prior._STEPS", 25)
    _read_or_train(4, 4, ranges, False)
    assert not (tmp_path / "priors").exists()  # a start that is good is not stored, but made again
    monkeypatch.setattr("ggmflow.posterior.start.GOOD", 0.0)
    first = _read_or_train(4, 4, ranges, False)
    (path,) = (tmp_path / "priors").iterdir()

    def fail(*args, **kwargs):
        raise AssertionError("trained again")

    with monkeypatch.context() as patch:
        patch.setattr("ggmflow.evidence.prior.fit_flow", fail)
        again = _read_or_train(4, 4, ranges, False)
    assert first.log_normalizer(2.0, 0.8, 500) == again.log_normalizer(2.0, 0.8, 500)
    path.write_bytes(path.read_bytes()[:-50])  # damaged: trained anew, to the same numbers
    repaired = _read_or_train(4, 4, ranges, False)
    assert first.log_normalizer(2.0, 0.8, 500) == repaired.log_normalizer(2.0, 0.8, 500)


def test_prior_ranges_are_round_and_wider():
    assert prior_ranges(Ranges((0.5, 8.0), (0.3, 1.25), (0.01, 1.0))) == (
        (pytest.approx(10**-0.5), pytest.approx(10.0)),
        (0.25, 1.25),
        (0.01, 1.0),  # a flow of the shape of the posterior's
    )
    assert prior_ranges(Ranges((1.0, 1.0), (0.12, 0.12), (1.0, 1.0))) == ((1.0, 1.0), (0.1, 0.25), (1.0, 1.0))
