"""Kernels as users write them."""

import gpflow
import tensorflow as tf
from gpflow.kernels import SquaredExponential


class ExpandedSquare(gpflow.kernels.Matern52):
    """A kernel that is not known to be stationary, so that it is left to itself."""

    def K(self, X, X2=None):
        return super().K(X, X2)


class BrownianMotion(gpflow.kernels.Kernel):
    """k(x, x') = v min(x, x'), which has a kink at x = x', written for matrices of inputs only."""

    def __init__(self):
        super().__init__(active_dims=[0])
        self.variance = gpflow.Parameter(1.0, transform=gpflow.utilities.positive())

    def K(self, X, X2=None):
        return self.variance * tf.minimum(X, tf.transpose(X if X2 is None else X2))

    def K_diag(self, X):
        return self.variance * X[:, 0]


def _two():
    return SquaredExponential(1.0, 2.0), SquaredExponential(2.0, 3.0)


def tied(name):
    """A sum of two kernels that share a parameter."""
    first, second = _two()
    setattr(second, name, getattr(first, name))
    return first + second


def repeated(number):
    """A sum with a product of the second kernel and the first or itself."""
    kernels = _two()
    return kernels[0] + kernels[number] * kernels[1]
