"""Reports of training, one after each compiled chunk."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

MANY_SKIPPED = 0.05  # share of skipped steps above which training is doubtful


class Report(NamedTuple):
    """State of training after a chunk, for progress bars and histories.

    Attributes
    ----------
    step, steps
        Steps done and planned.
    elbo
        Held-out ELBO, mean over the grid of conditions, in nats; unnormalized target.
    ess
        Expected relative effective sample size, exp(−variance of log p̃ − log q) within conditions.
    skipped
        Steps skipped so far because their gradient was not finite.
    """

    step: int
    steps: int
    elbo: float
    ess: float
    skipped: int


def summarize(step: int, steps: int, log_ratio: Float[np.ndarray, "c m"], skipped: int) -> Report:
    """The report from held-out log q − log p̃ of m draws under each of c conditions."""
    with np.errstate(invalid="ignore", over="ignore"):  # an ELBO that is not finite shows in the status of training
        elbo, ess = -float(np.mean(log_ratio)), float(np.exp(-np.mean(np.var(log_ratio, axis=1, ddof=1))))
    return Report(step, steps, elbo, ess, skipped)


def reports_from_array(rows: Float[np.ndarray, "k 5"]) -> list[Report]:
    """The history of a training run from an array with a row for each report."""
    return [Report(int(step), int(steps), elbo, ess, int(skipped)) for step, steps, elbo, ess, skipped in rows.tolist()]
