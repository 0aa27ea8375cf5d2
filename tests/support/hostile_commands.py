"""Options, runs and checkpoints that somebody might pass to the commands, broken in every way.

    command_case(number), run_case(number), checkpoint_case(number)

The same number gives the same case.
"""

import json
import pickle
import shutil
import tempfile
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from typer.testing import CliRunner

import ggmflow as gf
from ggmflow.cli.app import app
from ggmflow.storage import archive
from tests.support.hostile_files import FIT, GOOD_TABLE, REFUSED, invoke
from tests.support.hostile_questions import finite

# ----------------------------------------------------------------------------------------------- options and their text
_TEXTS = [
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
_GOOD_TEXTS = ["1", "2", "0.9", "f1", "csv", "json", "a", "a,b", "0.5,2", "em", "fdr"]  # right for some options
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
    """A finished run for the commands; its quality does not matter."""
    folder = Path(tempfile.mkdtemp(prefix="hostile"))
    (folder / "data.csv").write_text(GOOD_TABLE, encoding="utf-8")
    code, wrong = invoke(["fit", str(folder / "data.csv"), "-o", str(folder / "run"), *FIT])
    if code or wrong:
        raise RuntimeError(f"the run for the cases could not be made: {wrong or code}")
    return folder / "run"


def command_case(number: int) -> tuple[str, Callable[[], str | None]]:
    """A command with one or two odd options. Needs `train` and `serve` to be replaced."""
    rng = np.random.default_rng([4, number])
    command, options = _COMMANDS[number % len(_COMMANDS)]
    odd = [option for option in options if rng.uniform() < 1.5 / len(options)] or [options[number % len(options)]]
    choices = _TEXTS if rng.uniform() < 0.6 else _GOOD_TEXTS
    arguments = []
    for option in odd:
        arguments += [option] if option in _FLAGS else [option, choices[int(rng.integers(len(choices)))]]

    def run() -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            if command == "fit":
                (Path(folder) / "data.csv").write_text(GOOD_TABLE, encoding="utf-8")
                before = ["fit", f"{folder}/data.csv", "-o", f"{folder}/run", *FIT]
            elif command == "export":
                before = ["export", str(fitted_run()), "-o", f"{folder}/out", "--format", "csv"]
            else:
                before = [command, str(fitted_run())]
            code, wrong = invoke([*before, *arguments])
            return wrong or (REFUSED if code else None)

    return f"{command} {' '.join(arguments)[:80]!r}", run


# ---------------------------------------------------------------------------------------------------------------- runs
def _any_json(rng: np.random.Generator) -> Any:
    values = [None, True, -1, 0, 1e308, 10**400, "", "λ", [], {}, [None], {"a": 1}, "\x1b[31m", [[]] * 3, "x" * 10_000]
    return values[int(rng.integers(len(values)))]


def _other_record(rng: np.random.Generator, content: bytes) -> bytes:
    """run.json with entries, at any depth, removed or replaced by other types."""
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
    """Change numbers of a model file that stays readable."""
    header, arrays = archive.read(path)
    for name in rng.choice(list(arrays), int(rng.integers(1, 4))).tolist():
        value = rng.choice([np.nan, np.inf, -np.inf, 0.0, -1.0, 1e30, -1e30])
        changed = np.array(arrays[name])
        if changed.dtype.kind == "f" and changed.size:
            changed[(rng.uniform(size=changed.shape) < 0.5) | (rng.uniform() < 0.3)] = value
        arrays[name] = changed
    archive.write(path, header, arrays)


def _damage(rng: np.random.Generator, content: bytes) -> bytes:
    """Flip a bit, or cut off the end."""
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
    (Path(folder.name) / "data.csv").write_text(GOOD_TABLE, encoding="utf-8")
    with mock.patch("ggmflow.estimator.graphical_flow.training_bar", lambda *_: nullcontext(stop)):
        code = CliRunner().invoke(app, _two_chunks(Path(folder.name))).exit_code
    if code != 130 or not (Path(folder.name) / "run" / "checkpoint").exists():
        raise RuntimeError(f"no unfinished run could be made: exit code {code}")
    return folder


def _two_chunks(folder: Path) -> list[str]:
    return ["fit", str(folder / "data.csv"), "-o", str(folder / "run"), *FIT, "--no-pretrained", "--steps", "50"]


def _other_checkpoint(rng: np.random.Generator, path: Path) -> tuple[str, str]:
    """Change a checkpoint that stays readable; return the kind of change and the changed array or entry."""
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
    with suppress(ValueError):  # a number that a header cannot hold: left unchanged
        archive.write(path, header, arrays)
    return kind, name


def checkpoint_case(number: int) -> tuple[str, Callable[[], str | None]]:
    """`ggmflow fit --resume` with a damaged checkpoint; training is real."""
    rng = np.random.default_rng([8, number])
    how = ("craft", "craft", "bytes", "other")[number % 4]

    def run() -> str | None:
        whole = Path(_unfinished().name)
        with tempfile.TemporaryDirectory() as name:
            folder, change, hopeless = Path(name) / "copy", how, True
            shutil.copytree(whole, folder)
            checkpoint = folder / "run" / "checkpoint"
            if how == "craft":
                kind, changed = _other_checkpoint(rng, checkpoint)
                change = f"{kind} of {changed}"
                # Changed numbers cannot be detected, and additional arrays do no harm.
                hopeless = kind not in ("numbers", "more") and not _same(checkpoint, whole / "run/checkpoint")
            elif how == "bytes":
                checkpoint.write_bytes(_damage(rng, checkpoint.read_bytes()))
                with suppress(archive.ModelFileError):
                    hopeless = not _same(checkpoint, whole / "run/checkpoint")
            else:
                checkpoint.unlink()
                hopeless = bool(other := number // 4 % 3)  # without a checkpoint the fit starts again
                if other == 1:
                    checkpoint.mkdir()
                elif other == 2:
                    checkpoint.write_bytes(pickle.dumps({"a": [1, 2]}))
            with mock.patch(
                "ggmflow.estimator.graphical_flow.training_bar", lambda *_: nullcontext(None)
            ):  # the progress bar is not a message
                code, wrong = invoke([*_two_chunks(folder), "--resume"])
            if wrong or code:
                return f"{change}: {wrong}" if wrong else REFUSED
            if hopeless:
                return f"{change}: a damaged checkpoint was read"
            model = gf.load_run(folder / "run")
            return finite(model.posterior(num_draws=50).mean())

    return f"fit --resume, checkpoint: {how}", run
