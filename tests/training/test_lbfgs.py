"""Where a search by L-BFGS ends."""

import numpy as np
import pytest
import tensorflow as tf
from tqdm import tqdm

from gpflow_pep.training import lbfgs
from gpflow_pep.training.history import History
from gpflow_pep.training.objectives import Objective


class Valley(Objective):
    """Rosenbrock's function of many variables, times a factor: a curved valley, along which the loss falls slowly."""

    def __init__(self, factor):
        self.variables, self._factor = [tf.Variable(np.tile([-1.2, 1.0], 10))], factor

    def evaluate(self, step):
        (x,) = self.variables
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2) * self._factor
        return float(loss), tape.gradient(loss, [x])


class Edge(Objective):
    """A slope that ends: beyond 0 the loss is no number."""

    def __init__(self):
        self.variables = [tf.Variable([1.0], dtype=tf.float64)]

    def evaluate(self, step):
        x = float(self.variables[0][0])
        if x < 0.0:
            raise FloatingPointError("the loss is no number")
        return x, [tf.ones([1], tf.float64)]


def search(problem, steps=1000):
    objective = []
    history = History(
        problem.variables,
        steps=steps,
        interval=1,
        bar=tqdm(disable=True),
        report=lambda iteration, value: objective.append(value),
        scores=None,
        patience=None,
        checkpoints=None,
    )
    ending = lbfgs.lbfgs(problem, history, steps)
    return ending, np.array(objective)


@pytest.mark.parametrize("factor", [1e-3, 1e-4])
def test_it_ends_where_the_objective_is_flat(factor):
    ending, objective = search(Valley(factor))
    assert ending.status == "converged" and "the last 20 iterations gained less than 0.001 nats" in ending.reason
    gains = objective[20:] - objective[:-20]
    assert gains[-1] < 1e-3 and (gains[:-1] >= 1e-3).all()


def test_it_goes_on_where_it_is_not_flat():
    ending, objective = search(Valley(1.0))
    assert ending.status == "converged" and "flat" not in ending.reason
    assert objective[-1] == pytest.approx(0.0, abs=1e-6)


def test_the_limit_comes_first():
    ending, objective = search(Valley(1e-4), steps=20)
    assert ending.status == "limit" and len(objective) == 20


def test_an_edge_is_no_optimum():
    ending, objective = search(Edge())
    assert ending.status == "failed" and "the loss is no number" in ending.reason
    assert -1.0 < objective[-1] <= 0.0
