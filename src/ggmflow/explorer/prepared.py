"""The model with everything that all pages of one explorer share."""

from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Float

from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.explorer.late_surface import LateSurface
from ggmflow.views import pairs
from ggmflow.views.layout import network_layout
from ggmflow.views.surface import Surface, evidence_surface


class Prepared(NamedTuple):
    """A model with everything that all pages share.

    Attributes
    ----------
    model
        Fitted.
    positions : (d, 2) array
        Positions of the nodes.
    surface
        Evidence over (λ, q); None if it is not known.
    start : (λ, q, T)
        The condition at which a page opens: that of highest evidence, else the middle of the ranges.
    data_name : str or None
        Name of the data, usually that of their file; None if it is not known.
    late : LateSurface or None
        The evidence, if it is computed while pages are open.
    """

    model: GraphicalFlow
    positions: Float[np.ndarray, "d 2"]
    surface: Surface | None
    start: tuple[float, float, float]
    data_name: str | None = None
    late: LateSurface | None = None

    def completed(self) -> Self:
        """The same, with the evidence that has been computed meanwhile, and its maximum as the start."""
        surface = self.late.surface if self.surface is None and self.late is not None else None
        if surface is None:
            return self
        return self._replace(surface=surface, start=(surface.best.lam, surface.best.q, self.start[2]))


def prepare(model: GraphicalFlow, *, evidence: bool = True, data_name: str | None = None) -> Prepared:
    """Compute everything that all pages share, and compile the programs that they run.

    Parameters
    ----------
    model
        Fitted.
    evidence
        Whether to compute the evidence surface; the first time for a number of variables this takes a while.
    data_name
        Name of the data on the page, for example that of their file.
    """
    # Low temperatures need double precision, which is another program: the first move there would have to compile it.
    for temperature in {*model.temperature_range_}:
        for quick in (True, False):
            pairs.view(model, temperature=temperature, num_draws=pairs.num_draws_of(model, quick))
    surface = evidence_surface(model) if evidence else None
    lam, q, temperature = pairs.middle(model)
    if surface is not None:
        lam, q, _ = surface.best
    return Prepared(model, network_layout(model), surface, (lam, q, temperature), data_name)
