"""Many chains of the exact sampler at once, each with its own (λ, q, T), and their convergence diagnostics.

These are R̂ and the bulk and tail effective sample sizes of every entry of Ω.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from arviz_stats.base.array import array_stats
from jaxtyping import Array, Key
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from ggmflow.data.scatter import Scatter
from ggmflow.errors.argument import ArgumentError
from ggmflow.gibbs.sweep import draw_noise, sweep
from ggmflow.model.precision import smallest_eigenvalue
from ggmflow.storage.memory import require


@dataclass(frozen=True, eq=False, repr=False)
class Chains:
    """Draws of the exact sampler with their convergence diagnostics.

    Attributes
    ----------
    draws : (chains, draws, s, d) array
        Rows [Ω₁₁ Ω₁₂] of the precision matrix in the working scale; s = d for the full matrix.
    lam : (chains,) or (chains, draws) array
        λ of each chain, or its draws under a hyperprior.
    q, temperature : (chains,) array
        The other conditions of each chain.
    """

    draws: np.ndarray
    lam: np.ndarray
    q: np.ndarray
    temperature: np.ndarray

    def __repr__(self) -> str:
        chains, draws, s, d = self.draws.shape
        return f"Chains({chains} chains of {draws} draws, {s}×{d} entries)"

    def select(self, index: ArrayLike) -> "Chains":
        """Some of the chains, by position or mask; for instance those of one (λ, q, T)."""
        index = np.atleast_1d(index)
        return Chains(self.draws[index], self.lam[index], self.q[index], self.temperature[index])

    @property
    def pooled(self) -> np.ndarray:
        """All draws in one axis, (chains·draws, s, d)."""
        return self.draws.reshape(-1, *self.draws.shape[2:])

    @cached_property
    def rhat(self) -> np.ndarray:
        """Rank-normalized split-R̂ of every entry, (s, d)."""
        return self._per_entry(partial(array_stats.rhat, method="rank"))

    @cached_property
    def ess_bulk(self) -> np.ndarray:
        """Effective number of draws for the centre of every entry's distribution, (s, d)."""
        return self._per_entry(partial(array_stats.ess, method="bulk"))

    @cached_property
    def ess_tail(self) -> np.ndarray:
        """Effective number of draws for the 5 % and 95 % quantiles of every entry, (s, d)."""
        return self._per_entry(partial(array_stats.ess, method="tail", prob=(0.05, 0.95)))

    def _per_entry(self, statistic: Callable) -> np.ndarray:
        """Apply a statistic to the free entries only: the lower triangle repeats the upper one."""
        drawn_lam = self.lam.ndim == 2  # then λ is supposed to vary
        if any(np.ptp(x) > 0 for x in (self.q, self.temperature, *([] if drawn_lam else [self.lam]))):
            raise ValueError("These chains differ in λ, q or temperature: `select` those of one condition.")
        s, d = self.draws.shape[2:]
        row, col = np.triu_indices(s, m=d)
        out = np.empty((s, d))
        out[row, col] = statistic(self.draws[:, :, row, col], chain_axis=0, draw_axis=1)
        lower = np.tril_indices(s, -1)
        out[lower] = out[:, :s].T[lower]
        return out


@partial(jax.jit, static_argnames=("num_draws", "hyperprior"), donate_argnames=("state",))
def _advance(key, state, scatter, n_samples, q, temperature, thin, num_draws, hyperprior):
    """Keep `num_draws` states of every chain, `thin` sweeps apart; `thin` is traced, so one compilation serves all."""

    def one_sweep(i, carry):
        key, rows, lam = carry
        key, key_noise, key_lam = jax.random.split(key, 3)
        strength = lam * temperature ** (q - 1)
        noise = draw_noise(key_noise, rows.shape)
        rows = sweep(noise, rows, scatter, n_samples / temperature, lam, strength, q)
        if hyperprior is not None:
            lam = _draw_lam(key_lam, rows, *hyperprior)
        return key, rows, lam

    def keep(carry, _):
        carry = jax.lax.fori_loop(0, thin, one_sweep, carry)
        return carry, (carry[1] * temperature, carry[2])

    (_, *state), (precision, lam) = jax.lax.scan(keep, (key, *state), length=num_draws)
    return tuple(state), (jnp.moveaxis(precision, -1, 0), lam.T)


def _draw_lam(key, precision, shape, rate):
    """λ | Ω at q = 1, where the prior's normalizer is λ^{−d(d+1)/2}: a Gamma prior stays Gamma."""
    d, _, num_chains = precision.shape
    total = 0.5 * jnp.sum(jnp.abs(precision), axis=(0, 1))  # ½ tr Ω + Σ_{i<j}|ω_ij|
    return jax.random.gamma(key, shape + d * (d + 1) / 2, (num_chains,), precision.dtype) / (rate + total)


def sample(
    key: Key[Array, ""],
    scatter: Scatter,
    lam: ArrayLike,
    q: ArrayLike = 1.0,
    temperature: ArrayLike = 1.0,
    *,
    n_query: int | None = None,
    num_chains: int = 16,
    num_draws: int = 1000,
    num_warmup: int = 500,
    thin: int = 1,
    start: ArrayLike | None = None,
    hyperprior: tuple[float, float] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Chains:
    """Draw from the exact posterior of the precision matrix, many chains at once.

    Runs in float64 whatever JAX's own setting, which it does not change. With fewer rows than variables and λ below
    about 1e-5 of the largest diagonal entry of the scatter matrix, Ω is too near singular for float64, which raises a
    ValueError.

    Parameters
    ----------
    key
        JAX random key.
    scatter
        The data; with `n_query`, its first variables are the query (`Scatter.reorder` puts them there).
    lam, q, temperature
        λ > 0, q > 0, T > 0: one number, or one per chain.
    n_query
        s: draw only the rows [Ω₁₁ Ω₁₂] of the first s variables, their Markov blanket. Default: all of Ω.
    num_chains
        Number of chains, unless λ, q, T or `start` come one per chain.
    num_draws, num_warmup, thin
        Draws kept per chain; sweeps discarded before (rounded up to whole blocks of 50, or of `num_draws` if that
        is less); sweeps per draw.
    start
        Positive definite matrices to start from, (s, d) or one per chain. Default: draws of the Wishart
        distribution that the posterior would be without the l_q factors, wider than the posterior as R̂ requires.
    hyperprior
        (shape, rate) of a Gamma prior on λ, which is then drawn too, starting at `lam`. Needs q = 1, T = 1 and all
        of Ω: only then is λ given Ω again Gamma.
    progress
        Called with (sweeps done, sweeps in all) after every block.

    Returns
    -------
    Chains
        Draws (chains, draws, s, d) in the working scale, with R̂ and effective sample sizes.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from ggmflow.data.scatter import Scatter
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> chains = sample(jax.random.key(0), Scatter.from_data(X), lam=1.0, q=0.5, num_draws=200)
    >>> chains.draws.shape
    (16, 200, 3, 3)
    >>> bool(chains.rhat.max() < 1.05)
    True
    """
    check_scatter(scatter)
    _check_key(key)
    s, d = scatter.n_features if n_query is None else n_query, scatter.n_features
    _check_counts(s, d, num_chains=num_chains, num_draws=num_draws, thin=thin, num_warmup=num_warmup)
    lam, q, temperature, start = _per_chain(lam, q, temperature, start, num_chains, num_draws, (s, d))
    if hyperprior is not None:
        _check_hyperprior(hyperprior, q, temperature, s == d)
        hyperprior = (float(hyperprior[0]), float(hyperprior[1]))

    key_start, key = jax.random.split(key)
    if start is None:
        start = _wishart_rows(key_start, scatter, lam, temperature, s)
    start = start / temperature[:, None, None]
    block = min(50, num_draws)
    warmup_blocks, draw_blocks = -(-num_warmup // block), -(-num_draws // block)
    total = (warmup_blocks + draw_blocks * thin) * block
    kept, done = [], 0
    with jax.enable_x64(True):
        state = (jnp.asarray(np.moveaxis(start, 0, -1)), jnp.asarray(lam))
        fixed = (jnp.asarray(scatter.matrix)[:, :, None], float(scatter.n), jnp.asarray(q), jnp.asarray(temperature))
        for i in range(warmup_blocks + draw_blocks):
            step = 1 if i < warmup_blocks else thin
            state, draws = _advance(
                jax.random.fold_in(key, i), state, *fixed, step, num_draws=block, hyperprior=hyperprior
            )
            _check_state(np.asarray(state[0]), np.asarray(state[1]), scatter)
            if i >= warmup_blocks:
                kept.append(jax.tree.map(np.asarray, draws))
            done += step * block
            if progress is not None:
                jax.block_until_ready(draws)
                progress(done, total)
    precision, lam_draws = (np.concatenate(x, axis=1)[:, :num_draws] for x in zip(*kept, strict=True))
    return Chains(precision, lam if hyperprior is None else lam_draws, q, temperature)


def check_scatter(scatter: Any) -> None:
    """Raise TypeError if the data are not a Scatter."""
    if not isinstance(scatter, Scatter):
        raise TypeError(f"scatter must be a Scatter, not {type(scatter).__name__}: use Scatter.from_data(X).")


def check_whole_number(name: str, value: Any, least: int) -> None:
    """Raise ArgumentError if the value of an argument is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ArgumentError(name, value, f"be a whole number, at least {least}")


def _check_key(key):
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise TypeError(f"key must be a JAX random key such as jax.random.key(0), not {key!r}.")


def _check_counts(s, d, **counts):
    for name, value in {"n_query": s, **counts}.items():
        check_whole_number(name, value, 0 if name == "num_warmup" else 1)
    if s > d:
        raise ArgumentError("n_query", s, f"be at most the number of variables, {d}")


def _check_hyperprior(hyperprior, q, temperature, full):
    if not np.all(np.isreal(hyperprior)) or np.shape(hyperprior) != (2,) or min(hyperprior) <= 0:
        raise ArgumentError("hyperprior", hyperprior, "be a positive shape and a positive rate")
    if np.any(q != 1) or np.any(temperature != 1) or not full:
        raise ArgumentError("hyperprior", hyperprior, reason="needs q = 1, temperature = 1 and no query block")


def _check_state(rows, lam, scatter):
    """Raise if float64 cannot represent Ω, which happens if n < d and λ is tiny relative to the variances.

    A sweep turns a state that is not positive definite into NaN, which stays, so checking the last state is enough.
    """
    lost = ~np.all(np.isfinite(rows), axis=(0, 1))
    block = np.moveaxis(rows[:, : len(rows), ~lost], -1, 0)
    lost[~lost] = smallest_eigenvalue(block) <= 0
    if np.any(lost):
        ratio = lam[lost].max() / np.diag(scatter.matrix).max()
        raise ValueError(
            f"The precision matrix became numerically singular at λ = {lam[lost].max():g}, which is {ratio:.1g} of the "
            "largest diagonal entry of the scatter matrix. Use a larger λ, or standardize the data."
        )


def _per_chain(lam, q, temperature, start, num_chains, num_draws, shape):
    """Conditions and start of every chain, checked; raise if there is not enough memory for the draws."""
    conditions = {"lam": lam, "q": q, "temperature": temperature}
    for name, value in conditions.items():
        value = np.asarray(value)
        if value.dtype.kind not in "iuf" or not value.size:
            raise ArgumentError(name, conditions[name], "be a number or one number per chain")
        conditions[name] = value = value.astype(float)
        if not np.all(np.isfinite(value) & (value > 0)):
            raise ArgumentError(name, value.tolist(), "be positive and finite")
        if value.ndim > 1:
            raise ArgumentError(name, value, "be a number or one number per chain")
    several = {name: value for name, value in conditions.items() if value.ndim}
    if start is not None:
        start = _check_start(start, shape)
        several |= {"start": start} if start.ndim == 3 else {}
    first = next(iter(several), None)
    num_chains = num_chains if first is None else len(several[first])
    for name, value in several.items():
        if len(value) != num_chains:
            raise ArgumentError(name, value, f"agree on the number of chains with {first}, which gives {num_chains}")
    draws = f"{num_chains} chains of {num_draws} draws of {shape[0]} × {shape[1]} entries"
    advice = "use fewer chains, fewer draws further apart (num_draws, thin), or a query"
    require(8 * num_chains * num_draws * shape[0] * shape[1], draws, advice)
    lam, q, temperature = (np.broadcast_to(value, num_chains).copy() for value in conditions.values())
    return lam, q, temperature, None if start is None else np.broadcast_to(start, (num_chains, *shape)).copy()


def _check_start(start, shape):
    """Starting matrices as floats; raise if they are not symmetric and positive definite."""
    given, start = start, np.asarray(start)
    if start.dtype.kind not in "iuf":
        raise ArgumentError("start", given, "be an array of numbers")
    start = start.astype(float)
    if not np.all(np.isfinite(start)):
        raise ArgumentError("start", start, "be finite, without NaN or infinite entries")
    if start.shape[-2:] != shape or start.ndim not in (2, 3):
        raise ArgumentError("start", start, f"have shape {shape} or (chains, {shape[0]}, {shape[1]})")
    block = start[..., : shape[0]]
    # The same measure as in `_check_state`, so that the last state of a chain can always start another one.
    definite = smallest_eigenvalue(block.reshape(-1, shape[0], shape[0])) > 0
    if not np.allclose(block, np.swapaxes(block, -1, -2)) or not np.all(definite):
        raise ArgumentError("start", start, "be symmetric and positive definite")
    return start


def _wishart_rows(key, scatter, lam, temperature, n_query):
    """Rows [Ω₁₁ Ω₁₂] of Wishart(n/T + d + 1, T(S + λI)⁻¹), one draw per chain, by its Bartlett factor."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    (d, s), num_chains = (scatter.n_features, n_query), len(lam)
    bartlett, diagonal = np.empty((d, num_chains, s)), np.arange(s)
    for c in range(num_chains):
        bartlett[:, c] = np.tril(rng.standard_normal((d, s)), -1)
        bartlett[diagonal, c, diagonal] = np.sqrt(rng.chisquare(scatter.n / temperature[c] + d + 1 - diagonal))
    out = np.empty((num_chains, s, d))
    # Chains with the same (λ, T) share a factor and one call of the solver: a thousand calls take seconds.
    conditions, which = np.unique(np.column_stack([lam, temperature]), axis=0, return_inverse=True)
    for k, (lam_k, T) in enumerate(conditions):
        chains = np.flatnonzero(which == k)
        # Ψ = UUᵀ with U upper triangular, so L = U⁻ᵀB is lower triangular with LLᵀ ~ Wishart(·, Ψ⁻¹).
        psi = (scatter.matrix + lam_k * np.eye(d)) / T
        U = np.linalg.cholesky(psi[::-1, ::-1])[::-1, ::-1]
        L = solve_triangular(U.T, bartlett[:, chains].reshape(d, -1), lower=True).reshape(d, -1, s)
        L = np.moveaxis(L, 1, 0)
        out[chains] = L[:, :s] @ np.swapaxes(L, 1, 2)
    return out
