"""Attacks on the training: its options, its data and datasets."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from campaign.attack_subjects import (
    BINARY,
    COLLAPSED,
    MINIBATCH,
    SITES,
    WITH_DATA,
    Attack,
    Attacks,
    Model,
    Pair,
    Rows,
    drawn,
    masked,
    models,
    new_kernel,
    unequal_batch,
)
from gpflow_pep import PEPR, fit


def _fitting(**options: Any) -> Callable[[Model], None]:
    """Train with one of these options; each value is a tuple of values."""

    def act(s: Model) -> None:
        name = drawn(s, list(options))
        value = options[name]
        data = () if "data" in s.arguments else ((s.X, s.Y),)
        fit(s.model, *data, **{"max_iterations": 2, name: drawn(s, value)})

    return act


def _on_dataset(*values: Any) -> Callable[[Model], None]:
    """Train a minibatch model on one of these datasets."""

    def act(s: Model) -> None:
        fit(s.model, drawn(s, values), max_iterations=2)

    return act


def _raising(s: Model) -> tf.data.Dataset:
    """A generator that raises an error in its second batch."""

    def batches() -> Any:
        yield s.X[:3], s.Y[:3]
        raise OSError("the database is gone")

    return s.generated(batches)


def _failed_training(s: Model) -> Pair:
    """
    A dataset that raises later ends the training; its reason is in the result, and nothing is NaN.
    """
    result = fit(s.model, _raising(s), max_iterations=5)
    said = result.status == "failed" and "the database is gone" in result.reason
    return {"said": said, **s.numbers()}, {"said": True, **s.numbers()}


def _replacing_data(s: Model) -> Pair:
    """A callback assigns the rows in another order: an error, after which the model has its own."""
    before = [np.array(values) for values in s.model.data]

    def callback(*_: Any) -> None:
        s.model.data = tuple(values[::-1] for values in before)

    said = ""
    try:
        fit(s.model, max_iterations=2, callback=callback)
    except ValueError as error:
        said = str(error)
    names = ("X", "Y")
    found = {"refused": said.startswith("callback must leave model.data")}
    now = dict(zip(names, map(np.array, s.model.data), strict=True))
    return found | now, {"refused": True} | dict(zip(names, before, strict=True))


def _trained_mean_function(s: Rows) -> Pair:
    """
    A variable in a mean function is trained as a parameter is; a tensor or a number stays, as a
    fixed parameter.
    """
    start, kernel = s.rng.normal(size=s.Y.shape[1]), new_kernel(s.rng)
    trainable = bool(s.rng.integers(2))
    value = tf.Variable(start) if trainable else drawn(s, [tf.constant(start), start])
    objectives = []
    for each in (value, gpflow.Parameter(start, trainable=trainable)):
        mean_function = gpflow.functions.Constant()
        mean_function.c = each
        model = PEPR((s.X, s.Y), deepcopy(kernel), s.X[:3], mean_function=mean_function)
        fit(model, max_iterations=3)
        objectives.append({"objective": model.maximum_log_likelihood_objective()})
    return objectives[0], objectives[1]


def _from_dataset(*values: Any) -> Callable[[Rows], None]:
    def act(s: Rows) -> None:
        model = PEPR(drawn(s, values), new_kernel(s.rng), s.X[:3])
        s.X = s.X + 1.0  # the next pass of a dataset that changes
        model.maximum_log_likelihood_objective()

    return act


def _dataset_like_arrays(s: Rows) -> Pair:
    kernel = new_kernel(s.rng)
    dataset = tf.data.Dataset.from_tensor_slices((s.X, s.Y)).batch(int(s.rng.integers(1, 7)))
    found, expected = (PEPR(data, kernel, s.X[:3]) for data in (dataset, (s.X, s.Y)))
    return {"loss": found.training_loss()}, {"loss": expected.training_loss()}


def _changing(s: Rows) -> tf.data.Dataset:
    return s.generated(lambda: iter([(s.X, s.Y)]))


ATTACKS: Attacks = {
    "training data of a mask": Attack(
        models(MINIBATCH),
        lambda s: fit(s.model, drawn(s, [(masked(s.X), s.Y), (s.X, masked(s.Y))])),
        r"\(X\)|\(Y\)",
    ),
    "training options": Attack(
        models(),
        _fitting(max_iterations=(0, -1, 1.5, "5", True, np.inf)),
        "max_iterations",
    ),
    "optimizer": Attack(
        models(), _fitting(optimizer=("LBFGS", "sgd", 5, gpflow.optimizers.Scipy())), "optimizer"
    ),
    "tolerance": Attack(models(), _fitting(tolerance=(0, -1, np.nan, "a", np.inf)), "tolerance"),
    "learning rate": Attack(
        models(), _fitting(learning_rate=(0, "a", np.nan, [0.1])), "learning_rate"
    ),
    "patience": Attack(
        models(), _fitting(patience=(0, -1, 1.5, "a"), interval=(0, 1.5)), "patience|interval"
    ),
    "restarts": Attack(models(WITH_DATA), _fitting(n_restarts=(-1, 101, True, 1.0)), "n_restarts"),
    "first rows": Attack(models(), _fitting(first_rows=(0, -1, 2.5, True, "all")), "first_rows"),
    "seed": Attack(models(), _fitting(seed=(-1, "a", None, 1.5, 2**33)), "seed"),
    "train_inducing": Attack(models(), _fitting(train_inducing=("yes", 1, 0.0)), "train_inducing"),
    "callback": Attack(models(), _fitting(callback=("print", 3)), "callback"),
    "callback that replaces the data": Attack(models(WITH_DATA), _replacing_data),
    "mean function of a variable, tensor or number": Attack(Rows, _trained_mean_function),
    "batch size": Attack(models(), _fitting(batch_size=(0, -1, 2.5, True, "all")), "batch_size"),
    "checkpoint": Attack(
        models(COLLAPSED[:4]),
        _fitting(checkpoint=("/dev/null", "/proc/x/y")),
        "checkpoint|/dev/null|/proc",
    ),
    "data for a model with data": Attack(
        models(WITH_DATA), lambda s: fit(s.model, (s.X, s.Y)), "data must be None"
    ),
    "no data for a minibatch model": Attack(
        models(MINIBATCH), lambda s: fit(s.model), "data must be given"
    ),
    "held-out data": Attack(
        models(WITH_DATA),
        _fitting(
            held_out=(
                5,
                "ab",
                lambda s: (s.X,),
                lambda s: (s.X, s.Y, s.Y),
                lambda s: (np.hstack([s.X, s.X]), s.Y),
                lambda s: (s.X, np.hstack([s.Y, s.Y])),
                lambda s: (s.X[:3], s.Y),
                lambda s: (s.X[:0], s.Y[:0]),
                lambda s: (s.X * np.nan, s.Y),
                lambda s: (masked(s.X), s.Y),
                lambda s: (s.X, masked(s.Y)),
            )
        ),
        "held_out",
    ),
    "held-out labels": Attack(
        models(SITES, BINARY), _fitting(held_out=(lambda s: (s.X, s.Y + 2.0),)), "held_out"
    ),
    "no model": Attack(
        Rows,
        lambda s: fit(drawn(s, [None, new_kernel(s.rng), PEPR, "PEPR", 3]), max_iterations=1),
        "model",
    ),
    "dataset of other elements": Attack(
        models(MINIBATCH),
        _on_dataset(
            lambda s: tf.data.Dataset.from_tensor_slices(s.X).batch(4),
            lambda s: tf.data.Dataset.from_tensor_slices({"a": s.X}).batch(4),
            lambda s: tf.data.Dataset.from_tensor_slices((s.X, s.Y)),
            lambda s: tf.data.Dataset.from_tensor_slices((s.X, s.Y)).take(0).batch(4),
            lambda s: tf.data.Dataset.from_tensor_slices((s.X, s.Y.astype(str))).batch(4),
            lambda s: tf.data.Dataset.from_tensor_slices((s.X, s.Y * np.nan)).batch(4),
            lambda s: tf.data.Dataset.from_tensor_slices((s.X[:2], s.Y[:2])).batch(4),
            lambda s: iter([(s.X, s.Y)]),
        ),
        "data|batch",
    ),
    "dataset that raises": Attack(models(MINIBATCH), _failed_training),
    "dataset for a model with data": Attack(Rows, _dataset_like_arrays),
    "dataset that changes, repeats or has unequal rows": Attack(
        Rows,
        _from_dataset(
            _changing,
            unequal_batch,
            lambda s: tf.data.Dataset.from_tensor_slices((s.X, s.Y)).batch(3).repeat(),
            lambda s: tf.data.Dataset.from_tensor_slices((s.X, s.Y * np.nan)).batch(3),
        ),
        "data",
    ),
}
