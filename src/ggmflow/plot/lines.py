"""Lines: credible intervals and modes of a few entries along λ, intervals of one entry across q."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.model.precision import association
from ggmflow.modes.path import ModePath, solve_path
from ggmflow.plot.pairs import (
    Entry,
    Positions,
    Scale,
    all_pairs,
    evaluate,
    find_pairs,
    pair_names,
    quantiles_of,
    scale_name,
    strongest,
    three_probs,
)
from ggmflow.plot.style import (
    DASHED,
    FAINT,
    LINES,
    MARKERS,
    NEUTRAL,
    dashed_handle,
    lam_axis,
    legend_below,
    new_axes,
    open_frame,
    set_title,
)
from ggmflow.views.pairs import middle

_MOST_LINES = 400  # more grey lines would be a grey area


def intervals_along_lam(
    lam: Float[np.ndarray, " k"],
    quantiles: Float[np.ndarray, "3 k m"],
    labels: Sequence[str],
    *,
    path: Float[np.ndarray, "k m"] | None = None,
    path_label: str = "graphical lasso",
    ylabel: str = "entry of the precision matrix",
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw credible bands and medians of a few entries of Ω, or of functions of it, along λ, from arrays.

    `entries_along_lam` computes them from a model.

    Parameters
    ----------
    lam
        Values of λ, ascending.
    quantiles
        Lower, middle and upper quantile of each of m entries at each λ.
    labels
        Names of the entries.
    path
        A point estimate to draw dashed, for example the graphical lasso.
    path_label, ylabel, title
        Name of the point estimate; label of the vertical axis; title of the axes.
    ax
        Axes to draw on; default new ones.
    """
    ax = new_axes(ax)
    handles = []
    for k, label in enumerate(labels):
        colour = LINES[k % len(LINES)]
        ax.fill_between(lam, quantiles[0, :, k], quantiles[2, :, k], color=colour, alpha=0.18, lw=0)
        handles += ax.plot(lam, quantiles[1, :, k], color=colour, lw=1.8, label=label, **_marks(k, len(lam)))
        if path is not None:
            ax.plot(lam, path[:, k], color=colour, lw=1.2, ls=DASHED)
    if path is not None:
        handles.append(dashed_handle(path_label))
    _finish_along_lam(ax, lam, ylabel, title, handles)
    return ax


def solution_path(
    lam: Float[np.ndarray, " k"],
    path: Float[np.ndarray, "k m"],
    labels: Mapping[int, str],
    *,
    reference: Float[np.ndarray, "k m"] | None = None,
    reference_label: str = "graphical lasso",
    ylabel: str = "entry of the precision matrix",
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw point estimates of many entries of Ω, or of functions of it, along λ from arrays, one line for each entry.

    `mode_path` computes them from a model.

    Parameters
    ----------
    lam
        Values of λ, ascending.
    path
        Each of m entries at each λ.
    labels
        Names of the entries to draw in colour, by position; the others are grey and labelled "other pairs".
    reference
        The same entries by another method, drawn dashed, for example the graphical lasso.
    reference_label, ylabel, title
        Name of the other method; label of the vertical axis; title of the axes.
    ax
        Axes to draw on; default new ones.
    """
    ax = new_axes(ax)
    # The named entries are drawn last, on top of the others and in the order of their labels.
    for k in [k for k in range(path.shape[1]) if k not in labels]:
        ax.plot(lam, path[:, k], color=FAINT, lw=0.9)
        if reference is not None:
            ax.plot(lam, reference[:, k], color=NEUTRAL, lw=0.5, ls=DASHED, alpha=0.6)
    handles = []
    for i, (k, label) in enumerate(labels.items()):
        colour = LINES[i % len(LINES)]
        handles += ax.plot(lam, path[:, k], color=colour, lw=1.8, label=label, **_marks(i, len(lam)))
        if reference is not None:
            ax.plot(lam, reference[:, k], color=colour, lw=1.2, ls=DASHED)
    if path.shape[1] > len(labels):
        handles.append(Line2D([], [], color=FAINT, lw=0.9, label="other pairs"))
    if reference is not None:
        handles.append(dashed_handle(reference_label))
    _finish_along_lam(ax, lam, ylabel, title, handles)
    return ax


def entries_along_lam(
    model: GraphicalFlow,
    entries: Entry | Iterable[Entry] | None = None,
    q: float = 1.0,
    *,
    lam: ArrayLike | None = None,
    temperature: float = 1.0,
    level: float = 0.9,
    scale: Scale = "association",
    mode: bool = False,
    num_draws: int = 1000,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw credible intervals of a few entries along λ at one q: band, median and, optionally, the mode.

    Parameters
    ----------
    model
        Fitted model.
    entries
        Pairs of names or positions; default the five of largest |association| in the middle of the fitted ranges.
    q, temperature
        Exponent and temperature of all posteriors.
    lam
        Values of λ; default 15 across the fitted range.
    level
        Probability of the credible intervals.
    scale : {"association", "precision"}
        Partial correlations (regression weights outside a query), or entries of Ω in the working scale.
    mode
        Whether to draw the posterior mode too, dashed: at q = 1 the graphical lasso.
    num_draws
        Number of draws at each λ.
    title, ax
        Title of the axes; axes to draw on, default new ones.

    Returns
    -------
    Axes
    """
    lams, names, query = _lams(model, lam, 15), model.scatter_.names, model.query_
    pairs = _pairs(model, entries, 5)
    probs = three_probs(level)
    conditions = [(each, q, temperature) for each in lams.tolist()]
    found = evaluate(model, conditions, lambda post: quantiles_of(post, probs, pairs, scale), num_draws)
    path = None
    if mode:
        rows = model.path(q=q, lam=lams).precision
        path = _values(rows, pairs, query, scale)
    return intervals_along_lam(
        lams,
        np.stack(found, axis=1),
        pair_names(pairs, names, query),
        path=path,
        path_label="graphical lasso" if q == 1 else "mode",
        ylabel=scale_name(scale, model),
        title=title or f"{level:.0%} credible intervals, q = {q:g}{_temperature(temperature)}",
        ax=ax,
    )


def entry_across_q(
    model: GraphicalFlow,
    entry: Entry,
    lam: float,
    q: ArrayLike | None = None,
    *,
    temperature: float = 1.0,
    level: float = 0.9,
    scale: Scale = "association",
    references: Mapping[str, ArrayLike] | None = None,
    num_draws: int = 1000,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the credible interval of one entry for many q at one λ, with other estimates at q = 1.

    Parameters
    ----------
    model
        Fitted model.
    entry
        Two names or positions.
    lam, temperature
        Shrinkage and temperature of all posteriors.
    q
        Values of q; default 9 across the fitted range.
    level
        Probability of the credible intervals.
    scale : {"association", "precision"}
        As in `entries_along_lam`.
    references
        Other estimates at this λ and q = 1, in the working scale, by name: one matrix (s, d) is a point, many (N, s, d)
        or (chains, draws, s, d), such as `draws` of the Bayesian graphical lasso, a median and an interval. Default:
        the graphical lasso; {} for none.
    num_draws
        Number of draws at each q.
    title, ax
        Title of the axes; axes to draw on, default new ones.

    Returns
    -------
    Axes
    """
    names, query, probs = model.scatter_.names, model.query_, three_probs(level)
    pairs = find_pairs(entry, names, query)
    qs = np.linspace(*model.q_range_, 9) if q is None else np.unique(np.atleast_1d(np.asarray(q, float)))
    conditions = [(lam, each, temperature) for each in qs.tolist()]
    found = evaluate(model, conditions, lambda post: quantiles_of(post, probs, pairs, scale)[:, 0], num_draws)
    low, median, high = np.array(found).T
    ax = new_axes(ax)
    bars = {"fmt": "o", "color": LINES[0], "ms": 5, "capsize": 3, "lw": 1.5, "label": f"median, {level:.0%} interval"}
    handles: list = [ax.errorbar(qs, median, yerr=[median - low, high - median], **bars)]
    if references is None:
        S, n = model.scatter_.matrix, model.scatter_.n
        references = {"graphical lasso": solve_path(S, n, [lam], 1.0, query).precision[0]}
    step = 0.02 * max(float(np.ptp(qs)), 0.1)
    for k, (label, estimate) in enumerate(references.items()):
        rows = np.asarray(estimate, float)
        if rows.ndim < 2 or rows.shape[-2:] != (len(query), len(names)):
            raise ValueError(f"{label!r} must end in shape {(len(query), len(names))}, it has shape {rows.shape}")
        values = _values(rows.reshape(-1, *rows.shape[-2:]), pairs, query, scale)[:, 0]
        low, median, high = np.quantile(values, probs)
        # Side by side, so that they hide neither each other nor the interval of the model.
        at, colour = 1 + step * (k + 1), LINES[(k + 1) % len(LINES)]
        style = {"fmt": MARKERS[(k + 1) % len(MARKERS)], "color": colour, "ms": 6, "capsize": 3, "lw": 1.2}
        bar = None if len(values) == 1 else [[median - low], [high - median]]
        handles.append(ax.errorbar([at], [median], yerr=bar, label=label, **style))
    ax.axhline(0, color=NEUTRAL, lw=0.6)
    ax.set(xlabel="exponent q", ylabel=scale_name(scale, model))
    legend_below(ax, handles)
    open_frame(ax)
    name = pair_names(pairs, names, query)[0]
    set_title(ax, title or f"{name}, λ = {lam:.3g}{_temperature(temperature)}")
    return ax


def mode_path(
    model: GraphicalFlow,
    path: ModePath | None = None,
    *,
    q: float = 1.0,
    entries: Entry | Iterable[Entry] | None = None,
    scale: Scale = "association",
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw posterior modes along λ, a line for each pair; pairs that are zero at every λ are left out.

    Parameters
    ----------
    model
        Fitted model.
    path
        Result of `model.path`; default ``model.path(q=q)``.
    q
        Exponent if no path is given.
    entries
        Pairs to draw in colour and name; default the six of largest |association| along the path.
    scale : {"association", "precision"}
        As in `entries_along_lam`.
    title, ax
        Title of the axes; axes to draw on, default new ones.

    Returns
    -------
    Axes
    """
    path = model.path(q=q) if path is None else path
    names, query = model.scatter_.names, model.query_
    order = np.argsort(path.lam)
    pairs = all_pairs(query, len(names))
    values = _values(path.precision[order], pairs, query, scale)
    size = np.abs(values).max(axis=0)
    ranked = np.argsort(-size, kind="stable")
    if entries is None:
        named = [int(k) for k in ranked[:6] if size[k] > 0]
    else:
        place = {(row, column): k for k, (row, column) in enumerate(pairs.tolist())}
        named = [place[row, column] for row, column in find_pairs(entries, names, query).tolist()]
    others = [int(k) for k in ranked[:_MOST_LINES] if size[k] > 0 and k not in named]
    labels = dict(enumerate(pair_names(pairs[named], names, query)))
    count = f" ({np.sum(size > 0)} pairs, {_MOST_LINES} drawn)" if np.sum(size > 0) > _MOST_LINES else ""
    return solution_path(
        path.lam[order],
        values[:, [*named, *others]],
        labels,
        ylabel=scale_name(scale, model),
        title=title or f"modes, q = {path.q:g}{count}",
        ax=ax,
    )


def _values(
    rows: Float[np.ndarray, "k s d"], pairs: Positions, query: np.ndarray, scale: Scale
) -> Float[np.ndarray, "k m"]:
    """Associations, or entries, of some pairs of given matrices."""
    if scale == "association":
        rows = association(rows, query)
    return rows[:, pairs[:, 0], pairs[:, 1]]


def _lams(model: GraphicalFlow, lam: ArrayLike | None, count: int) -> Float[np.ndarray, " k"]:
    return np.geomspace(*model.lam_range_, count) if lam is None else np.unique(np.atleast_1d(np.asarray(lam, float)))


def _pairs(model: GraphicalFlow, entries: Entry | Iterable[Entry] | None, count: int) -> Positions:
    if entries is not None:
        return find_pairs(entries, model.scatter_.names, model.query_)
    return evaluate(model, [middle(model)], lambda post: strongest(post, count), 1000)[0]


def _temperature(temperature: float) -> str:
    return "" if temperature == 1 else f", T = {temperature:g}"


def _marks(k: int, length: int) -> dict:
    """A few markers at positions that differ between lines, which distinguish lines without colour."""
    every = max(1, length // 4)
    return {"marker": MARKERS[k % len(MARKERS)], "ms": 4.5, "markevery": (k % every, every)}


def _finish_along_lam(
    ax: Axes, lam: Float[np.ndarray, " k"], ylabel: str, title: str | None, handles: Sequence[Line2D]
) -> None:
    """Add the axis of λ, a line at zero, the legend and the title."""
    ax.axhline(0, color=NEUTRAL, lw=0.6)
    lam_axis(ax, lam)
    ax.set_ylabel(ylabel)
    legend_below(ax, handles)
    open_frame(ax)
    set_title(ax, title)
