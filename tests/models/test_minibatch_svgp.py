"""Every minibatch model: minibatches, diagonal and negative roots of q, and invalid data."""

import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Gaussian
from kinds import X, Y, made
from numpy.testing import assert_allclose
from refusals import refused, stopped

from gpflow_pep import APEP, ARPEP, BTSVGP, PEPSVGP, RPAPEP, TSVGP, StreamingSVGP


def model(kind, num_data=8, **options):
    return made(kind, likelihood=Gaussian(), num_data=num_data, **options)


@pytest.mark.parametrize("kind", [ARPEP, BTSVGP])
def test_rejects_invalid_minibatches(kind):
    each = model(kind)
    rows = tf.TensorSpec([None, 2], tf.float64), tf.TensorSpec([None, 1], tf.float64)
    loss = tf.function(each.training_loss, input_signature=[rows])
    with refused("the same number of rows"):
        each.maximum_log_likelihood_objective((X[:8], Y[:1]))
    with stopped(r"1 of the entries of data\[0\] \(X\) are not finite"):
        loss((np.where(X[3, 0] == X, np.inf, X)[:8], Y[:8]))
    for rows in (0, 9):
        with refused(f"must have between 1 and num_data rows, got {rows}; num_data is 8"):
            each.training_loss((X[:rows], Y[:rows]))
        with stopped(rf"between 1 and num_data rows, got\] \[{rows}\]"):
            loss((X[:rows], Y[:rows]))


@pytest.mark.parametrize("kind", [TSVGP, StreamingSVGP])
def test_without_num_data_minibatch_is_the_data(kind):
    """
    Without num_data any number of rows is all of them: terms of rows add up, and no row at all is
    KL[q || p], plus the old posterior of a stream.
    """
    each = model(kind, None)
    if kind is StreamingSVGP:
        each.update((X[4:], Y[4:]))
    none, first, both = (each.training_loss((X[:rows], Y[:rows])) for rows in (0, 1, 2))
    second = each.training_loss((X[1:2], Y[1:2]))
    assert_allclose(both - none, first + second - 2.0 * none, rtol=1e-12)


def test_num_data_cannot_be_added_later():
    """Functions traced without num_data do not read it."""
    each = model(TSVGP, num_data=8)
    each.num_data = 24
    assert each.num_data == 24
    with refused("num_data was None at construction and cannot be set afterwards"):
        model(TSVGP, num_data=None).num_data = 8


@pytest.mark.parametrize("kind", [APEP, ARPEP, RPAPEP, TSVGP, PEPSVGP, StreamingSVGP])
def test_minibatches_are_unbiased(kind):
    """
    The mean over all minibatches of five consecutive rows, around the end, is the objective of all
    rows.
    """
    each = model(kind, 12)
    parts = [np.arange(start, start + 5) % 12 for start in range(12)]
    values = [each.training_loss((X[part], Y[part])) for part in parts]
    assert_allclose(np.mean(values), each.training_loss((X, Y)), rtol=1e-12)
    assert np.ptp(values) > 0.1


@pytest.mark.parametrize("kind", [APEP, ARPEP, RPAPEP, BTSVGP, PEPSVGP])
def test_q_diag_equals_full_diagonal(kind):
    deviations = np.abs(np.random.default_rng(4).normal(size=(4, 1))) + 0.1
    full, diagonal = (
        model(kind, 12, q_mu=Y[:4], q_sqrt=q_sqrt, q_diag=q_sqrt.ndim == 2)
        for q_sqrt in (np.diag(deviations[:, 0])[None], deviations)
    )
    assert_allclose(diagonal.training_loss((X, Y)), full.training_loss((X, Y)), rtol=1e-13)


@pytest.mark.parametrize("kind", [TSVGP, BTSVGP, PEPSVGP, APEP, StreamingSVGP])
def test_is_invariant_to_sign_of_q_sqrt(kind):
    """q and the objective are unchanged, also with a negative diagonal entry."""
    each = model(kind)
    factor = np.tril(0.1 * np.random.default_rng(4).normal(size=(4, 4))) + 0.6 * np.eye(4)
    values = []
    for signs in ([1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 1.0, -1.0]):
        each.q_sqrt.assign((factor * signs)[None])
        values.append(each.training_loss((X[:8], Y[:8])))
    assert_allclose(*values, rtol=1e-12)
