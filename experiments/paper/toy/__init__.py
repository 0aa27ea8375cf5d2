"""The paper's toy problem, d = n = 15: intervals, paths of modes, choice of λ, both architectures."""

from experiments.paper.toy.figures import figures
from experiments.paper.toy.words import section, verdicts
from experiments.paper.toy.work import FULL, QUICK, jobs

__all__ = ["FULL", "QUICK", "figures", "jobs", "section", "verdicts"]
