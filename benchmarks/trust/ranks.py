"""What ranks and intervals of many replications say: uniform or not, covered as promised or not, and a picture of it.

rank ~ uniform on 0 … L,    number of intervals that hold the truth ~ Binomial(replications, 0.9)
"""

import csv
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from scipy import stats

from ggmflow.plot import style
from ggmflow.storage.replace import replacing

FUNCTIONS = ("diagonal", "off-diagonal", "log det")
L = 99  # draws that a rank is taken among
LEVEL = 0.9  # of intervals
BAR = 0.01  # p-values must not be below
BAND = 0.99  # of the binomial distribution of coverage, and of the picture


class Outcome(NamedTuple):
    """What came out of one replication for one sampler.

    Attributes
    ----------
    sampler, d, index, lam, q
        Which one it is.
    ranks, covered : tuple of three
        For each function of Ω the rank of the truth, 0 … L, and whether its interval holds it, 0 or 1.
    widths : tuple of three
        Of these intervals.
    share
        Of all entries whose interval holds the truth.
    khat, ess
        Of importance weights; NaN without.
    """

    sampler: str
    d: int
    index: int
    lam: float
    q: float
    ranks: tuple[int, ...]
    covered: tuple[int, ...]
    widths: tuple[float, ...]
    share: float
    khat: float = np.nan
    ess: float = np.nan


class Line(NamedTuple):
    """A number of the table; `low` and `high` are what it must lie between, None where it is only told."""

    what: str
    sampler: str
    d: str
    q: str
    function: str
    replications: int
    statistic: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def holds(self) -> bool:
        """Whether it does; ends of a band belong to it, whatever their rounding."""
        return not ((self.low or -np.inf) > self.value + 1e-9 or (self.high or np.inf) < self.value - 1e-9)


def save(file: Path, found: list[Outcome], origin: dict[str, str]) -> None:
    """What made the outcomes, a line for each name and value, an empty line, and a line for each outcome."""
    rows = [(*one[:5], *one.ranks, *one.covered, *one.widths, *one[8:]) for one in found]
    with replacing(file) as temporary, Path(temporary).open("w", encoding="utf-8", newline="") as out:
        csv.writer(out).writerows([*origin.items(), (), *rows])


def load(file: Path, origin: dict[str, str]) -> list[Outcome]:
    """What `save` wrote, refused if something else made it; the commit is told and may differ.

    Raises
    ------
    ValueError
        Says what differs.
    """
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines))
    end = rows.index([]) if [] in rows else 0
    theirs = dict(row[:2] for row in rows[:end])
    if not theirs:
        raise ValueError(f"{file} does not say what made it. Remove it to measure anew")
    names = [name for name in {**origin, **theirs} if theirs.get(name) != origin.get(name)]
    if set(names) - {"commit"}:
        told = "; ".join(f"{name} {theirs.get(name, 'none')}, now {origin.get(name, 'none')}" for name in names)
        raise ValueError(f"{file} is of another run: {told}. Remove it to measure anew")
    found = []
    for sampler, d, index, lam, q, *numbers in rows[end + 1 :]:
        ranks, covered = tuple(map(int, numbers[:3])), tuple(map(int, numbers[3:6]))
        widths, known = tuple(map(float, numbers[6:9])), map(float, numbers[9:])
        found.append(Outcome(sampler, int(d), int(index), float(lam), float(q), ranks, covered, widths, *known))
    return found


def pick(found: list[Outcome], **wanted: Any) -> list[Outcome]:
    """Those of given attributes."""
    return [one for one in found if all(getattr(one, name) == value for name, value in wanted.items())]


def values(found: list[Outcome], name: str) -> list[Any]:
    """What an attribute is in all of them, each once, in the order of appearance."""
    return list(dict.fromkeys(getattr(one, name) for one in found))


def p_values(ranks: Int[np.ndarray, " N"], seed: int = 0) -> dict[str, float]:
    """Of uniform ranks: Kolmogorov–Smirnov, with each rank spread evenly over its step, and χ² of equal bins."""
    # 20 bins of 5 ranks; with few replications 5 of 20, so that a bin can expect some.
    num_bins = 20 if len(ranks) >= 200 else 5
    spread = (ranks + np.random.default_rng(seed).uniform(size=len(ranks))) / (L + 1)
    counts = np.bincount(ranks * num_bins // (L + 1), minlength=num_bins)
    return {"KS": float(stats.kstest(spread, "uniform").pvalue), "χ²": float(stats.chisquare(counts).pvalue)}


def rank_lines(found: list[Outcome]) -> list[Line]:
    """p-values for each sampler, d and function. Those of all q together have a bar; those of each q are only told."""
    lines = []
    for sampler, d in dict.fromkeys((one.sampler, one.d) for one in found):
        part = pick(found, sampler=sampler, d=d)
        groups = {"all": part} | {f"{q:g}": pick(part, q=q) for q in values(part, "q")}
        for (q, some), (k, function) in product(groups.items(), enumerate(FUNCTIONS)):
            bar = BAR if q == "all" else None
            for statistic, p in p_values(np.array([one.ranks[k] for one in some]), seed=k).items():
                lines.append(Line("ranks", sampler, f"{d}", q, function, len(some), statistic, p, bar))
    return lines


def coverage_band(num: int) -> tuple[float, float]:
    """The coverage of so many right intervals lies between these with probability `BAND`; both belong to it."""
    low, high = stats.binom.interval(BAND, num, LEVEL)
    return float(low) / num, float(high) / num


def coverage_lines(found: list[Outcome]) -> list[Line]:
    """Coverage for each sampler, q and function. That of all d together has a band; that of each d is only told."""
    lines = []
    for sampler, q in product(values(found, "sampler"), values(found, "q")):
        part = pick(found, sampler=sampler, q=q)
        for d, some in ({"all": part} | {f"{d}": pick(part, d=d) for d in values(part, "d")}).items():
            about, num = ("coverage", sampler, d, f"{q:g}"), len(some)
            band = coverage_band(num) if d == "all" else (None, None)
            for function, share in zip(FUNCTIONS, np.mean([one.covered for one in some], axis=0), strict=True):
                lines.append(Line(*about, function, num, "inside", float(share), *band))
            lines.append(Line(*about, "all entries", num, "inside", float(np.mean([one.share for one in some]))))
    return lines


# -------------------------------------------------------------------------------------------------------------- figure
def ecdf_band(num: int, num_simulations: int = 4000) -> Float[np.ndarray, "2 L"]:
    """Between these the ECDF of so many uniform ranks, less its mean, stays everywhere with probability `BAND`."""
    rng, at = np.random.default_rng(0), np.arange(1, L + 1) / (L + 1)
    counts = np.cumsum(rng.multinomial(num, np.full(L + 1, 1 / (L + 1)), size=num_simulations), axis=1)[:, :-1]
    tails = 2 * np.minimum(stats.binom.cdf(counts, num, at), stats.binom.sf(counts - 1, num, at))
    pointwise = np.quantile(tails.min(axis=1), 1 - BAND)  # the level at which the worst point fails as often as allowed
    return np.array(stats.binom.interval(1 - pointwise, num, at)) / num - at


def draw_panel(ax: Axes, ranks: dict[int, Int[np.ndarray, " N"]]) -> None:
    """ECDF of ranks minus that of uniform ones, a line for each d, and the band."""
    at = np.arange(1, L + 1) / (L + 1)
    low, high = ecdf_band(min(map(len, ranks.values())))
    ax.fill_between(at, low, high, color=style.FAINT, alpha=0.5, lw=0)
    ax.axhline(0, color=style.NEUTRAL, lw=0.6)
    for (d, given), colour, dashes in zip(ranks.items(), style.LINES, ("-", style.DASHED), strict=False):
        ecdf = np.mean(given[:, None] < np.arange(1, L + 1), axis=0)
        ax.plot(at, ecdf - at, color=colour, ls=dashes, lw=1.3, label=f"d = {d}")
    style.open_frame(ax)
    ax.tick_params(labelsize=style.SMALL)


def draw(found: list[Outcome], labels: dict[str, str], path: Path) -> None:
    """A picture: samplers below each other, with their labels, functions beside each other."""
    size = (8, 0.4 + 1.75 * len(labels))
    figure, axes = plt.subplots(len(labels), 3, figsize=size, sharex=True, sharey="row", layout="constrained")
    for (sampler, label), row in zip(labels.items(), axes, strict=True):
        parts = {d: np.array([one.ranks for one in pick(found, sampler=sampler, d=d)]) for d in values(found, "d")}
        for k, ax in enumerate(row):
            draw_panel(ax, {d: ranks[:, k] for d, ranks in parts.items()})
        row[0].set_ylabel(f"{label}\nECDF − uniform", fontsize=style.SMALL)
    for function, top, bottom in zip(FUNCTIONS, axes[0], axes[-1], strict=True):
        top.set_title(function, fontsize=9)
        bottom.set_xlabel(f"rank of the truth among {L} draws, / {L + 1}", fontsize=style.SMALL)
    axes[-1, 1].legend(frameon=False, fontsize=style.SMALL, loc="lower center")
    figure.savefig(path, dpi=100)
    plt.close(figure)
