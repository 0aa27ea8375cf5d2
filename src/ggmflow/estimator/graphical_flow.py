"""GraphicalFlow: from a table to the posterior of its precision matrix at every (λ, q, T) of a range, in one fit.

    X → Scatter(S, n) → flow q(Ω | λ, q, T), trained once → posterior(λ, q, T)

It is a scikit-learn estimator: parameters are stored as given and checked in `fit`, results end in an underscore.
"""

import inspect
import os
import time
import warnings
from collections.abc import Iterable
from itertools import product
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, Self

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.covariance import log_likelihood
from sklearn.utils.validation import check_is_fitted, validate_data

from ggmflow.data.check import DataWarning
from ggmflow.data.findings import serious_sentences
from ggmflow.data.scatter import Scatter
from ggmflow.estimator import model_file
from ggmflow.estimator.model_file import FittedModel
from ggmflow.estimator.plan import check_parameters, plan_fit, raise_if_failed, warn_about_training
from ggmflow.evidence.evidence import (
    Evidence,
    LargePrior,
    MixtureSource,
    Prior,
    choose,
    evidence_table,
    fit_prior,
    log_evidence,
    midpoints,
    mix,
    prior_ranges,
)
from ggmflow.flow.base import MatrixFlow, query_first
from ggmflow.model.conditions import Choice, Ranges, number_list
from ggmflow.modes.path import ModePath, complete, describe, make_problem, solve_path
from ggmflow.posterior.flow_source import FlowSource, chunk_size
from ggmflow.posterior.notebook_html import Level, card, name_some
from ggmflow.posterior.posterior import Posterior, check_count
from ggmflow.posterior.source import RandomState, as_key
from ggmflow.storage.cache import compilation_cache_enabled
from ggmflow.train.clock import Clock
from ggmflow.train.loop import Status, Trained, train
from ggmflow.train.memory import memory_errors
from ggmflow.train.progress import counting_bar, training_bar
from ggmflow.train.report import Report, reports_from_array


class _Unreadable:
    """A parameter that can be set but not read as an attribute.

    scikit-learn takes whatever has an attribute `transform` for a transformer and calls it, even if it is None.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self.name] = value

    def __get__(self, instance: Any, owner: type | None = None) -> NoReturn:
        raise AttributeError(f"{self.name} is a parameter and no method: get_params()[{self.name!r}] has its value")


class RangeWarning(UserWarning):
    """The evidence is highest at an end of a fitted range; the message says which."""


class Timings(NamedTuple):
    """Seconds that parts of a fit took.

    Attributes
    ----------
    compiling
        Compiling the training, or loading compiled programs.
    training
        Training steps; those of a fit that was resumed from a checkpoint add up.
    choosing
        Choosing λ and q by their evidence; None as long as this has not been done.
    """

    compiling: float
    training: float
    choosing: float | None = None


class GraphicalFlow(BaseEstimator):
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
        Columns whose Markov blanket is wanted, by name or position. None is the whole matrix.
    standardize : bool
        Scale columns to unit variance (ddof=0) before anything else. They are always centred.
    transform : None or "nonparanormal"
        Replace columns by their normal scores first.
    missing : {"error", "drop", "em"}
        What to do about missing values.
    architecture : {"structured", "paper"}
        The flow. "paper" is the published one: with a range of temperatures it is cooled as published and knows two of
        them, 1 and the lowest.
    steps, batch_size : int, optional
        Gradient steps and draws per step; the defaults follow from the number of entries and the ranges.
    random_state : int, numpy Generator or RandomState, optional
        Seed. The same seed gives the same model on the same machine.
    progress : bool
        Show a live line on standard error while training.

    Attributes
    ----------
    lam_, q_ : float
        Condition of highest evidence, found at first use; see `select` and `evidence`. Needs T = 1 in the range.
    precision_ : (d, d) array, or (s, d) with a query
        Posterior mean at (lam_, q_), in the scale of X.
    covariance_ : (d, d) array
        Its inverse; only without a query.
    location_ : (d,) array
        Column means.
    lam_range_, q_range_, temperature_range_ : (low, high)
        What the flow was trained for.
    scatter_ : Scatter
        The data as the model saw them.
    query_ : (s,) array of int
        Columns of the query, all of them without one.
    flow_ : MatrixFlow
        The trained flow.
    history_ : DataFrame
        Training: step, held-out elbo, ess, skipped.
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
        standardize: bool = True,
        transform: str | None = None,
        missing: str = "error",
        architecture: str = "structured",
        steps: int | None = None,
        batch_size: int | None = None,
        random_state: RandomState = None,
        progress: bool = True,
    ):
        self.lam = lam
        self.q = q
        self.temperature = temperature
        self.query = query
        self.standardize = standardize
        self.transform = transform
        self.missing = missing
        self.architecture = architecture
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
        if scatter.check is not None and (told := serious_sentences(scatter.check)):
            warnings.warn(f"{'; '.join(told)}. All about the data: model.scatter_.check", DataWarning, stacklevel=2)
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
            trained = train(
                plan.flow,
                plan.key,
                plan.ranges.low,
                plan.ranges.high,
                plan.settings,
                report=report,
                checkpoint=None if checkpoint is None else Path(checkpoint),
                snapshot_at=plan.snapshots,
                clock=clock,
            )
        raise_if_failed(trained)
        self._keep(trained)
        self.timings_ = Timings(clock.compiling, clock.training)
        warn_about_training(trained, plan.settings.steps, checkpoint)
        return self

    def posterior(
        self,
        lam: float | None = None,
        q: float | None = None,
        temperature: float = 1.0,
        *,
        average: bool = False,
        num_draws: int = 4000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """The posterior at one condition within the fitted ranges, or averaged over λ and q.

        Parameters
        ----------
        lam, q
            One that is left out is that of highest evidence, given the other: ``posterior()`` is at `lam_` and `q_`,
            ``posterior(q=1.0)`` at the λ of ``select(q=1.0)``.
        temperature
            1 for the posterior.
        average
            Mix the posteriors over a grid of all λ and q by their evidence, log λ and q uniform in the fitted ranges a
            priori; a given `lam` or `q` stays fixed.
        num_draws, random_state
            Of the draws behind its estimates.

        Returns
        -------
        Posterior
        """
        check_is_fitted(self, "flow_")
        options: dict[str, Any] = {"num_draws": num_draws, "random_state": random_state, "scatter": self.scatter_}
        names = self.scatter_.names
        if average:
            if not isinstance(temperature, Real) or temperature != 1:
                raise ValueError("an average over λ and q needs temperature=1: evidence means nothing elsewhere")
            mixture = self._mixture(lam, q)
            lam, q = (None if value is None else float(value) for value in (lam, q))
            return Posterior(mixture, names, self.query_, lam, q, 1.0, **options)
        self._ranges.condition(self._ranges.lam[0], self._ranges.q[0], temperature)  # before anything is chosen
        if lam is None or q is None:
            choice = self._chosen() if lam is None and q is None else self.select(lam, q)
            lam, q = choice.lam, choice.q
        source = self._source(lam, q, temperature)
        return Posterior(source, names, self.query_, source.lam, source.q, source.temperature, **options)

    def evidence(
        self,
        lam: ArrayLike | None = None,
        q: ArrayLike | None = None,
        *,
        normalizer: Literal["cone", "published"] = "cone",
        exact: bool = True,
        num_draws: int = 4000,
        random_state: RandomState = 0,
    ) -> pd.DataFrame:
        """Marginal likelihood log p(X | λ, q) on a grid, of the data in the working scale.

        The first call for a number of variables finds the prior's normalizer on the positive definite cone, by a small
        flow or, for more than 40 variables, by exact chains; it is kept in the user's cache directory.

        Parameters
        ----------
        lam, q : float or sequence of float, optional
            Values to combine; default nine λ and five q across the fitted ranges.
        normalizer : {"cone", "published"}
            "published" is the paper's quantity, for comparison: the ELBO with the constants of the off-diagonal factors
            as if they were independent, and none for the diagonal.
        exact
            Where importance weights fail, bridge between the flow and exact chains, which takes time; otherwise use the
            mean and variance of the log weights.
        num_draws, random_state
            Of the draws behind each estimate. The same noise everywhere keeps curves smooth.

        Returns
        -------
        DataFrame
            A row for each (λ, q): lam, q, log_evidence, se (its standard error), elbo, ess, khat (of the posterior's
            flow), method ("importance", "bridge", "integral", "cumulant"; "published" for that normalizer, whose se is
            NaN).
        """
        if not isinstance(normalizer, str) or normalizer not in ("cone", "published"):
            raise ValueError(f"normalizer must be 'cone' or 'published', got {normalizer!r}")
        ranges, key = self._at_temperature_one(), as_key(random_state)
        lams = np.geomspace(*ranges.lam, 9).tolist() if lam is None else number_list("lam", lam)
        qs = np.linspace(*ranges.q, 5).tolist() if q is None else number_list("q", q)
        for pair in product(lams, qs):
            ranges.condition(*pair, 1.0)  # before the prior is found
        settings: dict[str, Any] = {"key": key, "num_draws": check_count(num_draws), "exact": exact}
        prior = self._prior() if normalizer == "cone" else None
        return evidence_table(self._source_at_one, prior, lams, qs, **settings)

    def select(self, lam: float | None = None, q: float | None = None) -> Choice:
        """The λ and q of highest evidence; a given one stays fixed.

        Parameters
        ----------
        lam, q
            For instance ``select(q=1.0)`` chooses λ for the Bayesian graphical lasso, as in the paper.

        Returns
        -------
        Choice
            lam, q, and at_ends: the ends of the fitted ranges at which the evidence is highest, if any.
        """
        ranges = self._fitted_ranges
        ranges.condition(ranges.lam[0] if lam is None else lam, ranges.q[0] if q is None else q, ranges.warmest)
        if lam is not None:
            ranges = ranges._replace(lam=(lam, lam))
        if q is not None:
            ranges = ranges._replace(q=(q, q))
        if ranges.lam[0] == ranges.lam[1] and ranges.q[0] == ranges.q[1]:
            return Choice(ranges.lam[0], ranges.q[0], ())
        self._at_temperature_one()
        return choose(self._quick_evidence, ranges)

    def path(
        self,
        q: float = 1.0,
        lam: ArrayLike | None = None,
        *,
        exact: bool = True,
        num_starts: int = 2,
        random_state: RandomState = 0,
    ) -> ModePath:
        """Posterior modes along λ: the l_q-penalized likelihood estimates, the graphical lasso at q = 1.

        Parameters
        ----------
        q : float
            Exponent, within the fitted range.
        lam : float or sequence of float, optional
            Values of λ within the fitted range, in any order; default twenty across it.
        exact
            True: stationary points with true zeros, found by a solver. For q < 1 there are many; the flow at its lowest
            temperature offers starts beside others that need none, and the best is kept. False: the mean of the flow
            at its lowest temperature, as in the paper, which is near a mode and has no zeros.
        num_starts
            For each λ, how many of the flow's draws to start from: those of highest density among a few hundred.
        random_state : int, numpy Generator or RandomState, or None

        Returns
        -------
        ModePath
            lam, precision (k, d, d) in the working scale, or (k, s, d) with a query, objective, kkt_residual, n_edges.

        Warns
        -----
        RuntimeWarning
            If the solver did not end at a stationary point.
        """
        ranges, n = self._fitted_ranges, self.scatter_.n
        lams = np.geomspace(*ranges.lam, 20).tolist() if lam is None else number_list("lam", lam)
        if isinstance(num_starts, bool) or not isinstance(num_starts, Integral) or num_starts < 0:
            raise ValueError(f"num_starts must be a whole number, zero or more, got {num_starts!r}")
        coldest, key = ranges.temperature[0], as_key(random_state)
        sources = [self._source(each, q, coldest) for each in lams]  # refuses what is outside the ranges
        q = float(q)
        if not exact:
            if coldest > 0.1:
                raise ValueError("the flow alone gives modes only where it is cold: fit with temperature=(0.01, 1.0)")
            problems = [make_problem(self.scatter_.matrix, n, each, q, self.query_) for each in lams]
            means = [source.sample(key, 1000).precision.mean(axis=0) for source in sources]
            modes = [complete(each, rows, self.query_) for each, rows in zip(problems, means, strict=True)]
            return describe(problems, lams, modes, ["flow"] * len(lams), self.query_)

        def starts(lam: float) -> list[Float[np.ndarray, "s d"]]:
            if not num_starts:
                return []
            draws = sources[lams.index(lam)].sample(key, chunk_size(self.flow_.n_entries))
            return list(draws.precision[np.argsort(-np.asarray(draws.log_target))[:num_starts]])

        with counting_bar(self.progress and q < 1, "modes", len(lams)) as report:
            found = solve_path(self.scatter_.matrix, n, lams, q, self.query_, starts, report)
        if (worst := float(np.max(found.kkt_residual))) > 1e-6:
            at = found.lam[int(np.argmax(found.kkt_residual))]
            message = (
                f"the mode at λ = {at:g}, q = {q:g} is not quite stationary: KKT residual {worst:.1e}. "
                "Use a larger λ, or q = 1 instead of one just above"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        return found

    @property
    def lam_(self) -> float:
        """λ of highest evidence; found at first use."""
        return self._chosen(AttributeError).lam

    @property
    def q_(self) -> float:
        """q of highest evidence; found at first use."""
        return self._chosen(AttributeError).q

    @property
    def precision_(self) -> Float[np.ndarray, "s d"]:
        """Posterior mean at (lam_, q_) and T = 1, or the temperature of the range next to it, in the scale of X."""
        check_is_fitted(self, "flow_")
        if not hasattr(self, "_precision"):
            lam, q, _ = self._chosen(AttributeError)
            mean, scale = self.posterior(lam, q, self._ranges.warmest).mean(), self.scatter_.scale
            self._precision = mean / scale[self.query_][:, None] / scale
        return self._precision

    @property
    def covariance_(self) -> Float[np.ndarray, "d d"]:
        """Inverse of `precision_`; a query gives rows of the precision matrix only, and no covariance."""
        check_is_fitted(self, "flow_")
        if len(self.query_) < self.scatter_.n_features:
            raise AttributeError("with a query only rows of the precision matrix are known, so there is no covariance_")
        return np.linalg.inv(self.precision_[np.argsort(self.query_)])  # rows in the order of the columns

    @property
    def location_(self) -> Float[np.ndarray, " d"]:
        """Column means."""
        check_is_fitted(self, "flow_")
        return self.scatter_.mean

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
        # A file's columns are found by name; what is no table is refused below.
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
            status=self.status_,
            chosen=vars(self).get("_choice"),
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
        model._keep(Trained(fitted.flow, fitted.snapshots, reports_from_array(fitted.history), fitted.status))
        if fitted.chosen is not None:
            model._choice = fitted.chosen
        model.n_features_in_ = model.scatter_.n_features
        if fitted.has_feature_names:
            vars(model)["feature_names_in_"] = np.array(model.scatter_.names, dtype=object)
        return model

    @property
    def lam_range_(self) -> tuple[float, float]:
        """Range of λ that the flow was trained for."""
        return self._fitted_ranges.lam

    @property
    def q_range_(self) -> tuple[float, float]:
        """Range of q that the flow was trained for."""
        return self._fitted_ranges.q

    @property
    def temperature_range_(self) -> tuple[float, float]:
        """Range of temperatures that the flow was trained for."""
        return self._fitted_ranges.temperature

    @property
    def _fitted_ranges(self) -> Ranges:
        check_is_fitted(self, "flow_")
        return self._ranges

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a flow: a fit that failed leaves none."""
        return hasattr(self, "flow_")

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """For notebooks. scikit-learn's own table would compute `precision_`: looking should not draw."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _repr_html_(self) -> str:
        if not self.__sklearn_is_fitted__():
            return card(repr(self), {}, "open", "Not trained yet: call fit(X).")
        s, d, last = len(self.query_), self.scatter_.n_features, self.history_.iloc[-1]
        what = f"{d} variables" if s == d else f"the Markov blanket of {s} among {d} variables"
        ranges = ", ".join(
            f"{symbol} {low:.3g} … {high:.3g}" if low < high else f"{symbol} = {low:.3g}"
            for symbol, (low, high) in zip(("λ", "q", "T"), self._ranges, strict=True)
        )
        choice = vars(self).get("_choice")
        facts = {
            "Data": f"Fitted to {self.scatter_.n:g} rows of {what}",
            "Variables" if s == d else "Query": name_some([self.scatter_.names[k] for k in self.query_]),
            "Ranges": ranges,
            "Training": f"{self.n_iter_} steps, {self.status_}; held-out ELBO {last['elbo']:.4g}",
            "Highest evidence": "select() finds it"
            if choice is None
            else f"λ = {choice.lam:.3g}, q = {choice.q:.3g}"
            + (f", at {' and '.join(choice.at_ends)}" if choice.at_ends else ""),
        }
        return card(repr(self), facts, *self._verdict())

    def _verdict(self) -> tuple[Level, str]:
        """How training went, in words; each posterior has diagnostics of its own."""
        ess, skipped = float(self.history_["ess"].iloc[-1]), int(self.history_["skipped"].iloc[-1])
        words = f"{100 * ess:.3g} % of draws are effective, on average over the ranges"
        if skipped > 0.05 * self.n_iter_:
            return "caution", f"Caution: {skipped} steps were skipped; {words}."
        if self.status_ == "interrupted":
            return "caution", f"Caution: training was interrupted; {words}."
        if not ess >= 0.01:
            return "poor", f"Poor: {words}. Use posterior(...).refine(), more steps, or narrower ranges."
        if ess < 0.1:
            return "caution", f"Fair: {words}. Check posterior(...).diagnostics()."
        return "good", f"Good: {words}."

    def _chosen(self, kind: type[Exception] = ValueError) -> Choice:
        """What `select` says, remembered; an error of the given kind where there is nothing to choose by."""
        check_is_fitted(self, "flow_")
        if not hasattr(self, "_choice"):
            start = time.monotonic()
            try:
                self._choice = self.select()
            except ValueError as error:
                raise kind(str(error)) from None
            if hasattr(self, "timings_"):
                self.timings_ = self.timings_._replace(choosing=time.monotonic() - start)
            for end in self._choice.at_ends:
                message = f"the evidence is highest at {end}: fit again with a range that goes further there"
                warnings.warn(message, RangeWarning, stacklevel=4)
        return self._choice

    def _at_temperature_one(self) -> Ranges:
        ranges = self._fitted_ranges
        if ranges.temperature[1] < 1:
            raise ValueError(
                "evidence, and the choice of λ and q by it, need a fit whose temperatures include 1: "
                "give lam and q yourself, or fit with temperature=(low, 1.0)"
            )
        return ranges

    def _prior(self) -> Prior | LargePrior:
        """The prior's normalizer for these ranges."""
        return fit_prior(self.scatter_.n_features, len(self.query_), prior_ranges(self._ranges), self.progress)

    def _mixture(self, lam: float | None, q: float | None) -> MixtureSource:
        """Posteriors on a grid of (λ, q), with the evidence of each."""
        ranges = self._at_temperature_one()
        ranges.condition(ranges.lam[0] if lam is None else lam, ranges.q[0] if q is None else q, 1.0)
        lams = midpoints(ranges.low[0], ranges.high[0], 12) if lam is None else np.log([lam])
        qs = midpoints(*ranges.q, 6) if q is None else np.array([q])
        points = [(float(np.exp(x)), float(y)) for x, y in product(lams, qs)]
        return mix(
            [self._source_at_one(*point) for point in points], [self._quick_evidence(*point) for point in points]
        )

    def _quick_evidence(self, lam: float, q: float) -> Evidence:
        """Few draws and no chains; the same noise everywhere, so that a surface is smooth."""
        num_draws = chunk_size(self.flow_.n_entries)
        return log_evidence(self._source_at_one(lam, q), self._prior(), jax.random.key(0), num_draws, exact=False)

    def _source_at_one(self, lam: float, q: float) -> FlowSource:
        return self._source(lam, q, 1.0)

    def _keep(self, trained: Trained) -> None:
        self.flow_, self._snapshots, self.status_ = trained.flow, trained.snapshots, str(trained.status)
        self.history_ = pd.DataFrame(trained.history, columns=list(Report._fields))
        self.n_iter_ = int(self.history_["step"].iloc[-1])

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, as in scikit-learn.

        Parameters
        ----------
        deep
            Of no effect: no parameter is an estimator.
        """
        return {name: vars(self)[name] for name in inspect.signature(type(self)).parameters}

    def __sklearn_tags__(self):
        """What scikit-learn should know: whether missing values are allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing in ("drop", "em")
        return tags

    def _read(self, X: Any) -> Scatter:
        if isinstance(X, Scatter):
            return X
        transform = self.get_params(deep=False)["transform"]
        return Scatter.from_data(X, standardize=self.standardize, transform=transform, missing=self.missing)

    def _source(self, lam: float, q: float, temperature: float) -> FlowSource:
        """The flow at one condition, which must be in the ranges."""
        condition = self._ranges.condition(lam, q, temperature)
        flow = self._flow_at(float(np.exp(condition[2])))
        return FlowSource(flow, condition, query_first(self.query_, self.scatter_.n_features), self.scatter_)

    def _flow_at(self, temperature: float) -> MatrixFlow:
        if not self._snapshots:
            return self.flow_
        for known, flow in self._snapshots.items():
            if np.isclose(known, temperature, rtol=1e-5):
                return flow
        known = " and ".join(f"{value:g}" for value in self._snapshots)
        why = " (its cooling was interrupted)" if self.status_ == Status.INTERRUPTED else ""
        raise ValueError(f"this model has flows at the temperatures {known} only{why}, got {temperature:g}")
