"""From draws of a flow to exact ones: many short chains of the exact sampler, and what they tell.

    Ω₀ ~ flow  →  Ω_t = t sweeps later,   t = T/2 … T are kept

Whatever the flow got wrong is gone once the distribution of Ω_t has stopped moving; how far it has moved by then is the
flow's error.
"""

from typing import NamedTuple

import numpy as np
from arviz_stats.base.array import array_stats
from jaxtyping import Array, Float, Key

from ggmflow.model.precision import FreeEntries
from ggmflow.posterior.estimates import Sample
from ggmflow.posterior.source import Refinable

_LEVELS = [0.05, 0.5, 0.95]
_MIN_KEPT, _MAX_KEPT = 4, 10  # states of a chain: R̂ needs two in each half
_MEMORY = 2**27  # bytes of all states kept


class Refinement(NamedTuple):
    """What exact chains, started at draws of a flow, say about themselves and about the flow.

    Attributes
    ----------
    sweeps, num_chains
        Length and number of the chains.
    rhat
        Largest split-R̂ of any entry. The states of all chains after one sweep count as one sequence, those after
        another sweep as another: it is 1 when the distribution of the states has stopped moving.
    ess
        Smallest bulk effective number of draws of any entry, over the second half of all chains.
    drift
        How far the flow's own 5, 50 and 95 % quantiles are from the refined ones, in posterior standard deviations,
        mean over the entries: the flow's error, if R̂ is near 1.
    """

    sweeps: int
    num_chains: int
    rhat: float
    ess: float
    drift: float


def run_chains(
    source: Refinable,
    key: Key[Array, ""],
    start: Float[np.ndarray, "chains s d"],
    free: FreeEntries,
    plain: Sample,
    sweeps: int,
) -> tuple[Float[np.ndarray, "N s d"], Refinement]:
    """Run exact chains from given rows.

    Parameters
    ----------
    source
        What the rows were drawn from.
    key
        For the chains.
    start
        Rows to start from; see `Refinable.refine`.
    free
        Where the free entries stand.
    plain
        Draws of the source as they are, to compare with.
    sweeps
        Length of the chains.

    Returns
    -------
    states : (N, s, d) array
        The second half of all chains, their last states first.
    refinement
        What they tell.
    """
    keep = int(np.clip(_MEMORY // start.nbytes, _MIN_KEPT, _MAX_KEPT))
    chains = source.refine(key, start, max(sweeps, keep), keep)
    kept = chains.draws[:, keep // 2 :]
    states = np.swapaxes(kept[:, ::-1], 0, 1).reshape(-1, *kept.shape[2:])
    entries = kept[:, :, free.row, free.column]
    refined = Sample(entries.reshape(-1, len(free.row)).T, free)
    w, w_plain = (np.full(sample.values.shape[1], 1 / sample.values.shape[1]) for sample in (refined, plain))
    drift = np.abs(plain.quantile(_LEVELS, w_plain) - refined.quantile(_LEVELS, w)) / refined.sd(w)
    return states, Refinement(
        sweeps=sweeps,
        num_chains=len(start),
        # Short chains forget their start slowly, so each of them is compared with itself at another time.
        rhat=float(np.max(array_stats.rhat(entries, chain_axis=1, draw_axis=0, method="rank"))),
        ess=float(min(len(states), np.min(array_stats.ess(entries, chain_axis=0, draw_axis=1, method="bulk")))),
        drift=float(np.mean(drift)),
    )
