"""The search for the λ and q of highest evidence."""

from contextlib import nullcontext

import numpy as np
import pytest

from ggmflow.estimator.graphical_flow import RangeWarning
from ggmflow.evidence.marginal_likelihood import Evidence
from ggmflow.evidence.search import choose, parabola_top
from ggmflow.model.conditions import Boundary, Ranges


def surface(function):
    """Evidence of which only the value is used."""
    return lambda lam, q: Evidence(function(lam, q), 0.0, None, None)


def test_the_vertex_of_a_parabola_is_exact_unless_the_highest_point_is_an_end():
    x = np.array([-1.0, 0.0, 1.0, 2.0])
    location, height = parabola_top(x, 3 - 2 * (x - 0.6) ** 2)
    assert location == pytest.approx(0.6) and height == pytest.approx(3.0)
    assert parabola_top(x, x) == (2.0, 2.0)
    assert parabola_top(x, -((x - 2.3) ** 2)) == (2.0, pytest.approx(-0.09))
    location, height = parabola_top(x, -((x - 1.9) ** 2), outside=True)
    assert location == pytest.approx(1.9) and height == pytest.approx(0.0, abs=1e-12)
    assert parabola_top(x, -((x - 9) ** 2), outside=True)[0] == 2.0  # at most the last point
    assert parabola_top(x, np.array([-np.inf, 0.0, -1.0, -2.0])) == (0.0, 0.0)  # no parabola through −∞
    assert parabola_top(x, np.zeros(4)) == (-1.0, 0.0)


def test_choose_finds_the_maximum_of_a_smooth_surface():
    ranges = Ranges((0.1, 10.0), (0.25, 1.25), (1.0, 1.0))
    lam, q, at_boundary = choose(surface(lambda lam, q: -((np.log(lam / 1.7)) ** 2) - 8 * (q - 0.61) ** 2), ranges)
    assert lam == pytest.approx(1.7) and q == pytest.approx(0.61) and at_boundary == ()
    lam, q, at_boundary = choose(surface(lambda lam, q: np.log(lam) - q), ranges)
    assert (lam, q) == (10.0, 0.25)
    assert at_boundary == (Boundary("lam", "high"), Boundary("q", "low"))
    assert choose(surface(lambda lam, q: -lam), ranges._replace(lam=(2.0, 2.0), q=(1.0, 1.0))) == (2.0, 1.0, ())
    # A narrow ridge whose best λ moves with q: no point of a grid may be near it.
    for shift in (0.0, 0.1, 0.2, 0.3):
        ridge = surface(
            lambda lam, q, s=shift: 300 * (np.log(lam) - q - s - np.exp(np.log(lam) - q - s)) - (q - 0.7) ** 2
        )
        lam, q, at_boundary = choose(ridge, ranges)
        assert (
            q == pytest.approx(0.7, abs=0.1) and np.log(lam) == pytest.approx(q + shift, abs=0.02) and at_boundary == ()
        )
    # NaN is never the best
    assert choose(surface(lambda lam, q: np.nan if lam > 9 else lam), ranges).lam < 10
    with pytest.raises(FloatingPointError, match="not finite anywhere"):
        choose(surface(lambda lam, q: np.nan), ranges)


@pytest.mark.slow
def test_the_chosen_condition_has_the_highest_evidence(model):
    full = model("full")
    with pytest.warns(RangeWarning) if full.select().at_boundary else nullcontext():
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
