"""The paper's toy problem, d = n = 15: intervals, paths of modes, choice of λ, both architectures."""

from ggmflow.reproduce.toy.figures import figures
from ggmflow.reproduce.toy.words import section, verdicts
from ggmflow.reproduce.toy.work import FULL, QUICK, jobs

__all__ = ["FULL", "QUICK", "figures", "jobs", "section", "verdicts"]
