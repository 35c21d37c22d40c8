"""Rows of data as the sites see them: covariances with u, prior variances and means of f, and what was observed."""

from typing import NamedTuple

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction

from ..statistics import Chunks, covariance_with_rows, floating_variables, prior_variances
from .tilted import Rows


class Latent(NamedTuple):
    """A chunk of n rows, whose C latent functions share one prior covariance or have one each."""

    Kuf: tf.Tensor
    """Covariance of u with f, [M, n] or [C, M, n]."""
    Kff: tf.Tensor
    """Prior variances of f, [n] or [C, n]."""
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
        self._kernel, self._inducing_variable, self._mean_function = kernel, inducing_variable, mean_function
        self._covariance, self.inputs = covariance_with_rows(inducing_variable, kernel)
        self.variables = floating_variables(kernel, inducing_variable, mean_function)

    def num_chunks(self) -> tf.Tensor:
        """How many chunks there are, []."""
        return self.chunks.count(tf.shape(self._X)[0])

    def __call__(self, chunk: tf.Tensor, *inputs: tf.Tensor) -> Latent:
        """The rows of one chunk, computed from `inputs`."""
        X = self.chunks.take(self._X, chunk)  # [n, D]
        mean = tf.broadcast_to(self._mean_function(X), [tf.shape(X)[0], self.num_latent_gps])
        variances = prior_variances(self._inducing_variable, self._kernel, X)
        return Latent(self._covariance(X, *inputs), variances, tf.transpose(mean))

    def observed(self, chunk: tf.Tensor) -> Rows:
        """What the likelihood sees."""
        return Rows(self.chunks.take(self._X, chunk), self.chunks.take(self._Y, chunk))
