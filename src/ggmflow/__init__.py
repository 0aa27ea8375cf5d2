"""Bayesian sparse precision matrices: the posterior of a Gaussian graphical model under any l_q penalty."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ggmflow import baselines, explorer, gibbs, plot
    from ggmflow.cli.run import load_run
    from ggmflow.data import DataWarning, Scatter, check_data, simulate
    from ggmflow.estimator.graphical_flow import GraphicalFlow, RangeWarning
    from ggmflow.estimator.many import FitsFailed, fit_many
    from ggmflow.model import target
    from ggmflow.posterior.differences import compare
    from ggmflow.posterior.posterior import PoorFitWarning, Posterior
    from ggmflow.report import write_report

__version__ = "0.2.0.dev0"

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
    "explorer",
    "write_report",
    "__version__",
]

# Public name → module that defines it. Loaded at first use, so that help and completion do not wait for JAX.
_DEFINED_IN = {
    "Scatter": "data",
    "check_data": "data",
    "DataWarning": "data",
    "simulate": "data.simulate",
    "GraphicalFlow": "estimator.graphical_flow",
    "RangeWarning": "estimator.graphical_flow",
    "Posterior": "posterior.posterior",
    "PoorFitWarning": "posterior.posterior",
    "fit_many": "estimator.many",
    "FitsFailed": "estimator.many",
    "load_run": "cli.run",
    "compare": "posterior.differences",
    "target": "model.target",
    "gibbs": "gibbs",
    "baselines": "baselines",
    "plot": "plot",
    "explorer": "explorer",
    "write_report": "report",
}


def __getattr__(name: str) -> Any:
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'ggmflow' has no attribute {name!r}")
    module = import_module(f"ggmflow.{_DEFINED_IN[name]}")
    globals()[name] = getattr(module, name, module)  # the module itself, where that is the public name
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
