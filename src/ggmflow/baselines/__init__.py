"""Other estimators of sparse precision matrices, and metrics of the edges that an estimate has."""

from ggmflow.baselines.bayesian_graphical_lasso import bayesian_graphical_lasso
from ggmflow.baselines.blanket_gibbs import blanket_gibbs
from ggmflow.baselines.graphical_lasso import graphical_lasso
from ggmflow.baselines.metrics import EdgeMetrics, average_precision, edge_metrics
from ggmflow.baselines.nonconvex import NonconvexResult, ledoit_wolf_precision, nonconvex_precision
from ggmflow.baselines.penalties import PENALTIES, penalty_slope, penalty_value
from ggmflow.modes.penalized_likelihood import PenalizedLikelihoodResult

__all__ = [
    # estimators
    "graphical_lasso",
    "PenalizedLikelihoodResult",
    "nonconvex_precision",
    "NonconvexResult",
    "ledoit_wolf_precision",
    "bayesian_graphical_lasso",
    "blanket_gibbs",
    # penalties
    "PENALTIES",
    "penalty_value",
    "penalty_slope",
    # edges
    "edge_metrics",
    "EdgeMetrics",
    "average_precision",
]
