"""The interface of a distribution over precision matrices that a posterior is estimated from: Ω ~ q, log q, log p̃.

Flows, exact chains and mixtures over (λ, q) are sources. Modules that make draws import from here.
"""

import math
from collections.abc import Iterator
from numbers import Integral
from typing import NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from ggmflow.gibbs import Chains
from ggmflow.model.precision import FreeEntries
from ggmflow.storage.memory import require

RandomState = int | np.random.Generator | np.random.RandomState | None

_CHUNK = 2**25  # numbers drawn from a source at once


class DrawsError(ValueError):
    """Draws are not finite, or have no density, so that nothing can be estimated from them."""


class Draws(NamedTuple):
    """Independent draws with their densities, as NumPy arrays in float64.

    Attributes
    ----------
    precision : (N, s, d) array
        Rows [Ω₁₁ Ω₁₂] in the working scale: rows in the order of the query, columns in the order of the data.
    log_prob : (N,) array or None
        Normalized log density of the distribution drawn from, with respect to Lebesgue measure on the free entries.
    log_target : (N,) array or None
        Log posterior up to a constant, with respect to the same measure. None: the draws are exact.
    """

    precision: Float[np.ndarray, "N s d"]
    log_prob: Float[np.ndarray, " N"] | None
    log_target: Float[np.ndarray, " N"] | None


class Source(Protocol):
    """A distribution over rows of a precision matrix that can be drawn from."""

    def sample(self, key: Key[Array, ""], num_draws: int) -> Draws:
        """Draw `num_draws` times; the same key gives the same draws."""
        ...

    def log_prob(self, precision: Float[np.ndarray, "k s d"]) -> Float[np.ndarray, " k"]:
        """Normalized log density with respect to Lebesgue measure on the free entries of Ω."""
        ...


class Refinable(Source, Protocol):
    """A source that can start exact chains."""

    def refine(self, key: Key[Array, ""], start: Float[np.ndarray, "chains s d"], sweeps: int, keep: int) -> Chains:
        """Chains of at least so many sweeps from draws of this source, with `keep` states of each, evenly spaced.

        The draws may have been rounded to float32: a block Ω₁₁ that is no longer positive definite is no error.
        """
        ...


class ChainSource(NamedTuple):
    """States of exact chains as a source.

    Attributes
    ----------
    states : (N, s, d) array
        The last states of all chains first: those are independent of each other.
    num_chains : int or None
        Number of chains: state t·num_chains + c is that of chain c, t states before its last one. None if it is not
        known which chain a state belongs to.
    """

    states: Float[np.ndarray, "N s d"]
    num_chains: int | None = None

    def by_chain(self, num_draws: int) -> Float[np.ndarray, "chains draws s d"] | None:
        """The states of the first chains, each in the order of time; None if the chains are not known.

        As many whole chains as hold `num_draws` states, at most all of them.
        """
        if self.num_chains is None:
            return None
        backwards = self.states.reshape(-1, self.num_chains, *self.states.shape[1:])
        return np.swapaxes(backwards[::-1, : -(-num_draws // len(backwards))], 0, 1)

    def sample(self, key: Key[Array, ""], num_draws: int) -> Draws:
        """The first states, in order; where more are wanted than there are, the rest at random."""
        more = max(0, num_draws - len(self.states))
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        return Draws(np.concatenate([self.states[:num_draws], rng.choice(self.states, more)]), None, None)

    def log_prob(self, precision: Float[np.ndarray, "k s d"]) -> Float[np.ndarray, " k"]:
        """Exact draws come without a density."""
        raise ValueError("draws of exact chains have no known density: use `log_prob` of the posterior before `refine`")


def draw_rows(
    source: Source, key: Key[Array, ""], num_draws: int, shape: tuple[int, int]
) -> Float[np.ndarray, "num_draws s d"]:
    """Draw matrices and check that they are finite."""
    require_draws(num_draws, math.prod(shape))
    parts = [np.asarray(draws.precision) for draws in _chunks(source, key, num_draws, shape)]
    return parts[0][:num_draws] if len(parts) == 1 else np.concatenate(parts)[:num_draws]


def draw_entries(
    source: Source, key: Key[Array, ""], num_draws: int, free: FreeEntries
) -> tuple[Float[np.ndarray, "D N"], Float[np.ndarray, " N"] | None]:
    """Draw and keep only the free entries; the whole matrices of all draws never exist at once.

    Returns
    -------
    entries : (D, N) array
    log_ratio : (N,) array or None
        log p̃ − log q; None for exact draws.
    """
    require_draws(num_draws, len(free.row))
    entries, log_ratio, done = np.empty((len(free.row), num_draws)), [], 0
    for draws in _chunks(source, key, num_draws, free.position.shape):
        part = np.asarray(draws.precision)[: num_draws - done]
        entries[:, done : done + len(part)] = part[:, free.row, free.column].T
        done += len(part)
        if draws.log_target is not None:
            log_ratio.append(np.asarray(draws.log_target, np.float64) - np.asarray(draws.log_prob, np.float64))
    return entries, np.concatenate(log_ratio)[:num_draws] if log_ratio else None


def require_draws(num_draws: int, n_entries: int) -> None:
    """Raise if draws do not fit into memory, with 8 bytes for each entry."""
    require(8 * num_draws * n_entries, f"{num_draws} draws of {n_entries} entries", "ask for fewer draws")


def _chunks(source: Source, key: Key[Array, ""], num_draws: int, shape: tuple[int, ...]) -> Iterator[Draws]:
    """At least `num_draws` draws in chunks of one size, so that a source compiles once."""
    num_chunks = -(-num_draws // max(1, _CHUNK // math.prod(shape)))
    size = -(-num_draws // num_chunks)
    for c in range(num_chunks):
        draws = source.sample(jax.random.fold_in(key, c), size)
        rows = np.asarray(draws.precision)
        if rows.shape != (size, *shape):
            raise ValueError(f"The source gave draws of shape {rows.shape} instead of {(size, *shape)}.")
        # One cheap pass first; the bad draws are counted only if there are any.
        if not np.isfinite(rows.sum()) and (bad := int(np.sum(~np.isfinite(rows).all(axis=(1, 2))))):
            raise DrawsError(f"{bad} of {size} draws hold NaN or infinite entries. Fit again, or use a larger λ.")
        yield draws


def as_key(random_state: RandomState) -> Key[Array, ""]:
    """A JAX key from an int, a numpy Generator or RandomState (which it advances), or None for a new one every time."""
    return jax.random.key(as_seed(random_state))


def as_seed(random_state: RandomState) -> int:
    """A seed from an int, a numpy Generator or RandomState (which it advances), or None for a new one every time."""
    if isinstance(random_state, np.random.RandomState):
        return random_state.randint(2**31 - 1)
    seed = isinstance(random_state, Integral) and not isinstance(random_state, bool) and int(random_state) >= 0
    if not seed and not isinstance(random_state, np.random.Generator | None):
        kinds = "a whole number, zero or more, a numpy Generator or RandomState, or None"
        raise ValueError(f"random_state must be {kinds}, got {random_state!r}")
    return int(np.random.default_rng(random_state).integers(2**31))
