"""Quality of a fit: training, importance weights, and effective draws for every λ and q."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.plot.style import DASHED, LINES, NEUTRAL, SMALL, inches, legend, new_axes, open_frame, set_title
from ggmflow.plot.ticks import Spaced, set_names
from ggmflow.posterior.posterior import Posterior
from ggmflow.posterior.weights import khat_limit


def training_curve(history: GraphicalFlow | pd.DataFrame, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw the held-out ELBO over the steps of training, and the expected effective sample size on a second axis.

    The range of the axis is that of the last nine tenths of the steps, because the first ones are far below. A flow
    that was not trained has one point, at step 0, and the title says so.

    Parameters
    ----------
    history
        A fitted model, or its `history_`.
    title, ax
        Title of the axes; axes to draw on, default new ones.

    Returns
    -------
    Axes
        Axes of the ELBO.
    """
    table = history.history_ if isinstance(history, GraphicalFlow) else history
    ax = new_axes(ax)
    few = len(table) < 40
    elbo = ax.plot(table["step"], table["elbo"], color=LINES[0], lw=1.6, marker="o" if few else "", ms=3, label="ELBO")
    finite = table["elbo"].to_numpy(float)
    late = finite[len(finite) // 10 :]
    late = late[np.isfinite(late)]
    if late.size and np.ptp(late) > 0:
        ax.set_ylim(late.min() - 0.05 * np.ptp(late), late.max() + 0.05 * np.ptp(late))
    ax.set(xlabel="step", ylabel="held-out ELBO (nats)")
    ax.ticklabel_format(axis="y", useOffset=False)
    other = ax.twinx()
    mark = {"marker": "s" if few else "", "ms": 3}
    ess = other.plot(table["step"], table["ess"], color=LINES[1], lw=1.4, ls=DASHED, label="relative ESS", **mark)
    other.set_ylim(0, 1)
    other.set_ylabel("effective share of draws")
    other.spines["top"].set_visible(False)
    ax.spines["top"].set_visible(False)
    ax.xaxis.set_major_locator(Spaced())
    steps, skipped = (int(table[name].iloc[-1]) for name in ("step", "skipped"))
    if steps == 0:
        ax.set(xlim=(-1, 1), xticks=[0])
    legend(ax, [*elbo, *ess], loc="lower right")
    what = "not trained" if steps == 0 else f"{skipped} of {steps} steps were skipped" if skipped else None
    set_title(ax, title or what)
    return ax


def weight_tail(post: Posterior, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw the importance weights of the draws of a posterior, largest first, relative to equal weights.

    A perfect flow gives a flat line at 1. The steeper the line begins, the fewer draws dominate the estimates.

    Parameters
    ----------
    post
        Posterior of a flow; exact draws have no weights.
    title
        Default: k̂ and the number of effective draws.
    ax
        Axes to draw on; default new ones.

    Returns
    -------
    Axes
    """
    weights = post.draws.importance
    if weights is None:
        raise ValueError("exact draws have no importance weights: there is nothing to draw")
    ax = new_axes(ax)
    num_draws = len(weights.values)
    relative = np.sort(weights.values)[::-1] * num_draws
    ax.plot(np.arange(1, num_draws + 1), relative, color=LINES[0], lw=1.8, label="weights, smoothed")
    ax.axhline(1, color=NEUTRAL, lw=1.2, ls=DASHED, label="equal weights")
    smallest = max(float(relative[int(0.99 * num_draws) - 1]), 1e-6)  # smaller weights have no influence
    ax.set(xscale="log", yscale="log", xlabel="rank of the draw", ylabel="weight, relative to equal weights")
    ax.set_ylim(min(0.3, smallest), max(3.0, 2 * relative[0]))
    legend(ax, ax.lines, loc="lower left")
    open_frame(ax)
    set_title(ax, title or f"{'poor' if weights.poor else 'good'}: {weights}")
    return ax


def fit_quality(
    model: GraphicalFlow,
    lam: ArrayLike | None = None,
    q: ArrayLike | None = None,
    *,
    temperature: float = 1.0,
    num_draws: int = 1000,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw effective draws and Pareto k̂ for every λ and q: the conditions at which the flow is reliable.

    Cells whose weights cannot be used, because k̂ is too large, are crossed out: use `Posterior.refine` there.

    Parameters
    ----------
    model
        Fitted model.
    lam, q
        Values to combine; default six λ and five q across the fitted ranges.
    temperature
        Temperature of all posteriors.
    num_draws
        Number of draws at each point.
    title, ax
        Title of the axes; axes to draw on, default new ones.

    Returns
    -------
    Axes
    """
    lams, qs = _values(lam, np.geomspace(*model.lam_range_, 6)), _values(q, np.linspace(*model.q_range_, 5))
    ess, khat = np.empty((2, len(qs), len(lams)))
    for i, each_q in enumerate(qs.tolist()):
        for j, each in enumerate(lams.tolist()):
            known = model.posterior(each, each_q, temperature, num_draws=num_draws).diagnostics()
            ess[i, j], khat[i, j] = known.ess, known.khat
    limit = khat_limit(num_draws)
    ax = new_axes(ax, 5.4, 3.6)
    image = ax.imshow(ess, cmap="cividis", vmin=0, vmax=1, origin="lower", aspect="auto", interpolation="nearest")
    # Layout engines shrink axes later: a cell must be somewhat larger than "-0.17".
    cell = 72 * np.array(inches(ax)) / [len(lams), len(qs)]
    written = bool(cell[0] >= 2.9 * SMALL and cell[1] >= 1.6 * SMALL)
    for (i, j), value in np.ndenumerate(khat):
        bad, ink = not value < limit, "white" if ess[i, j] < 0.55 else "black"
        if written:
            ax.text(
                j,
                i,
                f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=SMALL,
                color=ink,
                weight="bold" if bad else "normal",
            )
        if bad:
            ax.plot([j - 0.5, j + 0.5], [i - 0.5, i + 0.5], color=ink, lw=1)
            ax.plot([j - 0.5, j + 0.5], [i + 0.5, i - 0.5], color=ink, lw=1)
    set_names(ax.xaxis, _numbers(lams), most=12)
    set_names(ax.yaxis, _numbers(qs), most=12)
    ax.set(xlabel="shrinkage λ", ylabel="exponent q", xlim=(-0.5, len(lams) - 0.5), ylim=(-0.5, len(qs) - 0.5))
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02)
    bar.set_label("effective share of draws", fontsize=9)
    bar.ax.tick_params(labelsize=SMALL)
    bad = int(np.sum(~(khat < limit)))
    note = f"crossed out: k̂ ≥ {limit:.2g}, at {bad} of {khat.size}" if bad else f"k̂ < {limit:.2g} everywhere"
    set_title(ax, title or f"Pareto k̂ (numbers) and effective draws (colour); {note}")
    return ax


def _values(given: ArrayLike | None, default: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    return np.unique(default if given is None else np.atleast_1d(np.asarray(given, float)))


def _numbers(values: Float[np.ndarray, " k"]) -> Sequence[str]:
    # No exponents: "1000" is shorter than "1e+03", and other axes of λ have none.
    return [np.format_float_positional(float(f"{value:.3g}"), trim="-") for value in values]
