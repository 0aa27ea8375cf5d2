"""Jobs that are kept, tables, figures."""

import json

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from experiments.paper.record import Job, OtherSettingsError, read_about, read_tables, run_jobs, write_figures


def job(name, calls, value=1.5, error=None):
    def run():
        calls.append(name)
        if error is not None:
            raise error
        return {"numbers": pd.DataFrame({"what": ["a", "b"], "value": [value, value + 1]})}

    return Job(name, run)


def test_finished_jobs_are_not_done_again(tmp_path):
    calls, told = [], []
    with pytest.raises(KeyboardInterrupt):
        run_jobs(tmp_path / "x", [job("one", calls), job("two", calls, error=KeyboardInterrupt())], {"k": 1}, "cmd")
    tables = run_jobs(
        tmp_path / "x", [job("one", calls), job("two", calls, 7.0)], {"k": 1}, "other", lambda *a: told.append(a)
    )
    assert calls == ["one", "two", "two"]
    assert tables["numbers"]["job"].tolist() == ["one", "one", "two", "two"]
    assert tables["numbers"]["value"].tolist() == [1.5, 2.5, 7.0, 8.0]
    assert [name for name, _ in told] == ["two", "two"] and told[0][1] is None and told[1][1] >= 0
    about = read_about(tmp_path / "x")
    assert about["command"] == "cmd" and set(about["seconds"]) == {"one", "two"} and "jax" in about["versions"]
    assert not list(tmp_path.rglob("*.tmp*"))


def test_a_job_killed_before_its_record_is_done_again_and_its_rows_replaced(tmp_path):
    calls = []
    run_jobs(tmp_path, [job("one", calls), job("two", calls)], {}, "cmd")
    about = read_about(tmp_path)
    del about["seconds"]["two"]
    (tmp_path / "about.json").write_text(json.dumps(about), encoding="utf-8")
    tables = run_jobs(tmp_path, [job("one", calls), job("two", calls, 3.0)], {}, "cmd")
    assert calls == ["one", "two", "two"] and tables["numbers"]["value"].tolist() == [1.5, 2.5, 3.0, 4.0]


def test_results_of_other_settings_are_refused(tmp_path):
    run_jobs(tmp_path, [job("one", [])], {"sizes": (1, 2)}, "cmd")
    run_jobs(tmp_path, [job("one", [])], {"sizes": (1, 2)}, "cmd")  # a tuple comes back as a list
    before = read_tables(tmp_path)["numbers"]
    with pytest.raises(OtherSettingsError, match="other settings"):
        run_jobs(tmp_path, [job("one", [])], {"sizes": (1, 3)}, "cmd")
    pd.testing.assert_frame_equal(read_tables(tmp_path)["numbers"], before)


def test_figures_must_be_small(tmp_path):
    figure = Figure(figsize=(4, 3))
    figure.subplots().plot([0, 1])
    assert [path.name for path in write_figures(tmp_path, {"line": figure})] == ["line.png"]
    noise = Figure(figsize=(8, 8))
    noise.subplots().imshow(np.random.default_rng(0).random((900, 900)))
    with pytest.raises(ValueError, match="draw less"):
        write_figures(tmp_path, {"noise": noise})
    assert [path.name for path in tmp_path.iterdir()] == ["line.png"]
