"""Positions within the panels: bins of a histogram, ticks of λ, labels of nodes. Nothing here depends on Bokeh."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from ggmflow.views.pairs import Density

_AXIS = 200  # pixels: length of an axis of λ


def histogram_bins(density: Density) -> Float[np.ndarray, " k"]:
    """Bin borders of a histogram, about 36 of them, over the range of one pair's draws.

    The range includes zero only if zero lies among the draws or near them: otherwise all draws of a strong pair would
    fall into one or two bins.
    """
    # Draws of almost no weight may lie far away.
    counted = density.values[density.weights > 0.01 / density.values.size]
    low, high = float(counted.min()), float(counted.max())
    near = (high - low) / 2
    if 0 < low <= near or -near <= high < 0:
        low, high = min(low, 0.0), max(high, 0.0)
    width = max(high - low, 1e-3) / 36
    # Multiples of the width, so that zero is a border and no bin holds both signs.
    return width * np.arange(np.floor(low / width), np.floor(high / width) + 2)


def lam_ticks(low: float, high: float) -> list[float]:
    """Round numbers whose labels do not overlap: 1, 2, 5 of every decade, or more or fewer of them.

    Parameters
    ----------
    low, high
        Ends of a logarithmic axis of about 200 pixels.
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
    chosen = [low]
    for each in ticks:
        each = each[(each >= low * 0.999) & (each <= high * 1.001)]
        pixel = _AXIS * np.log(each / low) / np.log(high / low)
        width = np.array([6.5 * len(f"{value:.3g}") for value in each])  # pixels of a label
        if len(chosen) < len(each) <= 7 and np.all(np.diff(pixel) >= (width[1:] + width[:-1]) / 2 + 6):
            chosen = each.tolist()
    return chosen


def shorten(name: str, limit: int = 18) -> str:
    """Beginning and end of a long name: similar names often differ at their end only."""
    return name if len(name) <= limit else f"{name[: limit - 1 - limit // 2]}…{name[-(limit // 2) :]}"


def shorten_all(names: Sequence[str], least: int = 12, most: int = 18) -> list[str]:
    """All names, shortened to the smallest limit from `least` to `most` at which they still differ."""
    for limit in range(least, most):
        shortened = [shorten(name, limit) for name in names]
        if len(set(shortened)) == len(set(names)):
            return shortened
    return [shorten(name, most) for name in names]


def label_sides(
    x: Float[np.ndarray, " m"],
    y: Float[np.ndarray, " m"],
    labels: Sequence[str],
    order: Sequence[int],
    kept: Bool[np.ndarray, " m"],
) -> Int[np.ndarray, " m"]:
    """Side of each label: 1 below its node, −1 above it, 0 if it is left out because it would overlap another label.

    Parameters
    ----------
    x, y
        Positions of the nodes in pixels, to the right and up.
    labels
        Their texts; an empty one takes no space.
    order
        The order in which labels are placed, as indices.
    kept
        Whether a label is written even if it overlaps another one.
    """
    side, taken = np.zeros(len(labels), int), np.empty((0, 4))
    for k in order:
        if not labels[k]:
            continue
        half = np.array([3.4 * len(labels[k]), 7.0])
        for s in (1, -1):
            centre = np.array([x[k], s * 18 - y[k]])
            box = np.array([*(centre - half), *(centre + half)])
            if not np.any(np.all(box[:2] < taken[:, 2:], axis=1) & np.all(taken[:, :2] < box[2:], axis=1)):
                side[k], taken = s, np.vstack([taken, box])
                break
        else:
            side[k] = 1 if kept[k] else 0
    return side
