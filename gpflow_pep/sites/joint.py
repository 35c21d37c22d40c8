"""Tilted distributions of C latent values a row: each on its own, or tied by a likelihood of several classes."""

from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any

import tensorflow as tf
from gpflow.likelihoods import Likelihood, MultiClass, ScalarLikelihood, Softmax
from typing_extensions import override

from .. import validation
from ..derivatives import derivatives
from ..likelihoods import MultiClassRobustMax
from ..likelihoods.robust_max import class_labels, log_power_mean
from ..quadrature import largest
from .projections import site_rule
from .softmax import SoftmaxTilting
from .tilted import Cavity, Rows, Tilted, TiltedRule


def joint_rule(projection: str, likelihood: Likelihood) -> TiltedRule:
    """
    The rule for cavities [C, n] of a likelihood of scalar or several latent functions.

    :raises ValueError: for another projection, or a likelihood for which there is no rule of bounded cost.
    """
    if isinstance(likelihood, ScalarLikelihood):
        return EachLatent(site_rule(projection, likelihood))
    rule = _tied_rule(likelihood)
    if projection != "kl":
        raise ValueError(f'projection must be "kl" for {type(likelihood).__name__}, got {projection!r}.')
    return rule


@singledispatch
def _tied_rule(likelihood: Likelihood) -> TiltedRule:
    raise ValueError(
        "likelihood must be a gpflow ScalarLikelihood, MultiClassRobustMax, gpflow.likelihoods.MultiClass or "
        f"gpflow.likelihoods.Softmax: tilted distributions of {type(likelihood).__name__} are integrals over several "
        "latent functions at once, for which there is no rule of bounded cost."
    )


@_tied_rule.register
def _robust_max(likelihood: MultiClassRobustMax) -> TiltedRule:
    return RobustMaxTilting(likelihood.num_classes, lambda: likelihood.log_values)


@_tied_rule.register
def _gpflow_robust_max(likelihood: MultiClass) -> TiltedRule:
    """The same one, but for quadrature: ε of GPflow's is ε (C - 1)/C of ours."""
    link = likelihood.invlink
    return RobustMaxTilting(likelihood.num_classes, lambda: (tf.math.log1p(-link.epsilon), tf.math.log(link.eps_k1)))


@_tied_rule.register
def _softmax(likelihood: Softmax) -> TiltedRule:
    return SoftmaxTilting(validation.positive_integer(likelihood.num_classes, "likelihood.num_classes"))


class EachLatent(TiltedRule):
    """A scalar likelihood: latent function c is observed in column c of Y."""

    def __init__(self, rule: TiltedRule):
        self._rule = rule

    @override
    def moments(self, cavity: Cavity, rows: Rows, alpha: tf.Tensor) -> Tilted:
        found = self._rule.moments(*_flat(cavity, rows), alpha)
        return Tilted(*(tf.reshape(value, tf.shape(cavity.mean)) for value in found))

    @override
    def rough(self) -> TiltedRule:
        rough = self._rule.rough()
        return self if rough is self._rule else EachLatent(rough)

    @override
    def sensitivity(
        self, cavity: Cavity, rows: Rows, alpha: tf.Tensor, bar: tf.Tensor, sources: Sequence[Any]
    ) -> tuple[tf.Tensor, ...]:
        bar = tf.reshape(tf.broadcast_to(bar, tf.shape(cavity.mean)), [-1])
        return self._rule.sensitivity(*_flat(cavity, rows), alpha, bar, sources)


def _flat(cavity: Cavity, rows: Rows) -> tuple[Cavity, Rows]:
    """One latent value a row: [C n] and [C n, ...]."""
    C = cavity.mean.shape[0]
    Y = rows.Y if C == 1 else tf.reshape(tf.transpose(rows.Y), [-1, 1])
    return Cavity(*(tf.reshape(value, [-1]) for value in cavity)), Rows(tf.tile(rows.X, [C, 1]), Y)


class RobustMaxTilting(TiltedRule):
    """Robust-max: p is one of two values, and E[p^α] a function of the probability that f_y is the largest."""

    def __init__(self, num_classes: int, log_values: Callable[[], tuple[tf.Tensor, tf.Tensor]]):
        """
        :param log_values: log p where f_y is the largest, and where it is not, [] each.
        """
        self._num_classes, self._log_values = num_classes, log_values

    @override
    def moments(self, cavity: Cavity, rows: Rows, alpha: tf.Tensor) -> Tilted:
        found = largest(class_labels(rows.Y, self._num_classes), *cavity)
        P = tf.exp(found.log_prob)
        log_Z, share = log_power_mean(P, *self._log_values(), alpha)
        d1 = share * found.slope
        d2 = share * (found.curvature + tf.square(found.slope)) - alpha * tf.square(d1)
        hit = alpha * share  # the share of Z where f_y is the largest
        between = hit * (1.0 - hit) * cavity.variance * tf.square(found.slope)
        return Tilted(log_Z[None], d1, d2, 1.0 - hit + hit * found.ratio + between)

    @override
    def sensitivity(
        self, cavity: Cavity, rows: Rows, alpha: tf.Tensor, bar: tf.Tensor, sources: Sequence[Any]
    ) -> tuple[tf.Tensor, ...]:
        P = tf.exp(largest(class_labels(rows.Y, self._num_classes), *cavity).log_prob)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            total = tf.reduce_sum(bar * log_power_mean(P, *self._log_values(), alpha)[0])
        return derivatives(tape, total, sources)
