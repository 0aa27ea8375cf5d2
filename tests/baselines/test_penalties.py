"""Every penalty is concave and nondecreasing, and its slope is its derivative."""

import numpy as np
import pytest
from scipy.integrate import quad

from ggmflow.baselines import PENALTIES, penalty_slope, penalty_value
from ggmflow.errors.argument import ArgumentError

RHO = 0.3
SIZES = np.concatenate([np.geomspace(1e-4, 5, 400), [RHO, 2 * RHO, 3.7 * RHO]])
SIZES.sort()

# Default shapes, and others.
CASES = [(name, None) for name in PENALTIES]
CASES += [("atan", 0.5), ("selo", 0.5), ("exp", 0.5), ("log", 0.5), ("sica", 0.5), ("scad", 2.5), ("mcp", 1.5)]
CASES += [("adapt", 0.25), ("lq", 0.25), ("lq", 0.5), ("lq", 1.0)]


@pytest.mark.parametrize("offset", [0.0, 1e-3])
@pytest.mark.parametrize(("name", "gamma"), CASES)
def test_slope_is_the_derivative(name, gamma, offset):
    # A step of 1e-6 t keeps both the rounding and the curvature error below 1e-5 of the slope; kinks of the slope
    # of scad and mcp shift a one-sided difference by half a step.
    step = 1e-6 * (SIZES + offset)
    up, down = (penalty_value(name, SIZES + sign * step, RHO, gamma, offset=offset) for sign in (1, -1))
    slope = penalty_slope(name, SIZES, RHO, gamma, offset=offset)
    np.testing.assert_allclose((up - down) / (2 * step), slope, rtol=1e-4, atol=1e-5 * RHO)


@pytest.mark.parametrize(("name", "gamma"), CASES)
def test_value_is_the_integral_of_the_slope(name, gamma):
    area, _ = quad(lambda t: float(penalty_slope(name, t, RHO, gamma)), 0.1, 2.0, points=[RHO, 2 * RHO, 3.7 * RHO])
    rise = penalty_value(name, 2.0, RHO, gamma) - penalty_value(name, 0.1, RHO, gamma)
    assert float(rise) == pytest.approx(area, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1e-3])
@pytest.mark.parametrize(("name", "gamma"), CASES)
def test_concave_and_nondecreasing_from_zero(name, gamma, offset):
    value = penalty_value(name, SIZES, RHO, gamma, offset=offset)
    slope = penalty_slope(name, SIZES, RHO, gamma, offset=offset)
    assert float(penalty_value(name, 0.0, RHO, gamma, offset=offset)) == 0.0
    assert np.all(slope >= 0) and np.all(np.diff(value) >= -1e-15)
    assert np.all(np.diff(slope) <= 1e-15)
    # Tangents lie above: p(t) ≤ p(s) + p′(s)(t − s) for all s, t.
    tangent = value[:, None] + slope[:, None] * (SIZES[None, :] - SIZES[:, None])
    assert np.all(value[None, :] <= tangent + 1e-12)


@pytest.mark.parametrize("name", ["scad", "mcp"])
def test_flat_beyond_gamma_rho(name):
    gamma = PENALTIES[name].gamma
    beyond = gamma * RHO * np.array([1.0, 1.5, 10.0])
    np.testing.assert_array_equal(penalty_slope(name, beyond, RHO), 0.0)
    value = penalty_value(name, beyond, RHO)
    level = {"scad": (gamma + 1) * RHO**2 / 2, "mcp": gamma * RHO**2 / 2}[name]
    np.testing.assert_allclose(value, level, rtol=1e-12)
    assert penalty_slope(name, 0.99 * gamma * RHO, RHO) > 0


@pytest.mark.parametrize("name", ["scad", "mcp", "lasso"])
def test_slope_at_zero_is_rho(name):
    assert float(penalty_slope(name, 0.0, RHO)) == RHO


@pytest.mark.parametrize("name", PENALTIES)
def test_sign_does_not_matter_and_shape_is_kept(name):
    entries = np.array([[-2.0, -0.1], [0.1, 2.0]])
    for function in (penalty_value, penalty_slope):
        result = function(name, entries, RHO)
        assert result.shape == (2, 2)
        np.testing.assert_array_equal(result, function(name, -entries, RHO))


@pytest.mark.parametrize("name", ["atan", "selo", "exp", "sica"])
def test_small_gamma_counts_nonzeros(name):
    counted = penalty_value(name, [0.5, 1.0, 3.0], 1.0, 1e-6)
    np.testing.assert_allclose(counted, 1.0, rtol=1e-4)


@pytest.mark.parametrize(("name", "infinite"), [(name, row.infinite_slope) for name, row in PENALTIES.items()])
def test_slope_at_zero(name, infinite):
    assert np.isinf(penalty_slope(name, 0.0, RHO)) == infinite
    assert np.isfinite(penalty_slope(name, 0.0, RHO, offset=1e-4))


def test_reductions():
    np.testing.assert_allclose(penalty_value("lq", SIZES, RHO, 1.0), penalty_value("lasso", SIZES, RHO))
    np.testing.assert_allclose(penalty_value("lq", SIZES, RHO, 0.5), RHO * np.sqrt(SIZES))
    np.testing.assert_allclose(penalty_value("adapt", SIZES, RHO, 0.5), 2 * RHO * np.sqrt(SIZES))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ridge", 1.0, RHO), "unknown penalty 'ridge': choose one of lasso, atan"),
        (("scad", 1.0, RHO, 2.0), "gamma must be above 2 for the penalty 'scad', got 2"),
        (("mcp", 1.0, RHO, 1.0), "gamma must be above 1 for the penalty 'mcp'"),
        (("lq", 1.0, RHO, 1.5), "above 0 and at most 1"),
        (("atan", 1.0, RHO, 0.0), "above 0"),
        (("atan", 1.0, -1.0), "rho must be finite and not negative, got -1"),
    ],
)
def test_invalid_arguments(arguments, message):
    for function in (penalty_value, penalty_slope):
        with pytest.raises(ArgumentError, match=message):
            function(*arguments)
