"""Edges found, against many true graphs and many methods."""

from experiments.paper.edges.figures import figures
from experiments.paper.edges.words import section, verdicts
from experiments.paper.edges.work import FULL, QUICK, jobs

__all__ = ["FULL", "QUICK", "figures", "jobs", "section", "verdicts"]
