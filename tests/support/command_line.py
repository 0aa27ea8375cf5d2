"""A table with known edges, and the commands as users type them."""

import re

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from ggmflow.cli.app import app

run = CliRunner().invoke


# a → b → c, and d by itself: edges that any rule finds.
NOISE = np.random.default_rng(0).standard_normal((50, 4))
TABLE = pd.DataFrame(np.c_[NOISE[:, 0], NOISE[:, :2].sum(1), NOISE[:, :3].sum(1), NOISE[:, 3]], columns=list("abcd"))
FIT = ["--lam", "0.5,8", "--steps", "100"]


def refused(arguments, message, code=2):
    """One line on standard error, nothing on standard output."""
    result = run(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    assert not result.stdout
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1, result.stderr
    assert re.search(message, result.stderr), result.stderr


AT_CONDITION = (["summary"], ["report"], ["export", "--format", "csv"])  # commands on a run with --lam and --q
COMMANDS = (*AT_CONDITION, ["explore"])  # commands on a run
