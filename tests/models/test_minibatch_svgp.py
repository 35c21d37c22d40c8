"""Minibatch models reject invalid data, eagerly and compiled."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from quick import some_slow

from gpflow_pep import APEP, ARPEP, BTSVGP, PEPSVGP, RPAPEP, TSVGP, StreamingSVGP

rng = np.random.default_rng(4)
X, Y = rng.normal(size=(12, 2)), rng.normal(size=(12, 1))

every_model = pytest.mark.parametrize(
    "kind",
    some_slow([APEP, ARPEP, RPAPEP, TSVGP, BTSVGP, PEPSVGP, StreamingSVGP], quick=[ARPEP, BTSVGP]),
)


def model(kind, num_data=8):
    return kind(
        gpflow.kernels.SquaredExponential(),
        gpflow.likelihoods.Gaussian(),
        X[:4].copy(),
        num_data=num_data,
    )


def compiled(made):
    rows = tf.TensorSpec([None, 2], tf.float64), tf.TensorSpec([None, 1], tf.float64)
    return tf.function(made.training_loss, input_signature=[rows])


@every_model
@pytest.mark.parametrize("rows", some_slow([0, 9, 12], quick=[12]))
def test_rejects_invalid_minibatch_sizes(kind, rows):
    made = model(kind)
    with pytest.raises(
        ValueError, match=f"must have between 1 and num_data rows, got {rows}; num_data is 8"
    ):
        made.training_loss((X[:rows], Y[:rows]))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=rf"between 1 and num_data rows, got\] \[{rows}\]"
    ):
        compiled(made)((X[:rows], Y[:rows]))


@every_model
def test_accepts_all_rows_as_minibatch(kind):
    """Also after num_data has increased."""
    made = model(kind)
    loss = compiled(made)
    assert float(loss((X[:8], Y[:8]))) == pytest.approx(
        float(made.training_loss((X[:8], Y[:8]))), rel=1e-12
    )
    made.num_data = 12
    assert float(loss((X, Y))) == pytest.approx(float(made.training_loss((X, Y))), rel=1e-12)


@pytest.mark.parametrize("kind", [TSVGP, StreamingSVGP])
def test_without_num_data_minibatch_is_the_data(kind):
    """
    Without num_data any number of rows is all of them: terms of rows add up, and no row at all is
    KL[q || p].
    """
    made = model(kind, None)
    none, first, both = (float(made.training_loss((X[:rows], Y[:rows]))) for rows in (0, 1, 2))
    second = float(made.training_loss((X[1:2], Y[1:2])))
    assert both - none == pytest.approx(first + second - 2.0 * none, rel=1e-12)


@every_model
@pytest.mark.parametrize("value", some_slow([np.nan, np.inf], quick=[np.inf]))
def test_rejects_nonfinite_inputs(kind, value):
    bad = np.where(X[3, 0] == X, value, X)
    made = model(kind, 12)
    with pytest.raises(
        ValueError, match=r"data\[0\] \(X\) must be finite, got 1 values .* the first in row 3\."
    ):
        made.training_loss((bad, Y))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"1 of the entries of data\[0\] \(X\) are not finite"
    ):
        compiled(made)((bad, Y))


@every_model
def test_rejects_nonnumeric_inputs(kind):
    with pytest.raises(
        ValueError, match=r"data\[0\] \(X\) must hold real numbers, got an array of dtype <U32"
    ):
        model(kind, 12).training_loss((X.astype(str), Y))


def test_num_data_cannot_be_added_later():
    """Functions traced without num_data do not read it."""
    made = model(TSVGP, num_data=8)
    made.num_data = 24
    assert float(made.num_data) == 24.0
    with pytest.raises(
        ValueError, match="num_data was None at construction and cannot be set afterwards"
    ):
        model(TSVGP, num_data=None).num_data = 8


@pytest.mark.parametrize("kind", [TSVGP, BTSVGP, PEPSVGP, APEP, StreamingSVGP])
def test_is_invariant_to_sign_of_q_sqrt(kind):
    """q and the objective are unchanged, also with a negative diagonal entry."""
    made = model(kind)
    factor = np.tril(0.1 * rng.normal(size=(4, 4))) + 0.6 * np.eye(4)
    values = []
    for signs in ([1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 1.0, -1.0]):
        made.q_sqrt.assign((factor * signs)[None])
        values.append(float(made.training_loss((X[:8], Y[:8]))))
    assert values[1] == pytest.approx(values[0], rel=1e-12)
