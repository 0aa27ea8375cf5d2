"""Which solver for the graphical lasso? Time to, and residual of, w_ij − s_ij ∈ ρ ∂|ω_ij|.

``python -m benchmarks.glasso`` prints one table: all solvers on the same problems, with settings that ask for
an accurate answer; ours and scikit-learn's also with scikit-learn's default tolerance. The residual is computed here,
the same way for all. Linear algebra runs on one thread.
"""

import contextlib
import importlib.util
import io
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from sklearn.covariance import graphical_lasso as sklearn_graphical_lasso
from sklearn.datasets import make_sparse_spd_matrix
from threadpoolctl import threadpool_limits

from ggmflow.baselines import graphical_lasso

Matrix = Float[np.ndarray, "d d"]
Solver = Callable[[Matrix, float], Matrix]  # of S/n and ρ

PROBLEMS = [(30, 25), (100, 50), (100, 400)]  # d, n
PENALTIES = [0.02, 0.1, 0.3]
REPEAT_BELOW = 1.0  # seconds; slower runs are timed once


class Measurement(NamedTuple):
    seconds: float
    residual: float
    edges: int


def simulated_covariance(n_features: int, n_samples: int, seed: int = 0) -> Matrix:
    """S/n of standardized normal data with a sparse precision matrix."""
    rng = np.random.default_rng(seed)
    truth = make_sparse_spd_matrix(n_features, alpha=0.95, smallest_coef=0.3, largest_coef=0.8, random_state=seed)
    X = np.linalg.solve(np.linalg.cholesky(truth).T, rng.normal(size=(n_features, n_samples))).T
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X.T @ X / n_samples


def kkt_residual(S: Matrix, rho: float, precision: Matrix) -> float:
    """Largest entry of the smallest subgradient, in the units of S."""
    gradient = S - np.linalg.inv(precision)
    on_support = np.abs(gradient + rho * np.sign(precision))
    return float(np.max(np.where(precision != 0, on_support, np.maximum(np.abs(gradient) - rho, 0.0))))


def ours(tol: float) -> Solver:
    return lambda S, rho: graphical_lasso(S, 1, rho, tol=tol).precision


# The others leave the diagonal free, which is ours with ρ added to it.
def scikit_learn(tol: float) -> Solver:
    def solve(S: Matrix, rho: float) -> Matrix:
        inflated = S + rho * np.eye(len(S))
        return sklearn_graphical_lasso(inflated, rho, tol=tol, enet_tol=tol, max_iter=1000)[1]

    return solve


def skglm(algo: str) -> Solver:
    def solve(S: Matrix, rho: float) -> Matrix:
        from skglm.covariance import GraphicalLasso  # pyright: ignore[reportMissingImports]

        model = GraphicalLasso(alpha=rho, algo=algo, max_iter=500, tol=1e-8, inner_tol=1e-8)
        return np.asarray(model.fit(S + rho * np.eye(len(S)), mode="precomputed").precision_)

    return solve


def gglasso(S: Matrix, rho: float) -> Matrix:
    from gglasso.solver.single_admm_solver import ADMM_SGL  # pyright: ignore[reportMissingImports]

    with contextlib.redirect_stdout(io.StringIO()):
        solved = ADMM_SGL(S + rho * np.eye(len(S)), rho, np.eye(len(S)), tol=1e-9, rtol=1e-9, max_iter=5000)
    return np.asarray(solved[0]["Theta"])


def solvers() -> dict[str, Solver]:
    """Solvers that can run here; the first is the one others are compared with."""
    available: dict[str, Solver] = {
        "ggmflow": ours(1e-8),
        "ggmflow, tol=1e-4": ours(1e-4),
        "scikit-learn, tol=1e-4": scikit_learn(1e-4),
        "scikit-learn, tol=1e-8": scikit_learn(1e-8),
    }
    if importlib.util.find_spec("skglm"):
        available |= {"skglm, dual": skglm("dual"), "skglm, primal": skglm("primal")}
    if importlib.util.find_spec("gglasso"):
        available["GGLasso"] = gglasso
    return available


def measure(solver: Solver, S: Matrix, rho: float) -> Measurement | str:
    """Best time of up to three, or the error."""
    seconds = []
    while not seconds or (len(seconds) < 3 and seconds[-1] < REPEAT_BELOW):
        start = time.perf_counter()
        try:
            precision = solver(S, rho)
        except (FloatingPointError, np.linalg.LinAlgError, ValueError) as error:
            return f"failed: {error}".split(". ")[0][:60]
        seconds.append(time.perf_counter() - start)
    precision = (precision + precision.T) / 2
    return Measurement(min(seconds), kkt_residual(S, rho, precision), int(np.count_nonzero(np.triu(precision, 1))))


def compile_times(names: dict[str, Solver]) -> dict[str, float]:
    """First call minus second call on a tiny problem: the part that numba spends compiling."""
    S, spent = simulated_covariance(4, 20), {}
    for name, solver in names.items():
        start = time.perf_counter()
        solver(S, 0.1)
        between = time.perf_counter()
        solver(S, 0.1)
        spent[name] = max(2 * between - start - time.perf_counter(), 0.0)
    return spent


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")  # whether a solver converged shows in its residual
    available = solvers()
    compiled = compile_times(available)
    width = max(map(len, available))
    print(
        f"{'d':>4} {'n':>4} {'ρ':>5}  {'solver':<{width}} {'seconds':>9} {'× ggmflow':>10} {'residual':>9} {'edges':>6}"
    )
    for d, n in PROBLEMS:
        S = simulated_covariance(d, n)
        for rho in PENALTIES:
            reference = None
            for name, solver in available.items():
                row = measure(solver, S, rho)
                head = f"{d:>4} {n:>4} {rho:>5}  {name:<{width}}"
                if isinstance(row, str):
                    print(head, row)
                    continue
                reference = reference or row.seconds
                ratio = row.seconds / reference
                print(f"{head} {row.seconds:>9.4f} {ratio:>10.1f} {row.residual:>9.1e} {row.edges:>6}", flush=True)
    slow = [f"{name} {spent:.1f} s" for name, spent in compiled.items() if spent > 0.05]
    print("\nFirst call, mostly imports and compilation by numba, not counted above:", ", ".join(slow) or "none")
    for package in ("skglm", "gglasso"):
        if not importlib.util.find_spec(package):
            print(f"{package} is not installed and was left out: pip install -e '.[benchmark]'")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
