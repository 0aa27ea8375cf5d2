"""Two posteriors of the same variables, pair by pair: how much does an association differ between two groups?

    δ_ij = ρ_ij(Ω″) − ρ_ij(Ω′),     Ω′ ~ p(Ω | X′),  Ω″ ~ p(Ω | X″), independent

ρ is the association of `Posterior.association`: the partial correlation where both variables belong to the query.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Int

from ggmflow.data import Scatter
from ggmflow.posterior import Posterior, _check_threshold, _tails
from ggmflow.weights import blocks, resample, sort_order, weighted_quantile

_COLUMNS = ("row", "column", "difference", "sd", "lower", "upper", "p_positive", "p_different", "changed")
_SEED = 0  # of the pairing, which is all that is random


def compare(
    first: Posterior,
    second: Posterior,
    level: float = 0.9,
    threshold: float = 0.1,
    names: Sequence[str] = ("first", "second"),
) -> pd.DataFrame:
    """How the association of each pair of variables differs between two groups.

    Parameters
    ----------
    first, second
        Posteriors of different data, of the same variables (in any order), the same query, and the same λ, q and T: the
        prior shrinks associations, so other values would make equal groups look different. Two averages over λ and q
        may be compared, too. Where one group has far fewer rows than the other, the same λ shrinks it more.
    level
        Of the credible intervals of differences.
    threshold
        How large a difference matters.
    names
        What to call the groups.

    Returns
    -------
    DataFrame
        A row for each pair: row, column (names), the posterior mean of the association in each group, difference
        (second − first; its mean), sd, lower, upper, p_positive = P(δ > 0), p_different = P(|δ| > threshold), changed
        (the interval excludes zero). `attrs` holds level, threshold, lam, q, temperature, rule (what `changed` means)
        and the message of each group's `diagnostics`. Each interval is for one pair by itself: among many equal pairs
        some are found changed.

    Notes
    -----
    For a variable outside the query, association is a regression weight in the working scale, which is that of each
    group's own standard deviations.
    """
    (low, high), threshold, (one, other) = _tails(level), _check_threshold(threshold), _check_labels(names)
    _check_comparable(first, second)
    samples = first._sample, second._sample
    weights = first._use(None), second._use(None)
    num_pairs = max(first.num_draws, second.num_draws)
    rng = np.random.default_rng(_SEED)
    # In random order: draws of two flows from the same seed come from the same noise, and must not stay side by side.
    chosen = [resample(rng, w, num_pairs) for w in weights]
    equal = np.full(num_pairs, 1 / num_pairs)
    mine = np.flatnonzero(~first._free.diagonal)
    entries = mine, _matching_entries(first, second)[mine]

    numbers = np.empty((len(mine), 8))
    for part in blocks(len(mine), num_pairs):
        draws = [sample.association_draws(where[part]) for sample, where in zip(samples, entries, strict=True)]
        means = [values @ w for values, w in zip(draws, weights, strict=True)]
        variance = sum((v - m[:, None]) ** 2 @ w for v, m, w in zip(draws, means, weights, strict=True))
        difference = draws[1][:, chosen[1]] - draws[0][:, chosen[0]]
        interval = weighted_quantile(difference, sort_order(difference), equal, np.array([low, high]))
        positive, large = (difference > 0).mean(axis=1), (np.abs(difference) > threshold).mean(axis=1)
        numbers[part] = np.stack([*means, means[1] - means[0], np.sqrt(variance), *interval, positive, large], axis=1)

    labels = np.array(first.names, dtype=object)
    table = pd.DataFrame(numbers, columns=pd.Index([one, other, *_COLUMNS[2:8]]))
    table.insert(0, "row", labels[first.query[first._free.row[mine]]])
    table.insert(1, "column", labels[first._free.column[mine]])
    table["changed"] = (table["lower"] > 0) | (table["upper"] < 0)
    table.attrs = {
        "level": float(level),
        "threshold": threshold,
        "lam": first.lam,
        "q": first.q,
        "temperature": first.temperature,
        "rule": f"changed: the {100 * level:g} % credible interval of the difference excludes zero",
        "messages": {one: first._message(), other: second._message()},
    }
    return table


def _matching_entries(first: Posterior, second: Posterior) -> Int[np.ndarray, " D"]:
    """For each free entry of the first, the entry of the second that is the same pair of variables."""
    column = np.array([second.names.index(name) for name in first.names])
    row_of = np.empty(len(column), np.intp)
    row_of[second.query] = np.arange(len(second.query))
    free = first._free
    return second._free.position[row_of[column[first.query[free.row]]], column[free.column]]


def _check_comparable(first: Posterior, second: Posterior) -> None:
    for each in (first, second):
        if not isinstance(each, Posterior):
            hint = "use model.posterior(lam, q) of two fitted models"
            raise TypeError(f"compare takes two posteriors, got {type(each).__name__}: {hint}")
    if absent := sorted(set(first.names) ^ set(second.names)):
        raise ValueError(
            f"the posteriors have different variables: {absent[0]!r} is in one only. Fit both to the same columns"
        )
    queries = [sorted(each.names[k] for k in each.query) for each in (first, second)]
    if queries[0] != queries[1]:
        raise ValueError("the posteriors have different queries, so different pairs and models: fit both with the same")
    scatters = [each.scatter for each in (first, second)]
    if all(scatter is not None for scatter in scatters):
        ways = [(scatter.observed is not None, _has_unit_variances(scatter)) for scatter in scatters if scatter]
        if ways[0] != ways[1]:
            raise ValueError(
                "the two tables were transformed or standardized differently, so the same λ shrinks them differently: "
                "fit both with the same transform and standardize"
            )
    for symbol, name in (("λ", "lam"), ("q", "q"), ("T", "temperature")):
        values = [getattr(each, name) for each in (first, second)]
        if values == [None, None]:
            continue
        if None in values or not np.isclose(*values, rtol=1e-5):
            shown = " in one and ".join("an average" if value is None else f"{value:g}" for value in values)
            raise ValueError(
                f"{symbol} is {shown} in the other, and shrinkage alone would make associations differ: "
                "ask both models for the same condition, model.posterior(lam, q)"
            )


def _has_unit_variances(scatter: Scatter) -> bool:
    return bool(np.allclose(np.diag(scatter.matrix), scatter.n, rtol=1e-6))


def _check_labels(names: Sequence[str]) -> tuple[str, str]:
    labels = [names] if isinstance(names, str) else list(names)
    if len(labels) != 2 or not all(isinstance(label, str) for label in labels) or labels[0] == labels[1]:
        raise ValueError(f"names must be two different names, one of each group, got {names!r}")
    if taken := [label for label in labels if label in _COLUMNS]:
        raise ValueError(f"{taken[0]!r} is a column of the result: call the group something else")
    return labels[0], labels[1]
