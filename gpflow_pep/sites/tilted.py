"""Tilted distributions: N(f; m, v) p(y|f)^α, its log-normaliser, derivatives and variance."""

from typing import NamedTuple, Protocol

import tensorflow as tf


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
    The tilted distribution, [R] each. With Z = ∫ N(f; m, v) p(y|f)^α df:

    log_normaliser is log Z / α, d1 and d2 its first two derivatives in m; where α = 0 they are E[log p] and its
    derivatives. The tilted mean is m + α v d1. Also d log_normaliser / dv = (d2 + α d1²)/2.
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
