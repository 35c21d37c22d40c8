"""Panels that are divided: what is never resolved is not divided for ever."""

import numpy as np
import tensorflow as tf

from gpflow_pep.quadrature import Evaluated, Panels, integrate


def test_a_panel_around_a_singularity():
    """At 0: after 60 halvings the panel there is accepted as it is; the integral is of 1."""
    levels = []

    def evaluate(panels):
        levels.append(panels.half.numpy().min())
        assert len(levels) < 100
        width = 2.0 * panels.half[:, None]
        tails = tf.where(panels.left == 0.0, tf.constant(np.inf, tf.float64), 0.0)[:, None]
        return Evaluated(width, width, tails)

    first = Panels(tf.constant([0]), tf.zeros([1], tf.float64), tf.constant([0.5], tf.float64))
    total, _ = integrate(evaluate, first, tf.constant(1), shape=(1, 1), keep=False)
    np.testing.assert_allclose(levels, 0.5 ** np.arange(1, 62), rtol=1e-12)
    np.testing.assert_allclose(total, [[1.0]], rtol=1e-12)
