"""One-dimensional integrals of many rows at once, each on the panels that resolve it."""

from .adaptive import Evaluated, Panels, integrate
from .largest import Largest, largest
from .softmax_integrals import SoftmaxPower, softmax_power

__all__ = ["Evaluated", "Largest", "Panels", "SoftmaxPower", "integrate", "largest", "softmax_power"]
