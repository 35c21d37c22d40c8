"""Tilted distributions N(f; m, v) p(y|f)^α: the interface of a rule that computes their moments."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from ..derivatives import derivatives, once_differentiable

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
