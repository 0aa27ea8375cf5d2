"""A posterior as tables, frames and graphs."""

import io

import networkx as nx
import numpy as np
import pandas as pd
import pytest


def test_summary_has_a_row_for_each_free_entry(full, blanket):
    table = full.summary()
    assert isinstance(table, pd.DataFrame)
    assert list(zip(table["row"], table["column"], strict=True)) == [
        *(("a", "a"), ("a", "b"), ("a", "c"), ("b", "b"), ("b", "c"), ("c", "c")),
    ]
    assert table.attrs["level"] == 0.9 and table.attrs["weighted"] is True and "k̂" in table.attrs["message"]
    assert table.attrs["rule"] == full.select_edges().rule
    table = blanket.summary(level=0.8, threshold=0.2, rule="interval")
    assert table.attrs["rule"] == "80 % credible interval excludes zero"
    assert list(zip(table["row"], table["column"], strict=True)) == [
        *(("d", "a"), ("d", "b"), ("d", "c"), ("d", "d"), ("b", "a"), ("b", "b"), ("b", "c")),
    ]
    i, j = np.array([0, 0, 0, 0, 1, 1, 1]), np.array([0, 1, 2, 3, 0, 1, 2])
    lower, upper = blanket.interval(0.8)
    matrices = {"mean": blanket.mean(), "sd": blanket.sd(), "median": blanket.median(), "lower": lower, "upper": upper}
    matrices |= {"edge": blanket.edges(0.8)}
    for label, matrix in matrices.items():
        np.testing.assert_array_equal(table[label], matrix[i, j], err_msg=label)
    diagonal = table["row"] == table["column"]
    pairs = {
        "p_positive": blanket.sign_probability(),
        "edge_probability": blanket.edge_probability(0.2),
        "association": blanket.association(),
        "association_lower": blanket.association_interval(0.8)[0],
        "association_upper": blanket.association_interval(0.8)[1],
    }
    for label, matrix in pairs.items():
        np.testing.assert_array_equal(table[label].isna(), diagonal)
        np.testing.assert_array_equal(table[label][~diagonal], matrix[i, j][~diagonal], err_msg=label)
    assert table["edge"].dtype == bool and not table["edge"][diagonal].any()
    assert blanket.summary(weighted=False).attrs["weighted"] is False


ONE_MATRIX = {
    "mean": {},
    "sd": {},
    "median": {},
    "edges": {"level": 0.8},
    "association": {},
    "edge_probability": {"threshold": 0.2},
    "sign_probability": {},
    "local_false_sign_rate": {},
    "quantile": {"probs": 0.3},
}


@pytest.mark.parametrize("name", ONE_MATRIX)
def test_a_matrix_as_a_frame(blanket, name):
    """Rows are the query in the order asked, d and b of a, b, c, d; without the argument it is an array."""
    array = getattr(blanket, name)(**ONE_MATRIX[name])
    frame = getattr(blanket, name)(**ONE_MATRIX[name], as_frame=True)
    assert type(array) is np.ndarray
    expected = pd.DataFrame(array, pd.Index(["d", "b"], name="row"), pd.Index(list("abcd"), name="column"))
    pd.testing.assert_frame_equal(frame, expected)


def test_matrices_of_the_query_and_several_matrices_as_a_frame(blanket):
    frame = blanket.partial_correlation(as_frame=True)
    assert list(frame.index) == list(frame.columns) == ["d", "b"]
    assert frame.loc["d", "b"] == blanket.partial_correlation()[0, 1]
    for name in ("interval", "association_interval"):
        ends, frame = getattr(blanket, name)(0.8), getattr(blanket, name)(0.8, as_frame=True)
        assert frame.index.names == ["part", "row"] and frame.shape == (4, 4)
        for k, part in enumerate(("lower", "upper")):
            np.testing.assert_array_equal(frame.loc[part], ends[k])
            assert list(frame.loc[part].index) == ["d", "b"]
    frame = blanket.quantile([0.75, 0.25], as_frame=True)
    for k, prob in enumerate((0.75, 0.25)):
        np.testing.assert_array_equal(frame.loc[prob], blanket.quantile([0.75, 0.25])[k])
    assert frame.loc[(0.25, "b"), "c"] == blanket.quantile(0.25)[1, 2]


def test_graph_of_a_full_matrix(full):
    graph = full.to_networkx(level=0.9)
    assert set(graph.nodes) == {"a", "b", "c"} and all(node["query"] for node in graph.nodes.values())
    edges, mean, (lower, upper) = full.edges(0.9), full.mean(), full.interval(0.9)
    names = "abc"
    assert (
        {frozenset(edge) for edge in graph.edges}
        == {frozenset((names[i], names[j])) for i, j in np.argwhere(edges)}
        != set()
    )
    for one, other, data in graph.edges(data=True):
        i, j = names.index(one), names.index(other)
        assert data["scale"] == "partial correlation"
        assert data["weight"] == full.partial_correlation()[i, j]
        assert (data["mean"], data["lower"], data["upper"]) == (mean[i, j], lower[i, j], upper[i, j])
        assert data["p_positive"] == full.sign_probability()[i, j]
        assert data["edge_probability"] == full.edge_probability()[i, j]
        ends = [data["weight_lower"], data["weight_upper"]]
        np.testing.assert_allclose(ends, full.association_interval(graph.graph["level"])[:, i, j])
    assert full.to_networkx(level=1 - 1e-9).number_of_nodes() == 3  # isolated nodes stay
    text = io.BytesIO()
    nx.write_graphml(graph, text)  # takes plain values only
    assert b"partial correlation" in text.getvalue()


def test_graph_of_a_blanket_is_the_query_and_its_blanket(blanket):
    graph = blanket.to_networkx(level=0.9)
    edges = blanket.edges(0.9)
    joined = {"abcd"[j] for j in np.flatnonzero(edges.any(axis=0))}
    assert set(graph.nodes) == {"d", "b"} | joined
    assert {name for name, node in graph.nodes.items() if node["query"]} == {"d", "b"}
    assert all("abcd"[node["column"]] == name for name, node in graph.nodes.items())
    inside = {name: graph.edges[name]["scale"] == "partial correlation" for name in graph.edges}
    assert inside == {edge: set(edge) == {"b", "d"} for edge in graph.edges} != {}
    assert set(blanket.to_networkx(level=1 - 1e-9).nodes) == {"d", "b"}
