"""One interface for both architectures: build a conditional flow, draw from it, evaluate it, get its training loss.

    loss = E[log q(Ω | λ, q, T) − log p̃(Ω | λ, q, T)] = −ELBO

Conditions are vectors [log λ, q, log T]. Densities are with respect to Lebesgue measure on the free entries of Ω.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray
from paramax import NonTrainable, unwrap

from ggmflow.data.scatter import Scatter
from ggmflow.flow.paper import paper_bijection
from ggmflow.flow.structured import StructuredColumns, widen
from ggmflow.flow.structured_gradient import path_derivative_loss, sample_columns
from ggmflow.model.conditions import Ranges
from ggmflow.model.target import cholesky_columns, precision_from_entries, unnormalized_log_prob

Architecture = Literal["structured", "paper"]

# Accelerators round the factors of a product to ten bits unless told otherwise; log p̃ needs all of float32.
_full_precision = jax.default_matmul_precision("highest")


class MatrixFlow(eqx.Module):
    """A conditional flow over precision matrices together with the data it was built for.

    Attributes
    ----------
    bijection
        Noise (D,) to the free entries of Ω, given a condition (3,).
    scatter, n_samples
        S = XᵀX, query variables first, and n.
    n_query
        s.
    """

    bijection: AbstractBijection
    scatter: Float[Array, "d d"]
    n_samples: Float[Array, ""]
    n_query: int = eqx.field(static=True)

    @property
    def architecture(self) -> Architecture:
        """Which kind of flow it is."""
        return "structured" if isinstance(self.bijection, StructuredColumns) else "paper"

    @property
    def scatter_matrix(self) -> Float[Array, "d d"]:
        """S, query variables first, without its wrapping."""
        return unwrap(self.scatter)

    @property
    def n_entries(self) -> int:
        """D, the number of free entries."""
        return self.bijection.shape[0]


def build_flow(
    key: PRNGKeyArray,
    architecture: Architecture,
    scatter: Float[ArrayLike, "d d"],
    n_samples: float,
    n_query: int,
    low: Float[ArrayLike, " 3"],
    high: Float[ArrayLike, " 3"],
    **options,
) -> MatrixFlow:
    """An untrained flow.

    Parameters
    ----------
    key
        For the initial weights.
    architecture
        "structured" or "paper".
    scatter, n_samples, n_query
        Data, query variables first; n_query = d for the whole matrix.
    low, high
        Range of [log λ, q, log T].
    **options
        For `StructuredColumns` or `paper_bijection`.
    """
    scatter = np.asarray(scatter, np.float32)
    low, high = np.asarray(low, np.float32), np.asarray(high, np.float32)
    check_architecture(architecture)
    if architecture == "structured":
        bijection = StructuredColumns(key, scatter, n_samples, n_query, low, high, **options)
    else:
        # Start near the precision matrix of independent variables.
        start = (n_samples + len(scatter) + 1) / (np.diagonal(scatter) + np.exp((low[0] + high[0]) / 2))
        scale = np.where(high > low, (high - low) / 2, 1.0)
        options = {"initial_diagonal": float(np.mean(start)), **options}
        bijection = paper_bijection(
            key, len(scatter), n_query, condition_center=(low + high) / 2, condition_scale=scale, **options
        )
    # Wrapped until `unwrap`, so that training leaves them alone.
    fixed: dict[str, Any] = {
        "scatter": NonTrainable(jnp.asarray(scatter)),
        "n_samples": NonTrainable(jnp.asarray(n_samples, jnp.float32)),
    }
    return MatrixFlow(bijection, n_query=n_query, **fixed)


def check_architecture(architecture: object) -> None:
    """Refuse what is the name of none."""
    if not isinstance(architecture, str) or architecture not in ("structured", "paper"):
        raise ValueError(f"unknown architecture {architecture!r}: choose 'structured' or 'paper'")


def query_first(query: Int[np.ndarray, " s"], n_features: int) -> Int[np.ndarray, " d"]:
    """Columns of the data in a flow's order: query variables first."""
    return np.concatenate([query, np.setdiff1d(np.arange(n_features), query)])


def untrained_flow(
    key: PRNGKeyArray, architecture: Architecture, scatter: Scatter, query: Int[np.ndarray, " s"], ranges: Ranges
) -> MatrixFlow:
    """The flow that training on given data starts from, in single precision."""
    ordered = scatter.reorder(query_first(query, scatter.n_features))
    with jax.enable_x64(False):
        return build_flow(key, architecture, ordered.matrix, ordered.n, len(query), ranges.low, ranges.high)


def draw_noise(flow: MatrixFlow, key: PRNGKeyArray, num_conditions: int, num_draws: int) -> Float[Array, "D c m"]:
    """The noise of m draws under each of c conditions."""
    D = flow.n_entries
    if isinstance(flow.bijection, StructuredColumns):
        return jax.random.normal(key, (D, num_conditions * num_draws)).reshape(D, num_conditions, num_draws)
    keys = jax.random.split(key, num_conditions)
    return jnp.moveaxis(jax.vmap(lambda key: jax.random.normal(key, (num_draws, D)))(keys), 2, 0)


@_full_precision
def flow_loss(
    flow: MatrixFlow, noise: Float[Array, "D c m"], conditions: Float[Array, "c 3"]
) -> tuple[Float[Array, ""], Float[Array, "c m"]]:
    """A number with the gradient of the loss, and log q − log p̃ of m draws under each of c conditions."""
    if isinstance(flow.bijection, StructuredColumns):
        return path_derivative_loss(flow.bijection, noise, conditions)
    _, log_q, log_p = jax.vmap(lambda z, condition: _push(flow, z, condition))(jnp.moveaxis(noise, 0, 2), conditions)
    return jnp.mean(log_q - log_p), jax.lax.stop_gradient(log_q - log_p)


@_full_precision
def draw(
    flow: MatrixFlow, key: PRNGKeyArray, condition: Float[Array, " 3"], num_draws: int
) -> tuple[Float[Array, "m D"], Float[Array, " m"], Float[Array, " m"]]:
    """Draws under one condition: free entries of Ω, their log density, their tempered log p̃."""
    if isinstance(flow.bijection, StructuredColumns):
        entries, log_q, log_p = sample_columns(flow.bijection, key, condition, num_draws)
        return entries.T, log_q, log_p
    return _push(flow, jax.random.normal(key, (num_draws, flow.n_entries), flow.scatter_matrix.dtype), condition)


def _push(flow: MatrixFlow, z: Float[Array, "m D"], condition: Float[Array, " 3"]):
    flow = unwrap(flow)
    entries, log_det = jax.vmap(flow.bijection.transform_and_log_det, (0, None))(z, condition)
    log_q = _log_normal(z) - log_det
    flow, wide, condition = widen((flow, entries, condition))
    return entries, log_q, jax.vmap(lambda y: log_target(flow, y, condition))(wide)


@_full_precision
def log_prob(flow: MatrixFlow, entries: Float[Array, "m D"], condition: Float[Array, " 3"]) -> Float[Array, " m"]:
    """Normalized log density of given free entries of positive definite matrices, through the inverse."""
    flow = unwrap(flow)
    z, log_det = jax.vmap(flow.bijection.inverse_and_log_det, (0, None))(entries, condition)
    return _log_normal(z) + log_det


def log_target(flow: MatrixFlow, entries: Float[Array, " D"], condition: Float[Array, " 3"]) -> Float[Array, ""]:
    """Tempered log p̃ of the free entries of one matrix."""
    flow = unwrap(flow)
    columns = cholesky_columns(precision_from_entries(entries, len(flow.scatter), flow.n_query))
    lam, q, temperature = jnp.exp(condition[0]), condition[1], jnp.exp(condition[2])
    return unnormalized_log_prob(columns, flow.scatter, flow.n_samples, lam, q, temperature)


def _log_normal(z: Float[Array, "m D"]) -> Float[Array, " m"]:
    return -0.5 * jnp.sum(z**2, axis=-1) - 0.5 * z.shape[-1] * np.log(2 * np.pi).astype(z.dtype)
