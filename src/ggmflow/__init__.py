"""Bayesian sparse precision matrices: the posterior of a Gaussian graphical model under any l_q penalty."""

from ggmflow import baselines, gibbs, plot, simulate, target
from ggmflow.compare import compare
from ggmflow.data import Scatter
from ggmflow.estimator import GraphicalFlow, RangeWarning
from ggmflow.posterior import PoorFitWarning, Posterior
from ggmflow.report import write_report
from ggmflow.run import load_run

__version__ = "0.1.0"

__all__ = [
    # data
    "Scatter",
    "simulate",
    # the posterior
    "GraphicalFlow",
    "Posterior",
    "PoorFitWarning",
    "RangeWarning",
    "load_run",
    "compare",
    "target",
    "gibbs",
    # other estimators
    "baselines",
    # for people
    "plot",
    "write_report",
    "__version__",
]
