"""Edges found, against many true graphs and many methods."""

from ggmflow.reproduce.edges.figures import figures
from ggmflow.reproduce.edges.words import section, verdicts
from ggmflow.reproduce.edges.work import FULL, QUICK, jobs

__all__ = ["FULL", "QUICK", "figures", "jobs", "section", "verdicts"]
