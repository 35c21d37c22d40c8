"""Fixtures for tilted rules: references and moments."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tilted_references

from gpflow_pep.tilted import Cavity, Observations, QuadratureRule, TiltedRule
from gpflow_pep.tilted.quadrature import on_panels
from gpflow_pep.tilted.trapezoid import TiltedRows


@pytest.fixture(scope="session")
def references():
    """Groups of tests/data/tilted.json."""
    return json.loads((tilted_references.DATA / "tilted.json").read_text())["groups"]


@pytest.fixture(scope="session")
def high_precision():
    """The functions of `tilted_references`, by name."""
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
    """Adaptive panels for all rows, about the centers that the other points give."""

    def __init__(self, likelihood):
        self._rule = QuadratureRule(likelihood)

    def moments(self, cavity, observations, alpha, negligible=0.0):
        rows = TiltedRows(cavity, tf.broadcast_to(alpha, tf.shape(cavity.mean)), observations)
        center = self._rule._locate(rows, 0.0)[-1]
        return on_panels(self._rule._density, rows, center)


@pytest.fixture(scope="session")
def panel_rule():
    """The class of rules that use adaptive panels alone."""
    return PanelRule


@pytest.fixture(scope="session")
def moments():
    """A rule's Tilted as arrays, for y, cavity mean and variance that broadcast to [R]."""
    return _moments
