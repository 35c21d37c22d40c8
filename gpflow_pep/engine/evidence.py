"""The Gaussian integral over u: log of N(y; m, Qff + noise) from the sums, differentiated in closed form."""

from typing import Any

import numpy as np
import tensorflow as tf

from ..derivatives import once_differentiable
from ..linalg import inverse_of_product
from .site_algebra import EvidenceTerms
from .sums import SiteSums, factorize_B


def log_gaussian(sums: SiteSums, terms: EvidenceTerms, num_data: tf.Tensor) -> tf.Tensor:
    """
    The Gaussian log density log N(r; 0, V'V + v), summed over P outputs, [...].

        -P/2 (N log 2 pi + log det v + log det B) - (r' v^-1 r - c' B^-1 c)/2,     B = I + A

    Its derivative in A is -(P B^-1 + b b')/2, in c it is b = B^-1 c.
    """
    P = tf.cast(tf.shape(sums.c)[-1], sums.c.dtype) if sums.c.shape[-1] is None else float(sums.c.shape[-1])
    constant = np.log(2.0 * np.pi) * tf.cast(num_data, sums.c.dtype)

    @tf.custom_gradient
    def value(A: tf.Tensor, c: tf.Tensor, quadratic: tf.Tensor, log_noise: tf.Tensor) -> Any:
        factor = factorize_B(A)
        whitened = tf.linalg.triangular_solve(factor, c)  # [..., M, P]
        log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), axis=-1)
        distance = quadratic - tf.reduce_sum(tf.square(whitened), axis=[-2, -1])

        def gradient(bar: tf.Tensor) -> tuple[tf.Tensor, ...]:
            b = tf.linalg.triangular_solve(factor, whitened, adjoint=True)
            covariance = P * inverse_of_product(factor) + tf.matmul(b, b, transpose_b=True)
            half = -0.5 * bar
            of_matrix = half if bar.shape.rank == 0 else half[..., None, None]
            return once_differentiable(of_matrix * covariance, -2.0 * of_matrix * b, half, P * half)

        return -0.5 * (P * (constant + log_noise + log_det) + distance), gradient

    return value(sums.A, sums.c, terms.quadratic, terms.log_noise)


def mahalanobis(sums: SiteSums, terms: EvidenceTerms) -> tf.Tensor:
    """r' (V'V + v)^-1 r = r' v^-1 r - c' B^-1 c, summed over outputs, [...]."""
    return terms.quadratic - tf.reduce_sum(sums.c * sums.posterior().b, axis=[-2, -1])
