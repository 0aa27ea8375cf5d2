"""What the whole continuum of (λ, q) costs, beside samplers that are run anew for every point."""

from experiments.paper.runtime.figures import figures
from experiments.paper.runtime.words import section, verdicts
from experiments.paper.runtime.work import FULL, QUICK, jobs

__all__ = ["FULL", "QUICK", "figures", "jobs", "section", "verdicts"]
