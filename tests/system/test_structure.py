"""Packages import only from those before them, use no private names of others, and stay small."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ggmflow"
BLOCK = re.search(r"```packages\n(.*?)```", (ROOT / "docs" / "design.md").read_text(encoding="utf-8"), re.S)
ORDER = [line.split()[0] for line in BLOCK[1].strip().splitlines()]
MODULES = sorted(SOURCE.rglob("*.py"))
INSIDE = [path for path in MODULES if path.parent != SOURCE]
FOLDERS = ("benchmarks", "experiments", "tests/support")
OUTSIDE = sorted(path for name in FOLDERS for path in (ROOT / name).rglob("*.py"))
OURS = ("ggmflow", "benchmarks", "experiments", "tests")
MODULE_LINES, CLASS_LINES, FUNCTION_LINES = 400, 300, 60
EXCUSE = "Long because"  # in the docstring of a function that must be long
# Public names of the standard library that begin with an underscore.
STANDARD = {"_asdict", "_fields", "_make", "_replace", "_exit"}


def name_of(path):
    """`gibbs.sweep` for src/ggmflow/gibbs/sweep.py."""
    return ".".join(path.relative_to(ROOT if path in OUTSIDE else SOURCE).with_suffix("").parts)


def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imported_packages(tree):
    """Packages of ours that a module imports from, at its top or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "import by the full name"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            first, _, rest = name.partition(".")
            if first == "ggmflow" and rest != "__version__":
                yield rest.split(".")[0]


def defined_names(statements):
    """Functions, classes and names assigned at the level of a module or of its classes; no local variables."""
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for block in ("body", "orelse", "handlers", "finalbody"):  # of classes, and of `if`, `try` and `with`
                yield from defined_names(getattr(node, block, ()))


def stored_attributes(tree):
    """Attributes that methods set on their own object or class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            if node.value.id in ("self", "cls"):
                yield node.attr


def foreign_private_names(tree):
    """Names with one leading underscore that a module uses as attributes, or imports from us, but does not define."""
    known = {*defined_names(tree.body), *stored_attributes(tree), *STANDARD}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            used = {node.attr} - known
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            used = {alias.name for alias in node.names}
        else:
            continue
        for name in sorted(used):
            if name.startswith("_") and not name.endswith("__"):
                yield f"line {node.lineno}: {name}"


def too_long(path, tree):
    """The module, its classes and functions that exceed their limits; the docstring of a function does not count."""
    if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MODULE_LINES:
        yield f"{name_of(path)} has {lines} lines"
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            limit = CLASS_LINES
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            limit = FUNCTION_LINES
        else:
            continue
        lines = node.end_lineno - node.lineno + 1
        if limit == FUNCTION_LINES and ast.get_docstring(node):
            lines -= node.body[0].end_lineno - node.body[0].lineno + 1
        if lines > limit and EXCUSE not in (ast.get_docstring(node) or ""):
            yield f"{name_of(path)}.{node.name} has {lines} lines"


def test_every_package_is_listed_once():
    packages = [path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()]
    assert sorted(ORDER) == sorted(packages)
    assert {path.stem for path in MODULES if path.parent == SOURCE} == {"__init__", "__main__"}


@pytest.mark.parametrize("path", INSIDE, ids=name_of)
def test_a_package_imports_only_from_those_before_it(path):
    own = path.relative_to(SOURCE).parts[0]
    late = {name for name in imported_packages(parse(path)) if ORDER.index(name) > ORDER.index(own)}
    assert not late, f"{own} imports from {late}, which come after it"


def test_only_tests_of_benchmarks_import_benchmarks():
    """What other tests need as well is in tests/support, so that benchmarks and tests do not import each other."""
    others = [path for path in (ROOT / "tests").rglob("*.py") if path.parent.name != "benchmarks"]
    assert not [
        path.name for path in others if re.search(r"^\s*(from|import) benchmarks\b", path.read_text("utf-8"), re.M)
    ]


# The package's own names are loaded on first use, from a table of modules.
FACADE = SOURCE / "__init__.py"


@pytest.mark.parametrize("path", [path for path in MODULES + OUTSIDE if path != FACADE], ids=name_of)
def test_nothing_is_imported_from_a_string(path):
    text = path.read_text(encoding="utf-8")
    assert "import_module" not in text and "__import__" not in text


@pytest.mark.parametrize("path", MODULES + OUTSIDE, ids=name_of)
def test_no_module_uses_private_names_of_another(path):
    assert not list(foreign_private_names(parse(path)))


@pytest.mark.parametrize("path", MODULES + OUTSIDE, ids=name_of)
def test_modules_classes_and_functions_are_small(path):
    assert not list(too_long(path, parse(path)))


def test_the_checks_see_what_they_should():
    """Each check fails on a module that breaks its rule."""
    assert list(imported_packages(ast.parse("def f():\n    from ggmflow.report.page import x"))) == ["report"]
    assert list(foreign_private_names(ast.parse("from ggmflow.data.table import _x\n_x()"))) == ["line 1: _x"]
    assert list(foreign_private_names(ast.parse("post._draws"))) == ["line 1: _draws"]
    for module in (
        "def f():\n    _a = 1\n    return other._a",  # the local variable is another thing
        "other._a = 1",
        "from tests.support.models import _a",
        "from ggmflow.data.table import _a\n_a = 1",
    ):
        assert [found.split()[-1] for found in foreign_private_names(ast.parse(module))] == ["_a"]
    for module in (
        "self._a = 1\nother._a",
        "class A:\n    _a: int\nother._a",
        "if x:\n    _a = 1\nother._a",
        "class A:\n    def _a(self): ...\nother._a",
        "x._replace(b=1)",
    ):
        assert not list(foreign_private_names(ast.parse(module)))
    long = "def f():\n" + "    x = 1\n" * FUNCTION_LINES
    assert len(list(too_long(SOURCE / "__init__.py", ast.parse(long)))) == 1


def test_importing_changes_no_global_state():
    """No JAX setting, matplotlib style or backend, logging handler or NumPy random state is touched."""
    code = """
import logging
import jax, matplotlib, numpy as np
def state():
    return (dict(jax.config.values), dict(matplotlib.rcParams), list(logging.root.handlers), logging.root.level,
            str(np.random.get_state()), matplotlib.get_backend(auto_select=False))
before = state()
import ggmflow, ggmflow.cli.app, ggmflow.plot, ggmflow.baselines, ggmflow.gibbs
assert state() == before, [a for a, b in zip(state(), before) if a != b]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
