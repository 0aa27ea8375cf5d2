"""Models of one small table that several tests share, and exact answers for them."""

from contextlib import contextmanager
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from paramax import NonTrainable
from scipy import stats

import ggmflow as gf
from ggmflow.estimator import graphical_flow as estimator
from ggmflow.evidence import prior
from ggmflow.flow.base import untrained_flow
from ggmflow.model.conditions import Ranges
from ggmflow.posterior.flow_source import FlowSource
from ggmflow.train.loop import CHUNK, Report, Trained
from tests.support.oracles import log_factor
from tests.support.wishart import log_wishart

FILES = Path(__file__).parents[1] / "files"
COMMITTED = ("full", "blanket")  # kinds of models in FILES
NAMES = ["a", "b", "c", "d"]
TABLE = pd.DataFrame(gf.simulate.toy_problem(4, 20, random_state=0)[0] * [1, 2, 0.5, 3] + 1, columns=NAMES)
RANGES = {"lam": (0.5, 8.0), "q": (0.25, 1.25)}
KINDS = {
    "full": {"steps": 800},
    "blanket": {"steps": 800, "query": ["c", "a"]},
    "paper": {"steps": 600, "architecture": "paper", "temperature": (0.3, 1.0)},
    "paper blanket": {"steps": 600, "architecture": "paper", "temperature": (0.3, 1.0), "query": ["c", "a"]},
}


def quick(**parameters):
    """One chunk of training, of the same shape as the model "full", so that nothing is compiled for it."""
    return gf.GraphicalFlow(**{**RANGES, "steps": CHUNK, "random_state": 0, "progress": False, **parameters})


def no_training(flow, *args, snapshot_at=(), **kwargs):
    """In place of `fit_flow`: the flow as it starts."""
    return Trained(flow, dict.fromkeys(snapshot_at, flow), [Report(CHUNK, CHUNK, 0.0, 1.0, 0)], "finished")


@contextmanager
def without_training():
    """Use flows of posteriors and priors as they start."""
    with pytest.MonkeyPatch.context() as patch:
        skip_training(patch)
        yield


@contextmanager
def untrained_priors():
    """Use flows of priors as they start."""
    with pytest.MonkeyPatch.context() as patch:
        skip_training_of_priors(patch)
        yield


def skip_training(patch):
    """Leave flows of posteriors and priors as they start, until the patch is undone."""
    patch.setattr(estimator, "fit_flow", no_training)
    skip_training_of_priors(patch)


def skip_training_of_priors(patch):
    """Leave flows of priors as they start; the evidence is then inaccurate but finite."""
    patch.setattr(prior, "fit_flow", no_training)
    patch.setattr(prior, "_known", {})
    patch.setattr(prior, "_cache_path", lambda *_: None)


def pushed(source):
    """The same target with a flow pushed away from it."""
    return source._replace(flow=pushed_flow(source.flow))


def pushed_flow(flow):
    """The flow with other weights."""
    rng = np.random.default_rng(0)

    def push(leaf):
        return leaf + jnp.asarray(0.4 * rng.normal(size=leaf.shape), leaf.dtype) if eqx.is_inexact_array(leaf) else leaf

    return jax.tree.map(push, flow, is_leaf=lambda leaf: isinstance(leaf, NonTrainable))


def prior_source():
    """The prior of four variables at λ = 2, q = 0.5 under an untrained flow.

    Without data near-singular matrices are common: of a thousand draws one is indefinite after rounding to float32.
    """
    flow = untrained_flow(
        jax.random.key(0),
        "structured",
        gf.Scatter.without_data(4),
        np.arange(4),
        Ranges((0.5, 8.0), (0.25, 1.25), (1.0, 1.0)),
    )
    return FlowSource(flow, np.array([np.log(2.0), 0.5, 0.0]), np.arange(4), gf.Scatter.without_data(4))


def key_with_indefinite_draws(draw, num_keys=100):
    """The first key for which `draw(key)`, (k, s, s), holds a matrix that is not positive definite.

    With 256 draws of `prior_source` one of four or five keys does.
    """
    keys = (jax.random.key(k) for k in range(num_keys))
    return next(key for key in keys if np.linalg.eigvalsh(draw(key)).min() <= 0)


class Exact:
    """Wishart proposals Ω ~ W(n+d+1, (S+λI)⁻¹) with weights exp(−λΣ|ω|^q) ≤ 1, rows and columns as the model gives."""

    def __init__(self, model, lam, q, T, num_draws=200_000):
        query = model.query_
        rest = np.setdiff1d(np.arange(4), query)
        self.order = np.r_[query, rest]
        self.query, self.n = query, model.scatter_.n / T
        self.Psi = (model.scatter_.matrix + lam * np.eye(4)) / T
        wishart = stats.wishart(df=self.n + 5, scale=np.linalg.inv(self.Psi))
        self.Omega = wishart.rvs(num_draws, random_state=np.random.default_rng(1))
        factor = np.exp(log_factor(self.Omega[:, self.order][:, :, self.order], lam / T, q, len(query)))
        self.weights = factor / factor.sum()
        self.ess = 1 / np.sum(self.weights**2)
        self.rows = self.Omega[:, query]
        log_constant = log_wishart(self.n, self.Psi) - log_wishart(self.n, self.Psi[np.ix_(rest, rest)])
        self.log_constant = log_constant
        self.log_Z = log_constant + np.log(factor.mean())
        self.log_Z_se = np.sqrt((num_draws / self.ess - 1) / num_draws)
        self.mean = np.tensordot(self.weights, self.rows, 1)
        self.sd = np.sqrt(np.tensordot(self.weights, (self.rows - self.mean) ** 2, 1))

    def cdf(self, values):
        """P(ω_ij ≤ value) of every entry."""
        return np.tensordot(self.weights, self.rows <= values, 1)

    def log_proposal(self, rows):
        """Log density of the rows under the Wishart, with respect to Lebesgue measure on the free entries."""
        rest = self.order[len(self.query) :]
        O_11, O_12 = rows[:, :, self.query], rows[:, :, rest]
        trace = np.einsum("kij,ij->k", rows, self.Psi[self.query])
        trace += np.einsum("kij,ij->k", O_12, self.Psi[np.ix_(self.query, rest)])
        trace += np.einsum("kij,kij->k", O_12 @ self.Psi[np.ix_(rest, rest)], np.linalg.solve(O_11, O_12))
        return 0.5 * self.n * np.linalg.slogdet(O_11)[1] - 0.5 * trace - self.log_constant


def main():
    """Fit the models of `FILES` and write them."""
    for kind in COMMITTED:
        gf.GraphicalFlow(**RANGES, **KINDS[kind], random_state=0).fit(TABLE).save(FILES / f"{kind}.ggmflow")


if __name__ == "__main__":
    main()
