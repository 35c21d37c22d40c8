"""Tilted distributions to a few digits, for sites that are still far from where they will be.

Gauss-Hermite nodes about the mode of the tilted distribution, in units of its curvature there (Liu and Pierce 1994).
"""

import numpy as np
import tensorflow as tf
from typing_extensions import override

from .densities import LogDensity
from .mode import centre
from .tilted import Cavity, Rows, Tilted, TiltedRule

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(10)  # type: ignore[no-untyped-call]


class ModeCentredHermite(TiltedRule):
    """Ten nodes about the mode; the error is not controlled."""

    def __init__(self, density: LogDensity):
        self._density = density

    @override
    def moments(self, cavity: Cavity, rows: Rows, alpha: tf.Tensor) -> Tilted:
        m, v = cavity
        mode, _, _, height, _ = centre(self._density, cavity, rows, alpha)
        curvature = self._density(mode[None], *rows).curvature[0]
        sd = tf.sqrt(v / (1.0 + v * alpha * tf.nn.relu(-curvature)))
        x = tf.constant(_NODES, m.dtype)[:, None]  # [K, 1]
        f = mode + sd * x
        log_prob, slope, curvature = self._density(f, *rows)
        # π is P df up to a factor, where the weights stand for exp(-x²/2) dx
        exponent = alpha * log_prob - 0.5 * tf.square(f - m) / v + 0.5 * tf.square(x) - height
        P = tf.constant(_WEIGHTS / np.sqrt(2.0 * np.pi), m.dtype)[:, None] * tf.exp(exponent)  # [K, R]
        mass = tf.reduce_sum(P, axis=0)
        P /= mass
        d1 = tf.reduce_sum(P * slope, axis=0)
        spread = tf.reduce_sum(P * tf.square(slope - d1), axis=0)
        mean = tf.reduce_sum(P * x, axis=0)
        ratio = tf.square(sd) / v * tf.reduce_sum(P * tf.square(x - mean), axis=0)
        log_Z = height + tf.math.log(mass) + tf.math.log(sd) - 0.5 * tf.math.log(v)
        safe = tf.where(alpha == 0.0, tf.ones_like(alpha), alpha)
        expectation = tf.reduce_sum(P * log_prob, axis=0)
        log_normaliser = tf.where(alpha == 0.0, expectation, log_Z / safe)
        d2 = tf.reduce_sum(P * curvature, axis=0) + alpha * spread
        # Where the likelihood says much more than the cavity its slopes vary by so much that the moments say it better.
        decided = (ratio < 0.5) & (alpha > 0.0)
        d1 = tf.where(decided, (mode - m + sd * mean) / (safe * v), d1)
        d2 = tf.where(decided, (ratio - 1.0) / (safe * v), d2)
        return Tilted(log_normaliser, d1, d2, ratio)
