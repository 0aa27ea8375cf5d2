"""Model files: saved and loaded models are the same, and other files raise an error."""

import pickle
import warnings
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest

import ggmflow as gf
from ggmflow.model.conditions import Boundary, Choice
from ggmflow.storage import archive
from ggmflow.train.loop import CHUNK
from tests.support.models import KINDS, NAMES, TABLE, pushed_flow, quick, untrained_priors, without_training


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "blanket", "paper"])
def test_a_loaded_model_is_the_saved_one(kind, tmp_path):
    """Fitted in this test, because the fixture may have loaded its model from a file.

    A blanket is not trained, but its weights are moved: otherwise a loader that ignores stored weights would pass.
    """
    with without_training() if kind == "blanket" else nullcontext():
        fitted, path = quick(**(KINDS[kind] | {"steps": 4 * CHUNK})).fit(TABLE), tmp_path / "m.ggmflow"
    with warnings.catch_warnings(), untrained_priors():
        warnings.simplefilter("ignore", gf.RangeWarning)
        assert 0.5 <= fitted.lam_ <= 8  # chosen before it is saved
    if kind == "blanket":
        fitted.flow_ = pushed_flow(fitted.flow_)
    fitted.save(path)
    loaded = gf.GraphicalFlow.load(path)
    for temperature in (1.0, 0.3):
        a, b = (each.posterior(2.0, 0.5, temperature).sample(20, random_state=1) for each in (fitted, loaded))
        np.testing.assert_array_equal(a, b)
    assert str(loaded) == str(fitted)
    assert loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(loaded.feature_names_in_, NAMES)
    assert loaded.n_features_in_ == 4
    pd.testing.assert_frame_equal(loaded.history_, fitted.history_)
    for name in ("lam_", "q_", "lam_range_", "q_range_", "temperature_range_", "n_iter_", "status_"):
        assert getattr(loaded, name) == getattr(fitted, name)
    if "query" not in KINDS[kind]:
        assert loaded.score(TABLE) == fitted.score(TABLE)
    loaded.save(tmp_path / "again.ggmflow")
    assert (tmp_path / "again.ggmflow").read_bytes() == path.read_bytes()


def test_any_parameters_can_be_saved(untrained, tmp_path):
    path, generator = tmp_path / "m.ggmflow", np.random.default_rng(0)
    changes = {"lam": np.array([1.0, 2.0]), "q": [0.5, 1], "query": np.array([2, 0]), "random_state": generator}
    quick(**changes, temperature=np.float32(1.0), transform="nonparanormal").fit(TABLE).save(path)
    loaded = gf.GraphicalFlow.load(path)
    parameters = loaded.get_params()
    assert (parameters["lam"], parameters["q"], parameters["query"]) == ((1.0, 2.0), (0.5, 1), [2, 0])
    assert parameters["random_state"] is None  # the generator has moved on
    assert parameters["transform"] == "nonparanormal"
    quick(lam=2.0, query=(name for name in ["b", "a"])).fit(TABLE).save(path)
    assert gf.GraphicalFlow.load(path).query_.tolist() == [1, 0]


def test_files_that_are_not_models_raise(model, tmp_path):
    path = tmp_path / "m.ggmflow"
    model("full").save(path)
    content = path.read_bytes()
    for wrong in (b"", b"hello", content[:-100], content[: len(content) // 2], content + b"x", content[100:]):
        path.write_bytes(wrong)
        with pytest.raises(archive.ModelFileError, match=r"m\.ggmflow"):
            gf.GraphicalFlow.load(path)
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    with pytest.raises(archive.ModelFileError, match="damaged"):
        gf.GraphicalFlow.load(path)
    with pytest.raises(FileNotFoundError):
        gf.GraphicalFlow.load(tmp_path / "nowhere.ggmflow")


def change_header(**changes):
    return lambda header, arrays: header.update(changes)


def change_array(name, change):
    return lambda header, arrays: arrays.update({name: change(arrays[name])})


@pytest.mark.parametrize(
    "change",
    [
        change_header(kind="checkpoint"),
        change_header(ranges={"lam": [0.5, 8.0], "q": [0.25, 1.25]}),
        change_header(ranges={"lam": [0.5, 8.0], "q": [1.25, 0.25], "temperature": [0.01, 1.0]}),
        change_header(ranges={"lam": [0.5, 1e300], "q": [0.25, 1.25], "temperature": [0.01, 1.0]}),
        change_header(ranges={"lam": [-1.0, 8.0], "q": [0.25, 1.25], "temperature": [0.01, 1.0]}),
        change_header(query=[0, 9]),
        change_header(query=[0, 1]),  # arrays are those of the whole matrix
        change_header(parameters={"lam": 1.0, "colour": "red"}),
        change_header(parameters=[]),
        change_header(snapshots=[1.0]),
        change_header(snapshots=7),
        change_header(chosen=[1.0]),
        change_header(chosen=[1.0, "q", []]),
        change_header(chosen=[1.0, 1.0, "the upper end of q"]),
        change_header(chosen=[1.0, 1.0, ["somewhere"]]),
        change_header(scatter={}),
        lambda header, arrays: header.pop("status"),
        change_header(status="done"),
        change_header(status=None),
        lambda header, arrays: arrays.pop("flow0/0"),
        lambda header, arrays: arrays.pop("history"),
        change_array("history", lambda array: array[:0]),
        change_array("history", lambda array: array[:, :2]),
        change_array("history", lambda array: array * np.nan),
        change_array("flow0/0", lambda array: array[..., None]),
        change_array("flow0/1", lambda array: array.astype(np.float64)),
        change_array("scatter/matrix", lambda array: array[:3, :3]),
    ],
)
def test_files_with_invalid_contents_raise(model, tmp_path, change):
    """The checksums are right, but `save` would not write this: nothing is built from it."""
    path = tmp_path / "m.ggmflow"
    model("full").save(path)
    header, arrays = archive.read(path)
    change(header, arrays)
    archive.write(path, header, arrays)
    with pytest.raises(archive.ModelFileError, match=r"m\.ggmflow is not a ggmflow model, or was changed"):
        gf.GraphicalFlow.load(path)


def test_a_changed_parameter_does_not_change_a_fitted_model(model, tmp_path):
    fitted = pickle.loads(pickle.dumps(model("full"))).set_params(architecture="paper")
    before = model("full").posterior(2.0, 0.5).sample(5, random_state=1)
    np.testing.assert_array_equal(fitted.posterior(2.0, 0.5).sample(5, random_state=1), before)
    fitted.save(tmp_path / "m.ggmflow")
    loaded = gf.GraphicalFlow.load(tmp_path / "m.ggmflow")
    np.testing.assert_array_equal(loaded.posterior(2.0, 0.5).sample(5, random_state=1), before)


@pytest.mark.parametrize("written", [[["q", "high"]], ["the upper end of q"]], ids=["pairs", "sentences of 0.1.0"])
def test_the_choice_is_loaded_with_its_boundaries(untrained, tmp_path, written):
    path = tmp_path / "m.ggmflow"
    quick(lam=2.0).fit(TABLE).save(path)
    header, arrays = archive.read(path)
    archive.write(path, header | {"chosen": [2.0, 1.25, written]}, arrays)
    loaded = gf.GraphicalFlow.load(path)
    assert loaded.choice_ == Choice(2.0, 1.25, (Boundary("q", "high"),))
    loaded.save(path)
    assert archive.read(path)[0]["chosen"] == [2.0, 1.25, [["q", "high"]]]
