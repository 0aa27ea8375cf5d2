"""The start of a fit: the shipped weights, or the plain flow where that is better, and whether training would pay.

    ELBO = E[log p̃ − log q],   ESS = exp(−Var(log p̃ − log q)),   at a few conditions of the highest temperature

Both are judged with the program that later draws from posteriors, so that nothing more is compiled.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from ggmflow.data.scatter import Scatter
from ggmflow.estimator.plan import FitPlan
from ggmflow.flow.base import MatrixFlow, query_first
from ggmflow.model.conditions import Ranges
from ggmflow.posterior.flow_source import FlowSource, chunk_size
from ggmflow.train.clock import Clock
from ggmflow.train.interrupt import defer_interrupts
from ggmflow.train.loop import Trained, train
from ggmflow.train.report import Report, summarize
from ggmflow.train.schedule import condition_grid
from ggmflow.train.status import Status

# Expected ESS above which training is omitted: weights then correct the flow, and 4000 draws are worth 1000.
GOOD = 0.25
_NUM_CONDITIONS = 8


class Start(NamedTuple):
    """A flow before training.

    Attributes
    ----------
    flow
        With the shipped weights, or without them where those are worse.
    report
        Its ELBO and ESS, after 0 steps.
    """

    flow: MatrixFlow
    report: Report

    @property
    def is_good(self) -> bool:
        """Whether training would improve little."""
        return self.report.ess >= GOOD


def judge_start(flow: MatrixFlow, ranges: Ranges, query: Int[np.ndarray, " s"], scatter: Scatter) -> Start:
    """Compare a flow that has shipped weights with the same flow without them.

    Parameters
    ----------
    flow
        Not trained.
    ranges, query, scatter
        Of the fit.
    """
    start = Start(flow, _judge(flow, ranges, query, scatter))
    plain = flow.without_shipped()
    if plain is None:
        return start
    other = Start(plain, _judge(plain, ranges, query, scatter))
    return start if _elbo(start) >= _elbo(other) else other


def _is_better(flow: MatrixFlow, start: Start, ranges: Ranges, query: Int[np.ndarray, " s"], scatter: Scatter) -> bool:
    """Whether a trained flow is better than its start."""
    return _elbo(Start(flow, _judge(flow, ranges, query, scatter))) > _elbo(start)


def _elbo(start: Start) -> float:
    return start.report.elbo if np.isfinite(start.report.elbo) else -np.inf


def _judge(flow: MatrixFlow, ranges: Ranges, query: Int[np.ndarray, " s"], scatter: Scatter) -> Report:
    grid = condition_grid(_NUM_CONDITIONS, ranges.low, ranges.high)
    grid[:, 2] = np.log(ranges.warmest)
    order = query_first(query, scatter.n_features)
    key, num_draws = jax.random.key(0), chunk_size(flow.n_entries)
    ratios = [_log_ratio(FlowSource(flow, condition, order, scatter), key, num_draws) for condition in grid]
    return summarize(0, 0, np.stack(ratios), 0)


def _log_ratio(source: FlowSource, key: jax.Array, num_draws: int) -> Float[np.ndarray, " m"]:
    _, log_q, log_p = source.entries(key, num_draws)
    return log_q.astype(float) - log_p.astype(float)


def train_if_it_pays(
    plan: FitPlan,
    scatter: Scatter,
    report: Callable[[Report], None] | None,
    checkpoint: Path | None,
    clock: Clock,
) -> Trained:
    """The flow of a fit: its start if that is good or nothing is to be trained, else trained from there.

    Parameters
    ----------
    plan
        Of the fit.
    scatter
        The data.
    report
        Called with the start and after each chunk of training.
    checkpoint
        As in `train`.
    clock
        Counts the seconds.
    """
    start, settings = None, plan.settings
    where = (plan.ranges, plan.query, scatter)
    if settings.steps == 0 or plan.flow.without_shipped() is not None:
        clock.start()
        with defer_interrupts(), clock.count_compiling():
            start = judge_start(plan.flow, *where)
        clock.count_training()
        if report is not None:
            report(start.report)
        if settings.steps == 0 or (plan.may_skip_training and start.is_good):
            status = Status.FINISHED if np.isfinite(start.report.elbo) else Status.FAILED
            return Trained(start.flow, dict.fromkeys(plan.snapshots, start.flow), [start.report], status)
    flow = plan.flow if start is None else start.flow
    options = {"report": report, "checkpoint": checkpoint, "snapshot_at": plan.snapshots, "clock": clock}
    trained = train(flow, plan.key, plan.ranges.low, plan.ranges.high, settings, **options)
    if start is not None and not _is_better(trained.flow, start, *where) and np.isfinite(start.report.elbo):
        status = Status.FINISHED if trained.status is Status.FAILED else trained.status
        return trained._replace(flow=start.flow, status=status)
    return trained
