"""Tilted distributions: N(f; m, v) p(y|f)^α, its log-normaliser, derivatives and variance."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from ..statistics import derivatives


class Rows(NamedTuple):
    """What the likelihood sees: one latent value a row."""

    X: tf.Tensor
    """Inputs [R, D]."""
    Y: tf.Tensor
    """Observations [R, Dy]."""


class Cavity(NamedTuple):
    """The Gaussian N(f; mean, variance) that a likelihood tilts, [R] each."""

    mean: tf.Tensor
    variance: tf.Tensor


class Tilted(NamedTuple):
    """
    The tilted distribution, [R] each.

    With Z = ∫ N(f; m, v) p(y|f)^α df, log_normaliser is log Z / α, d1 and d2 its first two derivatives in m; where
    α = 0 they are E[log p] and its derivatives. The tilted mean is m + α v d1. The derivative of log_normaliser in v
    is (d2 + α d1²)/2.
    """

    log_normaliser: tf.Tensor
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
        The derivatives of sum(bar log_normaliser), with bar [R], in `sources`, parameters of the likelihood, while the
        cavities stay. Where the log-normaliser is differentiable as it is written that is what this does.
        """
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            total = tf.reduce_sum(bar * self.moments(cavity, rows, alpha).log_normaliser)
        return derivatives(tape, total, sources)
