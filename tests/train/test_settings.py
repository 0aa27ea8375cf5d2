"""Default settings of training."""

from pathlib import Path

from ggmflow.flow.base import TrainingPlan
from ggmflow.train.settings import CHUNK, default_settings


def test_default_settings_are_those_of_the_page():
    """The table of docs/training.md: D up to, steps, steps with a range of temperatures, batch size."""
    page = Path(__file__).parents[2].joinpath("docs", "training.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    table = [row for row in rows if row[0].startswith("up to ") or row[0] == "more"]
    assert len(table) == 4
    start = 1
    for name, *numbers in table:
        end = 10_000 if name == "more" else int(name.removeprefix("up to "))
        for entries in (start, end):
            one, many = (default_settings(entries, cold) for cold in (False, True))
            fine = default_settings(entries, True, pretrained=True)
            batch = one.num_conditions * one.num_draws
            assert [fine.steps, one.steps, many.steps, batch] == [int(number) for number in numbers]
        start = end + 1


def test_given_settings_are_used():
    settings = default_settings(10, False, steps=26, batch_size=18)
    assert (settings.steps, settings.num_conditions, settings.num_draws) == (2 * CHUNK, 4, 4)
    assert default_settings(10, False, batch_size=8).num_draws == 2


def test_the_plan_of_an_architecture_is_used_and_every_snapshot_has_a_chunk():
    plan = TrainingPlan(learning_rate=0.5, cooling=(5.0, 0.1, 100), averaging=0.0, snapshots=(1.0, 0.1))
    settings = default_settings(10, True, steps=1, plan=plan)
    assert settings.steps == 2 * CHUNK
    assert (settings.learning_rate, settings.cooling, settings.averaging) == plan[:3]
