"""Train on growing random subsets of the rows: few rows find the hyperparameters, all rows refine them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import GPModel

from .. import validation
from ..models.sparse import SparseGP
from .history import History
from .lbfgs import LBFGS
from .result import Outcome

_ITERATIONS = 5  # number of iterations with too little gain that ends the second stage
_LATER_ITERATIONS = 2  # the same for later stages: two stages have found nearly the same parameters
_GROWTH = 10  # ratio of the numbers of rows of consecutive stages


def checked_first_rows(first_rows: Any, model: GPModel, optimizer: str) -> int:
    """Check the argument `first_rows` of `fit` for this model."""
    number = validation.positive_integer(first_rows, "first_rows")
    if not (isinstance(model, SparseGP) and isinstance(model.data, tuple)):
        accepted = "it needs a model of gpflow_pep that stores X and Y as arrays"
        name = type(model).__name__
        raise ValueError(f"first_rows must be None for {name}, got {number}: {accepted}.")
    if optimizer != "lbfgs":
        raise ValueError(f'first_rows must be None with optimizer="{optimizer}", got {number}.')
    return number


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
    L-BFGS in stages: on a random subset of the rows, on larger ones from the end of the one before, and on all rows.

    The objective of a stage is the model's for these rows, priors included, without a factor. The
    next stage has the same rows and others.
    """

    def __init__(self, minimize: LBFGS, model: GPModel, stages: list[int], seed: int):
        """:param stages: the numbers of rows of the stages; the last is the number of all rows."""
        self._minimize = minimize
        self._model = model
        self._stages = stages
        self._order = np.random.default_rng(seed).permutation(stages[-1])
        self._stage = tf.Variable(0, trainable=False)
        self.state: Mapping[str, tf.Variable] = {**minimize.state, "stage": self._stage}

    def restore(self) -> None:
        """Assign the best parameters to the variables."""
        self._minimize.restore()

    def __call__(self, history: History) -> Outcome:
        """Minimize the loss of one stage after the other; the model has all rows again at the end."""
        rows = tuple(values.numpy() for values in self._model.data)
        *first, last = range(len(self._stages))
        try:
            for stage in first[self._stage.numpy() :]:
                history.begin_stage()
                if history.is_over:
                    break
                self._stage.assign(stage)
                subset = np.sort(self._order[: self._stages[stage]])
                self._assign(tuple(values[subset] for values in rows))
                self._train(history, stage)
        finally:
            self._model.data = rows
        history.begin_stage()
        if not history.is_over:
            self._stage.assign(last)
        return self._train(history, last)

    def _assign(self, rows: RegressionData) -> None:
        try:
            self._model.data = rows
        except ValueError as error:
            # Settings are given row by row, or several workers share the rows.
            name = type(self._model).__name__
            found = f"got {self._stages[0]}"
            raise ValueError(
                f"first_rows must be None for this {name}, {found}: {error}"
            ) from error

    def _train(self, history: History, stage: int) -> Outcome:
        """Minimize the loss of the model's present rows."""
        if stage == 0:
            return self._minimize(history)
        iterations = _ITERATIONS if stage == 1 else _LATER_ITERATIONS
        return self._minimize.go_on(history, self._stages[stage], iterations)
