"""
BlockPEP against PEPR and PEP, and against power EP as it is defined, whose sums have errors of
1e-11. Sites have converged to TOL. The product rule is good to about 1e-9: CLOSE leaves a power of
ten.
"""

import pickle
from copy import deepcopy

import gpflow
import numpy as np
import pytest
from comparisons import assert_near
from dense_power_ep import MEAN, PowerEP, poisson, probit, student_t
from differences import assert_gradients
from gpflow.functions import Constant
from gpflow.kernels import Matern52
from gpflow.likelihoods import Gaussian, Poisson, Softmax, StudentT
from model_values import assert_close, assert_same, positive_parameter
from numpy.testing import assert_allclose
from quick import partly_slow
from refusals import refused, stopped
from waves import line, wave

from gpflow_pep import PEP, PEPR, BlockPEP
from gpflow_pep.likelihoods import Probit

CLOSE = 1e-8
TOL = 1e-10
X = np.array([[0.0], [2.3], [0.8], [1.7], [2.9]])
Z = np.array([[0.1], [0.9], [1.8], [2.7]])
LABELS = np.array([0, 1, 0, 1, 1])  # blocks of 2 and 3 rows
UNEVEN = np.array([0, 1, 0, 1, 2])


PROBIT = np.array([1.0, 0.0, 1.0, 1.0, 0.0])
COUNTS = np.array([0.0, 2.0, 5.0, 1.0, 0.0])
REALS = np.array([-0.4, 1.5, 2.5, 0.6, 1.0])


@pytest.mark.parametrize(
    ("likelihood", "Y", "log_prob", "points", "labels", "alpha", "scale"),
    [
        (Probit(), PROBIT, probit, Z, LABELS, 0.6, 1.4),
        (Poisson(), COUNTS, poisson, Z, UNEVEN, 0.5, 1.0),
        (Probit(), PROBIT, probit, X, LABELS, 1.0, 1.0),  # EP of a full GP
        (StudentT(0.6), REALS, student_t, Z, UNEVEN, 0.5, 1.0),
    ],
)
def test_matches_joint_power_ep(likelihood, Y, log_prob, points, labels, alpha, scale):
    """Energy, q(u) and sites; blocks of unequal sizes, in the order of their labels."""
    kernel = Matern52(1.4, lengthscales=0.9)
    options = {"alpha": alpha, "scale": scale, "mean_function": Constant(MEAN), "tol": TOL}
    model = BlockPEP((X, Y[:, None]), kernel, likelihood, points, blocks=labels, **options)
    status = model.update_sites()
    blocks = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    expected = PowerEP(kernel, X, points, blocks, log_prob, Y, alpha, scale).converge()
    assert status.converged
    assert_near(status.log_evidence, expected.energy(), CLOSE)
    linear, precision = expected.natural()
    q_mu, q_cov = model.compute_qu()
    covariance = np.linalg.inv(precision)
    assert_close([q_cov, q_mu[:, 0]], [covariance, covariance @ linear], CLOSE)
    h, T = expected.sites[0]
    d = len(h)
    sites = [model.sites.linear[0, :d], model.sites.precision[0, :d, :d]]
    assert_close(sites, [h, T], 100.0 * CLOSE)  # divided by variances of w, about 0.1


def given(Y, likelihood, blocks, **options):
    kernel, Z = Matern52(1.3, lengthscales=0.9), line(0.0, 3.0, 5)
    return BlockPEP((INPUTS, Y), kernel, likelihood, Z, blocks=blocks, **options)


INPUTS, OUTPUTS = wave(11, 3, noise=0.3, ends=(0.0, 3.0))
SOME = [[1, 4, 6, 7], [2, 5], [0, 3], [8], range(9, 11)]
POWERS = np.array([0.0, 0.3, 1.0, 0.5, 0.7])


@partly_slow(
    ("blocks", "alpha", "scale"),
    [(SOME, POWERS, [0.5, 1.0, 1.2, 0.8, 2.0]), (11, 0.4, 0.7)],
    1,
)
def test_gaussian_is_pepr(blocks, alpha, scale):
    """Blocks of any size, also one of all rows; a power and a scale for each block."""
    parts = {
        "kernel": Matern52(1.3, lengthscales=0.9),
        "likelihood": Gaussian(0.1),
        "inducing_variable": gpflow.inducing_variables.InducingPoints(Z),
        "mean_function": Constant(MEAN),
        "scale": positive_parameter(scale),
    }
    expected = PEPR((INPUTS, OUTPUTS), alpha=alpha, blocks=blocks, **parts)
    model = BlockPEP((INPUTS, OUTPUTS), alpha=alpha, blocks=blocks, chunk_size=3, **parts)
    assert_same(model, expected, CLOSE)
    assert_close(model.predict_f(Z, full_cov=True), expected.predict_f(Z, full_cov=True), CLOSE)


@pytest.mark.parametrize(("blocks", "alpha"), [(2, 0.0), (1, 0.5)])
def test_independent_rows_are_pep(blocks, alpha):
    """Blocks of one row, and the variational limit of any blocks."""
    options = {"alpha": alpha, "scale": 0.8, "tol": TOL}
    expected = PEP((INPUTS, OUTPUTS), Matern52(1.3), StudentT(0.4), Z, **options)
    model = BlockPEP((INPUTS, OUTPUTS), Matern52(1.3), StudentT(0.4), Z, blocks=blocks, **options)
    energies = [each.update_sites().log_evidence for each in (model, expected)]
    assert_allclose(energies[0], energies[1], rtol=CLOSE)
    assert_close(model.predict_y(Z), expected.predict_y(Z), CLOSE)
    assert model.is_lower_bound == (alpha == 0.0)


def test_gradient_is_that_of_the_converged_energy():
    """
    In all parameters, with a power and a scale for each block; h^4 = 1e-12, rounding 1e-10/h.
    Blocks of three rows, which need many more points, are compared with power EP above.
    """
    scale = positive_parameter([0.5, 1.0, 1.2, 0.8, 1.5])
    blocks = np.array([2, 0, 1, 2, 0, 1, 4, 3, 4])
    data = INPUTS[:9], OUTPUTS[:9]
    options = {"alpha": POWERS, "scale": scale, "mean_function": Constant(0.1), "tol": TOL}
    model = BlockPEP(data, Matern52(1.3), StudentT(0.4), Z, blocks=blocks, **options)
    assert_gradients(model.maximum_log_likelihood_objective, model.trainable_variables, 1e-3, 1e-6)


def test_scipy_trains_it_and_new_data_are_used():
    """Also in a copy of a copy; blocks given by their size are formed again."""
    model = given(OUTPUTS, Gaussian(0.1), 2)
    before = model.training_loss()
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": 3}
    )
    after = model.training_loss()
    assert after < before
    clone = pickle.loads(pickle.dumps(deepcopy(model)))
    assert_allclose(clone.training_loss(), after, rtol=1e-12)
    clone.data = INPUTS[:7], OUTPUTS[:7]
    expected = PEPR(
        clone.data, clone.kernel, clone.inducing_variable, blocks=2, likelihood=clone.likelihood
    )
    assert_allclose(clone.training_loss(), expected.training_loss(), rtol=1e-6)
    assert_allclose(model.training_loss(), after, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blocks": 5}, "blocks must have at most 4 rows for StudentT, got a block of 5"),
        ({"blocks": [[0, 1], [1, 2]]}, "blocks must be a partition of the 11 rows"),
        ({"blocks": 0.5}, "blocks must be a whole number .*, got 0.5"),
        ({"blocks": None}, "blocks must be"),
        ({"alpha": [0.5, 0.3]}, "alpha must be one number or one per block"),
        ({"scale": -1.0}, "scale must be in"),
        ({"Y": np.tile(OUTPUTS, 2)}, "data.1. .Y. must have one column .*, got 2 latent functions"),
        (
            {"Y": np.ones((11, 1)), "likelihood": Softmax(3)},
            "one latent function with blocks, got Soft",
        ),
    ],
)
def test_refuses(options, message):
    arguments = {"Y": OUTPUTS, "likelihood": StudentT(), "blocks": 2, **options}
    with refused(message):
        given(**arguments)


def test_refuses_what_needs_single_rows():
    model = given(OUTPUTS, Gaussian(0.1), SOME)
    with refused("batch_size must be None: BlockPEP"):
        model.update_sites(batch_size=2)
    with refused("batch_size must be None: BlockPEP"):
        next(model.minibatches(2))
    with refused("data must keep 11 rows, because blocks or scale were given for them, got 4"):
        model.data = INPUTS[:4], OUTPUTS[:4]
    with refused("projection must be 'kl' for BlockPEP, got 'wasserstein'"):
        model.projection = "wasserstein"
        model.training_loss()
    for method in (model.surrogate, model.loo_log_predictive_density):
        with pytest.raises(NotImplementedError, match="BlockPEP has no"):
            method()


def test_a_prior_much_wider_than_the_likelihood():
    """PEP computes the sites of blocks of one row by another quadrature."""
    X = line(0.0, 1.0, 6)
    data = X, (X > 0.4).astype(float)
    expected = PEP(data, Matern52(1e4), Probit(), X[::2], tol=TOL).update_sites()
    single, double = (
        BlockPEP(data, Matern52(1e4), Probit(), X[::2], blocks=size, tol=TOL) for size in (1, 2)
    )
    assert_near(single.update_sites().log_evidence, expected.log_evidence, 1e-7)
    assert double.update_sites().converged


def test_moments_that_are_not_resolved_even_under_the_prior_are_an_error():
    """Precise contradictory observations at nearly the same inputs."""
    X = np.array([[0.0], [0.01]])
    model = BlockPEP((X, 300.0 * X), Matern52(), StudentT(0.01), X[:1], blocks=2)
    with stopped("wider than the likelihood"):
        model.maximum_log_likelihood_objective()


def test_new_data_with_wider_blocks_are_refused():
    X = line(0.0, 1.0, 6)
    model = BlockPEP((X[:2], X[:2]), Matern52(), Gaussian(), X[::2], blocks=4)
    with refused("at most 2 rows.*got 6"):
        model.data = X, X
