"""Rows given to `fit`: arrays, or the batches of a dataset as minibatches, pass after pass."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Softmax
from gpflow.models import GPModel

from .. import validation
from ..likelihoods.observations import check_observations
from ..models.kernels_and_inducing_variables import are_inducing_points, single_output_variables

Rows = tuple[AnyNDArray, AnyNDArray]
"""X [n, D] and Y [n, P]."""


def rows_for(model: GPModel, data: Any) -> Rows:
    """
    Return X [N, D] and Y [N, P] in the form that the model's objective accepts.

    :raises ValueError: if they are not valid regression data, or the likelihood does not accept Y.
    """
    X, Y = validation.regression_data(data)
    mixing = getattr(model.kernel, "W", None)  # [P, C], of latent functions that outputs share
    check_observations(model.likelihood, Y, int(model.num_latent_gps if mixing is None else mixing.shape[0]))
    # GPflow's softmax takes whole numbers only; the models here take them too.
    return X, Y.astype(np.int64) if isinstance(model.likelihood, Softmax) else Y


class DatasetBatches:
    """
    The batches of a dataset, pass after pass, read ahead, each checked as arrays are.

    Batches without rows are skipped. The rows of each pass are counted, because the model's objective is that of
    `num_data` rows.
    """

    dataset: tf.data.Dataset
    """The dataset given to the constructor."""

    first: Rows
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

    def rows(self, step: int) -> Rows:
        """
        Return the next batch, whatever the number of the step.

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

    def _read(self) -> Rows:
        while True:
            try:
                batch = next(self._batches, None)
            except tf.errors.OpError as error:
                reason = error.message.partition("\n")[0]  # a traceback may follow
                raise ValueError(
                    f"data must be a dataset that can be read, but the batch after batch {self._number} of a pass "
                    f"cannot: {reason}"
                ) from error
            if batch is None:
                self._check_pass()
                self._begin()
                continue
            self._number += 1
            if len(batch[0]) or len(batch[1]):
                return self._checked(batch)

    def _checked(self, batch: Rows) -> Rows:
        try:
            X, Y = rows_for(self._model, batch)
            if self._columns not in (None, X.shape[1]):
                columns = f"as many columns as the inducing points, {self._columns}, got {X.shape[1]}"
                raise ValueError(f"data[0] (X) must have {columns}.")
            if len(X) > self._num_data:
                raise ValueError(f"data must have at most num_data rows, {self._num_data}, in a batch, got {len(X)}.")
        except ValueError as error:
            raise ValueError(f"batch {self._number} of a pass: {error}") from error
        self._rows += len(X)
        self._largest = max(self._largest, len(X))
        return X, Y

    def _check_pass(self) -> None:
        """
        Compare the rows of a pass with `num_data`; the last batch may be missing if it was smaller than the rest.

        :raises ValueError: if they do not match.
        """
        if self._rows == 0:
            raise ValueError("data must have at least one row, got a dataset without rows.")
        if not self._num_data - self._largest < self._rows <= self._num_data:
            raise ValueError(
                f"data must be a dataset of num_data rows, {self._num_data}, in each pass, got {self._rows}: change "
                "num_data of the model, or repeat() a dataset whose passes differ."
            )
