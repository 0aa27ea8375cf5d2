"""What draws of Ω say about data: new rows, some variables given others, how well each is explained by the others.

    x | Ω ~ N(0, Ω⁻¹),     x_a | x_b, Ω ~ N(−Ω_aa⁻¹Ω_ab x_b, Ω_aa⁻¹),     R²_i = 1 − 1/(ω_ii Σ_ii),  Σ = Ω⁻¹

Everything is in the working scale, where the mean is zero and known. A query of s variables has the rows [Ω₁₁ Ω₁₂]
only. What is missing is Σ₂₂, the covariance of the t other variables. Its posterior is independent of the rows and
known: Σ₂₂⁻¹ = Ω₂₂.₁ ~ Wishart(n/T + t + 1, T A₂₂⁻¹), A₂₂ = S₂₂ + λI. Integrated out,

    x₂ ~ t_ν(0, A₂₂/(n + 2T)),     bᵀΣ₂₂b ~ bᵀA₂₂b/(T χ²_ν),     ν = n/T + 2

Without a query there is no x₂, and the same lines hold.
"""

import difflib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.special import ndtr, ndtri
from threadpoolctl import ThreadpoolController

from ggmflow.data.scatter import Scatter
from ggmflow.data.table import read_table
from ggmflow.posterior.weights import blocks

_BLAS = ThreadpoolController()  # one thread: on busy cores many small matrices take a hundred times as long with two
_NOT_DEFINITE = "a draw is not positive definite in double precision: use a larger λ, or refine() for exact draws"
_FARTHEST = 1e100  # in the working scale
_STEP, _POINTS = 0.25, 33  # of the rule that integrates over N(0, 1)


class Rest(NamedTuple):
    """What is known of the variables outside a query; nothing, and none, for a full matrix.

    Attributes
    ----------
    columns : (t,) array of int
        Their positions.
    A_22 : (t, t) array
        S₂₂ + λI.
    n, temperature
        Of the posterior.
    """

    columns: Int[np.ndarray, " t"]
    A_22: Float[np.ndarray, "t t"]
    n: float
    temperature: float

    def chi_squared(self, rng: np.random.Generator, num_draws: int) -> Float[np.ndarray, "N 1"]:
        """T χ²_ν, what the scale of x₂ is divided by."""
        return self.temperature * rng.chisquare(self.n / self.temperature + 2, (num_draws, 1))


# ------------------------------------------------------------------------------------------------- from draws of Ω to x
@_BLAS.wrap(limits=1, user_api="blas")
def draw_rows_of_data(
    rng: np.random.Generator, rows: Float[np.ndarray, "N s d"], query: Int[np.ndarray, " s"], rest: Rest
) -> Float[np.ndarray, "N d"]:
    """One new row of data for each draw of [Ω₁₁ Ω₁₂].

    Parameters
    ----------
    rng
        Its state moves on.
    rows
        The draws.
    query
        Column to which each row of a draw belongs.
    rest
        The other columns.
    """
    num_draws, s, d = rows.shape
    x = np.empty((num_draws, d))
    normal = rng.normal(size=(num_draws, len(rest.columns)))
    try:
        A, L = np.linalg.cholesky(rest.A_22), np.linalg.cholesky(rows[:, :, query])
    except np.linalg.LinAlgError:
        raise ValueError(_NOT_DEFINITE) from None
    x[:, rest.columns] = normal @ A.T / np.sqrt(rest.chi_squared(rng, num_draws))
    # x₁ = −Ω₁₁⁻¹Ω₁₂x₂ + L⁻ᵀz = Ω₁₁⁻¹(Lz − Ω₁₂x₂),  LLᵀ = Ω₁₁
    force = L @ rng.normal(size=(num_draws, s, 1)) - rows[:, :, rest.columns] @ x[:, rest.columns, None]
    x[:, query] = np.linalg.solve(rows[:, :, query], force)[:, :, 0]
    return x


@_BLAS.wrap(limits=1, user_api="blas")
def regression(
    rows: Float[np.ndarray, "N a d"], unknown: Int[np.ndarray, " a"], known: Int[np.ndarray, " b"]
) -> tuple[Float[np.ndarray, "N a b"], Float[np.ndarray, "N a"]]:
    """Slopes −Ω_aa⁻¹Ω_ab and variances diag(Ω_aa⁻¹) of x_a given x_b, from the rows of Ω that belong to a."""
    try:
        covariance = np.linalg.inv(rows[:, :, unknown])
    except np.linalg.LinAlgError:
        raise ValueError(_NOT_DEFINITE) from None
    variance = np.diagonal(covariance, axis1=1, axis2=2).copy()
    if not np.all(variance > 0):
        raise ValueError(_NOT_DEFINITE)
    return -covariance @ rows[:, :, known], variance


def explained_share(
    rng: np.random.Generator, rows: Float[np.ndarray, "N s d"], query: Int[np.ndarray, " s"], rest: Rest
) -> Float[np.ndarray, "N s"]:
    """R² of each query variable on all other variables, in each draw; arguments as in `draw_rows_of_data`."""
    slope, variance = regression(rows, query, rest.columns)
    # Σ_ii = (Ω₁₁⁻¹)_ii + bᵀΣ₂₂b, b the slopes of x_i on x₂
    through = np.sum((slope @ rest.A_22) * slope, axis=2) / rest.chi_squared(rng, len(rows))
    own = rows[:, np.arange(len(query)), query]
    return 1 - 1 / (own * (variance + through))


# -------------------------------------------------------------------------------- some variables given others, averaged
def predict(
    slope: Float[np.ndarray, "N a b"],
    variance: Float[np.ndarray, "N a"],
    weights: Float[np.ndarray, " N"],
    x_known: Float[np.ndarray, "m b"],
    probs: tuple[float, float],
    scatter: Scatter,
    unknown: Int[np.ndarray, " a"],
) -> Float[np.ndarray, "m a 5"]:
    """Mean, sd, sd of the mean, and two quantiles of x_a given x_b, in the scale of the data.

    Parameters
    ----------
    slope, variance
        Of `regression`, in each draw.
    weights
        Of the draws, with sum one.
    x_known
        m cases, in the working scale.
    probs
        Of the quantiles.
    scatter
        Knows the way back to the scale of the data.
    unknown
        Columns a.
    """
    num_draws, a, _ = slope.shape
    points, chances = _quadrature(num_draws, line=scatter.observed is None)
    sd = np.sqrt(variance)[:, None]
    out = np.empty((len(x_known), a, 5))
    for part in blocks(len(x_known), num_draws * a * len(points)):
        mean = x_known[part] @ np.swapaxes(slope, 1, 2)  # (N, cases, a)
        x = scatter.to_original(mean + sd * points, unknown)
        inner = np.sum(chances * x, axis=0)
        within = np.sum(chances * (x - inner) ** 2, axis=0)
        center = np.tensordot(weights, inner, 1)
        between = np.tensordot(weights, (inner - center) ** 2, 1)
        # var x = E var(x | Ω) + var E(x | Ω)
        total = np.tensordot(weights, within, 1) + between
        quantiles = [scatter.to_original(mixture_quantile(mean, sd, weights, prob), unknown) for prob in probs]
        out[part] = np.stack([center, np.sqrt(total), np.sqrt(between), *quantiles], axis=-1)
    return out


def _quadrature(num_draws: int, line: bool) -> tuple[np.ndarray, np.ndarray]:
    """Points and probabilities that stand for N(0, 1), (points, draws, 1, 1); for a line two points are exact."""
    if line:
        points = np.array([-1.0, 1.0])[:, None]
        chances = np.array([0.5, 0.5])[:, None]
    else:
        # Columns with ties make steps. A grid misplaces each by up to half of its own; shifts, other ones in each draw,
        # make that cancel.
        shift = (np.arange(num_draws) * 0.5 * (np.sqrt(5) - 1)) % 1 - 0.5
        points = _STEP * (np.arange(_POINTS)[:, None] - (_POINTS - 1) / 2 + shift)
        chances = np.exp(-0.5 * points**2)
        chances /= chances.sum(axis=0)
    return points[..., None, None], chances[..., None, None]


def mixture_quantile(
    mean: Float[np.ndarray, "N m a"], sd: Float[np.ndarray, "N 1 a"], weights: Float[np.ndarray, " N"], prob: float
) -> Float[np.ndarray, "m a"]:
    """x with Σ_i w_i Φ((x − m_i)/s_i) = prob, by Newton's method within a bracket that shrinks.

    Examples
    --------
    >>> mean, sd, half = np.array([-5.0, 5.0]), np.ones(2), np.array([0.5, 0.5])
    >>> mixture_quantile(mean[:, None, None], sd[:, None, None], half, 0.75).round(6)
    array([[5.]])
    """
    each = mean + ndtri(prob) * sd
    low, high = each.min(axis=0), each.max(axis=0)  # every component agrees that it is not outside
    center = np.tensordot(weights, mean, 1)
    spread = np.sqrt(np.tensordot(weights, (mean - center) ** 2 + sd**2, 1))
    x = np.clip(center + ndtri(prob) * spread, low, high)
    rate = 1 / sd
    for _ in range(100):
        u = (x - mean) * rate
        excess = np.tensordot(weights, ndtr(u), 1) - prob
        density = np.tensordot(weights, np.exp(-0.5 * u * u) * rate, 1) / np.sqrt(2 * np.pi)
        low, high = np.where(excess < 0, x, low), np.where(excess > 0, x, high)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = x - excess / density
        inside, small = (newton >= low) & (newton <= high), np.abs(excess) <= 1e-4 * min(prob, 1 - prob)
        # After a step of Newton's a small excess is squared; half of a bracket may be worse than what it replaces.
        x = np.where(inside, newton, np.where(np.abs(excess) <= 1e-9, x, (low + high) / 2))
        if np.all(small & (inside | (np.abs(excess) <= 1e-9))):
            break
    return x


# ------------------------------------------------------------------------------------------------------ what is given
def read_given(given: Any, names: tuple[str, ...]) -> tuple[Float[np.ndarray, "m d"], list[Any]]:
    """Cases of which some variables are known.

    Parameters
    ----------
    given : mapping, pandas Series, pandas or polars DataFrame
        Names to numbers (or to one number per case); a table has a row per case.
    names
        Of all columns.

    Returns
    -------
    values : (m, d) array
        NaN for what is not known.
    labels : list
        What the cases are called: the table's index, or 0, 1, ….
    """
    if isinstance(given, pd.Series):
        given = given.to_dict() if given.index.is_unique else given.to_frame().T  # the table says which name repeats
    if isinstance(given, Mapping):
        given = pd.DataFrame(_columns_of_mapping(given), index=None if given else pd.RangeIndex(1))
    if not hasattr(given, "columns"):
        hint = "use {name: value}, or a Series or DataFrame whose columns are some of the variables"
        raise TypeError(f"given must name the variables that are known, got {type(given).__name__}: {hint}")
    for name in map(str, given.columns):
        if name not in names:
            close = difflib.get_close_matches(name, names) or names[:5]
            raise ValueError(f"given: no column is named {name!r}: did you mean {' or '.join(map(repr, close))}?")
    if len(given) == 0:
        raise ValueError("given has no cases: a table needs at least one row")
    out = np.full((len(given), len(names)), np.nan)
    if len(given.columns):
        values, found, where = read_table(given, None, min_rows=1, min_columns=1)
        for i, j in np.argwhere(np.isinf(values)):
            raise ValueError(f"given: column {found[j]!r}, {where(i)} is {values[i, j]}: give finite values")
        out[:, [names.index(name) for name in found]] = values
    return out, list(given.index) if isinstance(given, pd.DataFrame) else list(range(len(given)))


def _columns_of_mapping(given: Mapping[Any, Any]) -> dict[str, Any]:
    """Values as columns of one length; a single number serves all cases."""
    columns = {str(name): list(value) if np.ndim(value) else [value] for name, value in given.items()}
    if len(columns) < len(given):
        raise ValueError("given names a variable twice: a number and its text are the same name")
    size = max(map(len, columns.values()), default=1)
    for name, column in columns.items():
        if len(column) not in (1, size):
            raise ValueError(f"given: {name!r} has {len(column)} values, another variable {size}: one per case, or one")
    return {name: column * size if len(column) == 1 else column for name, column in columns.items()}


def patterns(missing: np.ndarray) -> list[tuple[Int[np.ndarray, " a"], Int[np.ndarray, " m"]]]:
    """Cases with the same unknown variables together: (unknown columns, cases), for all that have any."""
    kinds, of_case = np.unique(missing, axis=0, return_inverse=True)
    found = [(np.flatnonzero(kind), np.flatnonzero(of_case.ravel() == k)) for k, kind in enumerate(kinds)]
    return [(unknown, cases) for unknown, cases in found if unknown.size]


def conditional_table(
    draws_of: Callable[[Int[np.ndarray, " a"]], tuple[np.ndarray, np.ndarray]],
    weights: Float[np.ndarray, " N"],
    given: Any,
    probs: tuple[float, float],
    scatter: Scatter,
) -> pd.DataFrame:
    """Every unknown variable of every case.

    Parameters
    ----------
    draws_of
        Slopes and variances of some columns given all others, in each draw.
    weights
        Of the draws.
    given
        As in `read_given`.
    probs
        Of the columns lower and upper.
    scatter
        Knows names and scales.
    """
    values, labels = read_given(given, scatter.names)
    missing = np.isnan(values)
    if not missing.any():
        raise ValueError("given has all variables, so nothing is left to predict: leave out, or set to NaN, what is")
    working = scatter.to_working(values)
    for i, j in np.argwhere(np.abs(working) > _FARTHEST):
        far = f"{scatter.names[j]!r} = {values[i, j]:g} is {abs(working[i, j]):.0e} standard deviations from its mean"
        raise ValueError(f"given: {far}, too far for its square to be a number")
    numbers = np.empty((*missing.shape, 5))
    for unknown, cases in patterns(missing):
        slope, variance = draws_of(unknown)
        known = working[cases][:, np.setdiff1d(np.arange(len(scatter.names)), unknown)]
        numbers[cases[:, None], unknown] = predict(slope, variance, weights, known, probs, scatter, unknown)
    case, variable = np.nonzero(missing)
    index = {"case": [labels[k] for k in case], "variable": [scatter.names[k] for k in variable]}
    columns = dict(zip(("mean", "sd", "sd_mean", "lower", "upper"), numbers[missing].T, strict=True))
    return pd.DataFrame(index | columns)
