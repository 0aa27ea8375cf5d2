"""From free entries of a Cholesky factor to free entries of the precision matrix.

    Ω = LLᵀ,  first s columns:        |dΩ/dL| = 2^s ∏_{j<s} ℓ_j^{d−j}
    Ω₁₁ = L₁₁L₁₁ᵀ,  Ω₂₁ unchanged:    |dΩ/dL| = 2^s ∏_{j<s} ℓ_j^{s−j}

Every map acts on the D = Σ_{j<s}(d−j) entries in the column order of `target.entry_indices`.
Transforms are products only; factorizations appear in the inverses.
"""

from typing import ClassVar, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection
from jax.nn import log_sigmoid, softplus
from jaxtyping import Array, Float, Int

from ggmflow.model.target import cholesky_columns, entry_indices, log_volume, to_columns, to_entries


def diagonal_positions(n_features: int, n_query: int) -> Int[np.ndarray, " s"]:
    """Positions of the s diagonal entries in the vector of free entries."""
    row, col = entry_indices(n_features, n_query)
    # 32 bits: JAX 0.10 cannot use one 64-bit index array under both precisions.
    return np.flatnonzero(row == col).astype(np.int32)


def inverse_softplus(y: Float[Array, "..."]) -> Float[Array, "..."]:
    """The x with softplus(x) = y > 0: log(e^y − 1), without overflow."""
    return y + jnp.log(-jnp.expm1(-y))


class EntriesBijection(AbstractBijection):
    """A bijection of the D free entries of the first s columns.

    Parameters
    ----------
    n_features, n_query
        d and s.
    """

    n_features: int = eqx.field(static=True)
    n_query: int = eqx.field(static=True)
    cond_shape: ClassVar[None] = None

    def __check_init__(self):
        if not 1 <= self.n_query <= self.n_features:
            raise ValueError(f"n_query must lie between 1 and n_features = {self.n_features}; got {self.n_query}.")

    @property
    def shape(self) -> tuple[int, ...]:
        """(D,)."""
        return (self.n_query * (2 * self.n_features - self.n_query + 1) // 2,)


@final
class PositiveDiagonal(EntriesBijection):
    """Softplus on the diagonal entries, identity on the others."""

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """Entries with a positive diagonal, and Σ_j log σ(x_jj)."""
        at = diagonal_positions(self.n_features, self.n_query)
        return x.at[at].set(softplus(x[at])), jnp.sum(log_sigmoid(x[at]))

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """Unconstrained entries, and the log determinant of the inverse."""
        at = diagonal_positions(self.n_features, self.n_query)
        diagonal = inverse_softplus(y[at])
        return y.at[at].set(diagonal), -jnp.sum(log_sigmoid(diagonal))


@final
class CholeskyProduct(EntriesBijection):
    """Entries of the first s columns of L to those of Ω = LLᵀ."""

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """Entries of Ω, and s log 2 + Σ_j (d−j) log ℓ_j."""
        columns = to_columns(x, self.n_features, self.n_query)
        return to_entries(columns @ columns[: self.n_query].T), log_volume(columns)

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """Entries of L, and the log determinant of the inverse; NaN if Ω₁₁ is not positive definite."""
        rows = to_columns(y, self.n_features, self.n_query).T
        columns = cholesky_columns(_symmetrize(rows))
        return to_entries(columns), -log_volume(columns)


@final
class BlockProduct(EntriesBijection):
    """The published map for a query block: entries of (L₁₁, Ω₂₁) to those of (Ω₁₁ = L₁₁L₁₁ᵀ, Ω₂₁).

    At s = d it is `CholeskyProduct`.
    """

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """Entries of Ω, and s log 2 + Σ_j (s−j) log ℓ_j."""
        columns = to_columns(x, self.n_features, self.n_query)
        L_11 = columns[: self.n_query]
        return to_entries(columns.at[: self.n_query].set(L_11 @ L_11.T)), log_volume(L_11)

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """Entries of (L₁₁, Ω₂₁), and the log determinant of the inverse; NaN if Ω₁₁ is not positive definite."""
        columns = to_columns(y, self.n_features, self.n_query)
        L_11 = jnp.linalg.cholesky(_symmetrize(columns[: self.n_query].T))
        return to_entries(columns.at[: self.n_query].set(L_11)), -log_volume(L_11)


def _symmetrize(rows: Float[Array, "s d"]) -> Float[Array, "s d"]:
    """Fill the lower triangle of the leading block from the upper one."""
    s = rows.shape[0]
    upper = rows[:, :s]
    return rows.at[:, :s].set(upper + jnp.triu(upper, 1).T)
