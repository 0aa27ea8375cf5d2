"""Edges of a posterior: scores of all pairs with shrinkage accounted for, their probabilities, and a selection.

    u_i = √T |E ω_i|/(σ_i sd ω_i),     σ_i² = 1 − τ_i Var ω_i,     τ_i = (λ/T) q E|ω_i|^q / E ω_i²

No entry of a continuous posterior is exactly zero, and where rows are few its sign probabilities depend more on the
prior than on edges. So the scores are compared with those that pairs without an edge would have (`two_groups`). Without
shrinkage these are about standard normal, because a posterior is as wide as the sampling distribution of its mean. A
penalty narrows the posterior of ω from the variance s² of its likelihood to Var ω, 1/Var ω = 1/s² + τ, and multiplies
its mean by σ² = Var ω/s²; the ratios E ω/sd ω of pairs without an edge then have the standard deviation σ. τ is the
precision of the normal prior that has the same E[ω ∂ log prior/∂ω] as the l_q penalty. The penalties of other entries
make c, the standard deviation of u, less than 1: the more, the larger the prior's share of information τ Var ω is. With
many variables and a weak penalty c is above 1: the posterior of Ω is then narrower than the sampling distribution of
its mean, by up to √((n + d + 1)/(n − d)).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import ndtr

from ggmflow.posterior.edge_rules import EdgeRule
from ggmflow.posterior.two_groups import Chosen, Pairs, TwoGroups, expected_f1, two_groups
from ggmflow.posterior.weighted_draws import WeightedDraws

_WIDEST = 2.0  # c, where variables are nearly as many as rows
_LEAST_KEPT = 0.04  # of σ²: below, the error of E ω by the number of draws would be taken for a score


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


class EdgeSelection(NamedTuple):
    """Edges and the rule that chose them.

    Attributes
    ----------
    edges : (s, d) array of bool
        No variable has an edge to itself.
    rule : str
        The rule with its numbers, for people.
    probability : (s, d) array or None
        The rule's own probability of an edge, 0 for a variable and itself: that of the two-group model, or
        P(|association| > threshold). Intervals have none.
    expected_fdr, expected_f1 : float
        Expected share of false edges, and expected F1, by the two-group model for every rule. Without edges the first
        is 0 and the second the probability that there are none.
    n_edges : int
        Every pair counts once.
    key : str
        The rule's key in `edge_rules.EDGE_RULES`.
    parameters : dict
        The values of its parameters.
    could_be_empty : bool
        Whether there are edges, but the scores could be those of a graph without edges: the two-group model is less
        probable than a single group.
    """

    edges: Bool[np.ndarray, "s d"]
    rule: str
    probability: Float[np.ndarray, "s d"] | None
    expected_fdr: float
    expected_f1: float
    n_edges: int
    key: str = ""
    parameters: Mapping[str, float] = {}
    could_be_empty: bool = False

    def __repr__(self) -> str:
        pairs = f"{self.n_edges} {'edge' if self.n_edges == 1 else 'edges'} by {self.rule}"
        return f"<EdgeSelection: {pairs}; fields {', '.join(self._fields)}>"


class Scores(NamedTuple):
    """Distance of all pairs from zero.

    Attributes
    ----------
    u : (m,) array
        √T |mean|/(σ sd): shrinkage accounted for.
    z : (m,) array
        √T |mean|/sd.
    spread : (float, float)
        Range of c, the standard deviation of u of pairs without an edge.
    """

    u: Pairs
    z: Pairs
    spread: tuple[float, float]


class ScoredPairs(NamedTuple):
    """All pairs of a posterior as the rules get them.

    Attributes
    ----------
    draws
        Draws of the free entries.
    entries : (m,) array of int
        Positions of the pairs among the free entries.
    probability : (m,) array
        Probability of being an edge, by the two-group model.
    share : float
        Share of edges a priori.
    could_be_empty : bool
        Whether the scores could be those of a graph without edges.
    """

    draws: WeightedDraws
    entries: Int[np.ndarray, " m"]
    probability: Pairs
    share: float
    could_be_empty: bool

    def expected_fdr(self, chosen: Chosen) -> float:
        """Expected share of false ones among chosen pairs; 0 if there are none."""
        return float(np.mean(1 - self.probability[chosen])) if chosen.any() else 0.0

    def smallest(self, chosen: Chosen) -> str:
        """The smallest probability among chosen pairs, as a text."""
        if not chosen.any():
            return "no pair qualifies"
        # Rounded down: rounded up the statement would be false.
        return f"P(edge) ≥ {np.floor(100 * self.probability[chosen].min()) / 100:.2f}"


def score_pairs(
    draws: WeightedDraws,
    penalties: Sequence[Penalty],
    temperature: float = 1.0,
    n_samples: float | None = None,
) -> Scores:
    """Scores of all pairs.

    Parameters
    ----------
    draws
        Draws of the free entries.
    penalties
        Penalties of the density that was drawn from. Without them shrinkage is not known, and u is z.
    temperature
        T. The draws are √T times as wide as those of the posterior.
    n_samples
        n, if it is known.
    """
    entries = np.flatnonzero(~draws.free.diagonal)
    mean, sd = draws.mean()[entries], draws.sd()[entries]
    # A single draw has no standard deviation: its scores are zero.
    z = np.sqrt(temperature) * np.abs(np.divide(mean, sd, out=np.zeros_like(mean), where=sd > 0))
    kept = kept_share(draws, penalties)[entries]
    typical = float(np.median(kept)) if kept.size else 1.0
    return Scores(z / np.sqrt(kept), z, ((1 + typical) / 2, overconfidence(n_samples, len(draws.names), typical)))


def overconfidence(n_samples: float | None, n_features: int, kept: float) -> float:
    """√((n + d′ + 1)/(n − d′)): width of the sampling distribution of a posterior mean, relative to the posterior's.

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


def kept_share(draws: WeightedDraws, penalties: Sequence[Penalty]) -> Float[np.ndarray, " D"]:
    """σ² = 1 − τ Var ω of every entry, the data's share of its information; 1 for diagonal entries.

    Parameters
    ----------
    draws, penalties
        As in `score_pairs`.
    """
    mean, variance = draws.mean(), draws.sd() ** 2
    pull = np.zeros_like(mean)
    for each in penalties:
        pull += each.share * each.strength * each.q * draws.power(each.q)
    square = mean**2 + variance
    share = np.divide(pull * variance, square, out=np.zeros_like(mean), where=square > 0)
    return np.where(draws.free.diagonal, 1.0, (1 - share).clip(_LEAST_KEPT, 1))


def edge_probability(groups: TwoGroups, z: Pairs, widest: float = 1.0) -> Pairs:
    """Probability of an edge: that of the two-group model, but at least that of a nonzero sign.

    For a single pair 1 − 2Φ(−z) is the certainty of its sign. Among m pairs it is 1 − m·2Φ(−z), by Bonferroni. Where
    the posterior is too narrow, z is divided by `overconfidence`.

    Parameters
    ----------
    groups
        Result of the two-group model.
    z : (m,) array
        √T |mean|/sd.
    widest
        As `overconfidence` gives it.
    """
    return np.maximum(groups.probability, 1 - 2 * z.size * ndtr(-z / widest))


def select(
    draws: WeightedDraws,
    rule: EdgeRule,
    parameters: Mapping[str, float],
    penalties: Sequence[Penalty] = (),
    temperature: float = 1.0,
    n_samples: float | None = None,
) -> EdgeSelection:
    """Edges by one of the rules.

    Parameters
    ----------
    draws
        Draws of the free entries.
    rule, parameters
        As `find_rule` gives them.
    penalties, temperature, n_samples
        As in `score_pairs`.

    Returns
    -------
    EdgeSelection
    """
    scores = score_pairs(draws, penalties, temperature, n_samples)
    groups = two_groups(scores.u, len(draws.names), scores.spread)
    probability = edge_probability(groups, scores.z, scores.spread[1])
    entries = np.flatnonzero(~draws.free.diagonal)
    scored = ScoredPairs(draws, entries, probability, groups.share, groups.log_bayes_factor < 0)
    found = rule.select(scored, **parameters)

    def matrix(values: np.ndarray) -> np.ndarray:
        out = np.zeros(len(draws.entries), values.dtype)
        out[entries] = values
        return draws.matrix(out)

    return EdgeSelection(
        edges=matrix(found.chosen),
        rule=found.text,
        probability=None if found.probability is None else matrix(found.probability),
        expected_fdr=scored.expected_fdr(found.chosen),
        expected_f1=expected_f1(probability, found.chosen),
        n_edges=int(found.chosen.sum()),
        key=rule.key,
        parameters=dict(parameters),
        could_be_empty=scored.could_be_empty and bool(found.chosen.any()),
    )
