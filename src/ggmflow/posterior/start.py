"""The start of a fit: the shipped weights, or the plain flow where that is better, and training where it pays.

A flow is trained without the shipped weights, from zero; see `StructuredFlow.to_train`.

    ELBO = E[log p̃ − log q],   ESS = E[w]²/E[w²],  w = p̃/q,   at a few conditions of the highest temperature

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

# Median ESS above which training is omitted: weights then correct the flow, and 4000 draws are worth 800.
GOOD = 0.2
_NUM_CONDITIONS = 8


class Problem(NamedTuple):
    """Data, query and ranges of a fit."""

    scatter: Scatter
    query: Int[np.ndarray, " s"]
    ranges: Ranges


class Start(NamedTuple):
    """A flow before training.

    Attributes
    ----------
    flow
        With the shipped weights, or without them where those are worse.
    report
        Its ELBO and expected ESS, after 0 steps.
    ess
        Median over conditions of the ESS of its weights.
    """

    flow: MatrixFlow
    report: Report
    ess: float

    @property
    def elbo(self) -> float:
        """The ELBO; −∞ if it is not finite."""
        return self.report.elbo if np.isfinite(self.report.elbo) else -np.inf


def judge(flow: MatrixFlow, problem: Problem) -> Start:
    """ELBO and ESS of a flow as it is, with fixed noise."""
    scatter, query, ranges = problem
    grid = condition_grid(_NUM_CONDITIONS, ranges.low, ranges.high)
    grid[:, 2] = np.log(ranges.warmest)
    order = query_first(query, scatter.n_features)
    ratios = np.stack([_log_ratio(FlowSource(flow, condition, order, scatter)) for condition in grid])
    log_w = -ratios - np.max(-ratios, axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        w = np.exp(log_w)
        ess = float(np.median(np.mean(w, 1) ** 2 / np.mean(w**2, 1)))
    return Start(flow, summarize(0, 0, ratios, 0), ess if np.isfinite(ess) else 0.0)


def _log_ratio(source: FlowSource) -> Float[np.ndarray, " m"]:
    _, log_q, log_p = source.entries(jax.random.key(0), chunk_size(source.flow.n_entries))
    return log_q.astype(float) - log_p.astype(float)


def best_start(flow: MatrixFlow, problem: Problem) -> Start:
    """The better of a flow with shipped weights and of the same flow without them."""
    start, plain = judge(flow, problem), flow.without_shipped()
    if plain is None:
        return start
    other = judge(plain, problem)
    return start if start.elbo >= other.elbo else other


def fit_flow(
    flow: MatrixFlow,
    key: PRNGKeyArray,
    problem: Problem,
    settings: Settings,
    *,
    may_skip: bool,
    clock: Clock,
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
    """
    ranges = problem.ranges
    given = {"report": report, "clock": clock, "snapshot_at": snapshot_at, **options}
    if settings.steps > 0 and flow.without_shipped() is None:
        return train(flow, key, ranges.low, ranges.high, settings, **given)
    clock.start()
    with defer_interrupts(), clock.count_compiling():
        start = best_start(flow, problem)
    clock.count_training()
    if report is not None:
        report(start.report)
    if settings.steps == 0 or (may_skip and start.ess >= GOOD):
        status = Status.FINISHED if np.isfinite(start.elbo) else Status.FAILED
        return Trained(start.flow, dict.fromkeys(snapshot_at, start.flow), [start.report], status)
    trained = train(start.flow.to_train(), key, ranges.low, ranges.high, settings, **given)
    if np.isfinite(start.elbo) and judge(trained.flow, problem).elbo <= start.elbo:
        status = Status.FINISHED if trained.status is Status.FAILED else trained.status
        return trained._replace(flow=start.flow, status=status)
    return trained
