"""When a chunk of rows may be computed in single precision, while sums over chunks are in double precision."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from .rows import Rows

# Estimated relative change of the site noise. Of 576 settings (four kernels, six lengthscales, four noises, alpha 0,
# 0.5 and 1; N = 6,000, M = 100, D = 4 and 8) 294 are below this value; there the objective errs by 2e-6 of itself at
# most, the gradient in each parameter by 2e-3 of itself, and the gradient as a whole by 1e-4.
_MAX_ERROR = 0.02
# Below this condition number the rounding of Kff - diag(V'V) itself, about eps k, is what counts.
_LEAST_CONDITION = 200.0
_LARGEST = 1e8  # of residuals, variances and precisions, whose products must not overflow


class SinglePrecision(NamedTuple):
    """Estimate of how much rounding V = L^-1 Kuf to single precision changes the site noise."""

    variance: tf.Tensor  # Largest prior variance of u, []
    inverse_trace: tf.Tensor  # tr Kuu^-1, []
    scale: tf.Tensor  # m of the structured conditional, []

    @classmethod
    def of_factor(cls, L: tf.Tensor, scale: tf.Tensor) -> "SinglePrecision":
        """
        Return the estimate for inducing variables of covariance Kuu = L L', L [..., M, M].

        :param scale: m, [].
        """
        inverse = tf.linalg.triangular_solve(L, tf.eye(tf.shape(L)[-1], batch_shape=tf.shape(L)[:-2], dtype=L.dtype))
        return cls(
            tf.reduce_max(tf.reduce_sum(tf.square(L), axis=-1)),  # of the diagonal of Kuu
            tf.reduce_max(tf.reduce_sum(tf.square(inverse), axis=[-2, -1])),
            scale,
        )

    def suffices(self, rows: Rows) -> tf.Tensor:
        """
        Whether single precision changes the site noise s + m diag(Kff - V'V) of a chunk of rows little, [].

        Rounding errors are those of the largest prior variance k of u and of the rows. Those of V are amplified by the
        condition of Kuu, which k tr Kuu^-1 estimates. Single precision does not suffice for numbers that may overflow.
        """
        k = tf.maximum(self.variance, tf.reduce_max(rows.Kff))
        noise, largest_noise = tf.reduce_min(rows.noise), tf.reduce_max(rows.noise)
        condition = tf.maximum(k * self.inverse_trace, _LEAST_CONDITION)
        error = np.finfo(np.float32).eps * condition * k * tf.maximum(self.scale, 1.0) / noise
        in_range = (
            (tf.reduce_max(tf.abs(rows.residual)) < _LARGEST)
            & (tf.maximum(k, largest_noise) < _LARGEST)
            & (_LARGEST * noise > 1.0)
        )
        return (error < _MAX_ERROR) & in_range
