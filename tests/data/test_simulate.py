"""Simulated precisions have unit variances and the requested edges; samples have the right covariance."""

import ast
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from scipy.stats import norm
from sklearn.datasets import make_sparse_spd_matrix

from ggmflow.data import simulate
from ggmflow.data.simulate import sample_gaussian, sparse_precision, toy_problem

GRAPHS = ["sparse", "band", "hub", "scale-free", "random"]


def edges(precision):
    return nx.from_numpy_array(np.triu(precision, 1) != 0)


def partial_correlations(precision):
    sd = np.sqrt(np.diag(precision))
    return -(precision / np.outer(sd, sd))[np.triu_indices(len(sd), 1)]


# ---------------------------------------------------------------- every graph


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(("n_features", "max_condition"), [(2, 100), (15, 100), (60, 100), (60, 3), (15, 1e4)])
def test_positive_definite_with_unit_variances(graph, n_features, max_condition):
    for seed in range(3):
        precision = sparse_precision(n_features, graph=graph, max_condition=max_condition, random_state=seed)
        np.testing.assert_array_equal(precision, precision.T)
        np.testing.assert_allclose(np.diag(np.linalg.inv(precision)), 1, rtol=1e-9)
        eigenvalues = np.linalg.eigvalsh(precision)
        assert eigenvalues[0] > (1 - 1e-9) / n_features
        assert eigenvalues[-1] / eigenvalues[0] < max_condition * (1 + 1e-9)


@pytest.mark.parametrize("graph", GRAPHS)
def test_seeds_repeat_and_differ(graph):
    first = sparse_precision(20, graph=graph, random_state=0)
    np.testing.assert_array_equal(first, sparse_precision(20, graph=graph, random_state=0))
    generator = np.random.default_rng(0)
    np.testing.assert_array_equal(first, sparse_precision(20, graph=graph, random_state=generator))
    # A second draw of the same generator differs, as do other seeds and None.
    others = [sparse_precision(20, graph=graph, random_state=state) for state in (generator, 1, 2, None, None)]
    for i, other in enumerate(others):
        for another in [first, *others[:i]]:
            assert np.abs(other - another).max() > 1e-3


def test_global_randomness_is_untouched():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    for graph in GRAPHS:
        sparse_precision(10, graph=graph)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@pytest.mark.parametrize("graph", ["band", "hub", "scale-free", "random"])
def test_weights_and_signs(graph):
    precision = sparse_precision(100, graph=graph, weights=(0.3, 0.6), random_state=0)
    partial = partial_correlations(precision)
    magnitude = np.abs(partial[partial != 0])
    # The ridge divides all partial correlations by the same number: ratios are at most 0.6/0.3.
    assert 1.6 < magnitude.max() / magnitude.min() <= 2 * (1 + 1e-9)
    assert magnitude.max() <= 0.6
    # Signs are fair coins: for k edges the share is 0.5 ± 5 standard errors, false alarm rate 6e-7.
    assert abs(np.mean(partial[partial != 0] > 0) - 0.5) < 5 * 0.5 / np.sqrt(len(magnitude))


def test_one_magnitude():
    partial = partial_correlations(sparse_precision(20, graph="band", weights=(0.2, 0.2), random_state=0))
    np.testing.assert_allclose(np.abs(partial[partial != 0]), 0.2, rtol=1e-9)  # no ridge was needed


# ---------------------------------------------------------------- each graph's edges


@pytest.mark.parametrize("bandwidth", [1, 2, 14])
def test_band(bandwidth):
    precision = sparse_precision(15, graph="band", bandwidth=bandwidth, random_state=0)
    distance = np.abs(np.subtract.outer(np.arange(15), np.arange(15)))
    np.testing.assert_array_equal(precision != 0, distance <= bandwidth)


@pytest.mark.parametrize(("d", "n_hubs", "degrees"), [(20, 2, [9, 9]), (11, 3, [3, 3, 2]), (30, None, [9, 9, 9])])
def test_hub(d, n_hubs, degrees):
    options = {} if n_hubs is None else {"n_hubs": n_hubs}
    graph = edges(sparse_precision(d, graph="hub", random_state=0, **options))
    found = sorted((degree for _, degree in graph.degree()), reverse=True)
    assert found == degrees + [1] * (d - len(degrees))
    assert nx.number_connected_components(graph) == len(degrees)


@pytest.mark.parametrize("n_attach", [1, 2, 3])
def test_scale_free(n_attach):
    graph = edges(sparse_precision(50, graph="scale-free", n_attach=n_attach, random_state=0))
    assert graph.number_of_edges() == n_attach * (50 - n_attach)
    assert nx.is_connected(graph)
    assert nx.is_tree(graph) == (n_attach == 1)
    assert max(degree for _, degree in graph.degree()) > 3 * n_attach


@pytest.mark.parametrize("alpha", [0.5, 0.9])
def test_random(alpha):
    graph = edges(sparse_precision(100, graph="random", alpha=alpha, random_state=0))
    # Binomial(4950, 1 − α) within 5 standard deviations: false alarm rate 6e-7.
    assert abs(graph.number_of_edges() - 4950 * (1 - alpha)) < 5 * np.sqrt(4950 * alpha * (1 - alpha))
    assert edges(sparse_precision(10, graph="random", alpha=1, random_state=0)).number_of_edges() == 0


def test_sparse_is_scikit_learns_matrix_rescaled():
    seed = int(np.random.default_rng(3).integers(2**31))
    theirs = make_sparse_spd_matrix(15, alpha=0.9, random_state=seed)
    ours = sparse_precision(15, random_state=3)
    sd = np.sqrt(np.diag(np.linalg.inv(theirs)))
    np.testing.assert_allclose(ours, theirs * np.outer(sd, sd), rtol=1e-9)


def test_alpha_controls_sparsity():
    counts = [
        np.mean([edges(sparse_precision(20, alpha=alpha, random_state=s)).number_of_edges() for s in range(5)])
        for alpha in (0.5, 0.9, 0.95, 1.0)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 0


# ---------------------------------------------------------------- samples


@pytest.mark.parametrize("graph", GRAPHS)
def test_sample_covariance_and_mean(graph):
    """False alarm rate 1e-4 per graph (Bonferroni over all entries) if the key were random."""
    d, n = 12, 20_000
    precision = sparse_precision(d, graph=graph, random_state=0)
    cov = np.linalg.inv(precision)
    X = sample_gaussian(precision, n, random_state=1)
    assert X.shape == (n, d)
    z_cov = (X.T @ X / n - cov) / np.sqrt((cov**2 + 1) / n)  # var(x_i x_j) = σ_ii σ_jj + σ_ij²
    z_mean = X.mean(axis=0) * np.sqrt(n)
    limit = norm.isf(1e-4 / 2 / (d * (d + 1) / 2 + d))
    assert np.abs(z_cov).max() < limit
    assert np.abs(z_mean).max() < limit
    # A sampler without the transpose, x = L⁻¹z, has another covariance, which the test must detect.
    L = np.linalg.cholesky(precision)
    wrong = np.linalg.inv(L) @ np.linalg.inv(L).T
    assert np.abs((wrong - cov) / np.sqrt((cov**2 + 1) / n)).max() > 2 * limit


def test_samples_repeat_and_differ():
    a, b, c = (sample_gaussian(np.eye(3), 5, random_state=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 0.1


def test_toy_problem():
    X, precision = toy_problem(random_state=0)
    assert (X.shape, precision.shape) == ((15, 15), (15, 15))
    again, _ = toy_problem(random_state=0)
    np.testing.assert_array_equal(X, again)
    truths = [toy_problem(random_state=seed)[1] for seed in range(10)]
    # The published comparison used one truth ten times; these are ten different ones.
    assert len({truth.tobytes() for truth in truths}) == 10
    X, precision = toy_problem(n_features=4, n_samples=7, alpha=1.0, random_state=0)
    assert X.shape == (7, 4)
    np.testing.assert_allclose(precision, np.eye(4), atol=1e-12)
    assert np.abs(X - toy_problem(4, 7, 1.0, random_state=1)[0]).max() > 0.1  # same truth, other rows


# ---------------------------------------------------------------- bad arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_features": 1}, "n_features must be at least 2, got 1"),
        ({"n_features": 2.5}, "n_features must be an integer, got 2.5"),
        ({"n_features": True}, "n_features must be an integer"),
        ({"graph": "star"}, "unknown graph 'star': choose one of sparse, band, hub, scale-free, random"),
        ({"graph": "hub", "bandwidth": 2}, "graph='hub' takes the option n_hubs, not bandwidth"),
        ({"graph": "hub", "n_hubs": 6}, "n_hubs must be at least 1 and at most 5, got 6"),
        ({"graph": "band", "bandwidth": 0}, "bandwidth must be at least 1 and at most 9, got 0"),
        ({"graph": "scale-free", "n_attach": 10}, "n_attach must be at least 1 and at most 9, got 10"),
        ({"alpha": 1.5}, "alpha must be between 0 and 1, got 1.5"),
        ({"graph": "random", "alpha": -0.1}, "alpha must be between 0 and 1"),
        ({"alpha": float("nan")}, "alpha must be between 0 and 1"),
        ({"weights": (0.5, 0.2)}, "weights must be"),
        ({"weights": (0.0, 0.2)}, "weights must be"),
        ({"weights": (0.5, 1.2)}, "weights must be"),
        ({"max_condition": 1.0}, "max_condition must be above 1"),
        ({"max_condition": float("nan")}, "max_condition must be above 1"),
        ({"random_state": -1}, "non-negative"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        sparse_precision(**({"n_features": 10} | arguments))


@pytest.mark.parametrize(
    ("precision", "n_samples", "message"),
    [
        (np.eye(2), 0, "n_samples must be at least 1"),
        (np.eye(2), 1.5, "n_samples must be an integer"),
        (np.ones((2, 3)), 5, "square"),
        (np.ones(3), 5, "square"),
        ([[1.0, 0.5], [0.2, 1.0]], 5, "symmetric"),
        ([[1.0, np.nan], [np.nan, 1.0]], 5, "symmetric and finite"),
        ([[1.0, 2.0], [2.0, 1.0]], 5, "positive definite"),
    ],
)
def test_bad_samples(precision, n_samples, message):
    with pytest.raises(ValueError, match=message):
        sample_gaussian(precision, n_samples)


def test_simulate_imports_no_other_module_of_ggmflow():
    """It needs neither tables nor checks, and thus loads quickly."""
    tree = ast.parse(Path(simulate.__file__).read_text(encoding="utf-8"))
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not any(name.startswith("ggmflow") for name in imported)
