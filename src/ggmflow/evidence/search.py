"""Search for the (λ, q) of highest evidence on a smooth surface."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from jaxtyping import Float

from ggmflow.evidence.marginal_likelihood import Evidence
from ggmflow.model.conditions import Boundary, Choice, Ranges

_CLOSE = 20.0  # nats by which a finer search may raise the evidence


def choose(surface: Callable[[float, float], Evidence], ranges: Ranges, *, num_lam: int = 9, num_q: int = 5) -> Choice:
    """Maximize over λ and q: the best λ for each q of a grid, then the best q.

    The best λ depends on q, and between two grid points the evidence may rise by several nats. So λ is searched twice
    for each q whose evidence may be highest, the second time close to the first optimum, and the optima are compared.

    Parameters
    ----------
    surface
        Evidence of (λ, q); smooth, because its noise is the same everywhere.
    ranges
        Ranges of λ and q to search.
    num_lam, num_q
        Size of the grid; one point for a range that is a point.
    """
    x, qs = grid(ranges, num_lam, num_q)

    def line(at: Float[np.ndarray, " k"], q: float) -> Float[np.ndarray, " k"]:
        values = np.array([surface(float(np.exp(each)), q).value for each in at])
        return np.where(np.isfinite(values), values, -np.inf)

    lines = [line(x, float(q)) for q in qs]
    tops = [parabola_top(x, values) for values in lines]
    highest = max(height for _, height in tops)
    if highest == -np.inf:
        raise FloatingPointError("the evidence is not finite anywhere in the ranges of lam and q")
    step = (x[-1] - x[0]) / max(len(x) - 1, 1)
    for k, (place, height) in enumerate(tops):
        if x[0] < place < x[-1] and height > highest - _CLOSE:
            near = place + np.array([-0.25, 0.0, 0.25]) * step
            tops[k] = parabola_top(near, line(near, float(qs[k])), outside=True)
    places, heights = np.array(tops).T
    q, _ = parabola_top(qs, heights)
    place = float(np.interp(q, qs, places))
    best = int(np.argmax(heights))
    at_boundary = _boundaries("lam", x, places[best]) + _boundaries("q", qs, qs[best])
    return Choice(float(np.clip(np.exp(place), *ranges.lam)), float(np.clip(q, *ranges.q)), at_boundary)


def _boundaries(parameter: Literal["lam", "q"], axis: Float[np.ndarray, " k"], at: float) -> tuple[Boundary, ...]:
    """The end of an axis where `at` is, if it is at one; none for a range that is a point."""
    if len(axis) == 1 or at not in (axis[0], axis[-1]):
        return ()
    return (Boundary(parameter, "low" if at == axis[0] else "high"),)


def grid(ranges: Ranges, num_lam: int, num_q: int) -> tuple[Float[np.ndarray, " num_lam"], Float[np.ndarray, " num_q"]]:
    """Points of log λ and of q where `choose` starts; one point for a range that is a point."""
    return _axis(ranges.low[0], ranges.high[0], num_lam), _axis(*ranges.q, num_q)


def _axis(low: float, high: float, num: int) -> Float[np.ndarray, " k"]:
    return np.linspace(low, high, num) if high > low else np.array([low])


def parabola_top(
    x: Float[np.ndarray, " k"], y: Float[np.ndarray, " k"], *, outside: bool = False
) -> tuple[float, float]:
    """Location and height of the vertex of the parabola through the highest point and its neighbours.

    Parameters
    ----------
    x, y : (k,) array
        Points of a curve, x ascending.
    outside
        Use a parabola also if the highest point is the first or the last one, with the vertex at most at that point.
        Otherwise that point itself is returned.

    Returns
    -------
    location, height : float
    """
    k = int(np.argmax(y))
    if outside:
        k = min(max(k, 1), len(x) - 2)
    if k in (0, len(x) - 1) or not np.isfinite(y[k - 1 : k + 2]).all():
        return float(x[k]), float(y[k])
    a, b, c = np.polyfit(x[k - 1 : k + 2] - x[k], y[k - 1 : k + 2], 2)
    if a >= 0:
        return float(x[k]), float(y[k])
    shift = float(np.clip(-b / (2 * a), x[k - 1] - x[k], x[k + 1] - x[k]))
    return float(x[k] + shift), float(c + b * shift + a * shift**2)


def midpoints(low: float, high: float, num: int) -> Float[np.ndarray, " k"]:
    """Midpoints of `num` equal parts of a range; one point for a range that is a point."""
    return low + (np.arange(num) + 0.5) / num * (high - low) if high > low else np.array([low])
