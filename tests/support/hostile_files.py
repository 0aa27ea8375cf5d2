"""Tables that somebody might pass to `ggmflow fit`, broken in every way.

    table_file(number), fit_case(number)

The same number gives the same case.

The command must end with success, or with an exit code of 1 or 2 and one line that begins with "Error: ".
"""

import gzip
import io
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from typer.testing import CliRunner

import ggmflow as gf
from ggmflow.cli.app import app
from tests.support.hostile_tables import NAMES, clean, right_scatter

FIT = ["--lam", "2", "--q", "1", "--temperature", "1", "--steps", "25"]
REFUSED = "refused"  # outcome of a case that ended with a clear error
_HARMLESS = {"standardize": True, "transform": None, "missing": "error"}


class TableFile(NamedTuple):
    """A file for `ggmflow fit`.

    Attributes
    ----------
    how
        Description.
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
    """CSV text; fields are quoted where necessary, or always."""

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
# Fields that are never numbers, and missing values.
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
    """A proper table with bytes changed, removed, repeated or inserted."""
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


GOOD_TABLE = "a,b,c\n1,2,4\n2,1,9\n3,5,1\n5,5,5\n"


@cache
def _strange() -> list[tuple[str, bytes]]:
    """Content that is not a table, or hardly one."""
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
        ("two byte order marks", b"\xef\xbb\xbf\xef\xbb\xbf" + GOOD_TABLE.encode()),
        ("UTF-16", GOOD_TABLE.encode("utf-16")),
        ("UTF-16, big end first, no mark", GOOD_TABLE.encode("utf-16-be")),
        ("UTF-32", GOOD_TABLE.encode("utf-32")),
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
        ("compressed", gzip.compress(GOOD_TABLE.encode())),
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
    return None if np.abs(scatter.matrix / scatter.n_rows - right).max() < 1e-9 else "wrong numbers"


def invoke(arguments: list[str]) -> tuple[int, str | None]:
    """Run a command in this process; return its exit code, and a description if it ended badly."""
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return 1, f"traceback of {type(result.exception).__name__}: {str(result.exception)[:100]}"
    return result.exit_code, ended_badly(result.exit_code, result.stderr)


def ended_badly(code: int, stderr: str) -> str | None:
    """Describe a bad exit code or error output; None if both are as they should be."""
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
    """`ggmflow fit`, started as users start it, on a file that is not a table."""
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
    """The environment with absolute paths, because the program runs in another directory."""
    paths = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
