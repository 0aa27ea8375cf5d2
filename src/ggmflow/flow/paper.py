"""The published architecture: autoregressive sum-of-sigmoids layers, softplus on the diagonal, Cholesky product.

    N(0, I) noise in R^D → layers, order of entries reversed after each → μ + σx → softplus on ℓ_j → Ω = LLᵀ

The condition [log λ, q, log T] is centred, scaled and embedded once; the embedding is an input of every layer. As in
the published code, T is not an input: the temperature decreases during training, and the flow is stored at two
temperatures. The paper describes 4 layers; the published code has 10 layers, each with 5 residual blocks of width 256
and 30 sigmoids.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection, Affine, Chain, EmbedCondition, Flip, Scan
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray
from paramax import NonTrainable, unwrap

from ggmflow.errors.argument import ArgumentError
from ggmflow.flow.autoregressive import AutoregressiveSumOfSigmoids
from ggmflow.flow.base import MatrixFlow, MemoryNeed, TrainingPlan, fixed, full_precision, num_entries, widen
from ggmflow.flow.cholesky import BlockProduct, CholeskyProduct, PositiveDiagonal, diagonal_positions, inverse_softplus
from ggmflow.flow.pushforward import density_through_inverse, push_forward
from ggmflow.model.conditions import Ranges

_LEARNING_RATE = 1e-2  # better than 1e-3 and 3e-3 after 400 steps on the toy problem
_HOTTEST, _STAGES = 5.0, 100  # first temperature and number of temperatures, as in the published code


@final
class PaperFlow(MatrixFlow):
    """The published architecture, trained as published.

    Attributes
    ----------
    bijection
        It maps noise (D,) to the free entries of Ω, given a condition (3,).
    scatter, n_samples, n_query
        As in `MatrixFlow`.
    """

    bijection: AbstractBijection
    scatter: Float[Array, "d d"]
    n_samples: Float[Array, ""]
    n_query: int = eqx.field(static=True)
    architecture: ClassVar[str] = "paper"

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
        """Return an untrained flow whose draws are near the precision matrix of independent variables.

        Parameters
        ----------
        key, scatter, n_samples, n_query, low, high
            As in `build_flow`.
        **options
            Arguments of `paper_bijection`.
        """
        start = (n_samples + len(scatter) + 1) / (np.diagonal(scatter) + np.exp((low[0] + high[0]) / 2))
        scale = np.where(high > low, (high - low) / 2, 1.0)
        options = {"initial_diagonal": float(np.mean(start)), **options}
        bijection = paper_bijection(
            key, len(scatter), n_query, condition_center=(low + high) / 2, condition_scale=scale, **options
        )
        return cls(bijection=bijection, scatter=fixed(scatter), n_samples=fixed(n_samples), n_query=n_query)

    @staticmethod
    def shipped_options(*, pretrained: bool, sizes: Sequence[int] | None) -> dict[str, Any]:
        """None: the published flow is trained on each data set."""
        return {}

    @property
    def shipped_sizes(self) -> Sequence[int]:
        """None."""
        return ()

    @property
    def has_shipped(self) -> bool:
        """Always false."""
        return False

    def without_shipped(self) -> Self:
        """Itself: nothing is shipped."""
        return self

    @staticmethod
    def memory(n_features: int, n_query: int) -> MemoryNeed:
        """Weights of the first layer (D × 128) and the last layer (128 × 24 D) of 4 networks."""
        return MemoryNeed(4 * 128 * 25 * num_entries(n_features, n_query))

    def training_plan(self, ranges: Ranges) -> TrainingPlan:
        """Lower the temperature as the published code does, and store the flow at T = 1 and at the lowest T.

        Ranges below T = 1 have their highest temperature instead of 1. A single temperature is not lowered.
        """
        if not ranges.many_temperatures:
            return TrainingPlan(_LEARNING_RATE)
        coldest = ranges.temperature[0]
        return TrainingPlan(_LEARNING_RATE, (_HOTTEST, coldest, _STAGES), 0.0, (ranges.warmest, coldest))

    def draw_noise(self, key: PRNGKeyArray, num_conditions: int, num_draws: int) -> Float[Array, "D c m"]:
        """Draw standard normal noise, with one key for each condition."""
        keys = jax.random.split(key, num_conditions)
        return jnp.moveaxis(jax.vmap(lambda key: jax.random.normal(key, (num_draws, self.n_entries)))(keys), 2, 0)

    def prepare(self, condition: Float[Array, " 3"]) -> None:
        """Nothing: all that the loss needs is trained."""
        return None

    @full_precision
    def loss(
        self, noise: Float[Array, "D c m"], conditions: Float[Array, "c 3"], prepared: None = None
    ) -> tuple[Float[Array, ""], Float[Array, "c m"]]:
        """Return the mean of log q − log p̃ over all draws, and its value for each draw."""
        _, log_q, log_p = jax.vmap(self._push)(jnp.moveaxis(noise, 0, 2), conditions)
        return jnp.mean(log_q - log_p), jax.lax.stop_gradient(log_q - log_p)

    def at(self, condition: Float[Array, " 3"], prepared: None = None) -> None:
        """Nothing."""
        return None

    @full_precision
    def draw(
        self, key: PRNGKeyArray, condition: Float[Array, " 3"], num_draws: int, at: None = None
    ) -> tuple[Float[Array, "m D"], Float[Array, " m"], Float[Array, " m"]]:
        """Draw free entries, and return them with log q and log p̃."""
        z = jax.random.normal(key, (num_draws, self.n_entries), self.scatter_matrix.dtype)
        return self._push(z, condition)

    @full_precision
    def log_prob(self, entries: Float[Array, "m D"], condition: Float[Array, " 3"]) -> Float[Array, " m"]:
        """Compute log q by the inverse, which solves for one entry after the other in every layer."""
        return density_through_inverse(self.bijection, entries, condition)

    def _push(
        self, z: Float[Array, "m D"], condition: Float[Array, " 3"]
    ) -> tuple[Float[Array, "m D"], Float[Array, " m"], Float[Array, " m"]]:
        entries, log_q = push_forward(self.bijection, z, condition)
        flow, wide, condition = widen((self, entries, condition))
        return entries, log_q, jax.vmap(lambda y: flow.log_target(y, condition))(wide)


class ConditionEmbedding(eqx.Module):
    """A small network whose input is the centred and scaled condition.

    Parameters
    ----------
    key
        For the initial weights.
    center, scale
        Middle and half-range of the condition, shape (3,).
    size
        Length of the embedding.
    use_temperature
        Whether log T is an input.
    """

    center: NonTrainable[Float[Array, " c"]]
    scale: NonTrainable[Float[Array, " c"]]
    network: eqx.nn.MLP

    def __init__(
        self,
        key: PRNGKeyArray,
        center: Float[ArrayLike, " 3"] | Sequence[float],
        scale: Float[ArrayLike, " 3"] | Sequence[float],
        *,
        size: int = 32,
        use_temperature: bool = False,
    ):
        num_used = 3 if use_temperature else 2
        self.center = NonTrainable(jnp.asarray(center, float)[:num_used])
        self.scale = NonTrainable(jnp.asarray(scale, float)[:num_used])
        self.network = eqx.nn.MLP(
            num_used, size, size, depth=2, activation=jnp.tanh, final_activation=jnp.tanh, key=key
        )

    def __call__(self, condition: Float[Array, " 3"]) -> Float[Array, " size"]:
        """Return the embedding of [log λ, q, log T]."""
        center, scale = unwrap((self.center, self.scale))
        return self.network((condition[: center.shape[0]] - center) / scale)


def paper_bijection(
    key: PRNGKeyArray,
    n_features: int,
    n_query: int,
    *,
    num_layers: int = 4,
    num_blocks: int = 2,
    width: int = 128,
    num_sigmoids: int = 8,
    condition_center: Float[ArrayLike, " 3"] | Sequence[float] = (0.0, 0.0, 0.0),
    condition_scale: Float[ArrayLike, " 3"] | Sequence[float] = (1.0, 1.0, 1.0),
    use_temperature: bool = False,
    product: Literal["block", "cholesky"] = "block",
    initial_diagonal: Float[ArrayLike, " s"] | Sequence[float] | float = 1.0,
    initial_scale: float = 0.1,
) -> AbstractBijection:
    """Return the map from noise to the D = Σ_{j<s}(d−j) free entries of Ω, given [log λ, q, log T].

    Parameters
    ----------
    key
        For the initial weights.
    n_features, n_query
        d and s; s = d is the full matrix.
    num_layers, num_blocks, width, num_sigmoids
        Size of the network.
    condition_center, condition_scale
        Middle and half-range of [log λ, q, log T] in training.
    use_temperature
        Whether log T is an input of the layers. In the published code it is not, and the flow is trained at one
        temperature after the other.
    product
        Map for s < d. "block", as published: Ω₁₁ = L₁₁L₁₁ᵀ, and the entries of Ω₂₁ are unchanged. "cholesky":
        Ω₂₁ = L₂₁L₁₁ᵀ.
    initial_diagonal
        Diagonal of Ω₁₁ before training: one number, or s numbers.
    initial_scale
        Standard deviation of the entries of L, before the softplus, before training.

    Returns
    -------
    A FlowJAX bijection of shape (D,) and condition shape (3,). Its transform uses no factorization. Its inverse solves
    for one entry after the other; it is meant for checks, not for training.
    """
    embedding_size = 32
    key_embedding, key_layers = jax.random.split(key)
    products = {"block": BlockProduct, "cholesky": CholeskyProduct}
    if product not in products:
        raise ArgumentError("product", product, tuple(products))
    sizes: Any = (n_features, n_query)  # `Any`: type checkers take FlowJAX's abstract attributes for parameters too
    positive, multiply = PositiveDiagonal(*sizes), products[product](*sizes)
    (size,) = positive.shape

    @eqx.filter_jit  # without compilation, drawing the weights takes seconds
    @eqx.filter_vmap
    def make_layers(key):
        autoregressive = AutoregressiveSumOfSigmoids(
            key, size, embedding_size, num_blocks=num_blocks, width=width, num_sigmoids=num_sigmoids
        )
        return Chain([autoregressive, Flip((size,))])

    # A scan compiles one layer instead of num_layers, in a fraction of the time.
    layers = Scan(make_layers(jax.random.split(key_layers, num_layers)))
    diagonal = jnp.broadcast_to(jnp.sqrt(jnp.asarray(initial_diagonal, float)), (n_query,))
    at = diagonal_positions(n_features, n_query)
    location = jnp.zeros(size).at[at].set(inverse_softplus(diagonal))
    chain = Chain([layers, Affine(location, jnp.full(size, initial_scale)), positive, multiply])
    embedding = ConditionEmbedding(
        key_embedding, condition_center, condition_scale, size=embedding_size, use_temperature=use_temperature
    )
    return EmbedCondition(chain, embedding, raw_cond_shape=(3,))
