"""The evidence surface agrees with `model.select` and `model.evidence`."""

import numpy as np
import pytest

from ggmflow.views.surface import evidence_surface
from tests.support.models import TABLE, quick


@pytest.mark.slow
def test_evidence_surface_has_the_optimum_of_select(model):
    fitted = model("full")
    surface = evidence_surface(fitted)
    assert surface.log_evidence.shape == (9, 5)
    assert surface.best == fitted.select()
    k, m = np.unravel_index(surface.log_evidence.argmax(), (9, 5))
    table = fitted.evidence(surface.lam[k], surface.q[m], exact=False)
    assert table["log_evidence"][0] == pytest.approx(surface.log_evidence[k, m], abs=6 * table["se"][0] + 0.2)


def test_a_model_without_temperature_one_has_no_evidence_surface(untrained):
    assert evidence_surface(quick(temperature=(0.1, 0.5)).fit(TABLE)) is None
