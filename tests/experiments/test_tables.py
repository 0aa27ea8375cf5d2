"""docs/results.md is up to date with the results kept in the repository, and those are of full runs."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from experiments.paper import published
from experiments.paper.record import EXPERIMENTS, LARGEST_FIGURE, RESULTS, experiment, read_about, read_tables
from experiments.paper.tables import PAGE, as_markdown, page_tables, with_tables, without_tables


@pytest.fixture(scope="module")
def tables():
    return page_tables()


@pytest.fixture(scope="module")
def page():
    return PAGE.read_text(encoding="utf-8")


def test_the_page_is_up_to_date_and_has_every_table(page, tables):
    assert with_tables(page, tables) == page, "run: python -m experiments.paper.tables"
    assert set(re.findall(r"<!-- table: (\S+) -->", page)) == set(tables)
    assert page.count("<!-- end -->") == len(tables)


def test_every_published_number_has_ours_beside_it(tables):
    rows = [row for name in tables for row in tables[name].to_dict("records") if "published" in row]
    assert all(ours for row in rows for name, ours in row.items() if name.startswith("ours"))
    stated = [row["published"] for row in rows]
    for number in published.as_printed():
        assert any(cell == number or cell.startswith(f"{number} (") for cell in stated), number


def test_figures_of_the_page_exist(page):
    shown = re.findall(r"\]\(assets/(results/\S+\.png)\)", page)
    assert 6 <= len(shown) <= 8
    assert all((PAGE.parent / "assets" / path).exists() for path in shown)


def test_tables_in_markdown():
    table = pd.DataFrame({"": ["|ω|"], "ours": ["1"]})
    assert as_markdown(table).splitlines() == ["||ours|", "|---|---|", r"|\|ω\||1|"]
    block = "a\n<!-- table: one -->\nold\n<!-- end -->\nb\n"
    written = with_tables(block, {"one": table})
    assert written == f"a\n<!-- table: one -->\n\n{as_markdown(table)}\n\n<!-- end -->\nb\n"
    assert with_tables(written, {"one": table}) == written
    assert without_tables(written) == "a\n\nb\n"


# ------------------------------------------------------------------------------------------------ numbers of the tables
def test_rmse_of_the_toy_problem(tables):
    recovery = read_tables(RESULTS / "toy")["recovery"].query("architecture == 'structured'")
    by_seed = [np.sqrt(np.mean(part["rmse"] ** 2)) for _, part in recovery.groupby("seed")]
    row = tables["toy-published"].iloc[0]
    assert row["published"] == "0.052"
    assert row["ours"] == f"{np.mean(by_seed):.3f} ± {np.std(by_seed, ddof=1):.3f}"


def test_f1_of_the_published_matrix(tables):
    found = read_tables(RESULTS / "edges")
    jobs = found["data"].query("kind == 'published' and n == 15")["job"]
    scores = found["scores"]
    f1 = scores[scores["job"].isin(jobs) & (scores["method"] == "flow") & (scores["q"] == 0.25)]["f1_published"]
    row = tables["edges-published"].query("n == '15' and method == 'flow at q = 0.25'").iloc[0]
    assert row["published"] == "0.47"
    assert row["ours, published matrix"] == f"{f1.mean():.3f} ± {f1.std() / np.sqrt(len(f1)):.3f}"


def test_edges_of_the_blanket(tables):
    points = read_tables(RESULTS / "blanket")["points"].query("study == 'breast_cancer'").set_index("q")
    row = tables["blanket-published"].set_index("quantity").loc["edges by 80 % intervals, q = 1 → 0.6"]
    assert row["ours"].startswith(f"breast_cancer {points['edges'][1.0]} → {points['edges'][0.6]};")


def test_time_of_the_blanket_sampler(tables):
    seconds = read_tables(RESULTS / "runtime")["kaufmann"]["seconds_per_500"].median()
    row = tables["runtime-published"].iloc[0]
    assert (row["published"], row["ours"]) == ("89 s", f"{seconds:.3g} s")


# --------------------------------------------------------------------------------------------------------- kept results
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_results_are_of_a_full_run(name):
    module, about = experiment(name), read_about(RESULTS / name)
    assert about["settings"] == json.loads(json.dumps(module.FULL._asdict()))
    assert set(about["seconds"]) == {job.name for job in module.make_jobs(module.FULL)}
    assert set(about["versions"]) >= {"ggmflow", "jax", "numpy", "python"}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_figure_can_be_drawn_from_the_tables(name):
    drawn = experiment(name).figures(read_tables(RESULTS / name))
    assert {path.stem for path in (RESULTS / name).glob("*.png")} == set(drawn)
    assert all(path.stat().st_size <= LARGEST_FIGURE for path in (RESULTS / name).glob("*.png"))


# -------------------------------------------------------------------------------------------------------- full settings
def test_the_full_toy_problem_checks_the_points_of_the_page():
    full = experiment("toy").FULL
    np.testing.assert_allclose(sorted({lam for lam, _, _ in full.checked}), [1, 10**0.5, 10**0.9])
    assert len(full.checked) == 12 and set(full.checked[9:]) < set(full.cold_path)


def test_the_main_comparison_of_edges_comes_first_and_networks_last():
    jobs = [job.name for job in experiment("edges").make_jobs(experiment("edges").FULL)]
    assert len(set(jobs)) == len(jobs) and jobs[:2] == ["sparse n=15 #0", "sparse n=15 #1"]
    assert jobs[39] == "sparse n=45 #9" and jobs[40].startswith("published") and jobs[-1].startswith("arth150")
