"""Hostile input: tables, parameters, questions and files of every wrong kind, and a judge of the outcome.

An input fails unless it gets a correct answer, or an error that this package raised on purpose: a ValueError, TypeError
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
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import sklearn
from bokeh.document import Document

import ggmflow
from ggmflow.data.scatter import Scatter
from ggmflow.train.loop import CHUNK, Report, Trained
from tests.support import hostile_commands, hostile_files, hostile_fits, hostile_questions
from tests.support.hostile_files import REFUSED
from tests.support.hostile_tables import Case, case, clean, hopeless, right_scatter

Attempt = tuple[str, Callable[[], str | None]]
# Errors may also come from scikit-learn, whose checks an estimator has to use; they name X and its features.
_OURS = tuple(str(Path(str(package.__file__)).parent) for package in (ggmflow, sklearn))
SECONDS = 300  # of one case; compiling on a busy machine takes some of them
PATIENCE = 60  # further seconds until compiled code must have returned


class Hang(BaseException):
    """A case took too long. Not an Exception, so that no handler catches it."""


def outcome(attempt: Callable[[], str | None], seconds: int = SECONDS) -> str | None:
    """How a case ended: None for a correct answer, `REFUSED` for a clear error, else a description of the failure.

    An alarm stops what runs in Python. Compiled code does not hear it: if a case is still there a minute later, the
    whole program ends, with a traceback that tells where it was.
    """

    def ring(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    if "pytest" not in sys.modules:  # pytest uses faulthandler itself
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
    """Skip training, and let the explorer build its page and end, for cases that do not depend on them."""

    def train(flow: Any, *_: Any, snapshot_at: Any = (), **__: Any) -> Trained:
        return Trained(flow, {at: flow for at in snapshot_at}, [Report(CHUNK, CHUNK, 0.0, 1.0, 0)], "finished")

    def build_page(model: Any, **_: Any) -> None:
        from ggmflow.explorer import make_document, prepare

        make_document(Document(), prepare(model))

    with (
        mock.patch("ggmflow.estimator.graphical_flow.fit_flow", train),
        mock.patch("ggmflow.evidence.prior.fit_flow", train),
        # Do not cache priors that were not trained.
        mock.patch("ggmflow.evidence.prior._cache_path", lambda *_: None),
        mock.patch("ggmflow.evidence.prior._known", {}),
        mock.patch("ggmflow.explorer.serve", build_page),
        tempfile.TemporaryDirectory(prefix="hostile") as folder,
        mock.patch("tempfile.tempdir", folder),
    ):
        hostile_commands.fitted_run.cache_clear()
        yield
        hostile_commands.fitted_run.cache_clear()


# --------------------------------------------------------------------------------------------------------------- tables
def table_case(number: int) -> Attempt:
    """A table for `Scatter.from_data`, with the expected statistics."""
    found = case(number)
    return f"table {found.options}", lambda: check_scatter(found)


def check_scatter(found: Case) -> str | None:
    """Read a table and compare; raising on a proper table is a failure."""
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
    S, n = scatter.matrix, scatter.n_rows
    if not all(np.isfinite(each).all() for each in (S, scatter.mean, scatter.scale)):
        return "not finite"
    if found.names is not None and scatter.names != tuple(found.names):
        return "other names"
    sd = np.sqrt(np.diag(S) / n)
    if not np.array_equal(S, S.T) or np.linalg.eigvalsh(S / n / sd / sd[:, None])[0] < -1e-6:
        return "not symmetric and positive semi-definite"
    if rows is None or np.isnan(rows).any():
        return None  # at the limit of usable tables, or estimated by EM
    right, spread = right_scatter(rows, found.options)
    if n != len(rows) or np.abs(S / n / sd / sd[:, None] - right).max() > 1e-7:
        return "wrong numbers"
    expected = np.ones_like(sd) if found.options["standardize"] else spread
    return None if np.abs(sd / expected - 1).max() < 1e-7 else "wrong scale"


# ----------------------------------------------------------------------------------------------------------------- all
class Kind(NamedTuple):
    """A kind of hostile input.

    Attributes
    ----------
    name
        For people.
    make
        Case by number.
    full, quick
        Number of cases in a full and in a quick run.
    untrained
        Whether fits go without training.
    """

    name: str
    make: Callable[[int], Attempt]
    full: int
    quick: int
    untrained: bool


KINDS = [
    Kind("tables to sufficient statistics", table_case, 20_000, 600, True),
    Kind("parameters of a fit", hostile_questions.parameter_case, 3_000, 100, True),
    Kind("questions to a model", hostile_questions.question_case, 3_000, 60, False),
    Kind("files to ggmflow fit", hostile_files.fit_case, 800, 60, True),
    Kind("options of the commands", hostile_commands.command_case, 800, 50, True),
    Kind("damaged runs to the commands", hostile_commands.run_case, 600, 40, True),
    Kind("damaged checkpoints to --resume", hostile_commands.checkpoint_case, 120, 8, False),
    Kind("files to the program itself", hostile_files.in_a_process, 12, 1, False),
    Kind("fits", hostile_fits.fit_case, 210, 6, False),
    Kind("fits at the ends of what is allowed", hostile_fits.end_case, len(hostile_fits.END_CASES), 12, False),
    Kind("fits whose answer is known", hostile_fits.right_case, 30, 2, False),
]


class Tried(NamedTuple):
    """Numbers of correct answers and clear errors, and descriptions of all failures."""

    answered: int
    refused: int
    failed: list[str]

    @property
    def count(self) -> int:
        """Number of cases."""
        return self.answered + self.refused + len(self.failed)


def attempt_all(make: Callable[[int], Attempt], count: int) -> Tried:
    """Try the first `count` cases of a kind."""
    answered, refused, failed = 0, 0, []
    for number in range(count):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated containers are among the cases
            name, attempt = make(number)
        ended = outcome(attempt)
        answered += ended is None
        refused += ended == REFUSED
        if ended not in (None, REFUSED):
            failed.append(f"{number}: {name}: {ended}")
    return Tried(answered, refused, failed)
