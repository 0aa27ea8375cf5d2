"""The smallest architecture: independent normal entries of the Cholesky factor, with a softplus on its diagonal.

    x = μ + σz,   ℓ_jj = softplus(x_jj),   ℓ_ij = x_ij,   Ω = LLᵀ

It ignores the condition, so it suits a single (λ, q, T). `register(AffineFlow)` makes it available.
"""

from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection, Affine, Chain

from ggmflow.flow.base import MatrixFlow, MemoryNeed, TrainingPlan, fixed, full_precision, num_entries
from ggmflow.flow.cholesky import CholeskyProduct, PositiveDiagonal
from ggmflow.flow.pushforward import density_through_inverse, push_forward


@final
class AffineFlow(MatrixFlow):
    """Two weights per free entry."""

    bijection: AbstractBijection
    scatter: Any
    n_samples: Any
    n_query: int = eqx.field(static=True)
    architecture: ClassVar[str] = "affine"

    @classmethod
    def build(cls, key, scatter, n_samples, n_query, low, high):
        d, s, D = len(scatter), n_query, num_entries(len(scatter), n_query)
        affine = Affine(jnp.zeros(D), jnp.full(D, 0.1))
        bijection = Chain([affine, PositiveDiagonal(d, s), CholeskyProduct(d, s)])
        return cls(bijection=bijection, scatter=fixed(scatter), n_samples=fixed(n_samples), n_query=s)

    @staticmethod
    def shipped_options(*, pretrained, sizes):
        return {}

    @property
    def shipped_sizes(self):
        return ()

    @property
    def has_shipped(self):
        return False

    def without_shipped(self):
        return self

    @staticmethod
    def memory(n_features, n_query):
        return MemoryNeed(weights=2 * num_entries(n_features, n_query))

    def training_plan(self, ranges):
        return TrainingPlan(learning_rate=0.1)

    def draw_noise(self, key, num_conditions, num_draws):
        return jax.random.normal(key, (self.n_entries, num_conditions, num_draws))

    def prepare(self, condition):
        return None

    def at(self, condition, prepared=None):
        return None

    @full_precision
    def loss(self, noise, conditions, prepared):
        _, log_q, log_p = jax.vmap(self._push)(jnp.moveaxis(noise, 0, 2), conditions)
        return jnp.mean(log_q - log_p), jax.lax.stop_gradient(log_q - log_p)

    @full_precision
    def draw(self, key, condition, num_draws, at=None):
        return self._push(jax.random.normal(key, (num_draws, self.n_entries), np.float32), condition)

    @full_precision
    def log_prob(self, entries, condition):
        return density_through_inverse(self.bijection, entries, condition)

    def _push(self, z, condition):
        entries, log_q = push_forward(self.bijection, z, condition)
        return entries, log_q, jax.vmap(lambda y: self.log_target(y, condition))(entries)
