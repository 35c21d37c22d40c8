"""Attacks on the training: its options, its data and datasets."""

from collections.abc import Callable, Iterator, Sequence
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
)
from gpflow_pep import PEPR, fit


def _fitting(name: str, values: Sequence[Any]) -> Callable[[Model], None]:
    """Train with one of these values of an option."""

    def act(s: Model) -> None:
        data = () if "data" in s.arguments else ((s.X, s.Y),)
        fit(s.model, *data, **{"max_iterations": 2, name: drawn(s, values)})

    return act


def _failed_training(s: Model) -> Pair:
    """
    A dataset that raises later ends the training; its reason is in the result, and nothing is NaN.
    """

    def batches() -> Iterator[Any]:
        yield s.X[:3], s.Y[:3]
        raise OSError("the database is gone")

    result = fit(s.model, s.generated(batches), max_iterations=5)
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


def _dataset_like_arrays(s: Rows) -> Pair:
    kernel = new_kernel(s.rng)
    dataset = tf.data.Dataset.from_tensor_slices((s.X, s.Y)).batch(int(s.rng.integers(1, 7)))
    found, expected = (PEPR(data, kernel, s.X[:3]) for data in (dataset, (s.X, s.Y)))
    return {"loss": found.training_loss()}, {"loss": expected.training_loss()}


_OPTIONS: dict[str, tuple[Any, ...]] = {
    "max_iterations": (0, 1.5, "5", np.inf),
    "optimizer": ("sgd", 5, gpflow.optimizers.Scipy()),
    "tolerance": (-1, np.nan, "a", np.inf),
    "learning_rate": (0, "a", np.nan, [0.1]),
    "patience": (0, 1.5, "a"),
    "interval": (0, 1.5),
    "first_rows": (0, 2.5, "all"),
    "seed": (-1, None, 2**33),
    "train_inducing": ("yes", 1),
    "callback": ("print", 3),
    "batch_size": (0, 2.5, True, "all"),
}
ATTACKS: Attacks = {
    **{name: Attack(models(), _fitting(name, values), name) for name, values in _OPTIONS.items()},
    "restarts": Attack(
        models(WITH_DATA), _fitting("n_restarts", (-1, 101, True, 1.0)), "n_restarts"
    ),
    "checkpoint": Attack(
        models(COLLAPSED[:4]),
        _fitting("checkpoint", ("/dev/null", "/proc/x/y")),
        "checkpoint|/dev/null|/proc",
    ),
    "held-out data": Attack(
        models(WITH_DATA),
        _fitting(
            "held_out",
            (
                "ab",
                lambda s: (s.X, s.Y, s.Y),
                lambda s: (np.hstack([s.X, s.X]), s.Y),
                lambda s: (s.X[:3], s.Y),
                lambda s: (s.X * np.nan, s.Y),
                lambda s: (s.X, masked(s.Y)),
            ),
        ),
        "held_out",
    ),
    "held-out labels": Attack(
        models(SITES, BINARY), _fitting("held_out", (lambda s: (s.X, s.Y + 2.0),)), "held_out"
    ),
    "data for a model with data": Attack(
        models(WITH_DATA), lambda s: fit(s.model, (s.X, s.Y)), "data must be None"
    ),
    "dataset of other elements": Attack(
        models(MINIBATCH),
        lambda s: fit(
            s.model,
            drawn(
                s,
                [
                    lambda s: tf.data.Dataset.from_tensor_slices({"a": s.X}).batch(4),
                    lambda s: tf.data.Dataset.from_tensor_slices((s.X, s.Y)),
                    lambda s: tf.data.Dataset.from_tensor_slices((s.X, s.Y)).take(0).batch(4),
                    lambda s: tf.data.Dataset.from_tensor_slices((s.X, s.Y * np.nan)).batch(4),
                    lambda s: iter([(s.X, s.Y)]),
                ],
            ),
            max_iterations=2,
        ),
        "data|batch",
    ),
    "callback that replaces the data": Attack(models(WITH_DATA), _replacing_data),
    "mean function of a variable, tensor or number": Attack(Rows, _trained_mean_function),
    "dataset that raises": Attack(models(MINIBATCH), _failed_training),
    "dataset for a model with data": Attack(Rows, _dataset_like_arrays),
}
