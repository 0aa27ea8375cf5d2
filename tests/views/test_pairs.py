"""The numbers of a view equal those of the Python API."""

import numpy as np
import pytest

from ggmflow.posterior.posterior import PoorFitWarning
from ggmflow.views.pairs import density, middle, view
from tests.support.models import TABLE, quick

pytestmark = pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")


@pytest.mark.parametrize("kind", ["full", "blanket"])
@pytest.mark.parametrize("rule", ["f1", "interval", "fdr"])
def test_numbers_equal_those_of_the_posterior(model, kind, rule):
    fitted = model(kind)
    seen = view(fitted, 2.0, 0.5, rule=rule, level=0.8, num_draws=300)
    post = fitted.posterior(2.0, 0.5, num_draws=300)
    table = post.summary(level=0.8, rule=rule)
    table = table[table["row"] != table["column"]].reset_index(drop=True)
    for label in ("row", "column", "association", "p_positive", "edge_probability", "edge"):
        assert (seen.pairs[label] == table[label]).all(), label
    assert seen.rule == table.attrs["rule"] and seen.message == table.attrs["message"]
    assert seen.n_edges == table["edge"].sum() and seen.density == table["edge"].mean()
    assert (np.array(TABLE.columns)[seen.pairs["i"]] == seen.pairs["row"]).all()


def test_parameters_of_the_rule_are_used(model):
    fitted = model("full")
    seen = view(fitted, 2.0, 0.5, rule="fdr", parameters={"rate": 0.4}, num_draws=300)
    expected = fitted.posterior(2.0, 0.5, num_draws=300).select_edges("fdr", rate=0.4)
    assert (seen.selection.key, seen.selection.parameters) == ("fdr", {"rate": 0.4})
    assert seen.level == 0.9 and seen.rule == expected.rule and seen.n_edges == expected.n_edges


def test_association_interval_holds_the_quantiles_of_the_draws(model):
    """Unweighted draws of a full matrix: partial correlations are computed from each matrix by itself."""
    post = model("full").posterior(2.0, 0.5, num_draws=400)
    rows = post.draws.rows(slice(None))
    scale = np.sqrt(np.einsum("kii->ki", rows))
    expected = np.quantile(-rows / scale[:, :, None] / scale[:, None, :], [0.1, 0.9], axis=0, method="hazen")
    lower, upper = post.association_interval(0.8, weighted=False)
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose([lower[off], upper[off]], expected[:, off], atol=1e-6)
    np.testing.assert_array_equal(np.diag(lower), 1)


@pytest.mark.parametrize("kind", ["full", "blanket"])
def test_density_of_a_pair_has_the_mean_and_interval_of_the_view(model, kind):
    seen = view(model(kind), 2.0, 0.5, num_draws=500)
    for k, row in seen.pairs.iterrows():
        found = density(seen, k)
        assert found.weights.sum() == pytest.approx(1) and found.values.shape == (500,)
        assert found.values @ found.weights == pytest.approx(row["association"])
        inside = found.weights[(found.values >= found.lower) & (found.values <= found.upper)].sum()
        assert inside == pytest.approx(0.9, abs=0.02)


def test_a_cold_model_is_viewed_at_its_highest_temperature(untrained):
    fitted = quick(temperature=(0.1, 0.5)).fit(TABLE)
    assert middle(fitted)[2] == 0.5 and view(fitted, num_draws=50).temperature == 0.5


def test_a_view_has_a_message_instead_of_a_warning(untrained, recwarn):
    fitted = quick().fit(TABLE)
    seen = view(fitted, num_draws=30)
    assert not [w for w in recwarn if w.category is PoorFitWarning]
    diagnostics = seen.posterior.diagnostics()
    assert seen.message == diagnostics["message"] and seen.verdict is diagnostics.verdict
