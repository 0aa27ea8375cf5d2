"""The geometry of the tempered posterior at one condition, and the weights that correct it.

    Ψ = S + λI + diag(ρ) = UUᵀ,   A = U⁻ᵀ,   AAᵀ = Ψ⁻¹                     n, S, λ divided by T
    ρ_i = (S_ii + λ)(1/v_i − 1) e^{correction},   v_i = variance of exp(−½x² − κ|x|^q)
    σ_i⁻² = A_ii⁻² − ρ_i,   k_j = n + 2 + (d − 1 − j)(1 − pinned)            degrees of freedom of ℓ_j

Corrections are linear in an embedding of the condition, couplings between entries linear in its basis.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray
from paramax import Parameterize

from ggmflow.flow.factor import factorize
from ggmflow.flow.structured_network import (
    CorrectionNetwork,
    Couplings,
    Factors,
    Tempered,
    couplings,
    entry_corrections,
    log_ridge,
)
from ggmflow.flow.transport import Network

_FOLLOWING = 4  # weights of a coupling that follows the condition
NUM_CORRECTIONS = 5  # log σ, δ, log κ; log scale and shift of the noise
_MAX_EXCESS = 100.0  # a larger ridge changes nothing but loses precision in float32
# With a shipped network: the first learning rate, and the scale of the basis of couplings, which makes Adam's steps in
# them larger. Couplings are what the network lacks: 800 steps raise the ELBO of the toy problem by 0.15 nats with
# couplings alone, by 0.02 with corrections alone. In 100 steps twice the rate ended 0.02 nats lower.
_ADDED_RATE, _ADDED_SCALE = 5e-4, 20.0
_ADDED_RATE_ALONE = 3e-3  # for corrections without couplings that follow the condition

# The last axis of every array below is the draws; its length is 1 where all draws share one condition.
PerDraw = Float[Array, "... b"]


class Learned(eqx.Module):
    """The trained weights; all corrections start at zero.

    E is the length of the embedding of a condition. R is the length of its basis: 4 (a one and the scaled condition),
    1 (the one alone) or 0. With a range of temperatures both are doubled, for warm and for cold conditions. r is d, or
    0 where a shipped network gives the ridge.
    """

    embed_1: Float[Array, "hidden 3"]
    bias_1: Float[Array, " hidden"]
    embed_2: Float[Array, "E-3 hidden"]
    bias_2: Float[Array, " E-3"]
    correction: Float[Array, "5 d s E"]
    correction_0: Float[Array, "5 d s"]
    ridge: Float[Array, "r E"]
    ridge_0: Float[Array, " r"]
    # Couplings of row i ≥ j of column j to the fill-in of row k > j, and to the drawn entry j < k < i.
    from_fill: Float[Array, "s d R d"]
    from_above: Float[Array, "s d R d"]


class Shipped(NamedTuple):
    """What the shipped network gives at one condition; training on data differentiates nothing of it.

    `factors` follow from it; they are None for a blanket, where they would need more memory than all the rest.
    """

    pinned: Float[Array, ""]
    ridge: Float[Array, " d"]
    correction: Float[Array, "5 d s"]
    coupling: Float[Array, "3 d s"]
    factors: Factors | None


class Geometry(NamedTuple):
    """Data, condition and corrections as the maps of the columns use them; n, S and λ are tempered."""

    lam: PerDraw
    q: PerDraw
    n: PerDraw
    scatter: PerDraw  # (d, d, b)
    A: PerDraw  # (d, d, b), lower triangular, AAᵀ = Ψ⁻¹
    U: PerDraw  # (d, d, b), upper triangular, U = A⁻ᵀ
    scale: PerDraw  # (d, b), σ_i: A_ii without the ridge on row i itself
    pinned: PerDraw  # (b,), share of entries at the cusp
    correction: PerDraw  # (5, d, s, b)
    basis: PerDraw  # (R, b)
    couplings: Couplings | None  # of the shipped network; None without it


class Columns(Protocol):
    """Data and weights of `StructuredColumns`, for the modules that it is made of."""

    learned: Learned
    scatter: Float[Array, "d d"]
    n_samples: Float[Array, ""]
    center: Float[Array, " 3"]
    half_range: Float[Array, " 3"]
    network: Network
    pretrained: CorrectionNetwork | None
    n_query: int


def initial_weights(
    key: PRNGKeyArray, d: int, s: int, *, embedding: int, hidden: int, many_temperatures: bool, learns_ridge: bool
) -> Learned:
    """Weights before training, with couplings masked to the entries drawn earlier.

    Parameters
    ----------
    key
        For the embedding of conditions.
    d, s
        Numbers of variables and of columns.
    embedding, hidden
        Length of the embedding at one temperature, and of the hidden layer before it.
    many_temperatures
        Whether there is a range of temperatures.
    learns_ridge
        Whether the ridge is learned; otherwise the shipped network gives it.
    """
    key_1, key_2 = jax.random.split(key)
    num_ridges = d if learns_ridge else 0
    copies = 2 if many_temperatures else 1
    E, R = copies * embedding, copies * couplings_per_pair(d, s)
    return Learned(
        embed_1=jax.random.normal(key_1, (hidden, 3)) / 2**0.5,
        bias_1=jnp.zeros(hidden),
        embed_2=jax.random.normal(key_2, (embedding - 3, hidden)) / hidden**0.5,
        bias_2=jnp.zeros(embedding - 3),
        correction=jnp.zeros((NUM_CORRECTIONS, d, s, E)),
        correction_0=jnp.zeros((NUM_CORRECTIONS, d, s)),
        ridge=jnp.zeros((num_ridges, E)),
        ridge_0=jnp.zeros(num_ridges),
        from_fill=_masked(_mask_fill, jnp.zeros((s, d, R, d))),
        from_above=_masked(_mask_above, jnp.zeros((s, d, R, d))),
    )


def couplings_per_pair(d: int, s: int) -> int:
    """Number of weights that couple one entry of Ω to another at one temperature: 4, 1 or 0.

    Four let a coupling follow the condition. With many entries one weight serves all conditions. With very many
    couplings are omitted: they would need more memory than all other arrays, and in a blanket they add more noise than
    they remove.
    """
    return _FOLLOWING if s * d * d <= 40_000 else 1 if 2 * s >= d and d <= 160 else 0


def added_rate(d: int, s: int) -> float:
    """First learning rate of what is added to a shipped network."""
    return _ADDED_RATE if couplings_per_pair(d, s) == _FOLLOWING else _ADDED_RATE_ALONE


def geometry_at(columns: Columns, condition: Float[Array, " 3"], shipped: Shipped | None = None) -> Geometry:
    """The geometry at one condition, without the axis of draws.

    Parameters
    ----------
    columns
        An unwrapped `StructuredColumns`.
    condition
        [log λ, q, log T].
    shipped
        What `shipped_at` gives there, if it is known.
    """
    learned = columns.learned
    embedding, basis = _embed(columns, condition)
    correction = learned.correction @ embedding + learned.correction_0
    lam, q, n, S = _tempered(columns, condition)
    if columns.pretrained is None:
        table, degrees = _table(columns, condition)
        pinned, coupled = table.pinned, None
        factors = _factors(S, lam, _ridge(table, learned.ridge @ embedding + learned.ridge_0), degrees)
    else:
        shipped = shipped_at(columns, condition) if shipped is None else shipped
        pinned, factors = shipped.pinned, shipped.factors
        if factors is None:
            degrees = _degrees(n, pinned, len(S), jnp.arange(columns.n_query, dtype=S.dtype))
            factors = _factors(S, lam, shipped.ridge, degrees)
        correction, coupled = correction + shipped.correction, couplings(factors, shipped.coupling)
    return Geometry(lam, q, n, S, factors.A, factors.U, factors.scale, pinned, correction, basis, coupled)


def shipped_at(columns: Columns, condition: Float[Array, " 3"]) -> Shipped:
    """What the shipped network gives at one condition; raise ValueError without one."""
    if columns.pretrained is None:
        raise ValueError("this flow has no shipped network")
    table, degrees = _table(columns, condition)
    ridge = _ridge(table, log_ridge(columns.pretrained, table, columns.n_query))
    factors = _factors(table.scatter, table.lam, ridge, degrees)
    corrections = entry_corrections(columns.pretrained, table, factors)
    return Shipped(table.pinned, ridge, *corrections, factors if columns.n_query == len(table.scatter) else None)


def has_many_temperatures(columns: Columns) -> bool:
    """Whether the flow is for a range of temperatures."""
    learned = columns.learned
    return learned.ridge.shape[1] > len(learned.bias_2) + 3


def _tempered(columns: Columns, condition: Float[Array, " 3"]) -> tuple[Array, Array, Array, Array]:
    """λ, q, n and S, divided by T."""
    T = jnp.exp(condition[2])
    return jnp.exp(condition[0]) / T, condition[1], columns.n_samples / T, columns.scatter / T


def _table(columns: Columns, condition: Float[Array, " 3"]) -> tuple[Tempered, Float[Array, " s"]]:
    """Data and condition divided by T, and the degrees of freedom of every ℓ_j."""
    d, (lam, q, n, S) = len(columns.scatter), _tempered(columns, condition)
    # ρ starts where it matches the variance of exp(−½x² − κx^q), so that Ψ is right for a typical shrunken entry.
    diagonal = jnp.diagonal(S) + lam
    variance, pinned = shrunken(diagonal, lam, q, n + 2, d)
    excess = jnp.clip(1 / variance - 1, 1e-3, _MAX_EXCESS)
    degrees = _degrees(n, pinned, d, jnp.arange(columns.n_query, dtype=S.dtype))
    return Tempered(lam, q, n, S, diagonal, excess, pinned), degrees


def _ridge(table: Tempered, log_rho: Float[Array, " d"]) -> Float[Array, " d"]:
    return table.diagonal * table.excess * jnp.exp(log_rho)


def _factors(S: Float[Array, "d d"], lam: Array, ridge: Float[Array, " d"], degrees: Float[Array, " s"]) -> Factors:
    U, A = factorize(S + jnp.diag(lam + ridge))
    # U_ii² − ρ_i, without the difference of large numbers
    diagonal = jnp.diagonal(S) + lam
    own = jnp.maximum(diagonal - jnp.sum(jnp.triu(U, 1) ** 2, axis=1), 1e-5 * diagonal)
    return Factors(U, A, jax.lax.rsqrt(own), ridge, degrees)


def _embed(columns: Columns, condition: Float[Array, " 3"]) -> tuple[Float[Array, " E"], Float[Array, " R"]]:
    """The embedding of a condition, and the basis of the couplings."""
    learned = columns.learned
    scaled = (condition - columns.center) / columns.half_range
    hidden = jnp.tanh(learned.embed_1 @ scaled + learned.bias_1)
    embedding = jnp.concatenate([jnp.tanh(learned.embed_2 @ hidden + learned.bias_2), scaled])
    basis = jnp.concatenate([jnp.ones(1, scaled.dtype), scaled])
    basis = basis if columns.pretrained is None else _ADDED_SCALE * basis
    many_temperatures = has_many_temperatures(columns)
    basis = basis[: learned.from_fill.shape[2] // (2 if many_temperatures else 1)]
    if many_temperatures:
        # Separate weights for warm and cold, so that the many cold conditions do not change the corrections at T = 1.
        warm = jnp.exp(condition[2] - columns.center[2] - columns.half_range[2])
        embedding, basis = (jnp.concatenate([warm * part, (1 - warm) * part]) for part in (embedding, basis))
    return embedding, basis


def shrunken(
    diagonal: Float[Array, " d"], lam: Float[Array, ""], q: Float[Array, ""], n: Float[Array, ""], d: int
) -> tuple[Float[Array, " d"], Float[Array, ""]]:
    """Variance of a typical entry under the penalty, exp(−½x² − κ|x|^q), and the pinned share of entries.

    The share is −d log Z/d log ℓ = κq E|x|^q: 0 without a penalty, 1 if the width of the entry is that of the spike.
    Every pinned entry takes a degree of freedom from ℓ_j, which sets κ, so both are found together, by iteration.
    """
    t = jnp.linspace(-30.0, 1.6, 96, dtype=diagonal.dtype)

    def moments(pinned):
        ell = jnp.sqrt((n + 0.5 * (d - 1) * (1 - pinned)) * jnp.mean(1 / diagonal))
        log_kappa = jnp.log(lam) + q * (jnp.log(ell) - 0.5 * jnp.log(diagonal))
        penalty = jnp.exp(log_kappa[:, None] + q * t)
        weight = jax.nn.softmax(t - 0.5 * jnp.exp(2 * t) - penalty, axis=-1)
        return weight @ jnp.exp(2 * t), jnp.clip(q * jnp.mean(jnp.sum(weight * penalty, axis=-1)), 0.0, 1.0)

    _, pinned = moments(jnp.zeros_like(lam))
    _, pinned = moments(pinned)
    return moments(pinned)


def chi_degrees(geometry: Geometry, d: int, j: ArrayLike) -> PerDraw:
    """k_j, the degrees of freedom of ℓ_j: ν − j, less one for every entry below it that is pinned to its cusp."""
    return _degrees(geometry.n, geometry.pinned, d, j)


def _degrees(n: Array, pinned: Array, d: int, j: ArrayLike) -> Array:
    return n + 2 + (d - 1 - j) * (1 - pinned)


def _masked(mask: Callable[[Array], Array], weights: Array) -> Any:
    return Parameterize(mask, weights)


def _mask_fill(weights: Float[Array, "s d R d"]) -> Float[Array, "s d R d"]:
    if not weights.size:  # the mask alone would be large
        return weights
    j, i, k = _positions(weights)
    return jnp.where((i >= j) & (k > j), weights, 0.0)


def _mask_above(weights: Float[Array, "s d R d"]) -> Float[Array, "s d R d"]:
    if not weights.size:
        return weights
    j, i, k = _positions(weights)
    return jnp.where((i > k) & (k > j), weights, 0.0)


def _positions(weights: Float[Array, "s d R d"]):
    s, d = weights.shape[:2]
    return np.arange(s)[:, None, None, None], np.arange(d)[:, None, None], np.arange(d)
