"""The published architecture: autoregressive sum-of-sigmoids layers, softplus on the diagonal, Cholesky product.

    N(0, I) noise in R^D → layers, order of entries reversed after each → μ + σx → softplus on ℓ_j → Ω = LLᵀ

The condition [log λ, q, log T] is centred and scaled, embedded once, and seen by every layer. As published, T is not
looked at. The text has 4 layers; the published code 10 layers of 5 residual blocks of 256, with 30 sigmoids.
"""

from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.bijections import AbstractBijection, Affine, Chain, EmbedCondition, Flip, Scan
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray
from paramax import NonTrainable, unwrap

from ggmflow.flow.autoregressive import AutoregressiveSumOfSigmoids
from ggmflow.flow.cholesky import BlockProduct, CholeskyProduct, PositiveDiagonal, diagonal_positions, inverse_softplus


class ConditionEmbedding(eqx.Module):
    """A small network on the centred and scaled condition.

    Parameters
    ----------
    key
        For the initial weights.
    center, scale
        The condition's middle and half-range, shape (3,).
    size
        Length of the embedding.
    use_temperature
        Whether log T is looked at.
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
        """The embedding of [log λ, q, log T]."""
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
    """Noise to the D = Σ_{j<s}(d−j) free entries of Ω, given [log λ, q, log T].

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
        Whether the layers see log T; the published ones do not, and are trained at one temperature after the other.
    product
        For s < d: "block" is the published map, Ω₁₁ = L₁₁L₁₁ᵀ and Ω₂₁ as it is; "cholesky" has Ω₂₁ = L₂₁L₁₁ᵀ.
    initial_diagonal
        Diagonal of Ω₁₁ at the start, one number or s of them.
    initial_scale
        Standard deviation of the entries of L, before the softplus, at the start.

    Returns
    -------
    A FlowJAX bijection of shape (D,) and condition shape (3,). Its transform uses no factorization; its inverse finds
    entry by entry and is meant for checks, not for training.
    """
    embedding_size = 32
    key_embedding, key_layers = jax.random.split(key)
    products = {"block": BlockProduct, "cholesky": CholeskyProduct}
    if product not in products:
        raise ValueError(f'product must be "block" or "cholesky"; got {product!r}.')
    positive, multiply = PositiveDiagonal(n_features, n_query), products[product](n_features, n_query)
    (size,) = positive.shape

    @eqx.filter_jit  # op by op, drawing the weights would take seconds
    @eqx.filter_vmap
    def make_layers(key):
        autoregressive = AutoregressiveSumOfSigmoids(
            key, size, embedding_size, num_blocks=num_blocks, width=width, num_sigmoids=num_sigmoids
        )
        return Chain([autoregressive, Flip((size,))])

    # One scanned layer compiles in a fraction of the time of num_layers unrolled ones.
    layers = Scan(make_layers(jax.random.split(key_layers, num_layers)))
    diagonal = jnp.broadcast_to(jnp.sqrt(jnp.asarray(initial_diagonal, float)), (n_query,))
    at = diagonal_positions(n_features, n_query)
    location = jnp.zeros(size).at[at].set(inverse_softplus(diagonal))
    chain = Chain([layers, Affine(location, jnp.full(size, initial_scale)), positive, multiply])
    embedding = ConditionEmbedding(
        key_embedding, condition_center, condition_scale, size=embedding_size, use_temperature=use_temperature
    )
    return EmbedCondition(chain, embedding, raw_cond_shape=(3,))
