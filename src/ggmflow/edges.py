"""Which pairs are edges: a two-group model of their scores, and the cut of highest expected F1.

    z_i = E ω_i / sd ω_i ~ (1 − π) N(0, σ²) + π N(0, σ²(1 + a²)),   p_i = P(i is an edge | z),
    the k pairs of largest p_i for which 2 Σ_{i≤k} p_i / (k + Σ_i p_i) is largest.

No entry of a continuous posterior is exactly zero, and where rows are few its sign probabilities say more about the
prior than about edges. What the draws do tell is which scores stand out from the bulk: σ is the spread of pairs without
an edge, a the size of edges beside it. The scores alone do not determine π, σ and a well, so p averages over all three.
"""

from numbers import Real
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import logsumexp, ndtri

from ggmflow.estimates import Sample

Pairs = Float[np.ndarray, " m"]
Chosen = Bool[np.ndarray, " m"]

# The rules, with the numbers that belong to each.
RULES = {"f1": {}, "interval": {"level": 0.9}, "fdr": {"rate": 0.1}, "probability": {"threshold": 0.1, "cut": 0.5}}

# σ relative to the median of all |z|, which some edges may have raised.
_SPREAD = np.linspace(0.6, 1.1, 11)
_SIZE = np.geomspace(0.75, 12, 9)  # a: smaller ones cannot be told from zero, larger ones are never mistaken for it
_SHARE = np.geomspace(0.3, 8, 12)  # π relative to its prior mean
_NEIGHBOURS, _WORTH = 2, 4  # edges of a variable a priori, and how many pairs of each variable this is worth
# Where pairs are few, the bulk is no bulk. These |z| of a posterior without shrinkage count as pairs then.
_ANCHOR = ndtri(0.5 + 0.5 * np.array([0.1, 0.3, 0.5, 0.7, 0.9]))
_LARGEST, _GROUP = 80.0, 8  # log of a factor, and how many factors may be multiplied: e⁶⁴⁰ is still a number
_BLOCK = 512 * _GROUP  # pairs at a time, for every π and a
_FLOOR = 0.01  # of the bulk: scores have a larger error by the number of draws alone


class TwoGroups(NamedTuple):
    """What the two-group model says of m pairs.

    Attributes
    ----------
    probability : (m,) array
        Of being an edge; it grows with |z|.
    share : float
        Mean of π a priori.
    log_bayes_factor : float
        Of two groups against one. Below zero the scores could as well be those of a graph without edges.
    """

    probability: Pairs
    share: float
    log_bayes_factor: float


class EdgeSelection(NamedTuple):
    """Edges and the rule that chose them.

    Attributes
    ----------
    edges : (s, d) array of bool
        No variable has an edge to itself.
    rule : str
        The rule in words, with its numbers.
    probability : (s, d) array or None
        The rule's own probability of an edge, 0 for a variable and itself: that of the two-group model, or
        P(|association| > threshold). Intervals have none.
    expected_fdr, expected_f1 : float
        Expected share of false ones among the edges, and expected F1, by the two-group model whatever the rule. Without
        edges the first is 0 and the second the probability that there are none.
    n_edges : int
        Every pair counts once.
    """

    edges: Bool[np.ndarray, "s d"]
    rule: str
    probability: Float[np.ndarray, "s d"] | None
    expected_fdr: float
    expected_f1: float
    n_edges: int

    def __repr__(self) -> str:
        pairs = f"{self.n_edges} {'edge' if self.n_edges == 1 else 'edges'} by {self.rule}"
        return f"<EdgeSelection: {pairs}; fields {', '.join(self._fields)}>"


def two_groups(scores: Pairs, n_features: int) -> TwoGroups:
    """Probability of an edge from the scores of all pairs.

    A priori π ~ Beta(8, 4d − 8): two neighbours for each variable, as sure as if four of its pairs had been seen. Below
    five variables it is Beta(8, 8). log a and σ are uniform on their ranges.

    Parameters
    ----------
    scores : (m,) array
        z, with any sign.
    n_features
        d.

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
    spread = max(np.median(np.append(np.abs(scores), _ANCHOR)) / ndtri(0.75), _FLOOR) * _SPREAD

    odds = (pi / (1 - pi))[:, None]
    # Equal scores stay equal to the last bit; room for zeros at the end, so that pairs come in whole groups.
    unique, place, count = np.unique(scores**2, return_inverse=True, return_counts=True)
    square = np.append(np.repeat(unique, count), np.zeros(-scores.size % _GROUP))
    slope, start = (0.5 * _SIZE**2 / (1 + _SIZE**2))[:, None], (0.5 * np.log1p(_SIZE**2))[:, None]

    def ratio(square: Pairs, sigma: float) -> tuple[Float[np.ndarray, "a m"], Float[np.ndarray, "a m"]]:
        """r = N(z | 0, σ²(1 + a²))/N(z | 0, σ²) for every a, at most e⁸⁰, and what log r has lost by that.

        log(1 + o·r) = log(1 + o·e⁸⁰) + log r − 80 beyond, to all digits.
        """
        log_ratio = slope * (square / sigma**2) - start
        held = np.minimum(log_ratio, _LARGEST)
        return np.exp(held), log_ratio - held

    one = -0.5 * square.sum() / spread**2 - scores.size * np.log(spread)
    two = np.zeros((spread.size, _SIZE.size, pi.size)) + one[:, None, None]
    for s, sigma in enumerate(spread):
        for begin in range(0, square.size, _BLOCK):
            part = square[begin : begin + _BLOCK]
            r, lost = ratio(part, float(sigma))
            r[:, max(scores.size - begin, 0) :] = 0
            # Σ log(1 + o·r): logarithms of products of a few factors are as good, and fewer.
            factors = (1 + odds * r[:, None]).reshape(_SIZE.size, pi.size, _GROUP, -1)
            two[s] += np.log(factors.prod(axis=2)).sum(axis=2) + lost.sum(axis=1)[:, None]
    two += scores.size * np.log1p(-pi) + log_prior - np.log(_SIZE.size)
    weight = np.exp(two - logsumexp(two))
    probability = np.zeros(unique.size)
    for s in np.flatnonzero(weight.max(axis=(1, 2)) > 1e-9):
        for begin in range(0, unique.size, _BLOCK):
            x = odds * ratio(unique[begin : begin + _BLOCK], float(spread[s]))[0][:, None]
            x /= 1 + x
            probability[begin : begin + _BLOCK] += weight[s].ravel() @ x.reshape(weight[s].size, -1)
    return TwoGroups(probability.clip(0, 1)[place], share, float(logsumexp(two) - logsumexp(one)))


def best_f1(probability: Pairs, at_least: float = 0.0) -> Chosen:
    """The most probable pairs, as many as expected F1 asks for; equal ones are in or out together.

    To choose nothing is worth Π(1 − p_i), the probability that this is right.

    Parameters
    ----------
    probability : (m,) array
        Of being an edge.
    at_least
        Pairs below are never chosen. With the share of edges a priori the scores must speak for an edge; else all of a
        flat ranking would be chosen.

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


def find_rule(rule: str | None = None, **given: float | None) -> tuple[str, dict[str, float]]:
    """A rule and its numbers: what was given, checked, else the default.

    Without a rule it is the one that the first given number belongs to; without numbers, "f1".
    """
    if rule is None:
        named = [name for name, numbers in RULES.items() if any(given.get(key) is not None for key in numbers)]
        rule = named[0] if named else "f1"
    if not isinstance(rule, str) or rule not in RULES:
        shown = repr(rule) if isinstance(rule, str) else f"of type {type(rule).__name__}"
        raise ValueError(f"unknown rule {shown}: choose one of {', '.join(RULES)}")
    numbers = dict(RULES[rule])
    for name, value in given.items():
        if value is None:
            continue
        if name not in numbers:
            known = f"takes {' and '.join(numbers)}" if numbers else "takes no numbers"
            owner = next((each for each, own in RULES.items() if name in own), rule)
            raise ValueError(f"the rule {rule!r} {known}, but {name} was given, which belongs to rule={owner!r}")
        inside = isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < np.inf
        if not inside or (name != "threshold" and not 0 < float(value) < 1):
            limits = "zero or positive" if name == "threshold" else "between 0 and 1"
            raise ValueError(f"{name} must be a number {limits}, got {value!r}")
        numbers[name] = float(value)
    return rule, numbers


def select(
    sample: Sample, w: Float[np.ndarray, " N"], n_features: int, rule: str, numbers: dict[str, float]
) -> EdgeSelection:
    """Edges by one of the rules.

    Parameters
    ----------
    sample, w
        Draws of the free entries and their weights.
    n_features
        d.
    rule, numbers
        As `find_rule` gives them.

    Returns
    -------
    EdgeSelection
    """
    free = sample.free
    pairs = np.flatnonzero(~free.diagonal)
    mean, sd = sample.mean(w)[pairs], sample.sd(w)[pairs]
    z = np.abs(np.divide(mean, sd, out=np.zeros_like(mean), where=sd > 0))  # a single draw has no spread: nothing known
    groups = two_groups(z, n_features)
    probability: Pairs | None = groups.probability
    if rule == "interval":
        level = numbers["level"]
        lower, upper = sample.quantile([(1 - level) / 2, (1 + level) / 2], w)
        chosen, probability = sample.excludes_zero(lower, upper)[pairs], None
        words = f"{100 * level:g} % credible interval excludes zero"
    elif rule == "probability":
        probability = sample.edge_probability(numbers["threshold"], w)[pairs]
        chosen = probability > numbers["cut"]
        words = f"P(|association| > {numbers['threshold']:g}) > {numbers['cut']:g}"
    elif rule == "fdr":
        chosen = largest_set(1 - groups.probability, numbers["rate"])
        words = f"expected false discovery rate ≤ {numbers['rate']:g}, two-group model: {_cut(z, chosen)}"
    else:
        chosen = best_f1(groups.probability, groups.share)
        words = f"highest expected F1, two-group model: {_cut(z, chosen)}"
    false = float(np.mean(1 - groups.probability[chosen])) if chosen.any() else 0.0
    if rule == "f1" and chosen.any():
        words += f", expected false discovery rate {false:.2f}"
        if groups.log_bayes_factor < 0:
            words += "; the scores could be those of a graph without edges"

    def matrix(values: np.ndarray) -> np.ndarray:
        out = np.zeros(free.diagonal.shape, values.dtype)
        out[pairs] = values
        return out[free.position]

    return EdgeSelection(
        edges=matrix(chosen),
        rule=words,
        probability=None if probability is None else matrix(probability),
        expected_fdr=false,
        expected_f1=expected_f1(groups.probability, chosen),
        n_edges=int(chosen.sum()),
    )


def _cut(z: Pairs, chosen: Chosen) -> str:
    return f"|mean|/sd ≥ {z[chosen].min():.3g}" if chosen.any() else "no pair qualifies"
