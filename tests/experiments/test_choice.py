"""Choosing λ: the top of a curve, and cross-validation against another package and plain sums."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.covariance import graphical_lasso as other_lasso

from experiments.paper.choice import FOLDS, cross_validation, peak
from ggmflow.data.simulate import toy_problem


def test_peak_of_a_parabola_in_log_lam():
    lams = np.geomspace(0.5, 8, 9)
    top = peak(lams, 3 - (np.log(lams) - 1.0) ** 2)
    assert top.lam == pytest.approx(np.e) and top.value == pytest.approx(3) and not top.at_end
    assert peak(lams, np.log(lams)) == (lams[-1], np.log(8), True)
    assert peak(lams, -np.log(lams))[::2] == (lams[0], True)


def test_cross_validation_is_the_likelihood_of_rows_left_out():
    X = toy_problem(5, 23, random_state=1)[0]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    lams, fold = np.geomspace(10, 0.5, 5), np.random.default_rng(0).permutation(23) % FOLDS
    expected = []
    for lam in lams:
        total = 0.0
        for k in range(FOLDS):
            train, test = X[fold != k], X[fold == k]
            rho, options = lam / 23, {"tol": 1e-7, "enet_tol": 1e-9, "max_iter": 1000}
            precision = other_lasso(train.T @ train / len(train) + rho * np.eye(5), rho, **options)[
                1
            ]  # diagonal free there
            total += multivariate_normal(np.zeros(5), np.linalg.inv(precision)).logpdf(test).sum()
        expected.append(total / 23 + 5 / 2 * np.log(2 * np.pi))
    np.testing.assert_allclose(cross_validation(X, lams), expected, atol=1e-4)
