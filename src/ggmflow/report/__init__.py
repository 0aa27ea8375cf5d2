"""One self-contained HTML file with the answer of a fit: network, edges, choice of λ and q, how far to trust it."""

from ggmflow.report.page import write_report

__all__ = ["write_report"]
