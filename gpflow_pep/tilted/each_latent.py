"""A scalar likelihood of several latent functions, each of which is observed in its own column of Y."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from typing_extensions import override

from ..graphs import no_autograph
from .rule import Cavity, Observations, Size, Tilted, TiltedRule


class EachLatent(TiltedRule):
    """Applies the rule of a scalar likelihood to cavities [C, n]: latent function c is observed in column c of Y."""

    def __init__(self, rule: TiltedRule):
        """
        :param rule: the rule for cavities [n].
        """
        self._rule = rule

    @override
    @no_autograph
    def moments(self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Size = 0.0) -> Tilted:
        tilted = self._rule.moments(*_flat(cavity, observations, alpha), negligible)
        if cavity.mean.shape[0] == 1:
            return Tilted(*(tf.expand_dims(value, 0) for value in tilted))
        shape = tf.shape(cavity.mean)
        return Tilted(*(tf.reshape(value, shape) for value in tilted))

    @override
    def check(self, observations: Observations, num_latent_gps: int) -> None:
        self._rule.check(_flat_observations(observations, num_latent_gps), 1)

    @override
    @no_autograph
    def log_partition_vjp(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, bar: tf.Tensor, sources: Sequence[Any]
    ) -> tuple[tf.Tensor, ...]:
        bar = tf.reshape(tf.broadcast_to(bar, tf.shape(cavity.mean)), [-1])
        return self._rule.log_partition_vjp(*_flat(cavity, observations, alpha), bar, sources)


def _flat(cavity: Cavity, observations: Observations, alpha: tf.Tensor) -> tuple[Cavity, Observations, tf.Tensor]:
    """Arrange one latent value a row: [C n], [C n, ...] and [C n] or []."""
    C = cavity.mean.shape[0]
    flat = Cavity(*(tf.reshape(value, [-1]) for value in cavity))
    alpha = alpha if alpha.shape.rank == 0 or C == 1 else tf.tile(alpha, [C])
    return flat, _flat_observations(observations, C), alpha


def _flat_observations(observations: Observations, C: int) -> Observations:
    if C == 1:
        return observations
    Y = tf.reshape(tf.transpose(observations.Y), [-1, 1])
    return Observations(tf.tile(observations.X, [C, 1]), Y)
