"""The Laplace transform of a log-normal variable against brute force, and far out."""

import numpy as np
import tensorflow as tf
from doubles import double
from log_normal import survival
from numpy.testing import assert_allclose

from gpflow_pep.softmax.survival import LARGEST_VARIANCE, log_survival


def test_matches_references():
    """To a relative error of 1e-10 up to a hazard of 1, near x = v."""
    for variance in [1e-4, 0.1, 0.999, 1.0, 4.0, 60.0, 120.0, 1e3]:
        x = np.array([-25.0, -10.1, -9.9, -2.0, 0.0, 0.3, variance])
        found = log_survival(tf.constant(x[None]), double([variance]))
        assert_allclose(np.squeeze(found), survival(x, variance), rtol=1e-10)


def test_rules_agree_where_they_meet():
    x = np.linspace(-30.0, 2.0, 200)[None] + np.zeros((2, 1))
    for limit in (1.0, LARGEST_VARIANCE):
        found = log_survival(tf.constant(x), double([limit * (1.0 - 1e-12), limit]))
        assert_allclose(*np.stack(found, axis=1), rtol=1e-10)


# Far out, on both sides.
FAR = np.concatenate([-np.geomspace(1e8, 1.0, 30), np.geomspace(0.1, 1e8, 30)])


def test_tails():
    """log S decreases from 0 and the hazard increases, as long as S does not cancel."""
    for variance in [0.0, 1e-300, 0.5, 1.0, 30.0, 1e3, 1e6]:
        log_S, hazard = (
            value.numpy()[0] for value in log_survival(tf.constant(FAR[None]), double([variance]))
        )
        assert np.all(np.isfinite(log_S)) and np.all(np.isfinite(hazard))
        assert np.all(log_S <= 0.0) and np.all(hazard >= 0.0)
        assert np.all(log_S[-40.0 * np.sqrt(variance) - 40.0 > FAR] > -1e-15)
        assert np.all(log_S[40.0 * np.sqrt(variance) + 40.0 < FAR] < -30.0)
        clear = log_S > -20.0
        assert np.all(np.diff(log_S[clear]) <= 0.0) and np.all(np.diff(hazard[clear]) >= 0.0)


def test_tails_in_single_precision():
    """Results are finite, and equal double precision up to 1e-3 for S above 1e-30."""
    for variance in [0.0, 1e-4, 0.5, 1.0, 4.0, 30.0, 1e3, 1e6]:
        found, expected = (
            np.concatenate(
                log_survival(tf.constant(FAR[None], dtype), tf.constant([variance], dtype))
            )
            for dtype in (tf.float32, tf.float64)
        )
        assert np.all(np.isfinite(found))
        clear = expected[0] > -70.0
        assert_allclose(found[:, clear], expected[:, clear], rtol=1e-3, atol=1e-3)
