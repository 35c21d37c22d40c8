"""Rows in minibatches, by number: the same ones for the same seed, whenever and wherever they are asked for."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData

from .. import validation


class Minibatches:
    """
    The rows of each training step; a resumed training run continues with the next ones.

    Rows come up once an epoch, in a new random order in every epoch; a minibatch may have the end of one and the
    beginning of the next. With ``fixed=True`` they are divided into blocks once, at random, and it is the blocks that
    come up once an epoch: what :class:`gpflow_pep.BTSVGP` is a bound for.

    >>> from gpflow_pep.data.minibatches import Minibatches
    >>> rows = Minibatches(6, 2, seed=0)
    >>> sorted(row for step in range(3) for row in rows.rows(step).tolist())  # an epoch
    [0, 1, 2, 3, 4, 5]
    """

    blocks: tuple[AnyNDArray, ...] | None
    """The rows of each block; None where blocks are not fixed."""

    def __init__(self, num_data: int, size: int, *, fixed: bool = False, seed: int = 0):
        """
        :param num_data: N, the number of rows.
        :param size: rows of a minibatch, at most N. Fixed blocks have as many or one less where it does not divide N:
            then the mean of N/n times a block's sum is that of all rows but for a fraction 1/n of how blocks differ.
        :param fixed: whether blocks stay the same.
        :param seed: seed for the orders.
        :raises ValueError: naming the argument that cannot be used.
        """
        self.num_data = validation.positive_integer(num_data, "num_data")
        self.size = validation.positive_integer(size, "size")
        if self.size > self.num_data:
            raise ValueError(f"size must be at most num_data, {self.num_data}, got {self.size}.")
        self._seed = validation.seed(seed)
        self._orders: dict[int, AnyNDArray] = {}  # of the last epochs
        count = -(-self.num_data // self.size)
        self.blocks = tuple(np.array_split(self._order(self.num_data, 0), count)) if fixed else None

    def rows(self, step: int) -> AnyNDArray:
        """The rows of a step, numbered from 0: [size] integers, or those of a block."""
        if self.blocks is not None:
            epoch, place = divmod(step, len(self.blocks))
            return self.blocks[self._order(len(self.blocks), 1 + epoch)[place]]
        epoch, first = divmod(step * self.size, self.num_data)
        rows = self._order(self.num_data, epoch)[first : first + self.size]
        missing = self.size - len(rows)
        return np.concatenate([rows, self._order(self.num_data, epoch + 1)[:missing]]) if missing else rows

    def dataset(self, data: RegressionData, *, first: int = 0) -> tf.data.Dataset:
        """
        Minibatches of X [N, D] and Y [N, P] without end, for ``training_loss_closure(iter(...))``.

        :param first: the number of the step that they begin with.
        :raises ValueError: if there are not N rows, or `first` is no number of a step.
        """
        first = validation.whole_number(first, "first", 0, None)
        X, Y = validation.regression_data(data)
        if len(X) != self.num_data:
            raise ValueError(f"data must have num_data rows, {self.num_data}, got {len(X)}.")

        def batches() -> Iterator[tuple[AnyNDArray, AnyNDArray]]:
            step = first
            while True:
                rows = self.rows(step)
                yield X[rows], Y[rows]
                step += 1

        size = None if self.blocks is not None else self.size
        signature = tuple(tf.TensorSpec([size, part.shape[1]], part.dtype) for part in (X, Y))
        return tf.data.Dataset.from_generator(batches, output_signature=signature)

    def _order(self, count: int, epoch: int) -> AnyNDArray:
        if epoch not in self._orders:
            earlier = list(self._orders.items())[-1:]
            self._orders = dict([*earlier, (epoch, np.random.default_rng([self._seed, epoch]).permutation(count))])
        return self._orders[epoch]
