"""No module executes data, and dependencies have versions without a known hole."""

import ast
import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ggmflow"


# ------------------------------------------------------------------------------------------------- the source executes
# Functions and modules that turn data into programs, or start programs. Names as they are called, or imported.
DANGEROUS = {
    *("eval", "exec", "compile", "__import__", "breakpoint", "input"),
    *("pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "jsonpickle", "yaml", "ctypes", "pty"),
    *("subprocess", "os.system", "os.popen", "os.startfile", "multiprocessing", "runpy", "xmlrpc", "telnetlib"),
    *("joblib.load", "joblib.dump", "joblib.Memory", "torch.load", "pd.read_pickle", "pandas.read_pickle", "pd.eval"),
    *("tempfile.mktemp", "shutil.unpack_archive", "tarfile", "xml.etree", "xml.dom", "xml.sax"),
    *("urllib", "http", "requests", "httpx", "ftplib", "smtplib"),
    *("builtins", "__builtins__", "codecs", "codeop", "imp", "zipimport", "pkgutil"),
    *("importlib.import_module", "importlib.reload", "importlib.machinery", "importlib.util.spec_from_file_location"),
}
# Modules of which a part that is named only when the program runs could be one of these.
WHOLE = {name.rpartition(".")[0] for name in DANGEROUS} | {"numpy", "jax.numpy", "sys"}
LOADS = {"numpy.load", "jax.numpy.load"}
METHODS = {"extractall", "extract", "read_pickle", "to_pickle", "query", "set_wakeup_fd"}  # whatever they are called on
ALLOWED = set()


def dangers(text):
    """Entries of these lists that a module imports or names, under any alias."""
    found, tree, aliases = set(), ast.parse(text), {"np": "numpy", "jnp": "jax.numpy"}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in imports:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif alias.asname:
                aliases[alias.asname] = alias.name

    def name_of(node):
        first, *rest = ast.unparse(node).split(".")
        return ".".join([aliases.get(first, first), *rest])

    def ours(call):
        return call.args and re.match(r"f?['\"]ggmflow\.", ast.unparse(call.args[0]))

    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    safe = set()  # nodes that are called in a way that does no harm
    for node in calls:
        called = name_of(node.func)
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if called in LOADS and keywords.get("allow_pickle") == "False":
            safe.add(node.func)
        if called == "importlib.import_module" and ours(node):
            safe.add(node.func)
        if keywords.get("shell", "False") != "False" or called.split(".")[-1] in METHODS:
            found.add(called)
        if called in ("getattr", "vars") and node.args and name_of(node.args[0]) in WHOLE:
            found.add(f"{called}({name_of(node.args[0])})")
    named = (node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute))
    names = [name_of(node) for node in named if node not in safe]
    names += [alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names]
    # That a function is imported says nothing yet where some of its uses do no harm.
    names += [
        f"{node.module}.{alias.name}"
        for node in imports
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if f"{node.module}.{alias.name}" != "importlib.import_module"
    ]
    for name in names:
        parts = name.split(".")
        known = {".".join(parts[: k + 1]) for k in range(len(parts))}
        found |= known & (DANGEROUS | LOADS) | {each for each in known if re.fullmatch(r"os\.(exec|spawn)\w+", each)}
    return found


def test_no_module_executes_data():
    modules = sorted(SOURCE.rglob("*.py"))
    found = {(str(path.relative_to(SOURCE)), what) for path in modules for what in dangers(path.read_text("utf-8"))}
    assert len(modules) > 50 and found == ALLOWED


@pytest.mark.parametrize(
    "text",
    [
        *("import pickle", "from pickle import loads", "eval('1')", "import os\nos.system('x')", "x.extractall()"),
        *(
            "import numpy as np\nnp.load('a')",
            "np.load('a', allow_pickle=True)",
            "run('x', shell=True)",
            "os.execv(a, b)",
        ),
        *("import os as o\no.system('x')", "from os import system as s", "import os\nf = os.system", "getattr(os, x)"),
        *("import numpy as xx\nxx.load('a')", "from numpy import load", "from os import execv"),
        *("import importlib as i\ni.import_module(x)", "from importlib import import_module as f\nf('pickle')"),
        *("import builtins", "from codecs import decode", "import sys as s\nvars(s)"),
    ],
)
def test_the_search_finds_them(text):
    assert dangers(text)
    assert not dangers("import re\nre.compile('x')\nnp.load('a', allow_pickle=False)\nmodel.eval()")
    assert not dangers("from importlib import import_module\nimport_module(f'ggmflow.{x}')\ngetattr(self, x)")


# -------------------------------------------------------------------------------------------------------- dependencies
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_installed_versions_are_in_the_allowed_ranges():
    """`pip check` says the same of all packages; this needs no pip."""
    for text in PROJECT["dependencies"]:
        wanted = Requirement(text)
        assert wanted.specifier.contains(importlib.metadata.version(wanted.name), prereleases=True), text


def test_no_dependency_is_open_at_the_top():
    """A new major version, of JAX a minor one, comes in when it was tried, not when it appears."""
    extras = PROJECT["optional-dependencies"]
    for text in (*PROJECT["dependencies"], *extras["arviz"], *extras["distributed"], *extras["cuda12"]):
        wanted = Requirement(text)
        limits = {each.operator: Version(each.version) for each in wanted.specifier}
        assert set(limits) == {">=", "<"}, text
        tried = Version(importlib.metadata.version(wanted.name))
        assert limits["<"].major <= tried.major + 1, text
        if wanted.name == "jax":
            assert limits["<"] <= Version(f"0.{tried.minor + 1}"), text


def test_no_dependency_is_allowed_with_a_hole_that_concerns_us():
    """Bokeh took localhost.evil.example for localhost (CVE-2026-21883), filelock emptied what a link of the lock's name
    led to (CVE-2025-68146)."""
    lowest = {wanted.name: wanted.specifier for wanted in map(Requirement, PROJECT["dependencies"])}
    assert not lowest["bokeh"].contains("3.8.1") and not lowest["filelock"].contains("3.20.2")
