"""Derivatives of PEPClassifier's energy, at sites that have converged and others, and those from minibatches.

Finite differences of fourth order in steps of h = 1e-3 of a random direction in the variables: off by some h^4 F(5)/30,
1e-9 where F changes over lengths of a tenth, and by the noise of quadrature over h, 1e-12/1e-3/α. DIFFERENCE, relative
to the largest slope (1 or more here), is that with a power of ten or two.
"""

import functools

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_pep import PEPClassifier
from gpflow_pep.likelihoods import Probit

DIFFERENCE = 1e-7
N, ALPHAS = 10, (0.0, 0.4, 1.0)

LIKELIHOODS = {
    "Gaussian": lambda: gpflow.likelihoods.Gaussian(0.3),
    "StudentT": lambda: gpflow.likelihoods.StudentT(scale=0.4),
    "Probit": Probit,
}


def _model(name, projection="kl", P=2):
    rng = np.random.default_rng(6)
    X = rng.uniform(0.0, 3.0, (N, 2))
    Y = np.sin(X @ rng.normal(size=(2, P))) + 0.3 * rng.normal(size=(N, P))
    if name == "Probit":
        Y = np.where(Y > 0.0, 1.0, 0.0)
    kernel = gpflow.kernels.SquaredExponential(2.0, lengthscales=[0.8, 1.3])
    mean = gpflow.functions.Constant(np.linspace(0.2, -0.1, P))
    Z = np.array([[0.3, 0.5], [1.2, 2.6], [2.1, 0.9], [2.8, 2.0]])
    return PEPClassifier((X, Y), kernel, LIKELIHOODS[name](), Z, projection=projection, mean_function=mean)


class Compiled:
    """A model with a prior, its energy with the prior's density and the derivatives of both, compiled."""

    def __init__(self, model):
        model.kernel.variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(1.0))
        self.model, self.variables = model, model.trainable_variables
        self.evaluate = tf.function(self._evaluate)

    def _evaluate(self):
        with tf.GradientTape() as tape:
            value = -self.model.training_loss()
        return value, tape.gradient(value, self.variables)

    def value(self):
        return float(self.evaluate()[0])

    def gradients(self):
        return self.evaluate()[1]

    def converged(self):
        """The same where the sites follow the hyperparameters."""
        status = self.model.update_sites(tol=1e-10)
        assert status.converged
        return status.log_evidence + float(self.model.log_prior_density())

    def compare(self, value=None, only=None):
        rng = np.random.default_rng(7)
        slopes, differences = [], []
        for variable, gradient in zip(self.variables, self.gradients(), strict=True):
            if only is None or any(variable is parameter.unconstrained_variable for parameter in only):
                direction = rng.normal(size=variable.shape)
                direction /= np.linalg.norm(direction)
                slopes.append(np.sum(direction * gradient))
                differences.append(_difference(value or self.value, variable, direction))
        assert np.abs(slopes).max() > 0.1
        np.testing.assert_allclose(slopes, differences, rtol=0.0, atol=DIFFERENCE * max(1.0, np.abs(slopes).max()))

    def some_sites(self):
        """Proper ones, some of them of negative precision, of no relation to the data."""
        rng = np.random.default_rng(8)
        self.model.sites.precision.assign(rng.uniform(-0.15, 0.6, (N, self.model.num_latent_gps)))
        self.model.sites.linear.assign(rng.normal(size=(N, self.model.num_latent_gps)))


def _difference(value, variable, direction, h=1e-3):
    values = []
    for steps in (1, -1, 2, -2):
        variable.assign_add(steps * h * direction)
        values.append(value())
        variable.assign_sub(steps * h * direction)
    return (8.0 * (values[0] - values[1]) - (values[2] - values[3])) / (12.0 * h)


@functools.cache
def _compiled(name, projection="kl", P=2):
    return Compiled(_model(name, projection, P))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_at_any_sites(name, alpha):
    """In kernel, Z, mean function and likelihood, while the sites stay."""
    compiled = _compiled(name)
    compiled.model.alpha = alpha
    compiled.some_sites()
    assert len(compiled.variables) == {"Gaussian": 5, "StudentT": 5, "Probit": 4}[name]
    compiled.compare()


@pytest.mark.parametrize(("name", "alpha"), [("StudentT", 0.4), ("StudentT", 1.0), ("Probit", 0.0), ("Probit", 0.4)])
def test_of_the_converged_energy(name, alpha):
    """KL: the energy is stationary in the sites, so that these are also the derivatives when the sites follow."""
    compiled = _compiled(name)
    compiled.model.alpha = alpha
    compiled.model.reset_sites()
    compiled.converged()
    compiled.compare(compiled.converged)


@pytest.fixture
def wasserstein():
    return _compiled("StudentT", "wasserstein", P=1)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_of_wasserstein_in_mean_function_and_likelihood(wasserstein, alpha):
    wasserstein.model.alpha = alpha
    wasserstein.some_sites()
    wasserstein.compare(only=[wasserstein.model.mean_function.c, wasserstein.model.likelihood.scale])


def test_of_wasserstein_where_it_is_kl(wasserstein):
    wasserstein.model.alpha = 0.0
    wasserstein.some_sites()
    wasserstein.compare()


# --- from minibatches -----------------------------------------------------------------------------------------------


@pytest.fixture(params=ALPHAS)
def converged(request):
    compiled = _compiled("StudentT")
    compiled.model.alpha = request.param
    assert compiled.model.update_sites(tol=1e-12).converged
    return compiled


def test_one_minibatch_of_all_rows(converged):
    """At converged sites it is the whole derivative, prior included: sites off by 1e-11 or so, and its terms cancel."""
    (estimates,) = converged.model.minibatches(N)
    for estimate, gradient in zip(estimates, converged.gradients(), strict=True):
        np.testing.assert_allclose(-estimate, gradient, rtol=0.0, atol=1e-8)
        assert np.abs(gradient).max() > 1e-3


def test_minibatches_are_unbiased(converged):
    """Equal parts of the rows, with the sites all but held: the mean of the estimates is the whole derivative."""
    estimates = list(converged.model.minibatches(5, damping=1e-12))
    assert len(estimates) == 2
    for *parts, gradient in zip(*estimates, converged.gradients(), strict=True):
        np.testing.assert_allclose(-np.mean(parts, axis=0), gradient, rtol=0.0, atol=1e-8)
        assert np.abs(parts[0] - parts[1]).max() > 1e-3
