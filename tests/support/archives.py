"""A header and arrays of a model file, and functions that change and read such files."""

import json
import zipfile

import numpy as np

HEADER = {
    "lam": [0.5, 2.0],
    "names": ["α", "b"],
    "query": None,
    "deep": {"on": True, "seed": 2**80, "text": 'a"\n\ud800'},
}


ARRAYS = {"matrix": np.arange(12.0).reshape(4, 3), "mask": np.array([True, False]), "weights/0": np.float32([1, 2])}


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
