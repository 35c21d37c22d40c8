"""The Gaussian integral over u: log of N(y; m, Qff + noise) from the sums, differentiated in closed form."""

from typing import Any

import numpy as np
import tensorflow as tf

from ..derivatives import first_only
from ..linalg import inverse_of_product
from .sites import EvidenceTerms
from .sums import SiteSums, factorise_B


def log_gaussian(sums: SiteSums, terms: EvidenceTerms, num_data: tf.Tensor) -> tf.Tensor:
    """
    The Gaussian log density log N(r; 0, V'V + v), summed over P outputs, [...].

        -P/2 (N log 2 pi + log det v + log det B) - (r' v^-1 r - c' B^-1 c)/2,     B = I + A
    """
    num_outputs = tf.cast(tf.shape(sums.c)[-1], sums.c.dtype)
    log_2pi = tf.constant(np.log(2.0 * np.pi), sums.c.dtype)
    constant = num_outputs * (tf.cast(num_data, sums.c.dtype) * log_2pi + terms.log_noise)
    return -0.5 * (constant + terms.quadratic) + _integral(sums.A, sums.c)


@tf.custom_gradient
def _integral(A: tf.Tensor, c: tf.Tensor) -> Any:
    """-P/2 log det B + c'B^-1 c / 2, [...]; the derivative in A is -(P B^-1 + b b')/2, in c it is b = B^-1 c."""
    num_outputs = tf.cast(tf.shape(c)[-1], c.dtype)
    factor = factorise_B(A)
    whitened = tf.linalg.triangular_solve(factor, c)  # [..., M, P]
    log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), axis=-1)
    value = 0.5 * (tf.reduce_sum(tf.square(whitened), axis=[-2, -1]) - num_outputs * log_det)

    def gradient(bar: tf.Tensor) -> tuple[tf.Tensor, ...]:
        b = tf.linalg.triangular_solve(factor, whitened, adjoint=True)
        covariance = num_outputs * inverse_of_product(factor) + tf.matmul(b, b, transpose_b=True)
        bar = bar[..., None, None]
        return first_only(-0.5 * bar * covariance, bar * b)

    return value, gradient


def mahalanobis(sums: SiteSums, terms: EvidenceTerms) -> tf.Tensor:
    """r' (V'V + v)^-1 r = r' v^-1 r - c' B^-1 c, summed over outputs, [...]."""
    return terms.quadratic - tf.reduce_sum(sums.c * sums.posterior().b, axis=[-2, -1])
