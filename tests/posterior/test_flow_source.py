"""A flow as a source of draws: densities agree with each other and rows and columns are those of the data."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from paramax import unwrap
from scipy import stats

from ggmflow.data.scatter import Scatter
from ggmflow.data.simulate import toy_problem
from ggmflow.flow.base import build_flow, widen
from ggmflow.model.precision import smallest_eigenvalue
from ggmflow.model.target import entry_indices
from ggmflow.posterior.flow_source import FlowSource, chunk_size
from tests.support.models import key_with_indefinite_draws, prior_source

LOW, HIGH = np.array([np.log(0.5), 0.25, np.log(0.01)]), np.array([np.log(8.0), 1.25, 0.0])
CONDITION = np.array([np.log(2.0), 0.5, 0.0])
ORDERS = {"query": ([2, 0], [2, 0, 1, 3]), "all": ([2, 0, 3, 1], [2, 0, 3, 1])}  # all: in another order than the data
X, _ = toy_problem(4, 20, random_state=0)
SCATTER = Scatter.from_data(X, standardize=False)
S = SCATTER.matrix


def make_source(query, order, condition=CONDITION):
    """An untrained flow, which suffices here."""
    flow = build_flow(jax.random.key(0), "structured", S[np.ix_(order, order)], SCATTER.n, len(query), LOW, HIGH)
    return FlowSource(flow, condition, np.array(order), SCATTER)


@pytest.fixture(params=ORDERS, scope="module")
def case(request):
    query, order = ORDERS[request.param]
    return make_source(query, order), query


def log_target(rows, query, lam, q):
    """The blanket's formula, in the order of the data."""
    d, rest = len(S), np.setdiff1d(np.arange(len(S)), query)
    at = query  # variable to which each row belongs
    Psi = S + lam * np.eye(d)
    O_11, O_12 = rows[:, :, at], rows[:, :, rest]
    trace = np.einsum("kij,ij->k", rows, Psi[at])
    if len(rest):
        trace += np.einsum("kij,ij->k", O_12, Psi[np.ix_(at, rest)])
        trace += np.einsum("kij,kij->k", O_12 @ Psi[np.ix_(rest, rest)], np.linalg.solve(O_11, O_12))
    row, column = [], []
    for k, i in enumerate(at):
        others = [j for j in range(d) if j != i and (j in rest or list(at).index(j) > k)]  # every pair once
        row, column = row + [k] * len(others), column + others
    penalty = np.sum(np.abs(rows[:, row, column]) ** q, axis=1)
    return 0.5 * SCATTER.n * np.linalg.slogdet(O_11)[1] - 0.5 * trace - lam * penalty


def test_rows_and_columns_are_those_of_the_data(case):
    """log p̃ of the source equals another formula evaluated on the rows, which needs every entry in its place."""
    source, query = case
    draws = source.sample(jax.random.key(1), 500)
    s = len(query)
    assert draws.precision.shape == (500, s, 4)
    assert draws.precision.dtype == draws.log_prob.dtype == draws.log_target.dtype == np.float64
    block = draws.precision[:, :, query]
    np.testing.assert_array_equal(block, np.swapaxes(block, 1, 2))
    assert np.linalg.eigvalsh(block).min() > 0
    expected = log_target(draws.precision, query, 2.0, 0.5)
    np.testing.assert_allclose(draws.log_target, expected, atol=2e-3)
    # The test can tell: with two columns swapped it is another number.
    assert np.abs(log_target(draws.precision[:, :, [1, 0, 2, 3]], query, 2.0, 0.5) - expected).min() > 1e-2


@pytest.mark.slow
def test_log_prob_is_that_of_the_draws(case):
    """Through the inverse and along with the draw, in float32. Also not a multiple of the chunk, and one alone."""
    source, _ = case
    draws = source.sample(jax.random.key(2), 1003)
    log_prob = source.log_prob(draws.precision)
    assert log_prob.shape == (1003,)
    np.testing.assert_allclose(log_prob, draws.log_prob, atol=2e-2)
    assert np.median(np.abs(log_prob - draws.log_prob)) < 1e-3
    np.testing.assert_allclose(source.log_prob(draws.precision[5:6]), log_prob[5:6], atol=1e-4)


def test_the_same_key_gives_the_same_draws_however_many(case):
    source, _ = case
    size = chunk_size(source.flow)
    many = source.sample(jax.random.key(3), 2 * size + 7)
    few = source.sample(jax.random.key(3), size + 1)
    for a, b in zip(many, few, strict=True):
        np.testing.assert_array_equal(a[: size + 1], b)
    assert len(np.unique(many.log_prob)) > 0.99 * (2 * size + 7)  # chunks do not repeat each other
    other = source.sample(jax.random.key(4), 10)
    assert not np.any(other.log_prob == many.log_prob[:10])


@pytest.mark.slow
def test_a_condition_costs_no_compilation(case, compilations):
    source, _ = case
    source.sample(jax.random.key(5), 10)
    source.log_prob(source.sample(jax.random.key(5), 10).precision)
    del compilations[:]
    other = source._replace(condition=np.array([np.log(5.0), 1.0, np.log(0.1)]))
    draws = other.sample(jax.random.key(6), 12)
    other.log_prob(draws.precision)
    assert compilations == []
    jax.jit(lambda x: x * 0.123)(1.0)
    assert len(compilations) > 0  # it would have been seen


def test_log_target_is_that_of_the_draws(case):
    source, _ = case
    draws = source.sample(jax.random.key(8), 30)
    found = source.log_target(draws.precision.reshape(5, 6, *draws.precision.shape[1:]))
    assert found.shape == (5, 6) and found.dtype == np.float64
    np.testing.assert_allclose(found.ravel(), draws.log_target, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
def test_log_prob_of_near_singular_matrices(case):
    """Against the other direction, noise to matrix, in float64; float32 has no Cholesky factor for these matrices."""
    source, query = case
    s, order = len(query), source.order
    row, col = entry_indices(4, s)
    z = np.random.default_rng(0).normal(size=(5, len(row)))
    last = np.flatnonzero((row == s - 1) & (col == s - 1))[0]
    z[1:, last] -= [10.0, 20.0, 25.0, 30.0]  # farther out float64 does not suffice either
    with jax.enable_x64(True):
        flow, condition = widen(source.flow), jax.numpy.asarray(source.condition)
        push = jax.vmap(unwrap(flow).bijection.transform_and_log_det, (0, None))
        entries, log_det = (np.asarray(value) for value in push(jax.numpy.asarray(z), condition))
    expected = stats.norm.logpdf(z).sum(axis=1) - log_det
    ordered = np.zeros((5, s, 4))
    ordered[:, col, row] = entries
    ordered[:, row[row < s], col[row < s]] = entries[:, row < s]
    rows = np.empty_like(ordered)
    rows[..., order] = ordered
    eigenvalues = smallest_eigenvalue(ordered[:, :, :s])
    assert eigenvalues[0] > 1e-3 and 0 < eigenvalues.min() < 1e-9
    np.testing.assert_allclose(source.log_prob(rows), expected, atol=2e-2)


@pytest.mark.slow
def test_no_matrix_has_no_density_and_an_indefinite_one_is_named(case):
    source, query = case
    rows = source.sample(jax.random.key(3), 3).precision
    assert source.log_prob(rows[:0]).shape == (0,)
    a, b = query[:2]
    rows[1, 0, b] = rows[1, 1, a] = np.sqrt(rows[1, 0, a] * rows[1, 1, b]) * (1 + 1e-12)
    with pytest.raises(ValueError, match="matrix 1 of 3 is too near singular"):
        source.log_prob(rows)


def test_chunks_are_of_reasonable_size():
    def flow(n_entries, n_query):
        return SimpleNamespace(n_entries=n_entries, n_query=n_query, scatter_matrix=np.eye(3))

    assert [chunk_size(flow(n, 3)) for n in (1, 1000, 5050, 10**7)] == [500, 500, 103, 64]
    assert [chunk_size(flow(n, 2)) for n in (1, 1893, 5050, 10**7)] == [600, 553, 207, 64]


@pytest.mark.slow
def test_log_target_of_large_data_is_not_lost_in_rounding():
    """A million rows: log p̃ is the difference of numbers near 10⁷, where float32 has steps of 0.5 to 1 (sd 0.09)."""
    n, order = 10**6, np.arange(4)
    flow = build_flow(jax.random.key(0), "structured", S * (n / len(X)), n, 4, LOW, HIGH)
    scatter = Scatter(S * (n / len(X)), n, np.zeros(4), np.ones(4), SCATTER.names)
    draws = FlowSource(flow, CONDITION, order, scatter).sample(jax.random.key(1), 200)
    rows, Psi = draws.precision, S * (n / len(X)) + 2.0 * np.eye(4)
    i, j = np.triu_indices(4, 1)
    trace, penalty = np.tensordot(rows, Psi, 2), 2.0 * np.sum(np.abs(rows[:, i, j]) ** 0.5, axis=1)
    expected = 0.5 * n * np.linalg.slogdet(rows)[1] - 0.5 * trace - penalty
    difference = draws.log_target - expected
    # S itself is rounded once, the same for all draws; entries are rounded to float32, √n · 6e-8 each.
    assert np.std(difference) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("lam, q", [(50.0, 0.25), (50.0, 1.0)])
def test_a_strong_penalty_is_met_before_any_training(lam, q):
    """Entries pinned to zero, d > n: log p̃ − log q, which would be constant for the posterior itself, hardly varies.

    Its sd is 0.9 and 0.7. With the ridge of later entries on the entry at hand and degrees of freedom for pinned
    entries it was 18 and 17. Keys are fixed.
    """
    X, _ = toy_problem(24, 16, random_state=0)
    low, high = np.array([0.0, 0.25, 0.0]), np.array([np.log(100.0), 1.25, 0.0])
    flow = build_flow(jax.random.key(0), "structured", X.T @ X, 16, 24, low, high)
    source = FlowSource(flow, np.array([np.log(lam), q, 0.0]), np.arange(24), Scatter.from_data(X))
    draws = source.sample(jax.random.key(2), 400)
    assert np.std(draws.log_target - draws.log_prob) < 3


@pytest.mark.slow
def test_chains_start_from_draws_that_rounding_made_indefinite():
    source = prior_source()
    start = source.sample(key_with_indefinite_draws(lambda key: source.sample(key, 256).precision), 256).precision
    chains = source.refine(jax.random.key(1), start, 2, 2)
    assert chains.draws.shape == (256, 2, 4, 4)
    assert np.linalg.eigvalsh(chains.pooled).min() > 0
