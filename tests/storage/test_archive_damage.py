"""Damaged or malicious model files raise an error and execute nothing."""

import hashlib
import io as stdlib_io
import os
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest

from ggmflow.storage import archive
from ggmflow.storage.archive import ModelFileError
from tests.support.archives import ARRAYS, HEADER, assert_same, rewrite

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
