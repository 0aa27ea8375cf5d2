"""Real fits of hostile tables, of few shapes so that little is compiled: are the answers finite and correct?

fit_case(number)        any table: every answer finite, precision matrices symmetric and positive definite
end_case(number)        the same at the ends of the ranges that λ, q and temperature may have
right_case(number)      answers that are known: units, order of columns, collinear columns against the exact sampler
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import jax
import numpy as np
import pandas as pd

import ggmflow as gf
from ggmflow.data.scatter import Scatter
from ggmflow.model.conditions import LAM_LIMITS, LOWEST_TEMPERATURE, Q_LIMITS, Ranges
from ggmflow.posterior.posterior import Posterior
from tests.support.hostile_questions import NAMES, RANGES, TABLE, definite, finite

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


WIDE = "fewer rows than columns"
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
    "two columns": lambda rng: rng.normal(size=(N, 2)),
    WIDE: lambda rng: rng.normal(size=(3, 30)),
    "integers": lambda rng: rng.integers(-(2**53), 2**53, (N, D)),
    "booleans": lambda rng: rng.uniform(size=(N, D)) < 0.5,
    "half precision": lambda rng: rng.normal(size=(N, D)).astype(np.float16),
}


def fit_case(number: int) -> tuple[str, Callable[[], str | None]]:
    """A fit, and every kind of question to it."""
    rng = np.random.default_rng([6, number])
    # The wide table takes a minute or more, so it is used once.
    names = [name for name in TABLES if name != WIDE or number < len(TABLES)]
    name = names[number % len(names)]
    make = TABLES[name]
    options: dict[str, Any] = {"missing": "em" if name == "missing values" else "error"}
    options["transform"] = None if rng.uniform() < 0.7 else "nonparanormal"
    options["standardize"] = bool(rng.uniform() < 0.7)
    options["lam"] = RANGES["lam"] if options["standardize"] and rng.uniform() < 0.5 else "auto"

    def run() -> str | None:
        values = make(rng)
        table = pd.DataFrame(values, columns=NAMES if values.shape[1] == D else None)
        options.update(q=RANGES["q"], steps=STEPS, random_state=0, progress=False)
        model = gf.GraphicalFlow(**options).fit(table)
        for share in (0.0, 0.5, 1.0):
            lam, q, post = _point(model, share)
            for question, ask in ANSWERS.items():
                if wrong := ask(model, lam, q, post):
                    return f"λ = {lam:g}, q = {q:g}: {question} is {wrong}"
        return None

    return f"{name}, {options}", run


(_LEAST, _MOST), (_ROUGH, _SMOOTH) = LAM_LIMITS, Q_LIMITS
# lam, q and temperature: every end alone, pairs of ends, ranges that hold everything or nothing but a point.
ENDS: list[tuple[Any, Any, Any]] = [
    (_LEAST, 1.0, 1.0),
    (_MOST, 1.0, 1.0),
    ((0.5, 8.0), _ROUGH, 1.0),
    ((0.5, 8.0), _SMOOTH, 1.0),
    ((0.5, 8.0), 1.0, LOWEST_TEMPERATURE),
    ((0.5, 8.0), 1.0, (LOWEST_TEMPERATURE, 1.0)),
    (_LEAST, _ROUGH, 1.0),
    (_LEAST, _SMOOTH, 1.0),
    (_MOST, _ROUGH, 1.0),
    (_MOST, _SMOOTH, 1.0),
    ((_LEAST, _MOST), (_ROUGH, _SMOOTH), 1.0),
    ((_LEAST, _MOST), (_ROUGH, _SMOOTH), (LOWEST_TEMPERATURE, 1.0)),
    (2.0, np.nextafter(1.0, 0.0), (np.nextafter(1.0, 0.0), 1.0)),
]


def _end_cases() -> Iterator[tuple[int, float, str]]:
    """Which of `ENDS`, the share of the way between the ends of its ranges, and what to ask."""
    for k, ranges in enumerate(ENDS):
        for share in (0.0, 0.5, 1.0) if any(isinstance(each, tuple) for each in ranges) else (0.0,):
            yield from ((k, share, question) for question in ANSWERS)


def end_case(number: int) -> tuple[str, Callable[[], str | None]]:
    """A question to a fit at the ends of what is allowed; a question of its own, as one may be refused there."""
    k, share, question = END_CASES[number]

    def run() -> str | None:
        model = _fit_at_boundary(k)
        return ANSWERS[question](model, *_point(model, share))

    return f"{question} of {dict(zip(Ranges._fields, ENDS[k], strict=True))} at {share:g} of the way", run


@cache
def _fit_at_boundary(k: int) -> gf.GraphicalFlow:
    ranges = dict(zip(Ranges._fields, ENDS[k], strict=True))
    return gf.GraphicalFlow(**ranges, steps=STEPS, random_state=0, progress=False).fit(TABLE)


def _point(model: gf.GraphicalFlow, share: float) -> tuple[float, float, Posterior]:
    """λ, q and the posterior between the ends of the fitted ranges; temperatures as far from the warmest."""
    low, high = np.log(model.lam_range_)
    lam = float(np.clip(np.exp(low + share * (high - low)), *model.lam_range_))
    q, T = (float(np.interp(share, (0, 1), pair)) for pair in (model.q_range_, model.temperature_range_[::-1]))
    return lam, q, model.posterior(lam, q, T, num_draws=400)


def _conditional(model: gf.GraphicalFlow, post: Posterior) -> pd.DataFrame:
    middle = model.scatter_.to_original(np.zeros(model.scatter_.n_features))
    return post.conditional({post.names[0]: float(middle[0])})


ANSWERS: dict[str, Callable[[gf.GraphicalFlow, float, float, Posterior], str | None]] = {
    "sample": lambda model, lam, q, post: definite(post.sample(50, random_state=0)),
    "mean": lambda model, lam, q, post: definite(post.mean()),
    "path": lambda model, lam, q, post: definite(model.path(q, lam, num_starts=1).precision),
    "sd": lambda model, lam, q, post: finite(post.sd()),
    "quantile": lambda model, lam, q, post: finite(post.quantile([0.0, 0.05, 0.5, 0.95, 1.0])),
    "association": lambda model, lam, q, post: finite(post.association()),
    "summary": lambda model, lam, q, post: finite(post.summary()),
    "edges": lambda model, lam, q, post: finite(post.select_edges()),
    "evidence": lambda model, lam, q, post: finite(model.evidence(lam, q, exact=False, num_draws=400)),
    "predictive": lambda model, lam, q, post: finite(post.predictive(20, random_state=0)),
    "conditional": lambda model, lam, q, post: finite(_conditional(model, post)),
    "r_squared": lambda model, lam, q, post: finite(post.r_squared()),
}
END_CASES = list(_end_cases())


# ---------------------------------------------------------------------------------------------------- checks of answers
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
