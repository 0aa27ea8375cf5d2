"""The published Conditional Matrix Flow at its full size, in an environment of its own: E_q[log p̃(Ω) − log q(Ω)].

The architecture is built from the registry's flowcon 0.0.4 (`published_torch.py`) with the settings of its code: 10
masked autoregressive Sum-of-Sigmoids layers of 30 sigmoids with an ActNorm after each, 5 residual blocks of 256 in
each, (log₁₀ λ, q) embedded in 64 numbers; Adam at 1e-3, gradients clipped at 1, 1000 draws a step, each with its own
(λ, q). Its 10 000 steps cool from T = 5 to 0.01 in 100 geometric stages. No short wall time allows that, so it is
trained at T = 1 throughout; a step costs the same at every T. What favours it: importing torch and building the flow
are not counted, its argument checks are off, and the factorization of Ω that its code repeats in every step is left
out, because the flow has the factor already.

flowcon and torch 2.13.0 live in a virtual environment of their own, made on first use in ~/.cache/ggmflow (or
$XDG_CACHE_HOME/ggmflow). flowcon needs no changes with this torch. pip's own settings (PIP_INDEX_URL, ...) hold; with
PyPI's wheels for Linux, torch brings CUDA libraries of several GB, which are not used. torch's threads wait without
spinning (OMP_WAIT_POLICY=passive, unless set otherwise), or a step would take many times as long whenever other work
shares the cores. 1000 draws a step need about 5 GB of memory.
"""

import json
import os
import subprocess
import tempfile
import venv
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ggmflow.data.scatter import Scatter
from ggmflow.model import target

REQUIREMENTS = ["flowcon==0.0.4", "torch==2.13.0"]
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


class Published(NamedTuple):
    """Measurements of the published flow.

    Attributes
    ----------
    parameters, steps
        Numbers trained, steps done.
    seconds_per_step, draws_per_second
        Medians; draws are of one (λ, q), with their density.
    cores
        CPU time over wall time: low if other programs shared the cores.
    threads
        That torch used.
    elbo, elbo_se
        Mean over `POINTS` of the ELBO at T = 1, and its Monte Carlo error.
    """

    parameters: int
    steps: int
    seconds_per_step: float
    draws_per_second: float
    cores: float
    threads: int
    elbo: float
    elbo_se: float


class PublishedFlowError(RuntimeError):
    """The separate environment could not be made, or its process did not finish."""


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


def environment(tell: Callable[[str], None] = lambda text: None) -> tuple[Path, dict[str, str]]:
    """The interpreter with flowcon and torch, and their versions; installs them if necessary.

    Parameters
    ----------
    tell
        Progress callback.

    Raises
    ------
    PublishedFlowError
        If there is no environment and none can be made, for want of a network for instance.
    """
    home = cache_directory()
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if versions := probe(python):
        return python, versions
    tell(f"Installing {' and '.join(REQUIREMENTS)} in {home}; once, a minute or more")
    try:
        venv.EnvBuilder(with_pip=True, clear=True).create(home)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PublishedFlowError(f"No virtual environment could be made in {home}: {error}") from None
    command = [python, "-I", "-m", "pip", "install", "--disable-pip-version-check", *REQUIREMENTS]
    pip = subprocess.run(command, capture_output=True, text=True)
    if pip.returncode:
        raise PublishedFlowError(f"pip could not install {' and '.join(REQUIREMENTS)}. It said:\n{_end(pip.stderr)}")
    if (versions := probe(python)) is None:
        raise PublishedFlowError(f"flowcon is installed in {home} but cannot be imported: {python} -c 'import flowcon'")
    return python, versions


def run_published(
    python: Path, settings: Settings, scatter: Scatter, tell: Callable[[str], None] = lambda text: None
) -> Published:
    """Train the published flow in its own process.

    Parameters
    ----------
    python
        Interpreter that `environment` gave.
    settings
        Flow and training.
    scatter
        The data.
    tell
        Progress callback.

    Raises
    ------
    PublishedFlowError
        If the process did not finish, or was trained with another density than ours.
    """
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
        ):
            try:
                for line in process.stdout or ():
                    result = json.loads(line)
                    if result["event"] == "step":
                        tell(f"step {result['step']}, log q − log p̃ = {result['loss']:,.1f}")
            except BaseException:
                process.kill()
                raise
        if result.get("event") == "failed":
            raise PublishedFlowError(result["message"])
        if process.returncode or result.get("event") != "result":
            why = "It was killed, perhaps for want of memory: try a smaller batch." if process.returncode == -9 else ""
            raise PublishedFlowError(
                f"the published flow ended with code {process.returncode}. {why}\n{_end(log.read_text())}"
            )
        with np.load(draws, allow_pickle=False) as archive:
            elbo, se = mean_elbo(archive["columns"], archive["log_q"], archive["log_target"], scatter)
    known = {name: result[name] for name in Published._fields if name in result}
    return Published(**known, elbo=elbo, elbo_se=se)


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


def _end(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-8:])
