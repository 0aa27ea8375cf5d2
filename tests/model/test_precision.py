"""Partial correlations by their definition; free entries by brute force; bad matrices by their messages."""

import numpy as np
import pytest

from ggmflow.errors.argument import ArgumentError
from ggmflow.model.precision import (
    check_rows,
    free_entries,
    partial_correlation,
    restore_definiteness,
    smallest_eigenvalue,
)

OMEGA = np.array([[2.0, -0.5, 0.0], [-0.5, 1.0, 0.3], [0.0, 0.3, 1.5]])


def test_partial_correlation_is_the_correlation_of_residuals():
    """Against its definition: correlation of the residuals of i and j after regression on the others."""
    cov = np.linalg.inv(OMEGA)
    for i, j, k in [(0, 1, 2), (0, 2, 1), (1, 2, 0)]:
        pair = np.ix_([i, j], [i, j])
        residual = cov[pair] - np.outer(cov[[i, j], k], cov[k, [i, j]]) / cov[k, k]
        expected = residual[0, 1] / np.sqrt(residual[0, 0] * residual[1, 1])
        assert partial_correlation(OMEGA)[i, j] == pytest.approx(expected)
    assert partial_correlation(np.stack([OMEGA] * 2)).shape == (2, 3, 3)


@pytest.mark.parametrize("query", [[0, 1, 2, 3, 4], [3, 0, 4, 1, 2], [4, 1], [2], [0, 1, 2]])
def test_free_entries_name_each_entry_once_and_rebuild_the_rows(query, rng):
    query, d = np.array(query), 5
    s = len(query)
    free = free_entries(query, d)
    M = rng.normal(size=(d, d))
    M = M + M.T  # all different, so an entry is known by its value
    rows = M[query]
    entries = rows[free.row, free.column]
    assert len(entries) == len(np.unique(entries)) == len(np.unique(rows)) == s * d - s * (s - 1) // 2
    np.testing.assert_array_equal(entries[free.position], rows)
    np.testing.assert_array_equal(entries[free.own], np.diag(M)[query])
    np.testing.assert_array_equal(free.diagonal, query[free.row] == free.column)
    np.testing.assert_array_equal(free.inside, np.isin(free.column, query))
    np.testing.assert_array_equal(query[free.partner[free.inside]], free.column[free.inside])
    np.testing.assert_array_equal(free.partner[~free.inside], free.row[~free.inside])
    if query.tolist() == list(range(d)):
        np.testing.assert_array_equal([free.row, free.column], np.triu_indices(d))


def test_check_rows_accepts_one_matrix_or_several():
    rows, single = check_rows(OMEGA[[2, 0]].tolist(), np.array([2, 0]), 3)
    assert rows.shape == (1, 2, 3) and single
    rows, single = check_rows(np.stack([OMEGA, OMEGA]).astype(np.float32), np.arange(3), 3)
    assert rows.shape == (2, 3, 3) and rows.dtype == np.float64 and not single


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[:1], r"shape \(2, 3\) or \(k, 2, 3\), got an array of shape \(1, 3\)"),
        (lambda rows: rows[None, None], "shape"),
        (lambda rows: rows.astype(str), "real numbers"),
        (lambda rows: rows + 1j, "real numbers"),
        (lambda rows: np.where(rows == 0.3, np.nan, rows), "finite"),
        (lambda rows: rows - 2 * np.eye(3)[[2, 0]], "with a positive diagonal"),
        (lambda rows: rows + np.array([[1.0, 0, 0], [0, 0, 0]]), "symmetric"),
        (lambda rows: rows + np.array([[3.0, 0, 0], [0, 0, 3.0]]), "eigenvalue"),
    ],
)
def test_rows_that_cannot_be_of_a_precision_matrix_raise(change, message):
    with pytest.raises(ArgumentError, match=message):
        check_rows(change(OMEGA[[2, 0]]), np.array([2, 0]), 3)


def test_a_block_may_be_asymmetric_outside_the_query():
    """Only Ω₁₁ must be symmetric and positive definite; Ω₁₂ may be anything."""
    check_rows(np.array([[1.0, 50.0, 0.2], [0.2, -3.0, 1.0]]), np.array([0, 2]), 3)


def test_only_matrices_that_rounding_made_indefinite_are_changed():
    """Near-singular matrices of any scale, rounded to float32: the diagonal moves by a few times the rounding."""
    rng, query = np.random.default_rng(0), np.array([3, 0, 1])
    L = np.tril(rng.normal(size=(200, 3, 3)))
    L[:, 2, 2] = 1e-6
    L *= 10.0 ** rng.uniform(-6, 6, size=(200, 3, 1))
    rows = rng.normal(size=(200, 3, 5))
    rows[:, :, query] = L @ np.swapaxes(L, 1, 2)
    rounded = rows.astype(np.float32).astype(float)
    indefinite = smallest_eigenvalue(rounded[:, :, query]) <= 0
    assert 20 < indefinite.sum() < 180
    restored = restore_definiteness(rounded, query)
    assert np.all(smallest_eigenvalue(restored[:, :, query]) > 0)
    assert np.all(np.abs(restored - rounded) <= 8 * 2.0**-23 * np.abs(rounded))
    definite = np.tile(OMEGA, (3, 1, 1))
    assert restore_definiteness(definite, np.arange(3)) is definite


def test_a_matrix_without_a_positive_diagonal_is_restored_too():
    """Whatever finite matrix it is, the result is positive definite: chains can start from it."""
    rows = np.array([[[0.0, 0.5], [0.5, 1.0]], [[-1.0, 0.0], [0.0, 1.0]], [[1.0, 5.0], [5.0, 1.0]]])
    restored = restore_definiteness(rows, np.arange(2))
    np.testing.assert_array_less(0, smallest_eigenvalue(restored))
    np.testing.assert_array_equal(restored[:, 0, 1], rows[:, 0, 1])
