"""`ggmflow summary`, and errors that all commands that read a run share."""

import json
import re
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest

import ggmflow
from ggmflow.cli.app import app
from ggmflow.model.conditions import Boundary, Choice
from ggmflow.storage import archive
from tests.support import models
from tests.support.command_line import AT_CONDITION, COMMANDS, TABLE, refused, run

pytestmark = pytest.mark.usefixtures("jax_as_users_have_it")


def test_summary_says_if_the_evidence_is_highest_at_a_boundary(untrained, table, tmp_path, monkeypatch):
    end = Choice(8.0, 1.0, (Boundary("lam", "high"),))
    monkeypatch.setattr(ggmflow.GraphicalFlow, "select", lambda self: end)
    result = run(app, ["fit", str(table), "-o", str(tmp_path / "run"), "--lam", "0.5,8"])
    assert result.exit_code == 0, result.output
    assert "Warning" not in result.stderr and "Note" not in result.stderr  # the summary says it once
    assert "The evidence is highest at the upper end of lam" in " ".join(result.stdout.split())


def test_summary_at_another_condition(fitted):
    printed = " ".join(
        run(app, ["summary", str(fitted[0]), "--lam", "3", "--q", "0.5", "--level", "0.5"]).stdout.split()
    )
    assert re.search(r"Shown at λ = 3, q = 0\.5 \(evidence prefers λ = [\d.]+, q = [\d.]+\)", printed)
    assert "50 % interval" in printed and "Edges, strongest first" in printed
    printed = run(app, ["summary", str(fitted[0]), "--top", "1"]).stdout
    assert re.search(r"Strongest edges \(1 of \d\)", printed)


TIMINGS = {
    "all parts": (
        {"compiling": 11.0, "training": 24.0, "choosing": 19.0},
        "100 steps in 24 s, plus compiling 11 s, choosing λ and q 19 s, other work 6 s;",
    ),
    "nothing chosen": (
        {"compiling": 36.0, "training": 24.0, "choosing": None},
        "100 steps in 24 s, plus compiling 36 s;",
    ),
    "training alone": ({"compiling": 0.0, "training": 59.9, "choosing": 0.0}, "100 steps in 60 s; "),
    "an earlier version": (None, "100 steps, 60 s; "),
}


@pytest.mark.parametrize(("timings", "expected"), TIMINGS.values(), ids=TIMINGS.keys())
def test_summary_shows_the_time_of_each_part(fitted, tmp_path, timings, expected):
    shutil.copytree(fitted[0], tmp_path / "run")
    record = json.loads((fitted[0] / "run.json").read_text(encoding="utf-8"))
    assert set(record["timings"]) == {"compiling", "training", "choosing"}
    del record["timings"]
    record |= {"seconds": 60.0} | ({} if timings is None else {"timings": timings})
    (tmp_path / "run" / "run.json").write_text(json.dumps(record), encoding="utf-8")
    assert expected in " ".join(run(app, ["summary", str(tmp_path / "run")]).stdout.split())
    assert json.loads(run(app, ["summary", str(tmp_path / "run"), "--json"]).stdout)["timings"] == timings


def test_summary_without_edges_shows_the_strongest_pairs(untrained, tmp_path):
    models.TABLE.to_csv(tmp_path / "table.csv", index=False)
    result = run(app, ["fit", str(tmp_path / "table.csv"), "-o", str(tmp_path / "run"), "--lam", "3", "--q", "0.5"])
    assert "Edges     0 of 6 pairs" in result.stdout
    assert "No edges; the strongest pairs, which may as well be zero" in result.stdout
    assert result.stdout.count(" – ") == 6


def test_summary_as_json_agrees_with_python(fitted):
    result = run(app, ["summary", str(fitted[0]), "--lam", "0.5", "--q", "1", "--json"])
    answer = json.loads(result.stdout)
    post = ggmflow.load_run(fitted[0]).posterior(0.5, 1.0)
    association, (lower, upper), names = post.association(), post.association_interval(0.9), list("abcd")
    assert answer["n_edges"] == np.triu(post.edges()).sum() > 1
    strengths = [abs(edge["association"]) for edge in answer["edges"]]
    assert strengths == sorted(strengths, reverse=True)
    for edge in answer["edges"]:
        at = names.index(edge["row"]), names.index(edge["column"])
        numbers = [edge[name] for name in ("association", "association_lower", "association_upper")]
        np.testing.assert_allclose(numbers, [association[at], lower[at], upper[at]])
    one = json.loads(run(app, ["summary", str(fitted[0]), "--lam", "0.5", "--q", "1", "--json", "--top", "1"]).stdout)
    assert one["edges"] == answer["edges"][:1]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_error_for_a_directory_that_is_not_a_run(command, tmp_path):
    refused([*command, tmp_path / "nowhere"], "nowhere does not exist: give the directory of a run")
    refused([*command, tmp_path], "is not a ggmflow run: it has no run.json")
    (tmp_path / "run.json").write_text("{")
    refused([*command, tmp_path], r"is damaged, run\.json cannot be read")
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize("command", AT_CONDITION, ids=lambda command: command[0])
def test_error_for_a_condition_outside_the_ranges(command, fitted):
    refused(
        [*command, fitted[0], "--lam", "99"],
        r"--lam 99 is outside the fitted range 0\.5 … 8: fit again with --lam 0\.5,99",
    )
    refused([*command, fitted[0], "--q", "nan"], "q must be a number")


def test_error_for_a_level_that_is_not_a_probability(fitted):
    refused(["summary", fitted[0], "--level", "90"], "--level must be a number between 0 and 1, such as 0.9, got 90")


@pytest.mark.parametrize("command", AT_CONDITION, ids=lambda command: command[0])
def test_model_with_nan_weights_gives_a_one_line_error(command, fitted, tmp_path):
    """The file is valid, but every number of the flow is NaN."""
    shutil.copytree(fitted[0], tmp_path / "run")
    header, arrays = archive.read(tmp_path / "run" / "model.ggmflow")
    for name, array in arrays.items():
        if name.startswith("flow") and array.dtype == np.float32:
            arrays[name] = array * np.nan
    archive.write(tmp_path / "run" / "model.ggmflow", header, arrays)
    name, *more = command
    result = run(app, [name, str(tmp_path / "run"), *more])
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit), result.exception
    assert result.stderr.splitlines()[-1].startswith("Error: ")


def test_names_of_columns_are_printed_as_plain_text(untrained, tmp_path):
    names = ["[red]a[/red]", "\x1b[31mb", "<script>", "[/]"]
    TABLE.set_axis(names, axis=1).to_csv(tmp_path / "table.csv", index=False)
    result = run(app, ["fit", str(tmp_path / "table.csv"), "-o", str(tmp_path / "run"), "--lam", "0.5", "--q", "1"])
    assert result.exit_code == 0, result.output
    assert "\x1b[31m" not in result.stdout and "[red]a[/red]" in result.stdout


def test_rules_of_summary_and_export(fitted, tmp_path):
    post = ggmflow.load_run(fitted[0]).posterior()
    for rule in ("interval", "fdr"):
        result = run(app, ["summary", str(fitted[0]), "--rule", rule, "--level", "0.5", "--json"])
        found = {frozenset((edge["row"], edge["column"])) for edge in json.loads(result.stdout)["edges"]}
        chosen = post.select_edges(rule, **({"level": 0.5} if rule == "interval" else {}))
        assert found == {frozenset((post.names[i], post.names[j])) for i, j in np.argwhere(chosen.edges) if i < j}
        path = tmp_path / f"{rule}.csv"
        assert (
            run(app, ["export", str(fitted[0]), "-f", "csv", "--rule", rule, "--level", "0.5", "-o", path]).exit_code
            == 0
        )
        assert pd.read_csv(path)["edge"].sum() == len(found)


def test_boundaries_from_a_file_are_values(fitted, tmp_path):
    """A run directory of unknown origin cannot write control characters or markup to the terminal."""
    directory = tmp_path / "run"
    shutil.copytree(fitted[0], directory)
    record = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    record["chosen"]["at_boundary"] = ["\x1b]0;owned\x07 [red]the upper end of q[/red]"]
    (directory / "run.json").write_text(json.dumps(record), encoding="utf-8")
    refused(["summary", directory], "run.json has no valid 'chosen'")


def test_summary_says_if_the_condition_was_given(table, tmp_path, untrained):
    printed = run(
        app, ["fit", str(table), "-o", str(tmp_path / "run"), "--lam", "2", "--q", "1", "--steps", "25"]
    ).stdout
    assert "λ = 2, q = 1, as given" in printed and "evidence" not in printed


@pytest.mark.slow
def test_lam_of_highest_evidence_at_the_given_q(fitted):
    """Summary, export and report must agree about it."""
    model = ggmflow.load_run(fitted[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        best, joint = model.select(q=1.0), model.select()
    printed = json.loads(run(app, ["summary", str(fitted[0]), "--q", "1", "--json"]).stdout)
    assert printed["condition"]["lam"] == pytest.approx(best.lam)
    assert best.lam != pytest.approx(joint.lam, rel=0.01)


@pytest.mark.slow
def test_refine_gives_exact_draws(fitted, tmp_path):
    printed = json.loads(run(app, ["summary", str(fitted[0]), "--refine", "--json"]).stdout)
    model = ggmflow.load_run(fitted[0])
    known = model.posterior().refine().diagnostics()
    assert printed["diagnostics"]["message"] == known["message"] != model.posterior().diagnostics()["message"]
    path = tmp_path / "table.csv"
    assert run(app, ["export", str(fitted[0]), "--format", "csv", "--refine", "-o", str(path)]).exit_code == 0
    expected = model.posterior().refine().summary()
    np.testing.assert_allclose(pd.read_csv(path, comment="#")["mean"], expected["mean"], rtol=1e-6)
