"""One-dimensional integrals of many rows at once, each on the panels that resolve it."""

from .adaptive_quadrature import Evaluated, Panels, integrate
from .largest import Largest, largest

__all__ = ["Evaluated", "Largest", "Panels", "integrate", "largest"]
