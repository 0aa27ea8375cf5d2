"""The rules that choose edges: one entry of `EDGE_RULES` per rule, from which all menus and choices are made.

To add a rule, add a function that selects pairs and an `EdgeRule` to this file. `Posterior.select_edges`, the command
line, the explorer's menu and the report then offer it. This module is light to import: the functions load NumPy and
SciPy through the modules that they use.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, final

from ggmflow.errors.advice import Advice
from ggmflow.errors.argument import ArgumentError, UnknownChoiceError, check_share

if TYPE_CHECKING:
    from ggmflow.posterior.edges import ScoredPairs
    from ggmflow.posterior.two_groups import Chosen, Pairs

DEFAULT = "f1"


class Parameter(NamedTuple):
    """A number that a rule takes.

    Attributes
    ----------
    default
        Its value if none is given.
    help
        One line.
    bounded
        Whether it must be between 0 and 1; otherwise it must be zero or positive.
    """

    default: float
    help: str
    bounded: bool = True


class ChosenPairs(NamedTuple):
    """The result of a rule for m pairs.

    Attributes
    ----------
    chosen : (m,) array of bool
        The edges.
    probability : (m,) array or None
        The rule's own probability of an edge; None if it has none.
    text : str
        The rule with its numbers, for people.
    """

    chosen: "Chosen"
    probability: "Pairs | None"
    text: str


@final
@dataclass(frozen=True)
class EdgeRule:
    """A rule that chooses edges.

    Attributes
    ----------
    key
        Its name in Python and on the command line.
    label
        Its name in menus, with its parameters in braces; bounded ones are shown in percent.
    help
        One line.
    select
        Function of `edges.ScoredPairs` and the parameters, by name, that returns `ChosenPairs`.
    parameters
        By name.
    menu
        Values of the parameters for which menus offer the rule; none: menus do not offer it.
    states_fdr
        Whether the text of a selection states a false discovery rate.
    has_probability
        Whether `select` returns probabilities of an edge.
    explanation
        A sentence for readers of a report, with its parameters in braces as in `label`; empty: `help`.
    """

    key: str
    label: str
    help: str
    select: "Callable[..., ChosenPairs]"
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    menu: tuple[Mapping[str, float], ...] = ({},)
    states_fdr: bool = False
    has_probability: bool = False
    explanation: str = ""

    @property
    def defaults(self) -> dict[str, float]:
        """Default values of the parameters."""
        return {name: parameter.default for name, parameter in self.parameters.items()}

    def title(self, values: Mapping[str, float] | None = None) -> str:
        """The label with given values of the parameters, otherwise the defaults; the default rule is marked.

        Examples
        --------
        >>> EDGE_RULES["interval"].title({"level": 0.8})
        '80 % interval excludes zero'
        """
        return self._filled(self.label, values) + (" (default)" if self.key == DEFAULT else "")

    def explain(self, values: Mapping[str, float] | None = None) -> str:
        """The explanation with given values of the parameters, otherwise the defaults."""
        return self._filled(self.explanation, values) if self.explanation else f"{self.help}."

    def _filled(self, text: str, values: Mapping[str, float] | None) -> str:
        """The text with the parameters in place of their names in braces."""
        shown = {
            name: f"{100 * number:g} %" if self.parameters[name].bounded else f"{number:g}"
            for name, number in (self.defaults | dict(values or {})).items()
        }
        return text.format(**shown)


class MenuEntry(NamedTuple):
    """A rule as menus offer it.

    Attributes
    ----------
    key
        Key of the rule.
    parameters
        Values of its parameters; a parameter that is missing has its default.
    """

    key: str
    parameters: Mapping[str, float]

    @property
    def value(self) -> str:
        """Identifies the entry in a menu."""
        return " ".join([self.key, *(f"{name}={number!r}" for name, number in self.parameters.items())])

    @property
    def label(self) -> str:
        """Text of the entry."""
        return EDGE_RULES[self.key].title(self.parameters)


# ------------------------------------------------------------------------------------------------------------ the rules
def _highest_f1(scored: "ScoredPairs") -> ChosenPairs:
    from ggmflow.posterior.two_groups import best_f1

    chosen = best_f1(scored.probability, scored.share)
    text = f"highest expected F1, two-group model: {scored.smallest(chosen)}"
    if chosen.any():
        text += f", expected false discovery rate {scored.expected_fdr(chosen):.2f}"
        if scored.could_be_empty:
            text += "; the scores could be those of a graph without edges"
    return ChosenPairs(chosen, scored.probability, text)


def _interval(scored: "ScoredPairs", level: float) -> ChosenPairs:
    chosen = scored.draws.excludes_zero([(1 - level) / 2, (1 + level) / 2])[scored.entries]
    return ChosenPairs(chosen, None, f"{100 * level:g} % credible interval excludes zero")


def _false_discovery_rate(scored: "ScoredPairs", rate: float) -> ChosenPairs:
    from ggmflow.posterior.two_groups import largest_set

    chosen = largest_set(1 - scored.probability, rate)
    text = f"expected false discovery rate ≤ {rate:g}, two-group model: {scored.smallest(chosen)}"
    return ChosenPairs(chosen, scored.probability, text)


def _probability(scored: "ScoredPairs", threshold: float, cut: float) -> ChosenPairs:
    probability = scored.draws.edge_probability(threshold)[scored.entries]
    return ChosenPairs(probability > cut, probability, f"P(|association| > {threshold:g}) > {cut:g}")


_RATE = Parameter(0.1, "highest expected share of false edges")
_THRESHOLD = Parameter(0.1, "size of an association that counts", bounded=False)
_CUT = Parameter(0.5, "probability above which a pair is an edge")

EDGE_RULES: dict[str, EdgeRule] = {
    rule.key: rule
    for rule in (
        EdgeRule(
            "f1",
            "Highest expected F1",
            "the set of highest expected F1 in a two-group model of all pairs",
            _highest_f1,
            states_fdr=True,
            has_probability=True,
            explanation="It compares each pair with the distribution expected for pairs without an edge, and balances "
            "missed edges against false ones.",
        ),
        EdgeRule(
            "interval",
            "{level} interval excludes zero",
            "the credible interval excludes zero, the paper's rule",
            _interval,
            {"level": Parameter(0.9, "level of the credible intervals")},
            menu=({"level": 0.8}, {"level": 0.9}, {"level": 0.95}),
            explanation="A pair is an edge if its {level} credible interval excludes zero; other pairs do not matter.",
        ),
        EdgeRule(
            "fdr",
            "False discovery rate at most {rate}",
            f"the largest set whose expected false discovery rate in the two-group model is at most {_RATE.default:g}",
            _false_discovery_rate,
            {"rate": _RATE},
            states_fdr=True,
            has_probability=True,
            explanation="The largest set of pairs of which at most {rate} are expected to be false.",
        ),
        EdgeRule(
            "probability",
            "P(|association| > {threshold}) above {cut}",
            f"P(|association| > {_THRESHOLD.default:g}) is above {_CUT.default:g}",
            _probability,
            {"threshold": _THRESHOLD, "cut": _CUT},
            menu=(),
            has_probability=True,
        ),
    )
}


# ------------------------------------------------------------------------------------------------------ finding a rule
def find_rule(key: str | None = None, **given: float | None) -> tuple[EdgeRule, dict[str, float]]:
    """A rule and the values of its parameters; raise if the rule is unknown or a value not allowed.

    Parameters
    ----------
    key
        Key of the rule. None: the first rule with one of the given parameters; without any, the default rule.
    **given
        Values of parameters; None means the default.
    """
    values = {name: value for name, value in given.items() if value is not None}
    if key is None:
        key = next((each.key for each in EDGE_RULES.values() if values.keys() & each.parameters.keys()), DEFAULT)
    if not isinstance(key, str) or key not in EDGE_RULES:
        raise UnknownChoiceError("rule", key, tuple(EDGE_RULES))
    rule = EDGE_RULES[key]
    for name, value in values.items():
        if name not in rule.parameters:
            known = f"takes {' and '.join(rule.parameters)}" if rule.parameters else "takes no numbers"
            owner = next((each.key for each in EDGE_RULES.values() if name in each.parameters), None)
            advice = Advice("it belongs to", {"rule": owner}) if owner else None
            raise ArgumentError("rule", key, reason=f"{known}, but {name} was given", advice=advice)
        if rule.parameters[name].bounded:
            check_share(name, value)
        elif isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < math.inf:
            raise ArgumentError(name, value, "be a number zero or positive")
    return rule, rule.defaults | {name: float(value) for name, value in values.items()}


def own_parameters(key: str, **given: float) -> dict[str, Any]:
    """Those of the given values that are parameters of the rule; raise if the rule is unknown.

    Examples
    --------
    >>> own_parameters("interval", level=0.8, threshold=0.1), own_parameters("f1", level=0.8)
    ({'level': 0.8}, {})
    """
    parameters = find_rule(key)[0].parameters
    return {name: value for name, value in given.items() if name in parameters}


def menu_entries() -> dict[str, MenuEntry]:
    """All entries of a menu, by their values."""
    entries = (MenuEntry(rule.key, values) for rule in EDGE_RULES.values() for values in rule.menu)
    return {entry.value: entry for entry in entries}
