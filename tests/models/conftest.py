"""What the tests of the collapsed models share: small problems, a dense evaluation of every formula, and gradients.

Fixtures hand out classes and functions, because modules of tests cannot import each other (see pyproject.toml).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.covariances import Kuf, Kuu


@pytest.fixture
def no_jitter():
    """GPflow's configuration without jitter and without a minimum of positive parameters; restored afterwards."""
    with gpflow.config.as_context(replace(gpflow.config.config(), jitter=0.0, positive_minimum=0.0)):
        yield


class Problem(NamedTuple):
    X: np.ndarray
    Y: np.ndarray
    Z: np.ndarray
    Xnew: np.ndarray


@pytest.fixture(scope="session")
def problem():
    """Makes regression problems in [0, 3]^D that a sparse posterior fits in part: Z is well spread but too few."""

    def make(N=24, M=5, D=2, P=1, seed=0):
        rng = np.random.default_rng(seed)
        X = rng.uniform(0.0, 3.0, size=(N, D))
        slopes = rng.normal(size=(D, P))
        Y = np.sin(2.0 * X @ slopes) + 0.4 * X[:, :1] + 0.3 * rng.normal(size=(N, P))
        # A Latin square: no two inducing points share a coordinate, so that Kuu is well conditioned.
        cells = np.stack([rng.permutation(M) for _ in range(D)], axis=1)
        return Problem(X, Y, 3.0 * (cells + 0.5) / M, rng.uniform(-1.0, 4.0, size=(7, D)))

    return make


@dataclass(frozen=True)
class Dense:
    """
    The formulas of the papers, with N x N matrices of numpy: D = Kff - Qff, S = diag(noise).

    The noise may differ from row to row; there every d/σ² becomes S^-1/2 D S^-1/2.
    """

    Kuu: np.ndarray
    Kuf: np.ndarray
    Kff: np.ndarray
    noise: np.ndarray
    residual: np.ndarray

    @classmethod
    def of(cls, model):
        """From a model's data, kernel, inducing variable, likelihood and mean function."""
        X, Y = (tf.convert_to_tensor(values) for values in model.data)
        Z = model.inducing_variable
        jitter = gpflow.config.default_jitter()
        return cls(
            Kuu(Z, model.kernel, jitter=jitter).numpy(),
            Kuf(Z, model.kernel, X).numpy(),
            model.kernel(X).numpy(),
            model.likelihood.variance_at(X).numpy()[:, 0],
            (Y - model.mean_function(X)).numpy(),
        )

    @property
    def Qff(self):
        return self.Kuf.T @ np.linalg.solve(self.Kuu, self.Kuf)

    @property
    def D(self):
        return self.Kff - self.Qff

    @property
    def relative(self):
        """S^-1/2 D S^-1/2."""
        return self.D / np.sqrt(np.outer(self.noise, self.noise))

    @property
    def N(self):
        return len(self.noise)

    @property
    def P(self):
        return self.residual.shape[1]

    def singletons(self):
        return np.arange(self.N)[:, None]

    def log_gaussian(self, covariance):
        log_det = np.linalg.slogdet(2.0 * np.pi * covariance)[1]
        return -0.5 * (self.P * log_det + np.sum(self.residual * np.linalg.solve(covariance, self.residual)))

    def exact(self):
        return self.log_gaussian(self.Kff + np.diag(self.noise))

    def vfe(self):
        """log N(y; m, Qff + S), from which the bounds subtract."""
        return self.log_gaussian(self.Qff + np.diag(self.noise))

    def sgpr(self):
        return self.vfe() - 0.5 * self.P * np.trace(self.relative)

    def spherical_scale(self):
        return 1.0 / (1.0 + np.mean(np.diag(self.relative)))

    def spherical(self):
        return self.vfe() + 0.5 * self.P * self.N * np.log(self.spherical_scale())

    def structured(self, blocks):
        """F3 and F4: T-SGPR (singletons) and BT-SGPR."""
        return self.vfe() - 0.5 * self.P * sum(_log_det(self.relative[np.ix_(b, b)]) for b in blocks)

    def shared(self, blocks):
        """F5."""
        mean = np.mean([self.relative[np.ix_(b, b)] for b in blocks], axis=0)
        return self.vfe() - 0.5 * self.P * len(blocks) * _log_det(mean)

    def covariance(self, alpha, blocks, scale=1.0):
        """Qff + m blkdiag(alpha_b D_bb) + S."""
        covariance = self.Qff + np.diag(self.noise)
        for power, b in zip(np.broadcast_to(alpha, len(blocks)), blocks, strict=True):
            covariance[np.ix_(b, b)] += power * scale * self.D[np.ix_(b, b)]
        return covariance

    def pep(self, alpha, blocks, scale=1.0):
        """Power EP with a power per block, and M = m I."""
        penalty = 0.0
        for power, b in zip(np.broadcast_to(alpha, len(blocks)), blocks, strict=True):
            X = scale * self.relative[np.ix_(b, b)]
            if power == 0.0:
                penalty += 0.5 * np.trace(X) + 0.5 * len(b) * (scale - 1.0)
            else:
                penalty += (1.0 - power) / (2.0 * power) * _log_det(power * X)
                penalty += 0.5 * len(b) / power * np.log1p(power * (scale - 1.0))
        penalty -= 0.5 * self.N * np.log(scale)
        return self.log_gaussian(self.covariance(alpha, blocks, scale)) - self.P * penalty


def _log_det(X):
    return np.linalg.slogdet(np.eye(len(X)) + X)[1]


@pytest.fixture(scope="session")
def dense():
    return Dense


@pytest.fixture(scope="session")
def named():
    """The unconstrained variables of a model's trainable parameters, by name."""

    def variables(model):
        parameters = gpflow.utilities.parameter_dict(model)
        return {name: p.unconstrained_variable for name, p in parameters.items() if p.trainable}

    return variables


def _value_and_gradients(model, variables):
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        value = model.maximum_log_likelihood_objective()
    return value.numpy(), [np.asarray(gradient) for gradient in tape.gradient(value, variables)]


@pytest.fixture(scope="session")
def value_and_gradients(named):
    """
    The objective and its derivatives in `variables`, by default all that the model trains. Models made of the same
    kernel, inducing variable, likelihood and mean function are compared in the variables of one of them.
    """

    def evaluate(model, variables=None):
        return _value_and_gradients(model, list(named(model).values()) if variables is None else variables)

    return evaluate


def _flat(arrays):
    return np.concatenate([np.ravel(array) for array in arrays])


@pytest.fixture(scope="session")
def compiled_step():
    """Makes a compiled function of a model's loss and gradients."""

    def make(model):
        @tf.function(autograph=False)
        def step():
            with tf.GradientTape() as tape:
                loss = model.training_loss()
            return loss, tape.gradient(loss, model.trainable_variables)

        return step

    return make


@pytest.fixture(scope="session")
def assert_close():
    """Asserts that lists of arrays agree to `rel` times the largest number expected in any of them."""

    def check(actual, expected, rel):
        assert [np.shape(a) for a in actual] == [np.shape(e) for e in expected]
        actual, expected = _flat(actual), _flat(expected)
        np.testing.assert_allclose(actual, expected, rtol=0.0, atol=rel * np.max(np.abs(expected)))

    return check


@pytest.fixture(scope="session")
def assert_same(named, value_and_gradients, assert_close):
    """Asserts that two models made of the same parts have the same objective and gradients."""

    def check(actual, expected, rel):
        variables = list(named(expected).values())
        value, gradients = value_and_gradients(actual, variables)
        expected_value, expected_gradients = value_and_gradients(expected, variables)
        assert value == pytest.approx(expected_value, rel=rel)
        assert_close(gradients, expected_gradients, rel)

    return check


class Positive(gpflow.functions.Function):
    """A noise level that varies with the inputs: 0.1 + softplus of a linear function."""

    def __init__(self, slopes, intercept):
        super().__init__()
        self.linear = gpflow.functions.Linear(np.reshape(slopes, (-1, 1)), [intercept])

    def __call__(self, X):
        return 0.1 + tf.nn.softplus(self.linear(X))


@pytest.fixture(scope="session")
def varying_noise():
    """Makes Gaussian likelihoods whose variance, or whose standard deviation ("scale"), is a function of two inputs."""

    def make(quantity="variance"):
        return gpflow.likelihoods.Gaussian(**{quantity: Positive([0.8, -0.5], -0.7)})

    return make


@pytest.fixture(scope="session")
def converge():
    """Updates the sites of a PEP model to a tolerance, which stays with the model; returns the status."""

    def update(model, tol, **options):
        model.tol = tol
        status = model.update_sites(**options)
        assert status.converged
        return status

    return update


@pytest.fixture(scope="session")
def energy_at_sites():
    """The energy of a PEP model at the sites that it has, whether or not they have converged: no sweep is made."""

    def evaluate(model):
        before = model.max_sweeps
        model._options.max_sweeps.assign(0)  # less than a user may ask for: the sites are looked at, and stay
        try:
            with model.without_warnings():
                return model.update_sites().log_evidence
        finally:
            model.max_sweeps = before

    return evaluate
