"""Means over data sets with their standard errors, and paired differences with t intervals."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

Frame = Any  # a DataFrame or Series: their annotations leave open what a column or a sum is
Tables = Mapping[str, Frame]


class Difference(NamedTuple):
    """A mean over data sets, with its 95 % t interval."""

    mean: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 or −1 if the interval excludes zero, else 0."""
        return int(self.low > 0) - int(self.high < 0)


def difference(values: Frame) -> Difference:
    """Mean of paired differences over data sets, with its interval; missing values are left out.

    The interval of a single value is infinite.
    """
    found = values.dropna().to_numpy(float)
    if len(found) < 2:
        return Difference(float(found[0]) if len(found) else np.nan, -np.inf, np.inf)
    mean, half = found.mean(), stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found))
    return Difference(float(mean), float(mean - half), float(mean + half))


def mean_se(values: Frame) -> tuple[float, float]:
    """Mean over data sets and its standard error; the error of a single value is zero."""
    found = values.dropna().to_numpy(float)
    if len(found) < 2:
        return float(found[0]) if len(found) else np.nan, 0.0
    return float(found.mean()), float(found.std(ddof=1) / np.sqrt(len(found)))
