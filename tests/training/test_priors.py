"""
Weak priors: their densities, the parameters that get one, and everything of a model that must know
them.
"""

import copy
import pickle

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.kernels import Linear, Matern52, SeparateIndependent
from gpflow.likelihoods import Gaussian, Softmax, StudentT
from numpy.testing import assert_allclose
from refusals import refused

from gpflow_pep import PEP, PEPR, PEPClassifier, fit, weak_priors
from gpflow_pep.inducing import uniform
from gpflow_pep.likelihoods import Probit
from gpflow_pep.maths.log_prior import LogPrior
from gpflow_pep.training.priors import locations

rng = np.random.default_rng(11)
X = rng.normal(size=(40, 3)) * [1.0, 20.0, 0.1]
Y = np.sin(X[:, :1]) + 0.3 * rng.normal(size=(40, 1))


def model_of(X=X, Y=Y, kernel=None):
    if kernel is None:
        lengthscales = 1.7 * X.std(axis=0)
        kernel = Matern52(1.3 * Y.var(), lengthscales)
    return PEPR((X, Y), kernel, uniform(X, 10), noise_variance=0.2 * Y.var())


def with_priors(**options):
    model = model_of()
    weak_priors(model, **options)
    return model


def density(values, typical, common):
    """The log density of the logarithms, by NumPy."""
    t = np.log(values) - np.log(typical)
    deviations = np.atleast_1d(t - t.mean())
    return -0.5 * (t.mean() / common) ** 2 - 0.5 * np.sum(deviations**2) / 0.4**2


def noise_density(value, typical, scale):
    """The log density of Student's t, by SciPy, without its constant."""
    t = (np.log(value) - np.log(typical)) / scale
    return scipy.stats.t(10.0).logpdf(t) - scipy.stats.t(10.0).logpdf(0.0)


def test_density_of_a_regression():
    model = with_priors()
    expected = density(model.kernel.lengthscales.numpy(), np.sqrt(3.0) * X.std(axis=0), 1.5)
    expected += density(model.kernel.variance.numpy(), Y.var(), 1.0)
    expected += noise_density(model.likelihood.variance.numpy(), np.exp(-2.0) * Y.var(), 1.0)
    # A few dozen operations on values of order 1.
    assert_allclose(model.log_prior_density(), expected, rtol=1e-13)
    log_evidence = model.maximum_log_likelihood_objective()
    assert_allclose(-model.training_loss(), log_evidence + expected, rtol=1e-13)


def test_density_of_every_kind_of_kernel():
    """
    Sums, products, active columns, one lengthscale for all columns, and a kernel of no spread.
    """
    kernels = gpflow.kernels
    kernel = (
        kernels.Linear([1.0, 2.0], active_dims=[1, 2]) * kernels.Constant(0.7)
        + kernels.SquaredExponential(0.4, 3.0)
        + kernels.White(0.1)
        + kernels.ArcCosine()
    )
    weak_priors(model_of(kernel=kernel))
    spread = X.std(axis=0)
    product, radial, white, arc_cosine = kernel.kernels
    linear, constant = product.kernels
    expected = {
        linear.variance: density([1.0, 2.0], Y.std() / (2.0 * spread[1:] ** 2), 2.0),
        constant.variance: density(0.7, Y.std(), 1.0),
        radial.variance: density(0.4, Y.var(), 1.0),
        radial.lengthscales: density(3.0, np.sqrt(3.0) * np.exp(np.log(spread).mean()), 1.5),
        white.variance: density(0.1, np.exp(-2.0) * Y.var(), 1.0),
        arc_cosine.variance: 0.0,
    }
    for parameter, value in expected.items():
        assert_allclose(parameter.log_prior_density(), value, rtol=1e-12)


def test_density_of_classes_and_of_students_t():
    labels = (Y > 0.0).astype(float)
    model = PEPClassifier((X, labels), Matern52(2.0), Probit(), uniform(X, 10))
    weak_priors(model)
    expected = density(2.0, np.e, 1.0)
    assert_allclose(model.kernel.variance.log_prior_density(), expected, rtol=1e-13)
    weak_priors(PEPClassifier((X, labels), model.kernel, Softmax(3), uniform(X, 10)))
    expected = density(2.0, np.exp(5.0), 1.0)
    assert_allclose(model.kernel.variance.log_prior_density(), expected, rtol=1e-13)
    kernel = Matern52(2.0)
    likelihood = StudentT(0.4)
    robust = gpflow.models.SVGP(kernel, likelihood, uniform(X, 10))
    with refused(r"data must be given: SVGP does not store"):
        weak_priors(robust)
    weak_priors(robust, (X, Y))
    expected = noise_density(0.4, np.exp(-1.0) * Y.std(), 0.5)
    assert_allclose(likelihood.scale.log_prior_density(), expected, rtol=1e-13)
    assert robust.inducing_variable.Z.prior is None
    with refused(r"model must be a GPflow model, got Matern52"):
        weak_priors(kernel)
    with refused(r"data must be None: PEPClassifier stores its data"):
        weak_priors(model, (X, labels))


def test_kernels_of_single_outputs_have_the_unit_of_their_column():
    """
    A column that does not vary has no spread of its own; the others' mean logarithm stands for it.
    """
    columns = np.concatenate([Y, 1e3 * Y, np.ones_like(Y)], axis=1)
    kernel = SeparateIndependent([Matern52() for _ in range(3)])
    Z = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(uniform(X, 10))
    )
    weak_priors(PEP((X, columns), kernel, Gaussian(), Z))
    found = [float(each.variance.prior.location) for each in kernel.kernels]
    logs = [np.log(Y.var()), np.log(1e6 * Y.var())]
    assert_allclose(found, [*logs, np.mean(logs)], rtol=1e-12)


@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_extreme_units(unit):
    """The squares of the spreads overflow, their logarithms do not."""
    kernel = Linear(np.ones(3))
    weak_priors(PEPR((X * unit, Y / unit), kernel, uniform(X, 10) * unit, noise_variance=1.0))
    expected = 2.0 * np.log(Y.std() / X.std(axis=0)) - np.log(3.0) - 4.0 * np.log(unit)
    assert_allclose(kernel.variance.prior.location, expected, rtol=1e-12)


def test_parameters_keep_their_own_priors_and_fixed_parameters_get_none():
    model = model_of()
    prior = tfp.distributions.LogNormal(np.float64(0.0), np.float64(1.0))
    model.kernel.variance.prior = prior
    gpflow.set_trainable(model.likelihood.variance, False)
    model.kernel.lengthscales.prior_on = "unconstrained"  # of no prior yet
    weak_priors(model)
    assert np.isfinite(model.log_prior_density())
    assert model.kernel.variance.prior is prior
    assert model.likelihood.variance.prior is None
    assert isinstance(model.kernel.lengthscales.prior, LogPrior)


def test_a_second_call_moves_the_priors():
    """Compiled functions follow, and samplers get priors of their own."""
    model = with_priors()
    prior = model.kernel.lengthscales.prior
    compiled = tf.function(model.log_prior_density)
    before = compiled().numpy()
    model.data = (3.0 * X, Y)
    weak_priors(model)
    assert model.kernel.lengthscales.prior is prior
    expected = density(model.kernel.lengthscales.numpy(), 3.0 * np.sqrt(3.0) * X.std(axis=0), 1.5)
    assert_allclose(prior.log_prob(model.kernel.lengthscales), expected, rtol=1e-13)
    assert_allclose(compiled(), model.log_prior_density(), rtol=1e-13)
    assert abs(compiled().numpy() - before) > 0.1
    weak_priors(model, for_sampling=True)
    assert model.kernel.lengthscales.prior.for_sampling


def test_samplers_see_a_density_of_the_parameters():
    """
    In log θ, the density that GPflow's helper samples is the normal one: the Jacobians cancel.
    """
    parameter = with_priors(for_sampling=True).kernel.variance
    helper = gpflow.optimizers.SamplingHelper(parameter.log_prior_density, [parameter])
    sampled = []
    logs = np.linspace(-2.0, 2.0, 5)
    for value in logs:
        x = parameter.transform.inverse(np.exp(value))
        slope = 1.0 / (1.0 + np.exp(-x))  # of a softplus: dθ/dx
        sampled.append(helper.target_log_prob_fn(x) - np.log(slope) + value)  # dx/dlog θ = θ/slope
    expected = [density(np.exp(value), Y.var(), 1.0) for value in logs]
    assert_allclose(sampled, expected, rtol=1e-10)


def test_trained_parameters_do_not_depend_on_units():
    found = []
    for x_units, y_unit in ((np.ones(3), 1.0), (np.array([1e-6, 1.0, 1e5]), 10.0)):
        model = model_of(X * x_units, Y * y_unit)
        weak_priors(model)
        fit(model, train_inducing=False, tolerance=1e-8)
        parameters = (
            model.kernel.lengthscales / x_units,
            model.kernel.variance[None] / y_unit**2,
            model.likelihood.variance[None] / y_unit**2,
        )
        found.append(np.log(np.concatenate(parameters)))
    # The same optimum: jitter and the lower bound of the noise, 1e-6, are absolute.
    assert_allclose(*found, atol=1e-3)


def test_copies_and_pickles_have_the_priors():
    model = with_priors()
    clone = copy.deepcopy(model)
    assert clone.kernel.lengthscales.prior.location is not model.kernel.lengthscales.prior.location
    assert_allclose(clone.training_loss(), model.training_loss(), rtol=1e-13)
    prior = pickle.loads(pickle.dumps(model.kernel.lengthscales.prior))
    lengthscales = model.kernel.lengthscales
    assert_allclose(prior.log_prob(lengthscales), lengthscales.log_prior_density())
    assert len(locations(clone)) == 3
    assert "LogPrior" in gpflow.utilities.tabulate_module_summary(model)


def test_a_checkpoint_of_other_priors_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    fit(with_priors(), max_iterations=2, checkpoint=path)
    for change in (lambda other: None, lambda other: weak_priors(other, for_sampling=True)):
        other = model_of()
        change(other)
        with refused("lengthscales"):
            fit(other, max_iterations=3, checkpoint=path)
    assert fit(with_priors(), max_iterations=3, checkpoint=path).iterations == 3
