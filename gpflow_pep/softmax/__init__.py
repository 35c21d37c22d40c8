"""The tilted rule of the softmax likelihood, registered through the public registry."""

from .integrals import SoftmaxPower, softmax_power
from .rule import SoftmaxTilting

__all__ = ["SoftmaxPower", "SoftmaxTilting", "softmax_power"]
