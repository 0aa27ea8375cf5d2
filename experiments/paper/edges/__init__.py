"""Edges found, compared with many true graphs and many methods."""

from experiments.paper.edges.figures import figures
from experiments.paper.edges.jobs import FULL, QUICK, make_jobs
from experiments.paper.edges.tables import page_tables

__all__ = ["FULL", "QUICK", "figures", "make_jobs", "page_tables"]
