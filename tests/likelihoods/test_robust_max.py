"""MultiClassRobustMax against GPflow, references and sums over classes."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_near
from differences import assert_gradients, derivative
from model_values import references
from numpy.testing import assert_allclose
from refusals import refused, stopped

from gpflow_pep import MultiClassRobustMax

C = 4
N = 9
REFERENCES = references("robustmax_logZ")
rng = np.random.default_rng(91)
X = np.zeros((N, 1))
MEAN = rng.normal(size=(N, C))
VARIANCE = rng.uniform(0.8, 1.2, (N, C))
Y = rng.integers(0, C, (N, 1)).astype(float)


@pytest.fixture
def likelihood():
    return MultiClassRobustMax(C, epsilon=0.02)


@pytest.fixture
def gpflows():
    """GPflow's likelihood without squashing."""
    link = gpflow.likelihoods.RobustMax(C, 0.02 * (C - 1) / C)
    link._squash = 0.0
    return gpflow.likelihoods.MultiClass(C, link)


def test_equals_gpflow(likelihood, gpflows):
    F = MEAN
    assert_allclose(likelihood.log_prob(X, F, Y), gpflows.log_prob(X, F, Y), rtol=1e-14)
    for name in ("conditional_mean", "conditional_variance"):
        assert_allclose(getattr(likelihood, name)(X, F), getattr(gpflows, name)(X, F), rtol=1e-12)


@pytest.mark.parametrize("case", REFERENCES, ids=lambda case: case["name"])
def test_matches_references(case):
    """Errors below 1e-12 (P) and 1e-10 (derivatives)."""
    for convention in ["paper", "gpflow"]:
        inputs = case["inputs"]
        expected = case["expected"]
        num = inputs["C"]
        epsilon = inputs["epsilon"] * (num / (num - 1) if convention == "gpflow" else 1.0)
        likelihood = MultiClassRobustMax(num, epsilon)
        values = [float(np.exp(value)) for value in likelihood.log_values]
        named = expected[convention]
        assert_allclose(values, [named["value_if_largest"], named["value_otherwise"]], rtol=1e-13)
        mean = np.array([inputs["mean"]])
        variance = np.array([inputs["var"]])
        P = np.exp(likelihood.log_prob_largest(tf.constant([inputs["y"]]), mean, variance))
        assert_near(P[0], expected["P"], 1e-12)
        row = (np.zeros((1, 1)), mean, variance, np.array([[float(inputs["y"])]]))
        assert_near(likelihood.variational_expectations(*row)[0], named["E_log_p"], 1e-10)
        assert_near(likelihood.predict_log_density(*row)[0], named["logZ_alpha=1"], 1e-10)


@pytest.mark.parametrize("name", ["variational_expectations", "predict_log_density"])
def test_derivatives_match_finite_differences(likelihood, name):
    """
    Gradients in moments and epsilon; fourth-order differences with h = 1e-3 err by 1e-11 / 1e-3.
    """
    gpflow.set_trainable(likelihood.epsilon, True)
    mean = tf.Variable(MEAN)
    variance = tf.Variable(VARIANCE)
    sources = [mean, variance, likelihood.epsilon.unconstrained_variable]

    @tf.function(autograph=False)
    def value():
        return tf.reduce_sum(getattr(likelihood, name)(X, mean, variance, Y))

    assert_gradients(value, sources, h=1e-3, tolerance=1e-8)


def test_several_chunks_of_rows(likelihood, monkeypatch):
    """More rows than a chunk, and no rows."""
    monkeypatch.setattr("gpflow_pep.likelihoods.robust_max._VALUES_PER_CHUNK", 2**8)
    rows = 400
    mean = np.tile(MEAN[:1], (rows, 1))
    variance = np.tile(VARIANCE[:1], (rows, 1))
    label = np.arange(rows) % C
    found = likelihood.log_prob_largest(tf.constant(label, tf.int32), mean, variance).numpy()
    assert_allclose(found, np.tile(found[:C], rows // C), rtol=1e-13)
    assert likelihood.log_prob_largest(tf.zeros([0], tf.int32), mean[:0], variance[:0]).shape == (
        0,
    )


def test_more_classes_than_a_chunk(monkeypatch):
    """
    Identical f_k: each is the largest with probability 1/C, and slopes in all other means are
    equal.
    """
    monkeypatch.setattr("gpflow_pep.likelihoods.robust_max._VALUES_PER_CHUNK", 2**8)
    number = 2**8 + 1
    mean = tf.zeros([1, number], tf.float64)
    label = tf.constant([7], tf.int32)

    def log_prob(mean):
        return MultiClassRobustMax(number).log_prob_largest(label, mean, tf.ones_like(mean))

    slope = derivative(log_prob, mean)[0].numpy()
    assert_allclose(log_prob(mean), [-np.log(number)], rtol=1e-9)
    assert_allclose(np.delete(slope, 7), -slope[7] / (number - 1), rtol=1e-9)


@pytest.mark.parametrize("label", [-1.0, 4.0, 0.5, np.nan])
def test_rejects_invalid_labels(likelihood, label):
    wrong = tf.constant(np.where(np.arange(N)[:, None] == 3, label, Y))
    for evaluate in (likelihood.log_prob, tf.function(likelihood.log_prob, autograph=False)):
        with stopped(r"Y must hold the labels 0, 1, \.\.\., 3"):
            evaluate(tf.constant(X), tf.constant(MEAN), wrong)


def test_rejects_invalid_arguments():
    for arguments, message in [
        ((1,), "num_classes must be at least 2, got 1"),
        ((2.5,), "num_classes must be a whole number"),
        ((3, 0.0), r"epsilon must be in \(0, 1\), got 0.0"),
        ((3, 1.0), r"epsilon must be in \(0, 1\), got 1.0"),
        ((3, np.nan), r"epsilon must be in \(0, 1\), got nan"),
    ]:
        with refused(message):
            MultiClassRobustMax(*arguments)
