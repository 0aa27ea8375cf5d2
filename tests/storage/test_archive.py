"""Model files: reading returns exactly what was written; damaged or malicious files raise and execute nothing."""

import hashlib
import io as stdlib_io
import json
import os
import pickle
import tracemalloc
import zipfile

import jax.numpy as jnp
import numpy as np
import pytest

from ggmflow.storage import archive
from ggmflow.storage.archive import ModelFileError

HEADER = {
    "lam": [0.5, 2.0],
    "names": ["α", "b"],
    "query": None,
    "deep": {"on": True, "seed": 2**80, "text": 'a"\n\ud800'},
}
DTYPES = ["float32", "float64", "int32", "int64", "uint32", "bool", "uint8"]
SHAPES = [(), (0,), (3, 0, 2), (1,), (7,), (4, 3), (2, 3, 5)]
ARRAYS = {"matrix": np.arange(12.0).reshape(4, 3), "mask": np.array([True, False]), "weights/0": np.float32([1, 2])}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.ggmflow"


def assert_same(found, expected):
    header, arrays = found
    assert header == expected[0]
    assert list(arrays) == list(expected[1])
    for name, array in expected[1].items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        assert arrays[name].tobytes() == array.tobytes()


def rewrite(path, change=lambda record: None, *, members=(), drop=(), text=None):
    """Change header or members as an attacker could, leaving a valid ZIP archive."""
    with zipfile.ZipFile(path) as zipped:
        found = {name: zipped.read(name) for name in zipped.namelist() if name not in drop}
    if "header.json" in found:
        record = json.loads(found["header.json"])
        change(record)
        found["header.json"] = json.dumps(record).encode() if text is None else text
    with zipfile.ZipFile(path, "w") as zipped:
        for name, content in [*found.items(), *members]:
            zipped.writestr(name, content)


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


# ---------------------------------------------------------------- files that cannot be read


def refused(path, message="", **options):
    """The error of reading a file: one line, which names the file."""
    with pytest.raises(ModelFileError, match=message) as caught:
        archive.read(path, **options)
    assert repr(str(path)) in str(caught.value) and "\n" not in str(caught.value)
    return caught.value


FOREIGN = {
    "empty": (b"", "is empty"),
    "PNG": (b"\x89PNG\r\n\x1a\n" + bytes(100), "is not a ggmflow model"),
    "CSV": (b"a,b\n1,2\n", "is not a ggmflow model"),
    "pickle": (pickle.dumps({"a": 1}), "is not a ggmflow model"),
    "one byte": (b"P", "is not a ggmflow model"),
    "only the beginning": (b"PK\x03\x04", "is damaged or truncated"),
    "empty ZIP": (b"PK\x05\x06" + bytes(18), "is not a ggmflow model"),
    "only beginning and end": (b"PK\x03\x04" + b"PK\x05\x06" + bytes(18), "has no header.json"),
}


@pytest.mark.parametrize(("content", "message"), FOREIGN.values(), ids=FOREIGN.keys())
def test_foreign_files(path, content, message):
    path.write_bytes(content)
    refused(path, message)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_foreign_archives(path, compression):
    with zipfile.ZipFile(path, "w", compression) as zipped:
        zipped.writestr("readme.txt", "hello" * 100)
    refused(path, "is a ZIP archive, but not a ggmflow model: it has no header.json")
    with path.open("wb") as file:
        np.savez(file, a=np.zeros(3))
    refused(path, "not a ggmflow model")
    for text in (b"{}", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"magic": "other"}', b"1" * 5000):
        with zipfile.ZipFile(path, "w") as zipped:
            zipped.writestr("header.json", text)
        refused(path, r"its header\.json is not ours")


def test_paths_that_are_not_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.ggmflow"):
        archive.read(tmp_path / "nowhere.ggmflow")
    refused(tmp_path, "is a directory")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "is not a regular file")  # and does not wait
    with pytest.raises(NotADirectoryError):  # the system's own error, not "damaged"
        (tmp_path / "file").touch()
        archive.read(tmp_path / "file" / "m")


def test_a_limit_on_size(path):
    archive.write(path, HEADER, ARRAYS)
    size = path.stat().st_size
    assert_same(archive.read(path, max_bytes=size), (HEADER, ARRAYS))
    refused(path, f"holds {size} bytes, more than max_bytes={size - 1}", max_bytes=size - 1)


def test_newer_formats(path):
    archive.write(path, HEADER, ARRAYS)

    def renew(record):
        record |= {"format": 2, "versions": {"ggmflow": "9.1"}, "arrays": "elsewhere"}

    rewrite(path, renew)
    refused(path, r"has format 2, written by ggmflow '9\.1'; ggmflow .* reads formats up to 1: update ggmflow")


def test_truncation(path):
    archive.write(path, HEADER, ARRAYS)
    content = path.read_bytes()
    for length in {*range(0, len(content), 5), *range(len(content) - 100, len(content))}:
        path.write_bytes(content[:length])
        refused(path, "is empty|is not a ggmflow model|damaged or truncated")


def test_appended_and_prepended_bytes(path):
    archive.write(path, HEADER, ARRAYS)
    content = path.read_bytes()
    for changed in (
        content + b"\0",
        content + bytes(100),
        content + content[-22:],
        b"PK\x03\x04" + content,
        content * 2,
    ):
        path.write_bytes(changed)
        refused(path, "damaged|not a ggmflow model")


@pytest.mark.parametrize("flip", [0x01, 0x80])
def test_every_flipped_byte(path, flip):
    """Some bytes of a ZIP have no effect (times, permissions); a change of any other must raise."""
    archive.write(path, HEADER, ARRAYS)
    content = bytearray(path.read_bytes())
    harmless = 0
    for position in range(len(content)):
        content[position] ^= flip
        path.write_bytes(content)
        content[position] ^= flip
        try:
            found = archive.read(path)
        except ModelFileError:
            continue
        harmless += 1
        assert_same(found, (HEADER, ARRAYS))
    assert harmless < 0.25 * len(content)


def test_random_damage(path, rng):
    """Several changed bytes or a lost block give a ModelFileError, or the same content."""
    archive.write(path, HEADER, ARRAYS)
    content = np.frombuffer(path.read_bytes(), np.uint8)
    for trial in range(600):
        changed = content.copy()
        start, stop = np.sort(rng.integers(0, len(content), size=2))
        if trial % 3 == 0:
            changed[rng.integers(0, len(content), size=5)] = rng.integers(0, 256, size=5)
        elif trial % 3 == 1:
            changed[-100:][rng.integers(0, 100, size=3)] = rng.integers(0, 256, size=3)
        else:
            changed = np.delete(changed, slice(start, stop))
        path.write_bytes(changed.tobytes())
        try:
            found = archive.read(path)
        except ModelFileError:
            continue
        assert_same(found, (HEADER, ARRAYS))


# ---------------------------------------------------------------- attacks


class Payload:
    """Unpickling this creates a directory."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_is_not_executed(path, tmp_path):
    trap = tmp_path / "trap"
    npy = stdlib_io.BytesIO()
    np.save(npy, np.array([Payload(trap)], dtype=object), allow_pickle=True)
    content = npy.getvalue()
    archive.write(path, {}, {"a": np.zeros(3)})
    rewrite(path, members=[("a.npy", content)], drop=["a.npy"])
    refused(path, "array 'a' is not as long as its dtype and shape say")

    def describe(dtype, length):
        def change(record):
            record["arrays"]["a"] |= {"dtype": dtype, "shape": [length]}

        return change

    rewrite(path, describe("object", 1))
    refused(path, "array 'a' has dtype 'object'")
    rewrite(path, describe("|O", 1))
    refused(path, r"array 'a' has dtype '\|O'")
    rewrite(path, describe("uint8", len(content) - 128))
    refused(path, "array 'a' is not what was written")
    assert not trap.exists()
    pickle.loads(pickle.dumps(Payload(trap)))
    assert trap.exists()  # the trap works


def peak_of_refusing(path, message):
    """Peak of the bytes allocated while reading raises."""
    refused(path, message)  # imports and caches
    tracemalloc.start()
    try:
        refused(path, message)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_zip_bombs(path):
    """Reading small files that claim to be large raises before anything of that size is allocated."""
    big = 64 * 2**20

    def claim(record):
        record["arrays"] = {"a": {"dtype": "uint8", "shape": [big - 128], "sha256": ""}}

    # Compressed zeros.
    archive.write(path, {}, {"a": np.zeros(3)})
    rewrite(path, claim, drop=["a.npy"])
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as zipped, zipped.open("a.npy", "w") as stream:
        for _ in range(big // 2**20):
            stream.write(bytes(2**20))
    assert path.stat().st_size < 2**20
    assert peak_of_refusing(path, "member 'a.npy' is not simply stored") < 2**20

    # A compressed header.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("header.json", b" " * 20_000_000)
    assert peak_of_refusing(path, "member 'header.json' is not simply stored") < 2**20

    # A shape larger than the member.
    archive.write(path, {}, {"a": np.zeros(3)})
    rewrite(path, claim)
    assert peak_of_refusing(path, "array 'a' is not as long") < 2**20

    # A directory whose sizes were changed to fit that shape.
    content = path.read_bytes()
    real = (128 + 24).to_bytes(4, "little") * 2
    path.write_bytes(content.replace(real, big.to_bytes(4, "little") * 2))
    assert peak_of_refusing(path, "its members claim more bytes than it has") < 2**20

    # A header longer than allowed.
    path.unlink()
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr("header.json", b" " * 5_000_000)
    assert peak_of_refusing(path, "its header claims 5000000 bytes") < 2**20


def test_members_that_share_their_bytes(path):
    """Each of them fits into the file, but not all together."""
    archive.write(path, {}, {"a": np.zeros(1000), "b": np.ones(1000)})
    with zipfile.ZipFile(path) as zipped:
        first = zipped.getinfo("a.npy")
        real, end = first.file_size.to_bytes(4, "little"), zipped.start_dir
        claimed = (end - first.header_offset).to_bytes(4, "little")
    content = path.read_bytes()
    path.write_bytes(content[:end] + content[end:].replace(real * 2, claimed * 2, 1))
    refused(path, "damaged")


def test_a_directory_of_millions(path):
    """zipfile would create an object for each entry at once."""
    entry = b"PK\x01\x02" + bytes(42)
    directory = entry * 60_000
    end = b"PK\x05\x06" + bytes(4) + b"\xff\xff\xff\xff" + len(directory).to_bytes(4, "little") + bytes(4) + bytes(2)
    path.write_bytes(b"PK\x03\x04" + directory + end)
    assert peak_of_refusing(path, "its directory claims 2760000 bytes") < 2**20


def test_too_many_members(path):
    archive.write(path, {}, {})
    rewrite(path, members=[(f"{i}.npy", b"") for i in range(5000)])
    refused(path, "more than 4097 members")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_members(path):
    archive.write(path, {}, {"a": np.zeros(3)})
    with zipfile.ZipFile(path) as zipped:
        content = zipped.read("a.npy")
    rewrite(path, members=[("a.npy", content)])
    refused(path, "two of the same name")
    archive.write(path, {}, {})
    rewrite(path, members=[("header.json", b"{}")])
    refused(path, "two of the same name")


def test_members_and_header_must_agree(path):
    archive.write(path, {}, ARRAYS)
    rewrite(path, members=[("extra.npy", b"")])
    refused(path, "members are not those that its header lists")
    archive.write(path, {}, ARRAYS)
    rewrite(path, drop=["mask.npy"])
    refused(path, "members are not those that its header lists")
    archive.write(path, {}, ARRAYS)
    with zipfile.ZipFile(path) as zipped:
        found = {name: zipped.read(name) for name in zipped.namelist()}
    with zipfile.ZipFile(path, "w") as zipped:
        for name in reversed(found):
            zipped.writestr(name, found[name])
    refused(path, "header.json is not its first member")


def test_two_arrays_cannot_be_exchanged(path):
    """Each member is valid as a ZIP member: only the checksums of the header differ."""
    archive.write(path, {}, {"a": np.zeros(3), "b": np.ones(3)})
    with zipfile.ZipFile(path) as zipped:
        a, b = zipped.read("a.npy"), zipped.read("b.npy")
    rewrite(path, members=[("a.npy", b), ("b.npy", a)], drop=["a.npy", "b.npy"])
    refused(path, "array 'a' is not what was written")


ENTRY = {"dtype": "float64", "shape": [3], "sha256": "0" * 64}
BAD_RECORDS = {
    "no arrays": ({"arrays": None}, "no valid 'arrays'"),
    "arrays, a list": ({"arrays": [1]}, "no valid 'arrays'"),
    "no header": ({"header": [1]}, "no valid 'header'"),
    "no format": ({"format": None}, "no valid 'format'"),
    "format, text": ({"format": "1"}, "no valid 'format'"),
    "format, boolean": ({"format": True}, "no valid 'format'"),
    "format zero": ({"format": 0}, "there is no format 0"),
    "newer, without versions": ({"format": 7, "versions": 3}, "no valid 'versions'"),
    "entry": ({"arrays": {"a": 3}}, "no valid 'dtype'"),
    "dtype": ({"arrays": {"a": ENTRY | {"dtype": ["float64"]}}}, "no valid 'dtype'"),
    "shape, text": ({"arrays": {"a": ENTRY | {"shape": "3"}}}, "no valid 'shape'"),
    "shape, float": ({"arrays": {"a": ENTRY | {"shape": [3.0]}}}, "'a' has no valid shape"),
    "shape, boolean": ({"arrays": {"a": ENTRY | {"shape": [3, True]}}}, "'a' has no valid shape"),
    "shape, negative": ({"arrays": {"a": ENTRY | {"shape": [-3, -1]}}}, "'a' has no valid shape"),
    "shape, long": ({"arrays": {"a": ENTRY | {"shape": [10**9] * 100_000}}}, "'a' has no valid shape"),
    "shape, huge": ({"arrays": {"a": ENTRY | {"shape": [2**64]}}}, "'a' is not as long"),
    "shape, other": ({"arrays": {"a": ENTRY | {"shape": [3, 1]}}}, "'a' is not what was written"),
    "dtype, other": ({"arrays": {"a": ENTRY | {"dtype": "int64"}}}, "'a' is not what was written"),
    "checksum": ({"arrays": {"a": ENTRY}}, "'a' is not what was written"),
    "no checksum": ({"arrays": {"a": ENTRY | {"sha256": None}}}, "no valid 'sha256'"),
    "infinite": ({"header": {"a": float("inf")}}, r"header\['a'\] is inf"),
}


@pytest.mark.parametrize(("change", "message"), BAD_RECORDS.values(), ids=BAD_RECORDS.keys())
def test_invalid_headers(path, change, message):
    archive.write(path, {}, {"a": np.arange(3.0)})
    rewrite(path, lambda record: record.update(change))
    refused(path, message)


def test_an_impossible_empty_shape(path):
    archive.write(path, {}, {"a": np.zeros((0, 9))})
    # No bytes, but more columns than NumPy can count; the prefix has the same length.
    rewrite(path, lambda record: record["arrays"]["a"].update(shape=[0, 2**70]))
    refused(path, "damaged")


@pytest.mark.parametrize("name", ["../a", "/a", "a\\b", ""])
def test_names_outside_a_directory(path, name):
    archive.write(path, {}, {"a": np.zeros(3)})
    with zipfile.ZipFile(path) as zipped:
        content = zipped.read("a.npy")

    def rename(record):
        record["arrays"] = {name: record["arrays"]["a"]}

    rewrite(path, rename, members=[(f"{name}.npy", content)], drop=["a.npy"])
    refused(path, "an array cannot be named")


def test_booleans_are_true_or_false(path):
    """NumPy would accept the byte 2 as a boolean."""
    archive.write(path, {}, {"a": np.array([0, 1, 2], np.uint8), "b": np.array([0, 1, 1], bool)})
    two = archive._npy_prefix(np.dtype(bool), (3,)) + bytes([0, 1, 2])

    def change(record):
        record["arrays"] = {"b": record["arrays"]["b"] | {"sha256": hashlib.sha256(two).hexdigest()}}

    rewrite(path, change, members=[("b.npy", two)], drop=["a.npy", "b.npy"])
    refused(path, "array 'b' is not boolean")


def test_encrypted_members(path):
    archive.write(path, {}, {"a": np.zeros(3)})
    with zipfile.ZipFile(path) as zipped:
        start = zipped.start_dir
    content = bytearray(path.read_bytes())
    content[start + 8] |= 1
    path.write_bytes(content)
    refused(path, "is not simply stored")
