"""Files that somebody might hand to the command line: tables, model files and runs, broken in every way.

    table_file(number), command_case(number), run_case(number), checkpoint_case(number)

The same number gives the same case.

The command must end with success, or with an exit code of 1 or 2 and one line that begins with "Error: ".
"""

import gzip
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from typer.testing import CliRunner

import ggmflow as gf
from benchmarks.trust.hostile_questions import finite
from benchmarks.trust.hostile_tables import NAMES, clean, right_scatter
from ggmflow.cli.app import app
from ggmflow.storage import archive

FIT = ["--lam", "2", "--q", "1", "--temperature", "1", "--steps", "25"]
REFUSED = "refused"  # how a case ends that was told what is wrong with it
_HARMLESS = {"standardize": True, "transform": None, "missing": "error"}


class TableFile(NamedTuple):
    """A file for `ggmflow fit`.

    Attributes
    ----------
    how
        In words.
    content
        Its bytes.
    options
        More options of the command.
    values : (n, d) array or None
        What is in it where it is a proper table, which must be read; otherwise it may be refused.
    names
        Of its columns then.
    hopeless
        Whether it must be refused.
    """

    how: str
    content: bytes
    options: list[str]
    values: np.ndarray | None = None
    names: list[str] | None = None
    hopeless: bool = False


# -------------------------------------------------------------------------------------------------------------- tables
def _text(names: list[str], values: np.ndarray, *, sign: str = ",", end: str = "\n", always: bool = False) -> str:
    """As a spreadsheet writes it; quoted where it must be, or always."""

    def field(text: str) -> str:
        quoted = always or any(each in text for each in (sign, '"', "\n", "\r")) or text != text.strip()
        return '"' + text.replace('"', '""') + '"' if quoted else text

    rows = [names, *[[repr(float(x)) for x in row] for row in values]]
    return end.join(sign.join(map(field, row)) for row in rows) + end


def _proper(rng: np.random.Generator) -> TableFile:
    """A table that must be read, in one of the many forms of CSV."""
    values = rng.normal(size=(int(rng.integers(3, 12)), 3)) * 10.0 ** rng.uniform(-12, 12, 3)
    usable = [name for name in NAMES if name.strip() and "\0" not in name and name != "\ufeff"]
    usable = [name for name in usable if name not in ("0", "-1", "+1", "nan", "1e400")]  # all numbers: no header
    names = [str(name) for name in rng.choice(usable, 3, replace=False)]
    end, always = str(rng.choice(["\n", "\r\n", "\r"])), bool(rng.integers(2))
    sign = str(rng.choice([",", ",", ";", "\t"]))
    text = _text(names, values, sign=sign, end=end, always=always)
    if rng.uniform() < 0.3:
        text += end * 3
    if rng.uniform() < 0.3:
        text = text.rstrip("\r\n")
    content = text.encode("utf-8-sig" if rng.integers(2) else "utf-8")
    return TableFile(f"proper, end {end!r}, sign {sign!r}", content, ["--delimiter", sign], values, names)


_FIELDS = [
    *("", " ", "-", "--", ".", "1e", "1d5", "1_000", "1 000", "0x10", "1,5", '"1,000"', "+5", "1e400", "-1e400", "inf"),
    *(
        "nan",
        "NA",
        "#N/A",
        "NULL",
        "TRUE",
        "\u0661\u0662",
        "\uff11\uff12",
        "½",
        "=1+1",
        "'5",
        "1\0",
        "5%",
        "$5",
        "2020-01-01",
    ),
    *('"', '"""', '"a\nb"', "9" * 400, "9" * 200_000, "λ", "\u202e5", "\x1b[31m", "1e-400", "12:30"),
]
# What is never a number, and what is missing.
_NO_NUMBER = ("-", "--", ".", "1e", "1_000", "0x10", "1e400", "-1e400", "inf", "½", "=1+1", "'5", "5%", "$5")
_NO_VALUE = ("", " ", "nan", "NA", "NULL")


def _odd_field(rng: np.random.Generator) -> TableFile:
    """One field that may be a number, or not."""
    rows = [[repr(float(x)) for x in row] for row in rng.normal(size=(6, 3))]
    odd = str(_FIELDS[int(rng.integers(len(_FIELDS)))])
    rows[int(rng.integers(6))][int(rng.integers(3))] = odd
    text = "a,b,c\n" + "".join(",".join(row) + "\n" for row in rows)
    missing = str(rng.choice(["error", "drop", "em"]))
    hopeless = odd in _NO_NUMBER or (odd in _NO_VALUE and missing == "error")
    return TableFile(f"field {odd[:20]!r}", text.encode(), ["--missing", missing], hopeless=hopeless)


def _wide(rng: np.random.Generator) -> TableFile:
    """10 000 columns that must be read, though only three of them are kept: all would need gigabytes."""
    names = [f"x{j}" for j in range(10_000)]
    values, kept = rng.normal(size=(6, 10_000)), [0, 5_000, 9_999]
    dropped = ",".join(name for j, name in enumerate(names) if j not in kept)
    content = _text(names, values).encode()
    return TableFile("10 000 columns", content, ["--drop", dropped], values[:, kept], [names[j] for j in kept])


def _damaged(rng: np.random.Generator) -> TableFile:
    """Bytes of a proper table changed, left out, repeated or put in."""
    content = bytearray(_proper(rng).content)
    kind = str(rng.choice(["flip", "cut", "insert", "repeat", "remove"]))
    for _ in range(int(rng.integers(1, 6))):
        at = int(rng.integers(len(content)))
        if kind == "flip":
            content[at] ^= 1 << int(rng.integers(8))
        elif kind == "cut":
            del content[at:]
            break
        elif kind == "insert":
            content[at:at] = bytes(rng.integers(0, 256, int(rng.integers(1, 4)), dtype=np.uint8))
        elif kind == "repeat":
            content[at:at] = content[at : at + 20]
        else:
            del content[at : at + int(rng.integers(1, 20))]
        if not content:
            break
    return TableFile(f"damaged: {kind}", bytes(content), [])


_GOOD = "a,b,c\n1,2,4\n2,1,9\n3,5,1\n5,5,5\n"


@cache
def _strange() -> list[tuple[str, bytes]]:
    """What is no table at all, or hardly one."""
    wide = ",".join(f"x{j}" for j in range(10_000))
    row = ",".join(["1"] * 9_999)
    packed = io.BytesIO()
    np.savez(packed, a=np.zeros(3))
    return [
        ("empty", b""),
        ("a byte", b"\0"),
        ("zeros", b"\0" * 10_000),
        ("blank lines", b"\n\r\n\r \t\n"),
        ("commas", b",,,\n,,,\n"),
        ("header", b"a,b,c\n"),
        ("header, twice", b"a,b,c\na,b,c\n"),
        ("header, no end of line", b"a,b,c"),
        ("byte order mark", b"\xef\xbb\xbf"),
        ("two byte order marks", b"\xef\xbb\xbf\xef\xbb\xbf" + _GOOD.encode()),
        ("UTF-16", _GOOD.encode("utf-16")),
        ("UTF-16, big end first, no mark", _GOOD.encode("utf-16-be")),
        ("UTF-32", _GOOD.encode("utf-32")),
        ("Latin-1", "größe,b,c\n1,2,3\n2,3,1\n".encode("latin-1")),
        ("surrogates", b"\xed\xa0\x80,b\n1,2\n2,1\n"),
        ("NUL in a name", b"a\0,b,c\n1,2,4\n2,1,9\n3,5,1\n"),
        ("NUL in a number", b"a,b,c\n1,2\0,4\n2,1,9\n"),
        ("ragged", b"a,b,c\n1,2\n1,2,3,4\n"),
        ("fields more", b"a,b\n1,2,3\n4,5,6\n"),
        ("trailing comma", b"a,b,\n1,2,\n3,5,\n"),
        ("open quote", b'a,b,c\n1,"2,4\n2,1,9\n3,5,1\n'),
        ("open quote, long", b'a,b,c\n1,"2,4\n' + b"2,1,9\n" * 50_000),
        ("one line of a megabyte", b"1" * 10**6),
        ("a line of a million fields", b"a,b,c\n" + b"1," * 10**6 + b"1\n2,1,3\n"),
        ("quotes", b'"' * 100_000),
        ("10 000 columns, a field short", f"{wide}\n{row}\n{row}\n".encode()),
        ("10 000 columns of text", f"{wide}\n{row},u\n{row},v\n".encode()),
        ("100 000 rows, the last of them wrong", b"a,b\n" + b"1,2\n2,1\n" * 50_000 + b"1,x\n"),
        ("comments", b"# made by hand\na,b,c\n1,2,3\n2,3,1\n"),
        ("constant", b"a,b,c\n1,2,3\n1,3,1\n1,3,9\n"),
        ("same names", b"a,a,b\n1,2,3\n2,3,1\n"),
        ("numbers as names", b"1.5,2.5\n1,2\n2,1\n"),
        ("workbook", b"PK\x03\x04" + b"\xff" * 100),
        ("compressed", gzip.compress(_GOOD.encode())),
        ("compressed, much", gzip.compress(b"0" * 10**7)),
        ("pickle", pickle.dumps({"a": [1, 2]})),
        ("NumPy", packed.getvalue()),
        ("picture", b"\x89PNG\r\n\x1a\n" + b"\0" * 64),
        ("JSON", b'{"a": [1, 2], "b": [2, 1]}'),
        ("JSON, deep", b"[" * 100_000),
        ("XML", b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><l>&b;</l>'),
        ("HTML", b"<html><script>alert(1)</script></html>"),
        ("formulas", b"=1+1,@a\n1,2\n2,1\n"),
    ]


_TABLES = ("two byte order marks", "NUL in a name", "formulas")  # strange, but tables


def table_file(number: int) -> TableFile:
    """A file by its number; the kinds come in turn."""
    rng = np.random.default_rng([3, number])
    if number % 4 == 3:
        turn = number // 4 % (1 + len(_strange()))
        if turn == 0:
            return _wide(rng)
        how, content = _strange()[turn - 1]
        missing = str(rng.choice(["error", "em"]))
        return TableFile(how, content, ["--missing", missing], hopeless=how not in _TABLES)
    return (_proper, _odd_field, _damaged)[number % 4](rng)


def fit_case(number: int) -> tuple[str, Callable[[], str | None]]:
    """`ggmflow fit` of a file. Needs `train` to be replaced."""
    file = table_file(number)

    def run() -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            data, output = Path(folder) / "data.csv", Path(folder) / "run"
            data.write_bytes(file.content)
            code, wrong = invoke(["fit", str(data), "-o", str(output), *FIT, *file.options])
            if wrong:
                return wrong
            if code == 0:
                return "it was fitted" if file.hopeless else _read_rightly(file, output)
            if output.exists():
                return "a refused table left a directory"
            return "a proper table was refused" if file.values is not None else REFUSED

    return f"fit, {file.how}", run


def _read_rightly(file: TableFile, output: Path) -> str | None:
    scatter = gf.load_run(output).scatter_
    if file.values is None or clean(file.values, _HARMLESS) is None:
        return None if np.isfinite(scatter.matrix).all() else "not finite"
    if list(scatter.names) != [name.strip() for name in file.names or []]:
        return f"names {scatter.names}"
    right, _ = right_scatter(file.values, _HARMLESS)
    return None if np.abs(scatter.matrix / scatter.n - right).max() < 1e-9 else "wrong numbers"


def invoke(arguments: list[str]) -> tuple[int, str | None]:
    """Run a command in this process: its exit code, and what is wrong with how it ended."""
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return 1, f"traceback of {type(result.exception).__name__}: {str(result.exception)[:100]}"
    return result.exit_code, ended_badly(result.exit_code, result.stderr)


def ended_badly(code: int, stderr: str) -> str | None:
    """What is wrong with an exit code and what was said."""
    if "Traceback" in stderr:
        return "traceback"
    if code == 0:
        return None
    if code not in (1, 2):
        return f"exit code {code}"
    lines = [line for line in stderr.splitlines() if line.strip()]
    if not lines or not lines[-1].startswith("Error: ") or sum(line.startswith("Error: ") for line in lines) > 1:
        return f"no single line of error: {stderr[:100]!r}"
    # Before an error, notes of one line are allowed.
    return (
        None
        if all(line.startswith(("Error: ", "Note: ")) for line in lines)
        else f"more than a line: {lines[0][:80]!r}"
    )


def in_a_process(number: int) -> tuple[str, Callable[[], str | None]]:
    """A file that is no table, and a program of its own as users start it."""
    refused = [each for each in _strange() if each[0] not in _TABLES]
    how, content = refused[number * 7 % len(refused)]

    def run() -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "data.csv").write_bytes(content)
            command = [sys.executable, "-m", "ggmflow", "fit", "data.csv", *FIT]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=_environment(), check=False)
            return ended_badly(done.returncode, done.stderr) or (REFUSED if done.returncode else "it was fitted")

    return f"process: fit, {how}", run


def _environment() -> dict[str, str]:
    """Paths may be relative, but the program runs elsewhere."""
    paths = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


# ----------------------------------------------------------------------------------------------- options and their text
_WORDS = [
    *(
        "",
        " ",
        "0",
        "1",
        "-1",
        "nan",
        "inf",
        "-inf",
        "1e300",
        "1e-300",
        "1e999",
        "0x10",
        "1_0",
        "1,2",
        "2,1",
        "1,2,3",
        ",",
    ),
    *(
        "auto",
        "a",
        "a,b",
        "a,a",
        '"a',
        'a,"b,c"',
        "λ",
        "\u202e",
        "👩‍👧",
        "../..",
        "/dev/null",
        "/",
        "x" * 5000,
        "--help",
        "-h",
    ),
    *("[red]", "<b>", "%s", "${HOME}", "$(id)", "`id`", ";", "\t", "tab", "99999999999999999999", "true", "None", "\n"),
]
_GOOD_WORDS = ["1", "2", "0.9", "f1", "csv", "json", "a", "a,b", "0.5,2", "em", "fdr"]  # right for some options
_FLAGS = ("--resume", "--force", "--json", "--no-standardize")
_COMMANDS: list[tuple[str, list[str]]] = [
    ("fit", ["--lam", "--q", "--temperature", "--steps", "--seed", "--query", "--drop", "--delimiter", "--decimal"]),
    ("fit", ["--missing", "--transform", "--resume", "--force", "--json", "--no-standardize"]),
    ("summary", ["--lam", "--q", "--level", "--rule", "--top", "--json"]),
    ("export", ["--format", "--lam", "--q", "--level", "--rule"]),
    ("explore", ["--port", "--nonsense"]),
]


@cache
def fitted_run() -> Path:
    """A finished run to ask; what it learned does not matter."""
    folder = Path(tempfile.mkdtemp(prefix="hostile"))
    (folder / "data.csv").write_text(_GOOD, encoding="utf-8")
    code, wrong = invoke(["fit", str(folder / "data.csv"), "-o", str(folder / "run"), *FIT])
    if code or wrong:
        raise RuntimeError(f"the run for the cases could not be made: {wrong or code}")
    return folder / "run"


def command_case(number: int) -> tuple[str, Callable[[], str | None]]:
    """A command with one or two odd options. Needs `train` and `serve` to be replaced."""
    rng = np.random.default_rng([4, number])
    command, options = _COMMANDS[number % len(_COMMANDS)]
    odd = [option for option in options if rng.uniform() < 1.5 / len(options)] or [options[number % len(options)]]
    choices = _WORDS if rng.uniform() < 0.6 else _GOOD_WORDS
    words = []
    for option in odd:
        words += [option] if option in _FLAGS else [option, choices[int(rng.integers(len(choices)))]]

    def run() -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            if command == "fit":
                (Path(folder) / "data.csv").write_text(_GOOD, encoding="utf-8")
                before = ["fit", f"{folder}/data.csv", "-o", f"{folder}/run", *FIT]
            elif command == "export":
                before = ["export", str(fitted_run()), "-o", f"{folder}/out", "--format", "csv"]
            else:
                before = [command, str(fitted_run())]
            code, wrong = invoke([*before, *words])
            return wrong or (REFUSED if code else None)

    return f"{command} {' '.join(words)[:80]!r}", run


# ---------------------------------------------------------------------------------------------------------------- runs
def _any_json(rng: np.random.Generator) -> Any:
    values = [None, True, -1, 0, 1e308, 10**400, "", "λ", [], {}, [None], {"a": 1}, "\x1b[31m", [[]] * 3, "x" * 10_000]
    return values[int(rng.integers(len(values)))]


def _other_record(rng: np.random.Generator, content: bytes) -> bytes:
    """Entries of run.json, at any depth, of another kind or gone."""
    record = json.loads(content)
    for _ in range(int(rng.integers(1, 4))):
        part = record
        while True:
            keys = list(part) if isinstance(part, dict) else list(range(len(part)))
            if not keys:
                break
            key = keys[int(rng.integers(len(keys)))]
            if isinstance(part[key], dict | list) and part[key] and rng.uniform() < 0.6:
                part = part[key]
                continue
            if rng.uniform() < 0.3:
                del part[key]
            else:
                part[key] = _any_json(rng)
            break
    return json.dumps(record).encode()


def _same(path: Path, whole: Path) -> bool:
    """Whether a file is read as it was written: some bytes of a ZIP archive, such as permissions, mean nothing."""
    (header, arrays), (right, values) = archive.read(path), archive.read(whole)
    return header == right and all(
        name in arrays and np.array_equal(arrays[name], values[name], equal_nan=True) for name in values
    )


def _other_model(rng: np.random.Generator, path: Path) -> None:
    """A model file that is whole, but whose numbers somebody has changed."""
    header, arrays = archive.read(path)
    for name in rng.choice(list(arrays), int(rng.integers(1, 4))).tolist():
        value = rng.choice([np.nan, np.inf, -np.inf, 0.0, -1.0, 1e30, -1e30])
        changed = np.array(arrays[name])
        if changed.dtype.kind == "f" and changed.size:
            changed[(rng.uniform(size=changed.shape) < 0.5) | (rng.uniform() < 0.3)] = value
        arrays[name] = changed
    archive.write(path, header, arrays)


def _damage(rng: np.random.Generator, content: bytes) -> bytes:
    """A bit that is another, or an end that is missing."""
    changed, at = bytearray(content), int(rng.integers(len(content)))
    if rng.uniform() < 0.3:
        del changed[at:]
    else:
        changed[at] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def run_case(number: int) -> tuple[str, Callable[[], str | None]]:
    """A run of which one file was damaged, and a command that reads it. Needs `serve` to be replaced."""
    rng = np.random.default_rng([5, number])
    name = ("run.json", "model.ggmflow")[number % 2]
    formats = [["export", "-f", name] for name in ("csv", "graphml", "json", "netcdf")]
    commands = [["summary"], ["summary", "--json"], ["report"], ["explore"], *formats]
    command, *more = commands[number // 2 % len(commands)]

    def run() -> str | None:
        content, craft = (fitted_run() / name).read_bytes(), rng.uniform() < 0.6
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run"
            shutil.copytree(fitted_run(), path)
            if craft and name == "run.json":
                (path / name).write_bytes(_other_record(rng, content))
            elif craft:
                _other_model(rng, path / name)
            else:
                (path / name).write_bytes(_damage(rng, content))
            code, wrong = invoke([command, str(path), *more])
            if wrong or code:
                return wrong or REFUSED
            read = craft or name == "run.json" or _same(path / name, fitted_run() / name)
            return None if read else "a damaged model was read"

    return f"{command} of a run with a damaged {name} ({number})", run


# --------------------------------------------------------------------------------------------------------- checkpoints
@cache
def _unfinished() -> tempfile.TemporaryDirectory[str]:
    """A table, and a run that was stopped after the first of two chunks."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    folder = tempfile.TemporaryDirectory(prefix="hostile")
    (Path(folder.name) / "data.csv").write_text(_GOOD, encoding="utf-8")
    with mock.patch("ggmflow.estimator.graphical_flow.training_bar", lambda *_: nullcontext(stop)):
        code = CliRunner().invoke(app, _two_chunks(Path(folder.name))).exit_code
    if code != 130 or not (Path(folder.name) / "run" / "checkpoint").exists():
        raise RuntimeError(f"no unfinished run could be made: exit code {code}")
    return folder


def _two_chunks(folder: Path) -> list[str]:
    return ["fit", str(folder / "data.csv"), "-o", str(folder / "run"), *FIT, "--steps", "50"]


def _other_checkpoint(rng: np.random.Generator, path: Path) -> str:
    """A checkpoint that is whole, but not what was written; what was done to it."""
    header, arrays = archive.read(path)
    name = str(rng.choice(list(arrays) if rng.uniform() < 0.6 else ["history", "best"]))
    found, kind = arrays[name], str(rng.choice(["gone", "shape", "dtype", "numbers", "header", "more"]))
    if kind == "gone":
        del arrays[name]
    elif kind == "shape":
        shapes = [found[None], found.ravel()[:-1], np.zeros(0, found.dtype), np.zeros((3, 2), found.dtype)]
        arrays[name] = shapes[int(rng.integers(len(shapes)))]
    elif kind == "dtype":
        arrays[name] = found.astype([np.int64, np.float64, bool][int(rng.integers(3))])
    elif kind == "numbers":
        arrays[name] = np.full_like(found, rng.choice([np.nan, np.inf, -1.0, 1e30]) if found.dtype.kind == "f" else -7)
    elif kind == "more":
        arrays["leaf999"] = np.zeros(2, np.float32)
    else:
        part = header if rng.uniform() < 0.5 else header["identity"]
        name = str(rng.choice(list(part)))
        part[name] = _any_json(rng)
    with suppress(ValueError):  # a number that no header can hold: as it was
        archive.write(path, header, arrays)
    return f"{kind} of {name}"


def checkpoint_case(number: int) -> tuple[str, Callable[[], str | None]]:
    """`ggmflow fit --resume` with a damaged checkpoint; training is real."""
    rng = np.random.default_rng([8, number])
    how = ("craft", "craft", "bytes", "other")[number % 4]

    def run() -> str | None:
        whole = Path(_unfinished().name)
        with tempfile.TemporaryDirectory() as name:
            folder, told, hopeless = Path(name) / "copy", how, True
            shutil.copytree(whole, folder)
            checkpoint = folder / "run" / "checkpoint"
            if how == "craft":
                told = _other_checkpoint(rng, checkpoint)
                # Other numbers in their place cannot be told from right ones; what was put beside them does no harm.
                hopeless = not told.startswith(("numbers", "more")) and not _same(checkpoint, whole / "run/checkpoint")
            elif how == "bytes":
                checkpoint.write_bytes(_damage(rng, checkpoint.read_bytes()))
                with suppress(archive.ModelFileError):
                    hopeless = not _same(checkpoint, whole / "run/checkpoint")
            else:
                checkpoint.unlink()
                hopeless = bool(other := number // 4 % 3)  # without any a fit begins anew
                if other == 1:
                    checkpoint.mkdir()
                elif other == 2:
                    checkpoint.write_bytes(pickle.dumps({"a": [1, 2]}))
            with mock.patch(
                "ggmflow.estimator.graphical_flow.training_bar", lambda *_: nullcontext(None)
            ):  # it is no message
                code, wrong = invoke([*_two_chunks(folder), "--resume"])
            if wrong or code:
                return f"{told}: {wrong}" if wrong else REFUSED
            if hopeless:
                return f"{told}: a damaged checkpoint was read"
            model = gf.load_run(folder / "run")
            return finite(model.posterior(num_draws=50).mean())

    return f"fit --resume, checkpoint: {how}", run
