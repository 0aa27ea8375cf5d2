"""The path of a model file."""

import pytest


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.ggmflow"
