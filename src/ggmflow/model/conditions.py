"""Conditions of a flow: ranges of shrinkage λ, exponent q and temperature T, and points within them.

condition = [log λ, q, log T]
"""

from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ggmflow.data.scatter import Scatter
from ggmflow.errors.advice import Advice, Surface
from ggmflow.errors.argument import ArgumentError
from ggmflow.model.precision import shrunk_precision

_Pair = tuple[float, float]
# τ was trained for exponents in this range.
Q_LIMITS = (0.1, 2.0)
# The flow works in single precision, which represents numbers from 1e-38 to 1e38.
LAM_LIMITS, LOWEST_TEMPERATURE = (1e-30, 1e30), 1e-12
_LIMITS = {"lam": LAM_LIMITS, "q": Q_LIMITS, "temperature": (LOWEST_TEMPERATURE, 1.0)}
_BELOW, _ABOVE = 10, 5  # factors by which an automatic range of λ extends from a guess, which is often too large


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
        """1, or the temperature of the range that is nearest to 1."""
        return float(np.clip(1.0, *self.temperature))

    @property
    def many_temperatures(self) -> bool:
        """Whether there is more than one temperature."""
        return self.temperature[0] < self.temperature[1]

    def _end(self, k: int) -> Float[np.ndarray, " 3"]:
        return np.array([np.log(self.lam[k]), self.q[k], np.log(self.temperature[k])])

    def condition(self, lam: float, q: float, temperature: float) -> Float[np.ndarray, " 3"]:
        """[log λ, q, log T] of a point; raises ArgumentError if it is outside the ranges."""
        given = zip(self._fields, (lam, q, temperature), strict=True)
        lam, q, temperature = (self.inside(name, value) for name, value in given)
        return np.array([np.log(lam), q, np.log(temperature)])

    def inside(self, name: str, value: Any) -> float:
        """The value of a parameter as a number; raises ArgumentError if it is outside its range.

        Parameters
        ----------
        name
            "lam", "q" or "temperature".
        value
            Any object.
        """
        low, high = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, Real) or not np.isfinite(float(value)):
            raise ArgumentError(name, value, "be a number")
        number = float(value)
        if low * (1 - 1e-9) <= number <= high * (1 + 1e-9):
            return float(np.clip(number, low, high))
        fitted = f"range {low:g} … {high:g}" if low < high else f"value {low:g}"
        outside = f"is outside the fitted {fitted}"
        lowest, highest = _LIMITS[name]
        if number <= 0:
            raise ArgumentError(name, number, reason=f"{outside}, and must be positive in every fit")
        if not lowest <= number <= highest:
            raise ArgumentError(name, number, reason=f"{outside}, and every fit is limited to {lowest:g} … {highest:g}")
        advice = Advice("fit again with", {name: _range_with(number, low, high)})
        raise ArgumentError(name, number, reason=outside, advice=advice)


class Boundary(NamedTuple):
    """An end of a fitted range.

    Attributes
    ----------
    parameter
        "lam" or "q".
    end
        "low" or "high".
    """

    parameter: Literal["lam", "q"]
    end: Literal["low", "high"]

    def text(self, name: str | None = None) -> str:
        """The boundary in a sentence, such as "the upper end of lam".

        Parameters
        ----------
        name
            Name of the parameter for the reader; default `parameter`.
        """
        return f"the {'lower' if self.end == 'low' else 'upper'} end of {name or self.parameter}"


_BOUNDARIES = [Boundary(parameter, end) for parameter in ("lam", "q") for end in ("low", "high")]
# As version 0.1.0 wrote them to files; must not change with `Boundary.text`.
_WRITTEN_BY_0_1_0 = {
    "the lower end of lam": Boundary("lam", "low"),
    "the upper end of lam": Boundary("lam", "high"),
    "the lower end of q": Boundary("q", "low"),
    "the upper end of q": Boundary("q", "high"),
}


def boundaries_from_json(values: Any) -> tuple[Boundary, ...]:
    """Boundaries from a file: pairs such as ["lam", "high"], or the sentences that version 0.1.0 wrote.

    Parameters
    ----------
    values
        A list; raises ValueError for any other content.
    """
    if not isinstance(values, list):
        raise ValueError(f"{values!r} is not a list of ends of ranges")
    known = {tuple(each): each for each in _BOUNDARIES} | _WRITTEN_BY_0_1_0
    keys = [tuple(value) if isinstance(value, list) else value for value in values]
    try:
        return tuple(known[key] for key in keys)
    except (KeyError, TypeError):  # a key with a list or a dict in it cannot be hashed
        raise ValueError(f"{values!r} are not ends of ranges") from None


class Choice(NamedTuple):
    """The λ and q of highest evidence.

    Attributes
    ----------
    lam, q : float
        λ and q.
    at_boundary : tuple of Boundary
        The ends of the fitted ranges at which the evidence is highest; empty if it is highest inside.
    """

    lam: float
    q: float
    at_boundary: tuple[Boundary, ...]


def find_ranges(lam: Any, q: Any, temperature: Any, scatter: Scatter, query: Int[np.ndarray, " s"]) -> Ranges:
    """Ranges from an estimator's parameters, each a number or a pair; `lam` may be "auto".

    "auto" spans a factor of 50 around the λ where the evidence is about highest.
    """
    given = given_ranges(lam, q, temperature)
    return Ranges(_automatic_lam(scatter, query) if given.lam is None else given.lam, given.q, given.temperature)


class GivenRanges(NamedTuple):
    """Ranges as given by the user; `lam` is None if it follows from the data."""

    lam: _Pair | None
    q: _Pair
    temperature: _Pair


def given_ranges(lam: Any, q: Any, temperature: Any) -> GivenRanges:
    """Check an estimator's parameters, each a number or a pair, before there are data; `lam` may be "auto"."""
    if isinstance(lam, str) and lam != "auto":
        raise ArgumentError("lam", lam, "be 'auto', a positive number, or the two ends of a range")
    pair = None if isinstance(lam, str) else _pair("lam", lam)
    ranges = GivenRanges(pair, _pair("q", q), _pair("temperature", temperature))
    for name, value, limits in (("lam", lam, LAM_LIMITS), ("q", q, Q_LIMITS)):
        given = getattr(ranges, name)
        if given is not None and (given[0] < limits[0] or given[1] > limits[1]):
            raise ArgumentError(name, value, f"lie between {limits[0]:g} and {limits[1]:g}")
    if ranges.temperature[1] > 1:
        raise ArgumentError("temperature", temperature, "not exceed 1, which is the posterior")
    if ranges.temperature[0] < LOWEST_TEMPERATURE:
        raise ArgumentError(
            "temperature", temperature, f"be at least {LOWEST_TEMPERATURE:g}, where only the mode is left"
        )
    return ranges


def _automatic_lam(scatter: Scatter, query: Int[np.ndarray, " s"]) -> _Pair:
    centre = likely_lam(scatter, query)
    low, high = centre / _BELOW, centre * _ABOVE
    if not LAM_LIMITS[0] <= low <= high <= LAM_LIMITS[1]:
        advice = Advice({Surface.PYTHON: "use standardize=True", Surface.COMMAND_LINE: "leave out --no-standardize"})
        raise ArgumentError(
            "lam", "auto", reason=f"gives λ near {centre:.1g}, too far from 1 for float32", advice=advice
        )
    return low, high


def number_list(name: str, value: Any) -> list[float]:
    """A list of numbers, from one number or several; the caller checks that they lie in a range."""
    try:
        given = np.atleast_1d(np.asarray(value))
    except (ValueError, TypeError):  # lists of different lengths, or not a list
        given = np.empty(0)
    if given.ndim != 1 or not given.size or given.dtype.kind not in "iuf":
        raise ArgumentError(name, value, "be a number or a list of numbers")
    return given.astype(float).tolist()


def likely_lam(scatter: Scatter, query: Int[np.ndarray, " s"]) -> float:
    """About the λ of highest evidence at q = 1.

    There the prior's and the posterior's mean of ½ tr Ω + Σ|ω_ij|, the sum over pairs with a query variable, are equal,
    and the prior's is d(d+1)/(2λ), because Ω scales with 1/λ. Around a shrunk estimate Ω̂ the posterior is taken to be

        ω_ij ~ N(ω̂_ij, (ω̂_ii ω̂_jj + ω̂_ij²)/(n + d + 1)).

    The λ of highest evidence depends little on q.
    """
    from scipy.special import ndtr  # slow to load, and not needed where arguments are only checked

    d, n = scatter.n_features, scatter.n
    # Correlations are shrunk, so that the scales of columns do not matter.
    scale = np.sqrt(np.diag(scatter.matrix) / n)
    Omega = shrunk_precision(scatter.matrix / n / np.outer(scale, scale), n) / np.outer(scale, scale)
    diagonal = np.diag(Omega)
    sd = np.sqrt((np.outer(diagonal, diagonal) + Omega**2) / (n + d + 1))
    z = np.abs(Omega) / sd
    size = sd * (np.sqrt(2 / np.pi) * np.exp(-0.5 * z**2) + z * (1 - 2 * ndtr(-z)))  # E|ω_ij|
    queried = np.isin(np.arange(d), query)
    penalized = np.triu(queried[:, None] | queried, 1)
    return float(0.5 * d * (d + 1) / (0.5 * diagonal.sum() + size[penalized].sum()))


def _range_with(value: float, low: float, high: float) -> _Pair:
    """(low, high), one end moved to `value`, rounded to six digits unless that would exclude the value."""
    low, high = min(low, value), max(high, value)
    rounded = float(f"{low:g}"), float(f"{high:g}")
    return rounded if rounded[0] <= value <= rounded[1] else (low, high)


def _pair(name: str, value: Any) -> _Pair:
    """(low, high) from a positive number or a pair of them."""
    several = isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.ndim == 1)
    pair = value if several else (value, value)
    numbers = [entry for entry in pair if isinstance(entry, Real) and not isinstance(entry, bool)]
    if len(pair) != 2 or len(numbers) != 2 or not all(0 < float(entry) < np.inf for entry in numbers):
        raise ArgumentError(name, value, "be a positive number, or the two positive ends of a range")
    low, high = float(numbers[0]), float(numbers[1])
    if low > high:
        raise ArgumentError(name, value, reason="is reversed: the first number must not exceed the second")
    return low, high
