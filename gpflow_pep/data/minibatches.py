"""Deterministic minibatches: row indices as a function of step and seed."""

from collections.abc import Iterator
from itertools import count

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData

from .. import validation


class Minibatches:
    """
    Rows of each training step; a resumed training run continues with the next step.

    Each row is used once per epoch, in a new random order. A minibatch may span the end of one
    epoch and the start of the next. With ``fixed=True`` the rows are divided into random blocks
    once, and each block is used once per epoch, as the bound of :class:`gpflow_pep.BTSVGP`
    requires.
    """

    blocks: tuple[AnyNDArray, ...] | None  #: The rows of each block; None unless blocks are fixed.

    def __init__(self, num_data: int, size: int, *, fixed: bool = False, seed: int = 0):
        """
        :param num_data: N, the number of rows.
        :param size: rows per minibatch, at most N. If it does not divide N, fixed blocks have
            `size` rows or one less, and the mean of N/n times a block's sum equals the sum over all
            rows up to 1/n of the blocks' differences.
        :param fixed: keep the blocks for all epochs.
        :param seed: seed for the order of rows or blocks.
        """
        self.num_data = validation.positive_integer(num_data, "num_data")
        self.size = validation.positive_integer(size, "size")
        if self.size > self.num_data:
            raise ValueError(f"size must be at most num_data, {self.num_data}, got {self.size}.")
        self.seed = validation.seed(seed)  #: of the order of rows or blocks
        self._orders: dict[int, AnyNDArray] = {}  # for the last two epochs
        num_blocks = -(-self.num_data // self.size)
        self.blocks = (
            tuple(np.array_split(self._order(self.num_data, 0), num_blocks)) if fixed else None
        )

    def rows(self, step: int) -> AnyNDArray:
        """Return the row indices of a step (from 0): [size], or the rows of a block."""
        if self.blocks is not None:
            epoch, place = divmod(step, len(self.blocks))
            return self.blocks[self._order(len(self.blocks), 1 + epoch)[place]]
        epoch, first = divmod(step * self.size, self.num_data)
        rows = self._order(self.num_data, epoch)[first : first + self.size]
        missing = self.size - len(rows)
        if missing:
            return np.concatenate([rows, self._order(self.num_data, epoch + 1)[:missing]])
        return rows

    def dataset(self, data: RegressionData, *, first: int = 0) -> tf.data.Dataset:
        """
        Return endless batches of X [N, D], Y [N, P] from step `first`, for
        ``training_loss_closure(iter(...))``.
        """
        first = validation.whole_number(first, "first", 0, None)
        X, Y = validation.regression_data(data)
        if len(X) != self.num_data:
            raise ValueError(f"data must have num_data rows, {self.num_data}, got {len(X)}.")

        def batches() -> Iterator[tuple[AnyNDArray, AnyNDArray]]:
            for rows in map(self.rows, count(first)):
                yield X[rows], Y[rows]

        size = None if self.blocks is not None else self.size
        signature = tuple(tf.TensorSpec([size, part.shape[1]], part.dtype) for part in (X, Y))
        return tf.data.Dataset.from_generator(batches, output_signature=signature)

    def _order(self, length: int, epoch: int) -> AnyNDArray:
        if epoch not in self._orders:
            order = np.random.default_rng([self.seed, epoch]).permutation(length)
            self._orders = dict([*list(self._orders.items())[-1:], (epoch, order)])
        return self._orders[epoch]
