"""
Likelihoods with a kink are rejected; steep likelihoods and likelihoods with poles are accepted.
"""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from own_likelihoods import Own
from refusals import refused

from gpflow_pep import PEP
from gpflow_pep.tilted import KL, Observations, rule_for

rng = np.random.default_rng(3)
X = rng.normal(size=(50, 1))
Y = rng.normal(size=(50, 1))


KINKS = {
    "Laplace": lambda F, Y: -tf.abs(Y - F) / 0.3,
    "a small one": lambda F, Y: -0.5 * (Y - F) ** 2 - 0.1 * tf.abs(F - 0.123),
    "hinge": lambda F, Y: -tf.nn.relu(1.0 - Y * F),
    "Huber with a wrong slope": lambda F, Y: tf.where(
        tf.abs(Y - F) < 1.0, -0.5 * (Y - F) ** 2, -2.0 * tf.abs(Y - F)
    ),
}
SMOOTH = {
    "Student-t": lambda F, Y: -2.0 * tf.math.log1p((Y - F) ** 2 / 3.0),
    "a narrow Student-t": lambda F, Y: -tf.math.log1p((Y - F) ** 2 / 1e-6),
    "smoothed Laplace": lambda F, Y: -tf.sqrt((Y - F) ** 2 + 1e-4) / 0.3,
    "a steep step": lambda F, Y: tf.math.log_sigmoid(1e3 * (F - Y)),
    "an exponential": lambda F, Y: Y * F - tf.exp(F),
    "nothing below zero": lambda F, Y: tf.where(F > 0.0, -F - tf.math.log(tf.abs(F)), -np.inf),
    "counts with a square link": lambda F, Y: tf.abs(Y) * tf.math.log(F**2) - F**2,
    "Huber": lambda F, Y: tf.where(tf.abs(Y - F) < 1.0, -0.5 * (Y - F) ** 2, 0.5 - tf.abs(Y - F)),
}


def check(log_prob):
    rule_for(Own(log_prob), KL()).check(Observations(tf.constant(X), tf.constant(Y)), 1)


@pytest.mark.parametrize("name", KINKS)
def test_rejects_kinks(name):
    with refused(r"likelihood must be twice differentiable in f, but the slope of Own's"):
        check(KINKS[name])


@pytest.mark.parametrize("name", SMOOTH)
def test_accepts_smooth_likelihoods(name):
    check(SMOOTH[name])


def test_error_locates_the_kink():
    with refused(r"jumps by 0\.2 at f = 0\.123 in row 0\."):
        check(KINKS["a small one"])


def test_models_reject_kinks():
    with refused("twice differentiable"):
        PEP((X, Y), gpflow.kernels.SquaredExponential(), Own(KINKS["Laplace"]), X[:5])
