"""Chunks visit each row and each block once, with what belongs to it; partitions can change under a compiled graph."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from gpflow_pep.engine import Blocks, SingleRows, default_chunk_size

PARTITIONS = {
    "one block": [7],
    "single rows": [1] * 9,
    "equal": [3, 3, 3, 3],
    "unequal": [4, 1, 2, 4, 1, 1, 6, 2],
    "one wide": [1, 30, 1],
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_blocks_cover_each_row_once(name):
    for chunk_size in [1, 2, 3, 5, 8, 100, None]:
        sizes = np.array(PARTITIONS[name])
        N, B = int(sizes.sum()), len(sizes)
        rows = np.random.default_rng(0).permutation(N)
        owner = np.empty(N, int)
        owner[rows] = np.repeat(np.arange(B), sizes)  # block of each row
        chunks = Blocks(rows, sizes, chunk_size)
        assert int(chunks.num_blocks(tf.constant(N))) == B
        seen_rows, seen_blocks = [], []
        for chunk in tf.range(chunks.count(tf.constant(N))):
            members = chunks.take(tf.range(N), chunk)  # [n]
            divided = chunks.divide(members[:, None], chunk).numpy()[:, :, 0]  # [G, b]
            blocks = chunks.take_blocks(tf.range(B), chunk).numpy()  # [G]
            assert len(divided) == 1 or divided.size <= (chunk_size or 1024)
            for block, in_block in zip(blocks, divided, strict=True):
                assert np.all(owner[in_block] == block)
                # In the order they were given in, as a shared block needs.
                np.testing.assert_array_equal(in_block, rows[owner[rows] == block])
            seen_rows.extend(members.numpy())
            seen_blocks.extend(blocks)
        assert sorted(seen_rows) == list(range(N))
        assert sorted(seen_blocks) == list(range(B))


def test_single_rows_cover_each_row_once():
    for chunk_size in [1, 2, 5, 12, None]:
        for N in [1, 2, 5, 12, 13]:
            chunks = SingleRows(chunk_size)
            count = int(chunks.count(tf.constant(N)))
            parts = [chunks.take(tf.range(N), chunk).numpy() for chunk in range(count)]
            assert all(0 < len(part) <= (chunk_size or 1024) for part in parts)
            np.testing.assert_array_equal(np.concatenate(parts), np.arange(N))
            assert int(chunks.num_blocks(tf.constant(N))) == N
            np.testing.assert_array_equal(chunks.take_blocks(tf.range(N), 0), parts[0])


def test_one_value_for_all_blocks_is_handed_on():
    value = tf.constant(0.5)
    assert chunks_value(SingleRows(2), value) == chunks_value(Blocks(np.arange(4), np.array([2, 2])), value) == 0.5


def chunks_value(chunks, value):
    taken = chunks.take_blocks(value, tf.constant(0))
    assert taken.shape == ()
    return float(taken)


def test_a_new_plan_does_not_retrace():
    """Other sizes, another number of rows, blocks and chunks: one graph."""
    chunks = Blocks(np.arange(6), np.array([2, 4]), 3)

    @tf.function
    def visited():
        count = chunks.count(tf.constant(0))
        rows = tf.TensorArray(tf.int32, size=count, infer_shape=False)
        for chunk in tf.range(count):
            rows = rows.write(chunk, chunks.take(tf.range(100), chunk))
        return rows.concat(), chunks.num_blocks(tf.constant(0))

    partitions = [(6, [2, 4]), (11, [5, 1, 1, 4]), (3, [3]), (6, [1] * 6), (6, [2, 4])]
    for N, sizes in partitions:
        order = np.random.default_rng(N).permutation(N)
        chunks.replan(order, np.array(sizes))
        rows, num_blocks = visited()
        assert sorted(rows.numpy()) == list(range(N))
        assert int(num_blocks) == len(sizes)
        np.testing.assert_array_equal(chunks.sizes, sizes)
    assert visited.experimental_get_tracing_count() == 1


def test_a_chunk_may_be_larger_than_anything():
    """All rows are in the first one."""
    for chunk_size in [2**30, 2**31 - 1, 2**31, 2**32, sys.maxsize, 2**70]:
        rows = tf.range(12)
        sizes = np.array([5, 5, 2])
        for chunks in (SingleRows(chunk_size), Blocks(np.arange(12), sizes, chunk_size)):
            count = int(chunks.count(tf.constant(12)))
            assert count == (2 if isinstance(chunks, Blocks) else 1)  # blocks of one size share a chunk
            found = tf.concat([chunks.take(rows, tf.constant(chunk)) for chunk in range(count)], 0)
            np.testing.assert_array_equal(tf.sort(found), rows)


def test_chunks_of_a_gpu_are_as_wide_as_memory_allows():
    """V [M, n] of 64 bits has 256 MiB."""
    for device, num_inducing, rows in [
        ("CPU:0", 100, 1024),
        ("", 100, 1024),
        ("GPU:1", 256, 131_072),
        ("GPU:0", 100, 335_544),
        ("GPU:0", 10**6, 1024),
    ]:
        name = f"/job:localhost/replica:0/task:0/device:{device}" if device else ""
        assert default_chunk_size(name, num_inducing, 8) == rows
        if "GPU" not in name:
            assert default_chunk_size(name, num_inducing, 8, on_cpu=3000) == 3000
            assert default_chunk_size(name, num_inducing, 8, on_cpu=3000, num_rows=2000) == 2000
            assert default_chunk_size(name, num_inducing, 8, on_cpu=3000, num_rows=20) == rows


def test_chunks_of_several_gpus_leave_none_without_rows():
    name = "/job:localhost/replica:0/task:0/device:GPU:0"
    assert default_chunk_size(name, 256, 8, num_rows=50_000) == 50_000
    assert default_chunk_size(name, 256, 8, num_rows=500) == 1024
