"""
Several workers: the rows are divided among them, and TensorFlow's collective operations add up the
sums over rows.

Every worker computes the rest, from the same sums. Communication is O(M^2) numbers per pass, for
any N. Results may differ in the last digit between machines, so `fit` uses the gradient of worker
0, the chief.
"""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

# Keys of collective operations, equal in all workers: they trace the same operations in order.
_KEYS = itertools.count(1)


class Workers:
    """
    The workers of a `tf.distribute.MultiWorkerMirroredStrategy`; a single one returns its values
    unchanged.
    """

    def __init__(self, count: int, index: int):
        self.count = count
        self.index = index

    @classmethod
    def of_strategy(cls) -> "Workers":
        """
        Return the workers of the current strategy, with one device each; `ONE_PROCESS` if it has
        only one.
        """
        strategy = tf.distribute.get_strategy()
        if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return ONE_PROCESS
        resolver = strategy.cluster_resolver
        members = resolver.cluster_spec().as_dict()
        chiefs = len(members.get("chief", ()))
        count = sum(len(members.get(kind, ())) for kind in ("chief", "worker"))
        if count <= 1:
            return ONE_PROCESS
        if strategy.num_replicas_in_sync != count:
            raise ValueError(
                "the strategy must have one device per worker, got "
                f"{strategy.num_replicas_in_sync} for {count} workers: start a process for each "
                "GPU, with CUDA_VISIBLE_DEVICES."
            )
        return cls(count, int(resolver.task_id) + (chiefs if resolver.task_type == "worker" else 0))

    @property
    def is_chief(self) -> bool:
        """True for the worker that writes files."""
        return self.index == 0

    def sum(self, value: tf.Tensor) -> tf.Tensor:
        """Add up a tensor over the workers; with several workers, integers become int64."""
        if self.count > 1 and value.dtype.is_integer:
            value = tf.cast(value, tf.int64)
        return self.sums([value])[0]

    def sums(self, values: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        """Add up tensors of one type over the workers, in one operation."""
        if self.count == 1:
            return tuple(values)
        total = self._all_reduce(tf.concat([tf.reshape(value, [-1]) for value in values], axis=0))
        pairs = zip(tf.split(total, list(map(tf.size, values))), values, strict=True)
        return tuple(
            tf.ensure_shape(tf.reshape(part, tf.shape(value)), value.shape) for part, value in pairs
        )

    def norm(self, values: tf.Tensor) -> tf.Tensor:
        """Return the Euclidean norm, over the workers, of values [N, ...]."""
        return tf.sqrt(self.sum(tf.reduce_sum(tf.square(values))))

    def largest(self, value: tf.Tensor) -> tf.Tensor:
        """
        Return the maximum over the workers, []. NaN on any of several gives infinity: a maximum may
        drop NaN.
        """
        if self.count == 1:
            return value
        return self._all_reduce(
            tf.where(tf.math.is_nan(value), tf.constant(np.inf, value.dtype), value), "Max"
        )

    def any(self, condition: tf.Tensor) -> tf.Tensor:
        """Return whether a condition holds on any worker, []."""
        if self.count == 1:
            return condition
        return self.largest(tf.cast(condition, tf.float64)) > 0.0

    def from_chief(self, values: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        """Broadcast the chief's tensors, so that all workers decide alike to the last digit."""
        return self.sums([value if self.is_chief else tf.zeros_like(value) for value in values])

    def gather(self, *values: int) -> AnyNDArray:
        """Collect the integers of all workers, [workers, n]."""
        everyone = np.zeros((self.count, len(values)), np.int64)
        everyone[self.index] = values
        return np.asarray(self.sums([tf.constant(everyone)])[0])

    def _all_reduce(self, value: tf.Tensor, operation: str = "Add") -> tf.Tensor:
        from tensorflow.python.ops import collective_ops  # private to TensorFlow

        # The strategy's groups have small numbers.
        group = tf.constant(7_340_021)
        key = tf.constant(next(_KEYS))
        # Timeout in seconds, while another worker compiles; dead workers are detected earlier.
        return collective_ops.all_reduce_v2(
            value, tf.constant(self.count), group, key, operation, timeout=600.0
        )


ONE_PROCESS = Workers(1, 0)


def local_variable(values: object, dtype: tf.DType, shape: object = None) -> tf.Variable:
    """
    Create a variable that is not trainable and that the strategy does not mirror: its values may
    differ between workers.
    """
    try:
        from tensorflow.python.ops import resource_variable_ops  # private to TensorFlow
    except ImportError:
        if tf.distribute.has_strategy():
            raise
        return tf.Variable(values, trainable=False, dtype=dtype, shape=shape)
    create = resource_variable_ops.default_variable_creator_v2
    with tf.variable_creator_scope(lambda next_creator, **arguments: create(None, **arguments)):
        return tf.Variable(values, trainable=False, dtype=dtype, shape=shape)


def row_hashes(values: tf.Tensor) -> tf.Tensor:
    """Hash each row of `values` [n, D] to 64 bits, [n]."""
    return tf.bitcast(tf.fingerprint(tf.cast(values, tf.float64)), tf.int64)


def check_disjoint(workers: Workers, batches: Iterable[tuple[AnyNDArray, AnyNDArray]]) -> None:
    """
    Raise a ValueError that names two workers with common rows, given this worker's batches (X [n,
    D], Y [n, P]).
    """
    # The smallest hashes, so that all workers choose alike.
    hashes = np.zeros(0, np.int64)
    sample_size = 1000
    for batch in batches:
        values = np.concatenate([np.asarray(part, np.float64) for part in batch], axis=1)
        hashes = np.sort(np.concatenate([hashes, row_hashes(values).numpy()]))[:sample_size]
    everyone = workers.gather(len(hashes), *np.resize(hashes, sample_size).tolist())
    samples = [row[1 : 1 + row[0]] for row in everyone]
    for first, second in itertools.combinations(range(workers.count), 2):
        # Up to here both samples are complete.
        reach = min(samples[first].max(), samples[second].max())
        some, others = (sample[sample <= reach] for sample in (samples[first], samples[second]))
        shared = len(np.intersect1d(some, others))
        # Workers with duplicates of their own are ignored.
        are_distinct = len(np.unique(some)) == len(some) and len(np.unique(others)) == len(others)
        # A few rows may be equal by chance.
        if are_distinct and shared > 0.01 * min(len(some), len(others)):
            raise ValueError(
                f"data must be different rows on each worker, got {shared} of {len(others)} "
                f"sampled rows of worker {second} also on worker {first}: give each worker "
                "different rows, such as X[index::num_workers]."
            )
