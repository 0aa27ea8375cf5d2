"""Positions of the variables of a network, computed once and used for every λ, q and T.

Plots, report and explorer use the same positions, so that their networks can be compared.
"""

import warnings

import networkx as nx
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path
from scipy.stats import qmc

from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.posterior.edge_rules import DEFAULT
from ggmflow.posterior.edges import EdgeSelection
from ggmflow.posterior.posterior import PoorFitWarning, Posterior
from ggmflow.views.pairs import middle, num_draws_of

_CIRCLE = 12  # largest number of variables that are placed on a circle
_KAMADA_KAWAI = 300  # largest number of variables for Kamada–Kawai, whose cost grows with their cube: about 2 s
_STRETCH = 1.8  # largest factor by which the shorter side of a network is stretched
_FAR = 2.0  # length of a link that is not an edge; an edge has length 1


def network_layout(
    source: Posterior | GraphicalFlow, edges: EdgeSelection | Bool[np.ndarray, "s d"] | str = DEFAULT
) -> Float[np.ndarray, "d 2"]:
    """Return positions of all d variables, always the same for the same posterior.

    Up to twelve variables are placed on a circle, associated ones side by side. Of more variables, those with an edge
    are placed such that distances in the plane approximate distances in the graph (Kamada and Kawai), where the
    strongest associations link its components; those without an edge are placed on a ring around them, each near the
    variable with which it is most associated, because it may have an edge at another λ.

    With a query, the query variables are placed in the middle, and every other variable outside the query variable with
    which it is most associated.

    Parameters
    ----------
    source
        A posterior, or a fitted model: its posterior in the middle of the fitted ranges.
    edges
        Edges of that posterior: a rule of `Posterior.select_edges`, its result, or an array of bool.

    Returns
    -------
    (d, 2) array
        Positions within the unit disc around 0.
    """
    if isinstance(source, GraphicalFlow):
        source = source.posterior(*middle(source), num_draws=num_draws_of(source))
    query = source.query
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorFitWarning)  # positions need no accurate posterior
        strength = np.abs(source.association())
        if len(query) < len(source.names):
            return _around_query(strength, query)
        chosen = source.select_edges(edges) if isinstance(edges, str) else edges
    joined = np.asarray(chosen.edges if isinstance(chosen, EdgeSelection) else chosen, bool)
    return _around_edges(_symmetric(joined, query) > 0, _symmetric(strength, query))


def circle_layout(edges: Bool[np.ndarray, "d d"]) -> Float[np.ndarray, "d 2"]:
    """Return positions on the unit circle, ordered such that joined variables are near each other.

    Parameters
    ----------
    edges : (d, d) array of bool
        Adjacency matrix.
    """
    graph = nx.from_numpy_array(np.triu(edges, 1).astype(int))
    components = sorted(nx.connected_components(graph), key=min)
    order = np.array([node for each in components for node in nx.dfs_preorder_nodes(graph, min(each))])
    angle = np.empty(len(order))
    angle[order] = _even_angles(len(order))
    return _on_circle(angle)


# --------------------------------------------------------------------------------------------------------- full matrix
def _symmetric(values: np.ndarray, query: Int[np.ndarray, " d"]) -> Float[np.ndarray, "d d"]:
    """Rows in the order of the query to a symmetric matrix in the order of the data, with a diagonal of zeros."""
    out = np.zeros((len(query),) * 2)
    out[query] = values
    np.fill_diagonal(out, 0)
    return np.maximum(out, out.T)


def _around_edges(joined: Bool[np.ndarray, "d d"], strength: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d 2"]:
    """Variables with an edge inside, those without one on a ring; a circle where there is little to arrange."""
    core = np.flatnonzero(joined.any(axis=0))
    if len(joined) <= _CIRCLE or len(core) < 3:
        return circle_layout(_strongest_tree(strength))
    rest = np.setdiff1d(np.arange(len(joined)), core)
    inner = np.ix_(core, core)
    positions = _by_distance(joined[inner], _strongest_tree(strength[inner]))
    out = np.empty((len(joined), 2))
    out[core] = positions / np.linalg.norm(positions, axis=1).max() / (1.2 if rest.size else 1.0)
    if rest.size:
        nearest = core[np.argmax(strength[np.ix_(rest, core)], axis=1)]
        out[rest] = _ring(np.arctan2(out[nearest, 0], out[nearest, 1]))
    return out


def _strongest_tree(strength: Float[np.ndarray, "m m"]) -> Bool[np.ndarray, "m m"]:
    """Spanning tree of the strongest associations."""
    # Lengths must be positive: SciPy takes a zero for a missing link.
    tree = minimum_spanning_tree(1 + strength.max(initial=0.0) - strength + 1e-9).toarray() > 0
    return tree | tree.T


def _by_distance(joined: Bool[np.ndarray, "m m"], tree: Bool[np.ndarray, "m m"]) -> Float[np.ndarray, "m 2"]:
    """Positions around 0 whose distances are like those in the graph of edges and spanning tree."""
    length = np.where(joined, 1.0, np.where(tree, _FAR, np.inf))
    distance = shortest_path(length, directed=False)
    graph, start = nx.from_numpy_array(joined.astype(int)), dict(enumerate(_scaling(distance)))
    if len(joined) <= _KAMADA_KAWAI:
        table = {i: dict(enumerate(row)) for i, row in enumerate(distance.tolist())}
        found = nx.kamada_kawai_layout(graph, dist=table, pos=start)
    else:
        found = nx.spring_layout(nx.from_numpy_array((joined | tree).astype(int)), pos=start, seed=0)
    positions = np.array([found[k] for k in range(len(joined))])
    positions -= (positions.max(axis=0) + positions.min(axis=0)) / 2
    spread = np.ptp(positions, axis=0)
    # A long and narrow graph would leave most of the page empty.
    return positions * np.minimum(spread.max() / np.maximum(spread, 1e-9), _STRETCH)


def _scaling(distance: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "m 2"]:
    """Classical scaling: start positions with few crossings. Signs are fixed, so that the result is reproducible."""
    centred = -0.5 * distance**2
    centred = centred - centred.mean(axis=0) - centred.mean(axis=1)[:, None] + centred.mean()
    values, vectors = np.linalg.eigh(centred)
    positions = vectors[:, -2:][:, ::-1] * np.sqrt(np.maximum(values[-2:][::-1], 1e-9))
    positions *= np.sign(positions[np.abs(positions).argmax(axis=0), [0, 1]])
    # Leaves of the same node would coincide, and their gradients would never separate them.
    return positions + 1e-3 * _on_circle(_even_angles(len(positions)))


def _ring(wanted: Float[np.ndarray, " m"]) -> Float[np.ndarray, "m 2"]:
    """Evenly spaced positions on the unit circle, in the order of the wanted angles and close to them on average."""
    order, even = np.argsort(wanted, kind="stable"), _even_angles(len(wanted))
    angle = np.empty(len(wanted))
    angle[order] = even + np.angle(np.mean(np.exp(1j * (wanted[order] - even))))
    return _on_circle(angle)


# -------------------------------------------------------------------------------------------------------------- query
def _around_query(strength: Float[np.ndarray, "s d"], query: Int[np.ndarray, " s"]) -> Float[np.ndarray, "d 2"]:
    """Query variables on a small circle, the others on three larger ones in the sector of their strongest partner."""
    s, d = strength.shape
    sector = _even_angles(s)
    positions = np.zeros((d, 2))
    if s > 1:
        positions[query] = 0.38 * _on_circle(sector)
    others = np.setdiff1d(np.arange(d), query)
    partner, size = np.argmax(strength[:, others], axis=0), np.max(strength[:, others], axis=0)
    for row in range(s):
        mine = partner == row
        own = others[mine][np.argsort(-size[mine], kind="stable")]
        # The first points of a van der Corput sequence are far apart, however many follow; the strongest take them.
        share = qmc.Halton(1, scramble=False).random(len(own) + 1)[1:, 0] - 0.5
        radius = np.array([0.8, 1.0, 0.65])[np.arange(len(own)) % 3]
        positions[own] = radius[:, None] * _on_circle(sector[row] + 0.92 * 2 * np.pi / s * share)
    return positions


def _even_angles(count: int) -> Float[np.ndarray, " count"]:
    return np.linspace(0, 2 * np.pi, count, endpoint=False)


def _on_circle(angle: Float[np.ndarray, " k"]) -> Float[np.ndarray, "k 2"]:
    return np.column_stack([np.sin(angle), np.cos(angle)])
