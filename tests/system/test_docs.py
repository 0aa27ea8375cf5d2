"""Every block of the README and the pages runs: Python in order with shared variables, commands with few steps."""

import re
import shlex
import tomllib
import warnings
from importlib.util import find_spec
from pathlib import Path

import jax
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import ggmflow as gf
from experiments.paper.tables import without_tables
from ggmflow import explorer
from ggmflow.cli.app import app
from ggmflow.estimator import graphical_flow as estimator
from ggmflow.posterior.start import fit_flow
from tests.support.models import TABLE, no_training, untrained_priors

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```(\w*)", re.MULTILINE)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture(autouse=True)
def jax_as_readers_have_it():
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    yield
    jax.config.update("jax_numpy_dtype_promotion", "strict")


def blocks_of(page):
    """The line of the file where the code begins, and the code, of each Python block."""
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, match.start(1)) + 1, match[1]) for match in BLOCK.finditer(text)]


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def print_unmixed(*values, **options):
    """Print, but fail for a table of `Posterior.summary` that mixes ω_ij with associations, whose sign is opposite."""
    for table in values:
        # A summary has a rule; a table of differences between groups holds associations only.
        if isinstance(table, pd.DataFrame) and "rule" in table.attrs and "difference" not in table:
            of_entry = {"mean", "median", "lower", "upper"} & set(table)
            assert not of_entry or not {"association", "p_positive"} & set(table), list(table)
    print(*values, **options)


def fit_five_variables(flow, key, problem, settings, **options):
    """Fit flows of five variables at T = 1, as most pages do, by one program; others stay as they start.

    Blankets and ranges of temperatures are fitted by the tests of the estimator, more variables by `make demo`: each
    would be compiled once more here.
    """
    if flow.n_query == len(flow.scatter_matrix) == 5 and not problem.ranges.many_temperatures:
        return fit_flow(flow, key, problem, settings, **options)
    warnings.simplefilter("ignore", gf.PoorFitWarning)  # until the end of this test
    return no_training(flow, **options)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)], ids=name_of)
def test_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(estimator, "fit_flow", fit_five_variables)
    backend = matplotlib.get_backend(auto_select=False)
    matplotlib.use("Agg")
    try:
        namespace = {"__name__": "__docs__", "print": print_unmixed}
        with untrained_priors():  # training them takes most of the time
            for line, code in blocks_of(page):
                # Blank lines in front make a traceback point into the page.
                exec(compile("\n" * (line - 1) + code, page, "exec"), namespace)
    finally:
        plt.close("all")
        if backend is not None:
            matplotlib.use(backend)


def test_blocks_are_found():
    """Otherwise a change of fences would disable the test above unnoticed."""
    expected = {
        "README.md",
        *(f"docs/{name}.md" for name in ("tutorial", "data", "training", "posterior", "baselines")),
    }
    assert expected <= {name_of(page) for page in PAGES if blocks_of(page)}


def commands_of(page):
    """Arguments of each line of the shell blocks, without comments."""
    lines = "".join(SHELL.findall(page.read_text(encoding="utf-8"))).splitlines()
    return [arguments for arguments in (shlex.split(line, comments=True) for line in lines) if arguments]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)], ids=name_of)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_commands_of_a_page_run(page, tmp_path, monkeypatch):
    """Run `ggmflow` without training and without a browser; check that other commands exist."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(estimator, "fit_flow", no_training)
    served = []
    monkeypatch.setattr(explorer, "serve", lambda model, **options: served.append(model))
    TABLE.to_csv("data.csv", index=False)
    TABLE.mask(np.eye(len(TABLE), TABLE.shape[1], dtype=bool)).to_csv("blood.csv", index=False)
    asked = {"explore": 0}
    commands = commands_of(page)
    if any(name == "ggmflow" for name, *_ in commands):  # some pages begin with a finished run
        made = CliRunner().invoke(app, ["fit", "data.csv", "-o", "run", "--steps", "25"])
        assert made.exit_code == 0, made.output
    for name, *rest in commands:
        if name == "ggmflow":
            if rest[0] == "fit" and "--resume" not in rest:
                rest += ["--force"]
            result = CliRunner().invoke(app, [*rest, *(["--steps", "25"] if rest[0] == "fit" else [])])
            assert result.exit_code == 0, (rest, result.output)
            asked[rest[0]] = asked.get(rest[0], 0) + 1
        elif name == "make":
            targets = "|".join((re.escape(rest[0]), re.sub("-.*", "-%", rest[0])))  # or a pattern, such as benchmark-%
            assert re.search(rf"^({targets}):", (ROOT / "Makefile").read_text(), re.MULTILINE), rest
        elif name == "pip":
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            assert rest[0] == "install" and re.fullmatch(r"\.\[(\w+)\]", rest[1])[1] in extras
        else:
            assert name.endswith("python") and rest[0] == "-m", f"what is {name}?"
            assert find_spec(rest[1]) is not None, rest
    assert len(served) == asked["explore"]


def test_no_text_installs_the_package_from_an_index():
    """It is not on an index: pages and messages say how to install from a clone, or which other packages are needed."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = [path for place in ("src", "benchmarks", "experiments") for path in (ROOT / place).rglob("*.py")]
    paths = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "Makefile", *sources]
    texts = {name_of(path): path.read_text(encoding="utf-8") for path in paths}
    wrong = [name for name, text in texts.items() if re.search(r"ggmflow\[|pip install\s+['\"]?ggmflow\b", text)]
    assert not wrong
    named = {extra for text in texts.values() for extra in re.findall(r"pip install [^\n`]*'\.\[(\w+)\]'", text)}
    assert named and named <= set(extras)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_of_a_known_kind(page):
    """A block of another kind would be code that no test runs."""
    kinds = set(FENCE.findall(page.read_text(encoding="utf-8")))
    assert kinds <= {"", "python", "sh", "text", "packages"}, kinds


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_fences_are_closed_and_pages_need_no_network(page):
    text = page.read_text(encoding="utf-8")
    assert text.count("\n```") % 2 == 0
    assert not re.search(r"<script|cdn\.|\$\$", text)


def test_lengths():
    """The README is short, so is the page of results without its tables, and all pages can be read in an afternoon."""
    text = {name_of(page): page.read_text(encoding="utf-8") for page in PAGES}
    count = {name: len(each.split()) for name, each in text.items()}
    assert count["README.md"] <= 700
    assert len(without_tables(text["docs/results.md"]).split()) <= 2500
    assert sum(count.values()) <= 22_000, count


LINK = re.compile(r"\]\(([\w./-]*\.(?:md|png|svg|cff))?(?:#([\w-]+))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors_of(page):
    """Names of the sections of a page, as links write them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    plain = (re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower() for heading in HEADING.findall(text))
    return {re.sub(r"\s+", "-", heading) for heading in plain}


@pytest.mark.parametrize("page", [*PAGES, *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "SECURITY"))], ids=name_of)
def test_links_lead_somewhere(page):
    for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors_of(target), (path, anchor)
