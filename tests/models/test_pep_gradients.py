"""
Derivatives of PEP's energy while the sites follow the hyperparameters, and those from minibatches.

The energy is stationary in sites that match their tilted distributions, so that the gradient at
fixed sites is the whole one (KL). Finite differences of fourth order in steps of h = 1e-3 of a
random direction in each variable are off by some h^4 F(5)/30, 1e-9 where F changes over lengths of
a tenth, and by the noise of quadrature and of sites converged to TOL over h, 1e-12/1e-3/α.
DIFFERENCE, of a slope or of 1, is that with a power of ten or two.
Probabilities of several classes have a relative error of 1e-10: SEVERAL.
"""

import functools
import itertools

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from comparisons import assert_near
from differences import assert_gradients
from gpflow.likelihoods import Poisson, Softmax, StudentT
from model_values import converge, loss_and_gradient, positive_parameter

from gpflow_pep import PEP, MultiClassRobustMax
from gpflow_pep.likelihoods import Probit

DIFFERENCE = 1e-7
SEVERAL = 1e-6
TOL = 1e-10
N = 10
C = 3
POWERS = {
    "0": np.zeros(N),
    "1": np.ones(N),
    "mixed": np.resize([0.0, 0.5, 1.0], N),
}

LIKELIHOODS = {
    "Probit": Probit,
    "Poisson": Poisson,
    "MultiClassRobustMax": lambda: MultiClassRobustMax(C, 0.01),
    "Softmax": lambda: Softmax(C),
    "StudentT": lambda: StudentT(scale=0.4),
}
# Kernel 2, Z, mean function, scale; and the scale of Student's t.
NUM_TRAINABLE = {"StudentT": 6}


def _model(name, alpha):
    rng = np.random.default_rng(6)
    P = 2
    X = rng.uniform(0.0, 3.0, (N, 2))
    Y = np.sin(X @ rng.normal(size=(2, P))) + 0.3 * rng.normal(size=(N, P))
    if name == "Probit":
        Y = np.where(Y > 0.0, 1.0, 0.0)
    elif name == "Poisson":
        Y = np.floor(np.exp(1.2 * Y + 0.5))
    elif name in ("MultiClassRobustMax", "Softmax"):
        Y = np.argmax(np.sin(X @ rng.normal(size=(2, C)) + np.arange(C)), axis=1)[:, None] * 1.0
        P = C
    kernel = gpflow.kernels.SquaredExponential(2.0, lengthscales=[0.8, 1.3])
    mean = gpflow.functions.Constant(np.linspace(0.2, -0.1, P))
    Z = np.array([[0.3, 0.5], [1.2, 2.6], [2.1, 0.9], [2.8, 2.0]])
    scale = positive_parameter(0.8)
    return PEP(
        (X, Y),
        kernel,
        LIKELIHOODS[name](),
        Z,
        alpha=alpha,
        mean_function=mean,
        scale=scale,
        tol=TOL,
    )


@functools.lru_cache(maxsize=2)  # tests that take the same one follow each other
def _compiled(name):
    """
    A model, and its energy with the density of a prior, compiled, at sites that converge each time.
    """
    model = _model(name, alpha=np.full(N, 0.4))
    model.kernel.variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(1.0))
    compiled = tf.function(lambda: -model.training_loss())

    def evaluate():
        value = compiled()
        assert model.sites_status.converged
        return value

    return model, evaluate


@pytest.mark.parametrize(
    ("name", "power"),
    [
        *itertools.product(["StudentT"], POWERS),
        *((name, "mixed") for name in LIKELIHOODS if name != "StudentT"),
    ],
)
def test_of_the_converged_energy(name, power):
    """In kernel, Z, mean function, scale and likelihood, for a power of each row."""
    model, energy = _compiled(name)
    model.alpha = POWERS[power]
    model.reset_sites()
    assert len(model.trainable_variables) == NUM_TRAINABLE.get(name, 5)
    tolerance = DIFFERENCE
    if model.num_latent_gps == C:
        tolerance = SEVERAL
    assert_gradients(energy, model.trainable_variables, h=1e-3, tolerance=tolerance)


# --- from minibatches -----------------------------------------------------------------------------


def test_minibatches_are_unbiased():
    """
    Equal parts of the rows, with the sites all but held: the mean of the estimates is the whole
    derivative.
    """
    model = _model("StudentT", alpha=POWERS["mixed"])
    converge(model, 1e-12)
    estimates = list(model.minibatches(5, damping=1e-12))
    assert len(estimates) == 2
    for *parts, gradient in zip(*estimates, loss_and_gradient(model)[1], strict=True):
        assert_near(np.mean(parts, axis=0), gradient, 1e-8)
        assert np.abs(parts[0] - parts[1]).max() > 1e-3
