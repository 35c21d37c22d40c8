"""
Several devices in one process: the chunks are divided among them, with one loop per device, in one
graph.

Results are summed or concatenated on the first device, which computes everything that does not grow
with N M.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import tensorflow as tf


def devices_of_strategy() -> tuple[str, ...] | None:
    """
    Return the devices of the current `tf.distribute.MirroredStrategy`; None if it has only one.
    """
    strategy = tf.distribute.get_strategy()
    if (
        not isinstance(strategy, tf.distribute.MirroredStrategy)
        or strategy.num_replicas_in_sync == 1
    ):
        return None
    return tuple(strategy.extended.worker_devices)


@contextmanager
def side_by_side() -> Iterator[None]:
    """
    Let TensorFlow run loops with checks in parallel, by a private interface; without it, they run
    sequentially.
    """
    if tf.executing_eagerly():
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    first = len(graph.get_operations())
    yield
    manager = getattr(graph, "experimental_acd_manager", None)
    for operation in graph.get_operations()[first:]:
        reads = any(value.dtype == tf.resource for value in operation.inputs)
        if manager is not None and operation.type == "While" and not reads:
            manager.run_independently(operation)


def in_replica(function: Callable[..., Any], *arguments: tf.Tensor) -> Any:
    """
    Call a function that differentiates, as TensorFlow requires in a replica; it divides the rows
    itself.
    """
    strategy = _strategy_of_scope()
    if isinstance(strategy, tf.distribute.MirroredStrategy):
        with tf.distribute.ReplicaContext(strategy, 0):
            return function(*arguments)
    return in_every_replica(function, *arguments)


def in_every_replica(function: Callable[..., Any], *arguments: tf.Tensor) -> Any:
    """
    Call a function that updates variables in all replicas of the strategy; return its first result.
    """
    strategy = _strategy_of_scope()
    if strategy is None:
        return function(*arguments)
    results = strategy.run(function, args=arguments)
    return tf.nest.map_structure(
        lambda value: strategy.experimental_local_results(value)[0], results
    )


def sync_trainable(variables: Sequence[tf.Variable]) -> None:
    """
    Copy `trainable` (see `gpflow.set_trainable`) to the per-device components, which TensorFlow
    reads.
    """
    for variable in variables:
        if isinstance(variable, tf.distribute.DistributedValues) and "_trainable" in vars(variable):
            for copy in variable.distribute_strategy.experimental_local_results(variable):
                copy._trainable = vars(variable)["_trainable"]


def scope_of(variables: Sequence[tf.Variable]) -> AbstractContextManager[object]:
    """
    Return the scope of the strategy that mirrors all (or none) of the variables, in which they can
    be updated.
    """
    strategies = {getattr(variable, "distribute_strategy", None) for variable in variables}
    current = tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
    if isinstance(current, tf.distribute.MirroredStrategy):
        strategies.add(current)
    if len(strategies) > 1:
        raise ValueError(
            "model must be constructed in the scope of the strategy in which Adam trains it, with "
            "all its parts, got one of which a part, or all, was constructed elsewhere."
        )
    (strategy,) = strategies or {None}
    if strategy in (None, current):
        return nullcontext()
    return strategy.scope()


def _strategy_of_scope() -> tf.distribute.Strategy | None:
    """Return the strategy of the current scope; None if there is none, or in a replica."""
    in_scope = tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context()
    if in_scope:
        return tf.distribute.get_strategy()
    return None
