"""Parameters and questions with values of every wrong kind: `GraphicalFlow(lam=value)`, `post.quantile(value)`, ….

parameter_case(number), question_case(number) → a name and what to do; the same number gives the same case
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cache
from numbers import Number
from typing import Any

import jax
import networkx as nx
import numpy as np
import pandas as pd

import ggmflow as gf
from ggmflow.data.scatter import Scatter
from ggmflow.posterior.posterior import Posterior

NAMES = ["a", "b", "c", "d"]
RANGES: dict[str, Any] = {"lam": (0.5, 8.0), "q": (0.25, 1.25)}
TABLE = pd.DataFrame(gf.simulate.toy_problem(4, 20, random_state=0)[0], columns=NAMES)
_EYE = np.eye(4)

VALUES: list[Any] = [
    *(None, True, False, 0, 1, 3, -1, 2**31, 2**63, 10**30, -(10**30)),
    *(0.0, -0.0, 0.3, 1.0, 2.5, 5e-324, 1e-300, 1e-40, 1e-12, 1e12, 1e40, 1e300, sys.float_info.max),
    *(float("nan"), float("inf"), -float("inf")),
    *("", "1", "auto", "f1", "nonparanormal", "paper", "em", "a", "A", "λ" * 5000, "\0", b"1", 1j),
    *([], (), {}, set(), (1,), (0.5, 2.0), (2.0, 0.5), (1, 2, 3), (1e-300, 1e300), (float("nan"), 1.0), [[1], [1, 2]]),
    *(["a"], ["a", "c"], ["a", "a"], [0, 3], [True, False], [0.5], [None], ["a", 0], [0.1, 0.9], [[0.1], [0.9]]),
    *({"a": 1.0}, {"a": float("nan")}, {"a": 1e300}, {"a": "x"}, {"z": 1.0}, {0: 1.0}, {"a": [1, 2], "b": [1, 2, 3]}),
    *(Decimal("0.5"), Fraction(1, 2), pd.NA, pd.NaT, np.datetime64("NaT"), object(), int, range(3), iter([1.0]), len),
    *(np.float16(0.5), np.float32(0.5), np.int64(3), np.bool_(True), np.array(0.5), np.array([0.5, 2.0]), np.array([])),
    *(np.array(["a"]), np.array([None]), np.array([np.nan]), np.ma.masked, pd.Series([0.5, 1.0]), TABLE),
    *(_EYE, -_EYE, 0 * _EYE, 1e-300 * _EYE, 1e300 * _EYE, _EYE[:3], _EYE + 1e-3, _EYE * np.nan, np.stack([_EYE, _EYE])),
    *(np.ones((4, 4)), _EYE + np.eye(4, k=1), np.diag([1e-30, 1, 1, 1e30]), _EYE.astype(complex), _EYE.astype(str)),
    *(TABLE * 1e300, TABLE.iloc[:0], TABLE[["a"]], TABLE[["d", "c", "b", "a"]], TABLE.to_numpy()[:2], slice(None)),
    *(np.random.default_rng(0), np.random.RandomState(0), np.random.SeedSequence(1), jax.random.key(0)),
]
# Valid for many questions.
GOOD: list[Any] = [
    0,
    1,
    3,
    7,
    0.1,
    0.5,
    0.9,
    1.0,
    2.0,
    (0.5, 2.0),
    [0.1, 0.9],
    "a",
    ["b", "d"],
    None,
    {"a": 0.3},
    TABLE,
]


def _value(rng: np.random.Generator) -> Any:
    kind = rng.uniform()
    if kind < 0.3:
        return GOOD[int(rng.integers(len(GOOD)))]
    if kind < 0.75:
        return VALUES[int(rng.integers(len(VALUES)))]
    if kind < 0.9:
        return float(10.0 ** rng.uniform(-300, 300)) * int(rng.choice([-1, 1, 1]))
    return tuple((10.0 ** rng.uniform(*((-300, 300) if kind < 0.95 else (-3, 3)), 2)).tolist())


# Columns of a summary that mean nothing for a diagonal entry.
_OF_PAIRS = ("p_positive", "edge_probability", "association", "association_lower", "association_upper")


def finite(answer: Any) -> str | None:
    """Describe an answer with a non-finite number or of an unknown type; None if it is fine."""
    if answer is None or isinstance(answer, str):
        return None
    if isinstance(answer, pd.DataFrame):
        answer = (*_cells(answer), *answer.attrs.values())
    if isinstance(answer, Mapping):
        answer = tuple(answer.values())
    if isinstance(answer, tuple | list):
        return next((wrong for part in answer if (wrong := finite(part))), None)
    if not isinstance(answer, Number | np.generic | np.ndarray | jax.Array | pd.Series):
        return f"of an unknown kind, {type(answer).__name__}"
    numbers = np.asarray(answer)
    if numbers.dtype.kind == "O":
        return finite(numbers.ravel().tolist())
    if numbers.dtype.kind not in "biuf":
        return f"of an unknown kind, {numbers.dtype}"
    return None if np.isfinite(numbers).all() else "not finite"


def _cells(table: pd.DataFrame) -> Iterator[Any]:
    """Columns of a table without cells that are documented as empty, and without columns of the user."""
    for name, column in table.items():
        if "log_evidence" in table and name == "khat":
            continue  # infinite where a few draws outweigh all others, NaN of fewer than 25
        if "log_evidence" in table and name == "se":
            column = column[table["method"] != "published"]
        if {"row", "column"} <= set(table) and name in _OF_PAIRS:
            column = column[table["row"] != table["column"]]
        if name != "case":  # of a table that was given, whatever its index
            yield column


def definite(precision: np.ndarray) -> str | None:
    """Describe why matrices are not symmetric and positive definite; None if they are."""
    if wrong := finite(precision):
        return wrong
    sd = np.sqrt(np.abs(np.diagonal(precision, axis1=-2, axis2=-1)))
    unit = precision / (sd[..., :, None] * sd[..., None, :])
    if np.abs(unit - np.swapaxes(unit, -1, -2)).max() > 1e-5:
        return "not symmetric"
    # The tolerance is that of draws in single precision.
    return None if np.linalg.eigvalsh(unit).min() > -1e-5 else "not positive definite"


# ---------------------------------------------------------------------------------------------------------- parameters
PARAMETERS = [
    *("lam", "q", "temperature", "query", "standardize", "transform", "missing", "architecture"),
    *("steps", "batch_size", "random_state"),
]
_ENDS = {"lam": (1e-30, 1e30), "q": (0.1, 2.0), "temperature": (1e-12, 1.0)}


def parameter_case(number: int) -> tuple[str, Callable[[], str | None]]:
    """A fit with one or two odd parameters, whose draws must be precision matrices. Needs `train` to be replaced."""
    rng = np.random.default_rng([1, number])
    name = PARAMETERS[number % len(PARAMETERS)]
    odd = {name: _value(rng)}
    if name in _ENDS and rng.uniform() < 0.5:  # what is allowed, up to its ends
        low, high = np.log10(_ENDS[name])
        odd[name] = tuple(np.sort(10 ** rng.uniform(low, high, 2)).tolist())
    if rng.uniform() < 0.3:
        odd[str(rng.choice(PARAMETERS))] = _value(rng)

    def fit() -> str | None:
        model = gf.GraphicalFlow(**(RANGES | {"temperature": 1.0, "random_state": 0, "progress": False} | odd))
        model.fit(TABLE)
        T = model.temperature_range_[1]
        for end in (0, 1):
            post = model.posterior(model.lam_range_[end], model.q_range_[end], T, num_draws=20)
            draws = post.sample(20, random_state=0)
            if wrong := definite(draws[:, :, model.query_]) or finite(draws):
                return wrong
        return None

    return f"GraphicalFlow({_shown(odd)})", fit


def _shown(odd: dict[str, Any]) -> str:
    return ", ".join(f"{name}={repr(value)[:60]}" for name, value in odd.items())


# ----------------------------------------------------------------------------------------------------------- questions
@cache
def model() -> gf.GraphicalFlow:
    """A model for the questions; its quality does not matter."""
    return gf.GraphicalFlow(**RANGES, steps=25, random_state=0, progress=False).fit(TABLE)


@cache
def _posterior() -> Posterior:
    return model().posterior(2.0, 1.0, num_draws=200)


def _precision(post: Posterior) -> str | None:
    return definite(post.sample(20, random_state=0))


_key = jax.random.key
QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "posterior(lam)": lambda v: _precision(model().posterior(v, 1.0, num_draws=20)),
    "posterior(q)": lambda v: _precision(model().posterior(2.0, v, num_draws=20)),
    "posterior(temperature)": lambda v: _precision(model().posterior(2.0, 1.0, v, num_draws=20)),
    "posterior(num_draws)": lambda v: model().posterior(2.0, 1.0, num_draws=v).mean(),
    "posterior(random_state)": lambda v: model().posterior(2.0, 1.0, num_draws=20, random_state=v).mean(),
    "posterior(average, lam)": lambda v: model().posterior(v, 1.0, average=True, num_draws=20).mean(),
    "posterior(average, q)": lambda v: model().posterior(2.0, v, average=True, num_draws=20).mean(),
    "posterior(average, temperature)": lambda v: model().posterior(2.0, 1.0, v, average=True, num_draws=20).mean(),
    "evidence(lam)": lambda v: model().evidence(v, 1.0, exact=False, num_draws=50),
    "evidence(q)": lambda v: model().evidence(2.0, v, exact=False, num_draws=50),
    "evidence(num_draws)": lambda v: model().evidence(2.0, 1.0, exact=False, num_draws=v),
    "evidence(normalizer)": lambda v: model().evidence(2.0, 1.0, exact=False, num_draws=50, normalizer=v),
    "evidence(random_state)": lambda v: model().evidence(2.0, 1.0, exact=False, num_draws=50, random_state=v),
    "select(lam)": lambda v: model().select(v, 1.0),
    "select(q)": lambda v: model().select(2.0, v),
    "path(q)": lambda v: definite(model().path(v, 2.0, num_starts=0).precision),
    "path(lam)": lambda v: definite(model().path(1.0, v).precision),
    "path(num_starts)": lambda v: definite(model().path(1.0, 2.0, num_starts=v).precision),
    "path(random_state)": lambda v: definite(model().path(1.0, 2.0, random_state=v).precision),
    "sample(num_draws)": lambda v: _posterior().sample(v, 0),
    "sample(random_state)": lambda v: definite(_posterior().sample(3, v)),
    "log_prob": lambda v: _posterior().log_prob(v),
    "refine(sweeps)": lambda v: _posterior().refine(v, num_chains=4).mean(),
    "refine(num_chains)": lambda v: _posterior().refine(2, num_chains=v).mean(),
    "refine(random_state)": lambda v: _posterior().refine(2, num_chains=4, random_state=v).mean(),
    "quantile": lambda v: _posterior().quantile(v),
    "interval": lambda v: _posterior().interval(v),
    "association_interval": lambda v: _posterior().association_interval(v),
    "edge_probability": lambda v: _posterior().edge_probability(v),
    "edges(level)": lambda v: _posterior().edges(v),
    "select_edges(rule)": lambda v: _posterior().select_edges(v),
    "select_edges(rate)": lambda v: _posterior().select_edges(rate=v),
    "select_edges(threshold)": lambda v: _posterior().select_edges(threshold=v),
    "select_edges(cut)": lambda v: _posterior().select_edges(cut=v),
    "summary(level)": lambda v: _posterior().summary(v),
    "summary(threshold)": lambda v: _posterior().summary(threshold=v),
    "summary(rule)": lambda v: _posterior().summary(rule=v),
    "to_networkx(level)": lambda v: nx.to_pandas_edgelist(_posterior().to_networkx(v)),
    "to_networkx(rule)": lambda v: nx.to_pandas_edgelist(_posterior().to_networkx(rule=v)),
    "predictive(num_draws)": lambda v: _posterior().predictive(v, 0),
    "predictive(random_state)": lambda v: _posterior().predictive(3, v),
    "conditional(given)": lambda v: _posterior().conditional(v),
    "conditional(value)": lambda v: _posterior().conditional({"a": v}),
    "conditional(level)": lambda v: _posterior().conditional({"a": 0.0}, v),
    "r_squared": lambda v: _posterior().r_squared(v),
    "score": lambda v: model().score(v),
    "Scatter.from_covariance(cov)": lambda v: Scatter.from_covariance(v, 5).matrix,
    "Scatter.from_covariance(n)": lambda v: Scatter.from_covariance(_EYE, v).matrix,
    "Scatter.from_data(names)": lambda v: Scatter.from_data(TABLE, names=v).matrix,
    "Scatter.from_data(drop)": lambda v: Scatter.from_data(TABLE, drop=v).matrix,
    "Scatter.from_data(delimiter)": lambda v: Scatter.from_data(TABLE, delimiter=v).matrix,
    "Scatter.index": lambda v: model().scatter_.index(v),
    "Scatter.reorder": lambda v: model().scatter_.reorder(v).matrix,
    "Scatter.working": lambda v: model().scatter_.working(v),
    "gibbs(lam)": lambda v: gf.gibbs.sample(_key(0), model().scatter_, v, 1.0, num_draws=2, num_warmup=1).draws,
    "gibbs(q)": lambda v: gf.gibbs.sample(_key(0), model().scatter_, 1.0, v, num_draws=2, num_warmup=1).draws,
    "gibbs(num_draws)": lambda v: gf.gibbs.sample(_key(0), model().scatter_, 1.0, 1.0, num_draws=v).draws,
}


def question_case(number: int) -> tuple[str, Callable[[], str | None]]:
    """A question to a fitted model with an odd value; an answer must be finite."""
    rng = np.random.default_rng([2, number])
    name, ask = list(QUESTIONS.items())[number % len(QUESTIONS)]
    value = _value(rng)

    def run() -> str | None:
        answer = ask(value)
        return answer if isinstance(answer, str) else finite(answer)

    return f"{name} = {repr(value)[:80]}", run
