"""Values for JSON: `plain` replaces what JSON cannot hold, `exact` raises; `test_archive` has its messages."""

import json

import numpy as np
import pytest

from ggmflow.storage.json_values import exact, plain

VALUE = {"a": (1, np.int32(2), [np.float64(0.1), None, True, np.bool_(False), "text"]), "b": {"c": np.float32(0.5)}}


@pytest.mark.parametrize("convert", [plain, lambda value: exact(value, "value")])
def test_numpy_and_tuples_become_values_that_json_returns_unchanged(convert):
    found = convert(VALUE)
    assert found == {"a": [1, 2, [0.1, None, True, False, "text"]], "b": {"c": 0.5}}
    assert json.loads(json.dumps(found)) == found
    assert [type(each) for each in found["a"][2]] == [float, type(None), bool, bool, str]


def test_values_that_json_does_not_have():
    assert plain({1: [np.nan, -np.inf, np.float32("inf"), 2.0]}) == {"1": [None, None, None, 2.0]}
    with pytest.raises(ValueError, match=r"value\[0\] is nan"):
        exact([np.nan], "value")
    with pytest.raises(TypeError, match="value has the key 1"):
        exact({1: 2}, "value")
