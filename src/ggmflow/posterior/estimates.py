"""Estimates for every entry of Ω as matrices (s, d), or DataFrames with names, from weighted draws."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import ArrayLike

from ggmflow.posterior.arguments import check_probs, check_tails, check_threshold
from ggmflow.posterior.weighted_draws import WeightedDraws

# Result of an estimate with an argument `as_frame`: an array (..., s, d), or if that is true a DataFrame.
Matrix = Float[np.ndarray, "*k s d"] | Any
_ENDS = ("lower", "upper")  # of an interval


class EntryEstimates(ABC):
    """Estimates for every entry, given draws. Every method takes these arguments:

    Parameters
    ----------
    weighted
        Whether to use importance weights; None decides by the property `weighted`.
    as_frame
        Whether to return a DataFrame with names instead of an array.
    """

    @abstractmethod
    def weighted_draws(self, weighted: bool | None = None) -> WeightedDraws:
        """The draws, with the weights that an estimate uses."""

    def mean(self, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """Posterior mean of every entry, (s, d)."""
        draws = self.weighted_draws(weighted)
        return frame_of(draws, draws.mean(), as_frame)

    def sd(self, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """Posterior standard deviation of every entry, (s, d)."""
        draws = self.weighted_draws(weighted)
        return frame_of(draws, draws.sd(), as_frame)

    def median(self, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """Posterior median of every entry, (s, d)."""
        draws = self.weighted_draws(weighted)
        return frame_of(draws, draws.quantile([0.5])[0], as_frame)

    def quantile(self, probs: ArrayLike, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """Posterior quantiles of every entry: (s, d) for one probability, (k, s, d) for k of them.

        In a DataFrame the matrix of the probability p is ``frame.loc[p]``.
        """
        levels = check_probs(probs)
        draws = self.weighted_draws(weighted)
        found = draws.quantile(np.atleast_1d(levels))
        if not levels.ndim:
            return frame_of(draws, found[0], as_frame)
        return frame_of(draws, found, as_frame, [float(each) for each in levels])

    def interval(self, level: float = 0.9, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """Lower and upper end of the equal-tailed credible interval of every entry, (2, s, d).

        In a DataFrame they are ``frame.loc["lower"]`` and ``frame.loc["upper"]``.
        """
        tails = check_tails(level)
        draws = self.weighted_draws(weighted)
        return frame_of(draws, draws.quantile(tails), as_frame, _ENDS)

    def association(self, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """Posterior mean of the strength of every pair, (s, d), with ones for a variable and itself.

        For two query variables it is the partial correlation −ω_ij/√(ω_ii ω_jj). For a query variable i and a column j
        outside the query ω_jj is not known; there it is the weight −ω_ij/ω_ii of x_j in the regression of x_i on all
        other variables. The two are equal if x_i and x_j are equally well explained by the others, ω_ii = ω_jj. A
        partial correlation lies between −1 and 1, a regression weight need not.
        """
        draws = self.weighted_draws(weighted)
        return frame_of(draws, draws.association(), as_frame)

    def association_interval(
        self, level: float = 0.9, *, weighted: bool | None = None, as_frame: bool = False
    ) -> Matrix:
        """Lower and upper end of the equal-tailed credible interval of every `association`, (2, s, d)."""
        tails = check_tails(level)
        draws = self.weighted_draws(weighted)
        return frame_of(draws, draws.association_quantile(tails), as_frame, _ENDS)

    def partial_correlation(self, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """Posterior mean of partial correlations among the query variables, (s, s), in the order asked.

        A query does not hold the diagonal of the other variables; see `association` for those.
        """
        draws = self.weighted_draws(weighted)
        values, rows = draws.matrix(draws.association())[:, draws.query], [draws.names[k] for k in draws.query]
        return named(values, rows, rows) if as_frame else values

    def edge_probability(
        self, threshold: float = 0.1, *, weighted: bool | None = None, as_frame: bool = False
    ) -> Matrix:
        """P(|association| > threshold) of every pair, (s, d), 0 for a variable and itself.

        Under a continuous posterior no partial correlation (or, for a column outside the query, regression weight; see
        `association`) is exactly zero, so "an edge" means an association larger than `threshold`.
        """
        threshold = check_threshold(threshold)
        draws = self.weighted_draws(weighted)
        return frame_of(draws, draws.edge_probability(threshold), as_frame)

    def sign_probability(self, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """P(partial correlation > 0) = P(ω_ij < 0) of every pair, (s, d), 1 for a variable and itself.

        Near 1 the association is almost certainly positive, near 0 negative; at ½ its sign is unknown.
        """
        draws = self.weighted_draws(weighted)
        return frame_of(draws, draws.sign_probability(), as_frame)

    def local_false_sign_rate(self, *, weighted: bool | None = None, as_frame: bool = False) -> Matrix:
        """Probability that the likelier sign of an entry is wrong, min(P(ω_ij < 0), P(ω_ij > 0)), (s, d).

        At most ½; 0 for a variable and itself. A small rate means that the sign is known, not that there is an edge:
        where all entries are taken to be nonzero, many entries that are zero have a small rate.
        """
        draws = self.weighted_draws(weighted)
        positive = draws.sign_probability()
        return frame_of(draws, np.minimum(positive, 1 - positive), as_frame)


def frame_of(
    draws: WeightedDraws, values: np.ndarray, as_frame: bool, parts: Sequence[float | str] | None = None
) -> Matrix:
    """Matrices (..., s, d) from values of the free entries (..., D), as a DataFrame if asked for.

    Parameters
    ----------
    draws
        The names and the query.
    values : (D,) or (k, D) array
        One value per free entry.
    as_frame
        Whether to return a DataFrame.
    parts
        As in `named`.
    """
    matrix = draws.matrix(values)
    return named(matrix, [draws.names[k] for k in draws.query], draws.names, parts) if as_frame else matrix


def named(
    values: np.ndarray, rows: Sequence[str], columns: Sequence[str], parts: Sequence[float | str] | None = None
) -> pd.DataFrame:
    """A matrix, or several below each other, as a DataFrame with names.

    Parameters
    ----------
    values : (s, d) array, or (k, s, d) with `parts`
        The matrix, or k of them.
    rows, columns
        The s and d names.
    parts
        Labels of k matrices: the first level of the index, whose name is "part".

    Returns
    -------
    DataFrame
        Index "row", columns "column", as in `Posterior.summary`.
    """
    index = pd.Index(rows, name="row")
    if parts is not None:
        index = pd.MultiIndex.from_product([parts, rows], names=["part", "row"])
        values = values.reshape(-1, len(columns))
    return pd.DataFrame(values, index=index, columns=pd.Index(columns, name="column"))
