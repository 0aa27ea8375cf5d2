"""`python -m ggmflow` is the command line."""

from ggmflow.cli import app

app(prog_name="python -m ggmflow")
