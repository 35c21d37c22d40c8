"""Train on growing random subsets of the rows: few find the hyperparameters, all refine them."""

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import GPModel

from .history import History
from .lbfgs import LBFGS
from .result import Outcome

_ITERATIONS = 5  # number of iterations with too little gain that ends the second stage
_LATER_ITERATIONS = 2  # the same for later stages: two stages have found nearly the same parameters
_GROWTH = 10  # ratio of the numbers of rows of consecutive stages


def stages(first_rows: int | None, num_rows: int) -> list[int]:
    """Return the numbers of rows of the stages: `first_rows`, then tenfold each, all rows last."""
    numbers = []
    number = first_rows or num_rows
    while 2 * number <= num_rows:  # larger subsets save little
        numbers.append(number)
        number *= _GROWTH
    return [*numbers, num_rows]


class Subsets:
    """
    L-BFGS in stages: on a random subset of the rows, on larger ones from the end of the one before,
    and on all rows.

    The objective of a stage is the model's for these rows, priors included, without a factor. The
    next stage has the same rows and others.
    """

    def __init__(self, minimize: LBFGS, history: History, model: GPModel, stages: list[int]):
        """:param stages: the numbers of rows of the stages; the last is the number of all rows."""
        self._minimize = minimize
        self._history = history
        self._model = model
        self._stages = stages
        self._order = np.random.default_rng(history.options.seed).permutation(stages[-1])
        self._stage = tf.Variable(0, trainable=False)
        # The number of sites changes from stage to stage: they are left out.
        self.state = {"best end": minimize.state["best end"], "stage": self._stage}

    def restore(self) -> None:
        """Assign the best parameters to the variables."""
        self._minimize.restore()

    def __call__(self) -> Outcome:
        """Minimize the loss of each stage in turn; give the model all rows at the end."""
        history = self._history
        rows = tuple(values.numpy() for values in self._model.data)
        last = len(self._stages) - 1
        try:
            for stage in range(self._stage.numpy(), last):
                history.begin_stage()
                if history.is_over:
                    break
                self._stage.assign(stage)
                subset = np.sort(self._order[: self._stages[stage]])
                self._assign(tuple(values[subset] for values in rows))
                self._train(stage)
        finally:
            self._model.data = rows
        history.begin_stage()
        if not history.is_over:
            self._stage.assign(last)
        return self._train(last)

    def _assign(self, rows: RegressionData) -> None:
        try:
            self._model.data = rows
        except ValueError as error:
            # Settings are given row by row, or several workers share the rows.
            raise ValueError(
                f"first_rows must be None for this {type(self._model).__name__}, "
                f"got {self._stages[0]}: {error}"
            ) from error

    def _train(self, stage: int) -> Outcome:
        """Minimize the loss of the model's present rows."""
        if stage == 0:
            return self._minimize()
        iterations = _LATER_ITERATIONS
        if stage == 1:
            iterations = _ITERATIONS
        return self._minimize.go_on(self._stages[stage], iterations)
