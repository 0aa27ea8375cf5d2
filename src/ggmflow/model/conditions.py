"""Where a flow is asked: ranges of shrinkage λ, exponent q and temperature T, and points within them.

condition = [log λ, q, log T]
"""

from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ggmflow.data.scatter import Scatter
from ggmflow.model.precision import shrunk_precision

_Pair = tuple[float, float]
# τ was trained for exponents in this range.
Q_LIMITS = (0.1, 2.0)
# The flow works in single precision, whose numbers end at 1e±38.
LAM_LIMITS, COLDEST = (1e-30, 1e30), 1e-12
_LIMITS = {"lam": LAM_LIMITS, "q": Q_LIMITS, "temperature": (COLDEST, 1.0)}
_BELOW, _ABOVE = 10, 5  # factors that an automatic range of λ goes beyond a guess, which is rather too large


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
        given = zip(self._fields, (lam, q, temperature), strict=True)
        lam, q, temperature = (self.inside(name, value) for name, value in given)
        return np.array([np.log(lam), q, np.log(temperature)])

    def inside(self, name: str, value: Any) -> float:
        """The value of `lam`, `q` or `temperature` as a number; refuses one outside its range."""
        low, high = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, Real) or not np.isfinite(float(value)):
            raise ValueError(f"{name} must be a number, got {value!r}")
        number = float(value)
        if low * (1 - 1e-9) <= number <= high * (1 + 1e-9):
            return float(np.clip(number, low, high))
        fitted = f"range {low:g} … {high:g}" if low < high else f"value {low:g}"
        outside = f"{name}={number:g} is outside the fitted {fitted}"
        lowest, highest = _LIMITS[name]
        if number <= 0:
            raise ValueError(f"{outside}, and {name} must be positive in every fit")
        if not lowest <= number <= highest:
            raise ValueError(f"{outside}, and no fit goes beyond {lowest:g} … {highest:g}")
        raise ValueError(f"{outside}: fit again with {name}={_range_that_holds(number, low, high)}")


class Choice(NamedTuple):
    """Where the evidence is highest, and at which ends of the ranges that is, if at any."""

    lam: float
    q: float
    at_ends: tuple[str, ...]


def find_ranges(lam: Any, q: Any, temperature: Any, scatter: Scatter, query: Int[np.ndarray, " s"]) -> Ranges:
    """Ranges from an estimator's parameters, each a number or a pair; `lam` may be "auto".

    "auto" spans a factor of 50 around the λ where the evidence is about highest.
    """
    given = given_ranges(lam, q, temperature)
    return Ranges(_automatic_lam(scatter, query) if given.lam is None else given.lam, given.q, given.temperature)


class GivenRanges(NamedTuple):
    """Ranges as far as they are known without data; `lam` is None if it is to follow from them."""

    lam: _Pair | None
    q: _Pair
    temperature: _Pair


def given_ranges(lam: Any, q: Any, temperature: Any) -> GivenRanges:
    """Check an estimator's parameters, each a number or a pair, before there are data; `lam` may be "auto"."""
    if isinstance(lam, str) and lam != "auto":
        raise ValueError(f"lam must be 'auto', a positive number or (low, high), got {lam!r}")
    pair = None if isinstance(lam, str) else _pair("lam", lam)
    ranges = GivenRanges(pair, _pair("q", q), _pair("temperature", temperature))
    if ranges.lam is not None and (ranges.lam[0] < LAM_LIMITS[0] or ranges.lam[1] > LAM_LIMITS[1]):
        raise ValueError(f"lam must lie between {LAM_LIMITS[0]:g} and {LAM_LIMITS[1]:g}, got {lam!r}")
    if ranges.q[0] < Q_LIMITS[0] or ranges.q[1] > Q_LIMITS[1]:
        raise ValueError(f"q must lie between {Q_LIMITS[0]:g} and {Q_LIMITS[1]:g}, got {q!r}")
    if ranges.temperature[1] > 1:
        raise ValueError(f"temperature must not exceed 1, which is the posterior, got {temperature!r}")
    if ranges.temperature[0] < COLDEST:
        raise ValueError(f"temperature must be at least {COLDEST:g}, where only the mode is left, got {temperature!r}")
    return ranges


def _automatic_lam(scatter: Scatter, query: Int[np.ndarray, " s"]) -> _Pair:
    centre = likely_lam(scatter, query)
    low, high = centre / _BELOW, centre * _ABOVE
    if not LAM_LIMITS[0] <= low <= high <= LAM_LIMITS[1]:
        raise ValueError(f"λ would be about {centre:.1g}, too far from 1 for single precision: standardize the data")
    return low, high


def number_list(name: str, value: Any) -> list[float]:
    """One number or a list of them, as a list; that they lie in a range is for others to check."""
    try:
        given = np.atleast_1d(np.asarray(value))
    except (ValueError, TypeError):  # lists of different lengths, or what is no list
        given = np.empty(0)
    if given.ndim != 1 or not given.size or given.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be a number or a list of them, got {value!r}")
    return given.astype(float).tolist()


def likely_lam(scatter: Scatter, query: Int[np.ndarray, " s"]) -> float:
    """About the λ of highest evidence at q = 1.

    There the prior's and the posterior's mean of ½ tr Ω + Σ|ω_ij|, the sum over pairs with a query variable, are equal,
    and the prior's is d(d+1)/(2λ), because Ω scales with 1/λ. Around a shrunk estimate Ω̂ the posterior is taken to be

        ω_ij ~ N(ω̂_ij, (ω̂_ii ω̂_jj + ω̂_ij²)/(n + d + 1)).

    On other q the λ of highest evidence depends little.
    """
    from scipy.special import ndtr  # takes long to load, and commands that only check arguments do not need it

    d, n = scatter.n_features, scatter.n
    # Correlations are shrunk, so that columns of other scales are treated alike.
    scale = np.sqrt(np.diag(scatter.matrix) / n)
    Omega = shrunk_precision(scatter.matrix / n / np.outer(scale, scale), n) / np.outer(scale, scale)
    diagonal = np.diag(Omega)
    sd = np.sqrt((np.outer(diagonal, diagonal) + Omega**2) / (n + d + 1))
    z = np.abs(Omega) / sd
    size = sd * (np.sqrt(2 / np.pi) * np.exp(-0.5 * z**2) + z * (1 - 2 * ndtr(-z)))  # E|ω_ij|
    asked = np.isin(np.arange(d), query)
    pays = np.triu(asked[:, None] | asked, 1)
    return float(0.5 * d * (d + 1) / (0.5 * diagonal.sum() + size[pays].sum()))


def _range_that_holds(value: float, low: float, high: float) -> str:
    """(low, high), one end moved to `value`, in six digits unless rounding would leave the value out."""
    low, high = min(low, value), max(high, value)
    if float(f"{low:g}") <= value <= float(f"{high:g}"):
        return f"({low:g}, {high:g})"
    return f"({low!r}, {high!r})"


def _pair(name: str, value: Any) -> _Pair:
    """(low, high) from a positive number or a pair of them."""
    several = isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.ndim == 1)
    pair = value if several else (value, value)
    numbers = [entry for entry in pair if isinstance(entry, Real) and not isinstance(entry, bool)]
    if len(pair) != 2 or len(numbers) != 2 or not all(0 < float(entry) < np.inf for entry in numbers):
        raise ValueError(f"{name} must be a positive number or a pair (low, high) of them, got {value!r}")
    low, high = float(numbers[0]), float(numbers[1])
    if low > high:
        raise ValueError(f"{name}={value!r}: the first number must not exceed the second")
    return low, high
