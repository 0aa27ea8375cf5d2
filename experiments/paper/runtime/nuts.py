"""NumPyro's NUTS on the posterior of a precision matrix, for comparison.

    L_jj = softplus(x_jj),   log density of x = log p̃(L) + log|dΩ/dL| + Σ_j log σ(x_jj)

NumPyro is in the extra `benchmark`.
"""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ggmflow import gibbs
from ggmflow.data.scatter import Scatter
from ggmflow.model import target


class NutsRun(NamedTuple):
    """Chains of NUTS and their times.

    Attributes
    ----------
    chains
        Draws (chains, draws, d, d).
    seconds
        Of sampling; compilation and warm-up are left out.
    warmup_seconds
        Of compilation and warm-up.
    steps
        Leapfrog steps a draw, mean; 1023 is the most there are.
    """

    chains: gibbs.Chains
    seconds: float
    warmup_seconds: float
    steps: float


def run_nuts(
    scatter: Scatter,
    lam: float,
    q: float,
    num_draws: int,
    num_warmup: int,
    start: Float[np.ndarray, "chains d d"],
) -> NutsRun:
    """Sample with NUTS in double precision, all chains side by side.

    Parameters
    ----------
    scatter
        The data.
    lam, q
        The condition; T = 1.
    num_draws, num_warmup
        Draws kept of each chain, and those of its adaptation.
    start
        Where each chain starts; draws of the exact posterior favour it most.

    Raises
    ------
    ImportError
        If NumPyro is not installed.
    """
    try:
        from numpyro.infer import MCMC, NUTS  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError("NumPyro is not installed. Run: pip install numpyro") from None

    d = scatter.n_features
    row, col = target.entry_indices(d, d)
    diagonal = row == col
    # NumPyro mixes integers and floats, whatever the user has set.
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        S, n = jnp.asarray(scatter.matrix), float(scatter.n)

        def potential(x):
            columns = target.to_columns(jnp.where(diagonal, jax.nn.softplus(x), x), d, d)
            log_p = target.unnormalized_log_prob(columns, S, n, lam, q) + target.log_volume(columns)
            return -log_p - jnp.sum(jax.nn.log_sigmoid(x[diagonal]))

        entries = np.linalg.cholesky(start)[:, row, col]
        initial = entries.copy()
        initial[:, diagonal] = np.log(np.expm1(entries[:, diagonal]))
        sampler = MCMC(
            NUTS(potential_fn=potential),
            num_warmup=num_warmup,
            num_samples=num_draws,
            num_chains=len(start),
            chain_method="vectorized",
            progress_bar=False,
        )
        begin = time.perf_counter()
        sampler.warmup(jax.random.key(0), init_params=jnp.asarray(initial))
        jax.block_until_ready(sampler.post_warmup_state)
        warmup_seconds = time.perf_counter() - begin
        sampler.run(jax.random.key(1), extra_fields=("num_steps",))  # compiles the sampling phase
        sampler.post_warmup_state = sampler.last_state  # continue from there
        begin = time.perf_counter()
        sampler.run(jax.random.key(2), extra_fields=("num_steps",))
        x = np.array(sampler.get_samples(group_by_chain=True))
        seconds = time.perf_counter() - begin
        steps = float(np.mean(sampler.get_extra_fields()["num_steps"]))
    x[..., diagonal] = np.logaddexp(0, x[..., diagonal])
    L = np.zeros((*x.shape[:2], d, d))
    L[..., row, col] = x
    conditions = (np.full(len(start), value) for value in (lam, q, 1.0))
    return NutsRun(gibbs.Chains(L @ np.swapaxes(L, -1, -2), *conditions), seconds, warmup_seconds, steps)
