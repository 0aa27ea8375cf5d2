"""Posteriors of known draws, against which plots can be checked, and models without training."""

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

import ggmflow as gf
from ggmflow.posterior.source import ChainSource
from tests.support.models import RANGES, TABLE

matplotlib.use("Agg")
# Names that matplotlib would typeset or hide.
NAMES = ("$x_1$", "_x", "a&b", "100 %", "plain")


@pytest.fixture
def ax():
    return Figure(figsize=(5, 4)).subplots()


def wishart_posterior(names, query=None, num_draws=400, n=60, seed=0, lam=2.0):
    """Draws of a Wishart around a chain graph: x_0 – x_1 – x_2 …, with signs that alternate."""
    d = len(names)
    truth = np.eye(d) + np.diag([0.45 * (-1) ** k for k in range(d - 1)], 1)
    truth = (truth + truth.T) / 2 + 0.5 * np.eye(d)
    X = gf.simulate.sample_gaussian(truth, n, random_state=seed)
    scatter = gf.Scatter.from_data(X)
    scatter = gf.Scatter(scatter.matrix, scatter.n, scatter.mean, scatter.scale, tuple(names))
    wishart = stats.wishart(df=n + d + 1, scale=np.linalg.inv(scatter.matrix + lam * np.eye(d)))
    draws = wishart.rvs(num_draws, random_state=np.random.default_rng(seed))
    query = np.arange(d) if query is None else np.asarray(query)
    options = {"num_draws": num_draws, "scatter": scatter}
    return gf.Posterior(ChainSource(draws[:, query]), tuple(names), query, lam, 1.0, 1.0, **options)


@pytest.fixture(scope="session")
def post():
    return wishart_posterior(NAMES)


@pytest.fixture(scope="session")
def block():
    """Two query variables, in another order than in the data."""
    return wishart_posterior(NAMES, query=[3, 1])


@pytest.fixture(scope="session")
def large():
    return wishart_posterior([f"ENSG{k:05d}" for k in range(300)], num_draws=60, n=900)


@pytest.fixture(scope="session")
def wide():
    """Six query variables among 300."""
    return wishart_posterior([f"ENSG{k:05d}" for k in range(300)], query=[7, 3, 150, 20, 299, 40], num_draws=60, n=900)


@pytest.fixture
def fitted(untrained):
    names = dict(zip("abcd", NAMES, strict=False))
    return gf.GraphicalFlow(**RANGES, random_state=0, progress=False).fit(TABLE.rename(columns=names))


@pytest.fixture
def fitted_block(untrained):
    return gf.GraphicalFlow(**RANGES, query=["c", "a"], random_state=0, progress=False).fit(TABLE)


def texts(artists):
    """Texts that are not empty."""
    return [artist.get_text() for artist in artists if artist.get_text()]


def legend_texts(ax):
    return texts(ax.get_legend().get_texts())
