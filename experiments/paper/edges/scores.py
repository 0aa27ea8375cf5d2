"""Scores of edges against a true graph: F1 over pairs and as published, MCC, average precision.

F1 = 2 TP / (2 TP + FP + FN),   as published: every off-diagonal pair twice, the diagonal among the true positives
"""

import numpy as np
from jaxtyping import Bool, Float

from ggmflow.baselines import (
    average_precision,
    edge_metrics,
)
from ggmflow.posterior.posterior import Posterior

Matrix = Float[np.ndarray, "d d"]
LEVEL = 0.9  # of the paper's credible intervals


def score_posterior(truth: Matrix, post: Posterior) -> tuple[float, ...]:
    """Scores of the intervals' edges, of the ranking by |mean|/sd, and of the default rule; plain draws."""
    ranking = np.abs(post.mean(weighted=False)) / post.sd(weighted=False)
    default = post.edges(weighted=False)
    found = edge_metrics(truth, default)
    return (
        *score_edges(truth, post.edges(level=LEVEL, weighted=False), ranking),
        int(default.sum()) // 2,
        found.f1,
        found.mcc,
    )


def score_estimate(truth: Matrix, precision: Matrix) -> tuple[float, ...]:
    """Scores of the support of an estimate and of the ranking by |ω_ij|; there is no default rule."""
    return *score_edges(truth, precision != 0, np.abs(precision)), np.nan, np.nan, np.nan


def score_edges(truth: Matrix, edges: Bool[np.ndarray, "d d"], ranking: Matrix) -> tuple[float, ...]:
    """Edges, F1 over pairs, F1 as published, MCC, average precision."""
    found = edge_metrics(truth, edges)
    tp, fp, fn = found.true_positives, found.false_positives, found.false_negatives
    published = 2 * (2 * tp + len(truth)) / (2 * (2 * tp + len(truth)) + 2 * fp + 2 * fn)
    return tp + fp, found.f1, published, found.mcc, average_precision(truth, ranking)
