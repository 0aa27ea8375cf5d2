"""The start of a fit: the shipped weights or, far from the posterior, the plain flow if better; training where it pays.

    spread = √(median over conditions of Var(log w)/D),   w = p̃/q,      at the highest and at the lowest temperature

Per free entry, the spread of log w follows the error of quantiles in posterior sd, and can be compared between sizes.
A start is judged with the program that later draws from posteriors, so that nothing more is compiled.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from ggmflow.data.scatter import Scatter
from ggmflow.flow.base import MatrixFlow, query_first
from ggmflow.model.conditions import Ranges
from ggmflow.posterior.flow_source import FlowSource, chunk_size
from ggmflow.train.clock import Clock
from ggmflow.train.interrupt import defer_interrupts
from ggmflow.train.loop import Trained, train
from ggmflow.train.report import Report, summarize
from ggmflow.train.schedule import condition_grid
from ggmflow.train.settings import Settings
from ggmflow.train.status import Status

# Spread up to which training is omitted. At T = 0.01, 1500 steps of training from zero reach 0.28 on the toy problem.
GOOD, GOOD_COLD = 0.09, 0.3
_NEAR = 2.0  # times these spreads: the gap, about ½ Var(log w), is 0.016 nats an entry at the highest temperature
_NUM_CONDITIONS, _NUM_COLD = 8, 5


class Problem(NamedTuple):
    """Data, query and ranges of a fit."""

    scatter: Scatter
    query: Int[np.ndarray, " s"]
    ranges: Ranges


class Start(NamedTuple):
    """A flow before training, or after it, and its fit at some conditions.

    Attributes
    ----------
    flow
        The flow.
    report
        ELBO and expected ESS at the highest temperature, after 0 steps.
    elbo : (c,) array
        ELBO of every condition, −∞ where it is not finite: those of the highest temperature, then the lowest.
    variance : (c,) array
        Var(log w)/D of every condition.
    """

    flow: MatrixFlow
    report: Report
    elbo: Float[np.ndarray, " c"]
    variance: Float[np.ndarray, " c"]

    @property
    def is_usable(self) -> bool:
        """Whether it has an ELBO at the highest temperature."""
        return bool(np.isfinite(self.elbo[:_NUM_CONDITIONS]).all())

    @property
    def is_good(self) -> bool:
        """Whether training may be omitted."""
        return self._is_within(1.0)

    @property
    def is_near(self) -> bool:
        """Whether it is so near the posterior that a flow without shipped weights can hardly be better."""
        return self._is_within(_NEAR)

    def _is_within(self, factor: float) -> bool:
        warm, cold = self.variance[:_NUM_CONDITIONS], self.variance[_NUM_CONDITIONS:]
        limits = ((warm, GOOD), (cold, GOOD_COLD))
        return all(np.median(part) <= (factor * limit) ** 2 for part, limit in limits if part.size)

    def is_better_than(self, other: "Start") -> bool:
        """Whether the ELBOs are higher: the mean of ±log(1 + |difference|), as cold ones differ by hundreds of nats."""
        with np.errstate(invalid="ignore"):
            difference = np.nan_to_num(self.elbo - other.elbo, nan=0.0)  # of two infinite ones
        return float(np.mean(np.sign(difference) * np.log1p(np.abs(difference)))) > 0


def judge(flow: MatrixFlow, problem: Problem) -> Start:
    """The fit of a flow as it is, with fixed noise."""
    scatter, query, ranges = problem
    num_cold = _NUM_COLD if ranges.many_temperatures else 0
    grid = condition_grid(_NUM_CONDITIONS, ranges.low, ranges.high)
    grid = np.concatenate([grid, grid[:num_cold]])
    grid[:, 2] = np.log(np.repeat((ranges.warmest, ranges.temperature[0]), (_NUM_CONDITIONS, num_cold)))
    order = query_first(query, scatter.n_features)
    ratios = np.stack([_log_ratio(FlowSource(flow, condition, order, scatter)) for condition in grid])
    with np.errstate(invalid="ignore", over="ignore"):
        elbo, variance = -ratios.mean(axis=1), ratios.var(axis=1) / flow.n_entries
    elbo, variance = (np.where(np.isfinite(each), each, worst) for each, worst in ((elbo, -np.inf), (variance, np.inf)))
    return Start(flow, summarize(0, 0, ratios[:_NUM_CONDITIONS], 0), elbo, variance)


def _log_ratio(source: FlowSource) -> Float[np.ndarray, " m"]:
    _, log_q, log_p = source.entries(jax.random.key(0), chunk_size(source.flow))
    return log_q.astype(float) - log_p.astype(float)


def best_start(flow: MatrixFlow, problem: Problem) -> Start:
    """The flow as it is or, where shipped weights leave it far from the posterior, without them if that is better."""
    start = judge(flow, problem)
    if start.is_near or not flow.has_shipped:
        return start
    plain = judge(flow.without_shipped(), problem)
    return plain if plain.is_better_than(start) else start


def fit_flow(
    flow: MatrixFlow,
    key: PRNGKeyArray,
    problem: Problem,
    settings: Settings,
    *,
    may_skip: bool,
    clock: Clock,
    from_zero: Settings | None = None,
    report: Callable[[Report], None] | None = None,
    snapshot_at: tuple[float, ...] = (),
    **options: Any,
) -> Trained:
    """The start of a flow if that is good or nothing is to be trained, else the better of start and trained flow.

    Parameters
    ----------
    flow
        Not trained.
    key, settings, report, clock, snapshot_at, **options
        As in `train`; the report is called with the start too.
    problem
        Data, query and ranges.
    may_skip
        Whether a good start is left as it is.
    from_zero
        Settings of training where the shipped weights do harm; default those of `settings`.
    """
    ranges = problem.ranges
    given = {"report": report, "clock": clock, "snapshot_at": snapshot_at, **options}
    if settings.steps > 0 and not flow.has_shipped:
        return train(flow, key, ranges.low, ranges.high, settings, **given)
    clock.start()
    with defer_interrupts(), clock.count_compiling():
        start = best_start(flow, problem)
    clock.count_training()
    if report is not None:
        report(start.report)
    if settings.steps == 0 or (may_skip and start.is_good):
        status = Status.FINISHED if start.is_usable else Status.FAILED
        return Trained(start.flow, dict.fromkeys(snapshot_at, start.flow), [start.report], status)
    settings = settings if from_zero is None or start.flow.has_shipped else from_zero
    trained = train(start.flow, key, ranges.low, ranges.high, settings, **given)
    if start.is_usable and not judge(trained.flow, problem).is_better_than(start):
        status = Status.FINISHED if trained.status is Status.FAILED else trained.status
        return trained._replace(flow=start.flow, status=status)
    return trained
