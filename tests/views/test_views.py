"""The numbers behind explorer and report are those of the Python API."""

import numpy as np
import pytest

from ggmflow.posterior.posterior import PoorFitWarning
from ggmflow.views import pairs as views
from tests.support.models import TABLE, quick

pytestmark = pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")


@pytest.mark.parametrize("kind", ["full", "blanket"])
@pytest.mark.parametrize("rule", ["f1", "interval", "fdr"])
def test_numbers_equal_those_of_the_posterior(model, kind, rule):
    fitted = model(kind)
    seen = views.view(fitted, 2.0, 0.5, rule=rule, level=0.8, num_draws=300)
    post = fitted.posterior(2.0, 0.5, num_draws=300)
    table = post.summary(level=0.8, rule=rule)
    table = table[table["row"] != table["column"]].reset_index(drop=True)
    for label in ("row", "column", "association", "p_positive", "edge_probability", "edge"):
        assert (seen.pairs[label] == table[label]).all(), label
    assert seen.rule == table.attrs["rule"] and seen.message == table.attrs["message"]
    assert seen.n_edges == table["edge"].sum() and seen.density == table["edge"].mean()
    assert (np.array(TABLE.columns)[seen.pairs["i"]] == seen.pairs["row"]).all()


def test_association_interval_is_that_of_its_draws(model):
    """Of plain draws of a full matrix: quantiles of partial correlations computed one matrix at a time."""
    post = model("full").posterior(2.0, 0.5, num_draws=400)
    rows = post.draws.rows(slice(None))
    scale = np.sqrt(np.einsum("kii->ki", rows))
    expected = np.quantile(-rows / scale[:, :, None] / scale[:, None, :], [0.1, 0.9], axis=0, method="hazen")
    lower, upper = post.association_interval(0.8, weighted=False)
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose([lower[off], upper[off]], expected[:, off], atol=1e-6)
    np.testing.assert_array_equal(np.diag(lower), 1)


@pytest.mark.parametrize("kind", ["full", "blanket"])
def test_density_of_a_pair(model, kind):
    seen = views.view(model(kind), 2.0, 0.5, num_draws=500)
    for k, row in seen.pairs.iterrows():
        found = views.density(seen, k)
        assert found.weights.sum() == pytest.approx(1) and found.values.shape == (500,)
        assert found.values @ found.weights == pytest.approx(row["association"])
        inside = found.weights[(found.values >= found.lower) & (found.values <= found.upper)].sum()
        assert inside == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("kind", ["full", "blanket", "paper"])
def test_layout_is_stable_and_apart(model, kind):
    positions = views.layout(model(kind))
    np.testing.assert_array_equal(positions, views.layout(model(kind)))
    assert positions.shape == (4, 2) and np.linalg.norm(positions, axis=1).max() <= 1 + 1e-9
    distance = np.linalg.norm(positions[:, None] - positions, axis=-1) + np.eye(4)
    assert distance.min() > 0.2


def test_layout_of_many_variables_around_a_query(rng):
    """The strongest partners of each query variable stand apart, whatever else there is."""
    s, d = 3, 200
    i, j = np.repeat(np.arange(s), d - s), np.tile(np.arange(s, d), s)
    strength = rng.exponential(size=i.size)
    positions = views._around(i, j, strength, np.arange(s), d)
    best = np.array([j[i == a][np.argsort(-strength[i == a])] for a in range(s)])
    strongest = np.argmax(strength.reshape(s, -1), axis=0)
    for a in range(s):
        mine = positions[[b for b in best[a] if strongest[b - s] == a][:4]]
        distance = np.linalg.norm(mine[:, None] - mine, axis=-1) + np.eye(len(mine))
        assert distance.min() > 0.15
    assert np.linalg.norm(positions[:s], axis=1).max() < np.linalg.norm(positions[s:], axis=1).min()


def test_evidence_surface_has_the_optimum_of_select(model):
    fitted = model("full")
    surface = views.evidence_surface(fitted)
    assert surface.log_evidence.shape == (9, 5)
    assert surface.best == fitted.select()
    k, m = np.unravel_index(surface.log_evidence.argmax(), (9, 5))
    table = fitted.evidence(surface.lam[k], surface.q[m], exact=False)
    assert table["log_evidence"][0] == pytest.approx(surface.log_evidence[k, m], abs=6 * table["se"][0] + 0.2)


def test_cold_models_have_no_evidence(untrained):
    fitted = quick(temperature=(0.1, 0.5)).fit(TABLE)
    assert views.evidence_surface(fitted) is None
    assert views.middle(fitted)[2] == 0.5 and views.view(fitted, num_draws=50).temperature == 0.5


def test_a_view_does_not_warn_but_says(untrained, recwarn):
    fitted = quick().fit(TABLE)
    seen = views.view(fitted, num_draws=30)
    assert not [w for w in recwarn if w.category is PoorFitWarning]
    assert seen.message.startswith(f"{seen.verdict.capitalize()} fit")
