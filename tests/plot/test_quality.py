"""Training and weights: curves and cells show the numbers of the model."""

import numpy as np
import pandas as pd
import pytest

from ggmflow import plot
from tests.plot.conftest import legend_texts, texts
from tests.support.models import pushed


def test_training_curve(ax):
    elbo = np.r_[-1e6, -50 + 40 * (1 - 0.8 ** np.arange(20))]
    table = pd.DataFrame({"step": 25 * np.arange(1, 22), "elbo": elbo, "ess": np.linspace(0, 0.8, 21), "skipped": 3})
    assert plot.training_curve(table, ax=ax) is ax
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), elbo)
    other = next(each for each in ax.figure.axes if each is not ax)
    np.testing.assert_array_equal(other.lines[0].get_ydata(), table["ess"])
    assert ax.get_ylim()[0] > -60  # the first step would flatten all others
    assert legend_texts(ax) == ["ELBO", "relative ESS"] and "3 of 525 steps were skipped" in ax.get_title()


def test_training_curve_of_a_flow_that_was_not_trained(ax):
    table = pd.DataFrame({"step": [0], "elbo": [-50.0], "ess": [0.4], "skipped": [0]})
    plot.training_curve(table, ax=ax)
    ax.figure.canvas.draw()
    assert ax.get_title() == "not trained" and texts(ax.get_xticklabels()) == ["0"]
    assert all(line.get_marker() != "" for each in ax.figure.axes for line in each.lines)  # a line would be invisible


def test_training_curve_of_a_model(fitted, ax):
    plot.training_curve(fitted, ax=ax)
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), fitted.history_[["step", "elbo"]])


def test_fit_quality_shows_the_diagnostics_of_each_condition(fitted, ax):
    lam, q = [1.0, 4.0], [0.5, 1.0, 1.2]
    assert plot.fit_quality(fitted, lam, q, ax=ax) is ax
    for (i, j), ess in np.ndenumerate(ax.images[0].get_array()):
        numbers = fitted.posterior(lam[j], q[i], num_draws=1000).diagnostics()
        assert ess == pytest.approx(numbers["ess"])
        assert f"{numbers['khat']:.2f}" == ax.texts[2 * i + j].get_text()
    assert texts(ax.get_xticklabels()) == ["1", "4"] and texts(ax.get_yticklabels()) == ["0.5", "1", "1.2"]
    assert not ax.lines and "everywhere" in ax.get_title().replace("\n", " ")


def test_conditions_with_unusable_weights_are_crossed_out(fitted, ax, monkeypatch):
    source = type(fitted)._source
    monkeypatch.setattr(type(fitted), "_source", lambda self, *condition: pushed(source(self, *condition)))
    plot.fit_quality(fitted, 2.0, [0.5, 1.0], ax=ax)
    khat = [fitted.posterior(2.0, q, num_draws=1000).diagnostics()["khat"] for q in (0.5, 1.0)]
    bad = sum(not each < 2 / 3 for each in khat)
    assert bad and len(ax.lines) == 2 * bad and f"at {bad} of 2" in ax.get_title().replace("\n", " ")


def test_weight_tail(fitted, post, ax):
    own = fitted.posterior(2.0, 0.5, num_draws=500)
    assert plot.weight_tail(own, ax=ax) is ax
    weights = ax.lines[0].get_ydata()
    assert np.all(np.diff(weights) <= 0) and weights.mean() == pytest.approx(1)
    assert 1 / np.mean(weights**2) == pytest.approx(own.diagnostics()["ess"])
    with pytest.raises(ValueError, match="exact"):
        plot.weight_tail(post, ax=ax)
