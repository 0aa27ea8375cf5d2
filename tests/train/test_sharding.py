"""Draws of a step split over devices and processes: the same losses as on one device.

Another number of devices changes the order of sums. In double precision that is 1e-16 of a gradient, which 50 steps
amplify; hence TOLERANCE. A small flow is enough for it; two processes train the default one.
"""

import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import ggmflow as gf
from ggmflow.train.devices import arrange
from tests.support.models import TABLE

TOLERANCE, SINGLE = 1e-11, 1e-5


def start(*arguments, devices=1):
    # Compiling takes longer than running.
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    flags += f" --xla_cpu_use_fusion_emitters=false --xla_force_host_platform_device_count={devices}"
    strict = ["-W", "error::DeprecationWarning", "-W", "error::FutureWarning"]
    command = [sys.executable, *strict, "-m", "tests.support.sharded", *map(str, arguments)]
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(*programs):
    try:
        ended = [(program.communicate(timeout=600)[0], program.returncode) for program in programs]
    finally:
        for program in programs:
            program.kill()
    for output, code in ended:
        assert code == 0, output


@pytest.fixture(scope="module")
def on_devices(tmp_path_factory):
    directory = tmp_path_factory.mktemp("devices")
    finish(start("devices", directory, devices=8))
    return {path.stem: np.load(path) for path in directory.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["toy2", "toy8"])
def test_the_number_of_devices_does_not_matter(on_devices, name):
    """Two devices share the four conditions of a step; eight share the draws of each condition too."""
    alone = on_devices["toy1"]
    assert len(alone["elbo"]) == 5
    np.testing.assert_allclose(on_devices[name]["elbo"], alone["elbo"], rtol=TOLERANCE)
    np.testing.assert_allclose(on_devices[name]["numbers"], alone["numbers"], rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", ["noise", "loss"])
def test_mistakes_change_the_losses(on_devices, mistake):
    """Two devices that use the same noise, or do not average: losses differ by a million times the tolerance.

    One loss is enough, as in the comparison above; after ten steps the second mistake has changed it by 2e-5.
    """
    found = np.abs(on_devices[mistake]["elbo"] / on_devices["toy1"]["elbo"] - 1)
    assert found.max() > 1e-4 > 1e6 * TOLERANCE


@pytest.mark.slow
def test_two_processes_train_the_flow_of_one(on_devices, tmp_path):
    """Over loopback, with collectives of gloo: both have the same flow, and one writes the checkpoint.

    The same holds for the script of the page about clusters, in single precision: ELBOs differ by 2e-6, and training
    changes them by 6e-5.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = tmp_path / "joined", tmp_path / "alone"
    for place in places:
        place.mkdir()
        TABLE.to_csv(place / "data.csv", index=False)
    finish(*[start("process", places[0], port, k) for k in range(2)])
    finish(start("script", places[1]))
    joined, alone = (gf.GraphicalFlow.load(place / "model.ggmflow") for place in places)
    for answer in (lambda model: model.history_["elbo"], lambda model: model.posterior(lam=4.0, q=1.0).mean()):
        np.testing.assert_allclose(answer(joined), answer(alone), rtol=SINGLE, atol=SINGLE)
    assert len(joined.history_) == 5
    tmp_path = places[0]
    first, second = (np.load(tmp_path / f"process{k}.npz") for k in range(2))
    np.testing.assert_allclose(first["elbo"], on_devices["toy1"]["elbo"], rtol=TOLERANCE)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    assert [(tmp_path / f"checkpoint{k}").exists() for k in range(2)] == [True, False]
    for k in range(2):  # with different seeds
        assert "process 1 would train another flow than process 0" in (tmp_path / f"refused{k}.txt").read_text()


# ---------------------------------------------------------------------------------------------- arrangement of devices
def devices_of(*counts):
    return [SimpleNamespace(process_index=k, id=k) for k, count in enumerate(counts) for _ in range(count)]


@pytest.mark.parametrize(
    ("counts", "num_conditions", "num_draws", "shape"),
    [
        ((1,), 32, 4, (1, 1, 1)),
        ((4,), 32, 4, (4, 1, 1)),
        ((16,), 8, 4, (8, 2, 1)),  # more devices than conditions
        ((64,), 8, 4, (8, 4, 1)),  # more than draws: 32 are used
        ((6,), 32, 4, (4, 1, 1)),  # 4 of 6 are used
        ((3,), 48, 4, (3, 1, 1)),
        ((2, 2), 32, 4, (4, 1, 1)),
        ((3, 3), 32, 4, (4, 1, 1)),  # 2 of each
        ((2, 1), 32, 4, (2, 1, 1)),  # 1 of each
        ((1, 1, 1), 32, 4, (1, 1, 3)),  # all take part and compute the same
        ((1,), 1, 2, (1, 1, 1)),
    ],
)
def test_as_many_devices_are_used_as_can_have_equal_parts(counts, num_conditions, num_draws, shape):
    grid = arrange(devices_of(*counts), num_conditions, num_draws)
    assert grid.shape == shape
    used = [device.process_index for device in grid.ravel()]
    assert set(used) == set(range(len(counts)))
    assert len({used.count(k) for k in set(used)}) == 1
