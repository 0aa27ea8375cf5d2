"""Normalizers by bridge sampling along a path of exact draws, without any flow.

The posterior at (λ, q) is joined to a Wishart distribution, whose normalizer is known, by K bridges along

    p̃_β = det(Ω)^{n_β/2} exp(−½ tr ΩΨ_β − βλ Σ_{i<j}|ω_ij|^q),   n_β = (1−β)m + βn,  Ψ_β = (1−β)Ψ + β(S + λI)

with m and Ψ fitted to exact draws, so that the way is short. Every p̃_β is a posterior of the same kind: the exact
sampler draws from all of them at once. Densities are with respect to Lebesgue measure on the free entries of Ω.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from scipy.optimize import root_scalar
from scipy.special import digamma, gammaln

from ggmflow.data.scatter import Scatter
from ggmflow.evidence.bridge import Estimate, bridge, mean_variance
from ggmflow.gibbs.sweep import draw_noise, sweep

_BLOCK = 20  # sweeps per call: their matrices are turned into one number per draw before the next are made


class WishartDensity(NamedTuple):
    """det(Ω)^{m/2} exp(−½ tr ΩΨ): Wishart with m + d + 1 degrees of freedom and scale Ψ⁻¹, not normalized."""

    m: float
    psi: Float[np.ndarray, "d d"]

    @property
    def log_normalizer(self) -> float:
        """log Γ_d(ν/2) + (νd/2) log 2 − (ν/2) log det Ψ, ν = m + d + 1."""
        d = len(self.psi)
        nu = self.m + d + 1
        log_gamma = d * (d - 1) / 4 * np.log(np.pi) + np.sum(gammaln((nu - np.arange(d)) / 2))
        return float(log_gamma + nu * d / 2 * np.log(2) - nu / 2 * np.linalg.slogdet(self.psi)[1])

    def sample(self, rng: np.random.Generator, num_draws: int) -> Float[np.ndarray, "N d d"]:
        """Independent draws, by their Bartlett factors."""
        d = len(self.psi)
        bartlett = np.tril(rng.standard_normal((num_draws, d, d)), -1)
        index = np.arange(d)
        bartlett[:, index, index] = np.sqrt(rng.chisquare(self.m + d + 1 - index, (num_draws, d)))
        L = np.linalg.inv(np.linalg.cholesky(self.psi)).T @ bartlett  # any factor of Ψ⁻¹ will do
        return L @ np.swapaxes(L, -1, -2)


def fit_wishart(draws: Float[np.ndarray, "N d d"]) -> WishartDensity:
    """Maximum likelihood: E Ω = νΨ⁻¹ and E log det Ω agree with the draws."""
    mean = draws.mean(0)
    d = len(mean)
    spread = float(np.mean(np.linalg.slogdet(draws)[1]) - np.linalg.slogdet(mean)[1])

    def mismatch(log_nu: float) -> float:
        expected = np.sum(digamma((np.exp(log_nu) - np.arange(d)) / 2)) + d * (np.log(2) - log_nu)
        return float(expected - spread)

    nu = float(np.exp(root_scalar(mismatch, bracket=(np.log(d - 1 + 1e-6), np.log(1e9))).root))
    return WishartDensity(nu - d - 1, nu * np.linalg.inv(mean))


def log_normalizers(
    key: Key[Array, ""],
    scatter: Scatter,
    lam: Sequence[float],
    q: Sequence[float],
    exact_draws: Sequence[Float[np.ndarray, "N d d"]],
    *,
    num_rungs: int = 12,
    num_replicas: int = 4,
    num_draws: int = 400,
    num_warmup: int = 100,
) -> list[Estimate]:
    """log ∫ p̃(Ω | λ, q) dΩ at T = 1 for several conditions at once, each along its own path from a Wishart density.

    Parameters
    ----------
    key
        JAX random key.
    scatter
        The data.
    lam, q
        Conditions, one each per path.
    exact_draws
        Draws of the exact sampler under every condition: the Wishart density is fitted to them, and the chains start
        there. They do not enter the estimate otherwise.
    num_rungs
        K: bridges along each path, with draws at β = 1/K, 2/K, …, 1 from the sampler and at β = 0 directly.
    num_replicas, num_draws, num_warmup
        Chains per rung, draws kept of each, sweeps thrown away before.

    Returns
    -------
    list of Estimate
        One per condition; the error accounts for the chains' autocorrelation and for draws shared by two bridges.
    """
    d = scatter.n_features
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    ends = [fit_wishart(np.asarray(draws, float)) for draws in exact_draws]
    beta = np.repeat(np.arange(1, num_rungs + 1) / num_rungs, num_replicas)  # one chain each, for every path
    psi, n, strength, start = [], [], [], []
    for p, end in enumerate(ends):
        full = scatter.matrix + lam[p] * np.eye(d)
        psi.append(end.psi[..., None] * (1 - beta) + full[..., None] * beta)
        n.append(end.m * (1 - beta) + scatter.n * beta)
        strength.append(lam[p] * beta)
        start.append(np.moveaxis(exact_draws[p][rng.integers(len(exact_draws[p]), size=len(beta))], 0, -1))
    warmup_blocks, draw_blocks = -(-num_warmup // _BLOCK), -(-num_draws // _BLOCK)
    blocks = []
    with jax.enable_x64(True):
        rows = jnp.asarray(np.concatenate(start, axis=-1), float)
        densities = [jnp.asarray(np.concatenate(part, axis=-1)) for part in (psi, n, strength)]
        exponent = jnp.asarray(np.repeat(np.asarray(q, float), len(beta)))
        for i in range(warmup_blocks + draw_blocks):
            rows, kept = _sweeps(jax.random.fold_in(key, i), rows, *densities, exponent)
            if i >= warmup_blocks:
                kept = np.moveaxis(np.asarray(kept), -1, 1)
                kept = kept.reshape(_BLOCK, len(ends), num_rungs, num_replicas, d, d)
                blocks.append([_difference(kept[:, p], scatter, lam[p], q[p], end) for p, end in enumerate(ends)])
    # (path, rung, replica, draw) of log p̃₁ − log p̃₀
    slope = np.moveaxis(np.concatenate(blocks, axis=1), 1, -1)
    estimates = []
    for p, end in enumerate(ends):
        direct = end.sample(rng, num_replicas * slope.shape[-1])
        first = _difference(direct, scatter, lam[p], q[p], end).reshape(1, num_replicas, -1)
        estimates.append(_along_path(np.concatenate([first, slope[p]]), end.log_normalizer))
    return estimates


def _along_path(slope: Float[np.ndarray, "rungs replicas draws"], log_normalizer: float) -> Estimate:
    """Sum of the bridges between neighbours, given log p̃₁ − log p̃₀ at draws of every p̃_β."""
    step = 1 / (len(slope) - 1)
    influence = np.zeros_like(slope)
    for k in range(len(slope) - 1):
        result = bridge(step * slope[k + 1], step * slope[k])
        log_normalizer += result.log_ratio
        influence[k + 1] += result.influence_1
        influence[k] += result.influence_2
    return Estimate(log_normalizer, float(np.sqrt(sum(map(mean_variance, influence)))))


def _difference(
    Omega: Float[np.ndarray, "*draws d d"], scatter: Scatter, lam: float, q: float, start: WishartDensity
) -> Float[np.ndarray, "*draws"]:
    """log p̃ of the posterior at T = 1 minus that of the Wishart density."""
    i, j = np.triu_indices(scatter.n_features, 1)
    matrix = scatter.matrix + lam * np.eye(scatter.n_features) - start.psi
    penalty = lam * np.sum(np.abs(Omega[..., i, j]) ** q, axis=-1)
    log_det = np.linalg.slogdet(Omega)[1]
    return 0.5 * (scatter.n - start.m) * log_det - 0.5 * np.tensordot(Omega, matrix, 2) - penalty


@partial(jax.jit, donate_argnames=("rows",))
def _sweeps(key, rows, psi, n_samples, strength, q):
    """_BLOCK sweeps of chains that differ in everything; the ridge is part of Ψ."""

    def one(rows, key):
        rows = sweep(draw_noise(key, rows.shape), rows, psi, n_samples, jnp.zeros_like(strength), strength, q)
        return rows, rows

    return jax.lax.scan(one, rows, jax.random.split(key, _BLOCK))
