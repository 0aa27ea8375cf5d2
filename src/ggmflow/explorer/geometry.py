"""Where things stand in the panels: bars of a histogram, ticks of λ, names of nodes. Nothing here knows of Bokeh."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from ggmflow.views import Density

_AXIS = 200  # pixels: length of an axis of λ


def histogram_ends(found: Density) -> Float[np.ndarray, " k"]:
    """Borders of the bars of a histogram, about 36 of them, over the pair's own range.

    Zero is in the range only if it lies among the draws or near them: with zero always there, all draws of a strong
    pair would fall into one or two bars.
    """
    counted = found.values[found.weights > 0.01 / found.values.size]  # draws of hardly any weight may lie far off
    low, high = float(counted.min()), float(counted.max())
    near = (high - low) / 2
    if 0 < low <= near or -near <= high < 0:
        low, high = min(low, 0.0), max(high, 0.0)
    width = max(high - low, 1e-3) / 36
    # Multiples of the width, so that zero is a border and no bar holds both signs.
    return width * np.arange(np.floor(low / width), np.floor(high / width) + 2)


def lam_ticks(low: float, high: float) -> list[float]:
    """Round numbers whose labels do not run into each other: 1, 2, 5 of every decade, or more or fewer of them.

    Parameters
    ----------
    low, high
        Ends of a logarithmic axis that is about 200 pixels long.
    """
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    step = 10.0 ** np.floor(np.log10(high - low))
    fine = [np.arange(np.ceil(low / s), np.floor(high / s) + 1) * s for s in (step / 5, step / 2, step)]
    ticks = [
        *fine,
        np.outer(10.0**decades, [1, 2, 5]).ravel(),
        10.0**decades,
        10.0 ** decades[::2],
        10.0 ** decades[::3],
    ]
    found = [low]
    for each in ticks:
        each = each[(each >= low * 0.999) & (each <= high * 1.001)]
        at = _AXIS * np.log(each / low) / np.log(high / low)
        width = np.array([6.5 * len(f"{value:.3g}") for value in each])  # pixels of a label
        if len(found) < len(each) <= 7 and np.all(np.diff(at) >= (width[1:] + width[:-1]) / 2 + 6):
            found = each.tolist()
    return found


def short(name: str, limit: int = 18) -> str:
    """Beginning and end of a long name: names of one family often differ at their end only."""
    return name if len(name) <= limit else f"{name[: limit - 1 - limit // 2]}…{name[-(limit // 2) :]}"


def brief(names: Sequence[str], least: int = 12, most: int = 18) -> list[str]:
    """All names, shortened to as few characters as keep them apart, at least and at most so many."""
    for limit in range(least, most):
        found = [short(name, limit) for name in names]
        if len(set(found)) == len(set(names)):
            return found
    return [short(name, most) for name in names]


def sides(x: Float[np.ndarray, " m"], y: Float[np.ndarray, " m"], labels: Sequence[str]) -> Int[np.ndarray, " m"]:
    """Whether each label stands below its node, 1, or above it, −1: below, unless only above it overlaps no other one.

    In pixels of a network as it opens on a usual screen; labels further on in the list give way.
    """
    side, taken = np.ones(len(labels), int), np.empty((0, 4))
    for k, label in enumerate(labels):
        half = np.array([3.3 * len(label), 7.0])
        centre = {s: np.array([x[k], s * 18 - y[k]]) for s in (1, -1)}
        boxes = {s: np.array([*(at - half), *(at + half)]) for s, at in centre.items()}
        crowd = {
            s: np.all(b[:2] < taken[:, 2:], axis=1) & np.all(taken[:, :2] < b[2:], axis=1) for s, b in boxes.items()
        }
        side[k] = -1 if crowd[1].any() and not crowd[-1].any() else 1
        if label:
            taken = np.vstack([taken, boxes[int(side[k])]])
    return side
