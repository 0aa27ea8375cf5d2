"""The order of rooms in docs/design.md is the order of imports: a module uses only what stands above it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "ggmflow"
BLOCK = re.search(r"```rooms\n(.*?)```", (ROOT / "docs" / "design.md").read_text(encoding="utf-8"), re.S)
LINES = [line.split() for line in re.split(r"\n(?! )", BLOCK[1].strip())]  # an indented line goes on with the one above
# A package itself, its __init__, stands below its modules.
ORDER = [name for room, *inner in LINES for name in [*(f"{room}.{module}" for module in inner), room]]
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def name_of(path):
    """`gibbs.sweep` for src/ggmflow/gibbs/sweep.py; a package's __init__ stands for the package."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports_of(path):
    """Modules of ours that a file imports, as dotted names below ggmflow."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by full name, not relatively"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    found = {name.removeprefix("ggmflow.") for name in found if name.startswith("ggmflow.") and "__" not in name}
    known = {name_of(module) for module in MODULES} - {""}
    return {max((k for k in known if name == k or name.startswith(k + ".")), key=len, default=name) for name in found}


def test_every_module_is_listed_once():
    assert sorted(ORDER) == sorted({name_of(path) for path in MODULES} - {""})


@pytest.mark.parametrize("path", [path for path in MODULES if name_of(path)], ids=name_of)
def test_a_module_imports_only_from_above(path):
    own = name_of(path)
    for other in imports_of(path):
        assert ORDER.index(other) < ORDER.index(own), f"{own} imports {other}, which stands below it"


def test_importing_changes_no_global_state():
    """No JAX setting, matplotlib style or backend, logging handler or NumPy random state is touched."""
    code = """
import logging
import jax, matplotlib, numpy as np
def state():
    return (dict(jax.config.values), dict(matplotlib.rcParams), list(logging.root.handlers), logging.root.level,
            str(np.random.get_state()), matplotlib.get_backend(auto_select=False))
before = state()
import ggmflow, ggmflow.cli, ggmflow.plot, ggmflow.baselines, ggmflow.gibbs
assert state() == before, [a for a, b in zip(state(), before) if a != b]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
