"""Moments by a rule as arrays, and a rule of adaptive panels alone."""

import numpy as np
import tensorflow as tf
from doubles import double

from gpflow_pep.tilted import KL, Cavity, Observations, QuadratureRule, TiltedRule, Wasserstein
from gpflow_pep.tilted.quadrature import on_panels
from gpflow_pep.tilted.trapezoid import TiltedRows

PROJECTIONS = {"kl": KL(), "wasserstein": Wasserstein()}


def given(y, mean, variance, X=None):
    """Return cavities and observations, for y, cavity mean and variance that broadcast to [R]."""
    arrays = (np.atleast_1d(np.asarray(values, float)) for values in (mean, variance, y))
    mean, variance, y = np.broadcast_arrays(*arrays)
    X = np.zeros((len(mean), 1)) if X is None else X
    cavity = Cavity(tf.constant(mean), tf.constant(variance))
    return cavity, Observations(tf.constant(X), tf.constant(y[:, None]))


def observed(Y):
    """Return observations [R, P] of rows without inputs."""
    return Observations(tf.zeros([len(Y), 1], tf.float64), double(Y))


def moments(rule, y, mean, variance, alpha, X=None, negligible=0.0):
    """Return a rule's Tilted as arrays."""
    found = rule.moments(*given(y, mean, variance, X), double(alpha), negligible)
    return type(found)(*(value.numpy() for value in found))


class PanelRule(TiltedRule):
    """Adaptive panels for all rows, about the centers that the other points give."""

    def __init__(self, likelihood):
        self._rule = QuadratureRule(likelihood)

    def moments(self, cavity, observations, alpha, negligible=0.0):
        rows = TiltedRows.of(cavity, observations, alpha)
        return on_panels(self._rule._density, rows, self._rule._locate(rows, 0.0)[-1])
