"""Chunks visit each row and block once; partitions can change without retracing."""

import itertools
import sys

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal

from gpflow_pep.engine import BlockChunks, OneChunk, RowChunks, default_chunk_size

PARTITIONS = {
    "one block": [7],
    "single rows": [1] * 9,
    "equal": [3, 3, 3, 3],
    "unequal": [4, 1, 2, 4, 1, 1, 6, 2],
    "one wide": [1, 30, 1],
}


def visited(chunks, N):
    """All chunks of rows 0, ..., N - 1, in turn."""
    found = []
    chunks.split([tf.range(N)]).sum(lambda chunk: found.append(chunk) or (), ())
    return found


@pytest.mark.parametrize("name", PARTITIONS)
def test_blocks_cover_each_row_once(name):
    for chunk_size in [1, 2, 3, 5, 8, 100, None]:
        sizes = np.array(PARTITIONS[name])
        N = int(sizes.sum())
        B = len(sizes)
        rows = np.random.default_rng(0).permutation(N)
        owner = np.empty(N, int)
        owner[rows] = np.repeat(np.arange(B), sizes)  # block of each row
        chunks = BlockChunks(rows, sizes, chunk_size)
        assert len(chunks.sizes.numpy()) == B
        seen_rows = []
        seen_blocks = []
        for chunk in visited(chunks, N):
            members = chunk.take(tf.range(N))  # [n]
            assert_array_equal(chunk.data[0], members)
            divided = tf.reshape(members, chunk.shape).numpy()  # [G, b]
            blocks = chunk.take_blocks(tf.range(B)).numpy()  # [G]
            assert len(divided) == 1 or divided.size <= (chunk_size or 1024)
            for block, in_block in zip(blocks, divided, strict=True):
                assert np.all(owner[in_block] == block)
                # In the order they were given in, as a shared block needs.
                assert_array_equal(in_block, rows[owner[rows] == block])
            seen_rows.extend(members.numpy())
            seen_blocks.extend(blocks)
        assert sorted(seen_rows) == list(range(N))
        assert sorted(seen_blocks) == list(range(B))


def test_single_rows_cover_each_row_once():
    for chunk_size, N in itertools.product([1, 2, 5, 12, None], [1, 2, 5, 12, 13]):
        chunks = RowChunks(chunk_size)
        parts = [chunk.take(tf.range(N)).numpy() for chunk in visited(chunks, N)]
        assert all(0 < len(part) <= (chunk_size or 1024) for part in parts)
        assert_array_equal(np.concatenate(parts), np.arange(N))
        assert_array_equal(visited(chunks, N)[0].take_blocks(tf.range(N)), parts[0])


@pytest.mark.parametrize(
    "chunks", [RowChunks(2), BlockChunks(np.arange(4), np.array([2, 2]))], ids=["rows", "blocks"]
)
def test_a_single_value_holds_for_all_blocks(chunks):
    value = tf.constant(0.5)
    assert all(chunk.take_blocks(value) is value for chunk in visited(chunks, 4))


def test_a_new_plan_does_not_retrace():
    """Other sizes, another number of rows, blocks and chunks: one graph."""
    chunks = BlockChunks(np.arange(6), np.array([2, 4]), 3)

    @tf.function
    def found():
        chunked = chunks.split([tf.range(100)])
        rows = chunked.concatenate(lambda chunk: chunk.data, tf.int32, [[None]])[0]
        return rows, chunked.in_order_of_data(rows), tf.size(chunks.sizes)

    partitions = [(6, [2, 4]), (11, [5, 1, 1, 4]), (3, [3]), (6, [1] * 6), (6, [2, 4])]
    for N, sizes in partitions:
        chunks.replan(np.random.default_rng(N).permutation(N), np.array(sizes))
        rows, in_order, num_blocks = found()
        assert sorted(rows.numpy()) == list(range(N))
        assert_array_equal(in_order, np.arange(N))
        assert int(num_blocks) == len(sizes)
        assert_array_equal(chunks.sizes, sizes)
    assert found.experimental_get_tracing_count() == 1


def test_a_chunk_may_be_larger_than_anything():
    """All rows are in the first one."""
    for chunk_size in [2**30, 2**31 - 1, 2**31, 2**32, sys.maxsize, 2**70]:
        for chunks in (
            RowChunks(chunk_size),
            BlockChunks(np.arange(12), np.array([5, 5, 2]), chunk_size),
        ):
            found = visited(chunks, 12)
            # Blocks of one size share a chunk.
            assert len(found) == (2 if isinstance(chunks, BlockChunks) else 1)
            assert_array_equal(
                tf.sort(tf.concat([chunk.data[0] for chunk in found], 0)), np.arange(12)
            )


@pytest.mark.parametrize("N", [0, 3, 4, 8, 11])
@pytest.mark.parametrize("chunks", [RowChunks(4), OneChunk()], ids=["in chunks", "at once"])
@pytest.mark.parametrize("jit_compile", [False, True], ids=["", "XLA"])
def test_sums_and_rows_are_complete(N, chunks, jit_compile):
    """Any number of rows, also none, and XLA, which needs chunks of one shape in a loop."""
    X = tf.reshape(tf.range(2.0 * N), [N, 2])

    @tf.function(jit_compile=jit_compile, autograph=False, reduce_retracing=True)
    def found(X):
        chunked = chunks.split([X])
        (total,) = chunked.sum(
            lambda chunk: [tf.reduce_sum(chunk.take(X), axis=0)], [tf.zeros([2])]
        )
        return total, *chunked.concatenate(
            lambda chunk: [2.0 * chunk.data[0]], tf.float32, [[None, 2]]
        )

    total, rows = found(X)
    assert_array_equal(total, tf.reduce_sum(X, axis=0))
    assert_array_equal(rows, 2.0 * X)


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
