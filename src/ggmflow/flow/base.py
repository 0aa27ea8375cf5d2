"""The interface of every architecture, and the registry from which flows are built by name.

    loss = E[log q(Ω | λ, q, T) − log p̃(Ω | λ, q, T)] = −ELBO

Conditions are vectors [log λ, q, log T]. Densities are with respect to Lebesgue measure on the free entries of Ω. To
add an architecture, derive a final class from `MatrixFlow` and register it, as `ggmflow.flow` does for its own.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray
from paramax import NonTrainable, unwrap

from ggmflow.data.scatter import Scatter
from ggmflow.errors.argument import UnknownChoiceError
from ggmflow.model.conditions import Ranges
from ggmflow.model.target import cholesky_columns, precision_from_entries, unnormalized_log_prob

# Accelerators round the factors of a product to ten bits by default; log p̃ needs all bits of float32. A decorator for
# `loss`, `draw` and `log_prob`.
full_precision = jax.default_matmul_precision("highest")


class TrainingPlan(NamedTuple):
    """How an architecture is trained.

    Attributes
    ----------
    learning_rate
        At the start.
    cooling
        (T₀, T_n, stages): all conditions of a stage have the same temperature, which falls from stage to stage. None:
        temperatures are drawn with the other conditions.
    averaging
        Decay of the averaged weights, which are those kept; 0 keeps the weights themselves.
    snapshots
        Temperatures whose flows are kept while it cools. Each needs a stage, so there are at least as many.
    """

    learning_rate: float = 1e-2
    cooling: tuple[float, float, int] | None = None
    averaging: float = 0.98  # a memory of a few compiled chunks
    snapshots: tuple[float, ...] = ()


class MemoryNeed(NamedTuple):
    """Numbers that training stores, as a lower bound.

    Attributes
    ----------
    weights
        Trained numbers.
    per_draw, per_condition
        Intermediate results of one step for every draw, and in addition for every condition.
    """

    weights: int
    per_draw: int = 0
    per_condition: int = 0


class MatrixFlow(eqx.Module):
    """A conditional flow over precision matrices, together with the data that it was built for.

    Subclasses are final. Their fields define the order of the arrays in model files and checkpoints.

    Attributes
    ----------
    architecture
        Name in the registry, in model files and in reports.
    scatter, n_samples
        S = XᵀX, query variables first, and n; wrapped with `fixed`, so that they are not trained.
    n_query
        s.
    """

    architecture: eqx.AbstractClassVar[str]
    scatter: eqx.AbstractVar[Float[Array, "d d"]]
    n_samples: eqx.AbstractVar[Float[Array, ""]]
    n_query: eqx.AbstractVar[int]

    @classmethod
    @abstractmethod
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
        """An untrained flow; see `build_flow`."""

    @staticmethod
    @abstractmethod
    def shipped_options(*, pretrained: bool, sizes: Sequence[int] | None) -> dict[str, Any]:
        """Options of `build` that hold weights shipped with the package; empty if there are none.

        Parameters
        ----------
        pretrained
            Whether corrections that were trained once for all data sets are among them.
        sizes
            `shipped_sizes` of a stored flow, which another version of the package may have built with weights of other
            shapes: only the shapes of the result count then. None: the weights that are shipped now.
        """

    @property
    @abstractmethod
    def shipped_sizes(self) -> Sequence[int]:
        """Numbers from which the shapes of the shipped weights follow, for files."""

    @property
    @abstractmethod
    def has_shipped(self) -> bool:
        """Whether weights that were trained once for all data sets are in use."""

    @abstractmethod
    def without_shipped(self) -> Self:
        """Of an untrained flow: what it would be if nothing were shipped."""

    @staticmethod
    @abstractmethod
    def memory(n_features: int, n_query: int) -> MemoryNeed:
        """Numbers that training a flow of d variables and s columns stores, before it is built."""

    @abstractmethod
    def training_plan(self, ranges: Ranges) -> TrainingPlan:
        """How to train a flow for given ranges of conditions."""

    @abstractmethod
    def draw_noise(self, key: PRNGKeyArray, num_conditions: int, num_draws: int) -> Float[Array, "D c m"]:
        """The noise of m draws under each of c conditions."""

    @abstractmethod
    def prepare(self, condition: Float[Array, " 3"]) -> Any:
        """What shipped weights give at one condition, and training does not change: arrays, or None.

        `flow.preparing` has the program that computes it, for training and for draws.
        """

    @abstractmethod
    def loss(
        self, noise: Float[Array, "D c m"], conditions: Float[Array, "c 3"], prepared: Any = None
    ) -> tuple[Float[Array, ""], Float[Array, "c m"]]:
        """A number that has the gradient of the loss, and log q − log p̃ of m draws under each of c conditions.

        `prepared` is what `prepare` gives at these conditions, with c as first axis; default: it is computed.
        """

    @abstractmethod
    def at(self, condition: Float[Array, " 3"], prepared: Any = None) -> Any:
        """What all draws under one condition share: arrays, or None; `prepared` as in `loss`."""

    @abstractmethod
    def draw(
        self, key: PRNGKeyArray, condition: Float[Array, " 3"], num_draws: int, at: Any = None
    ) -> tuple[Float[Array, "m D"], Float[Array, " m"], Float[Array, " m"]]:
        """Draws under one condition: free entries of Ω, their log density, their tempered log p̃.

        `at` is what the method of that name gives; default: it is computed.
        """

    @abstractmethod
    def log_prob(self, entries: Float[Array, "m D"], condition: Float[Array, " 3"]) -> Float[Array, " m"]:
        """Normalized log density of given free entries of positive definite matrices."""

    @property
    def scatter_matrix(self) -> Float[Array, "d d"]:
        """S, query variables first, unwrapped."""
        return unwrap(self.scatter)

    @property
    def n_entries(self) -> int:
        """D, the number of free entries."""
        return num_entries(len(self.scatter_matrix), self.n_query)

    def log_target(self, entries: Float[Array, " D"], condition: Float[Array, " 3"]) -> Float[Array, ""]:
        """Tempered log p̃ of the free entries of one matrix."""
        scatter, n_samples = unwrap((self.scatter, self.n_samples))
        columns = cholesky_columns(precision_from_entries(entries, len(scatter), self.n_query))
        lam, q, temperature = jnp.exp(condition[0]), condition[1], jnp.exp(condition[2])
        return unnormalized_log_prob(columns, scatter, n_samples, lam, q, temperature)


def num_entries(n_features: int, n_query: int) -> int:
    """D = Σ_{j<s} (d − j), the number of free entries."""
    return n_query * n_features - n_query * (n_query - 1) // 2


def fixed(value: ArrayLike) -> Any:
    """An array in float32 that training does not change; `paramax.unwrap` gives it back."""
    return NonTrainable(jnp.asarray(value, jnp.float32))


def widen(tree: Any) -> Any:
    """Arrays in float64 if that is enabled, for log p̃, which is a difference of numbers of size nd/T."""
    wide = jnp.result_type(float)
    return jax.tree.map(lambda leaf: leaf.astype(wide) if eqx.is_inexact_array(leaf) else leaf, tree)


# ------------------------------------------------------------------------------------------------------------- registry
ARCHITECTURES: dict[str, type[MatrixFlow]] = {}


def register(flow: type[MatrixFlow]) -> None:
    """Make an architecture available under its name."""
    ARCHITECTURES[flow.architecture] = flow


def find_architecture(name: object) -> type[MatrixFlow]:
    """The registered class of a name; raises UnknownChoiceError if there is none."""
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise UnknownChoiceError("architecture", name, tuple(ARCHITECTURES))
    return ARCHITECTURES[name]


def build_flow(
    key: PRNGKeyArray,
    architecture: str,
    scatter: Float[ArrayLike, "d d"],
    n_samples: float,
    n_query: int,
    low: Float[ArrayLike, " 3"],
    high: Float[ArrayLike, " 3"],
    **options: Any,
) -> MatrixFlow:
    """An untrained flow.

    Parameters
    ----------
    key
        For the initial weights.
    architecture
        A registered name: "structured" or "paper".
    scatter, n_samples, n_query
        Data, query variables first; n_query = d for the whole matrix.
    low, high
        Range of [log λ, q, log T].
    **options
        For `StructuredColumns` or `paper_bijection`.
    """
    low, high = np.asarray(low, np.float32), np.asarray(high, np.float32)
    build = find_architecture(architecture).build
    return build(key, np.asarray(scatter, np.float32), n_samples, n_query, low, high, **options)


def query_first(query: Int[np.ndarray, " s"], n_features: int) -> Int[np.ndarray, " d"]:
    """Columns of the data in a flow's order: query variables first."""
    return np.concatenate([query, np.setdiff1d(np.arange(n_features), query)])


def untrained_flow(
    key: PRNGKeyArray,
    architecture: str,
    scatter: Scatter,
    query: Int[np.ndarray, " s"],
    ranges: Ranges,
    *,
    pretrained: bool = False,
    sizes: Sequence[int] | None = None,
) -> MatrixFlow:
    """The flow with which training on given data starts, in single precision; the rest as in `shipped_options`."""
    ordered = scatter.reorder(query_first(query, scatter.n_features))
    options = find_architecture(architecture).shipped_options(pretrained=pretrained, sizes=sizes)
    with jax.enable_x64(False):
        return build_flow(key, architecture, ordered.matrix, ordered.n, len(query), ranges.low, ranges.high, **options)
