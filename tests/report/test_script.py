"""Data of the script of a page."""

import json

import numpy as np

from ggmflow.report.content import RULES
from ggmflow.report.page import render
from ggmflow.report.script import script_data, to_json
from tests.report.conftest import FIVE, GRID, NASTY, data_of


def test_script_data_have_the_values_with_four_digits(small):
    model, content = small
    data = data_of(render(model, content, "table.csv"))
    assert data["names"] == FIVE and data["lam"] == GRID["lam"] and data["q"] == GRID["q"]
    np.testing.assert_allclose(data["fields"]["association"], content.field("association"), rtol=5e-4)
    bits = np.array(data["fields"]["edge"])
    for k in range(len(RULES)):
        np.testing.assert_array_equal(bits >> k & 1, [point.edges[k] for point in content.points])
    assert data == json.loads(json.dumps(script_data(content)))


def test_json_cannot_end_its_element():
    for text in [*NASTY, "\ud800", "]]>", "--!>"]:
        written = to_json({"name": text})
        assert json.loads(written) == {"name": text}
        assert written.isascii() and not set(written) & set("<>&")
