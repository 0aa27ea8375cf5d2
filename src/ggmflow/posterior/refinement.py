"""From draws of a flow to exact ones: many short chains of the exact sampler, and how far they have converged.

    Ω₀ ~ flow  →  Ω_t = t sweeps later,   t = T/2 … T are kept

The flow's error is gone once the distribution of Ω_t has stopped changing; the change up to then measures that error.
"""

from typing import NamedTuple

import numpy as np
from arviz_stats.base.array import array_stats
from jaxtyping import Array, Float, Key

from ggmflow.posterior.source import Refinable
from ggmflow.posterior.weighted_draws import WeightedDraws

_LEVELS = [0.05, 0.5, 0.95]
_MIN_KEPT, _MAX_KEPT = 4, 10  # states of a chain: R̂ needs two in each half
_MEMORY = 2**27  # bytes of all states kept
_CONVERGED = 1.01  # R̂ below which the states have stopped changing


class Refinement(NamedTuple):
    """Convergence of exact chains that were started at draws of a flow, and the flow's error by them.

    Attributes
    ----------
    sweeps, num_chains
        Length and number of the chains.
    rhat
        Largest split-R̂ of any entry. The states of all chains after one sweep count as one sequence, those after
        another sweep as another: it is 1 when the distribution of the states has stopped changing.
    ess
        Smallest bulk effective number of draws of any entry, over the second half of all chains.
    drift
        Distance of the flow's own 5, 50 and 95 % quantiles from the refined ones, in posterior standard deviations,
        mean over the entries: the flow's error, if R̂ is near 1.
    """

    sweeps: int
    num_chains: int
    rhat: float
    ess: float
    drift: float

    @property
    def converged(self) -> bool:
        """Whether R̂ is below 1.01."""
        return self.rhat < _CONVERGED


def run_chains(
    source: Refinable,
    key: Key[Array, ""],
    start: Float[np.ndarray, "chains s d"],
    draws: WeightedDraws,
    sweeps: int,
) -> tuple[Float[np.ndarray, "N s d"], Refinement]:
    """Run exact chains from given rows.

    Parameters
    ----------
    source
        The source of the rows.
    key
        For the chains.
    start
        Rows to start from; see `Refinable.refine`.
    draws
        Draws of the source; without their weights they are compared with the chains.
    sweeps
        Length of the chains.

    Returns
    -------
    states : (N, s, d) array
        The second half of all chains, their last states first.
    refinement
    """
    keep = int(np.clip(_MEMORY // start.nbytes, _MIN_KEPT, _MAX_KEPT))
    chains = source.refine(key, start, max(sweeps, keep), keep)
    kept, free = chains.draws[:, keep // 2 :], draws.free
    states = np.swapaxes(kept[:, ::-1], 0, 1).reshape(-1, *kept.shape[2:])
    entries = kept[:, :, free.row, free.column]
    refined = WeightedDraws(entries.reshape(-1, len(free.row)).T, draws.names, draws.query)
    drift = np.abs(draws.using(False).quantile(_LEVELS) - refined.quantile(_LEVELS)) / refined.sd()
    return states, Refinement(
        sweeps=sweeps,
        num_chains=len(start),
        # Short chains forget their start slowly, so each of them is compared with itself at another time.
        rhat=float(np.max(array_stats.rhat(entries, chain_axis=1, draw_axis=0, method="rank"))),
        ess=float(min(len(states), np.min(array_stats.ess(entries, chain_axis=0, draw_axis=1, method="bulk")))),
        drift=float(np.mean(drift)),
    )
