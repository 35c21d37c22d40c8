"""Rows of data as the sites see them: covariances with u, prior variances and means of f, and what was observed."""

from typing import NamedTuple

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction

from ..statistics import Chunks, covariance_with_rows, floating_variables
from .tilted import Rows


class Latent(NamedTuple):
    """A chunk of n rows, whose C latent functions have one prior covariance."""

    Kuf: tf.Tensor
    """Covariance of u with f, [M, n]."""
    Kff: tf.Tensor
    """Prior variances of f, [n]."""
    mean: tf.Tensor
    """Mean function m(x), [C, n]."""


class LatentRows:
    """Where sweeps and energy get their rows from, chunk by chunk."""

    def __init__(
        self,
        data: RegressionData,
        chunks: Chunks,
        kernel: Kernel,
        inducing_variable: InducingVariables,
        mean_function: MeanFunction,
        num_latent_gps: int,
    ):
        self.chunks = chunks
        self.num_latent_gps = num_latent_gps
        self._X, self._Y = (tf.convert_to_tensor(values) for values in data)
        self._kernel, self._mean_function = kernel, mean_function
        self._covariance, self.inputs = covariance_with_rows(inducing_variable, kernel)
        self.variables = floating_variables(kernel, inducing_variable, mean_function)

    def num_chunks(self) -> tf.Tensor:
        """How many chunks there are, []."""
        return self.chunks.count(tf.shape(self._X)[0])

    def __call__(self, chunk: tf.Tensor, *inputs: tf.Tensor) -> Latent:
        """The rows of one chunk, computed from `inputs`."""
        X = self.chunks.take(self._X, chunk)  # [n, D]
        mean = tf.broadcast_to(self._mean_function(X), [tf.shape(X)[0], self.num_latent_gps])
        return Latent(self._covariance(X, *inputs), self._kernel(X, full_cov=False), tf.transpose(mean))

    def observed(self, chunk: tf.Tensor) -> Rows:
        """What the likelihood sees, one latent value a row: [C n, D] and [C n, Dy]."""
        X, Y = self.chunks.take(self._X, chunk), self.chunks.take(self._Y, chunk)
        if self.num_latent_gps > 1:  # one column of Y for each
            Y = tf.reshape(tf.transpose(Y), [-1, 1])
        return Rows(tf.tile(X, [self.num_latent_gps, 1]), Y)
