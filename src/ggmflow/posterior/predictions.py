"""Predictions of data by a posterior, in the scale of the data: new rows, missing values, R²."""

from abc import ABC, abstractmethod
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int, Key

from ggmflow.data.scatter import Scatter
from ggmflow.posterior.arguments import check_count, check_tails
from ggmflow.posterior.diagnostics import Diagnostics
from ggmflow.posterior.predictive import conditional_table, predictive_rows, r_squared_table, rest_of
from ggmflow.posterior.source import RandomState, as_key
from ggmflow.posterior.weighted_draws import WeightedDraws
from ggmflow.storage.memory import require


class Predictions(ABC):
    """Predictions, given draws of Ω and, where it is known, the scatter matrix of the data."""

    names: tuple[str, ...]
    query: Int[np.ndarray, " s"]
    lam: float | None
    temperature: float | None
    scatter: Scatter | None
    _key: Key[Array, ""]

    @abstractmethod
    def weighted_draws(self, weighted: bool | None = None) -> WeightedDraws:
        """The draws, with the weights that an estimate uses."""

    @abstractmethod
    def diagnostics(self) -> Diagnostics:
        """How well the draws represent the posterior."""

    def predictive(
        self, num_draws: int, random_state: RandomState = None, *, weighted: bool | None = None
    ) -> Float[np.ndarray, "N d"]:
        """New rows of data, x ~ ∫∫ N(μ, Ω⁻¹) p(μ, Ω | X) dμ dΩ, in the scale of the data.

        Each row has its own precision matrix, one of the draws behind the estimates, chosen in proportion to its
        weight. The uncertainty of an estimated mean is included. After transform="nonparanormal" normal scores are
        turned back to values by the observed ones (`Scatter.to_original`).

        With a query the other variables follow their own posterior, which is a multivariate t and not penalized, and
        query variables their distribution given those; this needs the data and one λ.

        Parameters
        ----------
        num_draws
            N.
        random_state : int, numpy Generator or RandomState, or None
        weighted
            Overrides the property `weighted`.

        Returns
        -------
        (N, d) array
            Columns in the order of `names`.
        """
        num_draws = check_count(num_draws)
        rest = rest_of(self.names, self.query, self.scatter, self.lam, self.temperature)
        require(16 * num_draws * len(self.names), f"{num_draws} rows of {len(self.names)} columns", "ask for fewer")
        draws, rng = self.weighted_draws(weighted), _numpy_rng(as_key(random_state))
        rows, units = predictive_rows(rng, draws, rest, num_draws), self._units()
        return units.to_original(rows * np.sqrt(1 + units.mean_variance))

    def conditional(self, given: Any, level: float = 0.9, *, weighted: bool | None = None) -> pd.DataFrame:
        """Unknown variables given known ones: x_a | x_b ~ N(μ_a − Ω_aa⁻¹Ω_ab(x_b − μ_b), Ω_aa⁻¹).

        The uncertainty of Ω, and of a mean that is estimated, is included: the result is the average of this over the
        posterior. After transform="nonparanormal" the model is one of normal scores; values are turned to scores and
        back, and mean and sd are those of the values, by quadrature.

        Parameters
        ----------
        given : mapping, pandas Series, pandas or polars DataFrame
            Names and values of the known variables, in the scale of the data. A mapping has a number for each name, or
            one for each case; a table has a row for each case, and NaN where a case lacks a value. All other variables
            are predicted; ``{}`` gives the marginal distributions. With a query all variables outside it must be given.
        level
            Probability of the predictive interval.
        weighted
            Overrides the property `weighted`.

        Returns
        -------
        DataFrame
            A row for each case and each variable that it lacks: case (the table's index, or 0, 1, …), variable, mean,
            sd (of the prediction: var x = E var(x | Ω, μ) + var E(x | Ω, μ)), sd_mean (of E(x | Ω, μ): the part that
            more data could remove; an upper bound after a transform), lower and upper (interval that holds x with
            probability `level`). `attrs` holds level, weighted and the message of `diagnostics`.
        """
        tails, draws = check_tails(level), self.weighted_draws(weighted)
        return self._with_attributes(conditional_table(draws, given, tails, self._units()), draws, level)

    def r_squared(self, level: float = 0.9, *, weighted: bool | None = None) -> pd.DataFrame:
        """Share of the variance of each variable that all others explain: R²_i = 1 − 1/(ω_ii Σ_ii), Σ = Ω⁻¹.

        It is the share in the population, of a regression with the coefficients of each Ω: between 0 and 1, with no
        adjustment to make, and free of the scale. After transform="nonparanormal" it is that of the normal scores.

        With a query Σ_ii needs the covariance of the other variables; it is drawn from its own posterior, so the data
        and one λ must be known.

        Parameters
        ----------
        level
            Probability of the credible interval.
        weighted
            Overrides the property `weighted`.

        Returns
        -------
        DataFrame
            A row for each query variable, the index: mean, sd, lower, upper. `attrs` as in `conditional`.
        """
        tails, rest = check_tails(level), rest_of(self.names, self.query, self.scatter, self.lam, self.temperature)
        draws, rng = self.weighted_draws(weighted), _numpy_rng(jax.random.fold_in(self._key, 1))
        return self._with_attributes(r_squared_table(rng, draws, rest, tails), draws, level)

    def _units(self) -> Scatter:
        """The data, or without them a scale that changes nothing."""
        if self.scatter is not None:
            return self.scatter
        d = len(self.names)
        return Scatter(np.zeros((d, d)), 0, np.zeros(d), np.ones(d), self.names)

    def _with_attributes(self, table: pd.DataFrame, draws: WeightedDraws, level: float) -> pd.DataFrame:
        table.attrs = {
            "level": float(level),
            "weighted": draws.weighted,
            "message": self.diagnostics().message,
        }
        return table


def _numpy_rng(key: Key[Array, ""]) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))
