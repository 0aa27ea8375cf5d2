"""A table of five variables, and its exact posterior, for tests of predictions."""

import numpy as np
import pandas as pd
from scipy import stats

import ggmflow as gf
from ggmflow.posterior.posterior import Posterior
from ggmflow.posterior.source import ChainSource

NAMES = ("a", "b", "c", "d", "e")
COLUMNS = ["mean", "sd", "sd_mean", "lower", "upper"]


def correlated(n, seed, d=5):
    """Rows of five variables of different scales and means."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X[:, 1] += X[:, 0]
    X[:, 2] -= 0.8 * X[:, 1]
    X[:, 4] += 0.5 * X[:, 3] - 0.3 * X[:, 2]
    return pd.DataFrame(X * [1, 20, 0.5, 3, 1] + [5, 0, -1, 40, 2], columns=list(NAMES))


def exact(table, lam=1e-6, num_draws=4000, query=None, seed=0, mean="known", **options):
    """Without l_q factors the posterior is Wishart(n + d + 1, (S + λI)⁻¹), of which rows are drawn exactly."""
    scatter = gf.Scatter.from_data(table, mean=mean, **options)
    S, d = scatter.matrix, scatter.n_features
    wishart = stats.wishart(df=scatter.n + d + 1, scale=np.linalg.inv(S + lam * np.eye(d)))
    Omega = wishart.rvs(num_draws, random_state=np.random.default_rng(seed))
    rows = np.arange(d) if query is None else scatter.index(query)
    source = ChainSource(Omega[:, rows])
    return Posterior(source, scatter.names, rows, lam, 1.0, 1.0, num_draws=num_draws, scatter=scatter), Omega
