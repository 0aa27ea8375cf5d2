"""Many fits: the same in every process, and no finished fit is lost to errors, killed workers or full disks."""

import hashlib
import os
import pickle
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

import jax
import joblib
import numpy as np
import pandas as pd
import pytest

import ggmflow as gf
from ggmflow.estimator import graphical_flow as estimator
from ggmflow.estimator import many
from ggmflow.posterior import start
from ggmflow.storage import archive
from ggmflow.train.loop import CHUNK
from tests.support import faults
from tests.support.models import TABLE, quick

WARNINGS = ["error::DeprecationWarning", "error::FutureWarning"]
MIDWAY = f"step {CHUNK} of {2 * CHUNK}"


def numbers(model):
    """Held-out ELBOs, and all weights of the flow."""
    weights = [np.ravel(leaf) for leaf in jax.tree.leaves(model.flow_) if isinstance(leaf, jax.Array)]
    return {"elbo": model.history_["elbo"].to_numpy(), "weights": np.concatenate(weights)}


def twice(**parameters):
    """Two chunks of training, to be killed in between."""
    return quick(steps=2 * CHUNK, **parameters)


def resampled(count):
    """Tables of other rows, by name."""
    return {f"rows{k}": TABLE.sample(20, replace=True, random_state=k) for k in range(count)}


class Deadly:
    """A table that kills the worker which fits it: before training or midway, the first one or (no marker) all."""

    def __init__(self, table, marker=None, *, midway=False):
        self.values, self.marker, self.midway = table.to_numpy(), marker, midway

    def __array__(self, dtype=None, copy=None):
        assert set(WARNINGS) <= set(sys.warnoptions)  # which this process, that of the tests, has not
        if self.marker is None or not self.marker.exists():
            if not self.midway:
                self.die("before training")
            options = {"report": lambda report: self.die(f"step {report.step} of {report.steps}")}
            estimator.fit_flow = lambda *args, **more: start.fit_flow(*args, **more | options)
        return np.asarray(self.values, dtype)

    def die(self, moment):
        if self.marker is not None:
            self.marker.write_text(moment)
        os.kill(os.getpid(), signal.SIGKILL)


def assert_same(found, expected):
    assert list(found) == list(expected)
    for name in found:
        for kind, values in numbers(expected[name]).items():
            np.testing.assert_array_equal(numbers(found[name])[kind], values)


@pytest.fixture(scope="module", autouse=True)
def warnings_of_workers():
    """Deprecation warnings are errors also in the processes that tests start."""
    joblib.externals.loky.get_reusable_executor().shutdown()  # one of other tests
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONWARNINGS", ",".join(WARNINGS))
        yield


@pytest.fixture(scope="module")
def serial():
    return gf.fit_many(resampled(3), twice())


# ------------------------------------------------------------------------------------------------------ where fits run
@pytest.mark.slow
def test_each_fit_depends_on_its_table_and_seed_only(serial):
    tables = resampled(3)
    assert list(serial) == list(tables)
    seeds = [int.from_bytes(hashlib.sha256(f"0 {name}".encode()).digest()[:4]) for name in tables]
    assert [model.random_state for model in serial.values()] == seeds
    assert_same({"rows2": twice(random_state=seeds[2]).fit(tables["rows2"])}, {"rows2": serial["rows2"]})
    assert list(serial["rows2"].feature_names_in_) == list(TABLE.columns)


@pytest.mark.slow
def test_processes_give_the_same_fits_even_if_one_is_killed(serial, tmp_path):
    tables = resampled(3)
    tables["rows1"] = Deadly(tables["rows1"], tmp_path / "killed", midway=True)
    found = gf.fit_many(tables, twice(), n_jobs=2)
    assert (tmp_path / "killed").read_text() == MIDWAY
    assert_same(found, serial)


@pytest.mark.slow
def test_dask_workers_may_be_killed_while_and_after_they_fit(serial, tmp_path):
    """Two workers (joblib would not use one). That of rows2 dies just after it has finished another fit."""
    distributed = pytest.importorskip("distributed")
    tables = resampled(3)
    tables["rows1"] = Deadly(tables["rows1"], tmp_path / "rows1", midway=True)
    tables["rows2"] = Deadly(tables["rows2"], tmp_path / "rows2")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        before = set(client.run(os.getpid).values())
        with joblib.parallel_config(backend="dask"):
            found = gf.fit_many(tables, twice(), directory=tmp_path / "models")
        assert before - set(client.run(os.getpid).values())
    assert [(tmp_path / name).read_text() for name in ("rows1", "rows2")] == [MIDWAY, "before training"]
    assert sorted(path.stem for path in (tmp_path / "models").iterdir()) == list(tables)
    assert_same(found, serial)


@pytest.mark.slow
def test_a_table_that_always_kills_its_worker_fails_alone(serial):
    tables = resampled(2)
    tables["rows1"] = Deadly(tables["rows1"])
    with pytest.raises(gf.FitsFailed, match=r"1 of 2 fits failed: 'rows1' \(TerminatedWorkerError: ") as failed:
        gf.fit_many(tables, twice(), n_jobs=2)
    assert_same(failed.value.models, {"rows0": serial["rows0"]})


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("finished", [0, 1, 2])
def test_a_killed_worker_costs_no_finished_fit(finished, monkeypatch):
    """joblib ends with an error after some results, as when a process is killed; those fits are not repeated."""
    done, real = [], joblib.Parallel

    def killed_once(**options):
        monkeypatch.setattr(joblib, "Parallel", real)

        def some(calls):
            for function, args, more in calls[:finished]:
                yield function(*args, **more)
            raise RuntimeError("a worker was killed")

        return some

    fit = many._fit
    monkeypatch.setattr(many, "_fit", lambda name, *args: (done.append(name), fit(name, *args))[1])
    monkeypatch.setattr(joblib, "Parallel", killed_once)
    assert list(gf.fit_many(resampled(3), quick())) == done == ["rows0", "rows1", "rows2"]


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize(("host", "pid", "limit"), [("", 0, None), ("", 1, 1), ("elsewhere", 0, 1)])
def test_a_worker_uses_one_core_even_if_its_pid_equals_that_of_its_parent(host, pid, limit, monkeypatch):
    """As with the first processes of two containers."""
    seen = []
    monkeypatch.setenv("NPROC", "1")  # a worker sets it
    monkeypatch.setattr(many, "threadpool_limits", lambda limits: (seen.append(limits), nullcontext())[1])
    here = many._process()
    many._fit("a", (TABLE,), quick().get_params(), (host or here[0], here[1] + pid))
    assert seen == [limit]


# ------------------------------------------------------------------------------------------------ models that are kept
@pytest.mark.usefixtures("untrained")
def test_a_table_that_cannot_be_fitted_fails_alone(tmp_path):
    tables = [TABLE, TABLE.assign(b=1.0), TABLE[:10]]
    with pytest.raises(gf.FitsFailed, match=r"1 of 3 fits failed: '1' \(TableError: .*'b'") as failed:
        gf.fit_many(tables, quick(), directory=tmp_path)
    assert f"attribute `models` of this error, and in {tmp_path}" in str(failed.value)
    assert list(failed.value.models) == ["0", "2"]
    assert isinstance(failed.value.errors["1"], ValueError)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.ggmflow", "2.ggmflow"]
    again = pickle.loads(pickle.dumps(failed.value))
    assert str(again) == str(failed.value)
    assert list(again.errors) == ["1"]
    tables[1] = TABLE[10:]
    assert [model.scatter_.n_rows for model in gf.fit_many(tables, quick(), directory=tmp_path)] == [20, 10, 10]


@pytest.mark.usefixtures("untrained")
def test_models_in_the_directory_are_not_fitted_again(tmp_path, monkeypatch):
    tables, seen, real = resampled(3), [], many._fit

    def interrupted(name, *args):
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(name)
        return real(name, *args)

    monkeypatch.setattr(many, "_fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gf.fit_many(tables, quick(), directory=tmp_path / "new")
    monkeypatch.setattr(many, "_fit", lambda name, *args: (seen.append(name), real(name, *args))[1])
    for _ in range(2):
        found = gf.fit_many(tables, quick(lam=[0.5, 8.0], progress=True), directory=tmp_path / "new")
        assert seen == list(found) == list(tables)
        assert all(model.progress for model in found.values())


@pytest.mark.slow
def test_a_killed_program_continues_with_the_remaining_tables(tmp_path, monkeypatch):
    """The same program, undisturbed, runs in this process."""
    TABLE.to_csv(table := tmp_path / "table.csv", index=False)
    monkeypatch.setattr(gf.GraphicalFlow, "fit", gf.GraphicalFlow.fit)  # which the program replaces
    monkeypatch.setattr(sys, "argv", ["", str(table), str(tmp_path / "whole")])
    exec(faults.MANY, {})
    assert len(list((tmp_path / "whole").iterdir())) == 3
    stage = faults.Stage(tmp_path, table, old=tmp_path, whole=tmp_path, seconds=0.0)
    assert faults.kill_many(stage, 1, tmp_path / "whole") == (1, [], [])


@pytest.mark.usefixtures("untrained")
def test_a_saved_model_of_other_data_or_parameters_raises(tmp_path):
    gf.fit_many({"a": TABLE}, quick(), directory=tmp_path)
    cases = [
        ({"a": TABLE[1:]}, quick(), "its data differ"),
        ({"a": TABLE.rename(columns={"a": "z"})}, quick(), "its data differ"),
        ({"a": TABLE}, quick(q=(0.5, 1.0)), r"q was \(0.25, 1.25\) and is \(0.5, 1.0\)"),
        ({"a": TABLE}, quick(random_state=1), "random_state was"),
        ({"a": TABLE}, quick(query=["a"]), "query was None and is"),
    ]
    for tables, model, message in cases:
        with pytest.raises(ValueError, match=rf"a\.ggmflow holds another fit, {message}.*delete it"):
            gf.fit_many(tables, model, directory=tmp_path)
    (tmp_path / "a.ggmflow").write_text("something else")
    with pytest.raises(archive.ModelFileError, match=r"a\.ggmflow"):
        gf.fit_many({"a": TABLE}, quick(), directory=tmp_path)


@pytest.mark.usefixtures("untrained")
def test_a_full_disk_loses_the_file_but_not_the_model(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(many, "_from_bytes", lambda content: quick().fit(TABLE))
    with pytest.warns(RuntimeWarning, match=r"a\.ggmflow could not be written \(No space left on device\)"):
        assert list(gf.fit_many({"a": TABLE}, quick(), directory=tmp_path)) == ["a"]
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("untrained")
def test_a_full_temporary_directory_does_not_lose_other_models(tmp_path, monkeypatch):
    def full(content):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(many, "_from_bytes", full)
        with pytest.raises(gf.FitsFailed, match=r"2 of 2 fits failed: 'a'.*No space left on device"):
            gf.fit_many({"a": TABLE, "b": TABLE}, quick(), directory=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a.ggmflow", "b.ggmflow"}
    assert list(gf.fit_many({"a": TABLE, "b": TABLE}, quick(), directory=tmp_path)) == ["a", "b"]


# ------------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("datasets", "more", "kind", "message"),
    [
        (TABLE, {}, TypeError, "sequence of tables.*got DataFrame; for one table use GraphicalFlow.fit"),
        (TABLE.to_numpy(), {}, TypeError, "got ndarray"),
        ("table.csv", {}, TypeError, "got str"),
        (gf.Scatter.from_data(TABLE), {}, TypeError, "got Scatter"),
        (3, {}, TypeError, "got int"),
        ({1: TABLE}, {}, TypeError, "names of datasets must be strings, got 1"),
        ([TABLE], {"model": "structured"}, TypeError, "model must be a GraphicalFlow, got str"),
        ([TABLE], {"n_jobs": 0}, ValueError, "n_jobs == 0"),
        ({"../a": TABLE}, {"directory": "x"}, ValueError, "valid names of files, with a directory, got '../a'"),
        (
            {"a": TABLE, "A": TABLE},
            {"directory": "x"},
            ValueError,
            r"upper and lower case, with a directory, got \['a', 'A'\]",
        ),
        ([TABLE], {"directory": "x", "model": quick(random_state=None)}, ValueError, "random_state must be an integer"),
    ],
)
def test_wrong_arguments_raise(datasets, more, kind, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=message):
        gf.fit_many(datasets, **{"model": quick(), **more})
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("untrained")
def test_tables_may_be_any_sequence():
    assert gf.fit_many([]) == []
    assert gf.fit_many({}) == {}
    stacked = np.stack([TABLE, TABLE * 2])
    assert len(gf.fit_many(stacked, quick())) == 2
    groups = dict(list(pd.concat([TABLE, TABLE]).groupby(np.repeat(["x", "y"], 20))))
    models = gf.fit_many(groups, quick(query=iter(["a", "c"]), random_state=np.random.RandomState(0)))
    assert [model.query_.tolist() for model in models.values()] == [[0, 2], [0, 2]]
    assert models["x"].random_state != models["y"].random_state
