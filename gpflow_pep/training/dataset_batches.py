"""Check the data given to `fit`: arrays, or a dataset of minibatches that is read repeatedly."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Softmax
from gpflow.models import GPModel

from ..models.sparse import checked_rows
from ..runtime.checks import UnreadableData, reason_of

Batch = tuple[AnyNDArray, AnyNDArray]  # X [n, D] and Y [n, P]


def rows_for(model: GPModel, data: Any) -> Batch:
    """Check X [N, D] and Y [N, P] and return them in the form that the model's objective accepts."""
    X, Y = checked_rows(model, data)
    # GPflow's softmax accepts integer labels only; the models here accept them, too.
    return X, Y.astype(np.int64) if isinstance(model.likelihood, Softmax) else Y


def dataset_batches(model: GPModel, dataset: tf.data.Dataset) -> Iterator[Batch]:
    """
    Yield the batches of a dataset, checked like arrays, in repeated passes; read ahead and skip empty batches.

    Each pass must have the `num_data` rows to which the model scales its objective, except a smaller last batch.
    """
    spec = dataset.element_spec
    if not (
        isinstance(spec, tuple)
        and len(spec) == 2
        and all(isinstance(part, tf.TensorSpec) for part in spec)
    ):
        raise ValueError(
            f"data must be a tf.data.Dataset of batches (X [n, D], Y [n, P]), got elements {spec}."
        )
    if getattr(model, "num_data", None) is None:
        raise ValueError(
            "num_data of the model must be the number of rows of the dataset, got None."
        )
    num_data = int(model.num_data)
    while True:
        number = num_rows = largest = 0
        try:
            for number, batch in enumerate(
                dataset.prefetch(tf.data.AUTOTUNE).as_numpy_iterator(), start=1
            ):
                if not (len(batch[0]) or len(batch[1])):
                    continue
                try:
                    X, Y = rows_for(model, batch)
                    if len(X) > num_data:
                        raise ValueError(
                            f"data must have at most num_data rows, {num_data}, in a batch, got {len(X)}."
                        )
                except ValueError as error:
                    raise ValueError(f"batch {number} of a pass: {error}") from error
                num_rows, largest = num_rows + len(X), max(largest, len(X))
                yield X, Y
        except tf.errors.OpError as error:
            found = f"the batch after batch {number} of a pass cannot: {reason_of(error)}"
            raise UnreadableData(f"data must be a dataset that can be read, but {found}") from error
        if num_rows == 0:
            raise ValueError("data must have at least one row, got a dataset without rows.")
        if not num_data - largest < num_rows <= num_data:
            found = f"{num_data}, in each pass, got {num_rows}: change num_data of the model"
            raise ValueError(
                f"data must be a dataset of num_data rows, {found}, or repeat() one whose passes differ."
            )
