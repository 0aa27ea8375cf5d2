"""The answers of a trained flow: posteriors, evidence, the choice of λ and q, and modes.

flow q(Ω | λ, q, T) → posterior(λ, q, T), evidence(λ, q), select(), path(q)
"""

import time
import warnings
from abc import ABC, abstractmethod
from itertools import product
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from ggmflow.data.scatter import Scatter
from ggmflow.errors.advice import Advice
from ggmflow.errors.argument import ArgumentError
from ggmflow.estimator.modes_of_flow import exact_modes, flow_modes
from ggmflow.evidence.marginal_likelihood import Evidence, evidence_table, quick_evidence
from ggmflow.evidence.mixture import MixtureSource, grid_points, mix
from ggmflow.evidence.prior import LargePrior, Prior, fit_prior, prior_ranges
from ggmflow.evidence.search import choose
from ggmflow.flow.base import MatrixFlow, query_first
from ggmflow.model.conditions import Choice, Ranges, number_list
from ggmflow.modes.path import ModePath
from ggmflow.posterior.flow_source import FlowSource
from ggmflow.posterior.posterior import Posterior, check_count
from ggmflow.posterior.source import RandomState, as_key


class RangeWarning(UserWarning):
    """The evidence is highest at an end of a fitted range; the message says which."""


class Timings(NamedTuple):
    """Seconds that parts of a fit took.

    Attributes
    ----------
    compiling
        Compiling the training, or loading compiled programs.
    training
        Training steps, including those before a resumed checkpoint.
    choosing
        Choosing λ and q by their evidence; None until this has been done.
    """

    compiling: float
    training: float
    choosing: float | None = None


class FittedFlow(ABC):
    """Methods and attributes that `GraphicalFlow` has after `fit`; the attributes below are set there."""

    flow_: MatrixFlow
    scatter_: Scatter
    query_: Int[np.ndarray, " s"]
    timings_: Timings
    progress: bool
    _ranges: Ranges
    _snapshots: dict[float, MatrixFlow]
    _choice: Choice | None = None  # until `select` has been called
    _precision: Float[np.ndarray, "s d"]

    @abstractmethod
    def _flow_at(self, temperature: float) -> MatrixFlow:
        """The flow at a temperature; raises ValueError if the flow does not know it."""

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
            If one is omitted, it is the one of highest evidence given the other: ``posterior()`` is at `lam_` and `q_`,
            ``posterior(q=1.0)`` at the λ of ``select(q=1.0)``.
        temperature
            1 for the posterior.
        average
            Average the posterior over a grid of all λ and q, weighted by evidence, with log λ and q uniform in the
            fitted ranges a priori. A given `lam` or `q` stays fixed.
        num_draws, random_state
            Number and seed of the draws behind its estimates.

        Returns
        -------
        Posterior
        """
        check_is_fitted(self, "flow_")
        options: dict[str, Any] = {"num_draws": num_draws, "random_state": random_state, "scatter": self.scatter_}
        names = self.scatter_.names
        if average:
            if not isinstance(temperature, Real) or temperature != 1:
                raise ArgumentError("temperature", temperature, "be 1 for an average over λ and q by evidence")
            mixture = self._mixture(lam, q)
            lam, q = (None if value is None else float(value) for value in (lam, q))
            return Posterior(mixture, names, self.query_, lam, q, 1.0, **options)
        self._ranges.inside("temperature", temperature)  # before λ and q are chosen
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

        The first call for a number of variables computes the prior's normalizer on the positive definite cone, by a
        small flow or, for more than 40 variables, by exact chains, and stores it in the user's cache directory.

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
            Number and seed of the draws behind each estimate. The noise is the same everywhere, so curves are smooth.

        Returns
        -------
        DataFrame
            A row for each (λ, q): lam, q, log_evidence, se (its standard error), elbo, ess, khat (of the posterior's
            flow), method ("importance", "bridge", "integral", "cumulant"; "published" for that normalizer, whose se is
            NaN).
        """
        if not isinstance(normalizer, str) or normalizer not in ("cone", "published"):
            raise ArgumentError("normalizer", normalizer, ("cone", "published"))
        ranges, key = self._ranges_with_posterior(), as_key(random_state)
        lams = np.geomspace(*ranges.lam, 9).tolist() if lam is None else number_list("lam", lam)
        qs = np.linspace(*ranges.q, 5).tolist() if q is None else number_list("q", q)
        for pair in product(lams, qs):
            ranges.condition(*pair, 1.0)  # before the prior is computed
        settings: dict[str, Any] = {"key": key, "num_draws": check_count(num_draws), "exact": exact}
        prior = self._prior() if normalizer == "cone" else None
        return evidence_table(lambda lam, q: self._source(lam, q, 1.0), prior, lams, qs, **settings)

    def quick_evidence(self, lam: float, q: float) -> Evidence:
        """Marginal likelihood at one (λ, q) from few draws and no chains; `select` uses it.

        Parameters
        ----------
        lam, q
            Within the fitted ranges, which must include temperature 1.
        """
        self._ranges_with_posterior()
        return quick_evidence(self._source(lam, q, 1.0), self._prior())

    def select(self, lam: float | None = None, q: float | None = None) -> Choice:
        """The λ and q of highest evidence; a given one stays fixed.

        Parameters
        ----------
        lam, q
            For instance ``select(q=1.0)`` chooses λ for the Bayesian graphical lasso, as in the paper.

        Returns
        -------
        Choice
            lam, q, and at_boundary: the ends of the fitted ranges at which the evidence is highest, if any.
        """
        ranges = self.ranges_
        ranges.condition(ranges.lam[0] if lam is None else lam, ranges.q[0] if q is None else q, ranges.warmest)
        if lam is not None:
            ranges = ranges._replace(lam=(lam, lam))
        if q is not None:
            ranges = ranges._replace(q=(q, q))
        if ranges.lam[0] == ranges.lam[1] and ranges.q[0] == ranges.q[1]:
            return Choice(ranges.lam[0], ranges.q[0], ())
        self._ranges_with_posterior()
        return choose(self.quick_evidence, ranges)

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
            True: stationary points with true zeros, found by a solver. For q < 1 there are many; the solver starts at
            draws of the flow at its lowest temperature and at other matrices, and the best mode is kept. False: the
            mean of the flow at its lowest temperature, as in the paper, which is near a mode and has no zeros.
        num_starts
            Number of the flow's draws to start from for each λ: those of highest density among a few hundred.
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
        ranges = self.ranges_
        lams = np.geomspace(*ranges.lam, 20).tolist() if lam is None else number_list("lam", lam)
        if isinstance(num_starts, bool) or not isinstance(num_starts, Integral) or num_starts < 0:
            raise ArgumentError("num_starts", num_starts, "be a whole number, zero or more")
        coldest, key = ranges.temperature[0], as_key(random_state)
        sources = {each: self._source(each, q, coldest) for each in lams}  # raises if outside the ranges
        if exact:
            return exact_modes(sources, lams, float(q), self.query_, int(num_starts), key, self.progress)
        if coldest > 0.1:
            advice = Advice("fit with", {"temperature": (0.01, 1.0)})
            raise ArgumentError("exact", exact, reason="needs a flow at low temperatures", advice=advice)
        return flow_modes(sources, lams, float(q), self.query_, key)

    @property
    def choice_(self) -> Choice:
        """λ and q of highest evidence, and the ends of the ranges at which they are; found at first use."""
        try:
            return self._chosen()
        except ValueError as error:
            raise AttributeError(str(error)) from None

    @property
    def lam_(self) -> float:
        """λ of highest evidence; found at first use."""
        return self.choice_.lam

    @property
    def q_(self) -> float:
        """q of highest evidence; found at first use."""
        return self.choice_.q

    @property
    def precision_(self) -> Float[np.ndarray, "s d"]:
        """Posterior mean at (lam_, q_) and T = 1, or the fitted temperature nearest to 1, in the scale of X."""
        check_is_fitted(self, "flow_")
        if not hasattr(self, "_precision"):
            lam, q, _ = self.choice_
            mean, scale = self.posterior(lam, q, self._ranges.warmest).mean(), self.scatter_.scale
            self._precision = mean / scale[self.query_][:, None] / scale
        return self._precision

    @property
    def covariance_(self) -> Float[np.ndarray, "d d"]:
        """Inverse of `precision_`; there is none with a query, which gives only rows of the precision matrix."""
        check_is_fitted(self, "flow_")
        if len(self.query_) < self.scatter_.n_features:
            raise AttributeError("with a query only rows of the precision matrix are known, so there is no covariance_")
        return np.linalg.inv(self.precision_[np.argsort(self.query_)])  # rows in the order of the columns

    @property
    def location_(self) -> Float[np.ndarray, " d"]:
        """Column means."""
        check_is_fitted(self, "flow_")
        return self.scatter_.mean

    @property
    def ranges_(self) -> Ranges:
        """Ranges of λ, q and temperature that the flow was trained for."""
        check_is_fitted(self, "flow_")
        return self._ranges

    @property
    def lam_range_(self) -> tuple[float, float]:
        """Range of λ that the flow was trained for."""
        return self.ranges_.lam

    @property
    def q_range_(self) -> tuple[float, float]:
        """Range of q that the flow was trained for."""
        return self.ranges_.q

    @property
    def temperature_range_(self) -> tuple[float, float]:
        """Range of temperatures that the flow was trained for."""
        return self.ranges_.temperature

    @property
    def temperatures_(self) -> tuple[float, ...] | None:
        """The temperatures that the flow knows, or None if it knows all of `temperature_range_`."""
        check_is_fitted(self, "flow_")
        return tuple(self._snapshots) or None

    def _chosen(self) -> Choice:
        """The result of `select`, stored; raises ValueError if the temperatures do not include 1."""
        check_is_fitted(self, "flow_")
        if self._choice is None:
            start = time.monotonic()
            self._choice = self.select()
            if hasattr(self, "timings_"):
                self.timings_ = self.timings_._replace(choosing=time.monotonic() - start)
            for boundary in self._choice.at_boundary:
                message = (
                    f"the evidence is highest at {boundary.text()}: fit again with a range that extends further there"
                )
                warnings.warn(message, RangeWarning, stacklevel=4)
        return self._choice

    def _ranges_with_posterior(self) -> Ranges:
        """The fitted ranges; raises ValueError if the temperatures do not include 1, which is the posterior."""
        ranges = self.ranges_
        if ranges.temperature[1] < 1:
            reason = "was fitted, but evidence and the choice of λ and q by it need temperatures that include 1"
            advice = Advice("give lam and q, or fit with", {"temperature": (ranges.temperature[0], 1.0)})
            raise ArgumentError("temperature", ranges.temperature, reason=reason, advice=advice)
        return ranges

    def _prior(self) -> Prior | LargePrior:
        """The prior's normalizer for these ranges."""
        return fit_prior(self.scatter_.n_features, len(self.query_), prior_ranges(self._ranges), self.progress)

    def _mixture(self, lam: float | None, q: float | None) -> MixtureSource:
        """Posteriors on a grid of (λ, q), with the evidence of each."""
        points = grid_points(self._ranges_with_posterior(), lam, q)
        sources = [self._source(*point, 1.0) for point in points]
        return mix(sources, [self.quick_evidence(*point) for point in points])

    def _source(self, lam: float, q: float, temperature: float) -> FlowSource:
        """The flow at one condition; raises ValueError if it is outside the ranges."""
        condition = self._ranges.condition(lam, q, temperature)
        flow = self._flow_at(float(np.exp(condition[2])))
        return FlowSource(flow, condition, query_first(self.query_, self.scatter_.n_features), self.scatter_)
