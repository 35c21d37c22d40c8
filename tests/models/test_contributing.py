"""CONTRIBUTING.md: the examples of a model and of a site rule are executed.

Objectives are of order 100 and agree with dense formulas to cond(Kuu) eps = 1e-10; derivatives of
those formulas by automatic differentiation likewise.
"""

import re
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from comparisons import assert_all_close
from differences import derivative
from gpflow.kernels import Matern52
from model_values import loss_and_gradient
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal
from waves import line, wave

from gpflow_pep import StreamState

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
X, Y = wave(30, 23)
Z = line(-2.0, 2.0, 6)
NOISE = 0.2


def section(title):
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


def examples(title):
    return re.findall(r"```python\n(.*?)```", section(title), re.DOTALL)


@pytest.fixture(scope="module")
def classes():
    """The classes that both examples define."""
    defined = {}
    for title in ("Adding a model", "Adding a site rule"):
        (example,) = examples(title)
        exec(example, defined)
    return defined


def made(kind, data=(X, Y), **options):
    return kind(data, Matern52(1.3, 0.8), Z, noise_variance=NOISE, **options)


def dense(model):
    """Qff and d = diag(Kff - Qff), as tensors that may be differentiated."""
    kernel = model.kernel
    points = tf.convert_to_tensor(model.inducing_variable.Z)
    jitter = gpflow.config.default_jitter() * np.eye(len(Z))
    V = tf.linalg.triangular_solve(tf.linalg.cholesky(kernel(points) + jitter), kernel(points, X))
    Q = tf.matmul(V, V, transpose_a=True)
    return Q, kernel(X, full_cov=False) - tf.linalg.diag_part(Q)


def test_model_equals_dense_formula(classes):
    model = made(classes["DTC"])
    Q, _ = dense(model)
    expected = multivariate_normal(np.zeros(30), Q + NOISE * np.eye(30)).logpdf(Y[:, 0])
    assert_allclose(model.maximum_log_likelihood_objective(), expected, rtol=1e-10)
    reference = gpflow.models.SGPR((X, Y), model.kernel, Z, noise_variance=NOISE)
    assert_all_close(model.predict_y(X), reference.predict_y(X), rtol=1e-8, atol=1e-9)


def test_stream_equals_batch(classes):
    """
    The objectives of two batches sum to the objective of all rows, with fixed parameters and
    points; a saved state continues.
    """
    stream = made(classes["StreamingDTC"], (X[:12], Y[:12]))
    total = stream.maximum_log_likelihood_objective()
    stream.update((X[12:], Y[12:]))
    total += stream.maximum_log_likelihood_objective()
    whole = made(classes["DTC"])
    assert_allclose(total, whole.maximum_log_likelihood_objective(), rtol=1e-9)
    assert_allclose(stream.predict_f(X)[0], whole.predict_f(X)[0], rtol=1e-7, atol=1e-8)
    state = StreamState.from_dict(stream.state.as_dict())
    again = classes["StreamingDTC"].from_state(state, Matern52())
    assert_array_equal(again.predict_f(X)[0], stream.predict_f(X)[0])


@pytest.mark.parametrize("chunk_size", [None, 7])
def test_site_rule_equals_dense_formula(classes, chunk_size):
    """The objective and all derivatives, in one chunk and in several."""
    model = made(classes["ExponentialNoise"], chunk_size=chunk_size)
    variables = model.trainable_variables
    loss, gradient = loss_and_gradient(model)

    def expected(_):
        noise = tf.convert_to_tensor(model.likelihood.variance)
        Q, d = dense(model)
        factor = tf.linalg.cholesky(Q + tf.linalg.diag(noise * tf.exp(d / noise)))
        return -tf.reduce_sum(gpflow.logdensities.multivariate_normal(Y, np.zeros((30, 1)), factor))

    assert_allclose(loss, expected(variables), rtol=1e-10)
    assert_all_close(gradient, derivative(expected, variables), rtol=1e-6, atol=1e-7)
