"""Bayesian sparse precision matrices: the posterior of a Gaussian graphical model under any l_q penalty."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ggmflow import baselines, gibbs, plot, simulate, target
    from ggmflow.data import Scatter
    from ggmflow.data_check import DataWarning, check_data
    from ggmflow.differences import compare
    from ggmflow.estimator import GraphicalFlow, RangeWarning
    from ggmflow.many import FitsFailed, fit_many
    from ggmflow.posterior import PoorFitWarning, Posterior
    from ggmflow.report import write_report
    from ggmflow.run import load_run

__version__ = "0.1.0"

__all__ = [
    # data
    "Scatter",
    "check_data",
    "DataWarning",
    "simulate",
    # the posterior
    "GraphicalFlow",
    "Posterior",
    "PoorFitWarning",
    "RangeWarning",
    "fit_many",
    "FitsFailed",
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

# Loaded at first use: help and completion of the command line do not wait for JAX.
_ROOMS = {
    "Scatter": "data",
    "check_data": "data_check",
    "DataWarning": "data_check",
    "GraphicalFlow": "estimator",
    "RangeWarning": "estimator",
    "Posterior": "posterior",
    "PoorFitWarning": "posterior",
    "fit_many": "many",
    "FitsFailed": "many",
    "load_run": "run",
    "compare": "differences",
    "write_report": "report",
}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        value = getattr(import_module(f"ggmflow.{_ROOMS[name]}"), name)
    elif name in __all__:
        value = import_module(f"ggmflow.{name}")
    else:
        raise AttributeError(f"module 'ggmflow' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
