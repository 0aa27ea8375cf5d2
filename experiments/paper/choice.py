"""How λ is chosen: the top of a curve over λ, and cross-validation of the graphical lasso, λ = nρ.

score(λ) = Σ_folds Σ_rows log N(row; 0, Ω̂(λ, other folds)⁻¹), without its constant
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ggmflow.baselines import graphical_lasso
from ggmflow.evidence.search import parabola_top

FOLDS = 5
TOLERANCE = 1e-5  # of penalized likelihoods: zeros are exact long before


class Peak(NamedTuple):
    """The highest point of a curve over λ, and whether it is an end of it."""

    lam: float
    value: float
    at_end: bool


def peak(lams: Float[np.ndarray, " k"], values: Float[np.ndarray, " k"]) -> Peak:
    """Top of the parabola in log λ through the highest point and its neighbours; an end, if that is highest.

    Parameters
    ----------
    lams, values
        The curve, λ ascending and evenly spread in its logarithm, so that the top is between the neighbours.
    """
    k = int(np.argmax(values))
    if k in (0, len(lams) - 1):
        return Peak(float(lams[k]), float(values[k]), True)
    log_lam, value = parabola_top(np.log(lams), values)
    return Peak(float(np.exp(log_lam)), value, False)


def cross_validation(working: Float[np.ndarray, "n d"], lams: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """Log-likelihood, per row, of rows that were left out of the graphical lasso.

    Parameters
    ----------
    working : (n, d) array
        Rows in the working scale.
    lams : (k,) array
        Descending: each solution starts at the last.
    """
    n, d = working.shape
    fold = np.random.default_rng(0).permutation(n) % FOLDS
    score = np.zeros(len(lams))
    for k in range(FOLDS):
        (train, test), precision = (working[fold != k], working[fold == k]), np.eye(d)
        emp_cov = train.T @ train / len(train)
        for position, lam in enumerate(lams):
            precision = graphical_lasso(emp_cov, n, lam, initial=precision, tol=TOLERANCE).precision
            score[position] += len(test) * np.linalg.slogdet(precision)[1] - np.sum(precision * (test.T @ test))
    return score / (2 * n)
