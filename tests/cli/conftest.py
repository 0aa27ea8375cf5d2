"""Fixtures of the tests of the command line."""

import sys
import types

import filelock
import jax
import pytest

from ggmflow.cli.app import app
from tests.support import models
from tests.support.command_line import FIT, TABLE, run


@pytest.fixture
def table(tmp_path):
    """A file with 50 rows and edges that any rule finds."""
    path = tmp_path / "table.csv"
    TABLE.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def fitted(shared_directory):
    """A run directory, and what the command that made it printed."""
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    path, printed = shared_directory / "cli-run", shared_directory / "cli-run.txt"
    with filelock.FileLock(f"{path}.lock"):
        if not printed.exists():
            TABLE.to_csv(shared_directory / "table.csv", index=False)
            with models.untrained_priors():
                result = run(app, ["fit", str(shared_directory / "table.csv"), "-o", str(path), *FIT])
            assert result.exit_code == 0, result.output
            printed.write_text(result.stdout, encoding="utf-8")
    return path, " ".join(printed.read_text(encoding="utf-8").split())


@pytest.fixture
def stand_in(monkeypatch):
    """A replacement for a package that draws."""

    def put(name, **functions):
        module = types.ModuleType(f"ggmflow.{name}")
        vars(module).update(functions)
        monkeypatch.setitem(sys.modules, f"ggmflow.{name}", module)

    return put


@pytest.fixture
def data_file(tmp_path):
    """A file with 20 rows, for tests of run directories."""
    path = tmp_path / "table.csv"
    models.TABLE.to_csv(path, index=False)
    return path


@pytest.fixture
def jax_as_users_have_it():
    """JAX with its default promotion of dtypes, which other tests forbid."""
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    yield
    jax.config.update("jax_numpy_dtype_promotion", "strict")
