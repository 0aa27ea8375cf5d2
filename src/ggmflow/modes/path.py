"""Posterior modes along λ with exact zeros: the l_q-penalized likelihood (see `problem`), minimized for any q > 0."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ggmflow.model.precision import shrunk_precision
from ggmflow.modes.convex import graphical_lasso_mode, smooth_mode
from ggmflow.modes.nonconvex import nonconvex_modes
from ggmflow.modes.penalized_likelihood import BLAS, Matrix
from ggmflow.modes.problem import Problem, complete, inverse_of, make_problem


class ModePath(NamedTuple):
    """Modes along λ.

    Attributes
    ----------
    q : float
    lam : (k,) array
    precision : (k, d, d) array, or (k, s, d) with a query
        In the working scale; zeros are exactly 0.0.
    objective : (k,) array
        f, which is −2/n times the log posterior density without its constants.
    kkt_residual : (k,) array
        Largest violation of stationarity, entry (i, j) relative to √(w_ii w_jj); 0 at a stationary point.
    n_edges : (k,) array
        Pairs that are not zero.
    start : list of str
        Start of the best descent: "lasso", "empty", "ridge" or "shrunk", which need no flow; "flow"; "neighbour",
        the solution at the next λ; or "convex", where every start gives the same mode.
    """

    q: float
    lam: Float[np.ndarray, " k"]
    precision: Float[np.ndarray, "k s d"]
    objective: Float[np.ndarray, " k"]
    kkt_residual: Float[np.ndarray, " k"]
    n_edges: Int[np.ndarray, " k"]
    start: list[str]

    def __repr__(self) -> str:
        along = f"{len(self.lam)} modes at q = {self.q:g}, λ from {np.min(self.lam):.3g} to {np.max(self.lam):.3g}"
        edges = f"{np.min(self.n_edges)} to {np.max(self.n_edges)} edges"
        return f"<ModePath: {along}, {edges}; fields {', '.join(self._fields)}>"


def solve_path(
    S: Matrix,
    n: float,
    lams: Sequence[float],
    q: float,
    query: Int[np.ndarray, " s"],
    flow_starts: Callable[[float], Sequence[Float[np.ndarray, "s d"]]] = lambda lam: (),
    report: Callable[[], None] = lambda: None,
) -> ModePath:
    """Minimize f for every λ.

    Parameters
    ----------
    S : (d, d) array
        Scatter matrix.
    n
        Number of rows behind it.
    lams
        Values of λ, in any order.
    q
        Exponent.
    query : (s,) array of int
        Columns whose pairs are penalized and whose rows are returned; all of them for the full problem.
    flow_starts
        Function of λ that gives rows of the query to start from; called for q < 1 only.
    report
        Called once for each λ.

    Returns
    -------
    ModePath
    """
    ascending = np.argsort(lams, kind="stable")
    problems = [make_problem(S, n, lam, q, query) for lam in lams]
    with BLAS.limit(limits=1, user_api="blas"):
        if q < 1:
            starts = [[complete(problems[k], rows, query) for rows in flow_starts(lams[k])] for k in ascending]
            found = nonconvex_modes([problems[k] for k in ascending], shrunk_precision(S / n, n), starts, report)
        else:
            found, previous = [], None
            # From the largest penalty to the smallest: few edges first, and each solution is the next start.
            for k in ascending[::-1]:
                previous = graphical_lasso_mode(problems[k], previous) if q == 1 else smooth_mode(problems[k], previous)
                found.insert(0, (previous, "convex"))
                report()
    position = np.argsort(ascending)
    return describe(problems, lams, [found[k][0] for k in position], [found[k][1] for k in position], query)


def describe(
    problems: Sequence[Problem],
    lams: Sequence[float],
    modes: Sequence[Matrix],
    starts: list[str],
    query: Int[np.ndarray, " s"],
) -> ModePath:
    """The path of given modes, one for each problem, with their objectives and KKT residuals."""
    solved = list(zip(problems, modes, strict=True))
    return ModePath(
        q=problems[0].q,
        lam=np.asarray(lams, float),
        precision=np.array(modes)[:, query],
        objective=np.array([each.objective(mode) for each, mode in solved]),
        kkt_residual=np.array([each.residual(mode, inverse_of(mode)) for each, mode in solved]),
        n_edges=np.array([np.count_nonzero(np.triu(mode * each.penalized)) for each, mode in solved]),
        start=starts,
    )
