"""Shared set-up: strict dtypes, so that no float32 enters a float64 computation unnoticed; one compilation cache."""

import gc
import os
from pathlib import Path

# Tests mostly compile. Less optimized programs compile in three quarters of the time. XLA's older code for fused
# operations takes 60 % of that again; small programs run as fast with it, large ones do not. `make demo` and
# `make test-oldest` run with the settings users have. JAX reads this when it first computes.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false",
)

import filelock
import jax
import numpy as np
import pytest

import ggmflow as gf
from tests.support.browser import browser, page  # noqa: F401
from tests.support.models import COMMITTED, FILES, KINDS, RANGES, TABLE, skip_training

jax.config.update("jax_numpy_dtype_promotion", "strict")
GIVEN_CACHE = os.environ.get("GGMFLOW_CACHE")  # before benchmarks, which tests import, switch it off

CACHE = Path(__file__).parents[1] / ".cache" / "tests"


def pytest_collection_modifyitems(items):
    """Begin with the files that take longest, so that no process is left alone with one of them at the end."""
    items.sort(key=lambda item: not {"system", "experiments", "train", "estimator"} & set(item.path.parts))


@pytest.fixture(scope="session")
def shared_directory(tmp_path_factory):
    """A directory of this run that all workers of pytest-xdist see."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def compilation_cache():
    """Workers share compiled programs, and later runs load them; the user's own cache is left alone.

    `make clean` removes them. GGMFLOW_CACHE, if set, is used instead.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not GIVEN_CACHE:
            CACHE.mkdir(parents=True, exist_ok=True)
            patch.setenv("GGMFLOW_CACHE", str(CACHE))
        yield


@pytest.fixture(scope="module", autouse=True)
def clear_compiled_programs():
    """Linux grants a process 65530 memory areas, of which each program takes some; beyond them XLA crashes."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 10_000:  # the estimator's tests alone need 26 600
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def x64():
    """Double precision for one test; the global setting stays as users have it."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(20231210)


@pytest.fixture
def compilations():
    """A list to which the name of everything compiled (or loaded from the cache on disk) is added."""
    found = []

    def listen(event, duration, **more):
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(more.get("fun_name", "?"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.fixture(scope="session")
def model(shared_directory):
    """Fitted models by kind.

    The files of `tests/files` are loaded (`python -m tests.support.models` writes them); other kinds are fitted by the
    first worker that needs them and loaded by the rest.
    """
    known = {}

    def get(kind):
        if kind not in known:
            path = FILES / f"{kind}.ggmflow" if kind in COMMITTED else shared_directory / f"{kind}.ggmflow"
            with filelock.FileLock(shared_directory / f"{kind}.lock"):
                if path.exists():
                    known[kind] = gf.GraphicalFlow.load(path)
                else:
                    known[kind] = gf.GraphicalFlow(**RANGES, **KINDS[kind], random_state=0, progress=False).fit(TABLE)
                    known[kind].save(path)
        return known[kind]

    return get


@pytest.fixture
def untrained(monkeypatch):
    """`fit` and `evidence` without training, for tests that do not depend on it.

    The test's own patches are undone together with these, in the right order.
    """
    skip_training(monkeypatch)
