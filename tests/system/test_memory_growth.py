"""The judge of the memory benchmark: what does not grow must not hide what does."""

import pytest

from tests.support.memory import LARGEST_EXPONENT, exponent

D, MIB = [1275, 5050, 11325], 2**20


@pytest.mark.parametrize("constant", [0, 150, 600])
@pytest.mark.parametrize(("power", "allowed"), [(0.5, True), (1.0, True), (1.25, False), (2.0, False)])
def test_growth_beside_a_constant(constant, power, allowed):
    peaks = [int(MIB * (constant + 400 * (size / 5050) ** power)) for size in D]
    found = exponent(D, peaks, MIB * constant)
    assert found == pytest.approx(power, abs=1e-3)
    assert (found <= LARGEST_EXPONENT) == allowed
