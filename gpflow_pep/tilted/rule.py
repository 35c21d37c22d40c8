"""Tilted distributions N(f; m, v) p(y|f)^α: the interface of a rule that computes their moments."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
from typing_extensions import override

from ..runtime.custom_gradients import derivatives, once_differentiable
from ..runtime.tracing import no_autograph

Size: TypeAlias = float | tf.Tensor
"""A number or a tensor []."""


class Observations(NamedTuple):
    """The data of n rows that the likelihood depends on."""

    X: tf.Tensor  # Inputs [n, D]
    Y: tf.Tensor  # Observations [n, P]


class Cavity(NamedTuple):
    """
    The Gaussian N(f; mean, variance) that a likelihood tilts: one latent value a row, [n] each, or C independent latent
    values a row, [C, n] each.
    """

    mean: tf.Tensor
    variance: tf.Tensor


class Tilted(NamedTuple):
    """
    Moments of the tilted distribution, of the cavity's shape.

    With Z = ∫ N(f; m, v) p(y|f)^α df, log_partition is log Z / α, and d1 and d2 are its first two derivatives in m.
    Where α = 0 they are E[log p] and its derivatives. The tilted mean is m + α v d1. The derivative of log_partition
    in v is (d2 + α d1²)/2.
    """

    log_partition: tf.Tensor  # [1, n] where the likelihood ties the latent values of a row
    d1: tf.Tensor
    d2: tf.Tensor
    variance_ratio: tf.Tensor  # Tilted variance over v: 1 + α v d2, computed without cancellation where it is small


class TiltedRule(ABC):
    """Computes the tilted distributions of one likelihood and projects them onto Gaussians."""

    is_shift_invariant = False
    """Whether p(y|f) stays the same if one value is added to all latent functions of a row."""

    @abstractmethod
    def moments(self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, negligible: Size = 0.0) -> Tilted:
        """
        Compute the projected tilted distribution of each row. TensorFlow does not differentiate the result.

        :param alpha: power, [] or one per row [n].
        :param negligible: log Z / α, d1 √v and d2 v below this need only the absolute accuracy of quantities of this
            size, where more costs time. Infinite, for sites far from convergence: no row needs an expensive method.
        """

    def check(self, observations: Observations, num_latent_gps: int) -> None:  # noqa: B027 (there may be nothing to check)
        """
        Check that the tilted distributions of rows like these can be computed.

        :param num_latent_gps: C.
        :raises ValueError: if they cannot.
        """

    def log_partition_vjp(
        self, cavity: Cavity, observations: Observations, alpha: tf.Tensor, bar: tf.Tensor, sources: Sequence[Any]
    ) -> tuple[tf.Tensor, ...]:
        """
        Compute the derivatives of sum(bar * log_partition) in `sources`, variables of the likelihood, for fixed
        cavities.

        This default differentiates :meth:`moments`; rules that TensorFlow cannot differentiate override it.
        """
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            total = tf.reduce_sum(bar * self.moments(cavity, observations, alpha).log_partition)
        return derivatives(tape, total, sources)


def log_partition(rule: TiltedRule, cavity: Cavity, observations: Observations, alpha: tf.Tensor) -> tf.Tensor:
    """Compute log Z / α, differentiable once in the cavity's moments and the likelihood's variables."""

    @tf.custom_gradient
    def value(mean: tf.Tensor, variance: tf.Tensor) -> Any:
        fixed = Cavity(mean, variance)
        tilted = rule.moments(fixed, observations, alpha)

        def gradient(bar: tf.Tensor, variables: Any = ()) -> Any:
            in_variance = 0.5 * (tilted.d2 + alpha * tf.square(tilted.d1))
            bars = once_differentiable(bar * tilted.d1, bar * in_variance)
            vjp = rule.log_partition_vjp(fixed, observations, alpha, bar, list(variables)) if variables else ()
            return bars, list(vjp)

        return tilted.log_partition, gradient

    return value(*cavity)


# A scalar likelihood of several latent functions, each of which is observed in its own column of Y.


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


# One rule at a certain power, another rule at all others.


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
