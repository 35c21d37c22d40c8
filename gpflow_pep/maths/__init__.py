"""Numerical building blocks: checked linear algebra, log Φ, and batched one-dimensional integrals."""

from .adaptive_quadrature import Evaluated, Panels, integrate
from .largest import Largest, largest

__all__ = ["Evaluated", "Largest", "Panels", "integrate", "largest"]
