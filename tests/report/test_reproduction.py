"""The code of a page gives its numbers again."""

import html
import re
import warnings

import numpy as np
import pandas as pd
import pytest

import ggmflow as gf
from ggmflow.report.content import collect
from ggmflow.report.page import render
from ggmflow.report.reproduction import python_code
from tests.report.conftest import FIVE, five_variables
from tests.support.models import quick


@pytest.mark.slow
@pytest.mark.parametrize("seed", [np.int64(3), np.random.RandomState(0), np.random.default_rng(0), None])
def test_code_gives_the_same_numbers(tmp_path, monkeypatch, seed):
    """Parameters of any type that the estimator takes become code; a fit with a seed gives the same content."""
    monkeypatch.chdir(tmp_path)
    five_variables(FIVE).to_csv("five.csv", index=False)
    given = {"lam": (np.float64(0.5), np.float64(30.0)), "q": np.array([0.4, 1.0]), "temperature": np.float32(1.0)}
    given |= {"query": pd.Index(["pulse", "sleep"]), "standardize": np.True_, "random_state": seed}
    model = quick(**given).fit("five.csv")
    content = collect(model, [np.float64(1.0), 4.0], [0.5])
    code = html.unescape(re.search(r"<pre>(import ggmflow.*?)</pre>", render(model, content, "five.csv"), re.S)[1])
    assert ("random_state=3)" in code) == (seed is not None and seed == 3) == ("had no seed" not in code)
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gf.PoorFitWarning)
        exec(compile(code, "report", "exec"), found)
    again, post = found["model"], found["post"]
    assert (again.lam_range_, again.q_range_, again.steps) == (model.lam_range_, model.q_range_, model.steps)
    assert [FIVE[k] for k in post.query] == ["pulse", "sleep"] and post.num_draws == content.num_draws
    if seed is not None and seed == 3:
        rows = [{1: 0, 2: 1}[k] for k in content.first]
        np.testing.assert_allclose(post.association()[rows, content.second], content.selected.values[0], rtol=1e-6)


@pytest.mark.parametrize("mean", ["known", "estimated"])
def test_page_and_code_have_the_mean_of_a_scatter(mean):
    """Which need not be the parameter of the model that was fitted to it; rows are those of the table."""
    table = five_variables(FIVE)
    model = quick(lam=2.0, q=0.5, steps=0).fit(gf.Scatter.from_data(table, mean=mean))
    content = collect(model, [2.0], [0.5])
    assert ("mean='known'" in python_code(model, content, "five.csv", {})) == (mean == "known")
    page = render(model, content, "five.csv")
    assert f"{len(table)} rows, 5 variables" in page and f"<dt>rows used</dt><dd>{len(table)}</dd>" in page
    assert ("taken as known" in page) == (mean == "known")
