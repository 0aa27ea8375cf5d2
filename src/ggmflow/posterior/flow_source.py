"""A trained flow at one condition as a source of draws Ω ~ q(· | λ, q, T); rows as the query, columns as the data."""

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from paramax import unwrap

from ggmflow import gibbs
from ggmflow.data.scatter import Scatter
from ggmflow.flow.base import MatrixFlow, widen
from ggmflow.flow.preparing import prepare
from ggmflow.gibbs import Chains
from ggmflow.model.precision import restore_definiteness, smallest_eigenvalue
from ggmflow.model.target import cholesky_columns, entry_indices, unnormalized_log_prob
from ggmflow.posterior.source import Draws
from ggmflow.storage.cache import compilation_cache_enabled
from ggmflow.storage.compiling import COMPILER_OPTIONS, compiles_quickly
from ggmflow.storage.memory import require

_FLOAT32_LIMIT = 1e5  # where its rounding is 0.008
# Smallest eigenvalue, for a unit diagonal, below which log q of a matrix rounded to float32 is wrong by about 0.02 or
# more: 0.002 was measured at 1e-5, and the error of a pivot is inverse to its size.
_NEAR_SINGULAR = 1e-6
_FEW = 32  # matrices per call of these


def _draw_chunk(flow: MatrixFlow, key, condition, num_draws: int, at):
    return flow.draw(key, condition, num_draws, at)


def _find(flow: MatrixFlow, condition, prepared):
    return flow.at(condition, prepared)


# What draws share, and draws; for few entries programs that compile quickly.
_PROGRAMS = {
    quick: (eqx.filter_jit(_find, **options), eqx.filter_jit(_draw_chunk, **options))
    for quick, options in COMPILER_OPTIONS.items()
}


@eqx.filter_jit
def _log_prob(flow: MatrixFlow, entries, condition):
    return flow.log_prob(entries, condition)


@jax.jit
def _log_target(rows, S, n, lam, q, temperature):
    def one(rows):
        return unnormalized_log_prob(cholesky_columns(rows), S, n, lam, q, temperature)

    return jax.vmap(one)(rows.reshape(-1, *rows.shape[-2:])).reshape(rows.shape[:-2])


class FlowSource(NamedTuple):
    """A trained flow at one condition.

    Attributes
    ----------
    flow
        The flow; its variables are those of the data in another order, query variables first.
    condition
        [log λ, q, log T].
    order : (d,) array
        Variable k of the flow is column order[k] of the data.
    scatter
        The data in the order of their columns, for exact chains.
    """

    flow: MatrixFlow
    condition: Float[np.ndarray, " 3"]
    order: Int[np.ndarray, " d"]
    scatter: Scatter

    @property
    def lam(self) -> float:
        """λ."""
        return float(np.exp(self.condition[0]))

    @property
    def q(self) -> float:
        """q."""
        return float(self.condition[1])

    @property
    def temperature(self) -> float:
        """T."""
        return float(np.exp(self.condition[2]))

    def sample(self, key: Key[Array, ""], num_draws: int) -> Draws:
        """Independent draws with their densities."""
        entries, log_q, log_p = self.entries(key, num_draws)
        return Draws(self.to_rows(entries), log_q.astype(float), log_p.astype(float))

    def entries(self, key: Key[Array, ""], num_draws: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Free entries (N, D) in the flow's order, log q and log p̃; in chunks of one size, to compile one program."""
        what = f"{num_draws} draws of {self.flow.n_entries} entries"
        require(2 * 4 * num_draws * self.flow.n_entries, what, "ask for fewer draws")  # chunks, and all in one
        size = chunk_size(self.flow)
        condition = jnp.asarray(self.condition, jnp.float32)
        find, draw = _PROGRAMS[compiles_quickly(self.flow.n_entries, jax.default_backend())]

        def chunk(k: int, at: Any):
            return jax.tree.map(np.asarray, draw(self.flow, jax.random.fold_in(key, k), condition, size, at))

        # One chunk after the other: two programs at once, each waiting for workers of JAX's one pool, can deadlock.
        # The flow works in float32. log p̃ is a difference of numbers of size nd/T, which may need float64.
        size_of_terms = float(unwrap(self.flow.n_samples)) * len(self.order) / np.exp(self.condition[2])
        with compilation_cache_enabled(), jax.enable_x64(bool(size_of_terms > _FLOAT32_LIMIT)):
            at = find(self.flow, condition, prepare(self.flow, condition))
            parts = [chunk(k, at) for k in range(-(-num_draws // size))]
        entries, log_q, log_p = (np.concatenate(part)[:num_draws] for part in zip(*parts, strict=True))
        return entries, log_q, log_p

    def log_prob(self, precision: Float[np.ndarray, "k s d"]) -> Float[np.ndarray, " k"]:
        """Normalized log density with respect to Lebesgue measure on the free entries of Ω, through the inverse.

        The flow works in float32, but matrices that are too near singular for it are evaluated in float64.
        """
        if not len(precision):
            return np.empty(0)
        rows, s = np.asarray(precision, float)[:, :, self.order], self.flow.n_query
        row, col = entry_indices(len(self.order), s)
        entries, size = rows[:, col, row], chunk_size(self.flow)
        found = self._evaluate(entries, size, wide=False)
        near = np.flatnonzero(np.isnan(found) | (smallest_eigenvalue(rows[:, :, :s]) < _NEAR_SINGULAR))
        if near.size:  # there are few
            found[near] = self._evaluate(entries[near], _FEW, wide=True)
        if bad := np.flatnonzero(np.isnan(found)).tolist():
            raise ValueError(f"matrix {bad[0]} of {len(found)} is too near singular: its log density is not known")
        return found

    def _evaluate(self, entries: Float[np.ndarray, "k D"], size: int, *, wide: bool) -> Float[np.ndarray, " k"]:
        """log q of free entries in the flow's order, in float64 if `wide`; NaN where Ω₁₁ is not positive definite."""
        # Chunks of one size here too: otherwise each number of matrices would be compiled anew.
        padded = np.concatenate([entries, np.repeat(entries[-1:], -len(entries) % size, axis=0)])
        with compilation_cache_enabled(), jax.enable_x64(wide):
            dtype = jnp.float64 if wide else jnp.float32
            flow, condition = widen(self.flow) if wide else self.flow, jnp.asarray(self.condition, dtype)
            chunks = padded.reshape(-1, size, entries.shape[1]).astype(dtype)
            parts = [_log_prob(flow, jnp.asarray(chunk), condition) for chunk in chunks]
        return np.concatenate(parts, dtype=float)[: len(entries)]

    def log_target(self, precision: Float[np.ndarray, "*k s d"]) -> Float[np.ndarray, "*k"]:
        """Tempered log p̃ of rows, in double precision, with respect to the same measure."""
        with jax.enable_x64(True):
            S, n = jnp.asarray(self.scatter.reorder(self.order).matrix), float(self.scatter.n)
            rows = jnp.asarray(np.asarray(precision, float)[..., self.order])
            return np.asarray(_log_target(rows, S, n, self.lam, self.q, self.temperature))

    def refine(self, key: Key[Array, ""], start: Float[np.ndarray, "chains s d"], sweeps: int, keep: int) -> Chains:
        """Exact chains of at least so many sweeps from draws of the flow; `keep` states of each, evenly spaced."""
        start = restore_definiteness(start, self.order[: self.flow.n_query])
        settings: dict[str, Any] = {
            "num_draws": keep,
            "num_warmup": 0,
            "thin": -(-sweeps // keep),
            "n_query": self.flow.n_query,
        }
        condition = (self.lam, self.q, self.temperature)
        with compilation_cache_enabled():
            ordered = self.scatter.reorder(self.order)
            chains = gibbs.sample(key, ordered, *condition, start=start[:, :, self.order], **settings)
        draws = np.empty_like(chains.draws)
        draws[..., self.order] = chains.draws
        return replace(chains, draws=draws)

    def to_rows(self, entries: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N s d"]:
        """Free entries in the flow's order to rows."""
        d, s = len(self.order), self.flow.n_query
        row, col = entry_indices(d, s)
        position = np.empty((s, d), np.intp)
        position[col, self.order[row]] = np.arange(len(row))
        inside = row < s
        position[row[inside], self.order[col[inside]]] = np.flatnonzero(inside)
        return np.take(entries, position, axis=1).astype(float)


def chunk_size(flow: MatrixFlow) -> int:
    """Draws per call: enough to fill vector units, few enough to be quick; 2000 were 12 % faster at d = 30.

    An entry of a blanket takes so little time that calls for twice as many draws are 14 % faster.
    """
    is_blanket = flow.n_query < len(flow.scatter_matrix)
    return int(np.clip((2**20 if is_blanket else 2**19) // flow.n_entries, 64, 600 if is_blanket else 500))
