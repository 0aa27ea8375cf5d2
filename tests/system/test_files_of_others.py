"""Files from others are only read: they execute nothing, and take little memory."""

import io as bytes_io
import json
import os
import pickle
import subprocess
import sys
import types
import zipfile
from contextlib import nullcontext
from functools import partial

import jax
import numpy as np
import pytest
from jaxlib import version as jaxlib

import ggmflow as gf
from ggmflow.cli.run import load_run
from ggmflow.cli.run_record import CHECKPOINT, MODEL, RECORD, RunError, read_record
from ggmflow.evidence import prior
from ggmflow.model.conditions import Ranges
from ggmflow.storage import archive
from ggmflow.storage.cache import compilation_cache_enabled, safe_directory
from tests.support.models import TABLE, no_training, quick

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
        monkeypatch.setattr(prior, "fit_flow", trained)
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
