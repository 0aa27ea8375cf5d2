"""The graph of the edges of a posterior, for networkx."""

import networkx as nx
import numpy as np

from ggmflow.posterior.arguments import check_tails
from ggmflow.posterior.diagnostics import Diagnostics
from ggmflow.posterior.edges import EdgeSelection
from ggmflow.posterior.tables import entry_table
from ggmflow.posterior.weighted_draws import WeightedDraws

_ATTRIBUTES = ["mean", "lower", "upper", "p_positive", "edge_probability"]


def edge_graph(draws: WeightedDraws, selection: EdgeSelection, diagnostics: Diagnostics, level: float) -> nx.Graph:
    """The graph that `Posterior.to_networkx` returns.

    Parameters
    ----------
    draws, selection, diagnostics, level
        As in `tables.entry_table`.
    """
    columns = ["i", "j", "row", "column", "edge", "association", "scale", *_ATTRIBUTES]
    table = entry_table(draws, selection, diagnostics, columns, level=level)
    graph = nx.Graph()
    graph.graph.update({str(name): value for name, value in table.attrs.items()})
    graph.add_nodes_from((draws.names[k], {"query": True, "column": int(k)}) for k in draws.query)
    joined = np.flatnonzero(table["edge"])
    # Intervals of associations take long to compute, so only edges get them.
    ends = draws.association_quantile(check_tails(level), joined).T.tolist()
    for k, (lower, upper) in zip(joined.tolist(), ends, strict=True):
        entry = table.iloc[k]
        graph.add_node(entry["column"], query=bool(draws.free.inside[k]), column=int(entry["j"]))
        attributes = {name: float(entry[name]) for name in _ATTRIBUTES}
        attributes |= {"weight_lower": lower, "weight_upper": upper}
        weight = float(entry["association"])
        graph.add_edge(entry["row"], entry["column"], weight=weight, scale=entry["scale"], **attributes)
    return graph
