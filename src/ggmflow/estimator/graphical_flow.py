"""GraphicalFlow: from a table to the posterior of its precision matrix at every (λ, q, T) of a range, in one fit.

    X → Scatter(S, n) → flow q(Ω | λ, q, T), trained once → posterior(λ, q, T)

It is a scikit-learn estimator: parameters are stored as given and checked in `fit`, results end in an underscore.
"""

import inspect
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

import jax
import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.covariance import log_likelihood
from sklearn.utils.validation import check_is_fitted, validate_data

from ggmflow.data.check import DataWarning
from ggmflow.data.findings import serious_sentences
from ggmflow.data.scatter import Scatter
from ggmflow.errors.argument import ArgumentError
from ggmflow.estimator import model_file
from ggmflow.estimator.fitted_flow import FittedFlow, Timings
from ggmflow.estimator.fitted_flow import RangeWarning as RangeWarning
from ggmflow.estimator.model_file import FittedModel
from ggmflow.estimator.plan import check_parameters, plan_fit, raise_if_failed, warn_about_training
from ggmflow.estimator.read_data import read_data
from ggmflow.estimator.summary_html import summary_html, unfitted_html
from ggmflow.flow.base import MatrixFlow
from ggmflow.model.conditions import Choice
from ggmflow.posterior.source import RandomState
from ggmflow.posterior.start import Problem, fit_flow
from ggmflow.storage.cache import compilation_cache_enabled
from ggmflow.train.clock import Clock
from ggmflow.train.loop import Trained
from ggmflow.train.memory import memory_errors
from ggmflow.train.progress import training_bar
from ggmflow.train.report import Report, reports_from_array
from ggmflow.train.status import Status


class _Unreadable:
    """A parameter that can be set but not read as an attribute.

    scikit-learn treats an estimator with an attribute `transform` as a transformer and calls it, even if it is None.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self.name] = value

    def __get__(self, instance: Any, owner: type | None = None) -> NoReturn:
        raise AttributeError(f"{self.name} is a parameter, not a method: get_params()[{self.name!r}] has its value")


class GraphicalFlow(FittedFlow, BaseEstimator):
    """Posterior of a Gaussian graphical model for a continuum of penalties λ|ω_ij|^q, from one fit.

    Parameters
    ----------
    lam : "auto", float or (low, high)
        Range of the shrinkage λ > 0 in the working scale. "auto" spans a factor of 50 around a guess, from a
        shrunk covariance, of the λ of highest evidence.
    q : float or (low, high)
        Range of the exponent q > 0.
    temperature : float or (low, high)
        Range of the temperature; 1 is the posterior, towards 0 it contracts to its mode. 1.0 trains the posterior
        alone, faster and more accurately.
    query : None, str, int or list of them
        Columns whose Markov blanket to estimate, by name or position. None estimates the whole matrix.
    mean : {"estimated", "known"}
        Columns are always centred by their means. "estimated": n is the number of rows less one, which is exact for a
        flat prior on the mean of columns that are complete and not scaled or transformed. "known": n is the number of
        rows, as in the paper. A `Scatter` has its own treatment of the mean.
    standardize : bool
        Scale columns to unit variance (ddof=0) before anything else.
    transform : None or "nonparanormal"
        Replace columns by their normal scores first.
    missing : {"error", "drop", "em"}
        Treatment of missing values.
    architecture : {"structured", "paper"}
        The flow. "paper" is the published one: with a range of temperatures it is cooled as published and knows two of
        them, 1 and the lowest.
    pretrained : bool
        Start from weights that were trained once, on simulated tables, and are shipped with the package. Where they
        are not good enough, training on these data starts from them (or, if that is better, without them), and the
        better of start and result is kept. "paper" has none.
    steps : int, optional
        Gradient steps of training on these data; 0 trains nothing. By default their number follows from the number of
        entries (without shipped weights also from the ranges), and nothing is trained where those weights are good.
    batch_size : int, optional
        Draws per step; the default follows from the number of entries.
    random_state : int, numpy Generator or RandomState, optional
        Seed. The same seed gives the same model on the same machine.
    progress : bool
        Show a live line on standard error while training.

    Attributes
    ----------
    lam_, q_ : float
        λ and q of highest evidence, found at first use; see `select` and `evidence`. Needs T = 1 in the range.
    choice_ : Choice
        The same, with the ends of the ranges at which the evidence is highest (`at_boundary`).
    precision_ : (d, d) array, or (s, d) with a query
        Posterior mean at (lam_, q_), in the scale of X.
    covariance_ : (d, d) array
        Its inverse; only without a query.
    location_ : (d,) array
        Column means.
    lam_range_, q_range_, temperature_range_ : (low, high)
        Ranges that the flow was trained for.
    ranges_ : Ranges
        All three.
    temperatures_ : tuple of float, or None
        The temperatures that the flow knows, or None if it knows all of the range.
    scatter_ : Scatter
        The data in the working scale, summarized.
    query_ : (s,) array of int
        Columns of the query, all of them without one.
    flow_ : MatrixFlow
        The trained flow.
    history_ : DataFrame
        Training: step, held-out elbo, ess, skipped; one row of step 0 for a flow that was not trained.
    n_iter_ : int
        Steps trained.
    status_ : str
        "finished", "stopped early" or "interrupted".
    timings_ : Timings
        Seconds of compiling, training and choosing λ and q; a model that was loaded from a file has none.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import ggmflow as gf
    >>> X, _ = gf.simulate.toy_problem(4, 30, random_state=0)
    >>> model = gf.GraphicalFlow(temperature=1.0, steps=100, random_state=0, progress=False).fit(X)
    >>> post = model.posterior(lam=2.0, q=0.5)
    >>> post.mean().shape
    (4, 4)
    """

    transform = _Unreadable()

    def __init__(
        self,
        lam: Literal["auto"] | float | tuple[float, float] = "auto",
        q: float | tuple[float, float] = (0.25, 1.25),
        temperature: float | tuple[float, float] = (0.01, 1.0),
        query: str | int | Iterable[str | int] | None = None,
        mean: str = "estimated",
        standardize: bool = True,
        transform: str | None = None,
        missing: str = "error",
        architecture: str = "structured",
        pretrained: bool = True,
        steps: int | None = None,
        batch_size: int | None = None,
        random_state: RandomState = None,
        progress: bool = True,
    ):
        self.lam = lam
        self.q = q
        self.temperature = temperature
        self.query = query
        self.mean = mean
        self.standardize = standardize
        self.transform = transform
        self.missing = missing
        self.architecture = architecture
        self.pretrained = pretrained
        self.steps = steps
        self.batch_size = batch_size
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: None = None, *, checkpoint: str | Path | None = None) -> Self:
        """Train the flow on a table whose rows are observations.

        Parameters
        ----------
        X : (n, d) array-like, pandas or polars DataFrame, or path of a CSV file
            Data, or a `Scatter` made elsewhere.
        y
            Ignored.
        checkpoint
            A file that is written every few seconds. If it exists, training resumes from it, with the same result bit
            by bit as if it had not been interrupted.

        Returns
        -------
        self
            After Ctrl-C the best model so far, with a warning.
        """
        parameters = self.get_params(deep=False)
        check_parameters(parameters, getattr(X, "shape", ()), checkpoint)
        scatter = self._read(X)
        if scatter.check is not None and (found := serious_sentences(scatter.check)):
            warnings.warn(f"{'; '.join(found)}. All about the data: model.scatter_.check", DataWarning, stacklevel=2)
        plan = plan_fit(parameters, scatter)
        # All parameters are valid: from here on the results of an earlier fit are dropped, even if this one fails.
        for name in ("flow_", "_snapshots", "_precision", "_choice", "timings_", "feature_names_in_"):
            vars(self).pop(name, None)
        if not isinstance(X, Scatter | str | os.PathLike):
            validate_data(self, X, skip_check_array=True)  # pyright: ignore[reportArgumentType]
        self.n_features_in_ = scatter.n_features
        self.scatter_, self.query_, self._ranges = scatter, plan.query, plan.ranges
        show, clock = self.progress and jax.process_index() == 0, Clock()
        with (
            compilation_cache_enabled(),
            jax.enable_x64(False),
            memory_errors(scatter.n_features, len(plan.query)),
            training_bar(show, clock) as report,
        ):
            trained = fit_flow(
                plan.flow,
                plan.key,
                Problem(scatter, plan.query, plan.ranges),
                plan.settings,
                may_skip=plan.may_skip_training,
                from_zero=plan.from_zero,
                clock=clock,
                report=report,
                snapshot_at=plan.snapshots,
                checkpoint=None if checkpoint is None else Path(checkpoint),
            )
        raise_if_failed(trained)
        self._keep(trained)
        self.timings_ = Timings(clock.compiling, clock.training)
        warn_about_training(trained, checkpoint)
        return self

    def score(self, X: Any, y: None = None) -> float:
        """Mean log-likelihood of new rows under N(location_, covariance_), in the scale of X.

        After transform="nonparanormal" it is that of their normal scores.

        Parameters
        ----------
        X : (m, d) array-like or table
            New rows.
        y
            Ignored.
        """
        check_is_fitted(self, "flow_")
        if len(self.query_) < self.scatter_.n_features:
            raise ValueError("score needs the whole precision matrix: fit without a query")
        # A file's columns are found by name; other objects raise an error below.
        if not isinstance(X, str | os.PathLike | dict | None):
            validate_data(self, X, reset=False, skip_check_array=True)
        working = self.scatter_.working(X)
        scale = self.scatter_.scale
        precision = self.precision_[np.argsort(self.query_)] * scale * scale[:, None]
        return float(log_likelihood(working.T @ working / len(working), precision) - np.sum(np.log(scale)))

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file of plain arrays: flow, ranges, data summary, versions.

        Parameters
        ----------
        path
            The file; an existing one is replaced only when the new one is complete.
        """
        check_is_fitted(self, "flow_")
        fitted = FittedModel(
            parameters=self.get_params(deep=False),
            scatter=self.scatter_,
            query=self.query_,
            ranges=self._ranges,
            flow=self.flow_,
            snapshots=self._snapshots,
            history=self.history_.to_numpy(dtype=float),
            status=Status(self.status_),
            chosen=self._choice,
            has_feature_names=hasattr(self, "feature_names_in_"),
        )
        model_file.save(path, fitted)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote. Nothing in the file is executed.

        Parameters
        ----------
        path
            The file.

        Returns
        -------
        GraphicalFlow
            Fitted; the same `random_state` gives the same draws.
        """
        fitted = model_file.load(path, inspect.signature(cls).parameters.keys())
        model = cls(**fitted.parameters)
        model.scatter_, model.query_, model._ranges = fitted.scatter, fitted.query, fitted.ranges
        trained = Trained(fitted.flow, fitted.snapshots, reports_from_array(fitted.history), fitted.status)
        model._keep(trained, fitted.chosen)
        model.n_features_in_ = model.scatter_.n_features
        if fitted.has_feature_names:
            vars(model)["feature_names_in_"] = np.array(model.scatter_.names, dtype=object)
        return model

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a flow: a fit that failed leaves none."""
        return hasattr(self, "flow_")

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """For notebooks. scikit-learn's own table would compute `precision_`, which draws."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _repr_html_(self) -> str:
        if not self.__sklearn_is_fitted__():
            return unfitted_html(repr(self))
        fit = (self.scatter_, self.query_, self._ranges, self.history_, self.status_, self._choice)
        return summary_html(repr(self), *fit)

    def _keep(self, trained: Trained, choice: Choice | None = None) -> None:
        self._choice = choice
        self.flow_, self._snapshots, self.status_ = trained.flow, trained.snapshots, str(trained.status)
        self.history_ = pd.DataFrame(trained.history, columns=list(Report._fields))
        self.n_iter_ = int(self.history_["step"].iloc[-1])

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, as in scikit-learn.

        Parameters
        ----------
        deep
            Has no effect: no parameter is an estimator.
        """
        return {name: vars(self)[name] for name in inspect.signature(type(self)).parameters}

    def __sklearn_tags__(self):
        """Tags of scikit-learn: whether missing values are allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing in ("drop", "em")
        return tags

    def _read(self, X: Any) -> Scatter:
        return read_data(X, self.get_params(deep=False))

    def _flow_at(self, temperature: float) -> MatrixFlow:
        if not self._snapshots:
            return self.flow_
        for known, flow in self._snapshots.items():
            if np.isclose(known, temperature, rtol=1e-5):
                return flow
        known = " and ".join(f"{value:g}" for value in self._snapshots)
        why = " (its cooling was interrupted)" if self.status_ == Status.INTERRUPTED else ""
        must = f"be one that was kept: this model has flows at the temperatures {known} only{why}"
        given = float(f"{temperature:g}")  # without the rounding of exp(log T)
        raise ArgumentError("temperature", given, must)
