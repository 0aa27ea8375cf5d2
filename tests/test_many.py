"""Many fits: the same wherever they run, and nothing finished is lost to errors, killed workers or full disks."""

import hashlib
import os
import pickle
import signal
from pathlib import Path

import jax
import joblib
import numpy as np
import pandas as pd
import pytest

import ggmflow as gf
from ggmflow import io, many
from tests.models import TABLE, quick


def numbers(model):
    """Held-out ELBOs, and all weights of the flow."""
    weights = [np.ravel(leaf) for leaf in jax.tree.leaves(model.flow_) if isinstance(leaf, jax.Array)]
    return {"elbo": model.history_["elbo"].to_numpy(), "weights": np.concatenate(weights)}


def resampled(count):
    """Tables of other rows, by name."""
    return {f"rows{k}": TABLE.sample(20, replace=True, random_state=k) for k in range(count)}


class Deadly:
    """A table that kills the process which looks at it first."""

    def __init__(self, values, marker):
        self.values, self.marker = values, marker

    def __array__(self, dtype=None, copy=None):
        if not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return np.asarray(self.values, dtype)


def assert_same(found, expected):
    assert list(found) == list(expected)
    for name in found:
        for kind, values in numbers(expected[name]).items():
            np.testing.assert_array_equal(numbers(found[name])[kind], values)


@pytest.fixture(scope="module")
def serial():
    return gf.fit_many(resampled(3), quick())


# ------------------------------------------------------------------------------------------------------ where fits run
def test_each_fit_is_that_of_its_table_and_seed(serial):
    tables = resampled(3)
    assert list(serial) == list(tables)
    seeds = [int.from_bytes(hashlib.sha256(f"0 {name}".encode()).digest()[:4]) for name in tables]
    assert [model.random_state for model in serial.values()] == seeds
    assert_same({"rows2": quick(random_state=seeds[2]).fit(tables["rows2"])}, {"rows2": serial["rows2"]})
    assert list(serial["rows2"].feature_names_in_) == list(TABLE.columns)


def test_processes_change_nothing_even_if_one_is_killed(serial, tmp_path):
    tables = resampled(3)
    tables["rows1"] = Deadly(tables["rows1"].to_numpy(), tmp_path / "killed")
    found = gf.fit_many(tables, quick(), n_jobs=2)
    assert (tmp_path / "killed").exists()
    for name, model in found.items():
        np.testing.assert_array_equal(numbers(model)["weights"], numbers(serial[name])["weights"])


def test_dask_workers_may_be_killed(serial, tmp_path):
    """Two workers, one of which is killed in the middle of a fit; whatever it held is done again."""
    distributed = pytest.importorskip("distributed")
    tables = resampled(3)
    tables["rows1"] = Deadly(tables["rows1"].to_numpy(), tmp_path / "killed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        before = set(client.run(os.getpid).values())
        with joblib.parallel_config(backend="dask"):
            found = gf.fit_many(tables, quick(), directory=tmp_path / "models")
        assert before - set(client.run(os.getpid).values())
    assert (tmp_path / "killed").exists()
    assert sorted(path.stem for path in (tmp_path / "models").iterdir()) == list(tables)
    for name, model in found.items():
        np.testing.assert_array_equal(numbers(model)["weights"], numbers(serial[name])["weights"])


@pytest.mark.usefixtures("untrained")
def test_a_table_that_always_takes_its_worker_down_takes_no_other_along(monkeypatch):
    def lost(name, *args):
        if name == "rows1":
            raise MemoryError("killed")
        return real(name, *args)

    real = many._fit
    monkeypatch.setattr(many, "_fit", lost)
    with pytest.raises(gf.FitsFailed, match=r"1 of 3 fits failed: 'rows1' \(MemoryError: killed\)") as failed:
        gf.fit_many(dict(reversed(resampled(3).items())), quick())
    assert list(failed.value.models) == ["rows2", "rows0"]


# ---------------------------------------------------------------------------------------------------- what is not lost
@pytest.mark.usefixtures("untrained")
def test_a_table_that_cannot_be_fitted_does_not_take_the_others_along(tmp_path):
    tables = [TABLE, TABLE.assign(b=1.0), TABLE[:10]]
    with pytest.raises(gf.FitsFailed, match=r"1 of 3 fits failed: '1' \(ValueError: .*'b'") as failed:
        gf.fit_many(tables, quick(), directory=tmp_path)
    assert f"attribute `models` of this error, and in {tmp_path}" in str(failed.value)
    assert list(failed.value.models) == ["0", "2"]
    assert isinstance(failed.value.errors["1"], ValueError)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.ggmflow", "2.ggmflow"]
    again = pickle.loads(pickle.dumps(failed.value))
    assert str(again) == str(failed.value)
    assert list(again.errors) == ["1"]
    tables[1] = TABLE[10:]
    assert [model.scatter_.n for model in gf.fit_many(tables, quick(), directory=tmp_path)] == [20, 10, 10]


@pytest.mark.usefixtures("untrained")
def test_a_directory_is_taken_up_where_it_was_left(tmp_path, monkeypatch):
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


@pytest.mark.usefixtures("untrained")
def test_a_model_of_something_else_is_refused(tmp_path):
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
    with pytest.raises(io.ModelFileError, match=r"a\.ggmflow"):
        gf.fit_many({"a": TABLE}, quick(), directory=tmp_path)


@pytest.mark.usefixtures("untrained")
def test_a_full_disk_costs_the_file_not_the_model(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(many, "_from_bytes", lambda content: quick().fit(TABLE))
    with pytest.warns(RuntimeWarning, match=r"a\.ggmflow could not be written \(No space left on device\)"):
        assert list(gf.fit_many({"a": TABLE}, quick(), directory=tmp_path)) == ["a"]
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("untrained")
def test_a_full_temporary_directory_loses_nothing_that_was_kept(tmp_path, monkeypatch):
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
        ({"../a": TABLE}, {"directory": "x"}, ValueError, "names of files, which '../a' cannot be"),
        ({"a": TABLE, "A": TABLE}, {"directory": "x"}, ValueError, "upper and lower case"),
        ([TABLE], {"directory": "x", "model": quick(random_state=None)}, ValueError, "integer random_state"),
    ],
)
def test_what_makes_no_sense_is_refused(datasets, more, kind, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=message):
        gf.fit_many(datasets, **{"model": quick(), **more})
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("untrained")
def test_tables_may_come_in_any_row():
    assert gf.fit_many([]) == []
    assert gf.fit_many({}) == {}
    stacked = np.stack([TABLE, TABLE * 2])
    assert len(gf.fit_many(stacked, quick())) == 2
    groups = dict(list(pd.concat([TABLE, TABLE]).groupby(np.repeat(["x", "y"], 20))))
    models = gf.fit_many(groups, quick(query=iter(["a", "c"]), random_state=np.random.RandomState(0)))
    assert [model.query_.tolist() for model in models.values()] == [[0, 2], [0, 2]]
    assert models["x"].random_state != models["y"].random_state
