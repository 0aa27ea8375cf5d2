"""The same random_state gives the same bits: model file, draws, evidence, chains, modes, in every process."""

import hashlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import ggmflow as gf
from ggmflow.evidence.prior_integral import integrate_prior
from ggmflow.model.conditions import Ranges
from tests.support.models import TABLE, quick

ROOT = Path(__file__).parents[2]


def digest(*arrays):
    """Of all bits of arrays."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def fit(**parameters):
    """One chunk of training at T = 1: by the program that trains the prior of as many variables."""
    return quick(temperature=1.0, **parameters).fit(TABLE)


def answers(path):
    """Answers of a fit, one digest for each kind. All draws are made by one program, 1000 at a time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gf.PoorFitWarning)  # of so short a training
        model = fit()
        model.save(path)
        post = model.posterior(2.0, 0.5, num_draws=1000)
        evidence = model.evidence([1.0, 4.0], [0.5, 1.0], num_draws=1000)
        refined = post.refine(10, num_chains=256)
        integral = integrate_prior(3, 3, Ranges((2.0, 2.0), (0.5, 0.5), (1.0, 1.0)))
        modes = model.path(0.5, [1.0, 4.0])
        return {
            "model": hashlib.sha256(Path(path).read_bytes()).hexdigest(),
            "draws": digest(post.sample(1000, random_state=1)),
            "weighted draws": digest(post.sample(250, random_state=1, weighted=True)),
            "estimates": digest(post.mean(), post.interval(0.9), post.association()),
            "evidence": digest(*(evidence[name] for name in ("log_evidence", "se", "elbo", "ess", "khat"))),
            "exact chains": digest(refined.sample(250, random_state=1), refined.mean()),
            "the prior's integral": digest(integral.h),
            "modes": digest(modes.precision, modes.objective),
        }


@pytest.mark.slow
def test_the_same_bits_in_another_process_that_compiles_anew(tmp_path):
    """This process may have loaded programs from the disk; the other compiles its own."""
    first = answers(tmp_path / "first.ggmflow")
    load = "import json, sys; from tests.system.test_reproducibility import answers"
    code = f"{load}; print(json.dumps(answers(sys.argv[1])))"
    command = [sys.executable, "-c", code, str(tmp_path / "second.ggmflow")]
    own = os.environ | {"GGMFLOW_CACHE": str(tmp_path / "cache")}
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT, env=own)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == first
    assert list((tmp_path / "cache").glob("*-cache"))


@pytest.mark.slow
def test_another_random_state_gives_other_bits():
    """So the digests do see a difference."""
    draws = [digest(fit(random_state=seed).posterior(2.0, 0.5).sample(1000, random_state=1)) for seed in (0, 1)]
    assert draws[0] != draws[1]
