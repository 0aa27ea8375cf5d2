"""Reports of training as an array, which files hold."""

import numpy as np

from ggmflow.train.report import Report, reports_from_array


def test_reports_from_an_array_are_the_reports_that_made_it():
    history = [Report(25, 50, np.nan, 0.0, 3), Report(50, 50, -1.5, 0.25, 3)]
    again = reports_from_array(np.array(history, float))
    assert again[1] == history[1]
    assert all(type(report.step) is type(report.skipped) is int for report in again)
    assert np.isnan(again[0].elbo)
