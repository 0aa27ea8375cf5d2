"""Marginal likelihood of (λ, q), with the prior's normalizer on the positive definite cone.

    log p(X | λ, q) = −(nd/2) log 2π + log Z_post(λ, q) − log Z_prior(λ, q)

For a query block of s variables Ω₂₂.₁ (t×t) is integrated out in closed form:

    ∫ det(W)^{n/2} exp(−½ tr WΨ) dW = 2^{tν/2} Γ_t(ν/2) det(Ψ)^{−ν/2},     ν = n + t + 1,  Ψ = S₂₂ + λI
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Key
from scipy.special import gammaln

from ggmflow.evidence.normalizer import LogNormalizer, Method, log_normalizer
from ggmflow.evidence.prior import LargePrior, Prior
from ggmflow.posterior.flow_source import FlowSource, chunk_size


class Evidence(NamedTuple):
    """log p(X | λ, q) and the two normalizers behind it."""

    value: float
    se: float
    posterior: LogNormalizer
    prior: LogNormalizer

    @property
    def method(self) -> Method:
        """Method of the two normalizers; the less reliable one if they differ."""
        return max(self.posterior.method, self.prior.method, key=list(Method).index)


def log_evidence(
    source: FlowSource, prior: Prior | LargePrior, key: Key[Array, ""], num_draws: int, *, exact: bool = True
) -> Evidence:
    """log p(X | λ, q) of the data in the working scale, n its degrees of freedom.

    Parameters
    ----------
    source
        The posterior's flow at (λ, q), T = 1.
    prior
        The result of `fit_prior`.
    key, num_draws
        For the draws.
    exact
        As in `log_normalizer`.
    """
    after = log_normalizer(source, key, num_draws, exact=exact)
    before = prior.log_normalizer(source.lam, source.q, num_draws, exact=exact)
    scatter, s = source.scatter, source.flow.n_query
    rest = source.order[s:]
    value = after.value - before.value + _log_rest(scatter.matrix[np.ix_(rest, rest)], scatter.n, source.lam)
    value -= 0.5 * scatter.n * scatter.n_features * np.log(2 * np.pi)
    return Evidence(float(value), float(np.hypot(after.se, before.se)), after, before)


def quick_evidence(source: FlowSource, prior: Prior | LargePrior) -> Evidence:
    """log p(X | λ, q) from few draws and no chains, with the same noise everywhere, so that a surface is smooth.

    Parameters
    ----------
    source
        The posterior's flow at (λ, q), T = 1.
    prior
        The result of `fit_prior`.
    """
    return log_evidence(source, prior, jax.random.key(0), 2 * chunk_size(source.flow), exact=False)


def evidence_table(
    source_at: Callable[[float, float], FlowSource],
    prior: Prior | LargePrior | None,
    lams: Sequence[float],
    qs: Sequence[float],
    *,
    key: Key[Array, ""],
    num_draws: int,
    exact: bool,
) -> pd.DataFrame:
    """Evidence of every pair of λ and q; the published quantity if `prior` is None.

    Parameters
    ----------
    source_at
        The posterior's flow at (λ, q), T = 1.
    prior
        The result of `fit_prior`, or None.
    lams, qs
        Values to combine.
    key, num_draws, exact
        As in `log_evidence`.
    """
    rows = []
    for lam, q in product(lams, qs):
        source = source_at(lam, q)
        if prior is None:
            after = log_normalizer(source, key, num_draws, exact=False)
            pairs = source.flow.n_entries - source.flow.n_query
            value, se, method = after.elbo + published_constants(lam, q, pairs), np.nan, "published"
        else:
            value, se, after, _ = found = log_evidence(source, prior, key, num_draws, exact=exact)
            method = str(found.method)
        rows.append((lam, q, value, se, after.elbo, after.ess, after.khat, method))
    return pd.DataFrame(rows, columns=["lam", "q", "log_evidence", "se", "elbo", "ess", "khat", "method"])


def _log_rest(S_22: Float[np.ndarray, "t t"], n: float, lam: float) -> float:
    """log of the factor from integrating Ω₂₂.₁ out: that of the posterior over that of the prior."""
    t = len(S_22)
    if t == 0:
        return 0.0

    def log_wishart(nu: float, log_det: float) -> float:
        log_gamma = t * (t - 1) / 4 * np.log(np.pi) + float(np.sum(gammaln((nu - np.arange(t)) / 2)))
        return t * nu / 2 * np.log(2) + log_gamma - nu / 2 * log_det

    return log_wishart(n + t + 1, np.linalg.slogdet(S_22 + lam * np.eye(t))[1]) - log_wishart(t + 1, t * np.log(lam))


def published_constants(lam: float, q: float, num_pairs: int) -> float:
    """Σ_{i<j} log(q λ^{1/q}/(2Γ(1/q))): normalizers of the off-diagonal factors as if they were independent."""
    return float(num_pairs * (np.log(q / 2) + np.log(lam) / q - gammaln(1 / q)))
