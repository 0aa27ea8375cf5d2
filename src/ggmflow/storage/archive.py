"""The format of model files: a ZIP of `header.json` and one `.npy` per array, read without executing anything.

    header.json   {"magic": "ggmflow", "format": 1, "versions": {...}, "header": {...},
                   "arrays": {name: {"dtype": ..., "shape": [...], "sha256": ...}, ...}}
    name.npy      one per array, in the order of "arrays"; sha256 is that of the member

Members are stored uncompressed and without a date, so that equal content has equal bytes and no member can be larger
than the file. `numpy.load` and any ZIP program can open such a file too.
"""

import hashlib
import io
import json
import math
import os
import platform
import stat
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from ggmflow import __version__
from ggmflow.storage.json_values import exact
from ggmflow.storage.replace import replacing

FORMAT = 1

_HEADER = "header.json"
_DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in ("float32", "float64", "int32", "int64", "uint32", "bool", "uint8")
}
# Limits for reading and for writing, so that every file that was written can be read.
_MAX_ARRAYS = 4096
_MAX_NAME_BYTES = 200
_MAX_HEADER_BYTES = 4 * 2**20
# zipfile reads the directory at once, with the length that the file claims; 4096 members need 1.2 MB.
_MAX_READ = 2 * 2**20
_CHUNK = 2**20
# Exceptions of zipfile and json for damaged files; RecursionError is a RuntimeError.
_DAMAGE = (
    zipfile.BadZipFile,
    EOFError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
    struct.error,
)


class ModelFileError(ValueError):
    """A file is not a model, is damaged, or has a newer format; the message names the file and the reason."""


def write(path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a header and arrays to one file, as a whole or not at all.

    The file appears under its name only when it is complete; after an error, an existing file is unchanged. The same
    arguments in the same order give the same bytes with the same versions of ggmflow, JAX, NumPy and Python.

    Parameters
    ----------
    path : path-like
        Its directory must exist. Of a symbolic link, the file that it points to is replaced.
    header : dict
        None, booleans, integers, finite floats, strings, and lists and dicts (with string keys) of them, at most
        4 MiB as JSON. NumPy's integers, floats and booleans become Python's, tuples become lists. NaN and infinity
        belong in an array.
    arrays : dict of str to ndarray
        float32, float64, int32, int64, uint32, bool or uint8, of any shape; at most 4096. A name is printable text of
        at most 200 bytes that is safe as a path within a directory: no "..", backslash, colon or leading "/".

    Raises
    ------
    TypeError, ValueError
        If the header or an array cannot be stored; the message names it.
    OSError
        If the file cannot be written.
    """
    if len(arrays) > _MAX_ARRAYS:
        raise ValueError(f"{len(arrays)} arrays are too many for one file: at most {_MAX_ARRAYS}")
    members, described = {}, {}
    for name, value in arrays.items():
        _check_name(name)
        array = np.asarray(value)
        if array.dtype.name not in _DTYPES:
            raise TypeError(f"array {name!r} has dtype {array.dtype}, not one of {', '.join(_DTYPES)}: convert it")
        array = array.astype(_DTYPES[array.dtype.name], order="C", copy=False)
        prefix, content = _npy_prefix(array.dtype, array.shape), array.reshape(-1).view(np.uint8).data
        digest = hashlib.sha256(prefix)
        digest.update(content)
        members[f"{name}.npy"] = prefix, content
        described[name] = {"dtype": array.dtype.name, "shape": list(array.shape), "sha256": digest.hexdigest()}
    record = {
        "magic": "ggmflow",
        "format": FORMAT,
        "versions": versions(),
        "header": exact(dict(header), "header"),
        "arrays": described,
    }
    text = json.dumps(record, allow_nan=False).encode("ascii")
    if len(text) > _MAX_HEADER_BYTES:
        raise ValueError(f"the header takes {len(text)} bytes, more than {_MAX_HEADER_BYTES}: put long lists in arrays")
    _write_members(os.fspath(path), {_HEADER: (text,), **members})


def read(path: str | os.PathLike[str], *, max_bytes: int = 4 * 2**30) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a file that `write` wrote; it need not be trusted.

    Nothing in the file is executed or unpickled, and memory is bounded by its actual size, not by the sizes it claims.

    Parameters
    ----------
    path : path-like
    max_bytes : int
        Raise if the file is larger.

    Returns
    -------
    header : dict
    arrays : dict of str to ndarray
        In the order in which they were written, writeable, bit for bit as they were.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ModelFileError
        If the file is not a model, is damaged, is too large, or comes from a newer version.
    """
    path = os.fspath(path)
    try:
        # Before opening: opening a named pipe would wait for a writer.
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            raise ModelFileError("is a directory" if stat.S_ISDIR(mode) else "is not a regular file")
        with _Bounded(io.FileIO(path)) as file:
            size = _check_ends(file, max_bytes)
            return _read_archive(file, size)
    except ModelFileError as error:
        raise ModelFileError(f"{path!r} {error}") from None


class _Bounded(io.BufferedReader):
    """A file of which only a limited number of bytes can be read at once."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            size = os.fstat(self.fileno()).st_size - self.tell()
        if size > _MAX_READ:
            raise ModelFileError(f"is damaged: its directory claims {size} bytes")
        return super().read(size)


def _check_ends(file: _Bounded, max_bytes: int) -> int:
    """Check size, first bytes and last bytes of the file; return its size."""
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise ModelFileError("is empty")
    if size > max_bytes:
        raise ModelFileError(f"holds {size} bytes, more than max_bytes={max_bytes}")
    first = file.read(4)
    file.seek(max(size - 22, 0))
    last = file.read()
    if first != b"PK\x03\x04":
        raise ModelFileError("is not a ggmflow model")
    # zipfile would search for the end of the archive, and thus accept appended bytes.
    if not (last.startswith(b"PK\x05\x06") and last.endswith(b"\0\0") and len(last) == 22):
        raise ModelFileError("is damaged or truncated: a ZIP archive begins, but does not end here")
    return size


def _read_archive(file: _Bounded, size: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        with zipfile.ZipFile(file) as archive:
            return _read_members(archive, size)
    except ModelFileError:
        raise
    except _DAMAGE as error:
        reason = " ".join(str(error).split())
        raise ModelFileError(f"is damaged or truncated: {reason}") from None


def _read_members(archive: zipfile.ZipFile, size: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    members = archive.infolist()
    names = [member.filename for member in members]
    if _HEADER not in names:
        raise ModelFileError(f"is a ZIP archive, but not a ggmflow model: it has no {_HEADER}")
    if len(members) > _MAX_ARRAYS + 1 or len(set(names)) < len(names):
        raise ModelFileError(f"is damaged: it has more than {_MAX_ARRAYS + 1} members, or two of the same name")
    if names[0] != _HEADER or members[0].header_offset != 0:
        raise ModelFileError(f"is not a ggmflow model: {_HEADER} is not its first member")
    record = _read_record(archive, members[0], size)
    _check_sizes(members, size)
    described = _entry(record, "arrays", dict)
    if names[1:] != [f"{name}.npy" for name in described]:
        raise ModelFileError("is damaged: its members are not those that its header lists")
    header = exact(_entry(record, "header", dict), "header")
    arrays = {
        name: _read_array(archive, member, name, described[name])
        for name, member in zip(described, members[1:], strict=True)
    }
    return header, arrays


def _read_record(archive: zipfile.ZipFile, member: zipfile.ZipInfo, size: int) -> dict[str, Any]:
    """The content of header.json; raise if ggmflow did not write it, or if its format is not known here."""
    _check_sizes([member], size)
    if member.file_size > _MAX_HEADER_BYTES:
        raise ModelFileError(f"is damaged: its header claims {member.file_size} bytes")
    content = archive.read(member)
    try:
        record = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or record.get("magic") != "ggmflow":
        raise ModelFileError(f"is a ZIP archive, but not a ggmflow model: its {_HEADER} is not ours")
    version = _entry(record, "format", int)
    if version > FORMAT:
        writer = str(_entry(_entry(record, "versions", dict), "ggmflow", str))[:20]
        raise ModelFileError(
            f"has format {version}, written by ggmflow {writer!r}; "
            f"ggmflow {versions()['ggmflow']} reads formats up to {FORMAT}: update ggmflow"
        )
    if version < 1:
        raise ModelFileError(f"is damaged: there is no format {version}")
    return record


def _check_sizes(members: list[zipfile.ZipInfo], size: int) -> None:
    for member in members:
        # Of the flags only "the name is UTF-8" may be set, neither "encrypted" nor "patched".
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & ~0x800:
            raise ModelFileError(f"is not a model written by ggmflow: member {member.filename!r} is not simply stored")
        if member.file_size != member.compress_size:
            raise ModelFileError(f"is damaged: member {member.filename!r} has two different sizes")
    # Each member may fit into the file although several claim the same bytes.
    if sum(member.file_size for member in members) > size:
        raise ModelFileError("is damaged or truncated: its members claim more bytes than it has")


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, described: Any) -> np.ndarray:
    _check_name(name)
    dtype = _DTYPES.get(_entry(described, "dtype", str))
    shape = _entry(described, "shape", list)
    if dtype is None:
        raise ModelFileError(f"is damaged: array {name!r} has dtype {described['dtype'][:20]!r}")
    if len(shape) > 64 or not all(type(length) is int and length >= 0 for length in shape):
        raise ModelFileError(f"is damaged: array {name!r} has no valid shape")
    prefix = _npy_prefix(dtype, tuple(shape))
    if len(prefix) + math.prod(shape) * dtype.itemsize != member.file_size:
        raise ModelFileError(f"is damaged: array {name!r} is not as long as its dtype and shape say")
    digest = hashlib.sha256(prefix)
    with archive.open(member) as stream:
        # The prefix is compared, not parsed: for a given dtype and shape there is only one.
        intact = stream.read(len(prefix)) == prefix
        array = np.empty(shape, dtype)
        content = array.reshape(-1).view(np.uint8).data
        for start in range(0, len(content), _CHUNK):
            end = min(start + _CHUNK, len(content))
            content[start:end] = stream.read(end - start)
            digest.update(content[start:end])
    if not intact or digest.hexdigest() != _entry(described, "sha256", str):
        raise ModelFileError(f"is damaged: array {name!r} is not what was written")
    # A byte other than 0 and 1 would be neither True nor False.
    if dtype == np.bool_ and np.any(array.view(np.uint8) > 1):
        raise ModelFileError(f"is damaged: array {name!r} is not boolean")
    return array.astype(dtype.newbyteorder("="), copy=False)


def _write_members(path: str, members: Mapping[str, tuple[bytes | memoryview, ...]]) -> None:
    with replacing(path) as temporary, open(temporary, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        for name, parts in members.items():
            info = zipfile.ZipInfo(name)  # dated 1980-01-01
            info.create_system = 3
            info.file_size = sum(len(part) for part in parts)  # needed in advance for more than 2 GiB
            with archive.open(info, "w") as stream:
                for part in parts:
                    stream.write(part)


def _npy_prefix(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """The bytes before the data in a .npy file of version 1.0; the padding that NumPy writes depends on its version."""
    text = f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("ascii")


def versions() -> dict[str, str]:
    """Versions of ggmflow, JAX, NumPy and Python, which together determine a result."""
    import jax  # only here: it takes seconds to load

    found = {"ggmflow": __version__, "jax": jax.__version__, "numpy": np.__version__}
    return found | {"python": platform.python_version()}


def _check_name(name: object) -> None:
    """Raise if a name is not safe as a path within a directory: users may unzip the file."""
    if not isinstance(name, str):
        raise TypeError(f"array names are strings, not {name!r}")
    parts = name.split("/")
    if not name.isprintable() or set(name) & set("\\:") or any(part in ("", ".", "..") for part in parts):
        raise ValueError(
            f"an array cannot be named {name!r}: use printable names without '..', '\\', ':' or empty parts"
        )
    if len(name.encode()) > _MAX_NAME_BYTES:
        raise ValueError(f"the array name {name[:20]!r}… is longer than {_MAX_NAME_BYTES} bytes")


def _entry(record: Any, key: str, kind: type) -> Any:
    """One entry of an untrusted header, of exactly this type: a boolean is not an integer."""
    value = record.get(key) if isinstance(record, dict) else None
    if type(value) is not kind:
        raise ModelFileError(f"is damaged: its header has no valid {key!r}")
    return value
