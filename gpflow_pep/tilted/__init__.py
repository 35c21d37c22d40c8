"""
Tilted distributions E_cav[p(y|f)^α] of a likelihood: their moments, projected onto Gaussians, and a
registry.
"""

from . import robust_max as robust_max  # registers its rule
from . import wasserstein as wasserstein  # registers its rule
from .densities import Density, LogDensity, log_density
from .quadrature import QuadratureRule
from .rule import (
    KL,
    AtPower,
    Cavity,
    Observations,
    Projection,
    Scalar,
    Tilted,
    TiltedRule,
    Wasserstein,
    log_partition,
    rule_for,
    tilted_rule,
)

__all__ = [
    "KL",
    "AtPower",
    "Cavity",
    "Density",
    "LogDensity",
    "Observations",
    "Projection",
    "QuadratureRule",
    "Scalar",
    "Tilted",
    "TiltedRule",
    "Wasserstein",
    "log_density",
    "log_partition",
    "rule_for",
    "tilted_rule",
]
