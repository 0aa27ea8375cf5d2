"""How a flow is trained: settings and their defaults, by the number of free entries and the range of temperatures."""

from numbers import Integral
from typing import NamedTuple

from ggmflow.errors.argument import ArgumentError
from ggmflow.flow.base import TrainingPlan

CHUNK = 25  # steps per compiled chunk
_MAX_STEPS, _MAX_DRAWS = 10**8, 10**6  # weeks of training, and gigabytes per step: larger numbers are typing errors


class Settings(NamedTuple):
    """How to train.

    Attributes
    ----------
    steps
        Number of gradient steps, rounded up to whole chunks.
    num_conditions, num_draws
        Conditions per step and draws for each.
    learning_rate
        η₀.
    cooling
        None: temperatures are drawn with the other conditions, most of them at the ends. (T₀, T_n, stages): every
        step of a stage has the same temperature, as published.
    averaging
        Decay of the averaged weights, which are those kept; 0 keeps the weights themselves.
    patience
        Stop when the held-out ELBO has not risen for this share of the steps.
    """

    steps: int
    num_conditions: int = 32
    num_draws: int = 4
    learning_rate: float = 1e-2
    cooling: tuple[float, float, int] | None = None
    averaging: float = 0.98  # a memory of a few chunks
    patience: float = 0.7  # long: the ELBO may stay level while the rate is high and rise when the rate falls


def default_settings(
    n_entries: int,
    many_temperatures: bool,
    steps: int | None = None,
    batch_size: int | None = None,
    plan: TrainingPlan | None = None,
    *,
    pretrained: bool = False,
) -> Settings:
    """Settings for D free entries: more entries get fewer draws, a range of temperatures more steps.

    A flow that starts with shipped corrections gets few steps.

    Parameters
    ----------
    n_entries
        D.
    many_temperatures
        Whether the flow is trained for a range of temperatures.
    steps, batch_size
        Replace the defaults; steps are rounded up to whole chunks, 0 means no training.
    plan
        Training plan of the architecture. Each of its snapshots needs a chunk.
    pretrained
        Whether the flow has shipped corrections.
    """
    plan = TrainingPlan() if plan is None else plan
    if steps is None and pretrained:
        steps = 100
    elif steps is None:
        steps = 900 if 300 < n_entries <= 1000 else 800 if n_entries <= 3000 else 600
        if many_temperatures:
            steps = 1500 if n_entries <= 1000 else 1000
    elif isinstance(steps, bool) or not isinstance(steps, Integral) or not 0 <= steps <= _MAX_STEPS:
        raise ArgumentError("steps", steps, f"be an integer from 0 to {_MAX_STEPS}")
    if batch_size is None:
        batch_size = 128 if n_entries <= 300 else 64 if n_entries <= 1000 else 32
    elif isinstance(batch_size, bool) or not isinstance(batch_size, Integral) or not 2 <= batch_size <= _MAX_DRAWS:
        raise ArgumentError("batch_size", batch_size, f"be an integer from 2 to {_MAX_DRAWS}")
    num_conditions, num_draws = split_batch(int(batch_size))
    return Settings(
        steps=max(-(-int(steps) // CHUNK), len(plan.snapshots) if steps else 0) * CHUNK,
        num_conditions=max(1, num_conditions),
        num_draws=num_draws,
        learning_rate=plan.learning_rate,
        cooling=plan.cooling,
        averaging=plan.averaging,
    )


def split_batch(batch_size: int) -> tuple[int, int]:
    """Conditions of a step, and draws for each."""
    num_draws = 2 if batch_size < 16 else 4
    return batch_size // num_draws, num_draws
