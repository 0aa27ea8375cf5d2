"""A flow of two weights with a loss of its own, which compiles in a second; importing it computes nothing."""

from collections.abc import Callable
from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ggmflow.flow.base import MatrixFlow, MemoryNeed, TrainingPlan, fixed
from ggmflow.train.loop import train
from ggmflow.train.settings import CHUNK, Settings

LOW, HIGH = np.array([-1.0, 0.25, np.log(0.01)]), np.array([2.0, 1.25, 0.0])
COOLING = (5.0, 0.01, 100)


def toy_noise(flow, key, num_conditions, num_draws):
    return jax.random.normal(key, (1, num_conditions, num_draws))


def toy_loss(flow, noise, conditions):
    mean = flow.mean * flow.step_size.tree
    z = noise[0]
    x = z + mean.sum()
    log_ratio = 0.5 * (x - 3 - conditions[:, 2:]) ** 2 - 0.5 * z**2
    factor = jnp.where(jnp.max(conditions[:, 1]) > flow.poison.tree, jnp.nan, 1.0)
    return factor * jnp.mean(log_ratio), jax.lax.stop_gradient(log_ratio)


@final
class Toy(MatrixFlow):
    """q = N(mean, 1) for the target N(3 + log T, 1); a step with q above `poison` has a gradient of NaN."""

    mean: jax.Array
    poison: Any
    step_size: Any  # 0: nothing to learn
    scatter: Any
    n_samples: Any
    n_query: int = eqx.field(static=True)
    prepares: bool = eqx.field(static=True)  # the loss takes its conditions from what is prepared
    make_noise: Callable = eqx.field(static=True)
    make_loss: Callable = eqx.field(static=True)
    architecture: ClassVar[str] = "toy"

    def __init__(
        self, poison=np.inf, step_size=1.0, n_query=1, make_noise=toy_noise, make_loss=toy_loss, prepares=False
    ):
        self.mean = jnp.zeros(2)
        self.poison, self.step_size = fixed(poison), fixed(step_size)
        self.scatter, self.n_samples, self.n_query = fixed(np.ones((1, 1))), fixed(1.0), n_query
        self.make_noise, self.make_loss, self.prepares = make_noise, make_loss, prepares

    @classmethod
    def build(cls, key, scatter, n_samples, n_query, low, high, **options):
        return cls(**options)

    @staticmethod
    def shipped_options(*, pretrained, sizes):
        return {}

    @property
    def shipped_sizes(self):
        return ()

    @property
    def has_shipped(self):
        return self.prepares

    def without_shipped(self):
        return self

    @staticmethod
    def memory(n_features, n_query):
        return MemoryNeed(weights=2)

    def training_plan(self, ranges):
        return TrainingPlan()

    def draw_noise(self, key, num_conditions, num_draws):
        return self.make_noise(self, key, num_conditions, num_draws)

    def prepare(self, condition):
        return condition if self.prepares else None

    def at(self, condition, prepared=None):
        return None

    def loss(self, noise, conditions, prepared):
        return self.make_loss(self, noise, prepared if self.prepares else conditions)

    def draw(self, key, condition, num_draws, at=None):
        x = jax.random.normal(key, (num_draws, 1)) + self.mean.sum()
        return x, self.log_prob(x, condition), -0.5 * (x[:, 0] - 3 - condition[2]) ** 2

    def log_prob(self, entries, condition):
        return -0.5 * (entries[:, 0] - self.mean.sum()) ** 2 - 0.5 * np.log(2 * np.pi).item()


def run(
    flow=None, seed=7, steps=10 * CHUNK, low=LOW, high=HIGH, num_conditions=8, cooling=None, patience=2.0, **options
):
    """Train a toy flow; by default ten chunks with temperatures in a range."""
    settings = Settings(steps, num_conditions, 4, 0.1, cooling, patience=patience)
    return train(flow or Toy(), jax.random.key(seed), low, high, settings, **options)


def interrupt_at(step):
    """A report function that is interrupted, as by Ctrl-C, after a step."""

    def report(report):
        if report.step == step:
            raise KeyboardInterrupt

    return report


def assert_same(a, b):
    """Two training runs have the same history, flow and snapshots, bit by bit."""
    assert a.history == b.history
    assert a.snapshots.keys() == b.snapshots.keys()
    for x, y in zip(jax.tree.leaves((a.flow, a.snapshots)), jax.tree.leaves((b.flow, b.snapshots)), strict=True):
        np.testing.assert_array_equal(x, y)
