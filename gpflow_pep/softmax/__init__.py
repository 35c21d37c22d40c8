"""Softmax: a tilted rule that is registered as users register theirs."""

from .integrals import SoftmaxPower, softmax_power
from .rule import SoftmaxTilting

__all__ = ["SoftmaxPower", "SoftmaxTilting", "softmax_power"]
