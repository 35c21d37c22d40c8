"""Training on the batches of a dataset, as they come: each batch is a minibatch, each pass an epoch."""

import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.models import GPModel
from typing_extensions import override

from ..models.kernels_and_inducing_variables import are_inducing_points, single_output_variables
from .objectives import EstimatedObjective, Evaluation, rows_for

Batch = tuple[AnyNDArray, AnyNDArray]


class DatasetBatches:
    """
    The batches of a dataset, pass after pass, read ahead, each checked as arrays are.

    Batches without rows are left out. The rows of a pass are counted on the way: the model's objective is that of
    `num_data` rows.
    """

    dataset: tf.data.Dataset
    """The dataset given to the constructor."""

    first: Batch
    """The first batch, X [n, D] and Y [n, P]."""

    def __init__(self, model: GPModel, dataset: tf.data.Dataset):
        """
        :param model: a model without data of its own.
        :param dataset: batches (X [n, D], Y [n, P]); infinite, or read again and again.
        :raises ValueError: if `num_data` of the model is None; if the dataset has no rows, or its first batch is not
            valid data of the model.
        """
        spec = dataset.element_spec
        if not (isinstance(spec, tuple) and len(spec) == 2 and all(isinstance(part, tf.TensorSpec) for part in spec)):
            raise ValueError(f"data must be a tf.data.Dataset of batches (X [n, D], Y [n, P]), got elements {spec}.")
        num_data = getattr(model, "num_data", None)
        if num_data is None:
            raise ValueError("num_data of the model must be the number of rows of the dataset, got None.")
        self._model, self._num_data = model, int(num_data)
        self.dataset = dataset
        self._read_ahead = dataset.prefetch(tf.data.AUTOTUNE)
        variable = getattr(model, "inducing_variable", None)
        self._columns = None
        if variable is not None and are_inducing_points(variable):
            self._columns = int(single_output_variables(variable)[0].Z.shape[1])
        self._begin()
        self.first = self._read()
        self._is_first_read = True

    def read(self) -> Batch:
        """
        Return the next batch.

        :raises ValueError: if it is not valid data of the model, or a pass has ended that did not have `num_data` rows.
        """
        if self._is_first_read:
            self._is_first_read = False
            return self.first
        return self._read()

    def _begin(self) -> None:
        """Begin a pass."""
        self._batches = self._read_ahead.as_numpy_iterator()
        self._number, self._rows, self._largest = 0, 0, 0

    @property
    def _place(self) -> str:
        return f"batch {self._number} of a pass"

    def _read(self) -> Batch:
        while True:
            try:
                batch = next(self._batches, None)
            except tf.errors.OpError as error:
                reason = error.message.partition("\n")[0]  # a traceback may follow
                raise ValueError(
                    f"data must be a dataset that can be read, but what follows {self._place} cannot: {reason}"
                ) from error
            if batch is None:
                self._check_pass()
                self._begin()
                continue
            self._number += 1
            if len(batch[0]) or len(batch[1]):
                return self._checked(batch)

    def _checked(self, batch: Batch) -> Batch:
        try:
            X, Y = rows_for(self._model, batch)
        except ValueError as error:
            raise ValueError(f"{self._place}: {error}") from error
        if self._columns not in (None, X.shape[1]):
            raise ValueError(
                f"{self._place}: data[0] (X) must have as many columns as the inducing points, {self._columns}, got "
                f"{X.shape[1]}."
            )
        if len(X) > self._num_data:
            raise ValueError(
                f"{self._place}: data must have at most num_data rows, {self._num_data}, in a batch, got {len(X)}."
            )
        self._rows += len(X)
        self._largest = max(self._largest, len(X))
        return X, Y

    def _check_pass(self) -> None:
        """
        Compare the rows of a pass with `num_data`; the last batch may be missing, if it was smaller than the others.

        :raises ValueError: if they do not match.
        """
        if self._rows == 0:
            raise ValueError("data must have at least one row, got a dataset without rows.")
        if not self._num_data - self._largest < self._rows <= self._num_data:
            raise ValueError(
                f"data must be a dataset of num_data rows, {self._num_data}, in each pass, got {self._rows}: change "
                "num_data of the model, or repeat() a dataset whose passes differ."
            )


class DatasetObjective(EstimatedObjective):
    """A training loss estimated from the next batch in each step, whatever the number of the step."""

    def __init__(self, model: GPModel, batches: DatasetBatches):
        super().__init__(model)
        self._batches, self._last = batches, batches.first

    @override
    def evaluate(self, step: int) -> Evaluation:
        self._last = self._batches.read()
        return self.probe(step)

    @override
    def probe(self, step: int) -> Evaluation:
        """Evaluate at the last batch; no other is read."""
        loss, gradient = self._step(*self._last)
        return float(loss), gradient
