"""Draws for ArviZ: names as coordinates, numbers as in Python, and ArviZ's own summaries and plots work on them."""

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest

from ggmflow.precision import partial_correlation

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


def test_without_arviz_the_way_out_is_named(post, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"pip install 'arviz<1' h5netcdf"):
        post.to_arviz()
