"""What is timed with XLA is compared with what is computed without it."""

import numpy as np
import pytest
import tensorflow as tf

from experiments.benchmarks.small_step import make_problem
from experiments.benchmarks.xla_step import MODELS, compared, difference, functions
from gpflow_pep.runtime.tracing import in_xla


@pytest.mark.slow
def test_a_row_of_the_table():
    problem = make_problem(20, 3, 2)
    for _, function in functions(MODELS["PEPSVGP"](problem), problem):
        numbers = compared(function, rounds=1)
        assert len(numbers) == 6
        assert np.isfinite(numbers).all()


def test_other_values_are_an_error():
    with pytest.raises(AssertionError, match="values with and without XLA differ by 1e-06"):
        compared(lambda: tf.constant(1.0 + 1e-6 * in_xla(), tf.float64), rounds=1)


def test_differences_are_relative_to_each_tensor():
    assert difference(
        (np.array([1.0, 100.0]), 1.0), (np.array([2.0, 100.0]), 1.001)
    ) == pytest.approx(0.01)
