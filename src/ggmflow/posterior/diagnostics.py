"""How well draws represent the posterior: a verdict, the numbers behind it, and a message made from them."""

import inspect
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from ggmflow.posterior.refinement import Refinement
from ggmflow.posterior.weighted_draws import WeightedDraws
from ggmflow.posterior.weights import ImportanceWeights, Verdict, describe_weights

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_NUMBERS = ("elbo", "log_normalizer", "log_normalizer_se", "ess", "khat")
_OF_CHAINS = ("rhat", "ess_chains", "drift")
_REST = ("num_draws", "weighted", "verdict", "message")

Value = float | int | bool | str | None


class PoorFitWarning(UserWarning):
    """The draws represent the posterior poorly, or few of them are effective; the message says how to improve it."""


@final
@dataclass(frozen=True, eq=False)
class Diagnostics(Mapping[str, Value]):
    """How well the draws behind a posterior represent it. It can be read as a mapping, too: ``found["khat"]``.

    Attributes
    ----------
    verdict : Verdict
        "good", "fair", "poor" or "moving". Exact draws are good, unless they come from chains whose R̂ is 1.01 or more:
        those are "moving".
    num_draws : int
    weighted : bool
        Whether estimates use the importance weights.
    elbo : float or None
        Mean of log p̃ − log q, a lower bound of log Z. p̃ is not normalized, so Z is not the evidence.
    log_normalizer, log_normalizer_se : float or None
        Importance estimate of log Z and its standard error.
    ess : float
        Effective sample size of the importance weights, relative to the number of draws; 1 for exact draws.
    khat : float or None
        Pareto k̂ of the weights. Exact draws have no weights: elbo, log_normalizer, its standard error and k̂ are None.
    num_invalid : int
        Draws without a finite density.
    refinement : Refinement or None
        Convergence of the chains that the draws come from. The mapping then has rhat, ess_chains and drift.
    """

    verdict: Verdict
    num_draws: int
    weighted: bool
    elbo: float | None = None
    log_normalizer: float | None = None
    log_normalizer_se: float | None = None
    ess: float = 1.0
    khat: float | None = None
    num_invalid: int = 0
    refinement: Refinement | None = None

    @property
    def rhat(self) -> float | None:
        """Largest split-R̂ of any entry, after `refine`."""
        return None if self.refinement is None else self.refinement.rhat

    @property
    def ess_chains(self) -> float | None:
        """Smallest effective number of draws of any entry, after `refine`."""
        return None if self.refinement is None else self.refinement.ess

    @property
    def drift(self) -> float | None:
        """The flow's error in standard deviations, after `refine`."""
        return None if self.refinement is None else self.refinement.drift

    @property
    def headline(self) -> str:
        """The verdict as the first words of the message."""
        if self.refinement is not None:
            return "Good" if self.verdict is Verdict.GOOD else "Still moving, use more sweeps"
        return "Exact draws" if self.khat is None else f"{self.verdict.capitalize()} fit"

    @property
    def detail(self) -> str:
        """The numbers behind the verdict and the weights that estimates use, in sentences."""
        if (chains := self.refinement) is not None:
            return (
                f"{chains.num_chains} exact chains of {chains.sweeps} sweeps, R̂ = {chains.rhat:.3f}, "
                f"{chains.ess:.0f} effective draws; the flow's quantiles were {chains.drift:.3f} sd off."
            )
        if self.khat is None:
            return "all have equal weight."
        weights = describe_weights(self.num_draws, self.khat, self.ess, self.num_invalid)
        costly = self.weighted and self.verdict is Verdict.FAIR
        few = " Few draws are effective: that costs accuracy, not correctness." if costly else ""
        return f"{weights}. {self.estimates_use}{few}"

    @property
    def estimates_use(self) -> str:
        """Which weights estimates use, and why, as a sentence."""
        if self.weighted:
            return "Estimates use importance weights."
        if self.verdict is Verdict.POOR:
            return "Estimates use plain draws, all of equal weight."
        return "Estimates use plain draws: weights would add more noise than they correct."

    @property
    def message(self) -> str:
        """Headline and detail."""
        return f"{self.headline}: {self.detail}"

    def __getitem__(self, key: str) -> Value:
        if key not in self._keys():
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys())

    def __len__(self) -> int:
        return len(self._keys())

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def _keys(self) -> tuple[str, ...]:
        return (*_NUMBERS, *(_OF_CHAINS if self.refinement is not None else ()), *_REST)


def diagnose(draws: WeightedDraws) -> Diagnostics:
    """Diagnostics of draws of a flow or a mixture, or of exact draws without known chains."""
    if (weights := draws.importance) is None:
        return Diagnostics(Verdict.GOOD, draws.num_draws, weighted=False)
    numbers = {name: getattr(weights, name) for name in (*_NUMBERS, "num_invalid")}
    return Diagnostics(weights.verdict, draws.num_draws, draws.weighted, **numbers)


def diagnose_chains(refinement: Refinement, num_draws: int) -> Diagnostics:
    """Diagnostics of states of exact chains."""
    verdict = Verdict.GOOD if refinement.converged else Verdict.MOVING
    return Diagnostics(verdict, num_draws, weighted=False, refinement=refinement)


def warn_poor_fit(weights: ImportanceWeights, condition: str, consequence: str) -> None:
    """Give a `PoorFitWarning` that points at the first line outside this package.

    Parameters
    ----------
    weights
        Whose `poor` is true.
    condition
        λ, q and T as a text; may be empty.
    consequence
        A sentence on estimates or draws.
    """
    better = "call refine() for exact draws, or fit with more steps or a narrower range of λ and q."
    if weights.reliable:
        problem, better = "Few draws are effective", f"ask for more draws (num_draws), {better}"
    else:
        problem = "The fitted distribution represents the posterior poorly"
    at = f" at {condition}" if condition else ""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    message = f"{problem}{at}: {weights}. {consequence} To do better, {better}"
    warnings.warn(message, PoorFitWarning, stacklevel=level)
