"""The paper's toy problem, d = n = 15: intervals, paths of modes, choice of λ, both architectures."""

from experiments.paper.toy.figures import figures
from experiments.paper.toy.jobs import make_jobs
from experiments.paper.toy.settings import FULL, QUICK
from experiments.paper.toy.tables import page_tables

__all__ = ["FULL", "QUICK", "figures", "make_jobs", "page_tables"]
