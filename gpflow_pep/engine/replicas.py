"""In the scope of a strategy TensorFlow differentiates, and updates mirrored variables, in its replicas only."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def in_replica(function: Callable[..., Any], *arguments: tf.Tensor) -> Any:
    """
    Call a function that differentiates, in a replica of the strategy in whose scope this is.

    It is the first one where there are several devices: what is divided among them is divided in the function.
    """
    strategy = _strategy_of_scope()
    if isinstance(strategy, tf.distribute.MirroredStrategy):
        with tf.distribute.ReplicaContext(strategy, 0):
            return function(*arguments)
    return in_every_replica(function, *arguments)


def in_every_replica(function: Callable[..., Any], *arguments: tf.Tensor) -> Any:
    """Call a function that updates variables, in all replicas of the strategy; return what it returns in the first."""
    strategy = _strategy_of_scope()
    if strategy is None:
        return function(*arguments)
    results = strategy.run(function, args=arguments)
    return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], results)


def _strategy_of_scope() -> tf.distribute.Strategy | None:
    """Return the strategy in whose scope this is called; None if there is none, or this is in a replica already."""
    is_in_scope = tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context()
    return tf.distribute.get_strategy() if is_in_scope else None
