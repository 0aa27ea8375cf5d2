"""Markov blankets of clinical variables among genes, in three real tables."""

from ggmflow.reproduce.blanket.figures import figures
from ggmflow.reproduce.blanket.words import section, verdicts
from ggmflow.reproduce.blanket.work import FULL, QUICK, jobs

__all__ = ["FULL", "QUICK", "figures", "jobs", "section", "verdicts"]
