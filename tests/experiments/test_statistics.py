"""Means and paired differences over data sets."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments.paper.statistics import difference, mean_se


def test_difference_has_the_interval_of_a_paired_t_test():
    ours, theirs = pd.Series([0.5, 0.7, np.nan, 0.6]), pd.Series([0.4, 0.5, 0.1, 0.3])
    found, expected = difference(ours - theirs), stats.ttest_rel(ours[[0, 1, 3]], theirs[[0, 1, 3]])
    assert found == pytest.approx((0.2, *expected.confidence_interval()))
    assert found.sign == 0 and difference(ours + 1 - theirs).sign == 1 and difference(ours - 1 - theirs).sign == -1
    assert difference(ours[:1] - theirs[:1]).sign == 0  # one data set has no interval


def test_standard_error_of_a_mean():
    values = pd.Series([0.5, 0.7, np.nan, 0.6])
    assert mean_se(values) == pytest.approx((0.6, stats.sem(values.dropna())))
    assert mean_se(values[:1]) == (0.5, 0.0)
    assert np.isnan(mean_se(values[2:3])[0])
