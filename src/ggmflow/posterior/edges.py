"""Which pairs are edges: a two-group model of their scores, and the cut of highest expected F1.

    u_i = √T |E ω_i|/(σ_i sd ω_i),     σ_i² = 1 − τ_i Var ω_i,     τ_i = (λ/T) q E|ω_i|^q / E ω_i²
    u_i ~ (1 − π) N(0, c²) + π N(0, c²(1 + a²)),     p_i = P(i is an edge | u)
    chosen: the k pairs of largest p_i for which 2 Σ_{i≤k} p_i / (k + Σ_i p_i) is largest

No entry of a continuous posterior is exactly zero, and where rows are few its sign probabilities say more about the
prior than about edges. So the scores are compared with those that pairs without an edge would have. Without shrinkage
these are about standard normal, because a posterior is as wide as the sampling distribution of its mean. A penalty
narrows the posterior of ω from the variance s² of its likelihood to Var ω, 1/Var ω = 1/s² + τ, and multiplies its mean
by σ² = Var ω/s²; the ratios E ω/sd ω of pairs without an edge then spread by σ. τ is the precision of the normal prior
that has the same E[ω ∂ log prior/∂ω] as the l_q penalty. The penalties of other entries make c less than 1: the more,
the larger the prior's share of information τ Var ω is. With many variables and a weak penalty it is above 1: the
posterior of Ω is then narrower than the sampling distribution of its mean, by up to √((n + d + 1)/(n − d)).

The null distribution does not depend on the largest or the smallest scores of a table: neither a duplicated column nor
a network in which most pairs are edges moves it.
"""

from collections.abc import Sequence
from numbers import Real
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import logsumexp, ndtr

from ggmflow.posterior.estimates import Sample

Pairs = Float[np.ndarray, " m"]
Chosen = Bool[np.ndarray, " m"]

# The rules, with the numbers that belong to each.
RULES = {"f1": {}, "interval": {"level": 0.9}, "fdr": {"rate": 0.1}, "probability": {"threshold": 0.1, "cut": 0.5}}

_WIDEST = 2.0  # c, where variables are nearly as many as rows
_POINTS = 8  # of c, between 1 − half the prior's share of information and 1: what simulated graphs of 30 variables have
_SIZE = np.geomspace(0.75, 12, 9)  # a: smaller ones cannot be told from zero, larger ones are never mistaken for it
_SHARE = np.geomspace(0.3, 8, 12)  # π relative to its prior mean
_NEIGHBOURS, _WORTH = 2, 4  # edges of a variable a priori, and how many pairs of each variable this is worth
_BOUND = 8.0  # scores beyond are edges without doubt; how far beyond must not decide about the others
_LEAST_KEPT = 0.04  # of σ²: below, the error of E ω by the number of draws would be taken for a score
_GROUP = 5  # factors that may be multiplied: each is below e¹²⁸, because scores are bounded and c is at least ½
_BLOCK = 512 * _GROUP  # pairs at a time, for every π and a


class Penalty(NamedTuple):
    """A factor exp(−strength·|ω|^q) of the density that was drawn from.

    Attributes
    ----------
    strength
        λ/T.
    q
        Exponent.
    share
        Probability of this factor in a mixture over conditions.
    """

    strength: float
    q: float
    share: float = 1.0


class TwoGroups(NamedTuple):
    """What the two-group model says of m pairs.

    Attributes
    ----------
    probability : (m,) array
        Of being an edge; it grows with |u|.
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
    could_be_empty : bool
        Whether there are edges, but the scores could be those of a graph without edges.
    """

    edges: Bool[np.ndarray, "s d"]
    rule: str
    probability: Float[np.ndarray, "s d"] | None
    expected_fdr: float
    expected_f1: float
    n_edges: int
    could_be_empty: bool = False

    def __repr__(self) -> str:
        pairs = f"{self.n_edges} {'edge' if self.n_edges == 1 else 'edges'} by {self.rule}"
        return f"<EdgeSelection: {pairs}; fields {', '.join(self._fields)}>"


def two_groups(scores: Pairs, n_features: int, spread: tuple[float, float] = (1.0, 1.0)) -> TwoGroups:
    """Probability of an edge from the scores of all pairs.

    A priori π ~ Beta(8, 4d − 8): two neighbours for each variable, as sure as if four of its pairs had been seen. Below
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
    # Equal scores stay equal to the last bit; room for zeros at the end, so that pairs come in whole groups.
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
            # Σ log(1 + o·r): logarithms of products of a few factors are as good, and fewer.
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


class Scores(NamedTuple):
    """How far all pairs are from zero.

    Attributes
    ----------
    u : (m,) array
        √T |mean|/(σ sd): shrinkage accounted for.
    z : (m,) array
        √T |mean|/sd.
    spread : (float, float)
        Range of c, the spread of u of pairs without an edge.
    """

    u: Pairs
    z: Pairs
    spread: tuple[float, float]


def score_pairs(
    sample: Sample,
    w: Float[np.ndarray, " N"],
    n_features: int,
    penalties: Sequence[Penalty],
    temperature: float = 1.0,
    n_samples: float | None = None,
) -> Scores:
    """Scores of all pairs.

    Parameters
    ----------
    sample, w
        Draws of the free entries and their weights.
    n_features
        d.
    penalties
        Of the density that was drawn from. Without any, nothing is known of shrinkage, and u is z.
    temperature
        T. The draws are √T times as wide as those of the posterior.
    n_samples
        n, if it is known.
    """
    pairs = np.flatnonzero(~sample.free.diagonal)
    mean, sd = sample.mean(w)[pairs], sample.sd(w)[pairs]
    # A single draw has no spread: nothing is known.
    z = np.sqrt(temperature) * np.abs(np.divide(mean, sd, out=np.zeros_like(mean), where=sd > 0))
    kept = kept_share(sample, w, penalties)[pairs]
    typical = float(np.median(kept)) if kept.size else 1.0
    return Scores(z / np.sqrt(kept), z, ((1 + typical) / 2, overconfidence(n_samples, n_features, typical)))


def overconfidence(n_samples: float | None, n_features: int, kept: float) -> float:
    """√((n + d′ + 1)/(n − d′)): how much wider the sampling distribution of a posterior mean is than the posterior.

    Without a penalty Ω has a Wishart posterior with n + d + 1 degrees of freedom, while its mean varies from sample to
    sample as an inverse Wishart matrix does, with n − d. Shrinkage leaves d′ = σ²d of the d entries of a row.

    Parameters
    ----------
    n_samples, n_features
        n and d; 1 is returned where n is not known or zero.
    kept
        σ² of a typical pair.
    """
    if not n_samples:
        return 1.0
    free = min(kept * n_features, 0.999 * n_samples)
    return float(min(np.sqrt((n_samples + free + 1) / (n_samples - free)), _WIDEST))


def kept_share(sample: Sample, w: Float[np.ndarray, " N"], penalties: Sequence[Penalty]) -> Float[np.ndarray, " D"]:
    """σ² = 1 − τ Var ω of every entry, the share of its information that is not the prior's; 1 for diagonal entries.

    Parameters
    ----------
    sample, w, penalties
        As in `score_pairs`.
    """
    mean, variance = sample.mean(w), sample.sd(w) ** 2
    pull = np.zeros_like(mean)
    for each in penalties:
        pull += each.share * each.strength * each.q * sample.power(each.q, w)
    square = mean**2 + variance
    share = np.divide(pull * variance, square, out=np.zeros_like(mean), where=square > 0)
    return np.where(sample.free.diagonal, 1.0, (1 - share).clip(_LEAST_KEPT, 1))


def edge_probability(groups: TwoGroups, z: Pairs, widest: float = 1.0) -> Pairs:
    """Probability of an edge: that of the two-group model, but at least what the posterior says about the sign.

    For a single pair 1 − 2Φ(−z) tells how sure its sign is. Among m pairs it is 1 − m·2Φ(−z), by Bonferroni. Where the
    posterior is too narrow, z is divided by `overconfidence`.

    Parameters
    ----------
    groups
        What the two-group model says.
    z : (m,) array
        √T |mean|/sd.
    widest
        As `overconfidence` gives it.
    """
    return np.maximum(groups.probability, 1 - 2 * z.size * ndtr(-z / widest))


def select(
    sample: Sample,
    w: Float[np.ndarray, " N"],
    n_features: int,
    rule: str,
    numbers: dict[str, float],
    penalties: Sequence[Penalty] = (),
    temperature: float = 1.0,
    n_samples: float | None = None,
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
    penalties, temperature, n_samples
        As in `score_pairs`.

    Returns
    -------
    EdgeSelection
    """
    free = sample.free
    pairs = np.flatnonzero(~free.diagonal)
    scores = score_pairs(sample, w, n_features, penalties, temperature, n_samples)
    groups = two_groups(scores.u, n_features, scores.spread)
    of_edge = edge_probability(groups, scores.z, scores.spread[1])
    probability: Pairs | None = of_edge
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
        chosen = largest_set(1 - of_edge, numbers["rate"])
        words = f"expected false discovery rate ≤ {numbers['rate']:g}, two-group model: {_cut(of_edge, chosen)}"
    else:
        chosen = best_f1(of_edge, groups.share)
        words = f"highest expected F1, two-group model: {_cut(of_edge, chosen)}"
    false = float(np.mean(1 - of_edge[chosen])) if chosen.any() else 0.0
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
        expected_f1=expected_f1(of_edge, chosen),
        n_edges=int(chosen.sum()),
        could_be_empty=bool(chosen.any()) and groups.log_bayes_factor < 0,
    )


def _cut(probability: Pairs, chosen: Chosen) -> str:
    if not chosen.any():
        return "no pair qualifies"
    return f"P(edge) ≥ {np.floor(100 * probability[chosen].min()) / 100:.2f}"  # rounded up it would not be true
