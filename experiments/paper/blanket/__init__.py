"""Markov blankets of clinical variables among genes, in three real tables."""

from experiments.paper.blanket.figures import figures
from experiments.paper.blanket.jobs import FULL, QUICK, make_jobs
from experiments.paper.blanket.tables import page_tables

__all__ = ["FULL", "QUICK", "figures", "make_jobs", "page_tables"]
