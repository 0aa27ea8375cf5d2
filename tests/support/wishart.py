"""Posteriors with known truth: rows of a Wishart, as exact draws or as proposals of an l_q target."""

import jax
import numpy as np
from jaxtyping import Float
from scipy import stats
from scipy.special import multigammaln

from ggmflow.posterior.posterior import Draws, Posterior
from tests.support.oracles import log_factor


def log_wishart(n: float, Psi: Float[np.ndarray, "d d"]) -> float:
    """log ∫ det(Ω)^{n/2} exp(−½ tr ΩΨ) dΩ: Wishart with n + d + 1 degrees of freedom."""
    d = len(Psi)
    dof = n + d + 1
    return float(0.5 * dof * (d * np.log(2) - np.linalg.slogdet(Psi)[1]) + multigammaln(dof / 2, d)) if d else 0.0


def log_kernel(rows, query, n, Psi):
    """The target without its l_q factors, by the blanket's formula, and its normalizer."""
    rest = np.setdiff1d(np.arange(len(Psi)), query)
    Omega_11, Omega_12 = rows[:, :, query], rows[:, :, rest]
    trace = np.einsum("kij,ij->k", rows, Psi[query]) + np.einsum("kij,ij->k", Omega_12, Psi[np.ix_(query, rest)])
    trace += np.einsum("kij,kij->k", Omega_12 @ Psi[np.ix_(rest, rest)], np.linalg.solve(Omega_11, Omega_12))
    log_Z = log_wishart(n, Psi) - log_wishart(n, Psi[np.ix_(rest, rest)])
    return 0.5 * n * np.linalg.slogdet(Omega_11)[1] - 0.5 * trace, log_Z


class WishartSource:
    """Proposals from the rows of a Wishart; the target has the l_q factors (unless q is None) and may be another's."""

    def __init__(self, S, n, lam, q=None, query=None, proposal=None, exact=False):
        self.n, self.Psi, self.lam, self.q, self.exact = n, S + lam * np.eye(len(S)), lam, q, exact
        self.query = np.arange(len(S)) if query is None else np.asarray(query)
        self.proposal = proposal or (n, self.Psi)
        self.calls = []

    def sample(self, key, num_draws):
        self.calls.append(num_draws)
        n, Psi = self.proposal
        seed = np.asarray(jax.random.key_data(key))
        wishart = stats.wishart(df=n + len(Psi) + 1, scale=np.linalg.inv(Psi))
        Omega = wishart.rvs(num_draws, random_state=np.random.default_rng(seed)).reshape(-1, *Psi.shape)
        rows = Omega[:, self.query]
        if self.exact:
            return Draws(rows, None, None)
        log_target = log_kernel(rows, self.query, self.n, self.Psi)[0]
        if self.q is not None:
            order = np.r_[self.query, np.setdiff1d(np.arange(len(Psi)), self.query)]
            log_target += log_factor(Omega[:, order][:, :, order], self.lam, self.q, len(self.query))
        return Draws(rows, self.log_prob(rows), log_target)

    def log_prob(self, precision):
        log_p, log_Z = log_kernel(precision, self.query, *self.proposal)
        return log_p - log_Z


def scatter(d, n, seed=3):
    """Correlated data, standardized: S = XᵀX with diagonal n."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    X[:, 1] += X[:, 0]
    X[:, -1] -= 0.8 * X[:, 1]
    return n * np.corrcoef(X.T)


def posterior(source, names=None, **options):
    names = names or tuple("abcdefgh"[: len(source.Psi)])
    return Posterior(source, names, source.query, source.lam, source.q, 1.0, **options)


S3, S4, N = scatter(3, 12), scatter(4, 12), 12
LAM, Q = 2.0, 0.5  # the weights exp(−λΣ|ω|^q) are at most one, but differ enough to matter
