"""The Bayesian graphical lasso: the exact sampler at q = 1, with λ given or with a Gamma hyperprior on it.

λ ~ Gamma(r, rate s)   ⇒   λ | Ω ~ Gamma(r + d(d+1)/2, rate s + ½ Σ_ij |ω_ij|)
"""

import jax

from ggmflow.data.scatter import Scatter
from ggmflow.gibbs import Chains, sample


def bayesian_graphical_lasso(
    scatter: Scatter,
    lam: float | None = None,
    *,
    hyperprior: tuple[float, float] | None = None,
    num_chains: int = 4,
    num_draws: int = 1000,
    num_warmup: int = 500,
    thin: int = 1,
    random_state: int = 0,
) -> Chains:
    """Draw from the posterior of the precision matrix under the l_1 prior.

    Parameters
    ----------
    scatter
        The data.
    lam
        λ, or None to draw it too, under `hyperprior`.
    hyperprior
        Shape r and rate s of the Gamma prior on λ, if `lam` is None; default (1, 0.01), the usual weak prior.
    num_chains, num_draws, num_warmup, thin
        As in `ggmflow.gibbs.sample`.
    random_state
        Seed.

    Returns
    -------
    Chains
        If `lam` was not given, its attribute `lam` holds the draws of λ, (chains, draws).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> chains = bayesian_graphical_lasso(Scatter.from_data(X), num_draws=100)
    >>> chains.draws.shape, chains.lam.shape
    ((4, 100, 3, 3), (4, 100))
    """
    if lam is not None and hyperprior is not None:
        raise ValueError("Give either lam or a hyperprior on it, not both.")
    return sample(
        jax.random.key(random_state),
        scatter,
        1.0 if lam is None else lam,
        q=1.0,
        num_chains=num_chains,
        num_draws=num_draws,
        num_warmup=num_warmup,
        thin=thin,
        hyperprior=(hyperprior or (1.0, 0.01)) if lam is None else None,
    )
