"""Where a flow is asked: ranges of shrinkage λ, exponent q and temperature T, and points within them.

condition = [log λ, q, log T]
"""

from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ggmflow.data import Scatter

_Pair = tuple[float, float]
# τ was trained for exponents in this range.
Q_LIMITS = (0.1, 2.0)


class Ranges(NamedTuple):
    """Box of conditions that a flow is fitted for; each range is (low, high)."""

    lam: _Pair
    q: _Pair
    temperature: _Pair

    @property
    def low(self) -> Float[np.ndarray, " 3"]:
        """Lowest [log λ, q, log T]."""
        return self._end(0)

    @property
    def high(self) -> Float[np.ndarray, " 3"]:
        """Highest [log λ, q, log T]."""
        return self._end(1)

    @property
    def warmest(self) -> float:
        """1, or the temperature of the range that is next to it."""
        return float(np.clip(1.0, *self.temperature))

    @property
    def many_temperatures(self) -> bool:
        """Whether there is more than one temperature."""
        return self.temperature[0] < self.temperature[1]

    def _end(self, k: int) -> Float[np.ndarray, " 3"]:
        return np.array([np.log(self.lam[k]), self.q[k], np.log(self.temperature[k])])

    def condition(self, lam: float, q: float, temperature: float) -> Float[np.ndarray, " 3"]:
        """[log λ, q, log T] of a point; refuses one outside."""
        checked = []
        for name, value in zip(self._fields, (lam, q, temperature), strict=True):
            low, high = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not np.isfinite(float(value)):
                raise ValueError(f"{name} must be a number, got {value!r}")
            if not low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
                fitted = f"range {low:g} … {high:g}" if low < high else f"value {low:g}"
                wider = f"({min(low, value):g}, {max(high, value):g})"
                raise ValueError(f"{name}={value:g} is outside the fitted {fitted}: fit again with {name}={wider}")
            checked.append(float(np.clip(value, low, high)))
        return np.array([np.log(checked[0]), checked[1], np.log(checked[2])])


class Choice(NamedTuple):
    """Where the evidence is highest, and at which ends of the ranges that is, if at any."""

    lam: float
    q: float
    at_ends: tuple[str, ...]


def find_ranges(lam: Any, q: Any, temperature: Any, scatter: Scatter) -> Ranges:
    """Ranges from an estimator's parameters, each a number or a pair; `lam` may be "auto".

    "auto" spans from fifty times below the largest off-diagonal entry of S, where the graphical lasso has no edge left,
    up to it.
    """
    if isinstance(lam, str):
        if lam != "auto":
            raise ValueError(f"lam must be 'auto', a positive number or (low, high), got {lam!r}")
        largest = np.max(np.abs(scatter.matrix - np.diag(np.diag(scatter.matrix))))
        # Uncorrelated columns leave nothing to shrink; the scale of S is then all there is.
        largest = float(max(largest, 0.05 * float(np.mean(np.diag(scatter.matrix)))))
        lam = (largest / 50, largest)
    ranges = Ranges(_pair("lam", lam), _pair("q", q), _pair("temperature", temperature))
    if ranges.q[0] < Q_LIMITS[0] or ranges.q[1] > Q_LIMITS[1]:
        raise ValueError(f"q must lie between {Q_LIMITS[0]:g} and {Q_LIMITS[1]:g}, got {q!r}")
    if ranges.temperature[1] > 1:
        raise ValueError(f"temperature must not exceed 1, which is the posterior, got {temperature!r}")
    return ranges


def _pair(name: str, value: Any) -> _Pair:
    """(low, high) from a positive number or a pair of them."""
    pair = value if isinstance(value, tuple | list | np.ndarray) else (value, value)
    numbers = [entry for entry in pair if isinstance(entry, Real) and not isinstance(entry, bool)]
    if len(pair) != 2 or len(numbers) != 2 or not all(0 < float(entry) < np.inf for entry in numbers):
        raise ValueError(f"{name} must be a positive number or a pair (low, high) of them, got {value!r}")
    low, high = float(numbers[0]), float(numbers[1])
    if low > high:
        raise ValueError(f"{name}={value!r}: the first number must not exceed the second")
    return low, high
