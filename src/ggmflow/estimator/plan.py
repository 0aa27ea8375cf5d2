"""The plan of a fit: its query, ranges, untrained flow and settings, checked before anything is trained.

parameters + Scatter → FitPlan → trained flow → warnings about its training
"""

import warnings
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int, Key
from sklearn.exceptions import ConvergenceWarning

from ggmflow.data.scatter import Scatter
from ggmflow.data.scatter_checks import count_estimated
from ggmflow.errors.advice import Advice, Surface
from ggmflow.errors.advised import AdvisedWarning
from ggmflow.flow.base import MatrixFlow, find_architecture, untrained_flow
from ggmflow.model.conditions import Ranges, find_ranges
from ggmflow.posterior.source import as_key
from ggmflow.train.loop import Trained
from ggmflow.train.memory import memory_errors, require_memory
from ggmflow.train.report import MANY_SKIPPED
from ggmflow.train.settings import Settings, default_settings
from ggmflow.train.status import Status

_CHECK = "check posterior(...).diagnostics()"


class FitPlan(NamedTuple):
    """Everything that training needs.

    Attributes
    ----------
    query : (s,) array of int
        Columns of the query, all of them without one.
    ranges
        Ranges of λ, q and T.
    flow
        Untrained.
    key
        Random key of conditions and draws.
    settings, from_zero, snapshots
        How to train; the same where shipped weights do harm; and the temperatures at which flows are kept.
    may_skip_training
        Whether a flow that starts with a good fit is left as it is: unless a number of steps was asked for.
    """

    query: Int[np.ndarray, " s"]
    ranges: Ranges
    flow: MatrixFlow
    key: Key[Array, ""]
    settings: Settings
    from_zero: Settings
    snapshots: tuple[float, ...]
    may_skip_training: bool


def check_parameters(parameters: dict[str, Any], shape: tuple[int, ...], checkpoint: str | Path | None) -> None:
    """Raise if parameters make no sense, or if a flow over a table of this shape cannot fit into memory.

    Parameters
    ----------
    parameters
        Parameters of the estimator, by name.
    shape
        Shape of the table; () if it is not known before the table is read.
    checkpoint
        As in `GraphicalFlow.fit`.
    """
    if checkpoint is not None and not isinstance(parameters["random_state"], Integral):
        raise ValueError("a fit with a checkpoint needs an integer random_state: without one it cannot be resumed")
    find_architecture(parameters["architecture"])
    count_estimated(parameters["mean"])  # also where a `Scatter` decides
    default_settings(1, False, parameters["steps"], parameters["batch_size"])
    if parameters["query"] is None and len(shape) == 2:
        # Before the scatter matrix is computed, which may be large itself.
        require_memory(parameters["architecture"], shape[1], shape[1], parameters["batch_size"])


def plan_fit(parameters: dict[str, Any], scatter: Scatter) -> FitPlan:
    """The plan of a fit to given data, with an untrained flow.

    Parameters
    ----------
    parameters
        Parameters of the estimator, by name.
    scatter
        The data.
    """
    given, d = parameters, scatter.n_features
    query = np.arange(d) if given["query"] is None else scatter.index(given["query"])
    require_memory(given["architecture"], d, len(query), given["batch_size"])
    ranges = find_ranges(given["lam"], given["q"], given["temperature"], scatter, query)
    key = as_key(given["random_state"])
    with memory_errors(d, len(query)):
        start_key, shipped = jax.random.fold_in(key, 0), bool(given["pretrained"])
        flow = untrained_flow(start_key, given["architecture"], scatter, query, ranges, pretrained=shipped)

    def settings_of(flow: MatrixFlow) -> Settings:
        asked = (flow.n_entries, ranges.many_temperatures, given["steps"], given["batch_size"])
        return default_settings(*asked, flow.training_plan(ranges), pretrained=flow.has_shipped)

    settings, from_zero = settings_of(flow), settings_of(flow.without_shipped())
    train_key, may_skip = jax.random.fold_in(key, 1), given["steps"] is None
    return FitPlan(query, ranges, flow, train_key, settings, from_zero, flow.training_plan(ranges).snapshots, may_skip)


def raise_if_failed(trained: Trained) -> None:
    """Raise FloatingPointError if no chunk of training ended with a finite ELBO."""
    if trained.status == Status.FAILED:
        raise FloatingPointError(
            "training failed: the ELBO was never finite. Narrow the ranges of lam, q and temperature, "
            "above all away from the lowest q and temperature and from extreme lam"
        )


class TrainingWarning(AdvisedWarning, ConvergenceWarning):
    """Training was interrupted, or skipped many steps; the advice says how to judge the result."""


def warn_about_training(trained: Trained, checkpoint: str | Path | None) -> None:
    """Warn, at the caller of `fit`, about a training run that was interrupted or skipped many steps."""
    last = trained.history[-1]
    if trained.status == Status.INTERRUPTED:
        problem = f"interrupted after {last.step} of {last.steps} steps, with the best model so far"
        python, command_line = f"{_CHECK} before trusting it", "resume it by the same command with --resume"
        python += f"; the same call resumes from {checkpoint}" if checkpoint is not None else ""
    elif last.skipped > MANY_SKIPPED * last.step:
        problem = f"{last.skipped} of {last.step} steps were skipped because their gradient was not finite"
        python = f"{_CHECK}; narrower ranges of lam, q and temperature may help"
        command_line = 'check "Trust" in the summary; narrower --lam, --q and --temperature may help'
    else:
        return
    advice = Advice({Surface.PYTHON: python, Surface.COMMAND_LINE: command_line})
    warnings.warn(TrainingWarning(problem, advice), stacklevel=3)
