"""
The record of a training: its iterations, counts and end, and the time when scores have settled.
"""

import time
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from experiments.benchmarks.trajectory import Over, Trajectory, settled


def test_only_what_lies_between_records_is_counted():
    course = Trajectory()
    slow = SimpleNamespace(numpy=lambda: busy(0.2))
    for iteration in (1, 2):
        course.record(iteration, [slow])
    assert course.seconds[1] < 0.2  # the CPU time of one record


def busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


@pytest.mark.parametrize("limit", [{"max_iterations": 3}, {"max_seconds": 0.0}])
def test_a_limit_ends_the_training(limit):
    course = Trajectory(**limit)
    last = 3 if "max_iterations" in limit else 1
    for iteration in range(1, last):
        course.record(iteration, [])
    with pytest.raises(Over):
        course.record(last, [])
    assert course.iterations[-1] == last


def test_scores_are_those_of_the_values_recorded():
    variable = tf.Variable(0.0)
    course = Trajectory()
    for iteration in range(1, 4):
        variable.assign(10.0 * iteration)
        course.record(iteration, [variable])
    np.testing.assert_array_equal(
        course.scores([variable], lambda: float(variable)), [10.0, 20.0, 30.0]
    )


@pytest.mark.parametrize(
    ("scores", "index"),
    [([1.0, 0.5, 0.1], 2), ([0.1, 0.5, 0.1005, 0.1], 2), ([0.1, 0.1], 0), ([0.1, np.nan, 0.1], 2)],
)
def test_settled(scores, index):
    assert settled(np.array(scores), 0.002) == index


@pytest.mark.parametrize(("gain", "kept"), [(0.5, 4), (1.5, 3), (0.1, 6)])
def test_the_end_of_a_flat_objective(gain, kept):
    # Gains in a step: 2, 1, .4, .2, .2.
    course = Trajectory()
    objective = np.array([0.0, 2.0, 3.0, 3.4, 3.6, 3.8])
    for iteration in range(1, 7):
        course.record(iteration, [])
    assert course.end_where_flat(objective, 1, gain) == (kept < 6)
    assert course.iterations == list(range(1, kept + 1))
    assert len(course.seconds) == len(course.values) == kept
