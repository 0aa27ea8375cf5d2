"""Model files: reading returns exactly what was written, and a failed write changes nothing."""

import json
import os
import zipfile

import jax.numpy as jnp
import numpy as np
import pytest

from ggmflow.storage import archive
from tests.support.archives import ARRAYS, HEADER, assert_same

DTYPES = ["float32", "float64", "int32", "int64", "uint32", "bool", "uint8"]
SHAPES = [(), (0,), (3, 0, 2), (1,), (7,), (4, 3), (2, 3, 5)]


# ---------------------------------------------------------------- reading what was written


def test_every_dtype_and_shape(path, rng):
    arrays = {
        f"{dtype}{shape}": rng.integers(0, 2 if dtype == "bool" else 200, size=shape).astype(dtype)
        for dtype in DTYPES
        for shape in SHAPES
    }
    archive.write(path, HEADER, arrays)
    assert_same(archive.read(path), (HEADER, arrays))


def test_no_header_and_no_arrays(path):
    archive.write(path, {}, {})
    assert archive.read(path) == ({}, {})


def test_nan_infinity_and_signed_zero_survive_in_arrays(path):
    payload = np.array([0x7FF8000000000123], dtype=np.uint64).view(np.float64)  # a NaN with a payload
    arrays = {"a": np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, payload[0]])}
    archive.write(path, {}, arrays)
    assert_same(archive.read(path), ({}, arrays))


def test_memory_layout_does_not_change_the_bytes(path):
    a = np.arange(12.0).reshape(4, 3)
    archive.write(path, {}, {"a": a})
    expected = path.read_bytes()
    for layout in (
        np.asfortranarray(a),
        np.repeat(a, 2, axis=1)[:, ::2],
        a.astype(">f8"),
        jnp.asarray(a).__array__(float),
    ):
        archive.write(path, {}, {"a": layout})
        assert path.read_bytes() == expected
        assert_same(archive.read(path), ({}, {"a": a}))


def test_results_belong_to_the_caller(path):
    archive.write(path, {}, ARRAYS)
    for array in archive.read(path)[1].values():
        assert array.flags.writeable and array.flags.aligned and array.dtype.isnative


def test_arrays_longer_than_a_chunk(path, rng):
    arrays = {"a": rng.normal(size=300_001), "b": rng.integers(0, 9, size=2 * 2**20).astype(np.uint8)}
    archive.write(path, {}, arrays)
    assert_same(archive.read(path), ({}, arrays))


def test_numpy_scalars_in_the_header_become_python_numbers(path):
    header = {"i": np.int32(3), "f": np.float32(0.5), "g": np.float64(0.1), "b": np.bool_(True), "t": (1, np.str_("x"))}
    archive.write(path, header, {})
    assert archive.read(path)[0] == {"i": 3, "f": 0.5, "g": 0.1, "b": True, "t": [1, "x"]}
    assert type(archive.read(path)[0]["b"]) is bool


def test_floats_in_the_header_are_exact(path, rng):
    values = [*rng.normal(size=100), 0.1, 1e308, 5e-324, -0.0]
    archive.write(path, {"values": values}, {})
    assert np.array(archive.read(path)[0]["values"]).tobytes() == np.array(values).tobytes()


def test_equal_content_has_equal_bytes(tmp_path):
    for name in ("a", "b"):
        archive.write(tmp_path / name, HEADER, ARRAYS)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with zipfile.ZipFile(tmp_path / "a") as zipped:
        assert {member.date_time for member in zipped.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_other_programs_can_read_it(path):
    """The format is documented and ordinary: numpy.load and a JSON parser are enough."""
    archive.write(path, HEADER, ARRAYS)
    with np.load(path) as found:
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(found[name], array)
        record = json.loads(found["header.json"])
    assert (record["magic"], record["format"], record["header"]) == ("ggmflow", 1, HEADER)
    assert set(record["versions"]) == {"ggmflow", "jax", "numpy", "python"}


@pytest.mark.parametrize("convert", [str, lambda path: path])
def test_unicode_in_names_and_paths(tmp_path, convert):
    path = convert(tmp_path / "модель β 模型.ggmflow")
    arrays = {"λ/最初 🙂": np.arange(3), "a b'c\"": np.ones(2), "[0].weight": np.zeros(1)}
    archive.write(path, {"ключ": "значение"}, arrays)
    assert_same(archive.read(path), ({"ключ": "значение"}, arrays))


# ---------------------------------------------------------------- values that cannot be written

BAD_HEADERS = {
    "NaN": ({"a": {"b": [1.0, np.nan]}}, ValueError, r"header\['a'\]\['b'\]\[1\] is nan.*must be finite"),
    "inf": ({"a": np.float32("inf")}, ValueError, r"header\['a'\] is inf"),
    "bfloat16": ({"a": jnp.bfloat16(1.5)}, TypeError, r"header\['a'\] is of type \w+"),
    "array": ({"a": np.zeros(2)}, TypeError, "is of type ndarray.*arrays go beside it"),
    "complex": ({"a": 1j}, TypeError, "is of type complex"),
    "set": ({"a": {1}}, TypeError, "is of type set"),
    "bytes": ({"a": b"x"}, TypeError, "is of type bytes"),
    "key": ({"a": {1: 2}}, TypeError, r"header\['a'\] has the key 1: keys must be strings"),
    "long": ({"a": "x" * 5_000_000}, ValueError, "more than 4194304: put long lists in arrays"),
}


@pytest.mark.parametrize(("header", "error", "message"), BAD_HEADERS.values(), ids=BAD_HEADERS.keys())
def test_a_header_that_cannot_be_stored(path, header, error, message):
    with pytest.raises(error, match=message):
        archive.write(path, header, {})
    assert not any(path.parent.iterdir())


def test_a_header_that_contains_itself(path):
    header = {}
    header["self"] = header
    with pytest.raises(ValueError, match="nested more than 32 levels"):
        archive.write(path, header, {})


BAD_ARRAYS = {
    "object": ({"a": np.array([{}])}, TypeError, "array 'a' has dtype object, not one of float32"),
    "text": ({"a": np.array(["x"])}, TypeError, "array 'a' has dtype <U1"),
    "complex": ({"a": np.zeros(2, complex)}, TypeError, "has dtype complex128"),
    "float16": ({"a": np.zeros(2, np.float16)}, TypeError, "has dtype float16"),
    "bfloat16": ({"a": np.zeros(2, jnp.bfloat16)}, TypeError, "has dtype bfloat16"),
    "record": ({"a": np.zeros(2, [("x", float)])}, TypeError, "has dtype"),
    "number as name": ({1: np.zeros(2)}, TypeError, "array names are strings, not 1"),
    "too many": ({str(i): np.zeros(0) for i in range(4097)}, ValueError, "4097 arrays are too many"),
    "long name": ({"é" * 101: np.zeros(2)}, ValueError, "longer than 200 bytes"),
} | {
    f"name {name!r}": ({name: np.zeros(2)}, ValueError, "an array cannot be named")
    for name in ("", "/a", "a/", "../a", "a/../b", "a\\b", "C:a", "a\0b", "a\nb", ".", "\ud800")
}


@pytest.mark.parametrize(("arrays", "error", "message"), BAD_ARRAYS.values(), ids=BAD_ARRAYS.keys())
def test_arrays_that_cannot_be_stored(path, arrays, error, message):
    with pytest.raises(error, match=message):
        archive.write(path, {}, arrays)
    assert not any(path.parent.iterdir())


# ---------------------------------------------------------------- atomic replacement


@pytest.mark.parametrize("step", ["open", "write", "fsync", "replace"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("old", [True, False])
def test_a_failed_write_changes_nothing(path, monkeypatch, step, error, old):
    if old:
        archive.write(path, {"old": True}, {})

    def fail(*args, **kwargs):
        raise error("no space left on device")

    owner, name = {
        "open": (zipfile.ZipFile, "open"),
        "write": (zipfile._ZipWriteFile, "write"),
        "fsync": (os, "fsync"),
        "replace": (os, "replace"),
    }[step]
    with monkeypatch.context() as patch, pytest.raises(error, match="no space left"):
        patch.setattr(owner, name, fail)
        archive.write(path, {"new": True}, ARRAYS)
    assert list(path.parent.iterdir()) == ([path] if old else [])
    if old:
        assert archive.read(path) == ({"old": True}, {})


def test_a_link_stays_a_link(tmp_path):
    link = tmp_path / "latest"
    archive.write(tmp_path / "target", {}, {})
    link.symlink_to(tmp_path / "target")
    archive.write(link, {"new": 1}, {})
    assert link.is_symlink()
    assert archive.read(tmp_path / "target")[0] == {"new": 1}


def test_the_file_gets_ordinary_permissions(path, tmp_path):
    (tmp_path / "ordinary").write_bytes(b"")
    archive.write(path, {}, {})
    assert path.stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_paths_that_cannot_be_written(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such directory.*nowhere"):
        archive.write(tmp_path / "nowhere" / "m", {}, {})
    with pytest.raises(IsADirectoryError, match="cannot replace a directory"):
        archive.write(tmp_path, {}, {})
