"""Requests that do not fit into memory raise before anything is allocated; others are tried."""

import tracemalloc
from contextlib import contextmanager

import equinox as eqx
import jax
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import ggmflow as gf
from ggmflow.cli.app import app
from ggmflow.data.scatter import Scatter
from ggmflow.flow.base import untrained_flow
from ggmflow.model.conditions import Ranges
from ggmflow.storage import memory
from ggmflow.storage.memory import available, format_bytes, require
from ggmflow.train import memory as train
from tests.support.models import TABLE

GB = 10**9


@contextmanager
def little_is_allocated(most=50 * 10**6):
    """Assert that NumPy and Python allocate at most so many bytes; JAX gets its arrays from NumPy here."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@pytest.fixture
def untrained_model(untrained):
    return gf.GraphicalFlow(lam=2.0, q=1.0, random_state=0, progress=False).fit(TABLE)


# ----------------------------------------------------------------------------------------------------- available memory
def test_memory_that_is_available(monkeypatch, tmp_path):
    machine, container, none = tmp_path / "meminfo", tmp_path / "memory.max", tmp_path / "none"
    machine.write_text("MemTotal:  32000 kB\nMemAvailable:  8000 kB\nSwapFree:  1000 kB\nHugePages_Total:  0\n")
    monkeypatch.setattr(memory, "_MEMINFO", machine)
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    monkeypatch.setattr(memory, "_OWN_GROUP", none)
    assert available() == 9000 * 1024
    container.write_text("max\n")
    assert available() == 9000 * 1024
    container.write_text("5000000\n")  # of a container
    assert available() == 5_000_000
    monkeypatch.setattr(memory, "_MEMINFO", none)
    container.unlink()
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PHYS_PAGES": 100, "SC_PAGE_SIZE": 4096}[name], raising=False)
    assert available() == 409_600
    monkeypatch.setattr("os.sysconf", lambda name: (_ for _ in ()).throw(ValueError), raising=False)
    assert available() is None
    require(1e30, "many things", "nobody knows whether they fit")


@pytest.mark.parametrize(
    ("groups", "file"),
    [
        ("0::/slurm/job_1/step_0\n", "slurm/job_1/memory.max"),  # a limit of the job holds for its steps
        ("0::/slurm/job_1/step_0\n", "slurm/job_1/step_0/memory.max"),
        ("5:cpu:/a\n4:memory:/slurm/job_1\n", "memory/slurm/job_1/memory.limit_in_bytes"),
        ("4:cpu,memory:/x:y\nnoise\n", "memory/x:y/memory.limit_in_bytes"),
    ],
)
def test_the_limit_of_a_job_counts(monkeypatch, tmp_path, groups, file):
    own = tmp_path / "cgroup"
    own.write_text(groups)
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    monkeypatch.setattr(memory, "_OWN_GROUP", own)
    assert available() != 1_000_000
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("1000000\n")
    assert available() == 1_000_000


def test_this_machine_has_available_memory():
    assert available() is None or available() > 10**6


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (999, "999 bytes"), (3.2e9, "3.2 GB"), (8e13, "80 TB"), (1e20, "1e+05 PB")]
)
def test_sizes_as_text(size, text):
    assert format_bytes(size) == text


def test_the_message_gives_need_available_memory_and_advice(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 2 * GB)
    require(2 * GB, "things that just fit", "")
    with pytest.raises(
        MemoryError, match=r"^ten things need at least 3 GB of memory, and 2 GB are available: take two$"
    ):
        require(3 * GB, "ten things", "take two")


# -------------------------------------------------------------------------------------------------- requests that raise
MANY = 10**9  # the largest number that is not an argument error


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda model: model.posterior(num_draws=MANY), "draws of 10 entries need at least 80 GB.*fewer draws"),
        (lambda model: model.posterior().sample(MANY), "draws of 16 entries need at least 128 GB.*fewer draws"),
        (lambda model: model.posterior().sample(MANY, weighted=True), "draws of 10 entries need.*fewer draws"),
        (lambda model: model.posterior().predictive(MANY), "rows of 4 columns need at least 64 GB.*ask for fewer"),
        (lambda model: model.posterior().to_arviz(MANY), "draws of (10|16) entries need"),
        (
            lambda model: model.evidence(2.0, 1.0, normalizer="published", num_draws=MANY),
            "draws of 10 entries need at least 80 GB",
        ),
        (
            lambda model: gf.gibbs.sample(jax.random.key(0), model.scatter_, 1.0, num_draws=MANY),
            "16 chains of 1000000000 draws of 4 × 4 entries need at least 2.05 TB.*fewer chains",
        ),
        (
            lambda model: gf.gibbs.sample(jax.random.key(0), model.scatter_, 1.0, num_chains=MANY),
            "chains of 1000 draws of 4 × 4 entries need.*a query",
        ),
    ],
)
def test_too_many_draws(untrained_model, ask, message, monkeypatch):
    untrained_model.posterior().mean()  # compute now what is computed only once
    monkeypatch.setattr(memory, "available", lambda: 16 * GB)  # some machines have more
    with little_is_allocated(), pytest.raises(MemoryError, match=message):
        ask(untrained_model)


def test_a_flow_that_is_too_large():
    """20 000 columns of 3 rows are small; the 200 million entries of their precision matrix are not."""
    X = np.random.default_rng(0).normal(size=(3, 20_000))
    with (
        little_is_allocated(),
        pytest.raises(MemoryError, match=r"flow over 200010000 entries .* TB .*query=\[\.\.\.\]"),
    ):
        gf.GraphicalFlow(progress=False).fit(X)


def test_a_whole_matrix_of_2000_variables_needs_more_than_24_gb(monkeypatch, compilations):
    """XLA's analysis of the compiled step is 35.5 GB, and best and first weights are 2.7 GB more."""
    monkeypatch.setattr(memory, "available", lambda: 24 * GB)
    del compilations[:]
    with pytest.raises(MemoryError, match=r"flow over 2001000 entries .* 3\d(\.\d)? GB .*query=\[\.\.\.\]"):
        gf.GraphicalFlow(progress=False).fit(np.random.default_rng(0).normal(size=(50, 2000)))
    assert compilations == []


def refused_fit(tmp_path, table, *options):
    """Messages of a fit that raises and of a summary of its run; neither advises to resume it."""
    path, run = tmp_path / "wide.csv", tmp_path / "run"
    table.to_csv(path, index=False)
    found = CliRunner().invoke(app, ["fit", str(path), "-o", str(run), *options])
    after = CliRunner().invoke(app, ["summary", str(run)])
    assert found.exit_code == after.exit_code == 2
    assert "--resume" not in found.stderr + after.stderr and "Traceback" not in found.stderr
    return found.stderr.splitlines(), after.stderr.splitlines()


def test_a_wide_table_is_an_error_of_one_line_on_the_command_line(monkeypatch, tmp_path, compilations):
    monkeypatch.setattr(memory, "available", lambda: 24 * GB)
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 2000))).add_prefix("x")
    del compilations[:]
    (line,), _ = refused_fit(tmp_path, table)
    assert line.startswith("Error: a flow over 2001000 entries and its training need at least 3")
    assert line.endswith("leave columns out, or ask for the Markov blanket of some variables with --query ...")
    assert compilations == [] and not (tmp_path / "run").exists()


def allocate_too_much(*args, **kwargs):
    """Raise the error of JAX for too little memory: no address space has so many bytes."""
    return jax.block_until_ready(jax.jit(lambda: jax.numpy.zeros(2**50))())


@pytest.mark.parametrize("name", ["estimator.plan.untrained_flow", "train.loop.run_chunk"])
def test_memory_that_runs_out_in_training_is_a_memory_error(monkeypatch, name):
    monkeypatch.setattr(f"ggmflow.{name}", allocate_too_much)
    with pytest.raises(MemoryError, match=r"^a flow over 10 entries .* more memory than is available: .*query="):
        gf.GraphicalFlow(lam=2.0, q=1.0, steps=25, pretrained=False, progress=False).fit(TABLE)


def test_other_errors_of_jax_are_not_changed():
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"), train.memory_errors(4, 4):
        raise jax.errors.JaxRuntimeError("INTERNAL: the memory is not to blame")


def test_memory_that_runs_out_in_training_is_one_line_on_the_command_line(monkeypatch, tmp_path):
    monkeypatch.setattr("ggmflow.train.loop.run_chunk", allocate_too_much)
    (*_, line), (after,) = refused_fit(tmp_path, TABLE, "--steps", "25")  # after the live lines
    assert line.startswith("Error: a flow over 10 entries and its training need more memory than is available")
    assert after.startswith("Error: the fit in") and after.endswith("failed and cannot be resumed: fit again")


def test_a_query_that_is_too_large(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 10**6)
    with pytest.raises(MemoryError, match="the Markov blanket of fewer variables"):
        gf.GraphicalFlow(query=list(range(20)), progress=False).fit(np.random.default_rng(0).normal(size=(10, 40)))


def test_a_table_with_too_many_columns(tmp_path):
    """One line on the command line, and nothing is written."""
    message = r"scatter matrices of 1000 columns need at least 40 MB .*drop=\[\.\.\.\]"
    table = np.random.default_rng(0).normal(size=(2, 1000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "available", lambda: 10**6)
        with pytest.raises(MemoryError, match=message):
            Scatter.from_data(table)
        path = tmp_path / "wide.csv"
        pd.DataFrame(table, columns=[f"x{k}" for k in range(1000)]).to_csv(path, index=False)
        result = CliRunner().invoke(app, ["fit", str(path), "-o", str(tmp_path / "run")])
    assert result.exit_code == 2 and not (tmp_path / "run").exists()
    assert result.stderr.startswith("Error: the scatter matrices of 1000 columns") and result.stderr.count("\n") == 1
    assert result.stderr.endswith("leave some of them out, for instance with --drop ...\n")


def test_a_table_with_missing_values_and_too_many_columns(monkeypatch):
    """The check comes before the expected statistics are computed."""
    table = np.random.default_rng(0).normal(size=(5, 300))
    table[0, 0] = np.nan
    monkeypatch.setattr(memory, "available", lambda: 10**6)
    with pytest.raises(MemoryError, match="scatter matrices of 300 columns"):
        Scatter.from_data(table, missing="em")


def test_a_file_that_is_too_large(monkeypatch, tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("a,b\n" + "0.125,0.25\n" * 1000)
    monkeypatch.setattr(memory, "available", lambda: 10**4)
    with pytest.raises(MemoryError, match=r"the rows of .*long\.csv' need at least 11 kB"):
        Scatter.from_data(path)


def test_a_flow_that_is_too_large_raises_before_ranges_are_found(monkeypatch, tmp_path):
    path = tmp_path / "table.csv"
    TABLE.to_csv(path, index=False)
    monkeypatch.setattr("ggmflow.train.memory.require", lambda need, *more: memory.require(1e30, *more))
    monkeypatch.setattr("ggmflow.cli.jobs.find_ranges", lambda **given: pytest.fail("ranges were computed"))
    result = CliRunner().invoke(app, ["fit", str(path), "-o", str(tmp_path / "run")])
    assert result.exit_code == 2 and result.stderr.startswith("Error: a flow over")


# ---------------------------------------------------------------------------------------------- requests that are tried
@pytest.mark.parametrize("architecture", ["structured", "paper"])
@pytest.mark.parametrize(("d", "s"), [(8, 8), (40, 40), (30, 2), (100, 6)])
def test_the_need_of_a_flow_is_a_lower_bound_of_the_right_size(monkeypatch, architecture, d, s):
    asked = []
    monkeypatch.setattr(train, "require", lambda need, what, advice: asked.append(need))
    train.require_memory(architecture, d, s, batch_size=0)  # weights only
    ranges = Ranges((1.0, 2.0), (0.5, 1.0), (1.0, 1.0))

    def start(key):
        return untrained_flow(key, architecture, Scatter.without_data(d), np.arange(s), ranges)

    shapes = eqx.filter_eval_shape(start, jax.random.key(0))
    weights = sum(leaf.size for leaf in jax.tree.leaves(shapes) if isinstance(leaf, jax.ShapeDtypeStruct))
    assert 0.2 * 24 * weights < asked[0] < 24 * weights


@pytest.mark.parametrize(
    ("d", "s", "batch_size", "measured"),
    [
        # Bytes of arguments and temporary arrays, by XLA's analysis of the compiled step at T = 1.
        (100, 100, None, 148e6),
        (200, 200, 8, 154e6),
        (200, 200, None, 356e6),
        (200, 200, 64, 616e6),
        (300, 300, None, 800e6),
        (1000, 1000, None, 8.87e9),
        (2000, 2000, None, 35.5e9),
        (600, 6, None, 170e6),
        (1200, 6, None, 315e6),
        (300, 30, None, 128e6),
        (200, 150, None, 286e6),
        (1600, 100, None, 940e6),
    ],
)
def test_the_need_of_a_step_is_a_little_below_the_measured_one(monkeypatch, d, s, batch_size, measured):
    asked = []
    monkeypatch.setattr(train, "require", lambda need, what, advice: asked.append(need))
    train.require_memory("structured", d, s, batch_size)
    assert 0.75 * measured < asked[0] < measured


def test_a_whole_matrix_of_300_variables_is_tried(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 24 * GB)
    train.require_memory("structured", 300, 300)
    monkeypatch.setattr(memory, "available", lambda: GB)
    train.require_memory("structured", 300, 300)
