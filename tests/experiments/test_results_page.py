"""The page of results says what the tables kept with the code say, and those are of full runs."""

import json
from pathlib import Path

import pytest

from experiments.paper.page import write_page
from experiments.paper.record import EXPERIMENTS, LARGEST_FIGURE, experiment, read_about, read_tables

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
KEPT = [name for name in EXPERIMENTS if (RESULTS / name).is_dir()]


def test_the_page_is_that_of_the_tables(tmp_path):
    write_page(RESULTS, tmp_path / "page.md")
    kept = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == kept, (
        "make it again: python -m experiments.paper.page results docs/results.md"
    )


@pytest.mark.parametrize("name", KEPT)
def test_results_are_of_a_full_run(name):
    module, about = experiment(name), read_about(RESULTS / name)
    assert about["settings"] == json.loads(json.dumps(module.FULL._asdict()))
    assert set(about["seconds"]) <= {job.name for job in module.jobs(module.FULL)}
    assert about["command"] == f"ggmflow reproduce {name}"


@pytest.mark.parametrize("name", KEPT)
def test_figures_are_there_small_and_on_the_page(name):
    page, drawn = (
        (ROOT / "docs" / "results.md").read_text(encoding="utf-8"),
        experiment(name).figures(read_tables(RESULTS / name)),
    )
    assert {path.stem for path in (RESULTS / name).glob("*.png")} == set(drawn)
    for figure in drawn:
        assert (RESULTS / name / f"{figure}.png").stat().st_size <= LARGEST_FIGURE
        assert f"](assets/results/{name}/{figure}.png)" in page


@pytest.mark.parametrize("name", KEPT)
def test_what_is_to_be_known_of_the_tables_is_on_the_page(name):
    remarks = read_about(RESULTS / name).get("remarks", "")
    assert remarks in " ".join((ROOT / "docs" / "results.md").read_text(encoding="utf-8").split())


def test_without_results_the_way_to_make_them_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="ggmflow reproduce toy"):
        write_page(tmp_path, tmp_path / "page.md")
