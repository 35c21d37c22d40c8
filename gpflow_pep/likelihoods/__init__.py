"""Likelihoods that GPflow lacks: binary ones, exact and stable in the far tails."""

from .binary import Logit, Probit

__all__ = ["Logit", "Probit"]
