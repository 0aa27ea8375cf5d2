"""`python -m experiments.paper`: an interrupted run continues, and results of other settings are left alone."""

from typing import NamedTuple

import pandas as pd
import pytest

import experiments.paper
from experiments.paper.__main__ import main
from experiments.paper.record import Job, read_about


class Settings(NamedTuple):
    size: int = 3


class TwoJobs:
    """An experiment whose second job is interrupted the first time."""

    QUICK = FULL = Settings()

    def __init__(self):
        self.interrupted = False

    def make_jobs(self, settings):
        return [Job("first", lambda: {"values": pd.DataFrame({"value": [1.0]})}), Job("second", self.second)]

    def second(self):
        if not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        return {"values": pd.DataFrame({"value": [2.0]})}

    def figures(self, tables):
        return {}


@pytest.fixture
def two_jobs(monkeypatch):
    found = TwoJobs()
    monkeypatch.setattr(experiments.paper, "experiment", lambda name: found)
    return found


def test_an_interrupted_run_continues(two_jobs, tmp_path, capsys):
    command = ["toy", "--quick", "-o", str(tmp_path)]
    assert main(command) == 130
    assert "✓ first" in (said := capsys.readouterr().err) and "to continue" in said
    assert main(command) == 0
    said, path = capsys.readouterr(), tmp_path / "toy" / "values.csv"
    assert "first" not in said.err and "✓ second" in said.err and said.out == f"{path}\n"
    assert pd.read_csv(path)["value"].tolist() == [1.0, 2.0]
    assert read_about(tmp_path / "toy")["command"] == f"python -m experiments.paper toy --quick -o {tmp_path}"
    assert main(command) == 0
    assert "finished" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "directory"), [([], "results/paper"), (["--quick"], "results/paper-quick")])
def test_results_of_the_repository_are_not_the_default_output(two_jobs, tmp_path, monkeypatch, options, directory):
    two_jobs.interrupted = True
    monkeypatch.chdir(tmp_path)
    assert main(["toy", *options]) == 0
    assert (tmp_path / directory / "toy" / "values.csv").exists()


def test_results_of_other_settings_are_left_alone(two_jobs, tmp_path, capsys):
    two_jobs.interrupted = True
    assert main(["toy", "--quick", "-o", str(tmp_path)]) == 0
    before = (tmp_path / "toy" / "values.csv").read_bytes()
    two_jobs.QUICK = Settings(4)
    capsys.readouterr()
    assert main(["toy", "--quick", "-o", str(tmp_path)]) == 2
    assert "other settings" in capsys.readouterr().err
    assert (tmp_path / "toy" / "values.csv").read_bytes() == before


def test_an_unknown_experiment_is_an_error(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["nonsense"])
    assert "toy" in capsys.readouterr().err
