"""Panels that are divided: what is never resolved is not divided for ever."""

import numpy as np
import tensorflow as tf

from gpflow_pep.maths import Evaluated, Panels, integrate


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


def in_xla(integrand, first, num_rows, **options):
    """Integrals of polynomials in x of degree 0 and 1 on panels, by their middles, in a function that XLA compiles."""

    def evaluate(panels):
        width, middle = 2.0 * panels.half[:, None], (panels.left + panels.half)[:, None]
        return Evaluated(width * integrand(middle), width, *options["tails"](panels))

    @tf.function(jit_compile=options.get("jit_compile", True), autograph=False)
    def run():
        used = options.get("used")
        return integrate(evaluate, first, tf.constant(num_rows), shape=(1, 1), keep=False, places=8, used=used)[0]

    return run()


def until(width):
    """Tails for which panels are divided until they are at most this wide."""
    infinite, zero = tf.constant([np.inf, 0.0], tf.float64)
    return lambda panels: [tf.where(panels.half > 0.5 * width, infinite, zero)[:, None]]


ROWS = Panels(tf.constant([0, 1, 1]), tf.constant([0.0, 0.0, 1.0], tf.float64), tf.constant([0.5] * 3, tf.float64))


def test_places_for_panels_do_not_change_the_integrals():
    for jit_compile in (False, True):
        total = in_xla(lambda x: 1.0 + x, ROWS, 2, tails=until(0.25), jit_compile=jit_compile)
        np.testing.assert_allclose(total, [[1.5], [4.0]], rtol=1e-14)


def test_only_the_panels_that_are_used_count():
    used = tf.constant([True, False, True])
    for jit_compile in (False, True):
        total = in_xla(tf.ones_like, ROWS, 2, tails=until(0.5), used=used, jit_compile=jit_compile)
        np.testing.assert_allclose(total, [[1.0], [1.0]], rtol=1e-14)


def test_a_row_without_places_for_its_panels_is_not_a_number():
    """There are 16 places for 2 rows, and 64 panels of row 1."""
    infinite, zero = tf.constant([np.inf, 0.0], tf.float64)

    def tails(panels):
        return [tf.where((panels.row == 1) & (panels.half > 0.02), infinite, zero)[:, None]]

    total = in_xla(tf.ones_like, ROWS, 2, tails=tails)
    assert float(total[0, 0]) == 1.0
    assert np.isnan(total[1, 0])
