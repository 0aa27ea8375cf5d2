"""Differences between two groups: the association of each pair in two posteriors of the same variables.

    δ_ij = ρ_ij(Ω″) − ρ_ij(Ω′),     Ω′ ~ p(Ω | X′),  Ω″ ~ p(Ω | X″), independent
    u_ij = √T (ρ̄″/σ″² − ρ̄′/σ′²) / √(v″/σ″² + v′/σ′²)     about N(0, 1) where the groups do not differ

ρ is the association of `Posterior.association`: the partial correlation where both variables belong to the query. ρ̄
and v are its posterior mean and variance in a group, and 1 − σ² is the prior's share of information (`edges`). Dividing
by σ² undoes the shrinkage, so that groups of different sizes can be compared; v is widened where the posterior is
narrower than the sampling distribution of its mean (`edges.overconfidence`). Benjamini and Hochberg's rule on 2Φ(−|u|)
controls the false discovery rate over all pairs.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int, Key
from scipy.special import ndtr

from ggmflow import gibbs
from ggmflow.data.scatter import Scatter
from ggmflow.errors.argument import check_share
from ggmflow.posterior.arguments import check_count, check_tails, check_threshold
from ggmflow.posterior.edges import kept_share, overconfidence
from ggmflow.posterior.posterior import Posterior
from ggmflow.posterior.source import ChainSource, RandomState, as_key
from ggmflow.posterior.weighted_draws import WeightedDraws
from ggmflow.posterior.weights import blocks, sort_order, weighted_quantile
from ggmflow.train.progress import counting_bar

_COLUMNS = ("row", "column", "difference", "sd", "lower", "upper", "p_positive", "p_different", "fdr", "found")
_SEED = 0  # of the pairing of draws
_CONSTANT = 1e-8  # standard deviation, in the working scale, below which a column is constant
_CHAINS: dict[str, Any] = {
    "num_chains": 16,
    "num_draws": 60,
    "num_warmup": 100,
    "thin": 2,
}  # of one group of one permutation

Pairs = Float[np.ndarray, " m"]


def compare(
    first: Posterior,
    second: Posterior,
    level: float = 0.9,
    threshold: float = 0.1,
    names: Sequence[str] = ("first", "second"),
    *,
    rate: float = 0.1,
    permutations: int = 0,
    data: tuple[Any, Any] | None = None,
    random_state: RandomState = 0,
    progress: bool = True,
) -> pd.DataFrame:
    """Difference of the association of each pair of variables between two groups.

    Parameters
    ----------
    first, second
        Posteriors of different data, of the same variables (in any order), the same query, and the same λ, q and T: the
        prior shrinks associations, so other values would make equal groups differ. Two averages over λ and q
        may be compared, too.
    level
        Probability of the credible intervals of differences.
    threshold
        Size of a difference that matters.
    names
        Names of the groups.
    rate
        False discovery rate, over all pairs, at which differences are found.
    permutations
        Number of random divisions of all rows into two groups of the same sizes that are compared in the same way, by
        exact chains: a check that needs no assumption about the scores. Each takes some seconds for tens of variables.
    data : (X_first, X_second), optional
        The rows of both groups, which permutations need.
    random_state : int, numpy Generator or RandomState, or None
        Seed of the permutations.
    progress
        Whether to show a live line while permutations run.

    Returns
    -------
    DataFrame
        A row for each pair: row, column (names), the posterior mean of the association in each group, difference
        (second − first; its mean), sd, lower, upper, p_positive = P(δ > 0), p_different = P(|δ| > threshold), fdr (the
        smallest false discovery rate at which this difference is found), found (fdr ≤ rate). Each interval is for one
        pair by itself: among many equal pairs some exclude zero.

        `attrs` holds level, threshold, rate, lam, q, temperature; n_found; p_any, a p-value of "no pair differs"
        (Simes); permutation_p, that of the permutations (None without); conclusion, a sentence with these numbers; and
        messages, those of each group's `diagnostics`.

    Notes
    -----
    For a variable outside the query, association is a regression weight in the working scale, which is that of each
    group's own standard deviations.
    """
    tails, threshold, (one, other) = check_tails(level), check_threshold(threshold), _check_labels(names)
    check_share("rate", rate, 0.1)
    _check_comparable(first, second)
    rows = None if not permutations else _rows_of_both(first, second, check_count(permutations, "permutations"), data)
    draws = first.weighted_draws(), second.weighted_draws()
    parts, entries = _both(first, second)
    # At temperature T draws are √T times as wide as those of the posterior.
    p = 2 * ndtr(-np.sqrt(first.temperature or 1.0) * np.abs(_score(*parts)))
    fdr = _adjust(p)
    n_found = int(np.sum(fdr <= rate))
    labels, free = np.array(first.names, dtype=object), draws[0].free
    columns = {
        "row": labels[first.query[free.row[entries[0]]]],
        "column": labels[free.column[entries[0]]],
        one: parts[0].mean,
        other: parts[1].mean,
        "difference": parts[1].mean - parts[0].mean,
        "sd": np.sqrt(parts[0].variance + parts[1].variance),
        **_differences(draws, entries, tails, threshold),
        "fdr": fdr,
        "found": fdr <= rate,
    }
    table = pd.DataFrame(columns)
    check = None
    if rows is not None:
        check = permutation_check(first, rows, permutations, as_key(random_state), progress)
    table.attrs = {
        "level": float(level),
        "threshold": threshold,
        "rate": float(rate),
        "lam": first.lam,
        "q": first.q,
        "temperature": first.temperature,
        "n_found": n_found,
        "p_any": float(fdr.min(initial=1.0)),
        "permutation_p": None if check is None else check.p,
        "conclusion": _conclusion(n_found, len(table), float(rate), fdr, check),
        "messages": {one: first.diagnostics().message, other: second.diagnostics().message},
    }
    return table


def _differences(
    draws: tuple[WeightedDraws, WeightedDraws],
    entries: tuple[Int[np.ndarray, " m"], Int[np.ndarray, " m"]],
    tails: tuple[float, float],
    threshold: float,
) -> dict[str, Pairs]:
    """Intervals and probabilities of δ, from draws of both groups paired at random."""
    num_pairs = max(each.num_draws for each in draws)
    rng = np.random.default_rng(_SEED)
    # In random order: draws of two flows from the same seed come from the same noise, and must not be paired.
    chosen = [each.resample(rng, num_pairs) for each in draws]
    equal = np.full(num_pairs, 1 / num_pairs)
    numbers = np.empty((4, len(entries[0])))
    for part in blocks(len(entries[0]), num_pairs):
        values = [each.association_draws(at[part]) for each, at in zip(draws, entries, strict=True)]
        difference = values[1][:, chosen[1]] - values[0][:, chosen[0]]
        interval = weighted_quantile(difference, sort_order(difference), equal, np.array(tails))
        positive, large = (difference > 0).mean(axis=1), (np.abs(difference) > threshold).mean(axis=1)
        numbers[:, part] = [*interval, positive, large]
    return dict(zip(("lower", "upper", "p_positive", "p_different"), numbers, strict=True))


class Group(NamedTuple):
    """Associations of all pairs in one group.

    Attributes
    ----------
    mean, variance : (m,) array
        Mean and variance of the posterior.
    kept : (m,) array
        σ², the data's share of information.
    wider : float
        Width of the sampling distribution of the mean, relative to the posterior's (`edges.overconfidence`).
    """

    mean: Pairs
    variance: Pairs
    kept: Pairs
    wider: float


class PermutationCheck(NamedTuple):
    """The number of random divisions, and of those whose largest |u| is at least that of the groups."""

    exceeded: int
    permutations: int

    @property
    def p(self) -> float:
        """p-value of "the rows of both groups come from one population"."""
        return (1 + self.exceeded) / (1 + self.permutations)


def permutation_check(
    like: Posterior,
    rows: tuple[Float[np.ndarray, "n_1 d"], Float[np.ndarray, "n_2 d"]],
    permutations: int,
    key: Key[Array, ""],
    progress: bool = False,
) -> PermutationCheck:
    """Compare random divisions of all rows into two groups, by exact chains at the same λ and q.

    Parameters
    ----------
    like
        A posterior with the condition, names and query.
    rows
        Rows of both groups, in the working scale, columns in the order of `like.names`.
    permutations
        Number of divisions.
    key
        JAX random key.
    progress
        Whether to show a live line.
    """
    pooled, size = np.concatenate(rows), len(rows[0])
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))

    def largest(order: Int[np.ndarray, " n"], k: int) -> float:
        groups = pooled[order[:size]], pooled[order[size:]]
        posts = (_exact_posterior(jax.random.fold_in(key, 2 * k + j), X, like) for j, X in enumerate(groups))
        return float(np.max(np.abs(_score(*_both(*posts)[0]))))

    exceeded = 0
    with counting_bar(progress, "permutations", permutations) as report:
        observed = largest(np.arange(len(pooled)), 0)  # by the same kind of chains
        for k in range(permutations):
            exceeded += largest(rng.permutation(len(pooled)), k + 1) >= observed
            report()
    return PermutationCheck(exceeded, permutations)


def _exact_posterior(key: Key[Array, ""], rows: Float[np.ndarray, "n d"], like: Posterior) -> Posterior:
    """Posterior of some rows at the condition of another one, from exact chains."""
    X = rows - rows.mean(axis=0)
    if like.scatter is not None and _has_unit_variances(like.scatter):
        scale = X.std(axis=0)
        X /= np.where(scale > _CONSTANT, scale, 1.0)  # a division may lack a column's rare value
    d, s = len(like.names), len(like.query)
    order = np.append(like.query, np.setdiff1d(np.arange(d), like.query))
    n_estimated = 1 if like.scatter is None else like.scatter.n_estimated
    statistics = (X.T @ X, len(X) - n_estimated, np.zeros(d), np.ones(d), like.names)
    scatter = Scatter(*statistics, n_estimated=n_estimated)
    condition: tuple[Any, ...] = (like.lam, like.q, like.temperature)
    chains = gibbs.sample(key, scatter.reorder(order.tolist()), *condition, n_query=s, **_CHAINS)
    states = np.empty_like(chains.pooled)
    states[..., order] = chains.pooled
    options: dict[str, Any] = {"num_draws": len(states), "scatter": scatter}
    return Posterior(ChainSource(states), like.names, like.query, *condition, **options)


def _both(first: Posterior, second: Posterior) -> tuple[tuple[Group, Group], tuple[np.ndarray, np.ndarray]]:
    """Both groups, pairs in the order of the first, and the positions of the pairs among the entries of each."""
    own = np.flatnonzero(~first.draws.free.diagonal)
    entries = own, _matching_entries(first.draws, second.draws)[own]
    return (_group(first, entries[0]), _group(second, entries[1])), entries


def _group(post: Posterior, entries: Int[np.ndarray, " m"]) -> Group:
    draws = post.weighted_draws()
    mean, variance = draws.association_moments(entries)
    kept = kept_share(draws, post.penalties)[entries]
    n_samples = None if post.scatter is None else post.scatter.n
    wider = overconfidence(n_samples, len(post.names), float(np.median(kept)) if kept.size else 1.0)
    return Group(mean, variance, kept, wider)


def _score(first: Group, second: Group) -> Pairs:
    """u of every pair, at T = 1."""
    difference = second.mean / second.kept - first.mean / first.kept
    variance = sum(each.wider**2 * each.variance / each.kept for each in (first, second))
    return np.divide(difference, np.sqrt(variance), out=np.zeros_like(difference), where=variance > 0)


def _adjust(p: Pairs) -> Pairs:
    """Smallest false discovery rate at which each pair is found, by Benjamini and Hochberg's rule."""
    order = np.argsort(p)
    raised = p[order] * p.size / np.arange(1, p.size + 1)
    out = np.empty_like(p)
    out[order] = np.minimum.accumulate(raised[::-1])[::-1].clip(0, 1)
    return out


def _conclusion(n_found: int, n_pairs: int, rate: float, fdr: Pairs, check: PermutationCheck | None) -> str:
    at = f"at a false discovery rate of {100 * rate:g} %"
    if n_found:
        text = f"{n_found} {'difference' if n_found == 1 else 'differences'} found among {n_pairs} pairs {at}"
    else:
        least = f" (the first would be at {100 * fdr.min():.3g} %)" if fdr.size else ""
        text = f"No evidence of any difference: none of {n_pairs} pairs is found {at}{least}"
    if check is None:
        return f"{text}."
    divisions = f"{check.exceeded} of {check.permutations} random divisions of the rows"
    return f"{text}. The largest difference is reached in {divisions} (p = {check.p:.2g})."


def _matching_entries(first: WeightedDraws, second: WeightedDraws) -> Int[np.ndarray, " D"]:
    """For each free entry of the first, the entry of the second that is the same pair of variables."""
    column = np.array([second.names.index(name) for name in first.names])
    row_of = np.empty(len(column), np.intp)
    row_of[second.query] = np.arange(len(second.query))
    return second.free.position[row_of[column[first.query[first.free.row]]], column[first.free.column]]


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
        known = [scatter for scatter in scatters if scatter is not None]
        if len({scatter.n_estimated for scatter in known}) > 1:
            raise ValueError("the mean is estimated in one and known in the other: fit both with the same mean")
        ways = [(scatter.observed is not None, _has_unit_variances(scatter)) for scatter in known]
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
                "use the same condition for both, model.posterior(lam, q)"
            )


def _rows_of_both(
    first: Posterior, second: Posterior, permutations: int, data: tuple[Any, Any] | None
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of both groups in their working scales, columns in the order of the first."""
    if first.lam is None or first.q is None:
        raise ValueError("permutations need one λ and q, not an average: give lam and q in both calls of `posterior`")
    if first.scatter is None or second.scatter is None:
        raise ValueError("permutations need the data behind the posteriors: use `posterior` of fitted models")
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise ValueError(f"{permutations} permutations need the rows of both groups: give data=(X_first, X_second)")
    rows = [post.scatter.working(X) for post, X in zip((first, second), data, strict=True) if post.scatter is not None]
    for post, X in zip((first, second), rows, strict=True):
        if post.scatter is None:
            continue
        if len(X) == post.scatter.n_rows and not np.allclose(X.T @ X, post.scatter.matrix, atol=1e-6 * len(X)):
            raise ValueError("data holds other rows than a posterior was fitted to: give the same, in the same order")
        if len(X) != post.scatter.n_rows:
            raise ValueError(
                f"data has {len(X)} rows for a posterior of {post.scatter.n_rows:g}: give the rows it was fitted to"
            )
    return rows[0], rows[1][:, [second.names.index(name) for name in first.names]]


def _has_unit_variances(scatter: Scatter) -> bool:
    return bool(np.allclose(np.diag(scatter.matrix), scatter.n_rows, rtol=1e-6))


def _check_labels(names: Sequence[str]) -> tuple[str, str]:
    labels = [names] if isinstance(names, str) else list(names)
    if len(labels) != 2 or not all(isinstance(label, str) for label in labels) or labels[0] == labels[1]:
        raise ValueError(f"names must be two different names, one of each group, got {names!r}")
    if taken := [label for label in labels if label in _COLUMNS]:
        raise ValueError(f"{taken[0]!r} is a column of the result: call the group something else")
    return labels[0], labels[1]
