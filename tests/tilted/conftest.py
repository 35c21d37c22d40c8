"""Moments of tilted distributions by every rule, and the references that they are compared with."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tilted_references

from gpflow_pep.tilted import Cavity, Observations, QuadratureRule, TiltedRule, log_density
from gpflow_pep.tilted.adaptive import AdaptivePanels


@pytest.fixture(scope="session")
def references():
    """Groups of tests/data/tilted.json."""
    return json.loads((tilted_references.DATA / "tilted.json").read_text())["groups"]


@pytest.fixture(scope="session")
def high_precision():
    """What `tilted_references` has, by name."""
    return vars(tilted_references)


def _moments(rule, y, mean, variance, alpha, X=None, negligible=0.0):
    mean, variance, y = (np.atleast_1d(np.asarray(a, float)) for a in (mean, variance, y))
    mean, variance, y = np.broadcast_arrays(mean, variance, y)
    X = np.zeros((len(mean), 1)) if X is None else X
    cavity = Cavity(tf.constant(mean), tf.constant(variance))
    observations = Observations(tf.constant(X), tf.constant(y[:, None]))
    found = rule.moments(cavity, observations, tf.constant(alpha, tf.float64), negligible)
    return type(found)(*(value.numpy() for value in found))


class PanelRule(TiltedRule):
    """Adaptive panels for all rows; what the trapezoid rule says is not used, but for where to begin."""

    def __init__(self, likelihood):
        self._panels, self._rule = AdaptivePanels(log_density(likelihood)), QuadratureRule(likelihood)

    def moments(self, cavity, observations, alpha, negligible=0.0):
        alpha = tf.broadcast_to(alpha, tf.shape(cavity.mean))
        return self._panels.moments(cavity, observations, alpha, self._rule._locate(cavity, observations, alpha).center)


@pytest.fixture(scope="session")
def panel_rule():
    """The class of rules that use adaptive panels alone."""
    return PanelRule


@pytest.fixture(scope="session")
def moments():
    """A rule's Tilted as arrays, for y, cavity mean and variance that broadcast to [R]."""
    return _moments
