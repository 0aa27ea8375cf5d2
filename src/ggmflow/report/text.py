"""Sentences of a report, made from its values. The texts contain no markup; templates escape them."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ggmflow.data.findings import DataCheck, sentences
from ggmflow.errors.advice import Surface
from ggmflow.model.conditions import Choice
from ggmflow.posterior.edge_rules import EDGE_RULES
from ggmflow.posterior.tables import Scale
from ggmflow.posterior.weights import Verdict
from ggmflow.report.content import RULES, Content, Point
from ggmflow.train.status import Status

VERDICTS = {Verdict.GOOD: "Good", Verdict.FAIR: "Fair", Verdict.POOR: "Poor", Verdict.MOVING: "Moving"}
CONSEQUENCES = {
    Verdict.GOOD: "The numbers here can be used as they are.",
    Verdict.FAIR: "Few draws are effective after weighting: the last digits may be off.",
    Verdict.POOR: "Weights cannot correct the fitted distribution here, so it is shown as it is. It may still be "
    "accurate: ggmflow summary --refine gives exact draws and says how far off it was.",
    Verdict.MOVING: "The chains still change from sweep to sweep: they need more sweeps.",
}
RULE_NAMES = {key: EDGE_RULES[key].title() for key in RULES}
RULE_EXPLANATIONS = {key: EDGE_RULES[key].explain() for key in RULES}
SYMBOLS = {"lam": "λ", "q": "q"}
MEASURES = (Scale.REGRESSION_WEIGHT, Scale.PARTIAL_CORRELATION)  # by `Content.inside`
MEANS = {
    0: "taken as known",
    1: "estimated from the rows, which takes one degree of freedom",
}  # by `Scatter.n_estimated`
MISSING = {
    "error": "none: the fit does not accept missing values with this setting",
    "drop": "rows with missing values were left out",
    "em": "replaced by their expected values given the rest of the row (EM); intervals are then a little too narrow",
}
# Limits of log evidence below the best that share a colour, and their meaning.
STEPS = {-1.0: "as good as the best", -3.0: "up to 20 times less probable", -5.0: "up to 150 times", -10.0: "far less"}


class Paragraph(NamedTuple):
    """A paragraph, and whether it is a caution, which the page highlights."""

    text: str
    caution: bool = False


# -------------------------------------------------------------------------------------------------------------- numbers
def printable(text: str) -> str:
    """Replace control characters that a page cannot show by �."""
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", text)


def number(value: float) -> str:
    """Three digits, without an exponent for λ in the thousands."""
    return f"{float(f'{value:.3g}'):g}"


def decimal(value: float) -> str:
    """Two decimals; a dash if the number is not finite."""
    return f"{value:.2f}".replace("-", "−") if np.isfinite(value) else "–"


def signed(value: float, decimals: int = 2) -> str:
    """A number with its sign; the minus is as wide as a plus."""
    return f"{value:+.{decimals}f}".replace("-", "−")


def percent(share: float) -> str:
    """Whole percents; a share that is rounded to 0 or 100 % has a sign."""
    if 0.995 < share < 1:
        return ">99 %"
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def count(value: int, one: str) -> str:
    """1 edge, 2 edges."""
    return f"{value} {one}{'s' * (value != 1)}"


def condition(content: Content, i: int, j: int) -> str:
    """λ = 2, q = 0.5."""
    return f"λ = {number(content.lam[i])}, q = {number(content.q[j])}"


def ranges(fitted: Mapping[str, tuple[float, float]]) -> str:
    """Fitted ranges by symbol: λ from 0.5 to 8, q = 1."""
    return ", ".join(
        f"{symbol} = {number(low)}" if low == high else f"{symbol} from {number(low)} to {number(high)}"
        for symbol, (low, high) in fitted.items()
    )


# -------------------------------------------------------------------------------------------------------------- quality
def trust(point: Point, content: Content) -> str:
    """Quality of the draws at a point, and its consequence."""
    effective = f"{point.ess * content.num_draws:.0f} of {content.num_draws} draws are effective"
    khat = f"Pareto k̂ = {point.khat:.2f} (should be below {content.khat_limit:.2g})"
    return f"{effective}, {khat}. {CONSEQUENCES[point.verdict]}"


def reliability(content: Content) -> str:
    """Number of points by verdict; empty for a single point."""
    verdicts = [point.verdict for point in content.points]
    if len(verdicts) == 1:
        return ""
    if len(content.verdicts) == 1:
        return f"All {len(verdicts)} points of the grid are {verdicts[0]}."
    *parts, last = (f"{verdicts.count(verdict)} {verdict}" for verdict in content.verdicts)
    return f"The {len(verdicts)} points of the grid: {', '.join(parts)} and {last}."


def training(status: str, steps: int, skipped: int) -> str:
    """How training ended, and after how many steps; a flow without any answers as it was shipped."""
    if steps == 0:
        return "The flow was not trained on these data: it answers as it was shipped."
    ends = {
        Status.FINISHED: "ran to its end",
        Status.STOPPED_EARLY: "stopped early because the ELBO no longer improved",
    }
    end = ends.get(Status(status), "was interrupted; this is the best model so far")
    not_finite = f", {skipped} of them skipped because their gradient was not finite" if skipped else ""
    return f"Training {end}: {steps} steps{not_finite}."


def data_check(check: DataCheck | None) -> tuple[str, list[str]]:
    """Result of the data check: a sentence, and the findings that complete it as a list.

    Parameters
    ----------
    check
        None for a model that was fitted without a data check.
    """
    if check is None:
        return "The data were not checked before this fit.", []
    lines = sentences(check, Surface.REPORT)
    size = f"{check.n_rows:g} rows of {count(check.n_columns, 'variable')}"
    if not lines:
        return f"The data check of {size} found nothing unusual.", []
    if check.serious:
        return f"The data check of {size} found something that can make or hide edges by itself:", lines
    return f"The data check of {size} found:", lines


# ------------------------------------------------------------------------------------------------------------- evidence
def step(below: float) -> int:
    """Position among `STEPS` of a difference of log evidence; their number if it is below all of them."""
    return sum(not below > limit for limit in STEPS)


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


def selection(content: Content) -> list[Paragraph]:
    """The selected λ and q, and the reasons for them."""
    choice, below, start = content.choice, content.below_best(), condition(content, *content.start)
    if choice is None:
        return [_without_choice(content, start)]
    if below is None:
        if len(content.points) > 1:
            text = f"λ and q were given as single numbers, so there was nothing to choose. This page starts at {start}."
        else:
            text = f"λ and q were given, so there was nothing to choose: {start}."
        return [Paragraph(text)]
    out = [
        Paragraph(
            f"λ = {number(choice.lam)} and q = {number(choice.q)} were chosen because the data are most probable "
            "there. The measure is the evidence log p(X | λ, q): the probability of the data averaged over all "
            "networks that a λ and q allow, so that fit is rewarded and needless edges are not. No part of the data "
            "was set aside."
        )
    ]
    if choice.at_boundary:
        out.append(_at_boundary(choice))
    if not content.starts_at_choice:
        text = f"That point is not on the grid of this page, which starts at the best point that is, {start}."
        out.append(Paragraph(text))
    elif (gap := float(below[content.start])) < -0.005:
        i, j = np.unravel_index(int(np.nanargmax(below)), below.shape)
        text = (
            "The choice was made on a coarser grid than the one of this page, whose best point is "
            f"{condition(content, int(i), int(j))}, {-gap:.2f} higher."
        )
        out.append(Paragraph(text))
    out.append(_clarity(content, below))
    out += [each for each in (_lasso(content, below), _standard_errors(content)) if each is not None]
    return out


def _without_choice(content: Content, start: str) -> Paragraph:
    if content.evidence_error:
        reason = f"The evidence could not be computed: {content.evidence_error}."
    else:
        reason = (
            f"The model was fitted for temperatures up to {content.temperature:g} only. Evidence, by which λ and q are "
            "chosen, needs temperature 1, the posterior itself."
        )
    return Paragraph(
        f"{reason} This page therefore starts in the middle of the grid, at {start}: this point was not "
        "selected by evidence."
    )


def _at_boundary(choice: Choice) -> Paragraph:
    ends = " and ".join(each.text("λ" if each.parameter == "lam" else "q") for each in choice.at_boundary)
    text = (
        f"Caution: the evidence is highest at {ends}, so the best value may lie beyond. Fit "
        "again with a range that goes further there."
    )
    return Paragraph(text, caution=True)


def _clarity(content: Content, below: Float[np.ndarray, "k l"]) -> Paragraph:
    """Points that are about as good as the best one."""
    near = np.argwhere(below > -1)
    lams, qs = content.lam[near[:, 0]], content.q[near[:, 1]]
    spread = " and ".join(
        f"{symbol} {number(values.min())} … {number(values.max())}"
        if np.ptp(values)
        else f"{symbol} {number(values[0])}"
        for symbol, values, axis in (("λ", lams, content.lam), ("q", qs, content.q))
        if len(axis) > 1
    )
    if len(near) > 1:
        verb, meaning = "are", "An edge that comes and goes between them is not settled by these data."
    else:
        verb, meaning = "is", "All other points are clearly worse."
    return Paragraph(
        f"How clear is that? {count(len(near), 'point')} of the {below.size} of the grid {verb} within 1 of the best "
        f"(as good, for all practical purposes): {spread}. {meaning}"
    )


def _lasso(content: Content, below: Float[np.ndarray, "k l"]) -> Paragraph | None:
    """Comparison with the q next to 1, unless the grid has none or the page starts there."""
    lasso = int(np.argmin(np.abs(content.q - 1)))
    if len(content.q) == 1 or abs(content.q[lasso] - 1) >= 0.11 or lasso == content.start[1]:
        return None
    gap = float(below[:, lasso].max() - below[content.start])
    verb = f"{_times(-gap)} less probable" if gap < -0.1 else "about as probable"
    return Paragraph(
        f"At q = {number(content.q[lasso])}, next to the Bayesian graphical lasso (q = 1), the data are {verb} even "
        "with the best λ for it."
    )


def _standard_errors(content: Content) -> Paragraph | None:
    se = np.array([point.se for point in content.points])
    if not np.isfinite(se).any():
        return None
    text = (
        f"Standard errors of these log evidences are {number(float(np.nanmedian(se)))} in the middle and at most "
        f"{number(float(np.nanmax(se)))}"
    )
    if all(point.by_weights for point in content.points):
        return Paragraph(f"{text}.")
    more = "where few draws are effective (see below) they are approximations whose error is larger than that."
    return Paragraph(f"{text}; {more}")
