"""
The course of a training: seconds and parameters at its iterations, and the first record as good as
the last.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from gpflow_pep.runtime import assign_all


class Over(Exception):
    """Raised when a training has reached its limit of seconds or iterations."""


class Trajectory:
    """
    CPU seconds, and the parameters, at an optimizer's iterations.

    The clock starts at construction and stops during records, so that only the training is counted.
    """

    def __init__(self, max_seconds: float = np.inf, max_iterations: float = np.inf):
        """
        :param max_seconds: limit of CPU time.
        """
        self.iterations: list[int] = []
        self.seconds: list[float] = []
        """CPU seconds of each record."""
        self.values: list[list[AnyNDArray]] = []
        """Values of the variables at each record."""
        self._max_seconds, self._max_iterations = max_seconds, max_iterations
        self._began = time.process_time()

    def record(self, iteration: int, variables: Sequence[tf.Variable]) -> None:
        """
        Record the variables after an iteration, from 1.

        :raises Over: if the training must end.
        """
        spent = time.process_time() - self._began
        self.iterations.append(iteration)
        self.seconds.append(spent)
        self.values.append([variable.numpy() for variable in variables])
        self._began = time.process_time() - spent
        if iteration >= self._max_iterations or spent >= self._max_seconds:
            raise Over

    def end_where_flat(self, objective: AnyNDArray, iterations: int, gain: float) -> bool:
        """
        Drop the records after the first iteration at which the last `iterations` have gained less
        than `gain`.

        :param objective: values at the records, [records].
        :return: True if there is such an iteration.
        """
        flat = np.flatnonzero(objective[iterations:] - objective[:-iterations] < gain)
        if not len(flat):
            return False
        for records in (self.iterations, self.seconds, self.values):
            del records[flat[0] + iterations + 1 :]
        return True

    def scores(self, variables: Sequence[tf.Variable], score: Callable[[], float]) -> AnyNDArray:
        """
        Score the parameters of every record, [records]; the variables keep the values of the last
        record.
        """
        found = []
        for values in self.values:
            assign_all(variables, values)
            found.append(score())
        return np.array(found)


def settled(scores: AnyNDArray, close: float) -> int:
    """Return the first record after which all scores are within `close` of the last score."""
    far = np.flatnonzero(~(np.abs(scores - scores[-1]) < close))
    return int(far[-1]) + 1 if len(far) else 0
