"""Edges found, compared with many true graphs and many methods."""

from experiments.paper.edges.figures import figures
from experiments.paper.edges.jobs import FULL, QUICK, jobs
from experiments.paper.edges.tables import page_tables

__all__ = ["FULL", "QUICK", "figures", "jobs", "page_tables"]
