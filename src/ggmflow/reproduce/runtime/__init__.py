"""What the whole continuum of (λ, q) costs, beside samplers that are run anew for every point."""

from ggmflow.reproduce.runtime.figures import figures
from ggmflow.reproduce.runtime.words import section, verdicts
from ggmflow.reproduce.runtime.work import FULL, QUICK, jobs

__all__ = ["FULL", "QUICK", "figures", "jobs", "section", "verdicts"]
