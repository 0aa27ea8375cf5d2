"""State of a page: condition, edge rule, selected variable or pair, order of the table.

λ, q and T are rounded to the digits of the line of Python on the page, so the page shows exactly
``model.posterior(lam, q, temperature, num_draws=...)`` of that line.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int

from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.posterior.edge_rules import MenuEntry, menu_entries
from ggmflow.views.pairs import View

RULES = menu_entries()  # value in the menu of edge rules → rule and parameters
_LEVEL = 0.9  # of the intervals, for rules without a level
# Columns of the table of edges, with their titles.
COLUMNS = {
    "row": "variable",
    "column": "variable",
    "association": "assoc.",
    "lower": "lower",
    "upper": "upper",
    "shown": "P(edge)",
}


@dataclass
class State:
    """State of a page.

    Attributes
    ----------
    condition : (λ, q, T)
    rule : MenuEntry
        The edge rule and its parameters.
    node, pair : int or None
        The selected variable, or the selected row of `View.pairs`; at most one of them is set.
    pinned : set of int
        Variables that were searched for, which are drawn even without edges.
    sorted_by : str
        Column of the table of edges, a key of `COLUMNS`.
    descending : bool
    """

    condition: tuple[float, float, float]
    rule: MenuEntry = field(default_factory=lambda: next(iter(RULES.values())))
    node: int | None = None
    pair: int | None = None
    pinned: set[int] = field(default_factory=set)
    sorted_by: str = "association"
    descending: bool = True

    @property
    def level(self) -> float:
        """Level of the intervals: that of the rule, if it has one."""
        return self.rule.parameters.get("level", _LEVEL)

    def select(self, *, node: int | None = None, pair: int | None = None) -> None:
        """Select a variable, a pair, or nothing."""
        self.node, self.pair = node, pair

    def sort(self, column: str) -> None:
        """Sort the table by this column, in the opposite order if it is sorted by it already."""
        is_number = column not in ("row", "column")
        self.descending = not self.descending if column == self.sorted_by else is_number
        self.sorted_by = column

    def strongest(self, view: View, most: int) -> Int[np.ndarray, " k"]:
        """Pairs whose intervals are shown: those of the selected variable, else the edges, else all; strongest first.

        Parameters
        ----------
        view
            The view they are taken from.
        most
            The number of pairs shown; the selected pair comes first if it is not among them.

        Returns
        -------
        (k,) array of int
            Rows of `View.pairs`.
        """
        pairs = view.pairs
        if self.node is not None:
            shown = np.flatnonzero(((pairs["i"] == self.node) | (pairs["j"] == self.node)).to_numpy())
        elif view.n_edges:
            shown = np.flatnonzero(pairs["edge"].to_numpy())
        else:
            shown = np.arange(len(pairs))
        shown = shown[np.argsort(-pairs["association"].abs().to_numpy()[shown], kind="stable")]
        if self.pair is not None and self.pair not in shown[:most]:
            shown = np.append(self.pair, shown)
        return shown


def rounded_condition(
    model: GraphicalFlow, log_lam: float, q: float, log_temperature: float
) -> tuple[float, float, float]:
    """λ, q and T as the line of Python on the page has them.

    Parameters
    ----------
    model
        Fitted.
    log_lam, q, log_temperature
        Values of the sliders; logarithms to base 10.
    """
    lam = _rounded(10.0**log_lam, 4, "g", model.lam_range_)
    q = _rounded(q, 3, "f", model.q_range_)
    T = _rounded(10.0**log_temperature, 3, "g", model.temperature_range_)
    if known := model.temperatures_:  # the published architecture has two temperatures
        T = min(known, key=lambda each: abs(np.log(each / T)))
    return lam, q, T


def _rounded(value: float, digits: int, kind: str, ends: tuple[float, float]) -> float:
    """The number with so many digits (kind "g") or decimals ("f"), or with as many more as keep it in the range."""
    value = float(np.clip(value, *ends))
    found = (float(f"{value:.{more}{kind}}") for more in range(digits, 18))
    return next((each for each in found if ends[0] <= each <= ends[1]), value)
