"""Agreement of an estimated graph with the true one, counting each pair of different variables once.

    F1 = 2 TP / (2 TP + FP + FN),
    MCC = (TP·TN − FP·FN) / √((TP+FP)(TP+FN)(TN+FP)(TN+FN)).

The diagonal of a precision matrix is never zero, so counting it as edges would reward every estimate with d correct
answers. All functions take either the whole (d, d) matrices, or the (s, d) rows of a query block whose s variables
come first; the pairs are those with i < j and i < s.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike
from sklearn.metrics import average_precision_score

from ggmflow.errors.advice import Advice
from ggmflow.errors.argument import ArgumentError


class EdgeMetrics(NamedTuple):
    """Agreement of two graphs on their pairs of variables.

    A ratio 0/0 is given the value 0, as scikit-learn does with ``zero_division=0``: without true edges ``recall``
    and ``f1`` are 0, without estimated edges ``precision`` and ``f1`` are 0, and ``mcc`` is 0 if either graph is
    empty or complete.

    Attributes
    ----------
    f1, precision, recall, mcc : float
        Scores of the estimated edges.
    true_positives, false_positives, false_negatives, true_negatives : int
        Numbers of pairs; their sum is d(d−1)/2, or s(2d−s−1)/2 for a query block.
    """

    f1: float
    precision: float
    recall: float
    mcc: float
    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int


def edge_metrics(true: ArrayLike, estimate: ArrayLike) -> EdgeMetrics:
    """Compare the edges, that is the nonzero entries, of an estimated matrix with the true ones.

    Parameters
    ----------
    true, estimate : (d, d) or (s, d) array_like
        Precision or adjacency matrices; the square part must have a symmetric pattern. The diagonal is ignored.

    Returns
    -------
    EdgeMetrics

    Raises
    ------
    ValueError
        If the shapes differ or are not of that form, a pattern is not symmetric, or a value is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> true = np.array([[2.0, 0.5, 0.0], [0.5, 2.0, 0.3], [0.0, 0.3, 2.0]])
    >>> edge_metrics(true, np.eye(3)).f1
    0.0
    """
    actual = edge_vector("true", true) != 0
    found = edge_vector("estimate", estimate, shape=np.shape(true)) != 0
    tp, fp = int(np.sum(actual & found)), int(np.sum(~actual & found))
    fn, tn = int(np.sum(actual & ~found)), int(np.sum(~actual & ~found))
    spread = float(tp + fp) * float(tp + fn) * float(tn + fp) * float(tn + fn)
    return EdgeMetrics(
        f1=_ratio(2 * tp, 2 * tp + fp + fn),
        precision=_ratio(tp, tp + fp),
        recall=_ratio(tp, tp + fn),
        mcc=_ratio(tp * tn - fp * fn, spread**0.5),
        true_positives=tp,
        false_positives=fp,
        false_negatives=fn,
        true_negatives=tn,
    )


def average_precision(true: ArrayLike, scores: ArrayLike) -> float:
    """Average precision Σ_k (R_k − R_{k−1}) P_k of the true edges as the threshold on the scores falls.

    Parameters
    ----------
    true : (d, d) or (s, d) array_like
        Precision or adjacency matrix; nonzero entries off the diagonal are edges.
    scores : (d, d) or (s, d) array_like
        Larger means stronger evidence of an edge: an inclusion probability, or the absolute value of an estimate. The
        square part must be symmetric. The diagonal is ignored.

    Returns
    -------
    float
        0 if there are no true edges.

    Raises
    ------
    ValueError
        As in `edge_metrics`, or if a score is negative.
    """
    actual = edge_vector("true", true) != 0
    ranked = edge_vector("scores", scores, shape=np.shape(true), pattern_only=False)
    if np.any(ranked < 0):
        advice = Advice("pass their absolute values, which rank pairs by strength")
        raise ArgumentError("scores", np.asarray(scores), "not be negative", advice=advice)
    return float(average_precision_score(actual, ranked)) if actual.any() else 0.0


def edge_vector(
    name: str, matrix: ArrayLike, *, shape: tuple[int, ...] | None = None, pattern_only: bool = True
) -> Float[np.ndarray, " pairs"] | Bool[np.ndarray, " pairs"]:
    """Entries of the pairs i < j, i < s, row by row.

    Parameters
    ----------
    name : str
        Name of the matrix in error messages.
    matrix : (d, d) or (s, d) array_like
        Checked: not NaN, symmetric where square.
    shape : tuple, optional
        The required shape.
    pattern_only : bool
        Whether only the zeros have to be symmetric.
    """
    entries = np.asarray(matrix)
    if entries.ndim != 2 or entries.shape[0] > entries.shape[1]:
        raise ArgumentError(name, entries, "have shape (d, d) or (s, d) with s < d")
    if shape is not None and entries.shape != shape:
        raise ArgumentError(name, entries, f"have shape {shape}, as the true matrix has")
    if entries.dtype != bool:
        entries = entries.astype(float)
        if np.any(np.isnan(entries)):
            raise ArgumentError(name, entries, "hold no NaN values")
    s, d = entries.shape
    square = entries[:, :s] != 0 if pattern_only else entries[:, :s].astype(float)
    if not np.allclose(square, square.T, rtol=1e-6, atol=1e-10):
        raise ArgumentError(name, entries, f"be symmetric{' in its zeros' if pattern_only else ''}")
    rows, columns = np.triu_indices(s, k=1, m=d)
    return entries[rows, columns]


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0
