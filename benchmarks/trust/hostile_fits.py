"""Real fits of hostile tables, all of one shape so that nothing is compiled twice: are the answers finite, and right?

fit_case(number)        any table: every answer finite, precision matrices symmetric and positive definite
right_case(number)      answers that are known: units, order of columns, collinear columns against the exact sampler
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pandas as pd

import ggmflow as gf
from benchmarks.trust.hostile_questions import NAMES, RANGES, definite, finite
from ggmflow.data import Scatter
from ggmflow.posterior import Posterior

N, D, STEPS = 20, 4, 25


def _scales(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(N, D)) * 10.0 ** rng.uniform(-12, 12, D) + 10.0 ** rng.uniform(-12, 3, D)


def _duplicated(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(N, 2))[:, [0, 0, 1, 1]] * rng.choice([-1, 1], D)


def _collinear(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(N, 2)) @ rng.normal(size=(2, D))


def _outlier(rng: np.random.Generator) -> np.ndarray:
    X = rng.normal(size=(N, D))
    X[0, 0] = rng.choice([1e8, -1e8, 1e12])
    return X


def _missing(rng: np.random.Generator) -> np.ndarray:
    X = rng.normal(size=(N, D)) * 10.0 ** rng.uniform(-12, 12, D)
    X[rng.uniform(size=X.shape) < 0.3] = np.nan
    return X


TABLES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "scales from 1e-12 to 1e12": _scales,
    "duplicated columns": _duplicated,
    "collinear columns": _collinear,
    "an outlier": _outlier,
    "missing values": _missing,
    "Cauchy": lambda rng: rng.standard_cauchy((N, D)) ** 3,
    "two rows": lambda rng: rng.normal(size=(2, D)),
    "ties": lambda rng: rng.integers(0, 2, (N, D)) + np.eye(N, D),
    "many rows": lambda rng: rng.normal(size=(100_000, D)),
}


def fit_case(number: int) -> tuple[str, Callable[[], str | None]]:
    """A fit, and every kind of question to it."""
    rng = np.random.default_rng([6, number])
    name, make = list(TABLES.items())[number % len(TABLES)]
    options: dict[str, Any] = {"missing": "em" if name == "missing values" else "error"}
    options["transform"] = None if rng.uniform() < 0.7 else "nonparanormal"
    options["standardize"] = bool(rng.uniform() < 0.7)
    options["lam"] = RANGES["lam"] if options["standardize"] and rng.uniform() < 0.5 else "auto"

    def run() -> str | None:
        table = pd.DataFrame(make(rng), columns=NAMES)
        options.update(q=RANGES["q"], steps=STEPS, random_state=0, progress=False)
        model = gf.GraphicalFlow(**options).fit(table)
        for share in (0.0, 0.5, 1.0):
            low, high = np.log(model.lam_range_)
            lam, q = float(np.exp(low + share * (high - low))), float(np.interp(share, (0, 1), model.q_range_))
            if wrong := _answers(model, float(np.clip(lam, *model.lam_range_)), q):
                return f"λ = {lam:g}, q = {q:g}: {wrong}"
        return None

    return f"{name}, {options}", run


def _answers(model: gf.GraphicalFlow, lam: float, q: float) -> str | None:
    """The first answer of a posterior that cannot be."""
    post = model.posterior(lam, q, num_draws=400)
    matrices = {
        "sample": post.sample(50, random_state=0),
        "mean": post.mean(),
        "path": model.path(q, lam, num_starts=1).precision,
    }
    for name, found in matrices.items():
        if wrong := definite(found):
            return f"{name} is {wrong}"
    numbers = {
        "sd": post.sd(),
        "quantile": post.quantile([0.0, 0.05, 0.5, 0.95, 1.0]),
        "association": post.association(),
        "summary": post.summary(),
        "edges": post.select_edges().probability,
        "evidence": model.evidence(lam, q, exact=False, num_draws=400),
        "predictive": post.predictive(20, random_state=0),
        "conditional": post.conditional({"a": float(model.scatter_.to_original(np.zeros(D))[0])}),
        "r_squared": post.r_squared(),
    }
    return next((f"{name} is {wrong}" for name, found in numbers.items() if (wrong := finite(found))), None)


# -------------------------------------------------------------------------------------------------------- what is right
def _mean(X: np.ndarray, **more: Any) -> np.ndarray:
    model = gf.GraphicalFlow(**RANGES, steps=STEPS, random_state=0, progress=False, **more).fit(X)
    return model.posterior(2.0, 1.0, num_draws=400).mean()


def _units(rng: np.random.Generator) -> str | None:
    """Powers of two change no bit of the answer; powers of ten, and shifts, only what rounding does."""
    X = rng.normal(size=(N, D))
    mean = _mean(X)
    if not np.array_equal(mean, _mean(X * 2.0 ** rng.integers(-40, 40, D))):
        return "powers of two change the answer"
    scale = 10.0 ** rng.choice([-12.0, 12.0], D)
    moved = np.abs(_mean((X + rng.normal(size=D)) * scale) - mean).max() / np.abs(mean).max()
    return None if moved < 1e-3 else f"units change the answer by {moved:.1e}"


def _order(rng: np.random.Generator) -> str | None:
    """Columns in another order give the same statistics in that order."""
    X, order = _scales(rng), rng.permutation(D)
    here, there = Scatter.from_data(X), Scatter.from_data(X[:, order])
    difference = np.abs(here.matrix[np.ix_(order, order)] - there.matrix).max() / N
    return None if difference < 1e-12 else f"the order of columns changes the statistics by {difference:.1e}"


def _exact(rng: np.random.Generator) -> str | None:
    """Collinear and duplicated columns: the flow's means, refined, against chains that never saw the flow.

    Each of ten entries is off by more than five standard errors once in 2 million if all is right: a false alarm in
    170 000 cases.
    """
    X = _duplicated(rng) if rng.integers(2) else _collinear(rng)
    model = gf.GraphicalFlow(**RANGES, steps=STEPS, random_state=0, progress=False).fit(X)
    post: Posterior = model.posterior(2.0, 1.0).refine(50, num_chains=200)
    chains = gf.gibbs.sample(jax.random.key(int(rng.integers(2**31))), model.scatter_, 2.0, 1.0, num_draws=400)
    exact, ess = chains.pooled.mean(axis=0), chains.ess_bulk
    known = post.refinement
    assert known is not None
    error = chains.pooled.std(axis=0) * np.sqrt(1 / ess + 1 / known.ess)
    off = float((np.abs(post.mean() - exact) / error).max())
    return None if off < 5 else f"{off:.1f} standard errors from the exact sampler"


RIGHT = {"units": _units, "order of columns": _order, "collinear columns, exact sampler": _exact}


def right_case(number: int) -> tuple[str, Callable[[], str | None]]:
    """A table whose answer is known."""
    name, check = list(RIGHT.items())[number % len(RIGHT)]
    return name, lambda: check(np.random.default_rng([7, number]))
