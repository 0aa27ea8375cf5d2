"""The cost of the whole continuum of (λ, q), compared with samplers that are run again for every point."""

from experiments.paper.runtime.figures import figures
from experiments.paper.runtime.jobs import make_jobs
from experiments.paper.runtime.settings import FULL, QUICK
from experiments.paper.runtime.tables import page_tables

__all__ = ["FULL", "QUICK", "figures", "make_jobs", "page_tables"]
