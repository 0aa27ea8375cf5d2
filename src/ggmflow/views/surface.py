"""Evidence log p(X | λ, q) on a grid across the fitted ranges, and its maximum."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.evidence.search import choose, grid
from ggmflow.model.conditions import Choice


class Surface(NamedTuple):
    """Evidence on a grid of k values of λ and m values of q.

    Attributes
    ----------
    lam : (k,) array
        Values of λ, ascending.
    q : (m,) array
        Values of q, ascending.
    log_evidence : (k, m) array
        log p(X | λ, q).
    best : Choice
        λ and q of highest evidence, which need not be on the grid.
    """

    lam: Float[np.ndarray, " k"]
    q: Float[np.ndarray, " m"]
    log_evidence: Float[np.ndarray, "k m"]
    best: Choice


def evidence_surface(model: GraphicalFlow, num_lam: int = 9, num_q: int = 5) -> Surface | None:
    """Return the evidence on a grid across the fitted ranges, or None if T = 1 was not fitted.

    The values are those of ``model.evidence(exact=False)`` with few draws; the optimum is ``model.select()``.

    Parameters
    ----------
    model
        Fitted model.
    num_lam, num_q
        Size of the grid; a range of one value has one point.
    """
    if model.temperature_range_[1] < 1:
        return None
    ranges = model.ranges_
    found = {}  # `choose` asks for most points of the grid

    def evidence(lam: float, q: float):
        if (lam, q) not in found:
            found[lam, q] = model.quick_evidence(lam, q)
        return found[lam, q]

    best = choose(evidence, ranges, num_lam=num_lam, num_q=num_q)
    log_lams, qs = grid(ranges, num_lam, num_q)
    lams = np.exp(log_lams)
    values = np.array([[evidence(float(lam), float(q)).value for q in qs] for lam in lams])
    return Surface(lams, qs, values, best)
