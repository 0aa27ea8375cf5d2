"""Posterior modes along λ with the help of a flow at its lowest temperature."""

import warnings
from collections.abc import Mapping

import numpy as np
from jaxtyping import Array, Float, Int, Key

from ggmflow.modes.path import ModePath, describe, solve_path
from ggmflow.modes.problem import complete, make_problem
from ggmflow.posterior.flow_source import FlowSource, chunk_size
from ggmflow.train.progress import counting_bar

_STATIONARY = 1e-6  # largest KKT residual without a warning


def exact_modes(
    sources: Mapping[float, FlowSource],
    lams: list[float],
    q: float,
    query: Int[np.ndarray, " s"],
    num_starts: int,
    key: Key[Array, ""],
    progress: bool,
) -> ModePath:
    """Stationary points with exact zeros; for q < 1 draws of the flow are among the starts.

    Parameters
    ----------
    sources
        The flow at each λ and the lowest temperature.
    lams, q
        Conditions; λ in any order.
    query : (s,) array of int
        Columns of the query.
    num_starts
        Number of draws of the flow, those of highest density, to start from at each λ.
    key
        For the draws.
    progress
        Whether to show a live line, for q < 1.

    Warns
    -----
    RuntimeWarning
        If the solver did not end at a stationary point.
    """
    scatter = sources[lams[0]].scatter

    def starts(lam: float) -> list[Float[np.ndarray, "s d"]]:
        if not num_starts:
            return []
        draws = sources[lam].sample(key, 2 * chunk_size(sources[lam].flow))
        return list(draws.precision[np.argsort(-np.asarray(draws.log_target))[:num_starts]])

    with counting_bar(progress and q < 1, "modes", len(lams)) as report:
        found = solve_path(scatter.matrix, scatter.n, lams, q, query, starts, report)
    if (worst := float(np.max(found.kkt_residual))) > _STATIONARY:
        at = found.lam[int(np.argmax(found.kkt_residual))]
        message = (
            f"the mode at λ = {at:g}, q = {q:g} is not quite stationary: KKT residual {worst:.1e}. "
            "Use a larger λ, or q = 1 instead of one just above"
        )
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    return found


def flow_modes(
    sources: Mapping[float, FlowSource], lams: list[float], q: float, query: Int[np.ndarray, " s"], key: Key[Array, ""]
) -> ModePath:
    """Means of the flow at its lowest temperature, as in the paper, which are near modes and have no zeros.

    Parameters are those of `exact_modes`.
    """
    scatter = sources[lams[0]].scatter
    problems = [make_problem(scatter.matrix, scatter.n, each, q, query) for each in lams]
    means = [sources[each].sample(key, 1000).precision.mean(axis=0) for each in lams]
    modes = [complete(each, rows, query) for each, rows in zip(problems, means, strict=True)]
    return describe(problems, lams, modes, ["flow"] * len(lams), query)
