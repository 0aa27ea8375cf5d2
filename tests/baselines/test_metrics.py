"""Edge metrics count each pair of different variables once, and agree with scikit-learn on those pairs."""

import numpy as np
import pytest
from sklearn import metrics

from ggmflow.baselines import average_precision, edge_metrics
from ggmflow.errors.argument import ArgumentError


def random_graph(rng: np.random.Generator, d: int, density: float) -> np.ndarray:
    upper = np.triu(rng.normal(size=(d, d)) * (rng.random((d, d)) < density), k=1)
    return upper + upper.T + 3 * np.eye(d)


@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_scikit_learn_on_the_upper_triangle(seed):
    rng = np.random.default_rng(seed)
    d = 12
    true, estimate = random_graph(rng, d, 0.3), random_graph(rng, d, 0.4)
    scores = rng.random((d, d)).round(1)  # with ties
    scores = np.maximum(scores, scores.T)
    pairs = np.triu_indices(d, k=1)
    y, y_hat = true[pairs] != 0, estimate[pairs] != 0
    result = edge_metrics(true, estimate)
    assert result.f1 == pytest.approx(metrics.f1_score(y, y_hat))
    assert result.precision == pytest.approx(metrics.precision_score(y, y_hat))
    assert result.recall == pytest.approx(metrics.recall_score(y, y_hat))
    assert result.mcc == pytest.approx(metrics.matthews_corrcoef(y, y_hat))
    assert sum(result[4:]) == d * (d - 1) // 2
    assert average_precision(true, scores) == pytest.approx(metrics.average_precision_score(y, scores[pairs]))


def test_hand_counted():
    true = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]])  # edges 01, 12, 23
    estimate = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 1, 1], [0, 0, 1, 1]])  # edges 01, 02, 23
    result = edge_metrics(true, estimate)
    assert result[4:] == (2, 1, 1, 2)
    assert result.f1 == result.precision == result.recall == pytest.approx(2 / 3)
    assert result.mcc == pytest.approx((2 * 2 - 1 * 1) / 9)


def test_the_diagonal_does_not_count():
    rng = np.random.default_rng(0)
    true, estimate = random_graph(rng, 8, 0.3), random_graph(rng, 8, 0.3)
    hollow = estimate - np.diag(np.diag(estimate))
    assert edge_metrics(true, estimate) == edge_metrics(true, hollow)
    assert edge_metrics(true - np.diag(np.diag(true)), estimate) == edge_metrics(true, estimate)
    # Counting the diagonal would call this estimate without a single correct edge a fair one.
    assert edge_metrics(true, np.eye(8)).f1 == 0.0
    scores = np.abs(estimate)
    assert average_precision(true, scores) == average_precision(true, scores - np.diag(np.diag(scores)))


def test_query_block_counts_its_pairs_once():
    rng = np.random.default_rng(1)
    s, d = 3, 9
    true, estimate = random_graph(rng, d, 0.4), random_graph(rng, d, 0.4)
    result = edge_metrics(true[:s], estimate[:s])
    pairs = [(i, j) for i in range(s) for j in range(i + 1, d)]
    assert sum(result[4:]) == len(pairs) == s * (2 * d - s - 1) // 2
    assert result.true_positives == sum(true[p] != 0 and estimate[p] != 0 for p in pairs)
    assert result.false_positives == sum(true[p] == 0 and estimate[p] != 0 for p in pairs)
    y, scores = np.array([true[p] != 0 for p in pairs]), np.array([abs(estimate[p]) for p in pairs])
    assert average_precision(true[:s], np.abs(estimate[:s])) == pytest.approx(
        metrics.average_precision_score(y, scores)
    )


def test_query_block_of_all_variables_is_the_whole():
    rng = np.random.default_rng(2)
    true, estimate = random_graph(rng, 7, 0.4), random_graph(rng, 7, 0.4)
    assert edge_metrics(true[:7], estimate[:7]) == edge_metrics(true, estimate)


EMPTY, FULL = np.eye(4), np.ones((4, 4))
HALF = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]])


@pytest.mark.parametrize(
    ("true", "estimate", "f1", "precision", "recall", "mcc"),
    [
        (EMPTY, EMPTY, 0.0, 0.0, 0.0, 0.0),
        (EMPTY, HALF, 0.0, 0.0, 0.0, 0.0),
        (HALF, EMPTY, 0.0, 0.0, 0.0, 0.0),
        (HALF, FULL, 0.5, 1 / 3, 1.0, 0.0),
        (FULL, FULL, 1.0, 1.0, 1.0, 0.0),
        (HALF, HALF, 1.0, 1.0, 1.0, 1.0),
    ],
)
def test_edge_cases_have_the_documented_values(true, estimate, f1, precision, recall, mcc):
    assert edge_metrics(true, estimate)[:4] == pytest.approx((f1, precision, recall, mcc))


def test_average_precision_edge_cases():
    assert average_precision(EMPTY, FULL) == 0.0
    assert average_precision(FULL, EMPTY) == 1.0
    assert average_precision(HALF, HALF) == 1.0
    assert average_precision(HALF, np.ones((4, 4))) == pytest.approx(2 / 6)  # constant scores: the edge density
    assert average_precision(HALF.astype(bool), HALF) == 1.0


def test_complement_has_the_worst_scores():
    complement = 1 - HALF
    assert edge_metrics(HALF, complement).mcc == pytest.approx(-1.0)
    assert edge_metrics(HALF, complement).f1 == 0.0


@pytest.mark.parametrize(
    ("true", "estimate", "message"),
    [
        (np.eye(3), np.eye(4), r"estimate must have shape \(3, 3\), as .* of shape \(4, 4\)"),
        (np.ones((4, 3)), np.ones((4, 3)), "true must have shape"),
        (np.ones(3), np.ones(3), "true must have shape"),
        (np.eye(3), np.triu(np.ones((3, 3))), "estimate must be symmetric in its zeros"),
        (np.eye(2), np.full((2, 2), np.nan), "estimate must hold no NaN values"),
    ],
)
def test_invalid_arguments(true, estimate, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        edge_metrics(true, estimate)
    assert caught.value.argument == message.split()[0]


def test_average_precision_rejects_asymmetric_scores():
    with pytest.raises(ArgumentError, match="scores must be symmetric"):
        average_precision(np.ones((2, 2)), [[1.0, 0.2], [0.3, 1.0]])


def test_negative_scores_raise():
    with pytest.raises(ArgumentError, match=r"scores must not be negative, .*: pass their absolute values"):
        average_precision(HALF, -HALF)
