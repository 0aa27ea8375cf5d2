"""Markov blankets of clinical variables among genes, in three real tables."""

from experiments.paper.blanket.figures import figures
from experiments.paper.blanket.words import section, verdicts
from experiments.paper.blanket.work import FULL, QUICK, jobs

__all__ = ["FULL", "QUICK", "figures", "jobs", "section", "verdicts"]
