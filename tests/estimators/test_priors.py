"""The estimators' weak priors: who has them, and how they change fits, refits and streams."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.kernels import Matern52
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused

from gpflow_pep.estimators import SparseGPRegressor
from gpflow_pep.selection import reuse

rng = np.random.default_rng(3)
X = rng.normal(size=(230, 12))
y = X[:, 0] + 0.5 * rng.normal(size=230)
WIDE = (X[:30], y[:30]), (X[30:], y[30:])  # 12 columns, one of which matters


def parameters_of(estimator):
    return [each for each in estimator.kernel_.parameters if each.trainable]


def negative_log_density(estimator, rows):
    mean, sd = estimator.predict(rows[0], return_std=True)
    return np.mean(0.5 * np.log(2.0 * np.pi * sd**2) + 0.5 * ((rows[1] - mean) / sd) ** 2)


def test_a_wide_table_is_not_overfitted():
    train, held_out = WIDE
    scores = [
        negative_log_density(SparseGPRegressor(priors=priors, random_state=0).fit(*train), held_out)
        for priors in ("auto", None)
    ]
    noise_alone = 0.5 * np.log(2.0 * np.pi * 0.25) + 0.5  # .73: nobody can do better
    assert noise_alone < scores[0] < noise_alone + 0.3
    assert scores[1] > scores[0] + 0.1


def test_the_default_kernel_has_priors_and_a_given_kernel_keeps_its_own():
    train, _ = WIDE
    for kernel, priors, has_priors in (
        (None, "auto", True),
        (None, None, False),
        (Matern52(), "auto", False),
        (Matern52(), "weak", True),
    ):
        estimator = SparseGPRegressor(kernel, priors=priors, optimizer=None).fit(*train)
        assert all((each.prior is not None) == has_priors for each in parameters_of(estimator))
        assert (estimator.model_.likelihood.variance.prior is not None) == has_priors
    with refused('priors must be "auto", "weak" or None, got \'flat\''):
        SparseGPRegressor(priors="flat").fit(*train)


def test_a_refit_uses_the_priors_of_its_own_data():
    """A compiled model is used again: its priors move with the data."""
    others = [1e3 * X[:50], y[:50]]
    reuse._kept.clear()
    expected = SparseGPRegressor(random_state=0).fit(*others)
    reuse._kept.clear()
    SparseGPRegressor(random_state=0).fit(X[50:90], y[50:90])
    count = len(reuse._kept)
    assert count == 2  # GPR was trained, PEPR has the posterior
    found = SparseGPRegressor(random_state=0).fit(*others)
    assert len(reuse._kept) == count
    assert_array_equal(found.predict(others[0]), expected.predict(others[0]))


def test_streams_move_the_priors_and_count_them_once():
    """The first batch is one row, whose spread is unknown; units are far from 1."""
    unit = 1e3
    estimator = SparseGPRegressor(random_state=0, max_iterations=50)
    for rows in (slice(0, 1), slice(1, 60), slice(60, 120)):
        estimator.partial_fit(unit * X[rows, :2], y[rows])
    prior = estimator.kernel_.kernels[0].lengthscales.prior
    expected = np.log(np.sqrt(2.0) * unit * X[:120, :2].std(axis=0))
    assert_allclose(prior.location, expected, atol=0.3)  # of the points and the batch
    assert negative_log_density(estimator, (unit * X[120:, :2], y[120:])) < 1.0
    model = estimator.model_
    parameters = *parameters_of(estimator), model.likelihood.variance
    once = sum(each.log_prior_density() for each in parameters)
    expected = model.maximum_log_likelihood_objective() + once
    assert_allclose(-model.training_loss(), expected, atol=1e-9)


def test_a_prior_of_the_user_is_not_taken_from_an_earlier_model():
    """Its variable is no setting of a weak prior, which compiled models exchange."""
    found = []
    for typical in (1.0, 0.05):
        kernel = Matern52()
        location = tf.Variable(np.log(typical), dtype=tf.float64)
        scale = tf.constant(0.01, tf.float64)
        kernel.lengthscales.prior = tfp.distributions.LogNormal(location, scale)
        estimator = SparseGPRegressor(kernel, random_state=0).fit(X[:40, :1], y[:40])
        found.append(estimator.kernel_.lengthscales.numpy())
    assert_allclose(found, [1.0, 0.05], rtol=0.1)  # the priors are narrow
