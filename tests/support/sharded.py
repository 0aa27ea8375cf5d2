"""A program that trains in double precision, with more devices or processes than the process of the tests has.

python -m tests.support.sharded devices DIRECTORY              on 1, 2 and 8 devices, which XLA_FLAGS provides
python -m tests.support.sharded process DIRECTORY PORT K       process K of two, joined over loopback
python -m tests.support.sharded script DIRECTORY               the script of the page about clusters, in one process
"""

import os
import re
import sys
from pathlib import Path
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ggmflow.estimator import plan
from ggmflow.model.conditions import Ranges
from ggmflow.storage.cache import compilation_cache_enabled
from ggmflow.train import loop as train
from ggmflow.train.settings import Settings, default_settings
from tests.support.toy import Toy, toy_loss, toy_noise

SETTINGS = Settings(50, 4, 4)
PAGE = Path(__file__).parents[2] / "docs" / "clusters.md"


def short_training(*, seed=1, noise=toy_noise, loss=toy_loss, **more):
    """50 steps with 4 conditions × 4 draws of the toy flow."""
    ranges = Ranges((0.5, 8.0), (0.25, 1.25), (1.0, 1.0))
    arguments = jax.random.key(seed), ranges.low, ranges.high, SETTINGS
    with compilation_cache_enabled():
        return train.train(Toy(make_noise=noise, make_loss=loss), *arguments, **more)


def keep(path, trained):
    """Save held-out ELBOs and all arrays of the flow."""
    numbers = [np.ravel(leaf) for leaf in jax.tree.leaves(trained.flow) if eqx.is_array(leaf)]
    np.savez(path, elbo=[report.elbo for report in trained.history], numbers=np.concatenate(numbers))


def same_noise(*args):
    """As if both of two devices took the first part of the noise."""
    return jnp.tile(toy_noise(*args)[:, :2], (1, 2, 1))


def half_a_loss(flow, noise, conditions):
    """As if two devices did not average, and both used the gradient of the first."""
    return toy_loss(flow, noise[:, :2], conditions[:2])[0], toy_loss(flow, noise, conditions)[1]


def on_devices(directory):
    for count in (1, 2, 8):
        keep(directory / f"toy{count}.npz", short_training(devices=jax.devices()[:count]))
    for name, mistake in (("noise", same_noise), ("loss", half_a_loss)):
        keep(directory / f"{name}.npz", short_training(devices=jax.devices()[:1], **{name: mistake}))


def short_settings(n_entries, many_temperatures, steps=None, batch_size=None, plan=None, *, pretrained=False):
    return default_settings(n_entries, many_temperatures, 50, 16, plan, pretrained=pretrained)


def run_script(directory):
    """Run the script of the page in single precision, with fewer steps and without its call that joins processes.

    It reads data.csv in the directory, and writes model.ggmflow, which the test compares: draws are not compiled here.
    """
    (script,) = re.findall(r"^```text\n(import jax\n.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    os.chdir(directory)
    with (
        jax.enable_x64(False),
        mock.patch.object(jax.distributed, "initialize"),
        mock.patch.object(plan, "default_settings", short_settings),
        mock.patch("ggmflow.posterior.start.GOOD", 0.0),  # train, however good the shipped weights are
    ):
        exec(script, {})


def in_process(directory, port, k):
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=k)
    try:
        short_training(seed=k)
    except ValueError as error:
        (directory / f"refused{k}.txt").write_text(str(error))
    trained = short_training(checkpoint=directory / f"checkpoint{k}")
    assert trained.flow.mean.is_fully_addressable
    keep(directory / f"process{k}.npz", trained)
    run_script(directory)


if __name__ == "__main__":
    train.CHUNK = 10  # five evaluations of the loss
    what, directory, *more = sys.argv[1:]
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    {"devices": on_devices, "process": in_process, "script": run_script}[what](Path(directory), *map(int, more))
