"""Independent answers: brute-force importance sampling with bounded weights, and rejection sampling of the prior."""

import numpy as np
from scipy import stats


def log_factor(Omega, lam, q, s):
    """The l_q factors −λ Σ_{i<j, i<s} |ω_ij|^q of (draws, d, d) matrices: never positive."""
    i, j = np.triu_indices(Omega.shape[-1], 1)
    return -lam * np.sum(np.abs(Omega[:, i[i < s], j[i < s]]) ** q, axis=1)


def weighted_moments(S, n, lam, q, s=None, T=1.0, num_draws=200_000, seed=0):
    """Mean and sd of [Ω₁₁ Ω₁₂] by Wishart(n+d+1, (S+λI)⁻¹) proposals with weights ≤ 1, and the weights' ESS."""
    S, n, lam = S / T, n / T, lam / T
    d = len(S)
    s = s or d
    wishart = stats.wishart(df=n + d + 1, scale=np.linalg.inv(S + lam * np.eye(d)))
    Omega = wishart.rvs(num_draws, random_state=seed)
    weights = np.exp(log_factor(Omega, lam, q, s))
    weights /= weights.sum()
    mean = np.tensordot(weights, Omega, 1)[:s]
    sd = np.sqrt(np.tensordot(weights, (Omega[:, :s] - mean) ** 2, 1))
    return mean, sd, 1 / np.sum(weights**2)


def prior_draws(rng, d, lam, q, num_draws):
    """Exact independent draws of the prior: Wishart(d+1, I/λ), kept with probability ∏exp(−λ|ω_ij|^q)."""
    kept = []
    while sum(map(len, kept)) < num_draws:
        Omega = stats.wishart(df=d + 1, scale=np.eye(d) / lam).rvs(200_000, random_state=rng)
        kept.append(Omega[np.log(rng.uniform(size=len(Omega))) < log_factor(Omega, lam, q, d)])
    return np.concatenate(kept)[:num_draws]
