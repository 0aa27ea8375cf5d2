"""Every Python block of the README and the pages runs: blocks of one page share their variables, in order."""

import re
from pathlib import Path

import jax
import matplotlib
import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture(autouse=True)
def jax_as_readers_have_it():
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    yield
    jax.config.update("jax_numpy_dtype_promotion", "strict")


def blocks_of(page):
    """(line of the file where the code begins, code) of each Python block."""
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, match.start(1)) + 1, match[1]) for match in BLOCK.finditer(text)]


def name_of(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)], ids=name_of)
def test_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    backend = matplotlib.get_backend(auto_select=False)
    matplotlib.use("Agg")
    try:
        namespace = {"__name__": "__docs__"}
        for line, code in blocks_of(page):
            # Blank lines in front make a traceback point into the page.
            exec(compile("\n" * (line - 1) + code, page, "exec"), namespace)
    finally:
        plt.close("all")
        if backend is not None:
            matplotlib.use(backend)


def test_blocks_are_found():
    """Else a change of fences would turn the tests above off unseen."""
    expected = {"README.md", *(f"docs/{name}.md" for name in ("index", "data", "training", "posterior", "flow"))}
    assert expected | {"docs/baselines.md"} <= {name_of(page) for page in PAGES if blocks_of(page)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_fences_are_closed_and_pages_need_no_network(page):
    text = page.read_text(encoding="utf-8")
    assert text.count("\n```") % 2 == 0
    assert not re.search(r"<script|cdn\.|\$\$", text)
