"""Effective draws per second of the exact sampler and of NumPyro's NUTS on the same posterior, in the same run.

    python -m benchmarks.exact [--quick]

NUTS works in softplus-Cholesky coordinates (`experiments.paper.runtime.nuts`).
The exact sampler runs 64 chains, NUTS four of them vectorized (faster here than one after the other).
Both run in float64 with their compilation and warm-up left out; what counts is the entry of Ω with the smallest
bulk effective sample size (rank-normalized, all chains) over the wall time of sampling.
"""

import argparse
import time

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.paper.runtime.nuts import run_nuts
from ggmflow import gibbs
from ggmflow.data.scatter import Scatter
from ggmflow.data.simulate import toy_problem

# (d, n, λ): the paper's toy problem and its edge-recovery problem
PROBLEMS = [(15, 15, 2.0), (30, 25, 2.0)]


def run_exact(scatter, lam, q, num_draws):
    """Seconds and (chains, draws, d, d) draws of our sampler, compiled and warmed up beforehand."""
    warm = gibbs.sample(jax.random.key(0), scatter, lam, q, num_chains=64, num_draws=50, num_warmup=250)
    start = warm.draws[:, -1]
    begin = time.perf_counter()
    chains = gibbs.sample(jax.random.key(1), scatter, lam, q, start=start, num_draws=num_draws, num_warmup=0)
    return time.perf_counter() - begin, chains


def main():
    """Print one row per problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few draws: checks that it runs, the numbers mean nothing")
    quick = parser.parse_args().quick
    try:
        import numpyro  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise SystemExit("NumPyro is not installed. Run: pip install -e '.[benchmark]'") from None

    table = Table(
        title=f"Effective draws per second, worst entry of Ω (NumPyro {numpyro.__version__}, JAX {jax.__version__})"
    )
    for column in (
        "d",
        "n",
        "λ",
        "q",
        "exact /s",
        "R̂",
        "NUTS /s",
        "R̂ ",
        "leapfrog steps",
        "exact : NUTS",
        "|Δ mean| / sd",
    ):
        table.add_column(column, justify="right")
    for d, n, lam in PROBLEMS:
        scatter = Scatter.from_data(toy_problem(d, n, random_state=0)[0], mean="known")
        for q in (1.0, 0.5):
            num_draws, num_nuts, num_warmup = (50, 20, 20) if quick else (1000, 500 if q == 1 else 250, 500)
            seconds, exact = run_exact(scatter, lam, q, num_draws)
            nuts, nuts_seconds, _, steps = run_nuts(scatter, lam, q, num_nuts, num_warmup, exact.draws[:4, -1])
            rate, nuts_rate = exact.ess_bulk.min() / seconds, nuts.ess_bulk.min() / nuts_seconds
            # Do they agree? The largest difference of means, in posterior sds.
            difference = np.abs(exact.pooled.mean(0) - nuts.pooled.mean(0)) / exact.pooled.std(0)
            values = (
                d,
                n,
                lam,
                q,
                f"{rate:,.0f}",
                f"{exact.rhat.max():.3f}",
                f"{nuts_rate:,.2g}",
                f"{nuts.rhat.max():.3f}",
            )
            table.add_row(*map(str, values), f"{steps:.0f}", f"{rate / nuts_rate:,.0f}×", f"{difference.max():.2f}")
    Console(width=130).print(table)
    print("Where the R̂ of NUTS is far above 1, its chains have not mixed and its rate is not to be relied on.")


if __name__ == "__main__":
    main()
