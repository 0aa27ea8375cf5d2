"""The published Conditional Matrix Flow against ggmflow's structured flow: same data, same target, same wall time.

    python -m benchmarks.published [--seconds 60] [--more] [--published-only]

The published architecture, its settings and the environment that it runs in are those of
`experiments.paper.runtime.published_flow`; what favours it stands there too. ggmflow's compilation is counted.

Both get the toy problem d = n = 15, λ ∈ [10^-½, 10], q ∈ [¼, 1¼]. What is compared is the ELBO, the mean over draws of
log p̃(Ω) − log q(Ω), both with respect to Lebesgue measure on the entries of Ω, T = 1, averaged over λ ∈ {½, 2, 8} and
q ∈ {1, ½, ¼}. It differs from −KL by log Z, which is the same for both, so differences are nats of KL. log p̃ of the
published flow's draws comes from `ggmflow.model.target` too, and must agree with the one it was trained with.
"""

import argparse
import os
import time
from dataclasses import dataclass, replace
from typing import Any

os.environ["GGMFLOW_CACHE"] = "off"  # compilation counts

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float
from paramax import NonTrainable
from rich.console import Console
from rich.table import Table

import ggmflow as gf
from experiments.paper.published import TRAINING_STEPS
from experiments.paper.runtime.published_flow import (
    LAM_RANGE,
    POINTS,
    Q_RANGE,
    Published,
    PublishedFlowError,
    Settings,
    environment,
    run_published,
)
from ggmflow.data.scatter import Scatter
from ggmflow.data.simulate import toy_problem


@dataclass(frozen=True)
class Row:
    """One line of the table; None where there is nothing to say."""

    name: str
    parameters: int | None
    batch: int | None
    steps: int | None
    seconds_per_step: float | None
    cores: float  # CPU time over wall time: low where other work shared the cores
    full_training: str
    wall_time: float
    elbo: float
    elbo_se: float | None = None


def row_of_published(name: str, settings: Settings, found: Published) -> Row:
    """The line of a published flow."""
    full = f"{_duration(found.seconds_per_step * TRAINING_STEPS)}, extrapolated"
    numbers = (found.parameters, settings.batch, found.steps, found.seconds_per_step, found.cores)
    return Row(name, *numbers, full, settings.seconds, found.elbo, found.elbo_se)


def run_ggmflow(X: Float[np.ndarray, "n d"]) -> Row:
    """Fit the structured flow from nothing, compilation included, and ask for its ELBO at the same points."""
    begin, cpu_begin = time.perf_counter(), time.process_time()
    options: dict[str, Any] = {"batch_size": 128, "random_state": 0, "progress": False}  # the default for this size
    model = gf.GraphicalFlow(lam=LAM_RANGE, q=Q_RANGE, temperature=1.0, mean="known", **options).fit(X)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    elbo = float(np.mean(np.array([model.posterior(lam, q).diagnostics()["elbo"] for lam, q in POINTS], float)))
    trained = eqx.filter(model.flow_, eqx.is_inexact_array, is_leaf=lambda leaf: isinstance(leaf, NonTrainable))
    return Row(
        "ggmflow structured",
        sum(leaf.size for leaf in jax.tree.leaves(trained)),
        128,
        model.n_iter_,
        seconds / model.n_iter_,
        cpu_seconds / seconds,
        f"{_duration(seconds)}, measured",
        seconds,
        elbo,
    )


def print_table(rows: list[Row], caption: str, console: Console) -> None:
    """One line per flow."""
    table = Table(title="Flows over precision matrices, d = n = 15, T = 1", caption=caption)
    table.add_column("flow")
    for column in ("parameters", "batch", "steps", "s/step", "cores", "full training", "given", "mean ELBO"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.name,
            _or_dash(row.parameters, ","),
            _or_dash(row.batch, ""),
            _or_dash(row.steps, ""),
            _or_dash(row.seconds_per_step, ".3g"),
            f"{row.cores:.1f}",
            row.full_training,
            f"{row.wall_time:.0f} s",
            f"{row.elbo:,.2f}" + (f" ± {row.elbo_se:,.2f}" if row.elbo_se is not None else ""),
        )
    console.print(table)


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 3600:.1f} h"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, help="wall time of training (default: what ggmflow's fit took, or 60)")
    for name, meaning in (
        ("layers", "autoregressive layers"),
        ("blocks", "residual blocks in each layer"),
        ("hidden", "width of the residual blocks"),
        ("sigmoids", "sigmoids per coordinate"),
        ("context", "width of the embedding of (λ, q)"),
        ("batch", "draws a step"),
        ("num_draws", "draws for the ELBO at each point"),
    ):
        option, default = f"--{name.replace('_', '-')}", getattr(Settings, name)
        parser.add_argument(option, type=int, default=default, help=f"{meaning} (%(default)s)")
    parser.add_argument(
        "--more", action="store_true", help="also 4 layers, as in the paper's text, and 64 draws a step"
    )
    parser.add_argument("--published-only", action="store_true", help="leave ggmflow out")
    options = vars(parser.parse_args())
    more, published_only = options.pop("more"), options.pop("published_only")

    console, progress = Console(width=130), Console(stderr=True)
    X, _ = toy_problem(15, 15, random_state=0)
    scatter = Scatter.from_data(X, mean="known")
    try:
        with progress.status("") as status:
            python, versions = environment(status.update)
        ours = [] if published_only else [run_ggmflow(X)]
        if options["seconds"] is None:
            options["seconds"] = ours[0].wall_time if ours else 60.0
        settings = Settings(**options)
        variants = {"published (flowcon, torch)": settings}
        if more:
            variants["published, 4 layers"] = replace(settings, layers=4)
            variants["published, batch of 64"] = replace(settings, batch=64)
        rows, threads = [], 0
        for name, variant in variants.items():
            with progress.status(f"{name}: starting") as status:
                found = run_published(
                    python, variant, scatter, lambda text, name=name: status.update(f"{name}: {text}")
                )
            rows.append(row_of_published(name, variant, found))
            threads = found.threads
    except PublishedFlowError as error:
        raise SystemExit(str(error)) from None
    known = versions | {"JAX": jax.__version__, "ggmflow": gf.__version__}
    caption = ", ".join(f"{package} {version}" for package, version in known.items())
    print_table(rows + ours, f"{caption}; torch on {threads} threads", console)
    print(
        "The published flow trains for 10 000 steps in full; in the wall time given, at T = 1 without cooling.\n"
        "cores: CPU time over wall time. Where it is far below the number of cores, other work slowed the times down."
    )


if __name__ == "__main__":
    main()
