"""Devices share all chunks evenly, and their loops wait for nothing of each other."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_pep.engine import BlockChunks, RowChunks
from gpflow_pep.runtime.devices import side_by_side

# Three loops on one device: numbers do not depend on which device it is.
HERE = (
    "CPU:0",
    "CPU:0",
    "CPU:0",
)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 30])
def test_chunks_are_divided_evenly(count):
    placed = []
    RowChunks(1, HERE).split([tf.range(count)]).sum(
        lambda chunk: placed.append((chunk.place[0], int(chunk.data[0][0]))) or (), ()
    )
    assert [row for _, row in placed] == list(range(count))
    sizes = np.bincount([device for device, _ in placed], minlength=3)
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("eagerly", [False, True], ids=["compiled", "eager"])
@pytest.mark.parametrize(
    ("name", "N"), [("single rows", 2), ("single rows", 13), ("blocks", 2), ("blocks", 13)]
)
def test_shares_have_the_rows_of_all(name, N, eagerly):
    """Sums, concatenations, and stored and reread chunks."""
    rng = np.random.default_rng(0)
    sizes = np.array([1, N - 1]) if N < 5 else np.array([2, 3, 2, N - 7])
    chunks = (
        RowChunks(4, HERE)
        if name == "single rows"
        else BlockChunks(rng.permutation(N), sizes, 4, HERE)
    )
    data = tf.constant(rng.normal(size=(N, 2))), tf.constant(rng.normal(size=(N, 1)))

    def found():
        chunked = chunks.split(data)
        kept = chunked.keep(lambda chunk: (tf.transpose(chunk.data[0]),), tf.float64, 1)

        def part(chunk):
            X, Y = chunk.data
            (again,) = kept(chunk)
            return (tf.matmul(again, Y) + 0.0 * tf.reduce_sum(X - chunk.take(data[0])),)

        whole = chunked.concatenate(lambda chunk: chunk.data[:1], tf.float64, [[None, 2]])[0]
        return *chunked.sum(part, [tf.zeros([2, 1], tf.float64)]), chunked.in_order_of_data(whole)

    total, whole = found() if eagerly else tf.function(found)()
    np.testing.assert_allclose(total, tf.matmul(*data, transpose_a=True), rtol=1e-13)
    np.testing.assert_array_equal(whole, data[0])


def test_loops_with_checks_are_not_ordered():
    """TensorFlow orders them otherwise: the second one would wait for the first."""

    def loops():
        def step(number):
            with tf.control_dependencies([tf.raw_ops.Assert(condition=number >= 0, data=[number])]):
                return number + 1

        return [
            tf.while_loop(lambda number: number < 3, lambda number: [step(number)], [i])[0]
            for i in (0, 1)
        ]

    def loops_side_by_side():
        with side_by_side():
            return loops()

    assert orders(loops) == 1
    assert orders(loops_side_by_side) == 0


def orders(function):
    """Count the loops of a function that wait for another loop."""
    operations = tf.function(function).get_concrete_function().graph.get_operations()
    loops = [operation for operation in operations if operation.type == "While"]
    assert len(loops) == 2
    return sum(other in loop.control_inputs for loop in loops for other in loops)
