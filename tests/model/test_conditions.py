"""Ranges of (λ, q, T) and points within them; wrong parameters are tested with the estimator."""

import re

import numpy as np
import pytest

from ggmflow.data.scatter import Scatter
from ggmflow.errors.advice import Surface
from ggmflow.errors.argument import ArgumentError
from ggmflow.model.conditions import Boundary, Ranges, boundaries_from_json, find_ranges, likely_lam

SCATTER = Scatter(np.array([[10.0, -4.0], [-4.0, 10.0]]), 10, np.zeros(2), np.ones(2), ("a", "b"))
RANGES = Ranges((0.5, 8.0), (0.25, 1.25), (0.01, 0.5))


def test_ends_and_warmest():
    np.testing.assert_allclose(RANGES.low, [np.log(0.5), 0.25, np.log(0.01)])
    np.testing.assert_allclose(RANGES.high, [np.log(8.0), 1.25, np.log(0.5)])
    assert RANGES.warmest == 0.5
    assert RANGES.many_temperatures and not RANGES._replace(temperature=(1.0, 1.0)).many_temperatures


def test_condition():
    np.testing.assert_allclose(RANGES.condition(2.0, 1.0, 0.1), [np.log(2.0), 1.0, np.log(0.1)])
    # the ends themselves, whatever the last digit
    np.testing.assert_allclose(RANGES.condition(8.0 * (1 + 1e-12), 1.25, 0.01), [np.log(8.0), 1.25, np.log(0.01)])
    with pytest.raises(ValueError, match=r"lam=8\.1 is outside the fitted range 0\.5 … 8"):
        RANGES.condition(8.1, 1.0, 0.1)
    for wrong in (np.nan, "1", True, None):
        with pytest.raises(ValueError, match="q must be a number"):
            RANGES.condition(2.0, wrong, 0.1)


def test_likely_lam_is_exact_where_the_posterior_is_known():
    """Many rows: E|ω_ij| = |ω̂_ij|, and λ = D/(½ tr Ω + Σ|ω_ij|) in the scale of the data."""
    scatter = Scatter(1e6 * np.array([[2.0, -0.8], [-0.8, 2.0]]), 1_000_000, np.zeros(2), np.ones(2), ("a", "b"))
    Omega = np.linalg.inv([[2.0, -0.8], [-0.8, 2.0]])
    assert likely_lam(scatter, np.arange(2)) == pytest.approx(3 / (Omega[0, 0] + abs(Omega[0, 1])), rel=1e-3)
    independent = Scatter(100.0 * np.eye(3), 100, np.zeros(3), np.ones(3), ("a", "b", "c"))
    noise = np.sqrt(2 / np.pi / 104)  # of each of three pairs
    assert likely_lam(independent, np.arange(3)) == pytest.approx(6 / (1.5 + 3 * noise))
    assert likely_lam(independent, np.arange(1)) == pytest.approx(6 / (1.5 + 2 * noise))  # two pairs with the query


def test_the_automatic_range_is_around_likely_lam():
    centre = likely_lam(SCATTER, np.arange(2))
    assert find_ranges("auto", 1.0, 1.0, SCATTER, np.arange(2)).lam == (centre / 10, centre * 5)


def test_likely_lam_scales_with_the_data_as_evidence_does():
    """Two columns of sd 0.01 and 1, twenty rows: brute force has the highest evidence at q = 1 near λ = 8e-4."""
    sd = np.array([0.01, 1.0])
    scatter = Scatter(
        20 * np.array([[1.0, 0.3], [0.3, 1.0]]) * np.outer(sd, sd), 20, np.zeros(2), np.ones(2), ("a", "b")
    )
    assert 2e-4 < likely_lam(scatter, np.arange(2)) < 3e-3
    one = Scatter(scatter.matrix / np.outer(sd, sd), 20, np.zeros(2), np.ones(2), ("a", "b"))
    many = Scatter(100 * one.matrix, 20, np.zeros(2), np.ones(2), ("a", "b"))
    assert likely_lam(many, np.arange(2)) == pytest.approx(100 * likely_lam(one, np.arange(2)))


def test_sentences_of_version_0_1_0_are_read_whatever_the_text_of_a_boundary_is(monkeypatch):
    monkeypatch.setattr(Boundary, "text", lambda self, name=None: "reworded")
    written = {
        "the lower end of lam": ("lam", "low"),
        "the upper end of lam": ("lam", "high"),
        "the lower end of q": ("q", "low"),
        "the upper end of q": ("q", "high"),
    }
    for sentence, boundary in written.items():
        assert boundaries_from_json([sentence]) == (Boundary(*boundary),)
    assert boundaries_from_json(list(written)) == tuple(Boundary(*each) for each in written.values())


def test_boundaries_are_read_from_pairs():
    upper, lower = Boundary("lam", "high"), Boundary("q", "low")
    assert boundaries_from_json([["lam", "high"], ["q", "low"]]) == (upper, lower)
    assert boundaries_from_json([]) == ()
    assert upper.text("λ") == "the upper end of λ"
    for wrong in (
        None,
        "the upper end of lam",
        [3],
        [["lam"]],
        [["lam", "up"]],
        ["the end of q"],
        {"lam": "high"},
        [[["lam"]]],
    ):
        with pytest.raises(ValueError, match="ends of ranges"):
            boundaries_from_json(wrong)


def test_errors_carry_their_values():
    with pytest.raises(ArgumentError) as caught:
        RANGES.inside("lam", 20.0)
    assert (caught.value.argument, caught.value.value) == ("lam", 20.0)
    assert caught.value.advice.options == {"lam": (0.5, 20.0)}
    assert caught.value.text(Surface.COMMAND_LINE).endswith("fit again with --lam 0.5,20")
    with pytest.raises(ArgumentError, match="is reversed: the first number must not exceed the second"):
        find_ranges((8, 2), 1.0, 1.0, SCATTER, np.arange(2))


IMPOSSIBLE = {
    "lam": {-1.0: "must be positive", 0.0: "must be positive", 1e-31: "1e-30 … 1e+30", 1e31: "1e-30 … 1e+30"},
    "q": {-0.5: "must be positive", 0.0: "must be positive", 0.05: "0.1 … 2", 3.0: "0.1 … 2"},
    "temperature": {-1.0: "must be positive", 0.0: "must be positive", 1e-13: "1e-12 … 1", 1.5: "1e-12 … 1"},
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, known in IMPOSSIBLE.items() for value in known])
def test_impossible_values_come_without_advice_to_fit_again(name, value):
    with pytest.raises(ValueError) as caught:
        RANGES.condition(**{"lam": 2.0, "q": 1.0, "temperature": 0.1, name: value})
    assert IMPOSSIBLE[name][value] in str(caught.value) and "fit again" not in str(caught.value)
    assert str(caught.value).startswith(f"{name}={value:g} is outside the fitted range ")
    with pytest.raises(ValueError):
        find_ranges(**{"lam": 2.0, "q": 1.0, "temperature": 0.1, name: value}, scatter=SCATTER, query=np.arange(2))


POSSIBLE = {
    "lam": (1e-30, 0.1, 0.4999999, 8.000001, 8.0000001, 12.3456789, 1e30),
    "q": (0.1, 0.2, 0.2499999, 1.2500001, 2.0),
    "temperature": (1e-12, 0.001, 0.00999999999, 0.50000001, 1.0),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, known in POSSIBLE.items() for value in known])
@pytest.mark.parametrize(
    "ranges", [RANGES, Ranges((1.23456789, 1.23456789), (0.7654321, 0.7654321), (0.12345678,) * 2)]
)
def test_an_advised_range_is_valid_and_includes_the_value(name, value, ranges):
    with pytest.raises(ValueError) as caught:
        ranges.condition(**{"lam": ranges.lam[0], "q": ranges.q[0], "temperature": ranges.temperature[0], name: value})
    advised = re.search(rf"fit again with {name}=\((\S+), (\S+)\)$", str(caught.value))
    given = {"lam": 2.0, "q": 1.0, "temperature": 0.1, name: (float(advised[1]), float(advised[2]))}
    find_ranges(**given, scatter=SCATTER, query=np.arange(2)).inside(name, value)


def test_advice_on_the_scale_names_what_each_surface_has():
    """The command line has --no-standardize only."""
    scatter = Scatter.from_data(1e-15 * np.random.default_rng(0).normal(size=(30, 3)), standardize=False)
    with pytest.raises(ArgumentError) as caught:
        find_ranges("auto", 1.0, 1.0, scatter, np.arange(3))
    assert caught.value.text(Surface.PYTHON).endswith(": use standardize=True")
    assert caught.value.text(Surface.COMMAND_LINE).endswith(": leave out --no-standardize")
