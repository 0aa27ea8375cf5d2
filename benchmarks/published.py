"""The published Conditional Matrix Flow against ggmflow's structured flow: same data, same target, same wall time.

    python -m benchmarks.published [--seconds 60] [--more] [--published-only]

The published architecture is built from the registry's flowcon 0.0.4 (`benchmarks/published_torch.py`) with the
settings of its code: 10 masked autoregressive Sum-of-Sigmoids layers of 30 sigmoids with an ActNorm after each, 5
residual blocks of 256 in each, (log₁₀ λ, q) embedded in 64 numbers; Adam at 1e-3, gradients clipped at 1, 1000 draws a
step, each with its own (λ, q). Its 10 000 steps cool from T = 5 to 0.01 in 100 geometric stages. No short wall time
allows that, so it is trained at T = 1 throughout, the temperature at which both are compared; a step costs the same at
every T. What favours it: importing torch and building the flow are not counted (ggmflow's compilation is), its argument
checks are off, and the factorization of Ω that its code repeats in every step is left out, because the flow has the
factor already.

Both get the toy problem d = n = 15, λ ∈ [10^-½, 10], q ∈ [¼, 1¼]. What is compared is the ELBO, the mean over draws of
log p̃(Ω) − log q(Ω), both with respect to Lebesgue measure on the entries of Ω, T = 1, averaged over λ ∈ {½, 2, 8} and
q ∈ {1, ½, ¼}. It differs from −KL by log Z, which is the same for both, so differences are nats of KL. log p̃ of the
published flow's draws comes from `ggmflow.target` too, and must agree with the one it was trained with.

flowcon and torch 2.13.0 live in a virtual environment of their own, made on first use in ~/.cache/ggmflow (or
$XDG_CACHE_HOME/ggmflow); the project's is not touched. flowcon needs no changes with this torch. pip's own settings
(PIP_INDEX_URL, ...) hold; with PyPI's wheels for Linux, torch brings CUDA libraries of several GB, which are not used.
torch's threads wait without spinning (OMP_WAIT_POLICY=passive, unless set otherwise), or a step would take many times
as long whenever other work shares the cores. 1000 draws a step need about 5 GB of memory.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
import venv
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

os.environ["GGMFLOW_CACHE"] = "off"  # compilation counts

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from paramax import NonTrainable
from rich.console import Console
from rich.table import Table

import ggmflow as gf
from ggmflow import target
from ggmflow.data import Scatter
from ggmflow.simulate import toy_problem

REQUIREMENTS = ["flowcon==0.0.4", "torch==2.13.0"]
TRAINING_STEPS = 10_000  # as published
LAM_RANGE, Q_RANGE = (10**-0.5, 10.0), (0.25, 1.25)
POINTS = list(product((0.5, 2.0, 8.0), (1.0, 0.5, 0.25)))  # (λ, q)
SCRIPT = Path(__file__).with_name("published_torch.py")
PROBE = """
import json, platform
from importlib.metadata import version
import flowcon.transforms
print(json.dumps({"Python": platform.python_version(), "torch": version("torch"), "flowcon": version("flowcon")}))
"""


@dataclass(frozen=True)
class Settings:
    """The published flow and its training; the defaults are those of the published code."""

    seconds: float
    layers: int = 10
    blocks: int = 5
    hidden: int = 256
    sigmoids: int = 30
    context: int = 64
    batch: int = 1000
    num_draws: int = 1000


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


class PublishedFlowError(RuntimeError):
    """The other environment could not be made, or its process did not finish."""


def cache_directory() -> Path:
    """Where the environment of the published flow lives."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ggmflow" / "benchmarks" / "published"


def probe(python: Path) -> dict[str, str] | None:
    """Versions in an environment, or None if flowcon cannot be imported there."""
    if not python.exists():
        return None
    answer = subprocess.run([python, "-I", "-W", "ignore", "-c", PROBE], capture_output=True, text=True)
    return json.loads(answer.stdout) if answer.returncode == 0 else None


def environment(console: Console) -> tuple[Path, dict[str, str]]:
    """The interpreter with flowcon and torch, and their versions; installed now if they are not there yet."""
    home = cache_directory()
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if versions := probe(python):
        return python, versions
    with console.status(f"Installing {' and '.join(REQUIREMENTS)} in {home}; once, a minute or more"):
        try:
            venv.EnvBuilder(with_pip=True, clear=True).create(home)
        except (OSError, subprocess.CalledProcessError) as error:
            raise PublishedFlowError(f"No virtual environment could be made in {home}: {error}") from None
        command = [python, "-I", "-m", "pip", "install", "--disable-pip-version-check", *REQUIREMENTS]
        pip = subprocess.run(command, capture_output=True, text=True)
        versions = probe(python)
    if pip.returncode:
        raise PublishedFlowError(f"pip could not install {' and '.join(REQUIREMENTS)}. It said:\n{_end(pip.stderr)}")
    if versions is None:
        raise PublishedFlowError(f"flowcon is installed in {home} but cannot be imported: {python} -c 'import flowcon'")
    return python, versions


def run_published(
    name: str, python: Path, settings: Settings, scatter: Scatter, console: Console
) -> tuple[Row, dict[str, Any]]:
    """Train the published flow in its own process; the row and what the process reported."""
    with tempfile.TemporaryDirectory() as folder:
        problem, draws, log = (Path(folder) / file for file in ("problem.npz", "draws.npz", "stderr.txt"))
        np.savez(
            problem, scatter=scatter.matrix, n=scatter.n, lam_range=LAM_RANGE, q_range=Q_RANGE, points=np.array(POINTS)
        )
        command = [python, "-I", SCRIPT, problem, draws, json.dumps(asdict(settings))]
        variables = {"OMP_WAIT_POLICY": "passive"} | os.environ
        result = {}
        with (
            log.open("w") as stderr,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=variables) as process,
            console.status(f"{name}: starting") as status,
        ):
            try:
                for line in process.stdout or ():
                    result = json.loads(line)
                    if result["event"] == "step":
                        status.update(f"{name}: step {result['step']}, log q − log p̃ = {result['loss']:,.1f}")
            except BaseException:
                process.kill()
                raise
        if result.get("event") == "failed":
            raise PublishedFlowError(f"{name}: {result['message']}")
        if process.returncode or result.get("event") != "result":
            why = (
                "It was killed, perhaps for want of memory: try a smaller --batch." if process.returncode == -9 else ""
            )
            raise PublishedFlowError(f"{name} ended with code {process.returncode}. {why}\n{_end(log.read_text())}")
        with np.load(draws, allow_pickle=False) as archive:
            elbo, se = mean_elbo(archive["columns"], archive["log_q"], archive["log_target"], scatter)
    full = result["seconds_per_step"] * TRAINING_STEPS
    row = Row(
        name,
        result["parameters"],
        settings.batch,
        result["steps"],
        result["seconds_per_step"],
        result["cores"],
        f"{_duration(full)}, extrapolated",
        settings.seconds,
        elbo,
        se,
    )
    return row, result


def mean_elbo(
    columns: Float[np.ndarray, "points draws d d"],
    log_q: Float[np.ndarray, "points draws"],
    torch_log_target: Float[np.ndarray, "points draws"],
    scatter: Scatter,
) -> tuple[float, float]:
    """Mean over points of the ELBO and its Monte Carlo standard error, with ggmflow's own log p̃.

    Raises
    ------
    PublishedFlowError
        If the density that the flow was trained with is another one.
    """
    lam, q = np.array(POINTS).T
    with jax.enable_x64(True):
        per_draw = jax.vmap(target.unnormalized_log_prob, in_axes=(0, None, None, None, None))
        per_point = jax.vmap(per_draw, in_axes=(0, None, None, 0, 0))
        S, L = jnp.asarray(scatter.matrix), jnp.asarray(columns)
        log_target = np.asarray(per_point(L, S, float(scatter.n), jnp.asarray(lam), jnp.asarray(q)))
    if not np.allclose(torch_log_target, log_target, rtol=1e-8):
        worst = np.max(np.abs(torch_log_target - log_target))
        raise PublishedFlowError(f"the two programs disagree on log p̃ by up to {worst:.2g}")
    difference = log_target - log_q
    variances = difference.var(axis=1, ddof=1) / difference.shape[1]
    return float(difference.mean()), float(np.sqrt(variances.sum()) / len(POINTS))


def run_ggmflow(X: Float[np.ndarray, "n d"]) -> Row:
    """Fit the structured flow from nothing, compilation included, and ask for its ELBO at the same points."""
    begin, cpu_begin = time.perf_counter(), time.process_time()
    options: dict[str, Any] = {"batch_size": 128, "random_state": 0, "progress": False}  # the default for this size
    model = gf.GraphicalFlow(lam=LAM_RANGE, q=Q_RANGE, temperature=1.0, **options).fit(X)
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


def _end(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-8:])


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
    scatter = Scatter.from_data(X)
    try:
        python, versions = environment(progress)
        ours = [] if published_only else [run_ggmflow(X)]
        if options["seconds"] is None:
            options["seconds"] = ours[0].wall_time if ours else 60.0
        settings = Settings(**options)
        variants = {"published (flowcon, torch)": settings}
        if more:
            variants["published, 4 layers"] = replace(settings, layers=4)
            variants["published, batch of 64"] = replace(settings, batch=64)
        rows, result = [], {}
        for name, variant in variants.items():
            row, result = run_published(name, python, variant, scatter, progress)
            rows.append(row)
    except PublishedFlowError as error:
        raise SystemExit(str(error)) from None
    known = versions | {"JAX": jax.__version__, "ggmflow": gf.__version__}
    caption = ", ".join(f"{package} {version}" for package, version in known.items())
    print_table(rows + ours, f"{caption}; torch on {result['threads']} threads", console)
    print(
        "The published flow trains for 10 000 steps in full; in the wall time given, at T = 1 without cooling.\n"
        "cores: CPU time over wall time. Where it is far below the number of cores, other work slowed the times down."
    )


if __name__ == "__main__":
    main()
