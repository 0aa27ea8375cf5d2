"""Markov blankets of clinical variables among genes, in three real tables."""

from experiments.paper.blanket.figures import figures
from experiments.paper.blanket.jobs import FULL, QUICK, jobs
from experiments.paper.blanket.tables import page_tables

__all__ = ["FULL", "QUICK", "figures", "jobs", "page_tables"]
