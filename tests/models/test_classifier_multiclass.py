"""
PEPClassifier with multi-class likelihoods: C latent functions with shared or separate kernels.
"""

import functools

import gpflow
import numpy as np
import pytest
from comparisons import assert_near
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.kernels import Matern52, SquaredExponential
from gpflow.likelihoods import Softmax
from model_values import in_q, loss_and_gradient
from refusals import refused
from sklearn.datasets import load_iris

from gpflow_pep import ARPEP, MultiClassRobustMax, PEPClassifier

N = 14
C = 3
rng = np.random.default_rng(111)
X = rng.uniform(0.0, 3.0, (N, 2))
Y = (
    np.argmax(
        np.sin(X @ rng.normal(size=(2, C)) + np.arange(C)) + 0.3 * rng.normal(size=(N, C)), axis=1
    )[:, None]
    * 1.0
)
Z = np.array([[0.3, 0.5], [1.2, 2.6], [2.1, 0.9], [2.8, 2.0]])


def make(points=None, alpha=0.5, likelihood=None, **options):
    kernel = SquaredExponential(2.0, lengthscales=[0.8, 1.3])
    mean = gpflow.functions.Constant(np.array([0.2, 0.0, -0.1]))
    points = Z if points is None else points
    options = {"mean_function": mean, "tol": 1e-10, **options}
    likelihood = MultiClassRobustMax(C, 0.01) if likelihood is None else likelihood
    return PEPClassifier((X, Y), kernel, likelihood, points, alpha=alpha, **options)


@pytest.mark.parametrize("kind", [MultiClassRobustMax, Softmax])
def test_alpha_zero_is_stationary_for_svgp(kind):
    """At the q of alpha = 0 the gradients of the bound of ARPEP (SVGP) in q vanish."""
    model = make(alpha=0.0, likelihood=kind(C))
    assert model.update_sites().converged
    mean, covariance = model.compute_qu()
    peer = ARPEP(
        model.kernel, model.likelihood, model.inducing_variable, alpha=0.0, num_data=N, whiten=False,
        mean_function=model.mean_function, q_mu=mean, q_sqrt=np.linalg.cholesky(covariance),
    )  # fmt: skip
    loss, gradients = loss_and_gradient(peer, (X, Y), variables=in_q(peer))
    for gradient in gradients:
        assert np.abs(gradient).max() < 1e-6
    assert_near(loss, model.training_loss(), 1e-6)


@functools.cache
def of_defaults(kind):
    """A model of all rows of Fisher's irises, and its data."""
    inputs, labels = load_iris(return_X_y=True)
    inputs = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    labels = labels[:, None].astype(float)
    kernel = Matern52(4.0, lengthscales=np.full(inputs.shape[1], 2.0))
    points = inputs[np.random.default_rng(115).choice(len(inputs), 15, replace=False)]
    return PEPClassifier((inputs, labels), kernel, kind(3), points), inputs, labels


@pytest.mark.parametrize(
    ("kind", "alpha"),
    [
        (MultiClassRobustMax, 0.2),
        (MultiClassRobustMax, 1.0),
        (Softmax, 0.5),
    ],
)
def test_converges_from_defaults(kind, alpha):
    model, inputs, labels = of_defaults(kind)
    model.alpha = alpha
    model.reset_sites()
    status = model.update_sites()
    assert status.converged
    assert np.isfinite(status.log_evidence)
    assert np.mean(np.argmax(model.predict_y(inputs)[0], axis=1) == labels[:, 0]) > 0.93


def test_rejects_inducing_variables_of_several_sizes():
    points = SeparateIndependentInducingVariables([InducingPoints(Z[c:]) for c in range(3)])
    with refused(r"parts of the same size, got \[2, 3, 4\]"):
        make(points=points)
