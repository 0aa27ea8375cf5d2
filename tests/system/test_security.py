"""Files, pages and names from others are only read: they execute nothing here."""

import ast
import html.parser
import importlib.metadata
import io as bytes_io
import json
import os
import pickle
import re
import subprocess
import sys
import tomllib
import types
import zipfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import jax
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from bokeh.document import Document
from jaxlib import version as jaxlib
from packaging.requirements import Requirement
from packaging.version import Version

import ggmflow as gf
from ggmflow.cli.run import load_run
from ggmflow.cli.run_record import CHECKPOINT, MODEL, RECORD, RunError, read_record
from ggmflow.evidence import prior
from ggmflow.model.conditions import Ranges
from ggmflow.storage import archive
from ggmflow.storage.cache import compilation_cache_enabled, safe_directory
from ggmflow.views.export import export
from tests.support.models import TABLE, no_training, quick

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


# ------------------------------------------------------------------------------------------------------ files of others
POINT = Ranges((1.0, 1.0), (1.0, 1.0), (1.0, 1.0))


class Payload:
    """A pickle that touches a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mknod if sys.platform == "linux" else os.mkdir, (self.path,)


def with_pickles(path, payload):
    """The same file with pickles in place of its arrays, as NumPy would store them."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    record = json.loads(members["header.json"])
    for name in record["arrays"]:
        file = bytes_io.BytesIO()
        np.save(file, np.array([Payload(payload)], object), allow_pickle=True)
        members[f"{name}.npy"] = file.getvalue()
        record["arrays"][name] |= {"dtype": "object", "shape": [1]}
    members["header.json"] = json.dumps(record).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.fixture
def payload(tmp_path):
    """A path that must not come to be; that it could is tried first."""
    pickle.loads(pickle.dumps(Payload(str(tmp_path / "tried"))))
    assert (tmp_path / "tried").exists()
    yield str(tmp_path / "touched")
    assert not (tmp_path / "touched").exists()


def test_pickles_in_a_model_or_in_place_of_one(untrained, tmp_path, payload):
    path = tmp_path / "m.ggmflow"
    quick(temperature=1.0).fit(TABLE).save(path)
    with_pickles(path, payload)
    with pytest.raises(archive.ModelFileError, match="dtype"):
        gf.GraphicalFlow.load(path)
    path.write_bytes(pickle.dumps(Payload(payload)))
    with pytest.raises(archive.ModelFileError, match="is not a ggmflow model"):
        gf.GraphicalFlow.load(path)


def test_pickles_in_a_checkpoint(tmp_path, payload):
    """The real training reads it before anything else."""
    path = tmp_path / CHECKPOINT
    archive.write(path, {"kind": "checkpoint"}, {"a": np.zeros(1)})
    with_pickles(path, payload)
    for content in (path.read_bytes(), pickle.dumps(Payload(payload))):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="checkpoint"):
            quick().fit(TABLE, checkpoint=path)


def test_pickles_in_a_run(untrained, tmp_path, payload):
    run = tmp_path / "run"
    run.mkdir()
    for content in (pickle.dumps(Payload(payload)), b'{"py/object": "os.system"}', b'{"kind": "ggmflow run"}'):
        (run / RECORD).write_bytes(content)
        with pytest.raises(RunError):
            read_record(run)
    quick(temperature=1.0).fit(TABLE).save(run / MODEL)
    with_pickles(run / MODEL, payload)
    record = {"kind": "ggmflow run", "format": 1, "status": "finished", "command": f"touch {payload}", "seconds": 1.0}
    record |= {"versions": {}, "parameters": {}, "data": {"rows": 20, "columns": [], "file": f"$(touch {payload})"}}
    record["chosen"] = {"lam": 1.0, "q": 1.0, "at_boundary": [f"`touch {payload}`"]}
    record["ranges"] = {name: [1.0, 1.0] for name in ("lam", "q", "temperature")}
    (run / RECORD).write_text(json.dumps(record))
    with pytest.raises(RunError, match="is damaged"):
        load_run(run)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A new cache directory with the prior of 50 variables; what was made, and not read."""
    monkeypatch.setenv("GGMFLOW_CACHE", str(tmp_path / "cache"))
    made = []

    def integrate(d, s, ranges, progress):
        made.append(d)
        return prior.PriorIntegral(d, s, ranges, np.zeros((8, *prior.nodes(d, ranges)[1].shape)))

    monkeypatch.setattr(prior, "integrate_prior", integrate)
    prior._read_or_integrate(50, 50, POINT, False)
    prior._read_or_integrate(50, 50, POINT, False)
    assert made == [50]  # the second time it was read
    return made


@pytest.mark.parametrize("kind", ["pickles", "NaN", "nothing"])
def test_a_cache_of_priors_is_data_too(tmp_path, payload, made, kind):
    """A file of the cache directory that is not ours is made anew, without a word and without being executed."""
    (path,) = (tmp_path / "cache" / "priors").iterdir()
    if kind == "pickles":
        with_pickles(path, payload)
    elif kind == "NaN":
        archive.write(path, {"kind": "prior"}, {"h": archive.read(path)[1]["h"] * np.nan})
    else:
        path.write_bytes(b"")
    found = prior._read_or_integrate(50, 50, POINT, False)
    assert made == [50, 50] and np.isfinite(found.integral.h).all()


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
@pytest.mark.parametrize("variables", [50, 4])
def test_a_prior_that_others_could_have_written_is_not_read(tmp_path, monkeypatch, made, variables):
    """It would change the evidence, and nobody would know: in a directory just warned of, none is read or kept."""
    if variables == 4:  # a flow, as it starts
        trained = lambda flow, *args, **options: made.append(4) or no_training(flow)  # noqa: E731
        monkeypatch.setattr(prior, "train", trained)
    fit = partial(prior._read_or_integrate if variables == 50 else prior._read_or_train, variables, variables)
    fit(POINT, False)
    before = len(made)
    fit(POINT, False)
    assert len(made) == before
    kept = sorted((tmp_path / "cache" / "priors").iterdir())
    (tmp_path / "cache").chmod(0o777)
    with pytest.warns(RuntimeWarning, match="cache is not used"):
        fit(POINT, False)
    assert len(made) == before + 1
    fit(Ranges((2.0, 2.0), (1.0, 1.0), (1.0, 1.0)), False)
    assert sorted((tmp_path / "cache" / "priors").iterdir()) == kept


@pytest.mark.parametrize("package", [jax, jaxlib, prior])
def test_another_version_makes_its_own_prior(tmp_path, monkeypatch, made, package):
    """Else evidence would depend on which version filled the cache."""
    monkeypatch.setattr(package, "__version__", "0.0.1")
    prior._read_or_integrate(50, 50, POINT, False)
    prior._read_or_integrate(50, 50, POINT, False)
    assert made == [50, 50] and len(list((tmp_path / "cache" / "priors").iterdir())) == 2


ME, FRIEND = "me", "friend"


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
@pytest.mark.parametrize(
    "mode, group, members, used",
    [
        *((0o700, "users", [FRIEND], True), (0o755, "users", [FRIEND], True)),
        *((0o777, ME, [], False), (0o702, ME, [], False)),
        *((0o775, ME, [], True), (0o770, ME, [ME], True)),  # as Debian and Fedora have it
        *((0o775, ME, [FRIEND], False), (0o770, ME, [FRIEND], False)),
        *((0o775, "users", [], False), (0o770, "users", [], False)),  # whose primary group it is, no member list tells
        (0o770, None, [], False),
    ],
)
def test_compiled_programs_that_others_could_have_written_are_not_used(
    tmp_path, monkeypatch, mode, group, members, used
):
    import grp
    import pwd

    directory = tmp_path / "cache"
    directory.mkdir()
    directory.chmod(mode)
    gid = directory.stat().st_gid
    groups = {} if group is None else {gid: types.SimpleNamespace(gr_name=group, gr_mem=members)}
    monkeypatch.setattr(grp, "getgrgid", groups.__getitem__)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: types.SimpleNamespace(pw_name=ME, pw_gid=gid))
    monkeypatch.setenv("GGMFLOW_CACHE", str(directory))
    told = nullcontext() if used else pytest.warns(RuntimeWarning, match="cache is not used .* GGMFLOW_CACHE")
    with told, compilation_cache_enabled():
        assert (jax.config.jax_compilation_cache_dir == str(directory)) == used
    with compilation_cache_enabled():  # once is enough
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_a_new_directory_is_the_users_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("GGMFLOW_CACHE", str(tmp_path / "new"))
    assert safe_directory() == tmp_path / "new" and (tmp_path / "new").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory as Linux has them")
def test_files_that_claim_a_terabyte_are_refused_with_little_memory(untrained, tmp_path):
    """In a process that may not have more than half a gigabyte beyond what it has when it begins to read."""
    whole = tmp_path / "whole.ggmflow"
    quick(temperature=1.0).fit(TABLE).save(whole)
    with zipfile.ZipFile(whole) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    text, paths = (
        members["header.json"].decode(),
        [tmp_path / f"{claim}.ggmflow" for claim in ("array", "rows", "member")],
    )
    records = [json.loads(text), json.loads(text), json.loads(text)]
    records[0]["arrays"]["history"]["shape"] = [2**37, 1]
    records[1]["header"]["scatter"]["names"] = [f"x{k}" for k in range(100_000)]  # a matrix of 80 GB
    for path, record in zip(paths, records, strict=True):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in (members | {"header.json": json.dumps(record)}).items():
                archive.writestr(name, content)
    content = bytearray(paths[2].read_bytes())
    at = content.rindex(b"PK\x01\x02")
    content[at + 20 : at + 28] = b"\xfe\xff\xff\xff" * 2  # both sizes, in the directory
    paths[2].write_bytes(content)
    code = f"""
import resource
import ggmflow as gf
from ggmflow.storage.archive import ModelFileError
gf.GraphicalFlow.load({str(whole)!r})
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 2**29
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in {list(map(str, paths))!r}:
    try:
        gf.GraphicalFlow.load(path)
    except ModelFileError as error:
        print("refused", error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("refused") == 3, done.stderr


# ------------------------------------------------------------------------------------------------------ names of others
NASTY = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "'\"` onload=alert(3) x=`&amp;&lt;]]>",
    '=HYPERLINK("http://evil.example")',
]
FIRST = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1"]


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def nasty():
    from ggmflow.estimator import graphical_flow as estimator

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimator, "train", no_training)
        return quick(temperature=1.0).fit(TABLE.set_axis(NASTY, axis=1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")
def test_names_in_notebook_html(nasty):
    post = nasty.posterior(2.0, 1.0, num_draws=200)
    post.mean()
    for shown in (nasty, post):
        found = Tags(shown._repr_html_())
        assert not {"script", "img"} & set(found.tags)
        assert not [name for name in found.attributes if name.startswith("on")]
        assert all(name in found.text for name in NASTY)


@pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")
def test_names_in_files(nasty, tmp_path):
    """As they are, for any program that reads the format; nothing of them becomes a part of the format."""
    post = nasty.posterior(2.0, 1.0, num_draws=200)
    expected = post.to_networkx()
    export(post, tmp_path / "g.graphml", "graphml")
    assert set(nx.read_graphml(tmp_path / "g.graphml").nodes) == set(expected.nodes) == set(NASTY)
    export(post, tmp_path / "t.csv", "csv")
    table = pd.read_csv(tmp_path / "t.csv")
    assert set(table["row"]) == set(NASTY) and len(table) == 10
    export(post, tmp_path / "p.json", "json")
    assert json.loads((tmp_path / "p.json").read_text("utf-8"))["variables"] == NASTY


@pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")
def test_names_that_a_spreadsheet_takes_for_formulas_stay_names(untrained, tmp_path):
    """Decided: a CSV file holds names as they are, or no program could find them again. `export` says so."""
    for names in (FIRST[:4], FIRST[2:]):
        post = quick(temperature=1.0).fit(TABLE.set_axis(names, axis=1)).posterior(2.0, 1.0, num_draws=200)
        export(post, tmp_path / "t.csv", "csv")
        assert set(pd.read_csv(tmp_path / "t.csv")["row"]) == set(names)
    assert "formula" in export.__doc__


@pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")
def test_names_on_the_page_of_the_explorer(nasty):
    """Every text that the server sends as HTML; `test_page` looks at the page in a browser."""
    from bokeh.models import Div

    from ggmflow.explorer import prepare
    from ggmflow.explorer.session import Session

    document = Document()
    Session(document, prepare(nasty, evidence=False)).redraw(at_rest=True)
    texts = [model.text for model in document.select({"type": Div})]
    assert texts
    for found in map(Tags, texts):
        assert not {"script", "img"} & set(found.tags)
        assert not [name for name in found.attributes if name.startswith("on")]


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
