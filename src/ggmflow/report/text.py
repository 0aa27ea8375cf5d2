"""What the numbers of a report mean, in plain words; everything here is text without markup."""

import numpy as np

from ggmflow.data.findings import DataCheck, sentences
from ggmflow.errors.advice import Surface
from ggmflow.posterior.edge_rules import EDGE_RULES
from ggmflow.posterior.weights import Verdict
from ggmflow.report.content import RULES, Numbers, Point

VERDICTS = {"good": "Good", "fair": "Fair", "poor": "Poor"}
RULE_NAMES = {key: EDGE_RULES[key].title() for key in RULES}
MEASURES = ("regression weight", "partial correlation")
# log evidence below the best, down to which a colour goes, and what it means.
STEPS = {-1.0: "as good as the best", -3.0: "up to 20 times less probable", -5.0: "up to 150 times", -10.0: "far less"}


def number(value: float) -> str:
    """Three digits, and no exponent for λ in the thousands."""
    return f"{float(f'{value:.3g}'):g}"


def signed(value: float, decimals: int = 2) -> str:
    """With its sign, and a minus that is as wide as a plus."""
    return f"{value:+.{decimals}f}".replace("-", "−")


def percent(share: float) -> str:
    """Whole percents; what rounds to all or nothing but is not says so."""
    if 0.995 < share < 1:
        return ">99 %"
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def count(value: int, one: str, many: str | None = None) -> str:
    """1 edge, 2 edges."""
    return f"{value} {one if value == 1 else many or one + 's'}"


def condition(numbers: Numbers, i: int, j: int) -> str:
    """λ = 2, q = 0.5."""
    return f"λ = {number(numbers.lam[i])}, q = {number(numbers.q[j])}"


def step(below: float) -> int:
    """Position of a difference of log evidence among `STEPS`; past them all, their number."""
    return sum(not below > limit for limit in STEPS)


def trust(point: Point, numbers: Numbers) -> str:
    """How well the draws at a point stand for the posterior."""
    effective = f"{point.ess * numbers.num_draws:.0f} of {numbers.num_draws} draws are effective"
    khat = f"Pareto k̂ = {point.khat:.2f} (should be below {numbers.khat_limit:.2g})"
    meaning = {
        "good": "The numbers here can be used as they are.",
        "fair": "Few draws would count once they are weighted: the last digits may be off.",
        "poor": "Weights cannot correct the fitted distribution here, so it is shown as it is. It may still be near: "
        "ggmflow summary --refine gives exact draws and says how far off it was.",
    }[point.verdict]
    return f"{effective}, {khat}. {meaning}"


def evidence(below: float) -> str:
    """A difference of log evidence to the best point."""
    if not np.isfinite(below):
        return "not known"
    if below > -0.005:
        return "the highest of this grid"
    return f"{-below:.{2 if below > -100 else 0}f} below the best: the data are {_times(-below)} less probable"


def _times(log_factor: float) -> str:
    if log_factor > np.log(10_000):
        return "more than 10 000 times"
    factor = np.exp(log_factor)
    return f"{factor:.1f} times" if factor < 10 else f"{float(f'{factor:.2g}'):,.0f} times".replace(",", " ")


def selection(numbers: Numbers) -> list[str]:
    """What was selected and why, a paragraph each."""
    choice, below = numbers.choice, numbers.below_best()
    start = condition(numbers, *numbers.start)
    if choice is None:
        return [
            f"{numbers.why_not} This page therefore starts in the middle of the grid, at {start}: a place to look "
            "from, not a choice."
        ]
    if below is None:
        if len(numbers.points) > 1:
            return [
                f"λ and q were given as single numbers, so there was nothing to choose. This page starts at {start}."
            ]
        return [f"λ and q were given, so there was nothing to choose: {start}."]
    lam, q = number(choice.lam), number(choice.q)
    near = np.argwhere(below > -1)
    out = [
        f"λ = {lam} and q = {q} were chosen because the data are most probable there. The measure is the evidence "
        "log p(X | λ, q): the probability of the data averaged over all networks that a λ and q allow, so that fit is "
        "rewarded and needless edges are not. No part of the data was set aside.",
    ]
    if choice.at_ends:
        out.append(
            f"Caution: the evidence is highest at {' and '.join(choice.at_ends).replace('lam', 'λ')}, so the best "
            "value may lie beyond. Fit again with a range that goes further there."
        )
    if not numbers.starts_at_choice:
        out.append(f"That point is not on the grid of this page, which starts at the best point that is, {start}.")
    elif (gap := float(below[numbers.start])) < -0.005:
        best = np.unravel_index(int(np.nanargmax(below)), below.shape)
        out.append(
            f"The choice was made on a coarser grid than the one of this page, whose best point is "
            f"{condition(numbers, int(best[0]), int(best[1]))}, {-gap:.2f} higher."
        )
    lams, qs = numbers.lam[near[:, 0]], numbers.q[near[:, 1]]
    spread = " and ".join(
        f"{symbol} {number(values.min())} … {number(values.max())}"
        if np.ptp(values)
        else f"{symbol} {number(values[0])}"
        for symbol, values, axis in (("λ", lams, numbers.lam), ("q", qs, numbers.q))
        if len(axis) > 1
    )
    out.append(
        f"How clear is that? {count(len(near), 'point')} of the {below.size} of the grid "
        f"{'is' if len(near) == 1 else 'are'} within 1 of the best (as good, for all practical purposes): {spread}. "
        + (
            "An edge that comes and goes between them is not settled by these data."
            if len(near) > 1
            else "All other points are clearly worse."
        )
    )
    if len(numbers.q) > 1 and np.ptp(numbers.q):
        lasso = int(np.argmin(np.abs(numbers.q - 1)))
        if abs(numbers.q[lasso] - 1) < 0.11 and lasso != numbers.start[1]:
            gap = float(below[:, lasso].max() - below[numbers.start])
            verb = f"{_times(-gap)} less probable" if gap < -0.1 else "about as probable"
            out.append(
                f"At q = {number(numbers.q[lasso])}, next to the Bayesian graphical lasso (q = 1), the data are "
                f"{verb} even with the best λ for it."
            )
    se = np.array([point.se for point in numbers.points])
    if np.isfinite(se).any():
        out.append(
            f"Standard errors of these log evidences are {number(float(np.nanmedian(se)))} in the middle and at most "
            f"{number(float(np.nanmax(se)))}"
            + (
                "; where few draws are effective (see below) they are approximations whose error is larger than that."
                if not all(point.by_weights for point in numbers.points)
                else "."
            )
        )
    return out


def reliability(numbers: Numbers) -> str:
    """How many points of the grid are good."""
    found = [point.verdict for point in numbers.points]
    total = len(found)
    parts = [f"{found.count(each)} {each}" for each in Verdict if each in found]
    if len(parts) == 1:
        return f"All {total} points of the grid are {parts[0].split()[1]}." if total > 1 else ""
    return f"The {total} points of the grid: {', '.join(parts[:-1])} and {parts[-1]}."


def data_check(check: DataCheck | None) -> tuple[str, list[str]]:
    """What a look at the data before the fit has found: an opening sentence, and one for each finding.

    Parameters
    ----------
    check
        None for a model that was made without a look at the data.
    """
    if check is None:
        return "The data were not checked: this model was made without it.", []
    lines = [f"{line[0].upper()}{line[1:]}." for line in sentences(check, Surface.REPORT)]
    size = f"{check.n_rows:g} rows of {count(check.n_columns, 'variable')}"
    if not lines:
        return f"A look at the {size} before the fit: nothing unusual was found.", []
    if check.serious:
        return f"A look at the {size} before the fit found something that can make or hide edges by itself:", lines
    return f"A look at the {size} before the fit found:", lines


def strongest(numbers: Numbers) -> int | None:
    """Position among all pairs of the strongest edge at the selected point, if there is one."""
    point = numbers.selected
    return int(np.argmax(np.where(point.edges[0], np.abs(point.values[0]), -1))) if point.edges[0].any() else None


def shown_first(numbers: Numbers) -> int | None:
    """Position among the kept pairs of the one that the page shows along λ: the strongest edge, else strongest pair."""
    point, kept = numbers.selected, numbers.kept
    if not kept.size:
        return None
    return int(np.lexsort((-np.abs(point.values[0, kept]), ~point.edges[0, kept]))[0])


def edges_in_page(kept: int, count: int) -> str:
    """How many of the edges of a point the page lacks, if any."""
    return f" This page holds {kept} of the {count} edges of this point." if kept < count else ""
