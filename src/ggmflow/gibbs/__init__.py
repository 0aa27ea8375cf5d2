"""The exact sampler: slice Gibbs on the columns of Ω, for any q > 0, full matrix or Markov blanket."""

from ggmflow.gibbs.chains import Chains, sample

__all__ = ["Chains", "sample"]
