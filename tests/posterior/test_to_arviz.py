"""Draws for ArviZ: names as coordinates, numbers as in Python, and ArviZ's own summaries and plots work on them."""

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest

from ggmflow.model.precision import partial_correlation
from ggmflow.posterior.flow_source import FlowSource
from ggmflow.views.export import export

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # ArviZ 0.23 announces 1.0 on import
    az = pytest.importorskip("arviz")


@pytest.fixture
def post(model):
    return model("full").posterior(2.0, 1.0)


def test_names_are_coordinates_and_numbers_those_of_the_posterior(post):
    draws = post.to_arviz(2000, random_state=1).posterior
    assert dict(draws.sizes) == {"chain": 1, "draw": 2000, "row": 4, "column": 4}
    assert list(draws["row"].values) == list(draws["column"].values) == list(post.names)
    precision = draws["precision"].values[0]
    np.testing.assert_array_equal(precision, post.sample(2000, random_state=1, weighted=post.weighted))
    np.testing.assert_allclose(draws["association"].values[0], partial_correlation(precision))
    one = draws["precision"].sel(row="a", column="c").values[0]
    np.testing.assert_array_equal(one, precision[:, 0, 2])
    assert draws.attrs["lam"] == pytest.approx(2.0) and draws.attrs["q"] == 1.0 and draws.attrs["temperature"] == 1.0
    assert draws.attrs["inference_library"] == "ggmflow" and "Pareto" in draws.attrs["message"]
    again = post.to_arviz(2000, random_state=1).posterior
    assert draws.equals(again)


def test_rows_of_a_query(model):
    post = model("blanket").posterior(2.0, 0.5)
    draws = post.to_arviz(500).posterior
    assert list(draws["row"].values) == ["c", "a"] and list(draws["column"].values) == list("abcd")
    rows, association = draws["precision"].values[0], draws["association"].values[0]
    np.testing.assert_allclose(association[:, 0, 3], -rows[:, 0, 3] / rows[:, 0, 2])  # a regression weight: c on d
    np.testing.assert_allclose(association[:, 0, 0], -rows[:, 0, 0] / np.sqrt(rows[:, 0, 2] * rows[:, 1, 0]))
    np.testing.assert_array_equal(association[:, 0, 0], association[:, 1, 2])
    assert np.all(association[:, 0, 2] == 1)


@pytest.mark.filterwarnings("ignore")  # what ArviZ and its libraries warn of is not ours
def test_arviz_reads_it(post, tmp_path):
    data = post.to_arviz(500)
    table = az.summary(data, var_names=["precision"], kind="stats", round_to="none")
    np.testing.assert_allclose(
        table.loc["precision[a, b]", "mean"], data.posterior["precision"].values[0, :, 0, 1].mean()
    )
    data.to_netcdf(str(tmp_path / "draws.nc"))
    back = az.from_netcdf(str(tmp_path / "draws.nc"))
    np.testing.assert_array_equal(back.posterior["association"], data.posterior["association"])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["plot_forest", "plot_posterior", "plot_trace"])
def test_arviz_draws_it(post, name):
    if not hasattr(az, name):
        pytest.skip(f"this ArviZ has no {name}")
    getattr(az, name)(post.to_arviz(200), var_names=["association"], coords={"row": ["a"], "column": ["b", "c"]})
    plt.close("all")


@pytest.mark.slow
def test_a_refined_posterior_has_its_chains(model, monkeypatch):
    """Chain k holds the states of chain k in the order of time, for every number of draws."""
    found, original = [], FlowSource.refine

    def refine(source, *args):
        found.append(original(source, *args))
        return found[-1]

    monkeypatch.setattr(FlowSource, "refine", refine)
    post = model("blanket").posterior(2.0, 0.5).refine(10, num_chains=30, random_state=1)
    kept = found[0].draws[:, -5:]  # the second half of ten states
    assert kept.shape == (30, 5, 2, 4) and np.ptp(kept, axis=1).min() > 0  # states that differ, or order were nothing
    for num_draws, chains in ((1000, 30), (150, 30), (60, 12), (61, 13), (3, 1)):
        draws = post.to_arviz(num_draws).posterior
        assert dict(draws.sizes) == {"chain": chains, "draw": 5, "row": 2, "column": 4}
        np.testing.assert_array_equal(draws["precision"], kept[:chains])
    association = draws["association"].values
    np.testing.assert_allclose(association[..., 0, 3], -kept[:1, :, 0, 3] / kept[:1, :, 0, 2])


@pytest.mark.filterwarnings("ignore")
def test_arviz_computes_rhat_and_ess_of_a_refined_posterior(model, tmp_path):
    """In memory and from a file. The diagonal of associations is constant, so it has neither."""
    post = model("full").posterior(2.0, 0.5).refine(50, random_state=1)
    export(post, tmp_path / "draws.nc", "netcdf")
    for data in (post.to_arviz(5000), az.from_netcdf(str(tmp_path / "draws.nc"))):
        rhat, ess = az.rhat(data)["precision"].values, az.ess(data)["precision"].values
        assert rhat.shape == ess.shape == (4, 4) and np.isfinite(rhat).all() and np.isfinite(ess).all()
        assert rhat.max() < 1.1 and ess.min() > 100
    assert np.isnan(az.rhat(model("full").posterior(2.0, 0.5).to_arviz(100))["precision"]).all()


def test_without_arviz_the_way_out_is_named(post, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"pip install 'arviz<1' h5netcdf"):
        post.to_arviz()
