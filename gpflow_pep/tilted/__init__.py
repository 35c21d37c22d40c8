"""Tilted distributions E_cav[p(y|f)^α] of a likelihood: their moments, projected onto Gaussians, and a registry."""

from . import closed_forms, robust_max, wasserstein
from .densities import Density, LogDensity, log_density
from .quadrature import QuadratureRule
from .registry import KL, Projection, Wasserstein, rule_for, tilted_rule
from .rule import AtPower, Cavity, Observations, Tilted, TiltedRule, log_partition

del closed_forms, robust_max, wasserstein  # imported for what they register

__all__ = [
    "KL",
    "AtPower",
    "Cavity",
    "Density",
    "LogDensity",
    "Observations",
    "Projection",
    "QuadratureRule",
    "Tilted",
    "TiltedRule",
    "Wasserstein",
    "log_density",
    "log_partition",
    "rule_for",
    "tilted_rule",
]
