"""Moments by a rule as arrays, and a rule of adaptive panels alone."""

import numpy as np
import tensorflow as tf

from gpflow_pep.tilted import Cavity, Observations, QuadratureRule, TiltedRule
from gpflow_pep.tilted.quadrature import on_panels
from gpflow_pep.tilted.trapezoid import TiltedRows


def moments(rule, y, mean, variance, alpha, X=None, negligible=0.0):
    """Return a rule's Tilted as arrays, for y, cavity mean and variance that broadcast to [R]."""
    arrays = (np.atleast_1d(np.asarray(values, float)) for values in (mean, variance, y))
    mean, variance, y = np.broadcast_arrays(*arrays)
    X = np.zeros((len(mean), 1)) if X is None else X
    cavity = Cavity(tf.constant(mean), tf.constant(variance))
    observations = Observations(tf.constant(X), tf.constant(y[:, None]))
    found = rule.moments(cavity, observations, tf.constant(alpha, tf.float64), negligible)
    return type(found)(*(value.numpy() for value in found))


class PanelRule(TiltedRule):
    """Adaptive panels for all rows, about the centers that the other points give."""

    def __init__(self, likelihood):
        self._rule = QuadratureRule(likelihood)

    def moments(self, cavity, observations, alpha, negligible=0.0):
        rows = TiltedRows(cavity, tf.broadcast_to(alpha, tf.shape(cavity.mean)), observations)
        center = self._rule._locate(rows, 0.0)[-1]
        return on_panels(self._rule._density, rows, center)
