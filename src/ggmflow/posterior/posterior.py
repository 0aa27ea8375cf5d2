"""The posterior of a precision matrix at one (λ, q, T), estimated from draws and their importance weights.

    E f(Ω) ≈ Σ_i w_i f(Ω_i),   w_i ∝ p̃(Ω_i)/q(Ω_i) where the weights can be trusted, else w_i = 1/N

`Posterior` joins the parts of this package: a `Source` makes the draws, `WeightedDraws` holds them, and
`EntryEstimates`, `EdgeEstimates` and `Predictions` turn them into matrices, edges, tables and predictions.
"""

from functools import cached_property
from typing import Any, cast, final

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key
from numpy.typing import ArrayLike

from ggmflow.data.scatter import Scatter
from ggmflow.data.table import check_names
from ggmflow.model.precision import check_rows, free_entries
from ggmflow.posterior.arguments import check_count, check_query
from ggmflow.posterior.description import describe_condition, describe_variables, posterior_html
from ggmflow.posterior.diagnostics import Diagnostics, PoorFitWarning, diagnose, diagnose_chains, warn_poor_fit
from ggmflow.posterior.edge_estimates import EdgeEstimates
from ggmflow.posterior.edge_rules import find_rule
from ggmflow.posterior.edges import EdgeSelection
from ggmflow.posterior.estimates import EntryEstimates
from ggmflow.posterior.predictions import Predictions
from ggmflow.posterior.refinement import Refinement, run_chains
from ggmflow.posterior.source import (
    ChainSource,
    Draws,
    RandomState,
    Refinable,
    Source,
    as_key,
    draw_rows,
    require_draws,
)
from ggmflow.posterior.to_arviz import inference_data
from ggmflow.posterior.weighted_draws import WeightedDraws, draw_weighted

_QUICK = 2**24  # numbers of all draws, up to which edges are chosen without a noticeable delay

__all__ = ["Posterior", "EdgeSelection", "PoorFitWarning", "Refinement", "Draws", "Source", "check_count"]


@final
class Posterior(EntryEstimates, EdgeEstimates, Predictions):
    """Posterior of the precision matrix Ω, or of the rows [Ω₁₁ Ω₁₂] of a query, at one (λ, q, temperature).

    Every matrix that is returned has a row for each query variable, in the order asked, and a column for each variable,
    in the order of the data: (s, d), which is (d, d) without a query. Values are in the working scale. With
    ``as_frame=True`` it is a DataFrame with the names of both; several quantiles, or the two ends of an interval, are
    then below each other, with a first level of the index for the matrix: ``frame.loc["lower"]``.

    Estimates use `num_draws` draws made once, at first use. They are weighted by Pareto-smoothed importance weights if
    k̂ < 0.7 (a little less for fewer than 2200 draws); otherwise weights would increase the error and all draws count
    equally. Where k̂ is larger, or few draws are effective, a `PoorFitWarning` is given once. The property `weighted`
    tells whether weights are used; the argument `weighted=True` or `False` of every estimate overrides it.

    Parameters
    ----------
    source
        The distribution that is drawn from.
    names
        The d column names.
    query : (s,) array of int
        Column to which each row belongs.
    lam, q, temperature
        The condition, for messages; None for a mixture over conditions.
    num_draws
        Draws behind the estimates. They are kept: 8 bytes for each free entry of each draw.
    random_state
        Seed of these draws. The default makes every estimate reproducible.
    refinement
        Convergence of the chains that the draws come from, if they do.
    scatter
        The data. With it predictions are in the scale of the data; without it they are in the working scale.
    """

    def __init__(
        self,
        source: Source,
        names: tuple[str, ...],
        query: Int[np.ndarray, " s"],
        lam: float | None,
        q: float | None,
        temperature: float | None,
        *,
        num_draws: int = 4000,
        random_state: RandomState = 0,
        refinement: Refinement | None = None,
        scatter: Scatter | None = None,
    ):
        self.refinement, self.scatter = refinement, scatter
        self.source, self.lam, self.q, self.temperature = source, lam, q, temperature
        self.names = check_names(names, len(names))
        self.query = check_query(query, len(self.names))
        self.num_draws = check_count(num_draws)
        self._key, self._warned = as_key(random_state), False
        require_draws(self.num_draws, len(free_entries(self.query, len(self.names)).row))  # now, not at first use
        if scatter is not None and scatter.names != self.names:
            raise ValueError(f"the data have other names ({', '.join(scatter.names[:4])}, …) than the posterior")

    # ---------------------------------------------------------------------------------------------- draws and density
    @cached_property
    def draws(self) -> WeightedDraws:
        """The draws behind the estimates, made at first use."""
        return draw_weighted(self.source, self._key, self.num_draws, self.names, self.query)

    @property
    def drawn(self) -> bool:
        """Whether the draws behind the estimates have been made."""
        return "draws" in vars(self)

    @cached_property
    def weighted(self) -> bool:
        """Whether estimates use importance weights: k̂ allows it, and they correct more than the noise they add."""
        return self.draws.weighted

    def weighted_draws(self, weighted: bool | None = None) -> WeightedDraws:
        """The draws, with the weights that an estimate uses; the first call for a poor fit gives a `PoorFitWarning`."""
        self._warn_if_poor(self.draws)
        return self.draws.using(self.weighted if weighted is None else weighted)

    def sample(
        self, num_draws: int, random_state: RandomState = None, *, weighted: bool = False
    ) -> Float[np.ndarray, "N s d"]:
        """Draw N = `num_draws` times rows of Ω, (N, s, d).

        Parameters
        ----------
        num_draws
            N.
        random_state : int, numpy Generator or RandomState, or None
        weighted
            False: independent draws of the fitted distribution. True: sampling-importance-resampling. Four times as
            many draws (at least as many as estimates use) are weighted, and N are chosen in proportion to their
            weights. They follow the posterior more closely, but some may repeat: they are not independent.
        """
        return self._draw_rows(as_key(random_state), check_count(num_draws), weighted)

    def log_prob(self, precision: ArrayLike) -> float | Float[np.ndarray, " k"]:
        """Normalized log density of the fitted distribution, w.r.t. Lebesgue measure on the free entries of Ω.

        Parameters
        ----------
        precision : (s, d) or (k, s, d) array-like
            Rows of positive definite matrices, in the working scale; k of them give k numbers.
        """
        rows, single = check_rows(precision, self.query, len(self.names))
        out = np.asarray(self.source.log_prob(rows), np.float64)
        return float(out[0]) if single else out

    def refine(self, sweeps: int = 50, *, num_chains: int = 1000, random_state: RandomState = 0) -> "Posterior":
        """A posterior whose draws are exact up to the length of chains.

        Draws of this posterior, weighted where that is safe, start chains of the exact sampler, and the flow's error
        decreases with every sweep. The result's draws are the states of the second half of all chains, of equal weight;
        its `refinement` holds the convergence of the chains and the size of the flow's error.

        Parameters
        ----------
        sweeps, num_chains
            Length and number of the chains.
        random_state : int, numpy Generator or RandomState, or None
        """
        if not hasattr(self.source, "refine"):
            raise ValueError("these draws are exact already, or a mixture: refine the posterior at one (λ, q)")
        key_start, key_chains = jax.random.split(as_key(random_state))
        num_chains, sweeps = check_count(num_chains, "num_chains"), check_count(sweeps, "sweeps")
        start = self._draw_rows(key_start, num_chains, self.weighted)
        states, found = run_chains(cast(Refinable, self.source), key_chains, start, self.draws, sweeps)
        condition = (self.lam, self.q, self.temperature)
        options: dict[str, Any] = {"num_draws": len(states), "refinement": found, "scatter": self.scatter}
        return Posterior(ChainSource(states, found.num_chains), self.names, self.query, *condition, **options)

    def to_arviz(self, num_draws: int = 1000, random_state: RandomState = 0) -> Any:
        """Draws for ArviZ, with names as coordinates: ``az.plot_forest(post.to_arviz(), coords={"row": "a"})``.

        Needs ArviZ: ``pip install 'arviz<1' h5netcdf``. Draws of a flow are independent of each other, or, where
        weights can be trusted, resampled by them, so a few may repeat; either way they are one chain, for which ArviZ's
        R̂ is not defined. After `refine` there are the chains of the exact sampler, each in the order of time. ArviZ's
        R̂ needs at least four states of a chain: of 1000 chains so many are kept for up to 45 variables, of fewer
        chains for more. Of chains that short it is a few hundredths above 1 also where `refinement.rhat`, which
        compares times instead of chains, shows that they have converged.

        Parameters
        ----------
        num_draws
            N, over all chains. After `refine` it is rounded up to whole chains, and there are no more than all of them.
        random_state : int, numpy Generator or RandomState, or None
            For draws of a flow. After `refine` the chains are returned unchanged.

        Returns
        -------
        arviz.InferenceData, or xarray.DataTree from ArviZ 1.0 on
            The group posterior holds `precision` (working scale) and `association` with dimensions chain, draw, row
            (the query) and column (all variables). Its attributes: lam, q, temperature (as far as they are known),
            message (that of `diagnostics`), versions.
        """
        rows = self.source.by_chain(check_count(num_draws)) if isinstance(self.source, ChainSource) else None
        if rows is None:
            rows = self.sample(num_draws, random_state, weighted=self.weighted)[None]
        condition = {"lam": self.lam, "q": self.q, "temperature": self.temperature}
        return inference_data(rows, self.names, self.query, condition | {"message": self.diagnostics().message})

    # --------------------------------------------------------------------------------------------- diagnostics, display
    def diagnostics(self) -> Diagnostics:
        """How well the draws represent the posterior: verdict, k̂, effective draws and more, also as a mapping."""
        if self.refinement is not None:
            return diagnose_chains(self.refinement, self.num_draws)
        return diagnose(self.draws)

    @property
    def condition_text(self) -> str:
        """λ, q and T as a text; empty for a mixture."""
        return describe_condition(self.lam, self.q, self.temperature)

    def __repr__(self) -> str:
        at = f" at {self.condition_text}" if self.condition_text else ""
        # Showing an object must not draw: that can take seconds.
        status = self.diagnostics().message if self.drawn else f"{self.num_draws} draws at first use."
        return f"Posterior({describe_variables(self.names, self.query)}{at}. {status})"

    def _repr_html_(self) -> str:
        known = self.diagnostics() if self.drawn or self.refinement is not None else None
        quick = self.drawn and self.draws.entries.size <= _QUICK
        return posterior_html(self, known, self.select_from(self.draws, *find_rule()) if quick else None)

    # -------------------------------------------------------------------------------------------------------- internals
    def _draw_rows(self, key: Key[Array, ""], num_draws: int, weighted: bool) -> Float[np.ndarray, "N s d"]:
        key, key_resample = jax.random.split(key)
        if not weighted:
            return draw_rows(self.source, key, num_draws, (len(self.query), len(self.names)))
        draws = draw_weighted(self.source, key, max(4 * num_draws, self.num_draws), self.names, self.query)
        if draws.importance is None:
            return draws.rows(slice(num_draws))
        self._warn_if_poor(draws, "Among weighted draws a few will repeat often.")
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key_resample)))
        return draws.rows(draws.using(True).resample(rng, num_draws))

    def _warn_if_poor(self, draws: WeightedDraws, consequence: str | None = None) -> None:
        if not self._warned and draws.importance is not None and draws.importance.poor:
            self._warned = True
            consequence = self.diagnostics().estimates_use if consequence is None else consequence
            warn_poor_fit(draws.importance, self.condition_text, consequence)
