"""Tilted distributions: N(f; m, v) p(y|f)^α, its log-normaliser, derivatives and variance."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from ..derivatives import derivatives, first_only


class Rows(NamedTuple):
    """What the likelihood sees."""

    X: tf.Tensor
    """Inputs [n, D]."""
    Y: tf.Tensor
    """Observations [n, Dy]."""


class Cavity(NamedTuple):
    """
    The Gaussian N(f; mean, variance) that a likelihood tilts: of one latent value a row, [n] each, or of C independent
    ones, [C, n].
    """

    mean: tf.Tensor
    variance: tf.Tensor


class Tilted(NamedTuple):
    """
    The tilted distribution, of the cavity's shape.

    With Z = ∫ N(f; m, v) p(y|f)^α df, log_normaliser is log Z / α, d1 and d2 its first two derivatives in m; where
    α = 0 they are E[log p] and its derivatives. The tilted mean is m + α v d1. The derivative of log_normaliser in v
    is (d2 + α d1²)/2.
    """

    log_normaliser: tf.Tensor
    """One for all latent values, [1, n], where the likelihood ties them."""
    d1: tf.Tensor
    d2: tf.Tensor
    ratio: tf.Tensor
    """Tilted variance over v, = 1 + α v d2 but without cancellation where that is small."""


class TiltedRule(Protocol):
    """How a likelihood's tilted distributions are computed."""

    def moments(self, cavity: Cavity, rows: Rows, alpha: tf.Tensor) -> Tilted:
        """The tilted distribution of each row; not differentiable."""

    def rough(self) -> "TiltedRule":
        """A cheaper rule, good to a few digits, where there is one."""
        return self

    def sensitivity(
        self, cavity: Cavity, rows: Rows, alpha: tf.Tensor, bar: tf.Tensor, sources: Sequence[Any]
    ) -> tuple[tf.Tensor, ...]:
        """
        The derivatives of sum(bar log_normaliser) in `sources`, parameters of the likelihood, while the
        cavities stay. Where the log-normaliser is differentiable as it is written that is what this does.
        """
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            total = tf.reduce_sum(bar * self.moments(cavity, rows, alpha).log_normaliser)
        return derivatives(tape, total, sources)


def log_normaliser(rule: TiltedRule, cavity: Cavity, rows: Rows, alpha: tf.Tensor) -> tf.Tensor:
    """log Z / α as the rule gives it, differentiable once in the cavity's moments and the likelihood's variables."""

    @tf.custom_gradient
    def value(mean: tf.Tensor, variance: tf.Tensor) -> Any:
        held = Cavity(mean, variance)
        tilted = rule.moments(held, rows, alpha)

        def gradient(bar: tf.Tensor, variables: Any = ()) -> Any:
            in_variance = 0.5 * (tilted.d2 + alpha * tf.square(tilted.d1))
            bars = first_only(bar * tilted.d1, bar * in_variance)
            return bars, list(rule.sensitivity(held, rows, alpha, bar, list(variables))) if variables else []

        return tilted.log_normaliser, gradient

    return value(*cavity)
