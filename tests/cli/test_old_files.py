"""Model files and run directories that ggmflow 0.1.0 wrote can be loaded, shown and exported."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import ggmflow as gf
from ggmflow.cli.app import app
from ggmflow.cli.run import fit_run
from ggmflow.cli.run_record import RECORD, RunError, describe_file, read_record
from ggmflow.cli.run_status import Status
from ggmflow.data.scatter import Scatter
from ggmflow.storage import archive

pytestmark = pytest.mark.usefixtures("jax_as_users_have_it")
FILES = Path(__file__).parents[1] / "files" / "0.1.0"
DRAWS = json.loads((FILES / "draws.json").read_text(encoding="utf-8"))


@pytest.fixture
def run(tmp_path):
    """A copy of the finished run."""
    return shutil.copytree(FILES / "run", tmp_path / "run")


def command(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("name", ["full", "blanket", "run"])
def test_model_file_gives_the_same_densities(name):
    """Of draws that version 0.1.0 made; draws themselves depend on how many are made at once, which has changed."""
    path = FILES / "run" / "model.ggmflow" if name == "run" else FILES / f"{name}.ggmflow"
    posterior = gf.GraphicalFlow.load(path).posterior(**DRAWS["condition"])
    np.testing.assert_allclose(posterior.log_prob(DRAWS[name]), DRAWS["log_prob"][name], atol=1e-4)


def test_finished_run_loads_with_its_choice_of_lam_and_q(run):
    record, model = read_record(run), gf.load_run(run)
    assert record["status"] is Status.FINISHED
    assert (model.lam_, model.q_) == (record["chosen"]["lam"], record["chosen"]["q"])
    assert model.scatter_.names == tuple("abcd") and model.scatter_.n == 20


def test_summary_of_a_finished_run(run):
    shown = " ".join(command("summary", run).split())
    assert "table.csv: 20 rows of 4 variables" in shown and "trained for 400 steps" in shown
    assert "Shown at λ = 3.15, q = 0.997, the highest evidence" in shown
    answer = json.loads(command("summary", run, "--json"))
    assert answer["status"] == "finished" and answer["variables"] == list("abcd")


def test_export_of_a_finished_run(run):
    command("export", run, "--format", "csv")
    edges = pd.read_csv(run / "edges.csv")
    table = pd.read_csv(run / "summary.csv").query("edge")
    assert len(table) == len(edges)
    np.testing.assert_allclose(sorted(table["association"]), sorted(edges["association"]), rtol=1e-4)


def resume(run, mean="known"):
    """Resume a run of that version, with its data and parameters."""
    record = json.loads((run / RECORD).read_text(encoding="utf-8"))
    ranges = {name: tuple(value) for name, value in record["parameters"].items() if isinstance(value, list)}
    model = gf.GraphicalFlow(**record["parameters"] | ranges, mean=mean, progress=False)
    source = describe_file(FILES / "table.csv") | {"delimiter": ",", "decimal": ".", "drop": []}
    scatter = Scatter.from_data(FILES / "table.csv", mean=mean)
    return fit_run(model, scatter, run, source, record["command"], resume=True)


def with_present_versions(run):
    """The same run as if this version had begun it."""
    record = json.loads((run / RECORD).read_text(encoding="utf-8")) | {"versions": archive.versions()}
    (run / RECORD).write_text(json.dumps(record), encoding="utf-8")
    return run


def test_resuming_a_finished_run_loads_it(run):
    """Its record has no `pretrained`, which did not exist then."""
    assert "pretrained" not in read_record(run)["parameters"]
    assert resume(with_present_versions(run)).n_iter_ == 400


def test_the_mean_was_known_in_runs_that_do_not_say_so(run):
    """The same command now estimates it, which is another fit."""
    with pytest.raises(RunError, match="--mean was known and is estimated"):
        resume(with_present_versions(run), mean="estimated")


def test_an_interrupted_run_is_resumed_by_its_own_version_only(tmp_path):
    """As in 0.1.0 itself: other versions train other flows. The message says which version, and how to begin again."""
    run = shutil.copytree(FILES / "interrupted", tmp_path / "run")
    with pytest.raises(RunError, match=r"ggmflow was 0\.1\.0 and is") as caught:
        resume(run)
    assert "force" in str(caught.value)


def test_a_checkpoint_of_another_flow_is_refused_even_if_the_record_does_not_say_so(tmp_path):
    run = shutil.copytree(FILES / "interrupted", tmp_path / "run")
    with pytest.raises(RunError, match=r"cannot be resumed.*the version of ggmflow differ"):
        resume(with_present_versions(run))
