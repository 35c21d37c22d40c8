"""One rule at a certain power, another rule at all others."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from typing_extensions import override

from .rule import Cavity, Observations, Size, Tilted, TiltedRule

_OTHER_POWER = 0.5  # of rows whose result is not used


class AtPower(TiltedRule):
    """
    Uses one rule, usually a closed form, for rows with a certain power and another rule for all other rows.

    The power may change in a compiled graph. The other rule is not evaluated where no row needs it.
    """

    def __init__(self, power: float, there: TiltedRule, elsewhere: TiltedRule):
        """
        :param power: in [0, 1], but not 0.5.
        :param there: the rule for rows with this power; cheap, since it is evaluated for all rows.
        """
        self._power, self._there, self._elsewhere = power, there, elsewhere

    @override
    def moments(self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Size = 0.0) -> Tilted:
        is_there, power, other = self._split(alpha)
        if alpha.shape.rank == 0:
            one: tuple[tf.Tensor, ...] = tf.cond(
                is_there,
                lambda: tuple(self._there.moments(cavity, observations, power, negligible)),
                lambda: tuple(self._elsewhere.moments(cavity, observations, other, negligible)),
            )
            return Tilted(*one)
        there = self._there.moments(cavity, observations, power, negligible)
        others = tf.cond(
            tf.reduce_all(is_there),
            lambda: tuple(there),
            lambda: tuple(self._elsewhere.moments(cavity, observations, other, negligible)),
        )
        return Tilted(*(tf.where(is_there, one, two) for one, two in zip(there, others, strict=True)))

    @override
    def check(self, observations: Observations, num_latent_gps: int) -> None:
        for rule in (self._there, self._elsewhere):
            rule.check(observations, num_latent_gps)

    @override
    def log_partition_vjp(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, bar: tf.Tensor, sources: Sequence[Any]
    ) -> tuple[tf.Tensor, ...]:
        is_there, power, other = self._split(alpha)
        zero, one = tf.zeros_like(cavity.mean), tf.ones_like(cavity.mean)
        bar = tf.broadcast_to(bar, tf.shape(zero))
        # A finite cavity for rows with another power: 0 times infinity is not 0.
        finite = Cavity(tf.where(is_there, cavity.mean, zero), tf.where(is_there, cavity.variance, one))
        there = self._there.log_partition_vjp(finite, observations, power, tf.where(is_there, bar, zero), sources)
        others = tf.cond(
            tf.reduce_all(is_there),
            lambda: tuple(tf.zeros_like(value) for value in there),
            lambda: self._elsewhere.log_partition_vjp(
                cavity, observations, other, tf.where(is_there, zero, bar), sources
            ),
        )
        return tuple(first + second for first, second in zip(there, others, strict=True))

    def _split(self, alpha: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return which rows have the power, this power, and powers for the other rule, in the shape of `alpha`."""
        is_there = tf.equal(alpha, self._power)
        power, other = (
            tf.fill(tf.shape(alpha), tf.constant(value, alpha.dtype)) for value in (self._power, _OTHER_POWER)
        )
        return is_there, power, tf.where(is_there, other, alpha)
