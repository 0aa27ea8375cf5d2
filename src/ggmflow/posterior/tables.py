"""The table of the entries of Ω: one row per free entry, from which summary, exports and views take their columns."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cached_property

import numpy as np
import pandas as pd

from ggmflow.posterior.arguments import check_tails
from ggmflow.posterior.diagnostics import Diagnostics
from ggmflow.posterior.edges import EdgeSelection
from ggmflow.posterior.weighted_draws import WeightedDraws

SUMMARY = (
    "row",
    "column",
    "mean",
    "sd",
    "median",
    "lower",
    "upper",
    "edge",
    "p_positive",
    "edge_probability",
    "association",
    "association_lower",
    "association_upper",
)


class Scale(StrEnum):
    """The scale of an association: of two query variables, or of a query variable and another one."""

    PARTIAL_CORRELATION = "partial correlation"
    REGRESSION_WEIGHT = "regression weight"


class _Columns:
    """Values for the columns, those that several share computed once."""

    def __init__(self, draws: WeightedDraws, selection: EdgeSelection, level: float, threshold: float):
        self.draws, self.selection, self.threshold = draws, selection, threshold
        self.free, self.tails = draws.free, check_tails(level)
        self.names = np.array(draws.names, dtype=object)

    @cached_property
    def quantiles(self) -> np.ndarray:
        """Lower end, median and upper end of ω, (3, D)."""
        low, high = self.tails
        return self.draws.quantile([low, 0.5, high])

    @cached_property
    def association_ends(self) -> np.ndarray:
        """Lower and upper end of the association, (2, D)."""
        return self.draws.association_quantile(self.tails)

    def of_pairs(self, values: np.ndarray | float) -> np.ndarray:
        """The values, missing for diagonal entries."""
        return np.where(self.free.diagonal, np.nan, values)

    @property
    def rule_probability(self) -> np.ndarray:
        """The rule's own probability of an edge."""
        own = self.selection.probability
        return self.of_pairs(np.nan if own is None else own[self.free.row, self.free.column])

    @property
    def scale(self) -> np.ndarray:
        """Scale of each association."""
        scale = np.where(self.free.inside, Scale.PARTIAL_CORRELATION, Scale.REGRESSION_WEIGHT).astype(object)
        scale[self.free.diagonal] = None
        return scale


_VALUES: dict[str, Callable[[_Columns], np.ndarray]] = {
    "i": lambda all: all.draws.query[all.free.row],
    "j": lambda all: all.free.column,
    "row": lambda all: all.names[all.draws.query[all.free.row]],
    "column": lambda all: all.names[all.free.column],
    "mean": lambda all: all.draws.mean(),
    "sd": lambda all: all.draws.sd(),
    "median": lambda all: all.quantiles[1],
    "lower": lambda all: all.quantiles[0],
    "upper": lambda all: all.quantiles[2],
    "edge": lambda all: all.selection.edges[all.free.row, all.free.column],
    "p_positive": lambda all: all.of_pairs(all.draws.sign_probability()),
    "edge_probability": lambda all: all.of_pairs(all.draws.edge_probability(all.threshold)),
    "association": lambda all: all.of_pairs(all.draws.association()),
    "association_lower": lambda all: all.of_pairs(all.association_ends[0]),
    "association_upper": lambda all: all.of_pairs(all.association_ends[1]),
    "rule_probability": lambda all: all.rule_probability,
    "scale": lambda all: all.scale,
}


def entry_table(
    draws: WeightedDraws,
    selection: EdgeSelection,
    diagnostics: Diagnostics,
    columns: Sequence[str] = SUMMARY,
    *,
    level: float = 0.9,
    threshold: float = 0.1,
) -> pd.DataFrame:
    """One row per free entry of Ω, row by row.

    Parameters
    ----------
    draws
        The draws, with the weights that estimates use.
    selection
        The edges, of these draws.
    diagnostics
        Diagnostics of these draws, for the message.
    columns
        Which columns, in this order: i, j (positions of the two variables in the data), row, column (their names),
        mean, sd, median, lower, upper (of ω_ij), edge, p_positive, edge_probability, association, association_lower,
        association_upper, rule_probability (of an edge by the rule; missing if it has none), scale (of the association,
        a value of `Scale`). From p_positive on they are missing for diagonal entries. Only these are computed.
    level
        Probability of the credible intervals.
    threshold
        Limit of |association| in edge_probability.

    Returns
    -------
    DataFrame
        `attrs` holds level, threshold, the rule's text with its expected_fdr, weighted and the message of the
        diagnostics.
    """
    source = _Columns(draws, selection, level, threshold)
    table = pd.DataFrame({name: _VALUES[name](source) for name in columns})
    table.attrs = {
        "level": float(level),
        "threshold": threshold,
        "rule": selection.rule,
        "expected_fdr": selection.expected_fdr,
        "weighted": draws.weighted,
        "message": diagnostics.message,
    }
    return table
