"""Table of penalties p(t) of the size t = |ω_ij| of an entry, with their slopes p′(t).

    name    p(t)                                     γ
    lasso   ρ t                                      –
    atan    ρ (γ + 2/π) arctan(t/γ)                  γ > 0
    selo    ρ log₂(1 + t/(t + γ))                    γ > 0
    exp     ρ (1 − e^{−t/γ})                         γ > 0
    log     ρ log(1 + t/γ) / log(1 + 1/γ)            γ > 0
    sica    ρ (γ + 1) t/(t + γ)                      γ > 0
    scad    slope ρ to t = ρ, then falling linearly  γ > 2, flat from γρ on
    mcp     slope falling linearly from ρ            γ > 1, flat from γρ on
    adapt   ρ t^γ/γ                                  0 < γ ≤ 1
    lq      ρ t^γ                                    0 < γ ≤ 1, the q of the model

All are zero at t = 0, concave and nondecreasing, so that a tangent lies above the penalty: the local linear
approximation rests on this. ``adapt`` and ``lq`` have infinite slope at zero if γ < 1.

References
----------
atan: Wang & Zhu (2016). selo: Dicker, Huang & Lin (2013). exp: Wang, Fan & Zhu (2018). log: Mazumder, Friedman &
Hastie (2011). sica: Lv & Fan (2009). scad: Fan & Li (2001). mcp: Zhang (2010). adapt: Zou (2006). The default γ are
those of the R package GGMncv 2.1.1, except for lq, where its 0.01 would hardly be an l_q penalty.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from ggmflow.errors.argument import ArgumentError, UnknownChoiceError

Values = Float[np.ndarray, "..."]
Formula = Callable[[Values, float, float], Values]  # of t, ρ, γ


class Penalty(NamedTuple):
    """One row of the table.

    Attributes
    ----------
    value, slope : callable
        p and p′ as functions of (t, ρ, γ), t an array of nonnegative numbers.
    gamma : float
        Default γ.
    above, up_to : float
        γ must satisfy ``above < γ ≤ up_to``.
    infinite_slope : bool
        Whether p′(0) = ∞, so that zeros stay zero unless the penalty is shifted.
    """

    value: Formula
    slope: Formula
    gamma: float = 0.01
    above: float = 0.0
    up_to: float = np.inf
    infinite_slope: bool = False


def _scad(t: Values, rho: float, gamma: float) -> Values:
    bend = np.clip(t, rho, gamma * rho)
    return rho * np.minimum(t, rho) + (bend - rho) * (gamma * rho - (bend + rho) / 2) / (gamma - 1)


def _scad_slope(t: Values, rho: float, gamma: float) -> Values:
    return np.where(t <= rho, rho, np.maximum(gamma * rho - t, 0.0) / (gamma - 1))


def _mcp(t: Values, rho: float, gamma: float) -> Values:
    bend = np.minimum(t, gamma * rho)
    return rho * bend - bend**2 / (2 * gamma)


def _power(t: Values, exponent: float) -> Values:
    """t^exponent, infinite at t = 0 for a negative exponent, without NumPy's division warning."""
    with np.errstate(divide="ignore"):
        return t**exponent


PENALTIES: dict[str, Penalty] = {
    "lasso": Penalty(lambda t, rho, gamma: rho * t, lambda t, rho, gamma: np.full_like(t, rho)),
    "atan": Penalty(
        lambda t, rho, gamma: rho * (gamma + 2 / np.pi) * np.arctan(t / gamma),
        lambda t, rho, gamma: rho * (gamma + 2 / np.pi) * gamma / (gamma**2 + t**2),
    ),
    "selo": Penalty(
        lambda t, rho, gamma: rho * np.log1p(t / (t + gamma)) / np.log(2),
        lambda t, rho, gamma: rho * gamma / ((t + gamma) * (2 * t + gamma)) / np.log(2),
    ),
    "exp": Penalty(
        lambda t, rho, gamma: -rho * np.expm1(-t / gamma),
        lambda t, rho, gamma: rho * np.exp(-t / gamma) / gamma,
    ),
    "log": Penalty(
        lambda t, rho, gamma: rho * np.log1p(t / gamma) / np.log1p(1 / gamma),
        lambda t, rho, gamma: rho / (t + gamma) / np.log1p(1 / gamma),
    ),
    "sica": Penalty(
        lambda t, rho, gamma: rho * (gamma + 1) * t / (t + gamma),
        lambda t, rho, gamma: rho * (gamma + 1) * gamma / (t + gamma) ** 2,
    ),
    "scad": Penalty(_scad, _scad_slope, gamma=3.7, above=2.0),
    "mcp": Penalty(_mcp, lambda t, rho, gamma: np.maximum(rho - t / gamma, 0.0), gamma=2.0, above=1.0),
    "adapt": Penalty(
        lambda t, rho, gamma: rho * t**gamma / gamma,
        lambda t, rho, gamma: rho * _power(t, gamma - 1),
        gamma=0.5,
        up_to=1.0,
        infinite_slope=True,
    ),
    "lq": Penalty(
        lambda t, rho, gamma: rho * t**gamma,
        lambda t, rho, gamma: rho * gamma * _power(t, gamma - 1),
        gamma=0.5,
        up_to=1.0,
        infinite_slope=True,
    ),
}


def penalty_value(
    penalty: str, entries: ArrayLike, rho: float, gamma: float | None = None, *, offset: float = 0.0
) -> Values:
    """p(|ω|), entry by entry; with an offset ε, p(|ω| + ε) − p(ε).

    Parameters
    ----------
    penalty : str
        A key of ``PENALTIES``.
    entries : array_like
        ω, of any shape and sign.
    rho : float
        ρ ≥ 0.
    gamma : float, optional
        Shape of the penalty; the default depends on the penalty.
    offset : float
        ε ≥ 0. A small one makes an infinite slope at zero finite, and leaves the penalty concave.

    Returns
    -------
    array
        It has the shape of ``entries``.
    """
    row, gamma = find_penalty(penalty, rho, gamma, offset)
    sizes = np.abs(np.asarray(entries, dtype=float))
    return row.value(sizes + offset, rho, gamma) - row.value(np.asarray(offset, dtype=float), rho, gamma)


def penalty_slope(
    penalty: str, entries: ArrayLike, rho: float, gamma: float | None = None, *, offset: float = 0.0
) -> Values:
    """p′(|ω| + ε), entry by entry, the slope in |ω| of `penalty_value`, from the right where ω = 0.

    Parameters and result are those of `penalty_value`.
    """
    row, gamma = find_penalty(penalty, rho, gamma, offset)
    return row.slope(np.abs(np.asarray(entries, dtype=float)) + offset, rho, gamma)


def find_penalty(penalty: str, rho: float, gamma: float | None, offset: float = 0.0) -> tuple[Penalty, float]:
    """Row of the table and γ, both checked."""
    if penalty not in PENALTIES:
        raise UnknownChoiceError("penalty", penalty, tuple(PENALTIES))
    row = PENALTIES[penalty]
    shape = row.gamma if gamma is None else float(gamma)
    if not row.above < shape <= row.up_to or np.isinf(shape):
        limit = f" and at most {row.up_to:g}" if np.isfinite(row.up_to) else ""
        raise ArgumentError("gamma", gamma, f"be above {row.above:g}{limit} for the penalty {penalty!r}")
    for name, value in (("rho", rho), ("offset", offset)):
        if not 0 <= value < np.inf:
            raise ArgumentError(name, value, "be finite and not negative")
    return row, shape
