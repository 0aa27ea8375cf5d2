"""Predictions from draws of Ω: new rows, some variables given others, and how well each is explained by the others.

    x | Ω ~ N(0, Ω⁻¹),     x_a | x_b, Ω ~ N(−Ω_aa⁻¹Ω_ab x_b, Ω_aa⁻¹),     R²_i = 1 − 1/(ω_ii Σ_ii),  Σ = Ω⁻¹

Everything is in the working scale, where the mean is zero; a mean that is estimated adds 1/rows to the variances of
predictions. A query of s variables has the rows [Ω₁₁ Ω₁₂]
only. It lacks Σ₂₂, the covariance of the t other variables, whose posterior is independent of the rows and known:
Σ₂₂⁻¹ = Ω₂₂.₁ ~ Wishart(n/T + t + 1, T A₂₂⁻¹), A₂₂ = S₂₂ + λI. Integrated out,

    x₂ ~ t_ν(0, A₂₂/(n + 2T)),     bᵀΣ₂₂b ~ bᵀA₂₂b/(T χ²_ν),     ν = n/T + 2

Without a query there is no x₂, and the same lines hold.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.special import ndtr, ndtri
from threadpoolctl import ThreadpoolController

from ggmflow.data.scatter import Scatter
from ggmflow.posterior.given import patterns, read_given
from ggmflow.posterior.weighted_draws import WeightedDraws
from ggmflow.posterior.weights import blocks, sort_order, weighted_quantile

# One thread: on busy cores many small matrices take a hundred times as long with two.
_BLAS = ThreadpoolController()
_NOT_DEFINITE = "a draw is not positive definite in double precision: use a larger λ, or refine() for exact draws"
_FARTHEST = 1e100  # in the working scale
_STEP, _POINTS = 0.25, 33  # of the quadrature for N(0, 1)


class Rest(NamedTuple):
    """The variables outside a query, and their scatter matrix; empty for a full matrix.

    Attributes
    ----------
    columns : (t,) array of int
        Their positions.
    A_22 : (t, t) array
        S₂₂ + λI.
    n, temperature
        n and T of the posterior.
    """

    columns: Int[np.ndarray, " t"]
    A_22: Float[np.ndarray, "t t"]
    n: float
    temperature: float

    def chi_squared(self, rng: np.random.Generator, num_draws: int) -> Float[np.ndarray, "N 1"]:
        """T χ²_ν, the divisor of the scale of x₂."""
        return self.temperature * rng.chisquare(self.n / self.temperature + 2, (num_draws, 1))


# ----------------------------------------------------------------------------------------------- from draws of Ω to x
@_BLAS.wrap(limits=1, user_api="blas")
def draw_rows_of_data(
    rng: np.random.Generator, rows: Float[np.ndarray, "N s d"], query: Int[np.ndarray, " s"], rest: Rest
) -> Float[np.ndarray, "N d"]:
    """One new row of data for each draw of [Ω₁₁ Ω₁₂].

    Parameters
    ----------
    rng
        It is advanced.
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


# ------------------------------------------------------------------------------ some variables given others, averaged
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
        Results of `regression` in each draw.
    weights
        Weights of the draws, with sum one.
    x_known
        m cases, in the working scale.
    probs
        Probabilities of the quantiles.
    scatter
        Transforms to the scale of the data.
    unknown
        Columns a.
    """
    num_draws, a, _ = slope.shape
    points, chances = _quadrature(num_draws, line=scatter.observed is None)
    # Given Ω an estimated mean is N(x̄, Ω⁻¹/rows), which adds to every variance.
    added = scatter.mean_variance
    sd = np.sqrt((1 + added) * variance)[:, None]
    out = np.empty((len(x_known), a, 5))
    for part in blocks(len(x_known), num_draws * a * len(points)):
        mean = x_known[part] @ np.swapaxes(slope, 1, 2)  # (N, cases, a)
        x = scatter.to_original(mean + sd * points, unknown)
        inner = np.sum(chances * x, axis=0)
        within = np.sum(chances * (x - inner) ** 2, axis=0)
        center = np.tensordot(weights, inner, 1)
        between = np.tensordot(weights, (inner - center) ** 2, 1)
        # var x = E var(x | Ω) + var E(x | Ω)
        within = np.tensordot(weights, within, 1)
        total, of_mean = within + between, between + added / (1 + added) * within
        quantiles = [scatter.to_original(mixture_quantile(mean, sd, weights, prob), unknown) for prob in probs]
        out[part] = np.stack([center, np.sqrt(total), np.sqrt(of_mean), *quantiles], axis=-1)
    return out


def _quadrature(num_draws: int, line: bool) -> tuple[np.ndarray, np.ndarray]:
    """Points and probabilities of a quadrature for N(0, 1), (points, draws, 1, 1).

    For a linear transform (`line`) two points are exact.
    """
    if line:
        points = np.array([-1.0, 1.0])[:, None]
        chances = np.array([0.5, 0.5])[:, None]
    else:
        # Columns with ties make steps. A grid misplaces each by up to half of its own step; other shifts in each draw
        # make these errors cancel.
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
    low, high = each.min(axis=0), each.max(axis=0)  # the quantile of the mixture lies between those of its components
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
        # A Newton step squares a small excess, while bisection may increase it.
        x = np.where(inside, newton, np.where(np.abs(excess) <= 1e-9, x, (low + high) / 2))
        if np.all(small & (inside | (np.abs(excess) <= 1e-9))):
            break
    return x


# ----------------------------------------------------------------------------------------- predictions of a posterior
def rest_of(
    names: tuple[str, ...],
    query: Int[np.ndarray, " s"],
    scatter: Scatter | None,
    lam: float | None,
    temperature: float | None,
) -> Rest:
    """The variables outside the query; raise if there are any and the data or λ are not known.

    Parameters
    ----------
    names, query, scatter, lam, temperature
        As in `Posterior`.
    """
    columns = np.setdiff1d(np.arange(len(names)), query)
    if not columns.size:
        return Rest(columns, np.empty((0, 0)), 0.0, 1.0)
    if scatter is None or lam is None or temperature is None:
        lacking = "the data (`scatter`)" if scatter is None else "one λ, not an average: `posterior(lam, q)`"
        raise ValueError(
            f"with a query this needs {lacking}, for the covariance of the variables outside the query; "
            "conditional() does without, if all of them are given"
        )
    A_22 = scatter.matrix[np.ix_(columns, columns)] + lam * np.eye(len(columns))
    return Rest(columns, A_22, scatter.n, temperature)


def predictive_rows(
    rng: np.random.Generator, draws: WeightedDraws, rest: Rest, num_draws: int
) -> Float[np.ndarray, "num_draws d"]:
    """New rows of data in the working scale, each from a draw that is chosen in proportion to its weight."""
    chosen = draws.resample(rng, num_draws)
    parts = draws.row_blocks(num_draws)
    return np.concatenate([draw_rows_of_data(rng, draws.rows(chosen[part]), draws.query, rest) for part in parts])


def r_squared_table(
    rng: np.random.Generator, draws: WeightedDraws, rest: Rest, probs: tuple[float, float]
) -> pd.DataFrame:
    """Mean, sd and two quantiles (lower, upper) of R² of each query variable, which are the index."""
    parts = [explained_share(rng, draws.rows(part), draws.query, rest) for part in draws.row_blocks()]
    values, w = np.concatenate(parts).T, draws.weights
    mean = values @ w
    lower, upper = weighted_quantile(values, sort_order(values), w, np.array(probs))
    columns = {"mean": mean, "sd": np.sqrt((values - mean[:, None]) ** 2 @ w), "lower": lower, "upper": upper}
    return pd.DataFrame(columns, index=pd.Index([draws.names[k] for k in draws.query], name="variable"))


def conditional_table(draws: WeightedDraws, given: Any, probs: tuple[float, float], scatter: Scatter) -> pd.DataFrame:
    """Every unknown variable of every case.

    Parameters
    ----------
    draws
        Draws of Ω.
    given
        As in `read_given`.
    probs
        Probabilities of the columns lower and upper.
    scatter
        Transforms between the scale of the data and the working scale.
    """
    values, labels = read_given(given, scatter.names)
    missing = np.isnan(values)
    if not missing.any():
        raise ValueError(
            "given has all variables, so nothing is left to predict: leave out, or set to NaN, those to predict"
        )
    working = scatter.to_working(values)
    for i, j in np.argwhere(np.abs(working) > _FARTHEST):
        far = f"{scatter.names[j]!r} = {values[i, j]:g} is {abs(working[i, j]):.0e} standard deviations from its mean"
        raise ValueError(f"given: {far}, too far for its square to be a number")
    found, w = np.empty((*missing.shape, 5)), draws.weights
    for unknown, cases in patterns(missing):
        slope, variance = regression_draws(draws, unknown)
        known = working[cases][:, np.setdiff1d(np.arange(len(scatter.names)), unknown)]
        found[cases[:, None], unknown] = predict(slope, variance, w, known, probs, scatter, unknown)
    case, variable = np.nonzero(missing)
    index = {"case": [labels[k] for k in case], "variable": [scatter.names[k] for k in variable]}
    columns = dict(zip(("mean", "sd", "sd_mean", "lower", "upper"), found[missing].T, strict=True))
    return pd.DataFrame(index | columns)


def regression_draws(draws: WeightedDraws, unknown: Int[np.ndarray, " a"]) -> tuple[np.ndarray, np.ndarray]:
    """Slopes and variances of some columns given all others, in each draw."""
    if outside := [draws.names[k] for k in np.setdiff1d(unknown, draws.query)]:
        shown = ", ".join(map(repr, outside[:5])) + (", …" if len(outside) > 5 else "")
        raise ValueError(
            f"with a query only its variables can be predicted, from all others: give values for {shown}, "
            "or fit without a query"
        )
    position = draws.free.position[[np.flatnonzero(draws.query == k)[0] for k in unknown]]
    known = np.setdiff1d(np.arange(len(draws.names)), unknown)
    slope, variance = np.empty((draws.num_draws, len(unknown), len(known))), np.empty((draws.num_draws, len(unknown)))
    for part in blocks(draws.num_draws, position.size, 2**22):
        rows = draws.entries[:, part].T[:, position]
        slope[part], variance[part] = regression(rows, unknown, known)
    return slope, variance
