"""Numerical building blocks: checked linear algebra, log Φ, and one-dimensional integrals of many rows at once."""

from .adaptive_quadrature import Evaluated, Panels, integrate
from .largest import Largest, largest

__all__ = ["Evaluated", "Largest", "Panels", "integrate", "largest"]
