"""Known networks: the precision matrix that parents, weights and variances imply."""

import json
from importlib.util import find_spec

import networkx as nx
import numpy as np
import pytest

from experiments.paper.edges import networks
from experiments.paper.edges.networks import NETWORKS, Network, load_network, read_network

# Variables and arcs as the Bayesian network repository lists them.
SIZES = {"ecoli70": (46, 70), "magic-niab": (44, 66), "magic-irri": (64, 102), "arth150": (107, 150)}


@pytest.fixture(params=NETWORKS)
def network(request):
    if find_spec("pgmpy") is None:
        pytest.skip("the files come with pgmpy")
    return request.param, load_network(request.param)


def test_size_of_every_network(network):
    name, found = network
    assert (len(found.names), np.count_nonzero(found.weights)) == SIZES[name]
    assert nx.is_directed_acyclic_graph(nx.from_numpy_array(found.weights != 0, create_using=nx.DiGraph))


def test_edges_are_those_of_the_moral_graph(network):
    _, found = network
    arcs = nx.from_numpy_array((found.weights != 0).T, create_using=nx.DiGraph)  # from parent to child
    moral = nx.moral_graph(arcs)
    edges = nx.from_numpy_array(found.precision() != 0)
    edges.remove_edges_from(nx.selfloop_edges(edges))
    assert {frozenset(edge) for edge in edges.edges} == {frozenset(edge) for edge in moral.edges}


def test_precision_is_the_inverse_of_the_covariance_found_parent_by_parent(network):
    _, found = network
    d = len(found.names)
    covariance = np.zeros((d, d))
    done = []
    order = nx.topological_sort(nx.from_numpy_array((found.weights != 0).T, create_using=nx.DiGraph))
    for k in order:  # cov(x_k, x_j) = Σ_p B_kp cov(x_p, x_j) for whatever comes before
        row = found.weights[k] @ covariance
        covariance[k, done] = covariance[done, k] = row[done]
        covariance[k, k] = found.weights[k] @ covariance @ found.weights[k] + found.variance[k]
        done.append(k)
    sd = np.sqrt(np.diag(covariance))
    product = found.precision() @ (covariance / np.outer(sd, sd))
    np.testing.assert_allclose(product, np.eye(d), atol=1e-9)


def test_a_collider_joins_its_parents():
    # x₂ = ½x₀ − x₁ + e: the parents are independent, but not given their child.
    weights = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.5, -1.0, 0.0]])
    found = Network(("a", "b", "c"), weights, np.array([1.0, 2.0, 4.0]))
    covariance = np.array([[1.0, 0.0, 0.5], [0.0, 2.0, -2.0], [0.5, -2.0, 0.25 + 2.0 + 4.0]])
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(found.precision(), np.linalg.inv(covariance / np.outer(sd, sd)), atol=1e-12)
    assert found.precision()[0, 1] != 0


def test_read_from_a_file(tmp_path):
    content = {
        "nodes": ["b", "a"],
        "arcs": [["a", "b"]],
        "cpds": {
            "a": {"coefficients": {"(Intercept)": [3.0]}, "variance": [2.0], "parents": []},
            "b": {"coefficients": {"(Intercept)": [1.0], "a": [0.5]}, "variance": [1.5], "parents": ["a"]},
        },
    }
    path = tmp_path / "network.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    found = read_network(path)
    assert found.names == ("b", "a")
    np.testing.assert_array_equal(found.weights, [[0.0, 0.5], [0.0, 0.0]])
    np.testing.assert_array_equal(found.variance, [1.5, 2.0])
    content["arcs"] = []
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match="arcs and parents must agree"):
        read_network(path)


def test_messages_name_the_way_out(monkeypatch):
    with pytest.raises(ValueError, match="choose one of ecoli70"):
        load_network("ecoli71")
    monkeypatch.setattr(networks, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"not installed: pip install '\.\[experiments\]' in a clone"):
        load_network("ecoli70")
