"""In the scope of a strategy TensorFlow differentiates, and updates mirrored variables, in its replicas only."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf


def in_replica(function: Callable[..., Any], *arguments: tf.Tensor) -> Any:
    """
    Call a function that differentiates, in a replica of the strategy in whose scope this is.

    With several devices it is the first replica: the function itself divides the rows among the devices.
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


def heed_set_trainable(variables: Sequence[tf.Variable]) -> None:
    """
    Let mirrored variables be as trainable as `gpflow.set_trainable` was told.

    It sets an attribute of the mirrored variable, which TensorFlow reads from the copies on the devices.
    """
    for variable in variables:
        if isinstance(variable, tf.distribute.DistributedValues) and "_trainable" in vars(variable):
            for copy in variable.distribute_strategy.experimental_local_results(variable):
                copy._trainable = vars(variable)["_trainable"]


def scope_of(variables: Sequence[tf.Variable]) -> AbstractContextManager[Any]:
    """
    Return the context in which variables can be updated: the scope of the strategy that mirrors them.

    :raises ValueError: if some of them are mirrored and others are not, or in the scope of a strategy that does not
        mirror them.
    """
    strategies = {getattr(variable, "distribute_strategy", None) for variable in variables}
    current = tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
    if isinstance(current, tf.distribute.MirroredStrategy):
        strategies.add(current)
    if len(strategies) > 1:
        raise ValueError(
            "model, with its kernel, likelihood and mean function, must be constructed in the scope of the strategy in "
            "which Adam trains it, got one of which a part, or all, was constructed elsewhere."
        )
    (strategy,) = strategies or {None}
    return nullcontext() if strategy in (None, current) else strategy.scope()


def _strategy_of_scope() -> tf.distribute.Strategy | None:
    """Return the strategy in whose scope this is called; None if there is none, or this is in a replica already."""
    is_in_scope = tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context()
    return tf.distribute.get_strategy() if is_in_scope else None
