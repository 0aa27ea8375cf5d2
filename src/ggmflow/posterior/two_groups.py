"""A two-group model of the scores of all pairs, and the sets of pairs that it chooses.

    u_i ~ (1 − π) N(0, c²) + π N(0, c²(1 + a²)),     p_i = P(i is an edge | u)
    highest expected F1: the k pairs of largest p_i for which 2 Σ_{i≤k} p_i / (k + Σ_i p_i) is largest

The null distribution does not depend on the largest or the smallest scores of a table: neither a duplicated column nor
a network in which most pairs are edges moves it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import logsumexp

Pairs = Float[np.ndarray, " m"]
Chosen = Bool[np.ndarray, " m"]

_POINTS = 8  # values of c
_SIZE = np.geomspace(0.75, 12, 9)  # a: smaller values cannot be distinguished from zero, larger ones need no finer grid
_SHARE = np.geomspace(0.3, 8, 12)  # π relative to its prior mean
_NEIGHBOURS, _WORTH = 2, 4  # edges of a variable a priori, and the number of its pairs that this prior is worth
_BOUND = 8.0  # larger scores are edges without doubt; they are cut so that they do not decide about the others
_GROUP = 5  # factors that may be multiplied: each is below e¹²⁸, because scores are bounded and c is at least ½
_BLOCK = 512 * _GROUP  # pairs at a time, for every π and a


class TwoGroups(NamedTuple):
    """Result of the two-group model for m pairs.

    Attributes
    ----------
    probability : (m,) array
        Probability of being an edge; it grows with |u|.
    share : float
        Mean of π a priori.
    log_bayes_factor : float
        For two groups against one. Below zero the scores could as well be those of a graph without edges.
    """

    probability: Pairs
    share: float
    log_bayes_factor: float


def two_groups(scores: Pairs, n_features: int, spread: tuple[float, float] = (1.0, 1.0)) -> TwoGroups:
    """Probability of an edge from the scores of all pairs.

    A priori π ~ Beta(8, 4d − 8): two neighbours for each variable, with the weight of four observed pairs of it. Below
    five variables it is Beta(8, 8). log a and c are uniform on their ranges.

    Parameters
    ----------
    scores : (m,) array
        u, with any sign.
    n_features
        d.
    spread : (float, float)
        Range of c, at least ½.

    Returns
    -------
    TwoGroups

    Examples
    --------
    >>> z = np.append(np.random.default_rng(0).normal(size=400), [-9.0, 9.0])
    >>> found = two_groups(z, 30)
    >>> found.probability[-2:].round(2), round(found.probability[:-2].sum() / 400, 2)
    (array([1., 1.]), np.float64(0.02))
    """
    alpha, beta = _NEIGHBOURS * _WORTH, max(_WORTH * n_features - _NEIGHBOURS * _WORTH, _NEIGHBOURS * _WORTH)
    share = alpha / (alpha + beta)
    pi = share * _SHARE
    pi = pi[pi < 1]
    log_prior = alpha * np.log(pi) + (beta - 1) * np.log1p(-pi)  # α, not α − 1: the points are even in log π
    log_prior -= logsumexp(log_prior)

    widths = np.linspace(*spread, _POINTS)
    odds = (pi / (1 - pi))[:, None]
    # Equal scores stay equal to the last bit; zeros are appended so that pairs come in whole groups.
    unique, place, count = np.unique(np.minimum(scores**2, _BOUND**2), return_inverse=True, return_counts=True)
    square = np.append(np.repeat(unique, count), np.zeros(-scores.size % _GROUP))
    slope, start = (0.5 * _SIZE**2 / (1 + _SIZE**2))[:, None], (0.5 * np.log1p(_SIZE**2))[:, None]

    def ratio(square: Pairs, c: float) -> Float[np.ndarray, "a m"]:
        """N(u | 0, c²(1 + a²))/N(u | 0, c²) for every a."""
        return np.exp(slope * (square / c**2) - start)

    one = -0.5 * square.sum() / widths**2 - scores.size * np.log(widths)
    two = np.zeros((widths.size, _SIZE.size, pi.size)) + one[:, None, None]
    for s, c in enumerate(widths.tolist()):
        for begin in range(0, square.size, _BLOCK):
            r = ratio(square[begin : begin + _BLOCK], c)
            r[:, max(scores.size - begin, 0) :] = 0
            # Σ log(1 + o·r), with one logarithm for the product of a few factors.
            factors = (1 + odds * r[:, None]).reshape(_SIZE.size, pi.size, _GROUP, -1)
            two[s] += np.log(factors.prod(axis=2)).sum(axis=2)
    two += scores.size * np.log1p(-pi) + log_prior - np.log(_SIZE.size)
    weight = np.exp(two - logsumexp(two))
    probability = np.zeros(unique.size)
    for s in np.flatnonzero(weight.max(axis=(1, 2)) > 1e-9):
        for begin in range(0, unique.size, _BLOCK):
            x = odds * ratio(unique[begin : begin + _BLOCK], float(widths[s]))[:, None]
            x /= 1 + x
            probability[begin : begin + _BLOCK] += weight[s].ravel() @ x.reshape(weight[s].size, -1)
    log_odds = np.asarray(logsumexp(two)) - np.asarray(logsumexp(one))
    return TwoGroups(probability.clip(0, 1)[place], share, float(log_odds))


def best_f1(probability: Pairs, at_least: float = 0.0) -> Chosen:
    """The most probable pairs, as many as give the highest expected F1; equal ones are in or out together.

    The empty set has the value Π(1 − p_i), the probability that it is right.

    Parameters
    ----------
    probability : (m,) array
        Probability of being an edge.
    at_least
        Pairs below are never chosen. With the prior share of edges here, only pairs whose score raises their
        probability can be chosen; otherwise all pairs of a flat ranking would be.

    Examples
    --------
    >>> best_f1(np.array([0.9, 0.1, 0.6, 0.2]))
    array([ True, False,  True, False])
    """
    cuts = np.unique(probability[probability >= at_least])  # ascending
    chosen = np.zeros(probability.shape, bool)
    best = expected_f1(probability, chosen)
    ordered = np.sort(probability)
    total = np.cumsum(ordered[::-1])[::-1]
    first = np.searchsorted(ordered, cuts)
    f1 = 2 * total[first] / (probability.size - first + probability.sum())
    if cuts.size and f1.max() > best:
        chosen = probability >= cuts[f1.argmax()]
    return chosen


def largest_set(error: Pairs, rate: float) -> Chosen:
    """The most pairs, of smallest error first, whose mean error is at most the rate; equal ones are in or out together.

    Examples
    --------
    >>> largest_set(np.array([0.3, 0.0, 0.1, 0.9]), 0.15)
    array([ True,  True,  True, False])
    """
    ordered = np.sort(error)
    last = np.searchsorted(ordered, ordered, side="right") - 1
    mean = (np.cumsum(ordered) / np.arange(1, error.size + 1))[last]
    allowed = ordered[mean <= rate]
    return error <= (allowed.max() if allowed.size else -np.inf)


def expected_f1(probability: Pairs, chosen: Chosen) -> float:
    """2 Σ_{chosen} p_i / (number chosen + Σ_i p_i); Π(1 − p_i) if none are."""
    if not chosen.any():
        return float(np.prod(1 - probability))
    return float(2 * probability[chosen].sum() / (chosen.sum() + probability.sum()))
