"""Everything a report shows, computed once on a grid of (λ, q): pairs × points of association, interval, edge.

The grid runs through the selected point. Every number is that of ``model.posterior(lam, q, num_draws=...)``.
"""

import warnings
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from ggmflow.estimator.graphical_flow import GraphicalFlow, RangeWarning
from ggmflow.model.conditions import Choice
from ggmflow.posterior.edge_rules import EDGE_RULES, own_parameters
from ggmflow.posterior.edges import EdgeSelection
from ggmflow.posterior.posterior import PoorFitWarning
from ggmflow.posterior.weights import Verdict, khat_limit
from ggmflow.train.progress import counting_bar
from ggmflow.views import pairs as views

LEVEL, THRESHOLD = 0.9, 0.1
RULES = tuple(rule.key for rule in EDGE_RULES.values() if rule.menu)
FIELDS = ("association", "lower", "upper", "p_positive", "edge_probability")

_KEPT = 72_000  # pairs × points whose numbers fit into a page: about 3 MB
_MIN_DRAWS = 500
_MANY = 1000  # entries, from which on a point takes a second or more


class Point(NamedTuple):
    """The posterior at one (λ, q): m pairs.

    Attributes
    ----------
    values : (5, m) array
        One row for each of `FIELDS`.
    selections : list of EdgeSelection
        By each of `RULES`.
    edges : (3, m) array of bool
        The same, pair by pair.
    khat, ess
        As in `Posterior.diagnostics`; the effective sample size is relative to the number of draws.
    verdict : {"good", "fair", "poor"}
        Green, yellow or red, as in `ImportanceWeights.verdict`.
    evidence, se : float
        log p(X | λ, q) and its standard error; NaN where it is not known.
    by_weights : bool
        Whether the evidence is an estimate of which the standard error says all, or one by cumulants.
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


class Numbers(NamedTuple):
    """What the page shows.

    Attributes
    ----------
    lam : (k,) array
    q : (l,) array
    start : (int, int)
        Positions of the selected λ and q; where they are not on the grid, of its best point or its middle.
    temperature, num_draws
        Of every posterior.
    points : list of Point
        λ by λ, for each all q.
    first, second : (m,) arrays
        Columns of the two variables of every pair.
    inside : (m,) array of bool
        Whether both belong to the query: the association is then a partial correlation, else a regression weight.
    kept : (p,) array
        The pairs whose numbers are in the page; all where there is room.
    choice
        λ and q of highest evidence, if they could be chosen.
    why_not
        Otherwise the reason.
    """

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
    why_not: str

    @property
    def selected(self) -> Point:
        """The point that the page starts at."""
        return self.at(*self.start)

    @property
    def khat_limit(self) -> float:
        """What k̂ must stay below."""
        return khat_limit(self.num_draws)

    @property
    def starts_at_choice(self) -> bool:
        """Whether that is the λ and q of highest evidence, which need not be on a grid that was given."""
        if self.choice is None:
            return False
        at = self.lam[self.start[0]], self.q[self.start[1]]
        return bool(np.allclose(at, (self.choice.lam, self.choice.q)))

    def at(self, i: int, j: int) -> Point:
        """The point of the i-th λ and the j-th q."""
        return self.points[i * len(self.q) + j]

    def field(self, name: str) -> Float[np.ndarray, "points p"]:
        """One of `FIELDS` at every point, of the kept pairs."""
        row = FIELDS.index(name)
        return np.array([point.values[row, self.kept] for point in self.points])

    def below_best(self) -> Float[np.ndarray, "k l"] | None:
        """log evidence minus the highest on the grid; None where it is not known or there is nothing to compare."""
        values = np.array([point.evidence for point in self.points]).reshape(len(self.lam), len(self.q))
        return values - np.nanmax(values) if values.size > 1 and np.isfinite(values).any() else None


def collect(model: GraphicalFlow, lam: ArrayLike | None = None, q: ArrayLike | None = None) -> Numbers:
    """Draw at every point of the grid.

    Parameters
    ----------
    model
        Fitted.
    lam, q
        Values of the grid; default twelve λ and six q across the fitted ranges, nine and four where there are very many
        pairs, the selected ones among them.
    """
    ranges, num_draws = model._fitted_ranges, max(views.num_draws_of(model), _MIN_DRAWS)
    num_lam, num_q = (12, 6) if model.flow_.n_entries <= _MANY else (9, 4)
    lams = np.geomspace(*ranges.lam, num_lam) if lam is None else _given("lam", lam)
    qs = np.linspace(*ranges.q, num_q) if q is None else _given("q", q)
    for each, other in [(lams[0], qs[0]), (lams[-1], qs[-1])]:
        ranges.condition(float(each), float(other), ranges.warmest)  # before anything is drawn
    choice, why_not = _choose(model)
    if choice is not None:
        lams, qs = (
            _through(axis, at) if given is None else axis
            for given, axis, at in ((lam, lams, choice.lam), (q, qs, choice.q))
        )
    lams, qs = np.unique(lams), np.unique(qs)
    with counting_bar(model.progress, "report", len(lams) * len(qs)) as report:
        points, seen = [], None
        for each in lams.tolist():
            for other in qs.tolist():
                seen, point = _look(model, each, other, num_draws, choice is not None)
                points.append(point)
                report()
    assert seen is not None  # a grid has a point
    start = _start(lams, qs, choice, np.array([point.evidence for point in points]))
    i, j = seen.pairs["i"].to_numpy(), seen.pairs["j"].to_numpy()
    return Numbers(
        lam=lams,
        q=qs,
        start=start,
        temperature=ranges.warmest,
        num_draws=num_draws,
        points=points,
        first=i,
        second=j,
        inside=np.isin(j, model.query_),
        kept=_keep(points, points[start[0] * len(qs) + start[1]]),
        choice=choice,
        why_not=why_not,
    )


def _given(name: str, values: ArrayLike) -> Float[np.ndarray, " k"]:
    axis = np.unique(np.atleast_1d(np.asarray(values, float)))
    if axis.ndim != 1 or not axis.size or not np.all(np.isfinite(axis) & (axis > 0)):
        raise ValueError(f"{name} must be a positive number or a list of them, got {values!r}")
    return axis


def _choose(model: GraphicalFlow) -> tuple[Choice | None, str]:
    """λ and q of highest evidence, or why there are none."""
    if model.temperature_range_[1] < 1 and (
        model.lam_range_[0] < model.lam_range_[1] or model.q_range_[0] < model.q_range_[1]
    ):
        warmest = model.temperature_range_[1]
        return None, (
            f"The model was fitted for temperatures up to {warmest:g} only. Evidence, by which λ and q are chosen, "
            "needs temperature 1, the posterior itself."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RangeWarning)  # the page says it
            return Choice(model.lam_, model.q_, model._chosen().at_ends), ""
    except FloatingPointError as error:
        return None, f"The evidence could not be computed: {error}."


def _through(axis: Float[np.ndarray, " k"], at: float) -> Float[np.ndarray, " k"]:
    """The axis with the value next to `at` replaced by it; the ends stay."""
    nearest = int(np.argmin(np.abs(np.log(axis / at))))
    if np.isclose(axis[nearest], at, rtol=1e-9):
        return np.where(np.arange(axis.size) == nearest, at, axis)
    if nearest in (0, axis.size - 1):
        return np.sort(np.append(axis, at))
    return np.where(np.arange(axis.size) == nearest, at, axis)


def _start(lams: np.ndarray, qs: np.ndarray, choice: Choice | None, evidence: np.ndarray) -> tuple[int, int]:
    """Where the page starts: at the choice; if the grid lacks it, at its highest evidence; else in the middle."""
    if choice is not None:
        i, j = (int(np.argmin(np.abs(np.log(axis / at)))) for axis, at in ((lams, choice.lam), (qs, choice.q)))
        if np.isclose(lams[i], choice.lam) and np.isclose(qs[j], choice.q):
            return i, j
        if np.isfinite(evidence).any():
            best = int(np.nanargmax(np.where(np.isfinite(evidence), evidence, np.nan)))
            return best // len(qs), best % len(qs)
    return len(lams) // 2, len(qs) // 2


def _look(model: GraphicalFlow, lam: float, q: float, num_draws: int, evidence: bool) -> tuple[views.View, Point]:
    seen = views.view(model, lam, q, rule=RULES[0], level=LEVEL, num_draws=num_draws)
    post, pairs = seen.posterior, seen.pairs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorFitWarning)  # the page says it
        selections = [post.select_edges(rule, **own_parameters(rule, level=LEVEL)) for rule in RULES]
    row_of = np.full(len(post.names), -1)
    row_of[post.query] = np.arange(len(post.query))
    row, column = row_of[pairs["i"]], pairs["j"].to_numpy()
    known = post.diagnostics()
    value, se, by_weights = np.nan, np.nan, True
    if evidence and (model.lam_range_[0] < model.lam_range_[1] or model.q_range_[0] < model.q_range_[1]):
        # With as few draws as the choice itself rests on, so that the page shows what was compared.
        table = model.evidence(lam, q, exact=False, num_draws=views.num_draws_of(model))
        value, se = table.loc[0, ["log_evidence", "se"]].to_numpy(float)
        by_weights = table.loc[0, "method"] != "cumulant"
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


def _keep(points: list[Point], start: Point) -> Int[np.ndarray, " p"]:
    """Pairs for the page: edges at its start, then edges elsewhere, then others.

    Where there is no room for all edges elsewhere, all points take turns, each with its strongest one that is left:
    small λ, where associations are largest, would have all of the room otherwise.
    """
    own = _order(start)[: np.count_nonzero(start.edges.any(axis=0))]
    ever = np.any([point.edges for point in points], axis=0)
    turn = np.min([np.argsort(_order(point)) for point in points], axis=0)  # `argsort` of an order is a rank
    rest = np.lexsort((turn, ~ever.any(axis=0), ~ever[0]))
    order = np.concatenate([own, rest[~np.isin(rest, own)]])
    return np.sort(order[: max(1, _KEPT // len(points))])


def _order(point: Point) -> Int[np.ndarray, " m"]:
    """All pairs: edges by the first rule, those by another, the rest; within each the strongest first."""
    return np.lexsort((-np.abs(point.values[0]), ~point.edges.any(axis=0), ~point.edges[0]))
