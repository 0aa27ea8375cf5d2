"""Bayesian sparse precision matrices: every shrinkage λ and every l_q norm from one fit."""

__version__ = "0.1.0"
