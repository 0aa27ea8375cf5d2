"""Conditional flows over precision matrices. A new architecture is registered here, in one line."""

from ggmflow.flow.base import register
from ggmflow.flow.paper import PaperFlow
from ggmflow.flow.structured import StructuredFlow

register(StructuredFlow)
register(PaperFlow)
