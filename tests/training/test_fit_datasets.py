"""
Minibatch models trained on a dataset: the same steps as by hand and with arrays; invalid datasets.
"""

import re

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from events import tags
from model_values import loss_and_gradient
from numpy.testing import assert_allclose, assert_equal
from quick import partly_slow
from refusals import refused
from small_models import (
    MAKERS,
    WITH_DATA,
    X,
    Y,
    Z,
    data_for,
    held_out_for,
    kernel,
    of_minibatches,
    values,
)

from gpflow_pep import PEPR, PEPSVGP, TSVGP
from gpflow_pep.data.minibatches import Minibatches
from gpflow_pep.training import fit
from gpflow_pep.training.coordinates import Coordinates

OF_MINIBATCHES = [name for name in MAKERS if name not in WITH_DATA]
N = len(X)


def batches(data=(X, Y), size=12):
    """In the order of the rows: five of 60 rows."""
    return tf.data.Dataset.from_tensor_slices(data).batch(size)


def counted(dataset, passes):
    """The same dataset; a number is added to the list when a pass begins."""

    def begin():
        passes.append(len(passes))
        return 0

    start = tf.data.Dataset.range(1).map(lambda _: tf.numpy_function(begin, [], tf.int64))
    return start.flat_map(lambda _: dataset)


@pytest.mark.parametrize("name", OF_MINIBATCHES)
def test_a_dataset_with_the_batches_of_arrays_gives_the_same_training(as_new, name):
    """Bit for bit: objectives, scores and parameters."""
    options = {"max_iterations": 12, "interval": 3, "held_out": held_out_for(name)}
    data = data_for(name)
    minibatches = Minibatches(N, 12, fixed=name == "BTSVGP", seed=0)
    model = as_new(name)
    expected = fit(model, data, batch_size=12, **options)
    reached = values(model)
    model = as_new(name)
    found = fit(model, minibatches.dataset(data), **options)  # without end
    assert (found.objective, found.held_out) == (expected.objective, expected.held_out)
    assert_equal(values(model), reached)


def test_steps_are_those_of_the_batches_given_by_hand():
    """Seven steps of Adam on five batches: the dataset is read a second time."""
    model, by_hand = (of_minibatches(PEPSVGP, alpha=0.5) for _ in range(2))
    passes = []
    result = fit(model, counted(batches(), passes), natural_step=None, max_iterations=7, interval=1)
    assert passes[:2] == [0, 1]
    optimizer = gpflow.keras.tf_keras.optimizers.Adam(0.01)
    coordinates = Coordinates(by_hand, by_hand.trainable_variables)
    at = [tf.Variable(each.of(each.variable, tf.math)) for each in coordinates.each]
    objectives = []
    for step in range(7):
        rows = slice(12 * (step % 5), 12 * (step % 5) + 12)
        loss, gradient = loss_and_gradient(by_hand, (X[rows], Y[rows]))
        objectives.append(-float(loss))
        slopes = [
            each.slope(value, tf.math) for each, value in zip(coordinates.each, at, strict=True)
        ]
        optimizer.apply_gradients(
            [(d * slope, x) for d, slope, x in zip(gradient, slopes, at, strict=True)]
        )
        coordinates.assign(np.concatenate([value.numpy().ravel() for value in at]))
    # The graph orders sums differently; Adam divides by the size of the gradient, which here is far
    # above rounding.
    assert_allclose(result.objective, objectives, rtol=1e-9)
    for path, value in values(model).items():
        assert_allclose(value, values(by_hand)[path], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("drop", [False, True])
def test_the_last_batch_may_be_smaller_or_missing(as_new, drop):
    """60 rows in batches of 25; empty batches are left out."""
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(25, drop_remainder=drop)
    empty = tf.data.Dataset.from_tensors((X[:0], Y[:0]))
    result = fit(as_new("TSVGP"), dataset.concatenate(empty), max_iterations=8)
    assert result.iterations == 8 and result.status == "limit"


def test_a_checkpoint_resumes_with_a_new_pass(as_new, tmp_path):
    """
    Interrupted at the end of a pass, or not: the parameters are the same. Of the data only types
    are compared.
    """
    path = tmp_path / "run.npz"
    options = {"max_iterations": 20, "interval": 5, "checkpoint_seconds": 0.0}
    model = as_new("TSVGP")
    expected = fit(model, batches(), **options)
    reached = values(model)

    def stop(iteration, objective):
        if iteration == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(as_new("TSVGP"), batches(), checkpoint=path, callback=stop, **options)
    model = as_new("TSVGP")
    found = fit(model, batches(), checkpoint=path, **options)
    assert found.objective == expected.objective
    assert_equal(values(model), reached)
    assert (
        fit(as_new("TSVGP"), batches().shuffle(5), checkpoint=path, **options).objective
        == found.objective
    )
    with refused("data"):
        fit(as_new("TSVGP"), (X, Y), checkpoint=path, **options)


def test_tensorboard_shows_the_first_batch(as_new, tmp_path):
    fit(as_new("TSVGP"), batches(), max_iterations=10, interval=1, tensorboard=tmp_path)
    assert "predictions" in tags(tmp_path)


# --- refused --------------------------------------------------------------------------------------

WIDE = np.hstack([X, X])
WORDS = np.full((N, 1), "a")
NAN = np.where(np.arange(N)[:, None] == 27, np.nan, X)


def test_rejects_invalid_datasets(as_new):
    for dataset, message in [
        (
            batches(X),
            r"data must be a tf.data.Dataset of batches \(X \[n, D\], Y \[n, P\]\), got elements TensorSpec",
        ),
        (batches((X, Y, Y)), "data must be a tf.data.Dataset of batches .*got elements"),
        (
            batches((X, WORDS)),
            r"batch 1 of a pass: data\[1\] \(Y\) must hold real numbers, got b'",
        ),
        (
            batches((X[:, 0], Y)),
            r"batch 1 of a pass: data\[0\] \(X\) must have shape \[rows, D\], got shape \[12\]",
        ),
        (
            batches((WIDE, Y)),
            r"data\[0\] \(X\) must have as many columns as the inducing points, 1, got 2\.",
        ),
        (batches((X, WIDE)), "Y"),
        (batches((X[:0], Y[:0])), "data must have at least one row, got a dataset without rows"),
        (
            tf.data.Dataset.from_tensors((X, Y[:-1])),
            "must have the same number of rows, got 60 and 59",
        ),
        (
            batches((np.tile(X, (6, 1)), np.tile(Y, (6, 1))), 61),
            "at most num_data rows, 60, in a batch, got 61",
        ),
    ]:
        model = as_new("TSVGP")
        before = values(model)
        with refused(message) as raised:
            fit(model, dataset, max_iterations=3)
        assert str(raised.value).count("\n") == 0
        assert_equal(values(model), before)


def test_arguments_that_do_not_fit_a_dataset(as_new):
    model = TSVGP(kernel(), gpflow.likelihoods.Gaussian(), Z)
    with refused("num_data of the model must be the number of rows of the dataset, got None"):
        fit(model, batches())
    with refused("data must be None: PEPR stores its data"):
        fit(as_new("PEPR"), batches())
    model = as_new("TSVGP")
    with refused("batch_size must be None with a dataset, whose .* minibatches, got 12"):
        fit(model, batches(), batch_size=12)
    with refused("optimizer must be \"adam\" with a dataset, got 'lbfgs'"):
        fit(model, batches(), optimizer="lbfgs")


def test_a_later_batch_that_cannot_be_used_ends_training(as_new):
    """
    The second step is unchecked when the batch fails: the parameters after the first step are
    restored.
    """
    model = as_new("TSVGP")
    message = (
        r"batch 3 of a pass: data\[0\] \(X\) must be finite in float64, got 1 .*, the first in row "
        r"3"
    )
    with refused(message):
        fit(model, batches((NAN, Y)), max_iterations=5)
    reached = values(model)
    model = as_new("TSVGP")
    fit(model, batches(), max_iterations=1)
    assert_equal(values(model), reached)


@pytest.mark.parametrize(
    ("rows", "passes"), [(slice(0, 48), 1), (slice(0, 47), 1), (slice(0, 60), 2)]
)
def test_rejects_a_pass_with_another_number_of_rows(as_new, rows, passes):
    """48 rows are four batches of five, one of which is not smaller than the others."""
    dataset = batches((X[rows], Y[rows])).repeat(passes)
    count = len(X[rows]) * passes
    with refused(f"data must be a dataset of num_data rows, 60, in each pass, got {count}"):
        fit(as_new("TSVGP"), dataset, max_iterations=12)
    assert fit(as_new("TSVGP"), dataset.repeat(), max_iterations=12).iterations == 12


@partly_slow("own", [False, True], 1, ids=["minibatches", "all rows"])
def test_a_dataset_that_fails_in_training_ends_it_with_the_users_error(as_new, own):
    """The last good parameters are kept."""
    records = []

    def read():
        yield X[:30], Y[:30]
        if len(records) > 2:
            raise OSError("the disk is gone")
        yield X[30:], Y[30:]

    signature = tuple(tf.TensorSpec([None, 1], tf.float64) for _ in range(2))
    dataset = tf.data.Dataset.from_generator(read, output_signature=signature)
    if own:
        model = PEPR(dataset, gpflow.kernels.SquaredExponential(), X[:5])
        options = {}
        gpflow.set_trainable(model.kernel.lengthscales, False)  # a single start
    else:
        model = as_new("TSVGP")
        options = {"data": dataset}
    with pytest.warns(UserWarning, match="the disk is gone"):
        result = fit(model, **options, interval=1, callback=lambda *record: records.append(record))
    assert result.status == "failed" and result.iterations > 0
    wanted = "the batch after batch 1 of a pass cannot: "
    if own:
        wanted = r"data: the dataset cannot be read after batch 1 of pass \d+: "
    assert re.search(f"{wanted}OSError: the disk is gone", result.reason)
    assert "\n" not in result.reason
    assert all(np.isfinite(variable).all() for variable in model.trainable_variables)
