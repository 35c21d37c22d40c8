"""Attacks with data and arguments: of predictions, training, selection, inducing points, minibatches and scores."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray

from campaign.attack_subjects import (
    BINARY,
    COLLAPSED,
    MINIBATCH,
    SITES,
    WITH_DATA,
    Attack,
    Attacks,
    Model,
    Numbers,
    Rows,
    drawn,
    models,
    new_kernel,
)
from gpflow_pep import PEPR, TSVGP, fit, select_alpha, select_num_inducing
from gpflow_pep.data import metrics
from gpflow_pep.data.minibatches import Minibatches
from gpflow_pep.inducing import greedy_variance, k_means, neighbor_blocks, uniform

Pair = tuple[Numbers, Numbers]


def masked(values: AnyNDArray) -> Any:
    """Return an array with a masked first row."""
    mask = np.zeros(values.shape, bool)
    mask[0] = True
    return np.ma.MaskedArray(values, mask=mask)


def _predicting(*values: Any) -> Callable[[Model], None]:
    """Predict by one of the methods at inputs that must be refused."""

    def act(s: Model) -> None:
        method = drawn(s, ["predict_f", "predict_y", "posterior"])
        predict = s.model.posterior().predict_f if method == "posterior" else getattr(s.model, method)
        predict(drawn(s, values))

    return act


def _converted(s: Model) -> Pair:
    """Inputs in another form, or in batches, are those numbers."""
    whole = np.round(3.0 * s.Xnew)
    forms = [whole.tolist(), whole.astype(int), whole.astype(np.float32), pd.DataFrame(whole), whole.astype(object)]
    found, expected = (s.model.predict_f(each) for each in (drawn(s, forms), whole))
    batches = s.model.predict_f(np.stack([s.Xnew, whole]))
    one = s.model.predict_f(s.Xnew)
    numbers = {"mean": found[0], "variance": found[1], "first": batches[0][0], "second": batches[1][1]}
    return numbers, {"mean": expected[0], "variance": expected[1], "first": one[0], "second": expected[1]}


def _covariance(s: Model) -> Pair:
    """The diagonal of a full covariance is the variance; no rows give no predictions."""
    _, full = s.model.predict_f(s.Xnew, full_cov=True)
    mean, variance = s.model.predict_f(s.Xnew)
    none = s.model.predict_f(s.Xnew[:0])[0]
    return {"variance": np.diagonal(full, axis1=1, axis2=2).T, "none": none}, {"variance": variance, "none": mean[:0]}


def _density(*values: Any) -> Callable[[Model], None]:
    def act(s: Model) -> None:
        s.model.predict_log_density(drawn(s, values))

    return act


def _batch(*values: Any) -> Callable[[Model], None]:
    """Give a minibatch model such a batch."""

    def act(s: Model) -> None:
        X, Y = drawn(s, values)
        s.model.training_loss((X, Y)) if s.rng.uniform() < 0.5 else fit(s.model, (X, Y), max_iterations=1)

    return act


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

    signature = tuple(tf.TensorSpec([None, values.shape[1]], tf.float64) for values in (s.X, s.Y))
    return tf.data.Dataset.from_generator(batches, output_signature=signature)


def _failed_training(s: Model) -> Pair:
    """A dataset that raises later ends the training; its reason is in the result, and nothing is NaN."""
    result = fit(s.model, _raising(s), max_iterations=5)
    said = result.status == "failed" and "the database is gone" in result.reason
    return {"said": said, **s.numbers()}, {"said": True, **s.numbers()}


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
    signature = tuple(tf.TensorSpec([None, values.shape[1]], tf.float64) for values in (s.X, s.Y))
    return tf.data.Dataset.from_generator(lambda: iter([(s.X, s.Y)]), output_signature=signature)


def _unequal_batch(s: Rows) -> tf.data.Dataset:
    signature = tuple(tf.TensorSpec([None, values.shape[1]], tf.float64) for values in (s.X, s.Y))
    return tf.data.Dataset.from_generator(lambda: iter([(s.X, s.Y), (s.X, s.Y[:2])]), output_signature=signature)


def _train(model: Any) -> Any:
    return fit(model, max_iterations=1)


def _pepr(s: Rows, data: Any, alpha: Any, Z: Any = None) -> PEPR:
    return PEPR(data, new_kernel(s.rng), s.X[:3] if Z is None else Z, alpha=alpha)


_CHOICE_OF_ALPHA: dict[str, Callable[[Rows], Any]] = {
    "alpha": lambda s: select_alpha(lambda data, alpha: _pepr(s, data, 0.3), (s.X, s.Y), [0.5], train=_train),
    "data": lambda s: select_alpha(
        lambda data, alpha: _pepr(s, (s.X, s.Y), alpha), (s.X, s.Y), [0.5], folds=2, train=_train
    ),
    "other data": lambda s: select_alpha(
        lambda data, alpha: _pepr(s, (s.X[:4], s.Y[:4]), alpha), (s.X, s.Y), [0.5], train=_train
    ),
    "nothing": lambda s: select_alpha(lambda data, alpha: None, (s.X, s.Y), [0.5], train=_train),  # type: ignore[arg-type, return-value]
}


def _shared_parts(s: Rows) -> None:
    kernel = new_kernel(s.rng)
    select_alpha(lambda data, alpha: PEPR(data, kernel, s.X[:3], alpha=alpha), (s.X, s.Y), [0.0, 0.5], train=_train)


def _alphas(s: Rows) -> None:
    given: Any = drawn(s, [[], [0.5, 0.5], ["auto"], [np.nan], [[0.0, 0.5]], [1.5]])
    select_alpha(lambda data, alpha: _pepr(s, data, alpha), (s.X, s.Y), given, train=_train)


def _points_ignored(s: Rows) -> None:
    Z: Any = drawn(s, [s.X[:4], s.X[:1] + 0.1])
    select_num_inducing(lambda data, given: _pepr(s, data, 0.0, Z), (s.X, s.Y), [2, 3], train=_train)


def _data_ignored(s: Rows) -> None:
    other = s.X + 1.0, s.Y
    select_num_inducing(lambda data, Z: _pepr(s, other, 0.0, Z), (s.X, s.Y), [2, 3], train=_train)


def _numbers(s: Rows) -> None:
    given: Any = drawn(s, [[], [5, 3], [5.0], [0], ["5"], [True]])
    select_num_inducing(lambda data, Z: _pepr(s, data, 0.0, Z), (s.X, s.Y), given, train=_train)


def _choosing(*calls: Callable[[Any], Any]) -> Callable[[Rows], None]:
    """Make one of these calls."""

    def act(s: Rows) -> None:
        calls[int(s.rng.integers(len(calls)))](s)

    return act


def _categories(s: Rows) -> tuple[AnyNDArray, gpflow.kernels.Kernel]:
    """Return X with a column of categories 0 and 1, and a kernel of them."""
    kernel = gpflow.kernels.Matern32(active_dims=[0]) * gpflow.kernels.Coregion(2, 1, active_dims=[1])
    return np.column_stack([s.X[:, 0], np.arange(len(s.X)) % 2]), kernel


def _with(X: AnyNDArray, value: float) -> AnyNDArray:
    X = X.copy()
    X[1, 1] = value
    return X


def _other_category(s: Rows) -> None:
    """A category of no output, or a fraction: in the data, the points, predictions and batches."""
    X, kernel = _categories(s)
    wrong = _with(X, drawn(s, [2.0, 0.5, -1.0, 1.0 - 1e-12]))
    calls = (
        lambda: PEPR((wrong, s.Y), kernel, X[:4]),
        lambda: PEPR((X, s.Y), kernel, wrong[:4]),
        lambda: PEPR((X, s.Y), kernel, X[:4]).predict_f(wrong),
        lambda: PEPR((X, s.Y), kernel, X[:4]).posterior().predict_f(wrong),
        lambda: setattr(PEPR((X, s.Y), kernel, X[:4]), "data", (wrong, s.Y)),
        lambda: setattr(PEPR((X, s.Y), kernel, X[:4]), "inducing_variable", wrong[:4]),
        lambda: TSVGP(kernel, gpflow.likelihoods.Gaussian(), X[:4], num_data=len(X)).elbo((wrong, s.Y)),
    )
    calls[int(s.rng.integers(len(calls)))]()


def _category_like_numbers(s: Rows) -> Pair:
    """Of one category, the kernel is another one's times a number."""
    X, kernel = _categories(s)
    X[:, 1] = 0.0
    plain = gpflow.kernels.Matern32(float(kernel.kernels[1].output_covariance()[0, 0]), active_dims=[0])
    found, expected = (PEPR((X, s.Y), each, X[:4]) for each in (kernel, plain))
    return {"loss": found.training_loss()}, {"loss": expected.training_loss()}


ATTACKS: Attacks = {
    "inputs in other forms": Attack(models(), _converted),
    "covariance and no rows": Attack(models(), _covariance),
    "inputs that are no numbers": Attack(
        models(),
        _predicting("x", None, lambda s: s.X.astype(str), lambda s: s.X + 0j, lambda s: s.X.astype("M8[s]")),
        "Xnew",
    ),
    "inputs that are not finite": Attack(models(), _predicting(lambda s: s.X * np.nan, lambda s: s.X + np.inf), "Xnew"),
    "inputs with a mask": Attack(models(), _predicting(lambda s: masked(s.X)), "Xnew"),
    "inputs of other columns": Attack(
        models(), _predicting(np.ones((4, 3)), lambda s: pd.DataFrame(s.X).assign(third=1.0, fourth=2.0)), "Xnew"
    ),
    "inputs of one dimension": Attack(models(), _predicting(lambda s: s.X[:, 0], 3.0), "Xnew"),
    "covariance of observations": Attack(
        models(), lambda s: s.model.predict_y(s.X, **{drawn(s, ["full_cov", "full_output_cov"]): True}), "full_cov"
    ),
    "density of other rows": Attack(
        models(),
        _density(lambda s: (s.X, s.Y[:2]), lambda s: (s.X[:1], s.Y), lambda s: (s.X, s.Y[:0])),
        r"\bX\b|\bY\b|data",
    ),
    "density of other columns": Attack(
        models(), _density(lambda s: (s.X, np.hstack([s.Y, s.Y])), lambda s: (np.ones((len(s.Y), 3)), s.Y)), "Y|X"
    ),
    "density of rows that are not finite": Attack(
        models(), _density(lambda s: (s.X * np.nan, s.Y), lambda s: (s.X, s.Y * np.nan)), r"\(X\)|\(Y\)"
    ),
    "density of a mask": Attack(
        models(), _density(lambda s: (masked(s.X), s.Y), lambda s: (s.X, masked(s.Y))), r"\(X\)|\(Y\)"
    ),
    "density of other labels": Attack(
        models(likelihoods=[*BINARY, "robust-max", "Poisson"]),
        _density(lambda s: (s.X, s.Y + 0.5), lambda s: (s.X, -1.0 - s.Y)),
        r"\(Y\)",
    ),
    "batch of other rows": Attack(models(MINIBATCH), _batch(lambda s: (s.X, s.Y[:2])), r"\bX\b|\bY\b|data"),
    "batch of other columns": Attack(
        models(MINIBATCH),
        _batch(lambda s: (s.X, np.hstack([s.Y, s.Y])), lambda s: (np.hstack([s.X, s.X, s.X]), s.Y)),
        r"\(Y\)|\(X\)|X .*columns",
    ),
    "batch of other labels": Attack(
        models(MINIBATCH, [*BINARY, "robust-max", "Poisson"]),
        _batch(lambda s: (s.X, s.Y + 0.5), lambda s: (s.X, -1.0 - s.Y)),
        r"\(Y\)",
    ),
    "batch that is not finite": Attack(
        models(MINIBATCH),
        _batch(lambda s: (s.X * np.nan, s.Y), lambda s: (s.X, s.Y * np.nan)),
        r"\bX\b|\(X\)|\(Y\)|finite",
    ),
    "training data of a mask": Attack(
        models(MINIBATCH), lambda s: fit(s.model, drawn(s, [(masked(s.X), s.Y), (s.X, masked(s.Y))])), r"\(X\)|\(Y\)"
    ),
    "training options": Attack(
        models(),
        _fitting(max_iterations=(0, -1, 1.5, "5", True, np.inf)),
        "max_iterations",
    ),
    "optimizer": Attack(models(), _fitting(optimizer=("LBFGS", "sgd", 5, gpflow.optimizers.Scipy())), "optimizer"),
    "tolerance": Attack(models(), _fitting(tolerance=(0, -1, np.nan, "a", np.inf)), "tolerance"),
    "learning rate": Attack(models(), _fitting(learning_rate=(0, "a", np.nan, [0.1])), "learning_rate"),
    "patience": Attack(models(), _fitting(patience=(0, -1, 1.5, "a"), interval=(0, 1.5)), "patience|interval"),
    "restarts": Attack(models(WITH_DATA), _fitting(n_restarts=(-1, 101, True, 1.0)), "n_restarts"),
    "seed": Attack(models(), _fitting(seed=(-1, "a", None, 1.5, 2**33)), "seed"),
    "train_inducing": Attack(models(), _fitting(train_inducing=("yes", 1, 0.0)), "train_inducing"),
    "callback": Attack(models(), _fitting(callback=("print", 3)), "callback"),
    "batch size": Attack(models(), _fitting(batch_size=(0, -1, 2.5, True, "all")), "batch_size"),
    "checkpoint": Attack(
        models(COLLAPSED[:4]), _fitting(checkpoint=("/dev/null", "/proc/x/y")), "checkpoint|/dev/null|/proc"
    ),
    "data for a model with data": Attack(models(WITH_DATA), lambda s: fit(s.model, (s.X, s.Y)), "data must be None"),
    "no data for a minibatch model": Attack(models(MINIBATCH), lambda s: fit(s.model), "data must be given"),
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
        "data|held_out",
    ),
    "held-out labels": Attack(models(SITES, BINARY), _fitting(held_out=(lambda s: (s.X, s.Y + 2.0),)), r"\(Y\)"),
    "no model": Attack(
        Rows, lambda s: fit(drawn(s, [None, new_kernel(s.rng), PEPR, "PEPR", 3]), max_iterations=1), "model"
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
            _unequal_batch,
            lambda s: tf.data.Dataset.from_tensor_slices((s.X, s.Y)).batch(3).repeat(),
            lambda s: tf.data.Dataset.from_tensor_slices((s.X, s.Y * np.nan)).batch(3),
        ),
        "data",
    ),
    "make that ignores alpha or data": Attack(Rows, _choosing(*_CHOICE_OF_ALPHA.values()), "make"),
    "make that shares a kernel": Attack(Rows, _shared_parts, "make"),
    "alphas": Attack(Rows, _alphas, "alpha"),
    "make that ignores points": Attack(Rows, _points_ignored, "make"),
    "make that ignores its data": Attack(Rows, _data_ignored, "make"),
    "numbers of points": Attack(Rows, _numbers, "numbers"),
    "category of no output": Attack(Rows, _other_category, "Coregion"),
    "one category": Attack(Rows, _category_like_numbers),
    "number of inducing points": Attack(
        Rows,
        _choosing(
            lambda s: k_means(s.X, 0),
            lambda s: k_means(s.X, 100),
            lambda s: k_means(s.X, 2.5),  # type: ignore[arg-type]
            lambda s: uniform(s.X, -1),
            lambda s: uniform(s.X, 100),
            lambda s: greedy_variance(new_kernel(s.rng), s.X, 0),
            lambda s: greedy_variance(new_kernel(s.rng), s.X, True),
        ),
        r"\bM\b",
    ),
    "rows for inducing points": Attack(
        Rows,
        _choosing(
            lambda s: k_means(s.X * np.nan, 2),
            lambda s: k_means(s.X[:, 0], 2),
            lambda s: k_means("a", 2),
            lambda s: uniform(masked(s.X), 2),
            lambda s: greedy_variance(new_kernel(s.rng), s.X + np.inf, 2),
            lambda s: neighbor_blocks(s.X * np.nan, 2),
            lambda s: neighbor_blocks(s.X[:, 0], 2),
        ),
        r"\bX\b",
    ),
    "kernel for inducing points": Attack(
        Rows,
        _choosing(
            lambda s: greedy_variance(None, s.X, 2),  # type: ignore[arg-type]
            lambda s: greedy_variance(gpflow.kernels.Matern32(lengthscales=np.ones(3)), s.X, 2),
            lambda s: greedy_variance(gpflow.kernels.SeparateIndependent([new_kernel(s.rng)]), s.X, 2),
        ),
        "kernel",
    ),
    "minibatches": Attack(
        Rows,
        _choosing(
            lambda s: Minibatches(0, 5),
            lambda s: Minibatches(5, 0),
            lambda s: Minibatches(50, 10, seed=-1),
            lambda s: next(iter(Minibatches(50, 10).dataset((s.X, s.Y)))),
            lambda s: next(iter(Minibatches(len(s.X), 2).dataset((s.X, s.Y[:2])))),
        ),
        "num_data|size|seed|data|rows",
    ),
    "scores": Attack(
        Rows,
        _choosing(
            lambda s: metrics.rmse(s.Y, s.Y[:2]),
            lambda s: metrics.rmse(s.Y, s.Y * np.nan),
            lambda s: metrics.rmse([], []),
            lambda s: metrics.rmse(masked(s.Y), s.Y),
            lambda s: metrics.nlpd(s.Y, s.Y, -np.ones_like(s.Y)),
            lambda s: metrics.nlpd(s.Y, s.Y, np.zeros_like(s.Y)),
            lambda s: metrics.smse(np.ones(3), np.zeros(3)),
            lambda s: metrics.rmse(s.Y, s.Y.astype(str)),
        ),
        r"\by\b|mean|variance",
    ),
}
