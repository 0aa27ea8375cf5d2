"""The tempered posterior density of the first s Cholesky columns of a precision matrix.

With L the first s columns of the Cholesky factor of Ω (query variables first) and ℓ_j its diagonal,

    T · log p̃(L) = n Σ_{j<s} log ℓ_j − ½ tr(Lᵀ(S + λI)L) − λ Σ_{j<s, i>j} |(LLᵀ)_ij|^q,
    dΩ = ∏_{j<s} 2 ℓ_j^{d−j} dL.

s = d is the full posterior. s < d is the Markov blanket of the first s variables under a prior whose l_q factors act on
their rows only (so it is not the margin of the full posterior). The same formula holds for both.
The normalizer is left out; the density is with respect to Lebesgue measure on the free entries of Ω.
"""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

Scalar = Float[Array, ""] | float  # differs from draw to draw


@lru_cache(maxsize=32)
def entry_indices(n_features: int, n_query: int) -> tuple[Int[np.ndarray, " D"], Int[np.ndarray, " D"]]:
    """Rows and columns of the D = Σ_{j<s}(d−j) free entries, column by column, each from its diagonal down."""
    # 32 bits, because JAX may use the same constant in functions compiled with and without 64-bit types.
    row = np.concatenate([np.arange(j, n_features, dtype=np.int32) for j in range(n_query)])
    col = np.repeat(np.arange(n_query, dtype=np.int32), n_features - np.arange(n_query))
    return row, col


def to_columns(entries: Float[Array, " D"], n_features: int, n_query: int) -> Float[Array, "d s"]:
    """Place a vector of free entries into the first s columns of a lower triangular matrix."""
    row, col = entry_indices(n_features, n_query)
    return jnp.zeros((n_features, n_query), entries.dtype).at[row, col].set(entries)


def to_entries(columns: Float[Array, "d s"]) -> Float[Array, " D"]:
    """Read the free entries of a lower triangular d×s matrix in column order; inverse of `to_columns`."""
    return columns[entry_indices(*columns.shape)]


def precision_from_entries(entries: Float[Array, " D"], n_features: int, n_query: int) -> Float[Array, "s d"]:
    """The first s rows [Ω₁₁ Ω₁₂] from the free entries of Ω: the upper triangle mirrors the lower."""
    columns = to_columns(entries, n_features, n_query)
    return columns.T + jnp.pad(jnp.tril(columns[:n_query], -1), ((0, 0), (0, n_features - n_query)))


def cholesky_columns(rows: Float[Array, "s d"]) -> Float[Array, "d s"]:
    """The first s Cholesky columns of a precision matrix given its first s rows [Ω₁₁ Ω₁₂]."""
    s = rows.shape[0]
    L_11 = jnp.linalg.cholesky(rows[:, :s])
    L_21 = jax.scipy.linalg.solve_triangular(L_11, rows[:, s:], lower=True).T
    return jnp.concatenate([L_11, L_21])


def log_volume(columns: Float[Array, "d s"]) -> Float[Array, ""]:
    """log |dΩ/dL| = Σ_{j<s} (log 2 + (d−j) log ℓ_j); it is part of the measure and is not tempered."""
    d, s = columns.shape
    exponents = jnp.arange(d, d - s, -1, dtype=columns.dtype)
    return s * np.log(2.0).item() + jnp.sum(exponents * jnp.log(jnp.diagonal(columns)))


def absolute_power(x: Float[Array, "..."], q: Float[Array, "..."] | float) -> Float[Array, "..."]:
    """|x|^q with derivative 0 at x = 0, where the true one does not exist (q ≤ 1) or is 0 (q > 1)."""
    # The inner `where` keeps log and its derivative away from 0; otherwise the gradient would be 0·∞ = NaN.
    nonzero = x != 0
    return jnp.where(nonzero, jnp.exp(q * jnp.log(jnp.abs(jnp.where(nonzero, x, 1.0)))), 0.0)


def unnormalized_log_prob(
    columns: Float[Array, "d s"],
    scatter: Float[Array, "d d"],
    n_samples: Scalar,
    lam: Scalar,
    q: Scalar,
    temperature: Scalar = 1.0,
) -> Float[Array, ""]:
    """Tempered log p̃ of one draw, with respect to Lebesgue measure on the free entries of Ω.

    Every argument may differ from draw to draw: batch it with `jax.vmap`. There is no factorization inside,
    so a λ per draw costs nothing.

    Parameters
    ----------
    columns
        The first s Cholesky columns of Ω, lower triangular with a positive diagonal.
    scatter
        S = XᵀX of the centred data, query variables first.
    n_samples
        Number of rows of X; 0 (with S = 0) gives the prior.
    lam, q
        Shrinkage λ > 0 and exponent q > 0 of the penalty λ|ω_ij|^q.
    temperature
        T > 0; the density is raised to the power 1/T.

    Examples
    --------
    >>> L = jnp.eye(2)
    >>> float(unnormalized_log_prob(L, jnp.eye(2), 10, lam=1.0, q=0.5))
    -2.0
    """
    omega = to_entries(columns @ columns[: columns.shape[1]].T)
    row, col = entry_indices(*columns.shape)
    off_diagonal = omega[row > col]
    log_likelihood = n_samples * jnp.sum(jnp.log(jnp.diagonal(columns))) - 0.5 * jnp.sum(columns * (scatter @ columns))
    log_prior = -lam * (0.5 * jnp.sum(columns**2) + jnp.sum(absolute_power(off_diagonal, q)))
    return (log_likelihood + log_prior) / temperature
