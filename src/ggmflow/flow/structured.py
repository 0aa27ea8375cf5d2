"""The structured flow: its bijection follows the geometry of the posterior, its gradient the path of the draws.

`structured_columns` has the bijection and its formulas, made of `structured_geometry` (data and corrections at one
condition), `structured_entries` (elementary maps) and `structured_drawing` (the sequential part);
`structured_gradient` has the loss.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Self, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from paramax import unwrap

from ggmflow.flow.base import MatrixFlow, MemoryNeed, TrainingPlan, fixed, full_precision
from ggmflow.flow.pushforward import density_through_inverse
from ggmflow.flow.structured_columns import StructuredColumns
from ggmflow.flow.structured_geometry import Geometry, Shipped, added_rate, couplings_per_pair, shipped_at
from ggmflow.flow.structured_gradient import path_derivative_loss, sample_columns
from ggmflow.flow.structured_network import load_correction_network
from ggmflow.flow.transport import network_of_zeros, network_sizes
from ggmflow.model.conditions import Ranges


@final
class StructuredFlow(MatrixFlow):
    """The default architecture.

    Attributes
    ----------
    bijection
        Noise (D,) to the free entries of Ω, given a condition (3,).
    scatter, n_samples, n_query
        As in `MatrixFlow`.
    """

    bijection: StructuredColumns
    scatter: Float[Array, "d d"]
    n_samples: Float[Array, ""]
    n_query: int = eqx.field(static=True)
    architecture: ClassVar[str] = "structured"

    @classmethod
    def build(
        cls,
        key: PRNGKeyArray,
        scatter: Float[np.ndarray, "d d"],
        n_samples: float,
        n_query: int,
        low: Float[np.ndarray, " 3"],
        high: Float[np.ndarray, " 3"],
        **options: Any,
    ) -> Self:
        """An untrained flow; options as for `StructuredColumns`."""
        bijection = StructuredColumns(key, scatter, n_samples, n_query, low, high, **options)
        return cls(bijection=bijection, scatter=fixed(scatter), n_samples=fixed(n_samples), n_query=n_query)

    @staticmethod
    def shipped_options(*, pretrained: bool, sizes: Sequence[int] | None) -> dict[str, Any]:
        """τ, and the network that was trained once for all data sets."""
        stored = {} if sizes is None else {"network": network_of_zeros(*sizes)}
        return stored | ({"pretrained": load_correction_network()} if pretrained else {})

    @property
    def shipped_sizes(self) -> Sequence[int]:
        """Those of τ."""
        return network_sizes(unwrap(self.bijection.network))

    @property
    def has_shipped(self) -> bool:
        """Whether it has the network of corrections."""
        return self.bijection.pretrained is not None

    def without_shipped(self) -> Self:
        """Without the network, and with a ridge to learn."""
        if not self.has_shipped:
            return self
        d, learned = len(self.scatter_matrix), self.bijection.learned
        ridge = jnp.zeros((d, learned.ridge.shape[1]), learned.ridge.dtype)
        learned = eqx.tree_at(lambda each: (each.ridge, each.ridge_0), learned, (ridge, ridge[:, 0]))
        return eqx.tree_at(lambda flow: (flow.bijection.pretrained, flow.bijection.learned), self, (None, learned))

    @staticmethod
    def memory(n_features: int, n_query: int) -> MemoryNeed:
        """Weights: couplings of two kinds between pairs of entries, and 17 numbers for each of 5 corrections.

        XLA's analysis of the compiled step, from d = 200 to 2000, gives 51 arrays of s × d for every draw: the five
        corrections and their gradients, matrix and factor, the transport and its partial derivatives, and the results
        that backward passes keep. For a query it also gives 11 to 17 arrays of d × d for every condition, which its
        draws share. Slightly fewer are counted, so that every fit that might work is tried.
        """
        d, s = n_features, n_query
        weights = s * d * (2 * d * couplings_per_pair(d, s) + 85)
        return MemoryNeed(weights, per_draw=50 * s * d, per_condition=10 * d**2 if s < d else 0)

    def training_plan(self, ranges: Ranges) -> TrainingPlan:
        """All temperatures at once."""
        if self.has_shipped:
            return TrainingPlan(learning_rate=added_rate(len(self.scatter_matrix), self.n_query), averaging=0.99)
        # Cold posteriors are narrow and need larger corrections, which a higher rate reaches in time.
        return TrainingPlan(learning_rate=1.5e-2 if ranges.many_temperatures else 1e-2)

    def draw_noise(self, key: PRNGKeyArray, num_conditions: int, num_draws: int) -> Float[Array, "D c m"]:
        """Standard normal noise."""
        D = self.n_entries
        return jax.random.normal(key, (D, num_conditions * num_draws)).reshape(D, num_conditions, num_draws)

    @full_precision
    def prepare(self, condition: Float[Array, " 3"]) -> Shipped | None:
        """What the shipped network gives."""
        return shipped_at(unwrap(self.bijection), condition) if self.has_shipped else None

    @full_precision
    def loss(
        self, noise: Float[Array, "D c m"], conditions: Float[Array, "c 3"], prepared: Shipped | None = None
    ) -> tuple[Float[Array, ""], Float[Array, "c m"]]:
        """A surrogate with the path derivative of the loss, and log q − log p̃."""
        return path_derivative_loss(self.bijection, noise, conditions, prepared)

    @full_precision
    def at(self, condition: Float[Array, " 3"], prepared: Shipped | None = None) -> Geometry:
        """The geometry there."""
        return self.bijection.geometry(condition, prepared)

    @full_precision
    def draw(
        self, key: PRNGKeyArray, condition: Float[Array, " 3"], num_draws: int, at: Geometry | None = None
    ) -> tuple[Float[Array, "m D"], Float[Array, " m"], Float[Array, " m"]]:
        """Free entries, log q and log p̃."""
        geometry = self.at(condition) if at is None else at
        entries, log_q, log_p = sample_columns(self.bijection, key, geometry, num_draws)
        return entries.T, log_q, log_p

    @full_precision
    def log_prob(self, entries: Float[Array, "m D"], condition: Float[Array, " 3"]) -> Float[Array, " m"]:
        """Through the inverse, all entries at once."""
        return density_through_inverse(self.bijection, entries, condition)
