"""
Shared by tests of the engine: rows held as tensors, and the same sums written densely, without
chunks.

The dense form stands on other operations than the engine: inverses and log-determinants of whole
blocks, one block after another, in plain TensorFlow.
"""

import types
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from comparisons import assert_near

from gpflow_pep.engine import BlockChunks, OneChunk, Powers, RowChunks, Rows, RowSums, SiteSums
from gpflow_pep.engine import accumulate_sums as engine
from gpflow_pep.maths.linalg import cholesky


class Collected(NamedTuple):
    """The sums and the terms besides them, one after the other."""

    L: Any
    A: Any
    c: Any
    quadratic: Any
    log_noise: Any
    penalty: Any
    shared: Any

    def split(self):
        """The engine's two."""
        return SiteSums(*self[:3]), RowSums(*self[1:])


def accumulate_sums(rows, sites, powers, *, Kuu):
    sums, terms = engine(rows, sites, tensors(powers), Kuu=Kuu, factorize=factorize)
    return Collected(sums.L, *terms)


class TensorRows:
    """Rows whose covariances, noise, residuals and scale are tensors, all differentiable."""

    def __init__(self, chunks, Kuf, Kff, noise, residual, scale=1.0):
        self.inputs = tuple(
            tf.convert_to_tensor(values, tf.float64)
            for values in (scale, Kuf, Kff, noise, residual)
        )
        self.num_outputs = self.inputs[4].shape[-1]
        self.variables = ()
        chunked = chunks.split([tf.range(self.inputs[3].shape[-1])])
        self.sum_over_chunks, self.only_chunk = chunked.sum, chunked.only_chunk

    def __call__(self, chunk, *inputs):
        scale, Kuf, Kff, noise, residual = inputs or self.inputs
        (index,) = chunk.data  # [n]
        if chunk.shape is not None:
            members = tf.reshape(index, [*chunk.shape, 1])  # [G, b, 1]
            others = tf.transpose(members, [0, 2, 1])
            pairs = tf.broadcast_dynamic_shape(tf.shape(members), tf.shape(others))
            left = tf.broadcast_to(members, pairs)
            right = tf.broadcast_to(others, pairs)
            prior = tf.gather_nd(Kff, tf.stack([left, right], axis=-1))  # [G, b, b]
        else:
            prior = tf.gather(tf.linalg.diag_part(Kff), index, axis=-1)  # [..., n]
        return Rows(
            Kuf=tf.gather(Kuf, index, axis=-1),
            Kff=prior,
            noise=tf.gather(noise, index, axis=-1),
            residual=tf.gather(residual, index, axis=-2),
            scale=chunk.take_blocks(scale),
        )


def make_problem(seed, N=13, M=5, P=2):
    """
    Kuu, Kuf, Kff [N, N], noise, residual of a joint covariance whose smallest eigenvalue is at
    least 1/2.
    """
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(M + N, M + N))
    joint = features @ features.T / (M + N) + 0.5 * np.eye(M + N)
    return types.SimpleNamespace(
        Kuu=joint[:M, :M],
        Kuf=joint[:M, M:],
        Kff=joint[M:, M:],
        noise=rng.uniform(0.3, 1.5, size=N),
        residual=rng.normal(size=(N, P)),
    )


def of_block(power, number):
    return power if np.ndim(power) == 0 else power[number]


def dense_sums(Kuu, Kuf, Kff, noise, residual, blocks, powers, scale, shared=False):
    """Sums by explicit inverses and determinants, block after block, with derivatives by tapes."""
    scale = tf.convert_to_tensor(scale, tf.float64)
    L = tf.linalg.cholesky(Kuu)
    V = tf.matmul(tf.linalg.inv(L), Kuf)
    D = Kff - tf.matmul(V, V, transpose_a=True)
    A = 0.0
    c = 0.0
    quadratic = 0.0
    log_noise = 0.0
    penalty = 0.0
    common = np.zeros([len(blocks[0])] * 2 if shared else [0, 0])
    for number, block in enumerate(blocks):
        s = tf.gather(noise, block)
        r = tf.gather(residual, block)
        D_b = (scale if scale.shape.rank == 0 else scale[number]) * tf.gather(
            tf.gather(D, block), block, axis=1
        )
        V_b = tf.gather(V, block, axis=1)
        Sigma = tf.linalg.diag(s) + of_block(powers.noise_power, number) * D_b
        inverse = tf.linalg.inv(Sigma)
        A += tf.matmul(tf.matmul(V_b, inverse), V_b, transpose_b=True)
        c += tf.matmul(V_b, tf.matmul(inverse, r))
        quadratic += tf.reduce_sum(r * tf.matmul(inverse, r))
        log_noise += tf.linalg.slogdet(Sigma).log_abs_determinant
        X = D_b / tf.sqrt(s[:, None] * s[None, :])
        k = of_block(powers.penalty_power, number)
        if shared:
            common += X
        elif k == 0.0:
            penalty += of_block(powers.weight, number) * tf.linalg.trace(X)
        else:
            identity = tf.eye(len(block), dtype=X.dtype)
            penalty += (
                of_block(powers.weight, number)
                * tf.linalg.slogdet(identity + k * X).log_abs_determinant
                / k
            )
    return Collected(L, A, c, quadratic, log_noise, penalty, common)


def values_of_sums(problem, blocks, powers, scale, shared=False):
    """Return the values of :func:`dense_sums`."""
    sums = dense_sums(*vars(problem).values(), blocks, powers, scale, shared)
    return Collected(*(np.asarray(value) for value in sums))


def make_blocks(kind, N):
    """Index arrays of the partition."""
    if kind.startswith("rows"):
        return list(np.arange(N)[:, None])
    if kind == "equal":  # of one size where 4 divides N
        return np.split(np.arange(N), range(4, N, 4))
    # Unequal, non-contiguous; sizes 3, 1, 5, 1, 3, ...
    ends = np.cumsum(np.resize([3, 1, 5, 1, 3], N))
    return np.split(np.random.default_rng(17).permutation(N), ends[ends < N])


def make_chunks(kind, blocks, chunk_size=None):
    if kind == "rows at once":
        return OneChunk()
    if kind == "rows":
        return RowChunks(chunk_size)
    return BlockChunks(
        np.concatenate(blocks), np.array([len(block) for block in blocks]), chunk_size
    )


def factorize(Kuu):
    return cholesky(Kuu, name="Kuu", advice="nothing")


def make_cotangents(sums, seed):
    """A random number for each entry of the sums, symmetric where they are."""
    rng = np.random.default_rng(seed)
    cotangents = [rng.normal(size=np.shape(value)) for value in sums]
    cotangents[1] = 0.5 * (cotangents[1] + np.swapaxes(cotangents[1], -1, -2))
    return Collected(*cotangents)


def paired(cotangents, sums):
    return tf.add_n(
        [tf.reduce_sum(bar * value) for bar, value in zip(cotangents, sums, strict=True)]
    )


def tensors(powers):
    return Powers(*(tf.constant(power, tf.float64) for power in powers))


def all_close(actual, expected, tolerance):
    """Each array is close to its counterpart."""
    for one, other in zip(actual, expected, strict=True):
        close(one, other, tolerance)


def close(actual, expected, tolerance):
    """Largest difference relative to the largest entry, which is how rounding of sums behaves."""
    assert np.shape(actual) == np.shape(expected)
    largest = np.max(np.abs(expected), initial=np.finfo(np.float64).tiny)
    assert_near(actual, expected, tolerance * largest)
