"""Gaussian sites for any likelihood: tilted distributions, their projections, sweeps and the energy."""

from .projections import projection
from .tilted import Cavity, Rows, Tilted, TiltedRule

__all__ = ["Cavity", "Rows", "Tilted", "TiltedRule", "projection"]
