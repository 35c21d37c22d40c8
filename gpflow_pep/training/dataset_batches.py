"""Check the data given to `fit`: arrays, or a dataset of minibatches that is read repeatedly."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Softmax
from gpflow.models import GPModel

from ..models.sparse import checked_rows
from ..runtime import UnreadableData, Workers, reason_of
from .objectives import has_own_data

Batch = tuple[AnyNDArray, AnyNDArray]  # X [n, D] and Y [n, P]


def check_data(model: GPModel, data: object, workers: Workers) -> None:
    """Check that data are given if, and only if, the model does not store its own."""
    own = has_own_data(model)
    name = type(model).__name__
    if own and data is not None:
        raise ValueError(f"data must be None: {name} stores its data.")
    if data is None and not own:
        raise ValueError(f"data must be given: {name} does not store data.")
    if isinstance(data, tf.data.Dataset) and workers.count > 1:
        raise ValueError(
            "data must be arrays, this worker's rows, if several workers train, got a dataset."
        )


def rows_for(model: GPModel, data: object) -> Batch:
    """Check X [N, D] and Y [N, P]; return them as the model's objective accepts them."""
    X, Y = checked_rows(model, data)
    # GPflow's softmax accepts integer labels only; the models here accept them, too.
    if isinstance(model.likelihood, Softmax):
        Y = Y.astype(np.int64)
    return X, Y


def dataset_batches(model: GPModel, dataset: tf.data.Dataset) -> Iterator[Batch]:
    """
    Yield the batches of a dataset, checked like arrays, in repeated passes; read ahead and skip
    empty batches.

    Each pass must have the `num_data` rows to which the model scales its objective, except a
    smaller last batch.
    """
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or list(map(type, spec)) != [tf.TensorSpec] * 2:
        raise ValueError(
            f"data must be a tf.data.Dataset of batches (X [n, D], Y [n, P]), got elements {spec}."
        )
    if getattr(model, "num_data", None) is None:
        raise ValueError(
            "num_data of the model must be the number of rows of the dataset, got None."
        )
    num_data = int(model.num_data)
    read_ahead = dataset.prefetch(tf.data.AUTOTUNE)
    while True:
        number = num_rows = largest = 0
        try:
            for number, batch in enumerate(read_ahead.as_numpy_iterator(), start=1):
                if not (len(batch[0]) or len(batch[1])):
                    continue
                try:
                    X, Y = rows_for(model, batch)
                except ValueError as error:
                    raise ValueError(f"batch {number} of a pass: {error}") from error
                if len(X) > num_data:
                    raise ValueError(
                        f"batch {number} of a pass: data must have at most num_data rows, "
                        f"{num_data}, in a batch, got {len(X)}."
                    )
                num_rows += len(X)
                largest = max(largest, len(X))
                yield X, Y
        except tf.errors.OpError as error:
            raise UnreadableData(
                "data must be a dataset that can be read, but the batch after "
                f"batch {number} of a pass cannot: {reason_of(error)}"
            ) from error
        if num_rows == 0:
            raise ValueError("data must have at least one row, got a dataset without rows.")
        if not num_data - largest < num_rows <= num_data:
            raise ValueError(
                f"data must be a dataset of num_data rows, {num_data}, in each pass, got "
                f"{num_rows}: change num_data of the model, or repeat() one whose passes differ."
            )
