"""The values that a report shows: associations, intervals and edges of every pair on a grid of (λ, q).

The grid contains the selected point. Every value equals that of ``model.posterior(lam, q, num_draws=...)``.
"""

import warnings
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from ggmflow.errors.argument import ArgumentError
from ggmflow.estimator.graphical_flow import GraphicalFlow, RangeWarning
from ggmflow.evidence.normalizer import Method
from ggmflow.model.conditions import Choice
from ggmflow.posterior.edge_rules import EDGE_RULES, own_parameters
from ggmflow.posterior.edges import EdgeSelection
from ggmflow.posterior.posterior import PoorFitWarning
from ggmflow.posterior.weights import Verdict, khat_limit
from ggmflow.train.progress import counting_bar
from ggmflow.views.pairs import View, num_draws_of, view

LEVEL, THRESHOLD = 0.9, 0.1
RULES = tuple(rule.key for rule in EDGE_RULES.values() if rule.menu)
FIELDS = ("association", "lower", "upper", "p_positive", "edge_probability")

_CAPACITY = 72_000  # pairs × points that a page can hold: about 3 MB
_MIN_DRAWS = 500
_MANY = 1000  # number of entries from which one point takes a second or more


class Point(NamedTuple):
    """The posterior of m pairs at one (λ, q).

    Attributes
    ----------
    values : (5, m) array
        One row for each of `FIELDS`.
    selections : list of EdgeSelection
        Edges by each of `RULES`.
    edges : (3, m) array of bool
        The same edges, pair by pair.
    khat, ess
        As in `Posterior.diagnostics`; the effective sample size is relative to the number of draws.
    verdict : Verdict
        Quality of the draws, as in `Posterior.diagnostics`.
    evidence, se : float
        log p(X | λ, q) and its standard error; NaN if unknown.
    by_weights : bool
        Whether the standard error is the whole error of the evidence. It is not where the evidence was approximated by
        cumulants.
    """

    values: Float[np.ndarray, "5 m"]
    selections: list[EdgeSelection]
    edges: Bool[np.ndarray, "3 m"]
    khat: float
    ess: float
    verdict: Verdict
    evidence: float
    se: float
    by_weights: bool


class Content(NamedTuple):
    """The values of a page: m pairs of d variables at k × l points.

    Attributes
    ----------
    names : tuple of str
        Names of all d variables.
    query : (s,) array
        Positions of the query variables; all of them for a full matrix.
    lam : (k,) array
        Values of λ, ascending.
    q : (l,) array
        Values of q, ascending.
    start : (int, int)
        Positions in `lam` and `q` of the point that the page shows first: the selected point if the grid contains it,
        else the best point of the grid, else the middle.
    temperature, num_draws
        Temperature and number of draws of every posterior.
    points : list of Point
        All q of the first λ, then all q of the second λ, and so on.
    first, second : (m,) arrays
        Positions of the two variables of every pair.
    inside : (m,) array of bool
        Whether both variables belong to the query: the association is then a partial correlation, else a regression
        weight.
    kept : (p,) array
        Positions of the pairs that the page contains; all pairs unless there are too many.
    choice
        λ and q of highest evidence; None if they could not be chosen.
    evidence_error
        Message of the error that prevented a choice; empty if there was none.
    """

    names: tuple[str, ...]
    query: Int[np.ndarray, " s"]
    lam: Float[np.ndarray, " k"]
    q: Float[np.ndarray, " l"]
    start: tuple[int, int]
    temperature: float
    num_draws: int
    points: list[Point]
    first: Int[np.ndarray, " m"]
    second: Int[np.ndarray, " m"]
    inside: Bool[np.ndarray, " m"]
    kept: Int[np.ndarray, " p"]
    choice: Choice | None
    evidence_error: str

    @property
    def selected(self) -> Point:
        """The point that the page shows first."""
        return self.at(*self.start)

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts that occur, the best first."""
        found = {point.verdict for point in self.points}
        return [verdict for verdict in Verdict if verdict in found]

    @property
    def khat_limit(self) -> float:
        """The value that k̂ should stay below."""
        return khat_limit(self.num_draws)

    @property
    def is_blanket(self) -> bool:
        """Whether the query is a part of the variables."""
        return len(self.query) < len(self.names)

    @property
    def along(self) -> Literal["lam", "q"]:
        """The axis of the curves: q if λ has a single value."""
        return "lam" if len(self.lam) > 1 else "q"

    @property
    def axis(self) -> Float[np.ndarray, " n"]:
        """Values of the axis of the curves."""
        return self.lam if self.along == "lam" else self.q

    @property
    def starts_at_choice(self) -> bool:
        """Whether the page starts at the λ and q of highest evidence, which a given grid need not contain."""
        if self.choice is None:
            return False
        at = self.lam[self.start[0]], self.q[self.start[1]]
        return bool(np.allclose(at, (self.choice.lam, self.choice.q)))

    @property
    def strongest_edge(self) -> int | None:
        """Position among all pairs of the strongest edge at the start; None if there are no edges."""
        point = self.selected
        return int(np.argmax(np.where(point.edges[0], np.abs(point.values[0]), -1))) if point.edges[0].any() else None

    @property
    def first_curve(self) -> int | None:
        """Position among the kept pairs of the pair whose curve is shown first: the strongest edge, else pair."""
        point, kept = self.selected, self.kept
        if not kept.size:
            return None
        return int(np.lexsort((-np.abs(point.values[0, kept]), ~point.edges[0, kept]))[0])

    @property
    def drawn(self) -> list[int]:
        """Positions among the kept pairs of those that are an edge at any point by any rule."""
        ever = np.any([point.edges.any(axis=0) for point in self.points], axis=0)[self.kept]
        return np.flatnonzero(ever).tolist()

    @property
    def widest(self) -> float:
        """Largest |association| among the drawn pairs, which has the widest line."""
        sizes = np.abs(self.field("association"))[:, self.drawn]
        return float(sizes.max()) if sizes.size else 1.0

    @property
    def limit(self) -> float:
        """Largest |end of an interval|, rounded up to one digit: the scale of the table and of the curve of a pair."""
        largest = float(np.nanmax(np.abs([self.field("lower"), self.field("upper")]), initial=0.0))
        if largest <= 0:
            return 1.0
        unit = 10.0 ** np.floor(np.log10(largest))
        return float(np.round(np.ceil(largest / unit - 1e-9) * unit, 12))

    def at(self, i: int, j: int) -> Point:
        """Return the point of the i-th λ and the j-th q."""
        return self.points[i * len(self.q) + j]

    def field(self, name: str) -> Float[np.ndarray, "points p"]:
        """Return one of `FIELDS` of the kept pairs at every point."""
        row = FIELDS.index(name)
        return np.array([point.values[row, self.kept] for point in self.points])

    def through_start(self, values: Float[np.ndarray, " points"]) -> Float[np.ndarray, " n"]:
        """Return the values of all points along the axis of the curves, through the start."""
        grid = values.reshape(len(self.lam), len(self.q))
        return grid[:, self.start[1]] if self.along == "lam" else grid[self.start[0]]

    def below_best(self) -> Float[np.ndarray, "k l"] | None:
        """Return log evidence minus its maximum on the grid; None if it is unknown or there is a single point."""
        values = np.array([point.evidence for point in self.points]).reshape(len(self.lam), len(self.q))
        return values - np.nanmax(values) if values.size > 1 and np.isfinite(values).any() else None


def collect(model: GraphicalFlow, lam: ArrayLike | None = None, q: ArrayLike | None = None) -> Content:
    """Draw from the posterior at every point of the grid.

    Parameters
    ----------
    model
        Fitted model.
    lam, q
        Values of the grid; default twelve λ and six q across the fitted ranges, nine and four for very many pairs,
        including the selected values.
    """
    ranges, num_draws = model.ranges_, max(num_draws_of(model), _MIN_DRAWS)
    num_lam, num_q = (12, 6) if model.flow_.n_entries <= _MANY else (9, 4)
    lams = np.geomspace(*ranges.lam, num_lam) if lam is None else _given("lam", lam)
    qs = np.linspace(*ranges.q, num_q) if q is None else _given("q", q)
    for each, other in [(lams[0], qs[0]), (lams[-1], qs[-1])]:
        ranges.condition(float(each), float(other), ranges.warmest)  # raise before drawing
    choice, evidence_error = _choose(model)
    if choice is not None:
        lams = lams if lam is not None else _including(lams, choice.lam)
        qs = qs if q is not None else _including(qs, choice.q)
    lams, qs = np.unique(lams), np.unique(qs)
    with counting_bar(model.progress, "report", len(lams) * len(qs)) as report:
        points, seen = [], None
        for each in lams.tolist():
            for other in qs.tolist():
                seen, point = _point(model, each, other, num_draws, choice is not None)
                points.append(point)
                report()
    assert seen is not None  # a grid has a point
    start = _start(lams, qs, choice, np.array([point.evidence for point in points]))
    i, j = seen.pairs["i"].to_numpy(), seen.pairs["j"].to_numpy()
    return Content(
        names=model.scatter_.names,
        query=model.query_,
        lam=lams,
        q=qs,
        start=start,
        temperature=ranges.warmest,
        num_draws=num_draws,
        points=points,
        first=i,
        second=j,
        inside=np.isin(j, model.query_),
        kept=pairs_to_keep(points, points[start[0] * len(qs) + start[1]]),
        choice=choice,
        evidence_error=evidence_error,
    )


def _given(name: str, values: ArrayLike) -> Float[np.ndarray, " k"]:
    try:
        axis = np.unique(np.asarray(values, float))
    except (ValueError, TypeError):  # not numbers, or lists of different lengths
        axis = np.empty(0)
    if not axis.size or not np.all(np.isfinite(axis) & (axis > 0)):
        raise ArgumentError(name, values, "be a positive number or a list of them")
    return axis


def _choose(model: GraphicalFlow) -> tuple[Choice | None, str]:
    """λ and q of highest evidence, or None and the message of the error that prevented a choice, if there was one."""
    has_ranges = model.lam_range_[0] < model.lam_range_[1] or model.q_range_[0] < model.q_range_[1]
    if model.temperature_range_[1] < 1 and has_ranges:
        return None, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RangeWarning)  # the page contains it
            return model.choice_, ""
    except FloatingPointError as error:
        return None, str(error)


def _including(axis: Float[np.ndarray, " k"], value: float) -> Float[np.ndarray, " k"]:
    """The axis with its value nearest to the given one replaced by it; the two ends stay."""
    nearest = int(np.argmin(np.abs(np.log(axis / value))))
    at_end = nearest in (0, axis.size - 1)
    if at_end and not np.isclose(axis[nearest], value, rtol=1e-9):
        return np.sort(np.append(axis, value))
    return np.where(np.arange(axis.size) == nearest, value, axis)


def _start(lams: np.ndarray, qs: np.ndarray, choice: Choice | None, evidence: np.ndarray) -> tuple[int, int]:
    """Position of the choice; of the highest evidence if the grid does not contain it; else of the middle."""
    if choice is not None:
        i, j = (int(np.argmin(np.abs(np.log(axis / at)))) for axis, at in ((lams, choice.lam), (qs, choice.q)))
        if np.isclose(lams[i], choice.lam) and np.isclose(qs[j], choice.q):
            return i, j
        if np.isfinite(evidence).any():
            best = int(np.nanargmax(np.where(np.isfinite(evidence), evidence, np.nan)))
            return best // len(qs), best % len(qs)
    return len(lams) // 2, len(qs) // 2


def _point(model: GraphicalFlow, lam: float, q: float, num_draws: int, evidence: bool) -> tuple[View, Point]:
    """View and values at one (λ, q), with the evidence if it is wanted and there is a choice of λ or q."""
    seen = view(model, lam, q, rule=RULES[0], level=LEVEL, num_draws=num_draws)
    post, pairs = seen.posterior, seen.pairs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorFitWarning)  # the page contains it
        selections = [post.select_edges(rule, **own_parameters(rule, level=LEVEL)) for rule in RULES]
    row_of = np.full(len(post.names), -1)
    row_of[post.query] = np.arange(len(post.query))
    row, column = row_of[pairs["i"]], pairs["j"].to_numpy()
    known = post.diagnostics()
    value, se, by_weights = np.nan, np.nan, True
    if evidence and (model.lam_range_[0] < model.lam_range_[1] or model.q_range_[0] < model.q_range_[1]):
        # The choice of λ and q used as few draws: the page shows the values that were compared.
        table = model.evidence(lam, q, exact=False, num_draws=num_draws_of(model))
        value, se = table.loc[0, ["log_evidence", "se"]].to_numpy(float)
        by_weights = table.loc[0, "method"] != Method.CUMULANT
    return seen, Point(
        values=pairs[list(FIELDS)].to_numpy(float).T,
        selections=selections,
        edges=np.array([each.edges[row, column] for each in selections]),
        khat=float(known["khat"]),  # pyright: ignore[reportArgumentType]
        ess=float(known["ess"]),  # pyright: ignore[reportArgumentType]
        verdict=seen.verdict,
        evidence=float(value),
        se=float(se),
        by_weights=bool(by_weights),
    )


def pairs_to_keep(points: list[Point], start: Point) -> Int[np.ndarray, " p"]:
    """Return the pairs that the page contains: edges at the start, then edges elsewhere, then other pairs.

    If there are too many edges elsewhere, the points take turns, each with its strongest remaining edge. Otherwise the
    points of small λ, where associations are largest, would take all places.

    Parameters
    ----------
    points, start
        All points of the grid; the point that the page shows first.
    """
    own = _by_strength(start)[: np.count_nonzero(start.edges.any(axis=0))]
    ever = np.any([point.edges for point in points], axis=0)
    turn = np.min([np.argsort(_by_strength(point)) for point in points], axis=0)  # `argsort` of an order is a rank
    rest = np.lexsort((turn, ~ever.any(axis=0), ~ever[0]))
    order = np.concatenate([own, rest[~np.isin(rest, own)]])
    return np.sort(order[: max(1, _CAPACITY // len(points))])


def _by_strength(point: Point) -> Int[np.ndarray, " m"]:
    """All pairs: edges by the first rule, edges by another rule, other pairs; the strongest first within each group."""
    return np.lexsort((-np.abs(point.values[0]), ~point.edges.any(axis=0), ~point.edges[0]))
