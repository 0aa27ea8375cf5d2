"""The numbers behind explorer and report: one condition (λ, q, T) seen pair by pair, positions of nodes, evidence.

Nothing here draws. The draws behind every view use the same noise, so views move smoothly with λ, q and T, and every
number equals that of ``model.posterior(lam, q, temperature, num_draws=...)``.
"""

import warnings
from typing import NamedTuple

import networkx as nx
import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import qmc

from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.evidence.evidence import choose, grid
from ggmflow.model.conditions import Choice
from ggmflow.posterior.diagnostics import PoorFitWarning
from ggmflow.posterior.edge_rules import own_parameters
from ggmflow.posterior.edges import EdgeSelection
from ggmflow.posterior.flow_source import chunk_size, quick_chunk_size
from ggmflow.posterior.posterior import Posterior
from ggmflow.posterior.tables import entry_table
from ggmflow.posterior.weights import Verdict

# Columns of `View.pairs` by their names in `tables.entry_table`.
_COLUMNS = {
    **{name: name for name in ("i", "j", "row", "column", "association")},
    "association_lower": "lower",
    "association_upper": "upper",
    **{name: name for name in ("p_positive", "edge_probability")},
    "rule_probability": "probability",
    "edge": "edge",
}


class View(NamedTuple):
    """The posterior at one condition, pair by pair.

    Attributes
    ----------
    lam, q, temperature : float
        The condition.
    pairs : DataFrame
        A row for each pair of variables (with a query, each pair that holds a query variable): i, j (columns of the
        data), row, column (their names), association (its posterior mean), lower, upper (its credible interval),
        p_positive, edge_probability (that |association| > 0.1), probability (the rule's own, of an edge; NaN if it has
        none), edge (bool).
    level : float
        Of the intervals.
    rule : str
        What makes an edge, in words.
    n_edges : int
        Their number.
    expected_fdr : float
        Expected share of false ones among them.
    message : str
        How far to trust the numbers, in words.
    verdict : Verdict
        The same as a value, as in `Posterior.diagnostics`.
    posterior : Posterior
        Where the numbers come from.
    selection : EdgeSelection
        The edges, with the rule as values.
    """

    lam: float
    q: float
    temperature: float
    pairs: pd.DataFrame
    level: float
    rule: str
    n_edges: int
    expected_fdr: float
    message: str
    verdict: Verdict
    posterior: Posterior
    selection: EdgeSelection

    @property
    def density(self) -> float:
        """Share of pairs that are edges."""
        return self.n_edges / max(1, len(self.pairs))


class Surface(NamedTuple):
    """Evidence on a grid.

    Attributes
    ----------
    lam : (k,) array
    q : (m,) array
    log_evidence : (k, m) array
    best : Choice
        λ and q of highest evidence.
    """

    lam: Float[np.ndarray, " k"]
    q: Float[np.ndarray, " m"]
    log_evidence: Float[np.ndarray, "k m"]
    best: Choice


class Density(NamedTuple):
    """Posterior of one pair's association: draws and their weights.

    Attributes
    ----------
    values, weights : (N,) arrays
        The weights have sum one.
    lower, upper : float
        Credible interval.
    mean : float
    """

    values: Float[np.ndarray, " N"]
    weights: Float[np.ndarray, " N"]
    lower: float
    upper: float
    mean: float


def view(
    model: GraphicalFlow,
    lam: float | None = None,
    q: float | None = None,
    temperature: float | None = None,
    *,
    rule: str = "f1",
    level: float = 0.9,
    num_draws: int | None = None,
) -> View:
    """The posterior at one condition, pair by pair.

    Parameters
    ----------
    model
        Fitted.
    lam, q
        Default the middle of the fitted ranges; see `middle`.
    temperature
        Default 1, or the fitted temperature next to it.
    rule : {"f1", "interval", "fdr", "probability"}
        What makes an edge, as in `Posterior.select_edges`.
    level
        Of the intervals, and of the rule "interval".
    num_draws
        Default `num_draws_of(model)`. The numbers are those of ``model.posterior(lam, q, temperature, num_draws=...)``.
    """
    lam, q, temperature = _condition(model, lam, q, temperature)
    post = model.posterior(lam, q, temperature, num_draws=num_draws_of(model) if num_draws is None else num_draws)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorFitWarning)  # the message is part of the view
        chosen = post.select_edges(rule, **own_parameters(rule, level=level))
    known = post.diagnostics()
    table = entry_table(post.draws, chosen, known, list(_COLUMNS), level=level)
    pairs = table.loc[~post.draws.free.diagonal].rename(columns=_COLUMNS).reset_index(drop=True)
    pairs.attrs = {}
    return View(
        lam=lam,
        q=q,
        temperature=temperature,
        pairs=pairs,
        level=level,
        rule=chosen.rule,
        n_edges=chosen.n_edges,
        expected_fdr=chosen.expected_fdr,
        message=known.message,
        verdict=known.verdict,
        posterior=post,
        selection=chosen,
    )


def density(seen: View, pair: int) -> Density:
    """Posterior of the association of one pair, given by its position in `View.pairs`.

    Parameters
    ----------
    seen
        A view.
    pair
        Row of its table.
    """
    draws, row = seen.posterior.draws, seen.pairs.iloc[pair]
    values = draws.association_draws(np.flatnonzero(~draws.free.diagonal)[[pair]])[0]
    return Density(values, draws.weights, float(row["lower"]), float(row["upper"]), float(row["association"]))


def num_draws_of(model: GraphicalFlow, quick: bool = False) -> int:
    """Draws behind a view: up to 1000, fewer for many variables; far fewer for one that has to move, 32 to 256.

    Parameters
    ----------
    model
        Fitted.
    quick
        Whether it is drawn while a slider moves.
    """
    return (quick_chunk_size if quick else chunk_size)(model.flow_.n_entries)


def middle(model: GraphicalFlow) -> tuple[float, float, float]:
    """The condition in the middle of the fitted ranges of log λ and q, at T = 1 or next to it."""
    low, high = model.lam_range_
    return float(np.sqrt(low * high)), float(np.mean(model.q_range_)), float(np.clip(1.0, *model.temperature_range_))


def _condition(model: GraphicalFlow, *given: float | None) -> tuple[float, float, float]:
    lam, q, T = (
        default if value is None else float(value) for value, default in zip(given, middle(model), strict=True)
    )
    return lam, q, T


# ------------------------------------------------------------------------------------------------------------- evidence
def evidence_surface(model: GraphicalFlow, num_lam: int = 9, num_q: int = 5) -> Surface | None:
    """Evidence on a grid across the fitted ranges, and where it is highest; None if T = 1 is not among the fitted ones.

    It is that of ``model.evidence(exact=False)`` with few draws; its optimum is ``model.select()``.

    Parameters
    ----------
    model
        Fitted.
    num_lam, num_q
        Size of the grid; a range that is a point has one.
    """
    if model.temperature_range_[1] < 1:
        return None
    ranges = model._ranges
    found = {}

    def evidence(lam: float, q: float):
        if (lam, q) not in found:
            found[lam, q] = model._quick_evidence(lam, q)
        return found[lam, q]

    best = choose(evidence, ranges, num_lam=num_lam, num_q=num_q)
    log_lams, qs = grid(ranges, num_lam, num_q)
    lams = np.exp(log_lams)
    values = np.array([[evidence(float(lam), float(q)).value for q in qs] for lam in lams])
    return Surface(lams, qs, values, best)


# --------------------------------------------------------------------------------------------------------------- layout
def layout(model: GraphicalFlow) -> Float[np.ndarray, "d 2"]:
    """Positions of all variables, the same for every λ, q and T, within the unit disc around 0.

    They follow from the associations in the middle of the fitted ranges: strongly associated variables are near each
    other. With a query its variables are in the middle and every other one is outside of the query variable that it is
    most associated with, the strongest ones well apart.

    Parameters
    ----------
    model
        Fitted.
    """
    seen = view(model)
    strength = np.abs(seen.pairs["association"].to_numpy())
    d, query = len(seen.posterior.names), seen.posterior.query
    if len(query) < d:
        return _around(seen.pairs["i"].to_numpy(), seen.pairs["j"].to_numpy(), strength, query, d)
    matrix = np.zeros((d, d))
    matrix[seen.pairs["i"], seen.pairs["j"]] = strength
    return _springs(matrix + matrix.T)


def _springs(strength: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d 2"]:
    """Kamada–Kawai positions of a connected graph of the strongest pairs, about two for each variable."""
    d = len(strength)
    if d == 1:
        return np.zeros((1, 2))
    i, j = np.triu_indices(d, 1)
    graph = nx.Graph()
    graph.add_nodes_from(range(d))
    graph.add_weighted_edges_from(zip(i.tolist(), j.tolist(), strength[i, j].tolist(), strict=True))
    kept = nx.maximum_spanning_tree(graph)
    strongest = np.argsort(-strength[i, j], kind="stable")[: 3 * d // 2]
    kept.add_edges_from(zip(i[strongest].tolist(), j[strongest].tolist(), strict=True))
    start = nx.circular_layout(kept)
    # Kamada–Kawai spreads nodes best, but its cost grows with the cube of their number.
    if d <= 80:
        found = nx.kamada_kawai_layout(kept, pos=start, weight=None)  # it takes weights for distances
    else:
        found = nx.spring_layout(kept, pos=start, seed=0)
    positions = np.array([found[k] for k in range(d)])
    for _ in range(50):  # push apart what is too near for names to be read
        gap = positions[:, None] - positions
        distance = np.linalg.norm(gap, axis=-1) + np.eye(d)
        short = np.maximum(1.1 / np.sqrt(d) - distance, 0) * (1 - np.eye(d))
        positions = positions + 0.3 * np.sum(gap / np.maximum(distance, 1e-9)[..., None] * short[..., None], axis=1)
    positions = positions - (positions.max(axis=0) + positions.min(axis=0)) / 2
    return positions / max(float(np.linalg.norm(positions, axis=1).max()), 1e-9)


def _around(
    i: Int[np.ndarray, " m"], j: Int[np.ndarray, " m"], strength: Float[np.ndarray, " m"], query: np.ndarray, d: int
) -> Float[np.ndarray, "d 2"]:
    """Query variables on a small circle, the others on three wide ones in the sector of their strongest partner."""
    s = len(query)
    sector = dict(zip(query.tolist(), 2 * np.pi * np.arange(s) / s, strict=True))
    positions = np.zeros((d, 2))
    if s > 1:
        positions[query] = 0.38 * _on_circle(np.array([sector[k] for k in query.tolist()]))
    strongest: dict[int, tuple[float, int]] = {}
    for a, b, size in zip(i.tolist(), j.tolist(), strength.tolist(), strict=True):
        if b not in sector and (b not in strongest or size > strongest[b][0]):
            strongest[b] = size, a
    for variable in query.tolist():
        mine = sorted((-size, b) for b, (size, a) in strongest.items() if a == variable)
        if not mine:
            continue
        # A van der Corput sequence keeps its first points, the strongest, far from each other, however many follow.
        share = qmc.Halton(1, scramble=False).random(len(mine) + 1)[1:, 0] - 0.5
        radius = np.array([0.8, 1.0, 0.65])[np.arange(len(mine)) % 3]
        angle = sector[variable] + 0.92 * 2 * np.pi / s * share
        positions[[b for _, b in mine]] = radius[:, None] * _on_circle(angle)
    return positions


def _on_circle(angle: Float[np.ndarray, " k"]) -> Float[np.ndarray, "k 2"]:
    return np.column_stack([np.sin(angle), np.cos(angle)])
