"""Hostile input: tables, parameters, questions and files of every wrong kind. How many are there, and how many fail?

    python -m benchmarks.trust --only hostile [--quick]

An input fails unless it gets a right answer, or an error that this package raised on purpose: a ValueError, TypeError
or FloatingPointError (or one of their kind) by a `raise` of its own, with a message. NaN, a hang, a crash or a
traceback of the command line is a failure. Cases are numbered; the same number is the same case, and failures are
printed with theirs.
"""

import faulthandler
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import sklearn
from bokeh.document import Document

import ggmflow
from benchmarks.trust import Row, hostile_files, hostile_fits, hostile_questions
from benchmarks.trust.hostile_files import REFUSED
from benchmarks.trust.hostile_tables import Case, case, clean, hopeless, right_scatter
from ggmflow.data.scatter import Scatter
from ggmflow.train.loop import CHUNK, Report, Trained

Attempt = tuple[str, Callable[[], str | None]]
# Errors may also come from scikit-learn, whose checks an estimator has to use; they name X and its features.
_OURS = tuple(str(Path(str(package.__file__)).parent) for package in (ggmflow, sklearn))
SECONDS = 300  # of one case; compiling on a busy machine takes some of them
PATIENCE = 60  # more seconds, after which compiled code must have come back to hear that


class Hang(BaseException):
    """A case took too long. No Exception, so that nobody takes it for one of theirs."""


def outcome(attempt: Callable[[], str | None], seconds: int = SECONDS) -> str | None:
    """How a case ended: None for a right answer, `REFUSED` for a clear error, else what is wrong.

    An alarm stops what runs in Python. Compiled code does not hear it: if a case is still there a minute later, the
    whole program ends, with a traceback that tells where it was.
    """

    def ring(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    if "pytest" not in sys.modules:  # which has a use of its own for it
        faulthandler.dump_traceback_later(seconds + PATIENCE, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return attempt()
    except Hang:
        return f"more than {seconds} s"
    except (ValueError, TypeError, FloatingPointError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        if not last.filename.startswith(_OURS) or not (last.line or "").startswith("raise"):
            return f"{type(error).__name__} from {Path(last.filename).name}:{last.lineno}: {str(error)[:100]}"
        return REFUSED if len(str(error)) > 15 else f"says only {str(error)!r}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]}"
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def no_training() -> Iterator[None]:
    """Fits without training, and an explorer that makes its page and ends, for what does not depend on them."""

    def train(flow: Any, *_: Any, snapshot_at: Any = (), **__: Any) -> Trained:
        return Trained(flow, {at: flow for at in snapshot_at}, [Report(CHUNK, CHUNK, 0.0, 1.0, 0)], "finished")

    def look(model: Any, **_: Any) -> None:
        from ggmflow.explorer import make_document, prepare

        make_document(Document(), prepare(model))

    with (
        mock.patch("ggmflow.estimator.graphical_flow.train", train),
        mock.patch("ggmflow.evidence.prior.train", train),
        # Priors that were not trained are kept nowhere.
        mock.patch("ggmflow.evidence.prior._cache_path", lambda *_: None),
        mock.patch("ggmflow.evidence.prior._known", {}),
        mock.patch("ggmflow.explorer.serve", look),
        tempfile.TemporaryDirectory(prefix="hostile") as folder,
        mock.patch("tempfile.tempdir", folder),
    ):
        hostile_files.fitted_run.cache_clear()
        yield
        hostile_files.fitted_run.cache_clear()


# --------------------------------------------------------------------------------------------------------------- tables
def table_case(number: int) -> Attempt:
    """A table to `Scatter.from_data`, with what is right for it."""
    found = case(number)
    return f"table {found.options}", lambda: check_scatter(found)


def check_scatter(found: Case) -> str | None:
    """Read a table and compare; a table with nothing wrong about it must not be refused."""
    repeated = found.names is not None and len(set(found.names)) < len(found.names)
    values = None if repeated else found.values
    rows = None if values is None else clean(values, found.options)
    try:
        scatter = Scatter.from_data(found.X, **found.options)
    except (ValueError, TypeError) as error:
        if rows is not None:
            return f"a proper table was refused: {str(error)[:100]}"
        raise
    if values is None or hopeless(values, found.options):
        return "it was accepted"
    S, n = scatter.matrix, scatter.n
    if not all(np.isfinite(each).all() for each in (S, scatter.mean, scatter.scale)):
        return "not finite"
    if found.names is not None and scatter.names != tuple(found.names):
        return "other names"
    sd = np.sqrt(np.diag(S) / n)
    if not np.array_equal(S, S.T) or np.linalg.eigvalsh(S / n / sd / sd[:, None])[0] < -1e-6:
        return "not symmetric and positive semi-definite"
    if rows is None or np.isnan(rows).any():
        return None  # at the edge of what can be used, or estimated by EM
    right, spread = right_scatter(rows, found.options)
    if n != len(rows) or np.abs(S / n / sd / sd[:, None] - right).max() > 1e-7:
        return "wrong numbers"
    expected = np.ones_like(sd) if found.options["standardize"] else spread
    return None if np.abs(sd / expected - 1).max() < 1e-7 else "wrong scale"


# ----------------------------------------------------------------------------------------------------------------- all
# What, how to make a case, how many in full and quickly, whether without training.
KINDS: list[tuple[str, Callable[[int], Attempt], int, int, bool]] = [
    ("tables to sufficient statistics", table_case, 20_000, 600, True),
    ("parameters of a fit", hostile_questions.parameter_case, 3_000, 100, True),
    ("questions to a model", hostile_questions.question_case, 3_000, 60, False),
    ("files to ggmflow fit", hostile_files.fit_case, 800, 60, True),
    ("options of the commands", hostile_files.command_case, 800, 50, True),
    ("damaged runs to the commands", hostile_files.run_case, 600, 40, True),
    ("damaged checkpoints to --resume", hostile_files.checkpoint_case, 120, 8, False),
    ("files to the program itself", hostile_files.in_a_process, 12, 1, False),
    ("fits", hostile_fits.fit_case, 210, 6, False),
    ("fits at the ends of what is allowed", hostile_fits.end_case, len(hostile_fits.END_CASES), 12, False),
    ("fits whose answer is known", hostile_fits.right_case, 30, 2, False),
]


class Tried(NamedTuple):
    """How cases ended: how many with a right answer and with a clear error, and what went wrong in the others."""

    answered: int
    refused: int
    failed: list[str]

    @property
    def count(self) -> int:
        """How many were tried."""
        return self.answered + self.refused + len(self.failed)


def attempt_all(make: Callable[[int], Attempt], count: int) -> Tried:
    """Try the first `count` cases of a kind."""
    answered, refused, failed = 0, 0, []
    for number in range(count):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old ways to hold numbers, which are among the cases
            name, attempt = make(number)
        ended = outcome(attempt)
        answered += ended is None
        refused += ended == REFUSED
        if ended not in (None, REFUSED):
            failed.append(f"{number}: {name}: {ended}")
    return Tried(answered, refused, failed)


def measure(quick: bool) -> list[Row]:
    """Count inputs and failures of each kind."""
    rows, total = [], 0
    for what, make, full, few, untrained in KINDS:
        with no_training() if untrained else nullcontext():
            tried = attempt_all(make, few if quick else full)
        for line in tried.failed:
            print(f"FAILED {what} {line}", file=sys.stderr)
        told = f"{len(tried.failed)} failures; {tried.answered} answers, {tried.refused} clear errors"
        rows.append(Row(f"{what}, {tried.count} inputs", told, "0 failures", not tried.failed))
        total += tried.count
    rows.append(Row("hostile inputs in all", f"{total}"))
    return rows
