"""Heat maps: every association of a matrix as a colour, and its uncertainty as a grey."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from ggmflow.plot.pairs import scale_name
from ggmflow.plot.style import DOUBT, SIGNED, SMALL, new_axes, room_for, set_title, short
from ggmflow.plot.ticks import set_names
from ggmflow.posterior.posterior import Posterior

Uncertainty = Literal["sd", "sign"]


def heat_map(
    matrix: Posterior | Float[np.ndarray, "s d"],
    names: Sequence[str] | None = None,
    *,
    uncertainty: Uncertainty | None = "sign",
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw associations as colours, and their uncertainty as greys.

    For a posterior, the lower triangle shows means and the upper triangle their uncertainty. For a query, which has no
    triangles, rows of uncertainty are below the rows of means.

    Parameters
    ----------
    matrix
        A posterior, or partial correlations (any signed matrix) to be drawn alone; the diagonal is left blank.
    names
        Names of the columns; default those of the posterior. Of hundreds of names only some are written.
    uncertainty : {"sign", "sd"} or None
        Probability that the likelier sign of an association is wrong, or its standard deviation; None draws means
        everywhere.
    title, ax
        Title of the axes; axes to draw on, default new ones.

    Returns
    -------
    Axes
    """
    if isinstance(matrix, Posterior):
        return _posterior_map(matrix, matrix.names if names is None else names, uncertainty, title, ax)
    if names is None:
        raise ValueError("a matrix needs names: heat_map(matrix, names)")
    shown = np.array(matrix, dtype=float)
    np.fill_diagonal(shown, np.nan)
    names = [short(str(name)) for name in names]
    more = max(0.0, room_for(names) - 0.6)
    ax = new_axes(ax, 4.5 + more, 4.0 + more)
    # With square cells, a query of six rows and hundreds of columns would be a thin strip.
    aspect = "equal" if shown.shape[0] == shown.shape[1] else "auto"
    _bar(ax, _draw(ax, shown, None, aspect), "partial correlation")
    _label(ax, names, list(names[: len(shown)]))
    set_title(ax, title)
    return ax


def association_sd(post: Posterior) -> Float[np.ndarray, "s d"]:
    """Posterior standard deviation of every association, (s, d); 0 for a variable and itself."""
    draws = post.weighted_draws()
    return draws.matrix(draws.association_sd())


def _posterior_map(
    post: Posterior, names: Sequence[str], uncertainty: Uncertainty | None, title: str | None, ax: Axes | None
) -> Axes:
    s, d = len(post.query), len(post.names)
    mean, scale = post.association(), scale_name("association", post)
    mean[np.arange(s), post.query] = np.nan
    whole, rows = s == d, [str(names[k]) for k in post.query.tolist()]
    if whole:  # rows in the order of the columns
        back = np.argsort(post.query)
        mean, rows = mean[back], list(names)
    names, rows = [short(str(name)) for name in names], [short(name) for name in rows]
    more = max(0.0, room_for(names) - 0.6)  # inches below and beside the axes, in addition to those of short names
    ax = new_axes(ax, 5.4 + more, 4.2 + more) if whole else new_axes(ax, 7.0 + more, 3.2 + more)
    if uncertainty is None:
        _bar(ax, _draw(ax, mean, None, "equal" if whole else "auto"), f"{scale}: mean")
        _label(ax, names, rows)
        set_title(ax, title or post.condition_text)
        return ax
    if uncertainty not in ("sd", "sign"):
        raise ValueError(f"uncertainty must be 'sd', 'sign' or None, got {uncertainty!r}")
    doubt = association_sd(post) if uncertainty == "sd" else post.local_false_sign_rate()
    doubt[np.arange(s), post.query] = np.nan
    meaning = "standard deviation" if uncertainty == "sd" else "P(sign is wrong)"
    top = 0.5 if uncertainty == "sign" else None
    if whole:
        lower = np.tri(d, k=-1, dtype=bool)
        first = _draw(ax, np.where(lower, mean, np.nan), None, "equal")
        second = _draw(ax, np.where(lower.T, doubt[back], np.nan), top, "equal", grey=True)
        _label(ax, names, rows)
        places = "below the diagonal", "above"
    else:
        blank = np.full((1, d), np.nan)
        gap = np.full_like(mean, np.nan)
        first = _draw(ax, np.vstack([mean, blank, gap]), None, "auto")
        second = _draw(ax, np.vstack([gap, blank, doubt]), top, "auto", grey=True)
        _label(ax, names, [*rows, "", *rows])
        places = "upper rows", "lower rows"
    _bar(ax, second, f"{meaning} ({places[1]})")
    _bar(ax, first, f"{scale} ({places[0]})")
    set_title(ax, title or post.condition_text)
    return ax


def _draw(
    ax: Axes, values: Float[np.ndarray, "r c"], top: float | None, aspect: Literal["equal", "auto"], grey: bool = False
) -> AxesImage:
    limit = top or float(np.nanmax(np.abs(values), initial=1e-3))
    # Uncertain cells are dark, so that certain ones are clear; signed maps are white at zero.
    colours = {"cmap": DOUBT, "vmin": 0, "vmax": limit} if grey else {"cmap": SIGNED, "vmin": -limit, "vmax": limit}
    return ax.imshow(values, aspect=aspect, interpolation="nearest", **colours)


def _bar(ax: Axes, image: AxesImage, label: str) -> None:
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.85, pad=0.02)
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=SMALL)


def _label(ax: Axes, names: Sequence[str], rows: Sequence[str]) -> None:
    set_names(ax.xaxis, names, vertical=True)
    set_names(ax.yaxis, rows)
